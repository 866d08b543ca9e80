"""What could not be stored outside the process is stored later, whatever memory drops meanwhile."""

import asyncio
from collections.abc import Collection, Hashable
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import UTC, datetime

import pytest

from asyncfin.cache.base import Memory
from asyncfin.cache.memory import MemoryCache
from asyncfin.cache.record import EntityRecord, Rule
from asyncfin.cache.tiered import Stored, TieredPartition
from tests.cache.conftest import blocks

NOW = datetime(2026, 1, 2, tzinfo=UTC)


class RecoveringRows:
    """Rows that store nothing until they recover; memory drops the entity while a part is stored."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.parts: dict[Hashable, bytes] = {}
        self.recovered = False
        self.is_slow = False

    async def version(self, entity_id: str) -> Hashable:
        return 1 if self.recovered else None

    async def record(self, entity_id: str) -> Stored | None:
        return Stored(EntityRecord(), 1) if self.recovered else None

    async def change(self, entity_id: str, rule: Rule) -> Stored | None:
        return Stored(rule(EntityRecord()), 1) if self.recovered else None

    async def bodies(
        self, key: tuple[str, str, str], known: Collection[Hashable], now: datetime
    ) -> dict[Hashable, bytes]:
        return {part: body for part, body in self.parts.items() if part not in known}

    async def put(
        self, key: tuple[str, str, str], body: bytes, series: int, now: datetime, *, alone: bool
    ) -> Hashable | None:
        if not self.recovered:
            return None
        if self.is_slow:
            await asyncio.Event().wait()
        self.parts[len(self.parts)] = body
        self._memory.clear("E")
        return len(self.parts) - 1

    async def drop_corrupt(self, key: tuple[str, str, str], part: Hashable) -> None:
        del self.parts[part]

    def failed(self, error: Exception) -> None:
        raise error

    def claim(self, entity_id: str) -> AbstractAsyncContextManager[None]:
        return nullcontext()


async def unstored() -> tuple[RecoveringRows, TieredPartition]:
    """Return rows that have recovered, and a partition whose blocks they did not store before."""
    cache = MemoryCache(10_000_000, clock=lambda: NOW)
    rows = RecoveringRows(cache._memory)
    partition = TieredPartition(cache, b"", rows)
    await partition.put_blocks("E", "D", "original", blocks(1, 2))
    assert rows.parts == {}
    rows.recovered = True
    return rows, partition


async def check_stored(rows: RecoveringRows, partition: TieredPartition) -> None:
    """The blocks are found, and are stored by then."""
    found = await partition.blocks("E", "D", "original")
    assert {each for block in found for each in block.series_ids} == {
        each for block in blocks(1, 2) for each in block.series_ids
    }
    assert len(rows.parts) == 1


async def test_blocks_that_memory_drops_while_they_are_stored_are_found() -> None:
    rows, partition = await unstored()
    await check_stored(rows, partition)


async def test_blocks_whose_storing_is_cancelled_are_stored_when_they_are_next_used() -> None:
    rows, partition = await unstored()
    rows.is_slow = True
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await partition.blocks("E", "D", "original")
    rows.is_slow = False
    await check_stored(rows, partition)
