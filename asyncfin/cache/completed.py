"""A user's own cache with what ours can do beyond it, for publications that were changed in place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, cast

from asyncfin.cache.base import MAX_RECORDS, LeastRecentlyUsed
from asyncfin.cache.record import EntityRecord, Pointer
from asyncfin.cache.store import Partition
from asyncfin.model.catalogue import Catalogue, Dataset, publication_id
from asyncfin.table.block import Block


class CompletePartition(Partition, Protocol):
    """What clients need of a partition; a user's own need not have it (`completed`)."""

    async def mark_differing(self, entity_id: str) -> None:
        """Record that responses to one read differed in the `created_timestamp` of one publication."""
        ...

    async def drop_older(self, current: Dataset) -> None:
        """Drop what is kept of a publication, unless its catalogue is as new as these metadata of it."""
        ...


def completed(partition: Partition) -> CompletePartition:
    """Return a partition that can drop a publication; for one that cannot, a view of it."""
    complete = partition if hasattr(partition, "drop_older") else _Completed(partition)
    return cast("CompletePartition", complete)


class _Completed:
    """A partition of which a client does not use the publications that were changed in place."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._dropped: LeastRecentlyUsed[tuple[str, str], bool] = LeastRecentlyUsed(MAX_RECORDS)
        self._differing: LeastRecentlyUsed[str, bool] = LeastRecentlyUsed(MAX_RECORDS)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._partition, name)

    def of_question(self) -> _Completed:
        return self

    async def record(self, entity_id: str) -> EntityRecord | None:
        return self._with_differing(entity_id, await self._partition.record(entity_id))

    async def confirm(self, entity_id: str, pointer: Pointer) -> EntityRecord | None:
        return self._with_differing(entity_id, await self._partition.confirm(entity_id, pointer))

    def _with_differing(self, entity_id: str, record: EntityRecord | None) -> EntityRecord | None:
        if record is None or not self._differing.get(entity_id):
            return record
        return record.as_differing()

    async def mark_differing(self, entity_id: str) -> None:
        self._differing.put(entity_id, True)

    async def catalogue(self, entity_id: str, dataset_id: str) -> Catalogue | None:
        if self._is_dropped(entity_id, dataset_id):
            return None
        return await self._partition.catalogue(entity_id, dataset_id)

    async def put_catalogue(self, catalogue: Catalogue) -> None:
        if not self._is_dropped(catalogue.entity_id, catalogue.dataset_id):
            await self._partition.put_catalogue(catalogue)

    async def blocks(
        self, entity_id: str, dataset_id: str, value_version: str, wanted: Iterable[str] | None = None
    ) -> tuple[Block, ...]:
        if self._is_dropped(entity_id, dataset_id):
            return ()
        return await self._partition.blocks(entity_id, dataset_id, value_version, wanted)

    async def put_blocks(
        self, entity_id: str, dataset_id: str, value_version: str, blocks: Iterable[Block]
    ) -> None:
        if not self._is_dropped(entity_id, dataset_id):
            await self._partition.put_blocks(entity_id, dataset_id, value_version, blocks)

    async def drop_older(self, current: Dataset) -> None:
        self._dropped.put((current.entity_id, publication_id(current.dataset_id)), True)

    def _is_dropped(self, entity_id: str, dataset_id: str) -> bool:
        return bool(self._dropped.get((entity_id, publication_id(dataset_id))))
