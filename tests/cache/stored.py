"""A publication as a cache stores it: the catalogue and the blocks of a real response."""

from array import array
from datetime import UTC, datetime

import msgspec
from msgspec import to_builtins

from asyncfin.cache.base import Cache, Partition
from asyncfin.cache.entries import EntityRecord
from asyncfin.model.catalogue import Catalogue, ReportingGroup, Scope, ScopeGroup
from asyncfin.model.period import Period
from asyncfin.model.scope import ScopeRef
from asyncfin.model.series import CatalogueSeries
from asyncfin.table.block import Axis, Block, PageText, Store, block_of
from asyncfin.wire.values import read_planned_page

ENTITY, OTHER = "O-" + "a1" * 16, "O-" + "b2" * 16
DATASET, NEXT = "d9b2d63d-a233-4123-847a-7090a1f34b01", "d9b2d63d-a233-4123-847a-7090a1f34b02"
URL, TOKEN = "https://api.example.com", "a-token"
AT = datetime(2026, 5, 1, 6, 30, tzinfo=UTC)
PATH = (ScopeRef("segment", "Größe|=%"),)
PERIODS = (Period(2024, 12, 12), Period(2023, 12, 12), Period(2024, 3, 3))


def series(number: int) -> CatalogueSeries:
    return CatalogueSeries(
        series_id=f"S-{number}",
        reporting_group_id="annual",
        metric_id=f"m{number}",
        label="L",
        description="USD",
        basis="b",
        scopes=PATH,
        number_format="#,##0",
        period_meaning="flow",
    )


def catalogue(count: int = 5, *, entity_id: str = ENTITY, dataset_id: str = DATASET) -> Catalogue:
    """Return a catalogue of `count` series."""
    group = ReportingGroup(
        reporting_group_id="annual",
        name="Annual",
        basis="b",
        cadence="annual",
        series=tuple(map(series, range(count))),
    )
    scopes = (Scope("Größe|=%", "Size", "", "r", ("a",), Period(2020, 1, 0)),)
    groups = (ScopeGroup(scope_group_id="segment", name="Segment", scopes=scopes),)
    return Catalogue(entity_id, "Example", dataset_id, AT, tuple(sorted(PERIODS)), groups, (group,))


def blocks(*numbers: int) -> tuple[Block, ...]:
    """Return the blocks of a page with these series, whose periods are not in order."""
    page = {
        "entity_id": ENTITY,
        "name": "Example",
        "dataset_id": DATASET,
        "created_timestamp": "2026-05-01T06:30:00Z",
        "periods": PERIODS,
        "series": [to_builtins(series(number)) | {"values": _values(number)} for number in numbers],
    }
    body = msgspec.json.encode(page)
    reading = read_planned_page(body, {f"S-{number}" for number in numbers}, "latest_restated")
    while True:  # it waits for nothing, but lets others run
        try:
            reading.send(None)
        except StopIteration as read:
            text = PageText((read.value.body,), is_compressed=False)
            return (block_of(Axis.of(read.value.periods), read.value, text),)


def _values(number: int) -> list[object]:
    value = {
        "number": number,
        "text": str(number),
        "number_format": "0",
        "fill_type": "reported",
        "value_version": "original",
        "report_period": Period(2024, 12, 0),
        "sources": [{"item_id": "i", "row_index": 1, "column_index": 2}],
    }
    return [value, None, value] if number % 2 else [None, value, None]


def content(blocks: tuple[Block, ...]) -> dict[str, object]:
    """Return what blocks hold: the numbers and values of each series by period."""
    store = Store(blocks)
    ids = [series_id for block in blocks for series_id in block.series_ids]
    assert len(ids) == len(set(ids)), "a series is in two blocks"
    rows: dict[str, object] = {}
    for series_id in ids:
        block, row = store.find(series_id)
        positions, numbers = block.observations(row)
        assert isinstance(numbers, array)
        periods = block.axis.periods
        observed = {periods[index]: number for index, number in zip(positions, numbers, strict=True)}
        rows[series_id] = (observed, dict(zip(periods, store.values(block, row), strict=True)))
    return rows


async def fill(cache: Cache, entity_id: str = ENTITY, moment: datetime = AT) -> Partition:
    """Store a publication in six parts: its record, its catalogue, and four of ten series each."""
    part = cache.partition(URL, TOKEN)
    await part.observe(entity_id, EntityRecord(moment, DATASET))
    await part.put_catalogue(catalogue(40, entity_id=entity_id))
    for first in range(0, 40, 10):
        await part.put_blocks(entity_id, DATASET, "original", blocks(*range(first, first + 10)))
    return part


async def check_whole(part: Partition, entity_id: str = ENTITY) -> None:
    """Check that what `fill` stores can be read."""
    assert await current(part, entity_id) == DATASET
    assert await part.catalogue(entity_id, DATASET.upper()) == catalogue(40, entity_id=entity_id)
    assert content(await part.blocks(entity_id, DATASET.upper(), "original")) == content(blocks(*range(40)))


async def check_missing(part: Partition, entity_id: str = ENTITY) -> None:
    """Check that nothing of an entity can be read."""
    assert await current(part, entity_id) is None
    assert await part.catalogue(entity_id, DATASET) is None
    assert await part.blocks(entity_id, DATASET, "original") == ()


async def current(part: Partition, entity_id: str = ENTITY) -> str | None:
    """Return the publication that counts as the current one."""
    record = await part.record(entity_id)
    return record.dataset_id if record else None
