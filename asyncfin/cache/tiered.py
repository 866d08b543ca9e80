"""A cache whose rows are outside the process, and which keeps in memory what was read of them."""

from __future__ import annotations

import asyncio
import copy
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Hashable, Iterable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any, Protocol, Self, TypeVar
from weakref import WeakSet

from attrs import evolve, frozen

from asyncfin.cache.availability import SLOW_SECONDS, Availability, QuestionTime, seconds_left
from asyncfin.cache.base import (
    CATALOGUE,
    MAX_RECORDS,
    Key,
    LeastRecentlyUsed,
    MiB,
    ProcessCache,
    Recorder,
    check_entity_id_or_none,
    distinct,
)
from asyncfin.cache.codec import decode_blocks, decode_catalogue, encode_blocks, encode_catalogue
from asyncfin.cache.record import EntityRecord, Pointer, RecordRule
from asyncfin.errors import ArgumentError
from asyncfin.model.catalogue import Catalogue
from asyncfin.table.block import Block, compressed
from asyncfin.tasks import unless_silent

# What was read from the rows, or put into them, is kept decoded up to this much.
_MEMORY_BYTES = 64 * MiB
# What one operation reads, so that a slow store returns a part of what it has.
_PARTS_PER_READ = 8
CLAIM_SECONDS = 10.0
_CLAIM_POLL_SECONDS = 0.02
_RELEASE_SECONDS = 0.5

T = TypeVar("T")
# An entity, its publication, and which part of it.
RowKey = tuple[str, str, str]


@frozen
class Stored:
    """A record as it is stored; `version` differs once another process has changed it."""

    record: EntityRecord
    version: Hashable
    corrupt: bool = False  # what was found instead was corrupt


class Claim(Protocol):
    """A claim on an entity between processes."""

    async def take(self) -> bool:
        """Take the claim if no other process has it; never waits for that."""
        ...

    async def release(self) -> None:
        """Release the claim, or the attempt to take it."""
        ...


class Rows(Protocol):
    """Where the rows of a partition are.

    Its methods raise what the store raises: the cache decides what a failure means, and how long to wait. A
    row is what `sealed` returns for the account, the key and the body. What is corrupt is only reported here.
    """

    async def version(self, entity_id: str) -> Hashable:
        """Return what differs once another process has changed an entity's record."""
        ...

    async def record(self, entity_id: str) -> Stored:
        """Return the record of an entity; an empty one if there is none."""
        ...

    async def change(self, entity_id: str, rule: RecordRule) -> Stored:
        """Apply what a response has shown to the record of an entity; what is corrupt is replaced."""
        ...

    async def parts(self, key: RowKey, now: datetime) -> Collection[Hashable]:
        """Return the ids of the parts under a key, which are used now."""
        ...

    async def read(self, key: RowKey, parts: Collection[Hashable]) -> dict[Hashable, bytes | None]:
        """Return the bodies of parts; None for a corrupt one. A part that was deleted since is not in it."""
        ...

    async def put(
        self, key: RowKey, body: bytes, series: int, now: datetime, *, alone: bool
    ) -> Hashable | None:
        """Store a part, in place of all others under its key if it is `alone`.

        Return its id; None if it is larger than all that may be kept.
        """
        ...

    async def drop(self, key: RowKey, parts: Collection[Hashable]) -> None:
        """Delete parts."""
        ...

    def claim(self, entity_id: str) -> Claim:
        """Return a claim that is not yet taken."""
        ...


