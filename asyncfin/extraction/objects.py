"""An extraction in an object store.

Every object says itself what it is, in its metadata and in the footer of its Parquet file, so there is no
journal. The lock is an object beside the prefix.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from functools import partial

from attrs import evolve, frozen

from asyncfin.errors import ManifestMismatchError
from asyncfin.extraction.lock import PrefixLock
from asyncfin.extraction.parquet import EntityFile, Footer, Written, read_footer
from asyncfin.extraction.prefix import Objects, Prefix
from asyncfin.extraction.question import Lacking, SharedQuestion, differences, text_hash
from asyncfin.extraction.report import Failure
from asyncfin.extraction.strict import structure
from asyncfin.model.catalogue import Dataset, is_same_publication
from asyncfin.table.optional import library
from asyncfin.tasks import bounded

_ATTRIBUTE = "asyncfin"
# S3 takes 2 kB of metadata in all.
_MOST_METADATA = 1500
# The end of a file, in which its footer usually is.
_TAIL = 65_536
# How many objects are asked what they are, or deleted, at once.
_AT_ONCE = 32


@frozen
class _Described:
    """What the metadata of an object say. `lacking` is None where it would be too long."""

    entity_id: str
    dataset_id: str
    question: str
    rows: int
    requests: int
    sha256: str
    lacking: Lacking | None


@frozen
class _Found:
    """An object of an extraction. `question` is the hash of its question's text."""

    entity_id: str
    question: str
    written: Written


