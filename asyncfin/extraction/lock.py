"""The lock of a prefix: an object that is only written under conditions, and renewed while a run lasts."""

from __future__ import annotations

import asyncio
import errno
import logging
from contextlib import suppress
from typing import Any, Literal, TypeGuard

from asyncfin.errors import ArgumentError, RunInProgressError
from asyncfin.extraction.holder import RENEW_SECONDS, Holder, holder_in
from asyncfin.extraction.prefix import Content, NoConditionsError, Objects, Prefix
from asyncfin.model.words import lasting
from asyncfin.tasks import cancel_and_wait, in_thread

_log = logging.getLogger("asyncfin")

# The lock is taken over if it was not renewed for five minutes, by the monotonic clock of the run that waits:
# clocks are not compared.
STALE_SECONDS = 300.0
# Seconds between two looks at a lock that is waited for.
_LOOK_SECONDS = 5.0


class PrefixLock:
    """Excludes other runs from a prefix, from `take` to `release`."""

    def __init__(self, objects: Objects, prefix: Prefix) -> None:
        self._objects, self._prefix = objects, prefix
        self._time = asyncio.get_running_loop().time
        self._holder = Holder()
        self._tag: str | None = None  # of the lock as this run wrote it; None: it has not
        self._renewed = 0.0
        self._renewing: asyncio.Task[None] | None = None
        self._lost = False

    async def take(self, stop: asyncio.Event) -> bool:
        """Take the lock, also one that has not been renewed for five minutes.

        Return whether it is taken: not if `stop` has ended the wait for it. RunInProgressError: another
        run is using the prefix; ArgumentError: the store has no conditional writes.
        """
        if not await self._claim(None):
            if not await self._take_over(stop):
                return False
        elif await self._put("create"):
            # The second one must fail: this store ignores conditions without a word.
            raise self._unconditional()
        self._renewing = asyncio.ensure_future(self._renew())
        return True

    def check(self) -> None:
        """Raise RunInProgressError if another run has taken the lock over, or may have done so."""
        if self._lost:
            raise RunInProgressError(
                f"another run has taken over {self._prefix}, and nothing more is written"
            )
        # A minute before the others may think so: what is being written then gets there in time.
        if self._time() - self._renewed >= STALE_SECONDS - RENEW_SECONDS:
            raise RunInProgressError(
                f"{self._prefix}: its lock could not be renewed in time, so another run may have taken over,"
                " and nothing more is written"
            )

    async def release(self) -> None:
        """Delete the lock, unless another run has taken it over. One that can't be deleted becomes stale."""
        try:
            if self._renewing is not None:
                await cancel_and_wait([self._renewing])
        finally:
            # One call: `asyncio.run` cancels all tasks at its end, and a lock that stays costs five minutes.
            await in_thread(self._delete)

    def _delete(self) -> None:
        if self._tag is None or self._lost:
            return
        with suppress(OSError):
            with self._objects.open(self._prefix.lock) as lock:
                content = lock.read()
            if self._is_own(content):
                self._objects.remove(self._prefix.lock)

    async def _claim(self, tag: str | None) -> bool:
        """Write the lock if there is none, or if its tag is the given one; return whether it is held."""
        for seconds in self._prefix.retries.waits():
            sent = self._time()
            if await self._put("create" if tag is None else {"e_tag": tag}):
                return True
            # A refusal proves nothing: an earlier attempt of this write may have reached the store, or the
            # store may be busy. Only the object shows whose lock it is.
            current = await self._current()
            if self._wrote(current):
                self._tag = tag = current.tag
                if current.content == self._holder.content:
                    self._renewed = sent
                    return True
            elif (current and current.tag) != tag:
                return False
            await asyncio.sleep(seconds)
        raise OSError(errno.EIO, "the store refuses to write the lock", str(self._prefix))

    async def _put(self, condition: Literal["create"] | dict[str, Any]) -> bool:
        """Write the lock under a condition, and return whether that held."""
        # Different each time: the ETag of S3 is that of the content.
        self._holder = self._holder.renew()
        # Before the request: other runs count from when it reaches the store, which is not earlier.
        sent = self._time()
        try:
            tag = await self._objects.put_if(self._prefix.lock, self._holder.content, condition)
        except NoConditionsError:
            raise self._unconditional() from None
        if tag is not None:
            self._tag, self._renewed = tag, sent
        return tag is not None

    async def _take_over(self, stop: asyncio.Event) -> bool:
        """Wait until the lock is stale, or gone, and take it; return False if `stop` is set before."""
        # A lock that is renewed has another tag each time. One that keeps its tag for five minutes is stale:
        # the run that replaces that very tag has taken it over, and all others fail.
        found, since = await self._current(), self._time()
        _log.warning(
            "waiting for the lock of %s, at most %s: its run is at work, or was killed",
            self._prefix,
            lasting(STALE_SECONDS),
        )
        while found is not None and self._time() - since < STALE_SECONDS:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(_LOOK_SECONDS, STALE_SECONDS / 10)):
                    await stop.wait()
            if stop.is_set():
                return False
            current = await self._current()
            if current is not None and current.tag != found.tag:
                raise self._at_work()
            found = current  # None: released during the wait, so it is taken like one that never was
        if not await self._claim(None if found is None else found.tag):
            raise self._at_work()
        return True

    async def _renew(self) -> None:
        while not self._lost:
            await asyncio.sleep(RENEW_SECONDS)
            # While the store is away, no other run can take the lock; `check` raises when it is stale.
            with suppress(OSError):
                self._lost = not await self._claim(self._tag)

    async def _current(self) -> Content | None:
        """Return the lock as it is in the store; None if there is none."""
        try:
            return await self._objects.get(self._prefix.lock)
        except FileNotFoundError:
            return None

    def _wrote(self, found: Content | None) -> TypeGuard[Content]:
        """Return whether this run has written a lock."""
        return found is not None and self._is_own(found.content)

    def _is_own(self, content: bytes) -> bool:
        holder = holder_in(content)
        return holder is not None and holder.owner == self._holder.owner

    def _at_work(self) -> RunInProgressError:
        return RunInProgressError(f"another run is at work on {self._prefix}: let it end, or stop it")

    def _unconditional(self) -> ArgumentError:
        return ArgumentError(
            f"to: {self._prefix}: this store has no conditional writes, which keep two runs apart:"
            " lock=False (--no-lock) if there is certainly no other"
        )