class TieredPartition(Recorder):
    """The partition of one account.

    Its data is in `rows`, and goes by `digest` in the memory that all partitions of a cache share.
    """

    def __init__(self, cache: TieredCache, digest: bytes, rows: Rows) -> None:
        super().__init__(cache._memory, digest, cache._clock)
        self._cache = cache
        self._rows = rows
        self._time: QuestionTime | None = None  # None: each operation may take that of a question
        # Records as they were last read or stored, and what responses have shown that is not stored yet.
        self._stored: LeastRecentlyUsed[str, Stored] = LeastRecentlyUsed(MAX_RECORDS)
        self._unstored: LeastRecentlyUsed[str, EntityRecord] = LeastRecentlyUsed(MAX_RECORDS)
        # What responses to this process alone have shown, for where the rows can't be read.
        self._own: LeastRecentlyUsed[str, EntityRecord] = LeastRecentlyUsed(MAX_RECORDS)

    def of_question(self) -> Self:
        """Return the same partition as one question sees it, which waits a bounded time for the rows."""
        bounded = copy.copy(self)
        bounded._time = QuestionTime()
        return bounded

    def join(self, user: object) -> None:
        """Record that a client uses the cache, until `leave`."""
        self._cache._users.add(user)

    async def leave(self, user: object) -> None:
        """Record that a client is closed. What a file holds open is closed with the last one."""
        if user in self._cache._users:
            self._cache._users.discard(user)
            if not self._cache._users:
                await self._cache._close_unused()

    async def _run(self, work: Callable[[], Awaitable[T]], otherwise: T) -> T:
        return await self._cache._run(work, otherwise, self._time or QuestionTime())

    async def record(self, entity_id: str) -> EntityRecord | None:
        version, stored = await self._version(entity_id), self._stored.get(entity_id)
        if version is None or stored is None or stored.version != version:
            stored = await self._run(partial(self._rows.record, entity_id), None)
        if stored is None:
            return None
        now = self._clock()
        unstored = self._unstored.get(entity_id) or EntityRecord()
        # Clipped in the store too, or no later request could lift a refusal of the future.
        if stored.corrupt or stored.record.clipped(now).merged(unstored, now) != stored.record:
            stored = await self._store(entity_id, unstored, now) or stored
        return self._known(entity_id, stored, now)

    async def _version(self, entity_id: str) -> Hashable:
        return await self._run(partial(self._rows.version, entity_id), None)

    async def _change(self, entity_id: str, rule: RecordRule) -> EntityRecord | None:
        self._own.put(entity_id, rule(self._own.get(entity_id) or EntityRecord()))
        # Noted first: it applies while it is being stored, and if that fails.
        noted = rule(self._unstored.get(entity_id) or EntityRecord())
        self._unstored.put(entity_id, noted)
        now = self._clock()
        stored = await self._store(entity_id, noted, now) or await self._run(
            partial(self._rows.record, entity_id), None
        )
        return None if stored is None else self._known(entity_id, stored, now)

    def confirmed_here(self, entity_id: str) -> Pointer | None:
        """Return the publication that this process has confirmed last, unless it was refused since.

        Another process may know better, so it counts for a stale result only.
        """
        own = self._own.get(entity_id)
        return None if own is None else own.current

    async def _store(self, entity_id: str, noted: EntityRecord, now: datetime) -> Stored | None:
        def rule(known: EntityRecord) -> EntityRecord:
            return known.clipped(now).merged(noted, now)

        stored = await self._run(partial(self._rows.change, entity_id, rule), None)
        if stored is None:
            return None
        if self._unstored.get(entity_id) is noted:
            self._unstored.pop(entity_id)
        if stored.corrupt:
            self._cache._broken += 1
            return evolve(stored, corrupt=False)
        return stored

    def _known(self, entity_id: str, stored: Stored, now: datetime) -> EntityRecord:
        self._stored.put(entity_id, stored)
        record = stored.record.merged(self._unstored.get(entity_id) or EntityRecord(), now)
        # Memory evicts by it: superseded publications first.
        self._memory.change((self._account, entity_id), lambda _: record)
        return record

    def clear(self, entity_id: str | None) -> None:
        """Drop what is known of an entity, or everything; the rows stay."""
        for known in (self._stored, self._unstored, self._own):
            for each in [each for each in known if entity_id in (None, each)]:
                known.pop(each)

    async def catalogue(self, entity_id: str, dataset_id: str) -> Catalogue | None:
        key = self._key(entity_id, dataset_id, CATALOGUE)
        if (kept := self._memory.catalogue(key)) is not None:
            if self._memory.has_unstored(key) and await self._can_store(entity_id):
                await self.put_catalogue(kept)
            return kept
        for catalogue in (await self._read(key, (), decode_catalogue)).values():
            self._memory.put_catalogue(key, catalogue)
            return catalogue
        return None

    async def put_catalogue(self, catalogue: Catalogue) -> None:
        key = self._key(catalogue.entity_id, catalogue.dataset_id, CATALOGUE)
        self._memory.put_catalogue(key, catalogue)
        body = await self._encoded(encode_catalogue, catalogue)
        if body is not None and await self._put(key, body, 0, alone=True) is None:
            self._memory.add_unstored(key, {CATALOGUE})

    async def blocks(
        self, entity_id: str, dataset_id: str, value_version: str, wanted: Iterable[str] | None = None
    ) -> tuple[Block, ...]:
        key = self._key(entity_id, dataset_id, value_version)
        if self._memory.has_unstored(key) and await self._can_store(entity_id):
            await self._store_blocks(key)
        if self._memory.has_unstored(self._key(entity_id, dataset_id, CATALOGUE)):
            await self.catalogue(entity_id, dataset_id)  # it is used too, but clients keep it
        # Series never change within a publication, so what is in memory needs no look at the rows.
        if wanted is not None and self._memory.has(key, wanted):
            return self._memory.blocks(key)
        found, parts = self._memory.blocks(key), self._memory.parts(key)
        known = {series_id for block in found for series_id in block.series_ids}
        for part, read in (await self._read(key, parts, decode_blocks)).items():
            new = distinct(read, known)
            # Also where nothing is new: see `Memory.put_blocks`.
            self._memory.put_blocks(key, new, (part,))
            found += new
        return found

    async def put_blocks(
        self, entity_id: str, dataset_id: str, value_version: str, blocks: Iterable[Block]
    ) -> None:
        key = self._key(entity_id, dataset_id, value_version)
        if new := distinct(blocks, self._memory.series_ids(key)):
            stored = await asyncio.to_thread(compressed, new)
            parts, unstored = await self._put_blocks(key, stored)
            kept = new if self._memory.has_room(new) else stored
            # Together: a part that is noted without its blocks would never be read again.
            self._memory.put_blocks(key, kept, parts)
            self._memory.add_unstored(key, unstored)

    async def _put_blocks(self, key: Key, blocks: tuple[Block, ...]) -> tuple[tuple[Hashable, ...], set[str]]:
        """Store blocks, and return the id of their part, or the ids of the series if that failed."""
        series_ids = {series_id for block in blocks for series_id in block.series_ids}
        if (body := await self._encoded(encode_blocks, blocks)) is None:
            return (), set()
        part = await self._put(key, body, len(series_ids), alone=False)
        return ((), series_ids) if part is None else ((part,), set())

    async def _store_blocks(self, key: Key) -> None:
        """Store what memory still has of the blocks that could not be stored."""
        series_ids = self._memory.take_unstored(key)
        blocks = [each for each in self._memory.blocks(key) if not series_ids.isdisjoint(each.series_ids)]
        if blocks:
            try:
                parts, unstored = await self._put_blocks(key, await asyncio.to_thread(compressed, blocks))
            except BaseException:
                self._memory.add_unstored(key, series_ids)  # cancelled: to be stored when next used
                raise
            # With the blocks: memory may have dropped them during the wait.
            self._memory.put_blocks(key, blocks, parts)
            self._memory.add_unstored(key, unstored)

    async def _can_store(self, entity_id: str) -> bool:
        # Encoding takes longer than finding out whether the store is there.
        return await self._version(entity_id) is not None

    async def _put(self, key: Key, body: bytes, series: int, *, alone: bool) -> Hashable | None:
        put = partial(self._rows.put, key[1:], body, series, self._clock(), alone=alone)
        return await self._run(put, None)

    async def _encoded(self, encode: Callable[[T], bytes], value: T) -> bytes | None:
        # In another thread than that of the file, for which every read waits.
        try:
            return await asyncio.to_thread(encode, value)
        except Exception:  # noqa: BLE001  a result is never lost because it can't be stored
            self._cache._broken += 1
            return None

    async def _read(
        self, key: Key, known: Collection[Hashable], decode: Callable[[bytes], T]
    ) -> dict[Hashable, T]:
        """Return the parts under a key that are not known, by id. Corrupt ones are counted and deleted."""
        nothing: Collection[Hashable] = ()
        parts = await self._run(partial(self._rows.parts, key[1:], self._clock()), nothing)
        wanted = [part for part in parts if part not in known]
        found: dict[Hashable, T] = {}
        corrupt: list[Hashable] = []
        for begin in range(0, len(wanted), _PARTS_PER_READ):
            some = wanted[begin : begin + _PARTS_PER_READ]
            unread: dict[Hashable, bytes | None] | None = None
            if (bodies := await self._run(partial(self._rows.read, key[1:], some), unread)) is None:
                break  # the rest counts as not cached
            for part, body in bodies.items():
                try:
                    if body is None:
                        raise ValueError("corrupt")
                    found[part] = decode(body)
                except Exception:  # noqa: BLE001  verified, but not of this format
                    corrupt.append(part)
        if corrupt:
            self._cache._broken += len(corrupt)
            await self._run(partial(self._rows.drop, key[1:], corrupt), None)
        return found

    @asynccontextmanager
    async def claim(self, entity_id: str) -> AsyncIterator[None]:
        claim = self._rows.claim(entity_id)
        async with self._cache._claimed(claim.take, claim.release, self._time or QuestionTime()):
            yield

    def count(self, *, hits: int, misses: int) -> None:
        self._cache._count(hits, misses)


