"""The files of an extraction in an object store. The lock is an object next to the prefix."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from datetime import datetime
from functools import partial

from attrs import evolve, frozen

from asyncfin.clock import utc_text
from asyncfin.errors import ManifestMismatchError
from asyncfin.extraction.lock import PrefixLock
from asyncfin.extraction.parquet import EntityFile, Footer, Found, Written, read_footer
from asyncfin.extraction.prefix import Objects, Prefix
from asyncfin.extraction.strict import structure
from asyncfin.model.judge import Missing
from asyncfin.optional import library
from asyncfin.tasks import bounded, in_thread

_ATTRIBUTE = "asyncfin"
# S3 takes 2 kB of metadata in all.
_MOST_METADATA = 1500
# The end of a file, in which its footer usually is.
_TAIL = 65_536
# Objects whose metadata are read at once.
_AT_ONCE = 32


@frozen
class _Described:
    """The metadata of an object. `missing` is None if it would be too long."""

    entity_id: str
    dataset_id: str
    created_timestamp: datetime
    question: str
    rows: int
    requests: int
    missing: Missing | None
    run: str | None = None


class ObjectFiles:
    """The objects below a prefix of a bucket; see `Files`. `lock` is whether to exclude other runs."""

    def __init__(self, prefix: Prefix, *, lock: bool) -> None:
        self._prefix = prefix
        library("pyarrow.parquet", "arrow")
        self._objects = Objects(prefix)
        self._lock = PrefixLock(self._objects, prefix) if lock else None

    def __str__(self) -> str:
        return str(self._prefix)

    async def lock(self, stop: asyncio.Event) -> bool:
        return self._lock is None or await self._lock.take(stop)

    async def found(self) -> list[Found]:
        keys = [key for key in await self._objects.keys() if key.endswith(".parquet")]
        async with bounded([partial(self._found, key) for key in keys], _AT_ONCE) as found:
            return [each async for each in found if each is not None]

    async def find(self, entity_id: str) -> Found | None:
        return await self._found(self._prefix.key(entity_id))

    async def question(self, entity_id: str) -> str | None:
        key = self._prefix.key(entity_id)
        footer = await self._footer(key, (await self._objects.head(key)).size)
        return None if footer is None else footer.question

    def check(self) -> None:
        if self._lock is not None:
            self._lock.check()

    def path(self, entity_id: str) -> str:
        return f"{self._prefix.bucket}/{self._prefix.key(entity_id)}"

    async def put(self, file: EntityFile, question: str) -> None:
        self.check()
        written = file.written
        described = {
            "entity_id": file.entity_id,
            "dataset_id": written.dataset_id,
            "created_timestamp": utc_text(written.created_timestamp),
            "question": question,
            "rows": written.rows,
            "requests": written.requests,
            "missing": dict(written.missing),
            "run": written.run,
        }
        if len(text := json.dumps(described)) > _MOST_METADATA:  # the footer has them too
            text = json.dumps(described | {"missing": None})
        attributes = {_ATTRIBUTE: text, "Content-Type": "application/vnd.apache.parquet"}
        await self._objects.put(self._prefix.key(file.entity_id), file.content, attributes)

    async def delete(self, entity_id: str) -> None:
        self.check()
        await self._objects.delete(self._prefix.key(entity_id))

    async def aclose(self) -> None:
        if self._lock is not None:
            await self._lock.release()

    async def _found(self, key: str) -> Found | None:
        # An estimate excludes no run, which may delete an object that was listed.
        with suppress(FileNotFoundError):
            return await self._described(key)
        return None

    async def _described(self, key: str) -> Found | None:
        """Return what the metadata of an object say, or the footer of its file; refuse a foreign one.

        None: it is damaged, so that its entity is read again.
        """
        # A HEAD request, which transfers no content; the footer is read only where the metadata are missing.
        head, found = await self._objects.head(key), None
        with suppress(ValueError):
            said = structure(json.loads(head.attributes.get(_ATTRIBUTE, "")), _Described)
            missing = said.missing
            if missing is None:
                if (footer := await self._footer(key, head.size)) is None:
                    return None
                missing = footer.written.missing
            written = Written(
                said.dataset_id,
                said.created_timestamp,
                said.rows,
                head.size,
                said.requests,
                missing,
                said.run,
            )
            found = Found(said.entity_id, said.question, written)
        if found is None and (footer := await self._footer(key, head.size)) is not None:
            # A copy of an object may have lost its metadata.
            found = evolve(footer.found, written=evolve(footer.written, bytes=head.size))
        if found is None or self._prefix.key(found.entity_id) != key:
            raise ManifestMismatchError(
                f"{self._prefix.bucket}/{key} is not an extraction's file, and readers would take it for part"
                " of the table: remove it, or give another prefix"
            )
        return found

    async def _footer(self, key: str, size: int) -> Footer | None:
        """Return the footer of an object's file, from the end of the object; None if it has none."""
        length, tail = _TAIL, b""
        # Twice if the footer is longer than the tail, as with thousands of series selected by id.
        for _ in range(2):
            start = max(0, size - length)
            if start == size:  # a range of no bytes is an error
                break
            tail = await self._objects.read(key, start, size)
            # The last eight bytes: the length of the metadata before them, and a magic word.
            length = int.from_bytes(tail[-8:-4], "little") + 8
            if length <= len(tail) or start == 0:
                break
        with suppress(ValueError):
            return await in_thread(partial(read_footer, tail))
        return None
