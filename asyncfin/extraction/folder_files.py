"""The files of an extraction in a local folder."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from typing import TypeVar

from asyncfin.errors import RunInProgressError
from asyncfin.extraction.folder import Folder
from asyncfin.extraction.holder import RENEW_SECONDS
from asyncfin.extraction.parquet import EntityFile, Footer, Found
from asyncfin.local import flush_names, write_whole
from asyncfin.optional import library
from asyncfin.tasks import cancel_and_wait, wait_for_all

T = TypeVar("T")
_log = logging.getLogger("asyncfin")


class FolderFiles:
    """The files in a local folder; see `Files`.

    All calls run in one thread, in order, and a call that has begun always ends. anyio's limiter of one token
    gives neither that order nor that end: its shield does not hold against `Task.cancel`.
    """

    def __init__(self, folder: Folder, owner: str | None = None) -> None:
        self._folder = folder
        self._owner = owner  # in a worker: the owner of its driver's lock
        self._renewing: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "asyncfin-extract")
        self._resources = ExitStack()

    def __str__(self) -> str:
        return str(self._folder)

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def lock(self, stop: asyncio.Event) -> bool:
        self._renewing = asyncio.ensure_future(self._renew(await self._run(self._lock)))
        return True

    async def _renew(self, write: Callable[[], None]) -> None:
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            with suppress(OSError):  # the lock is held whatever it says
                await self._run(write)

    async def found(self) -> list[Found]:
        return await self._run(self._found)

    async def find(self, entity_id: str) -> Found | None:
        footer = await self._footer(entity_id)
        return None if footer is None else footer.found

    async def question(self, entity_id: str) -> str | None:
        footer = await self._footer(entity_id)
        return None if footer is None else footer.question

    async def _footer(self, entity_id: str) -> Footer | None:
        return await self._run(partial(self._folder.owned_footer, self._folder.file(entity_id)))

    def check(self) -> None:
        # The lock of a folder lasts as long as the process, which can be that of a worker's killed driver.
        if self._owner is None:
            return
        holder = self._folder.holder  # None: it is just being written
        if holder is not None and holder.owner != self._owner:
            raise RunInProgressError(f"another run has taken over {self}, and nothing more is written")

    def path(self, entity_id: str) -> str:
        return str(self._folder.file(entity_id))

    async def put(self, file: EntityFile, question: str) -> None:
        # A new name: a worker that was taken for dead may still be writing the same entity's.
        path, part = self._folder.file(file.entity_id), self._folder.new_part()

        def put() -> None:
            self.check()
            write_whole(path, part, lambda stream: stream.write(file.content))

        await self._run(put)

    async def delete(self, entity_id: str) -> None:
        def delete() -> None:
            self._folder.file(entity_id).unlink(missing_ok=True)
            flush_names(self._folder.data)

        await self._run(delete)

    async def aclose(self) -> None:
        try:
            if self._renewing is not None:
                await cancel_and_wait([self._renewing])
        finally:
            await self._close()

    async def _close(self) -> None:
        try:
            # A future, not a task, which would be cancelled when `asyncio.run` ends.
            closed = asyncio.get_running_loop().run_in_executor(self._thread, self._resources.close)
            await wait_for_all([closed])
        finally:
            self._thread.shutdown(wait=False)

    # What follows runs in the thread.

    def _lock(self) -> Callable[[], None]:
        folder = self._folder
        if not folder.lock.exists():
            self._found()  # refuses foreign files before anything is made
        folder.make()
        write = self._resources.enter_context(folder.locked())
        # Under the lock: no unfinished file is that of a run that continues.
        folder.sweep(folder.beside.name)
        self._resources.callback(self._sweep_at_end)
        folder.try_out()
        return write

    def _sweep_at_end(self) -> None:
        """Delete what workers that were killed have left; the next run does it if this one can't."""
        try:
            self._folder.sweep(self._folder.beside.name)
        except OSError as error:
            _log.warning("an unfinished file can't be deleted: %s", error)

    def _found(self) -> list[Found]:
        library("pyarrow.parquet", "arrow")
        folder = self._folder
        folder.refuse_inner()
        found, damaged = [], []
        for path in folder.files():
            try:
                footer = folder.footer(path)
            except FileNotFoundError:
                continue
            except ValueError as error:
                damaged.append((path, str(error)))
                continue
            if footer is None:
                folder.refuse(path)
            else:
                found.append(footer.found)
        is_extraction = bool(found) or folder.lock.exists()
        for path, reason in damaged:
            # In an extraction it is a damaged file, which is replaced when its entity is read again.
            if not (is_extraction and folder.may_be_damaged(path)):
                folder.refuse(path)
            _log.warning("%s is damaged, and its entity will be read again: %s", path, reason)
        return found
