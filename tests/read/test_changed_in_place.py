"""A publication that was changed in place: one `dataset_id` with a later `created_timestamp` (spec 9.2)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from asyncfin import Client, FileCache, FiscalRange, MemoryCache, Panel, Select, Unchanged, read_entity
from asyncfin.typing import Partition
from tests.corrected import DATASET_ID, ID, NEW_CONTENT, OLD_CONTENT, TOKEN, Corrected, corrected, day
from tests.nights import Cell, Key

Make = Callable[..., Client]
WARNING = (
    f"{ID}: publication {DATASET_ID} was changed in place"
    " (2025-01-02T06:00:00Z -> 2025-01-03T06:00:00Z); it is read again"
)


@pytest.fixture
async def service() -> AsyncIterator[Corrected]:
    async with corrected() as running:
        yield running


class OwnCache:
    """A user's own cache: it has what the documents ask for, and nothing else."""

    def __init__(self) -> None:
        self._cache = MemoryCache()
        self.stats, self.inspect = self._cache.stats, self._cache.inspect
        self.clear, self.aclose = self._cache.clear, self._cache.aclose

    def partition(self, base_url: str, token: Any) -> Any:
        part = self._cache.partition(base_url, token)
        names = [name for name in vars(Partition) if not name.startswith("_")]
        return SimpleNamespace(**{name: getattr(part, name) for name in names})


@pytest.fixture(params=["none", "memory", "file", "own"])
async def make(request: pytest.FixtureRequest, service: Corrected, tmp_path: Path) -> AsyncIterator[Make]:
    """Make clients that share a cache, or have none."""
    memory, own = MemoryCache(), OwnCache()
    async with AsyncExitStack() as opened:

        def made(**options: float) -> Client:
            file = FileCache(tmp_path / "cache", account="desk")
            caches = {"none": None, "memory": memory, "file": file, "own": own}
            client = Client(service.base_url, TOKEN, cache=caches[request.param], **options)  # type: ignore[arg-type]
            opened.push_async_callback(client.aclose)
            return client

        made.kind = request.param  # type: ignore[attr-defined]
        yield made


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING)
    return lambda: [record.getMessage() for record in caplog.records]


async def whole(client: Client) -> Panel:
    return await client.query(ID, Select(), FiscalRange())


def values(panel: Panel) -> dict[tuple[str, str], float]:
    found = ((series.series_id, *each) for series in panel for each in series.observations())
    return {(series_id, period.label): value.number for series_id, period, value in found}


async def test_what_was_read_of_it_is_dropped_and_read_again(
    service: Corrected, make: Make, warnings: Callable[[], list[str]]
) -> None:
    """The first metadata request shows it, which is logged once; nothing old is returned from then on."""
    client = make()
    assert values(await whole(client)) == service.values
    service.correct(NEW_CONTENT, day(2))
    service.operations.clear()
    await client.catalogue(ID)
    assert service.operations == ["dataset", "catalogue"]
    for version in ("original", "latest_restated"):
        panel = await client.query(ID, Select(), FiscalRange(), value_version=version)
        assert values(panel) == service.values
        assert panel.dataset.created_timestamp == day(2)
    assert values(await whole(make())) == service.values
    # A user's own cache cannot drop it, so that each client sees it there once.
    assert warnings() == [WARNING] * (2 if make.kind == "own" else 1)  # type: ignore[attr-defined]


async def test_a_question_of_which_all_is_cached_starts_over(
    service: Corrected, make: Make, warnings: Callable[[], list[str]]
) -> None:
    """Its one metadata request shows the change: it returns what is read then, and no number of before."""
    client = make()
    if make.kind == "none":  # type: ignore[attr-defined]
        pytest.skip("without a cache, no result is without a query")
    await whole(client)
    service.correct(NEW_CONTENT, day(2))
    service.operations.clear()
    panel = await whole(client)
    assert values(panel) == service.values
    assert service.operations == ["dataset", "catalogue", "query"]
    assert panel.requests == 3
    assert (await whole(client)).requests == 1
    assert warnings() == [WARNING]


async def test_a_refused_id_of_the_old_catalogue_starts_over(service: Corrected, make: Make) -> None:
    """A 400 is checked with the metadata, which show the change: the question is planned once more."""
    client = make()
    await client.catalogue(ID)
    service.correct(NEW_CONTENT, day(2))
    service.operations.clear()
    assert values(await whole(client)) == service.values
    assert service.operations == ["query", "dataset", "catalogue", "query"]


