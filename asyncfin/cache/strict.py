"""A cache as a strict client sees it: what a tolerant client has repaired counts as not cached."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from asyncfin.cache.store import Partition, of_question
from asyncfin.model.catalogue import Catalogue
from asyncfin.table.block import Block


def strict_partition(partition: Partition) -> Partition:
    """Return a partition without the catalogues and pages that deviate from the spec."""
    return cast("Partition", _StrictPartition(partition))


class _StrictPartition:
    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def __getattr__(self, name: str) -> Any:
        return getattr(self._partition, name)

    def of_question(self) -> _StrictPartition:
        return _StrictPartition(of_question(self._partition))

    async def catalogue(self, entity_id: str, dataset_id: str) -> Catalogue | None:
        catalogue = await self._partition.catalogue(entity_id, dataset_id)
        return None if catalogue is not None and catalogue.deviations else catalogue

    async def blocks(
        self, entity_id: str, dataset_id: str, value_version: str, wanted: Iterable[str] | None = None
    ) -> tuple[Block, ...]:
        blocks = await self._partition.blocks(entity_id, dataset_id, value_version, wanted)
        return tuple(block for block in blocks if not block.text.head_deviations)