class ObjectStore:
    """A prefix of a bucket; see `Store`.

    Args:
        prefix: where the objects stand.
        question: what they answer.
        lock: whether other runs are to be kept away.

    Raises:
        ImportError: a library is not installed.
        ArgumentError: the environment does not tell how to reach the bucket.
    """

    def __init__(self, prefix: Prefix, question: SharedQuestion, *, lock: bool) -> None:
        self._prefix, self._question = prefix, question
        self._locks = lock
        self._lock: PrefixLock | None = None
        library("pyarrow.parquet", "arrow")
        self._objects = Objects(prefix)
        self.known: dict[str, Written] = {}
        self.repaired: str | None = None

    async def open(self, *, replace: bool, stop: asyncio.Event) -> None:
        if self._locks:
            self._lock = PrefixLock(self._objects, self._prefix)
            if not await self._lock.take(stop):
                return
        others = await self._read()
        if not replace:
            await self._refuse_others(others)
            return
        async with bounded([partial(self._delete, found) for found in others], _AT_ONCE) as deleted:
            async for _ in deleted:
                pass

    async def _delete(self, found: _Found) -> None:
        self.check()
        await self._objects.delete(self._prefix.key(found.entity_id))

    async def look(self, *, replace: bool) -> None:
        others = await self._read()
        if not replace:
            await self._refuse_others(others)

    async def join(self, known: dict[str, Written], entity_ids: Iterable[str]) -> None:
        self.known = known
        unknown = [partial(self._find, each) for each in entity_ids if each not in known]
        async with bounded(unknown, _AT_ONCE) as looked_for:
            async for _ in looked_for:
                pass

    async def _find(self, entity_id: str) -> None:
        with suppress(FileNotFoundError):
            found = await self._described(self._prefix.key(entity_id))
            if found.question == self._question.hash:
                self.known[entity_id] = found.written

    def path(self, entity_id: str) -> str:
        return f"{self._prefix.bucket}/{self._prefix.key(entity_id)}"

    def check(self) -> None:
        if self._lock is not None:
            self._lock.check()

    async def is_current(self, dataset: Dataset) -> bool:
        # An object is never there in part.
        entity_id = dataset.entity_id
        if is_same_publication(self.known[entity_id].dataset_id, dataset.dataset_id):
            return True
        if self._lock is not None:
            return False
        # A worker that was killed may have replaced the object since the driver has listed it.
        await self._find(entity_id)
        return is_same_publication(self.known[entity_id].dataset_id, dataset.dataset_id)

    async def put(self, file: EntityFile, began: datetime) -> None:
        self.check()
        described = {
            "entity_id": file.entity_id,
            "dataset_id": file.written.dataset_id,
            "question": self._question.hash,
            "rows": file.written.rows,
            "requests": file.written.requests,
            "sha256": file.written.sha256,
            "lacking": dict(file.written.lacking),
        }
        if len(text := json.dumps(described)) > _MOST_METADATA:  # the footer has the names all the same
            text = json.dumps(described | {"lacking": None})
        attributes = {_ATTRIBUTE: text, "Content-Type": "application/vnd.apache.parquet"}
        await self._objects.put(self._prefix.key(file.entity_id), file.content, attributes)
        self.known[file.entity_id] = file.written

    async def note_written(self, entity_id: str, written: Written, began: datetime) -> None:
        self.known[entity_id] = written

    # There is no journal to note it in: the objects say it all, and the next run meets a failure again.
    async def note_unchanged(self, entity_id: str, began: datetime) -> None:
        pass

    async def note_failed(self, entity_id: str, failure: Failure, requests: int, began: datetime) -> None:
        pass

    async def aclose(self) -> None:
        if self._lock is not None:
            await self._lock.release()

    async def _read(self) -> list[_Found]:
        """Read what the objects say of themselves, and return those of other questions.

        Raises:
            ManifestMismatchError: an object is of no extraction.
        """
        keys = [key for key in await self._objects.keys() if key.endswith(".parquet")]
        others = []
        async with bounded([partial(self._described, key) for key in keys], _AT_ONCE) as described:
            async for found in described:
                if found.question == self._question.hash:
                    self.known[found.entity_id] = found.written
                else:
                    others.append(found)
        return others

    async def _described(self, key: str) -> _Found:
        """Return what an object says of itself: its metadata, or the footer of its file.

        Raises:
            ManifestMismatchError: it is of no extraction.
        """
        # Metadata cost a request for each object and no bytes; a footer is read only where they lack.
        head, found = await self._objects.head(key), None
        with suppress(ValueError):
            said = structure(json.loads(head.attributes.get(_ATTRIBUTE, "")), _Described)
            lacking = said.lacking
            if lacking is None:
                footer = await self._footer(key, head.size)
                lacking = footer.written.lacking if footer is not None else {}
            written = Written(said.dataset_id, said.rows, head.size, said.sha256, said.requests, lacking)
            found = _Found(said.entity_id, said.question, written)
        if found is None and (footer := await self._footer(key, head.size)) is not None:
            # A copy of an object may have lost its metadata.
            written = evolve(footer.written, bytes=head.size)
            found = _Found(footer.entity_id, text_hash(footer.question), written)
        if found is None or self._prefix.key(found.entity_id) != key:
            raise ManifestMismatchError(
                f"{self._prefix.bucket}/{key} is of no extraction, and readers would take it for part of the"
                " table: remove it, or name another prefix"
            )
        return found

    async def _footer(self, key: str, size: int) -> Footer | None:
        """Return the footer of an object's file, from the end of the object."""
        length = _TAIL
        # A second look where the footer is longer than the tail, as with thousands of series asked for by id.
        for _ in range(2):
            start = max(0, size - length)
            tail = await self._objects.read(key, start, size)
            # The last eight bytes: the length of the metadata before them, and a magic word.
            length = int.from_bytes(tail[-8:-4], "little") + 8
            if length <= len(tail) or start == 0:
                break
        return await asyncio.to_thread(read_footer, tail)

    async def _refuse_others(self, others: list[_Found]) -> None:
        """Refuse a prefix with objects of another question; those without rows keep no question out.

        Raises:
            ManifestMismatchError: there are some; the message says how the questions differ.
        """
        for found in others:
            if found.written.rows == 0:
                continue
            key = self._prefix.key(found.entity_id)
            footer = await self._footer(key, found.written.bytes)
            differing = differences(self._question.text, footer.question) if footer is not None else key
            raise ManifestMismatchError(
                f"{self._prefix} belongs to another question, which differs in {differing}: name another"
                " prefix, or have its objects deleted (replace=True; --replace on the command line)"
            )