@pytest.mark.parametrize("created", [day(1), day(0), day(1) + timedelta(milliseconds=900)])
async def test_an_equal_or_earlier_timestamp_changes_nothing(
    service: Corrected, make: Make, warnings: Callable[[], list[str]], created: object
) -> None:
    """Timestamps are compared in whole seconds."""
    client = make()
    old = values(await whole(client))
    service.correct(NEW_CONTENT, created)  # type: ignore[arg-type]
    service.operations.clear()
    assert (await client.catalogue(ID)).created_timestamp == day(1)
    assert service.operations == ["dataset"]
    if make.kind != "none":  # type: ignore[attr-defined]
        assert values(await whole(client)) == old
    assert warnings() == []


async def test_nothing_is_compared_within_max_age(service: Corrected, make: Make) -> None:
    """A publication that counts as current costs no request."""
    client = make(max_age=3600)
    await whole(client)
    service.correct(NEW_CONTENT, day(2))
    service.operations.clear()
    assert (await client.catalogue(ID)).created_timestamp == day(1)
    assert service.operations == []


async def test_read_entity_compares_the_id_alone(service: Corrected, make: Make) -> None:
    """With `unless` the caller has asked for that; the metadata still drop what the client has."""
    client = make()
    await whole(client)
    service.correct(NEW_CONTENT, day(2))
    found = await read_entity(client, ID, Select(), FiscalRange(), unless=DATASET_ID)
    assert isinstance(found, Unchanged)
    assert values(await whole(client)) == service.values


@pytest.mark.virtual
@pytest.mark.parametrize("cached", [False, True])
async def test_a_publication_is_read_again_at_most_once_an_hour(
    service: Corrected, warnings: Callable[[], list[str]], cached: bool
) -> None:
    """For each entity and client."""
    async with Client(service.base_url, TOKEN, cache=MemoryCache() if cached else None) as client:
        await whole(client)
        for number, minutes, is_noticed in ((2, 0, True), (3, 30, False), (4, 29, False), (5, 1, True)):
            await asyncio.sleep(60 * minutes)
            service.correct({Key("S-1"): {"FY2020": Cell(number)}}, day(number))
            service.operations.clear()
            found = await client.catalogue(ID)
            assert service.operations == ["dataset"] + ["catalogue"] * is_noticed
            assert (found.created_timestamp == day(number)) is is_noticed
        assert len(warnings()) == 2
        assert values(await whole(client)) == service.values


async def test_timestamps_that_differ_within_one_read_show_nothing(
    service: Corrected, make: Make, warnings: Callable[[], list[str]]
) -> None:
    """As where they are the time of the response: the id alone decides, also for the cache's next client."""
    moments = map(day, count(1))
    service.created = lambda operation: next(moments)
    client = make()
    await whole(client)
    for each in (client, make() if make.kind == "file" else client):  # type: ignore[attr-defined]
        service.operations.clear()
        for _ in range(3):
            await each.catalogue(ID)
        assert service.operations == ["dataset"] * 3
    assert warnings() == []


async def test_metadata_that_are_always_later_than_the_catalogue_cost_one_read(
    service: Corrected, make: Make, warnings: Callable[[], list[str]]
) -> None:
    """That read has heads that differ, and so the timestamps show nothing from then on."""
    service.created = lambda operation: day(1 if operation != "dataset" else 2)
    client = make()
    await whole(client)
    service.operations.clear()
    for _ in range(3):
        await client.catalogue(ID)
    assert service.operations == ["dataset", "catalogue", "dataset", "dataset"]
    assert warnings() == [WARNING]


async def test_another_process_finds_what_one_has_read_again(service: Corrected, tmp_path: Path) -> None:
    """It drops only what it has in memory: the rows are as new as the metadata."""
    one, other = (
        Client(service.base_url, TOKEN, cache=FileCache(tmp_path / "cache", account="desk")) for _ in "ab"
    )
    async with one, other:
        for each in (one, other):
            await whole(each)
        service.correct(NEW_CONTENT, day(2))
        await whole(one)
        service.operations.clear()
        assert values(await whole(other)) == service.values
        assert service.operations == ["dataset"]


async def test_a_cache_without_its_catalogue_drops_the_values_too(service: Corrected, tmp_path: Path) -> None:
    """What is left of the old values does not become part of a new result."""
    cache = MemoryCache()
    async with Client(service.base_url, TOKEN, cache=cache) as client:
        await whole(client)
        for key in [key for key in cache._memory._kept if key[-1] == "catalogue"]:
            cache._memory._kept.pop(key)
        service.correct(NEW_CONTENT, day(2))
        await client.dataset(ID)
        assert cache.stats().series == 0
        assert values(await whole(client)) == service.values != OLD_CONTENT