class TieredCache(ProcessCache):
    """A cache whose rows are outside the process, at a `place` whose text is printable."""

    def __init__(self, place: str, max_bytes: int, clock: Callable[[], datetime]) -> None:
        super().__init__(min(_MEMORY_BYTES, max_bytes), clock)
        self._partitions: dict[bytes, TieredPartition] = {}
        self._availability = Availability(place)
        self._users: WeakSet[Any] = WeakSet()

    async def clear(self, entity_id: str | None = None) -> None:
        check_entity_id_or_none(entity_id)
        try:
            await self._clear_rows(entity_id)
        finally:
            self._memory.clear(entity_id)
            for partition in self._partitions.values():
                partition.clear(entity_id)

    @abstractmethod
    async def _clear_rows(self, entity_id: str | None) -> None:
        """Delete the rows of an entity, or all; OSError: some may still be there."""

    async def _open_store(self) -> None:
        """Open what an operation needs, which says nothing about how fast the store is."""

    async def _close_unused(self) -> None:
        """Close what is not to stay open after the last client of the cache."""

    def _partition(self, digest: bytes, rows: Callable[[], Rows]) -> TieredPartition:
        """Return the partition of an account; `rows` makes its rows."""
        if digest not in self._partitions:
            self._partitions[digest] = TieredPartition(self, digest, rows())
        return self._partitions[digest]

    async def _run(self, work: Callable[[], Awaitable[T]], otherwise: T, time: QuestionTime) -> T:
        """Return the result of an operation on the rows; `otherwise` if it fails, or takes too long.

        Raises:
            ArgumentError: the store is not one that may be used.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        if self._availability.is_closed(began) or (left := time.left(began)) <= 0:
            return otherwise
        time.begin(began)
        context = seconds_left.set(left)
        try:
            async with unless_silent(left) as silence:
                await self._open_store()
                opened = loop.time()
                result = await work()
        except ArgumentError:
            raise
        except Exception as error:  # noqa: BLE001  a cache that fails is as if it were not there
            # With less than that left, the question is at the end of its time, and not the store.
            if not isinstance(error, TimeoutError) or loop.time() - began >= SLOW_SECONDS:
                self._broken += self._availability.fail(loop.time(), self._reason(error))
            return otherwise
        finally:
            seconds_left.reset(context)
            time.end(loop.time())
        took = loop.time() - opened
        # What a busy event loop has delayed says nothing about the store.
        if took <= SLOW_SECONDS or silence.loop_was_busy:
            self._availability.succeed(loop.time())
        else:
            self._broken += self._availability.fail(loop.time(), f"an operation took {took:.1f} s")
        return result

    def _reason(self, error: Exception) -> str:
        """Return what is logged of an error."""
        return type(error).__name__

    @asynccontextmanager
    async def _claimed(
        self, take: Callable[[], Awaitable[bool]], release: Callable[[], Awaitable[None]], time: QuestionTime
    ) -> AsyncIterator[None]:
        """Hold a claim while the block lasts; after 10 seconds in which another process has it, go on.

        The first operation counts as waiting for the store; the others wait for another process.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + CLAIM_SECONDS
        try:
            # If the store fails, no other process can hold a claim either.
            taken = await self._run(take, True, time)
            while not taken and loop.time() < until:
                await asyncio.sleep(_CLAIM_POLL_SECONDS)
                taken = await self._run(take, True, QuestionTime())
            yield
        finally:
            # If this fails or is cancelled, a claim in Redis ends by itself, and a lock with its process.
            with suppress(Exception):
                async with unless_silent(_RELEASE_SECONDS):
                    await release()
