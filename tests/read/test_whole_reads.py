"""Whole reads: what a client keeps of publications, and when a stream can give its pieces."""

import asyncio
import gc
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import Any, cast

import pytest
from attrs import evolve

from asyncfin import (
    Client,
    DatasetChangedError,
    FiscalRange,
    Select,
    Trailing,
    ValidationFailedError,
)
from asyncfin.cache.base import LeastRecentlyUsed
from asyncfin.errors import SelectionError
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.selection import Annual
from asyncfin.plan.question import Question
from asyncfin.read.publications import MAX_KEPT_SERIES, Publications
from asyncfin.sandbox import Latency, Sandbox, Status
from asyncfin.sandbox.dataset import DatasetFile
from asyncfin.table.block import Block
from asyncfin.wire.protocol import Response
from asyncfin.wire.values import PlannedPage
from tests.answers import catalogue_of
from tests.generate import generate
from tests.handmade import ENTITY_ID, FIRST, SECOND, dataset
from tests.services.altering import capped

pytestmark = pytest.mark.virtual

SMALL = {("Sales", "all"): {"FY2023": 1, "FY2024": 2}}
OLD, NEW = (dataset(SMALL, dataset_id=each) for each in (FIRST, SECOND))


def large(entity_id: str, series: int) -> Catalogue:
    """Return a catalogue that holds the same series many times, `series` in all."""
    (group,) = catalogue_of(["m.annual"]).groups
    small = catalogue_of(["m.annual"])
    whole = evolve(group, series=group.series * series)
    return Catalogue(
        entity_id, small.name, small.dataset_id, small.created_timestamp, small.periods, (), (whole,)
    )


def test_the_kept_publications_have_two_hundred_thousand_series_together() -> None:
    """The least recently used go first, and no more of them than have to."""
    assert MAX_KEPT_SERIES == 200_000
    publications = Publications(partial(datetime.now, UTC), cast(Any, None), 8)
    for name in "abc":
        publications.keep(large(name, 60_000))
    assert publications.kept.get("a") is not None  # a use, so that b is now the one used longest ago
    publications.keep(large("d", 60_000))
    kept = [name for name in "abcd" if publications.kept.get(name) is not None]
    assert kept == ["a", "c", "d"]
    publications.keep(large("e", 20_000))
    assert [name for name in "acde" if publications.kept.get(name) is not None] == ["a", "c", "d", "e"]


def test_a_publication_larger_than_the_bound_is_kept_alone() -> None:
    """Else each question about the entity would read its catalogue again."""
    publications = Publications(partial(datetime.now, UTC), cast(Any, None), 8)
    publications.keep(large("a", 10))
    publications.keep(large("b", MAX_KEPT_SERIES + 1))
    assert publications.kept.get("a") is None
    assert publications.kept.get("b") is not None


def test_size_that_raises_changes_nothing() -> None:
    """The value that was there stays, and the bound holds afterwards."""
    kept: LeastRecentlyUsed[str, int] = LeastRecentlyUsed(10, lambda size: 10 // size)
    kept.put("a", 5)
    with pytest.raises(ZeroDivisionError):
        kept.put("a", 0)
    with pytest.raises(ZeroDivisionError):
        kept.put("b", 0)
    assert kept.get("a") == 5
    assert kept.get("b") is None
    assert kept.total == 2
    kept.pop("a")
    assert kept.total == 0


def test_a_value_put_again_counts_once() -> None:
    """The size of what it replaces is freed."""
    kept: LeastRecentlyUsed[str, int] = LeastRecentlyUsed(10, lambda size: size)
    for _ in range(5):
        kept.put("a", 4)
    kept.put("b", 6)
    assert (kept.get("a"), kept.get("b")) == (4, 6)


def test_values_of_no_size_do_not_gather() -> None:
    """Each counts as one, as a plan of no series."""
    kept: LeastRecentlyUsed[int, int] = LeastRecentlyUsed(10, lambda size: size)
    for key in range(20):
        kept.put(key, 0)
    assert [key for key in range(20) if kept.get(key) is not None] == list(range(10, 20))


async def test_a_question_asked_again_is_not_planned_again() -> None:
    """The plan is kept beside its catalogue; another question has another one."""
    async with Sandbox(OLD) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        plan = await client.plan(ENTITY_ID, Select(), Annual())
        assert await client.plan(ENTITY_ID, Select(), Annual()) is plan
        assert (await client.plan(plan.catalogue, Select(), Annual())).question.source is plan.catalogue
        assert await client.plan(ENTITY_ID, Select(metric_ids="Sales"), Annual()) is not plan
        assert await client.plan(ENTITY_ID, Select(), Annual(last=1)) is not plan
        other = await client.plan(ENTITY_ID, Select(), Annual(), value_version="latest_restated")
        assert other.question.value_version == "latest_restated"
        chosen = ["Sales"]
        select = Select(where=lambda series: series.metric_id in chosen)
        assert len((await client.plan(ENTITY_ID, select, Annual())).series) == 1
        chosen.clear()
        with pytest.raises(SelectionError, match="where: it fits no series"):
            await client.plan(ENTITY_ID, select, Annual())


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"source": ".."}, "entity_id must be an id such as 'O-' followed by 32 characters, .*, not '..'"),
        ({"select": "Sales"}, "select must be a Select, not 'Sales'"),
        ({"periods": "FY2024"}, r"periods must be a period selection, not .*; write Exact\("),
        ({"value_version": "restated"}, "value_version must be 'original' or 'latest_restated'"),
        ({"max_age": -1}, "max_age must be a finite number of seconds, at least 0 or None, not -1"),
    ],
)
def test_a_wrong_part_of_a_question_is_named(fields: dict[str, object], expected: str) -> None:
    """The error names the argument, what it must be, and the value."""
    with pytest.raises(SelectionError, match=expected):
        Question(**{"source": ENTITY_ID, "select": Select(), "periods": Annual()} | fields)  # type: ignore[arg-type]


async def test_the_waits_between_restarts_grow() -> None:
    """Metadata that lag behind what refuses the old publication are given some time."""
    refused = Status(status=409, code="dataset_changed", operation="query")
    async with Sandbox(OLD, faults=[refused]) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        loop = asyncio.get_running_loop()
        begun: list[float] = []
        with (
            client.observed(lambda event: begun.append(loop.time())),
            pytest.raises(DatasetChangedError),
        ):
            await client.query(ENTITY_ID, Select(), Annual())
        assert [served.operation for served in sandbox.log].count("query") == 4
    waits = [later - earlier for earlier, later in pairwise(begun) if later - earlier > 0.01]
    assert len(waits) == 3
    assert all(later > 2 * earlier for earlier, later in pairwise(waits))
    assert sum(waits) < 10


REFUSED = Status(status=400, code="validation_failed", operation="query", nth=1)


async def test_a_400_of_a_replaced_publication_starts_the_read_over() -> None:
    """A service may check ids before the pin: one metadata request shows that the publication has changed."""
    async with Sandbox(OLD) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        await client.query(ENTITY_ID, Select(), Annual())
        sandbox.publish(NEW)
        sandbox.inject(REFUSED)
        spent = len(sandbox.log)
        panel = await client.query(ENTITY_ID, Select(), Annual())
        operations = [served.operation for served in list(sandbox.log)[spent:]]
    assert panel.dataset.dataset_id == SECOND
    assert operations == ["query", "dataset", "catalogue", "query"]
    assert panel.requests == len(operations)


async def test_a_400_of_the_current_publication_is_raised() -> None:
    """After one request for the metadata."""
    async with Sandbox(OLD) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        await client.query(ENTITY_ID, Select(), Annual(last=1))
        sandbox.inject(REFUSED)
        spent = len(sandbox.log)
        with pytest.raises(ValidationFailedError):
            await client.query(ENTITY_ID, Select(), Annual(last=1))
        await client.query(ENTITY_ID, Select(), FiscalRange())
        operations = [served.operation for served in list(sandbox.log)[spent:]]
    assert operations == ["query", "dataset", "query"]


async def test_a_400_of_a_replaced_publication_is_a_change_with_a_catalogue_as_the_source_too() -> None:
    """No other publication would do, and no smaller request is sent."""
    async with Sandbox(OLD) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        catalogue = await client.catalogue(ENTITY_ID)
        sandbox.publish(NEW)
        sandbox.inject(REFUSED)
        spent = len(sandbox.log)
        with pytest.raises(DatasetChangedError):
            await client.query(catalogue, Select(), FiscalRange())
        assert [served.operation for served in list(sandbox.log)[spent:]] == ["query", "dataset"]


async def test_a_400_while_the_catalogue_is_read_is_confirmed_too() -> None:
    """A cursor can be refused before the pin: readers that share the catalogue all start over."""
    first, second = (
        dataset({(f"M{at}", "all"): {"FY2024": at} for at in range(150)}, dataset_id=each)
        for each in (FIRST, SECOND)
    )
    refused = Status(status=400, code="validation_failed", operation="catalogue", nth=2)
    slow = Latency(operation="catalogue", seconds=1)
    async with (
        Sandbox(first, faults=[refused, slow]) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        reads = [
            asyncio.ensure_future(client.query(ENTITY_ID, Select(metric_ids=f"M{at}"), Annual()))
            for at in range(3)
        ]
        await asyncio.sleep(1.5)
        sandbox.publish(second)
        panels = await asyncio.gather(*reads)
    assert {panel.dataset.dataset_id for panel in panels} == {SECOND}


async def test_endless_changes_behind_400s_end_in_dataset_changed_error() -> None:
    """Three restarts, however the changes are reported."""
    refused = Status(status=400, code="validation_failed", operation="query")
    async with Sandbox(OLD, faults=[refused]) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        datasets = [NEW, OLD] * 8

        def change(event: object) -> None:
            if type(event).__name__ == "RequestStarted" and getattr(event, "operation", "") == "query":
                sandbox.publish(datasets.pop(0))

        with client.observed(change), pytest.raises(DatasetChangedError) as caught:
            await client.query(ENTITY_ID, Select(), Annual())
        assert [served.operation for served in sandbox.log].count("query") == 4
    assert caught.value.status == 400
    assert isinstance(caught.value.__cause__, ValidationFailedError)


async def test_a_streams_window_is_certain_when_any_duration_reaches_the_last_fiscal_end() -> None:
    """The catalogue's last period is a year; a quarter that ends with it anchors the window just as well."""
    wide = dataset(
        {
            **{(f"A{at}", "x"): {"FY2024-Q4": at} for at in range(50)},
            **{(f"B{at}", "y"): {"FY2023-Q4": at} for at in range(50)},
        },
        periods=("FY2024",),
    )
    slow = Latency(operation="query", nth=2, seconds=100)
    async with (
        Sandbox(wide, faults=[slow]) as sandbox,
        Client(sandbox.base_url, sandbox.token, max_in_flight=1) as client,
    ):
        plan = await client.plan(ENTITY_ID, Select(), Trailing(12))
        assert len(plan.batches) == 2
        assert str(plan.catalogue.periods[-1]) == "FY2024"
        async with client.stream(ENTITY_ID, Select(), Trailing(12)) as pieces:
            first = await asyncio.wait_for(anext(pieces), 50)
            assert str(first.anchor) == "FY2024-Q4"
            assert [len(piece) async for piece in pieces] == [50]


async def test_a_stream_gives_a_piece_for_each_page_of_a_chain() -> None:
    """A chain of three pages gives its first piece before the second page is there."""
    chain = dataset({("Sales", "x"): {"FY2024": 1}})
    series = chain["publications"][0]["groups"][0]["series"]
    series[:] = [{**series[0], "series_id": f"s{at}"} for at in range(250)]
    chain["publications"][0]["values"] = {f"s{at}": [[0, at]] for at in range(250)}
    slow = Latency(operation="query", nth=[2, 3], seconds=100)
    async with (
        Sandbox(chain, faults=[slow]) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
        client.stream(ENTITY_ID, Select(), FiscalRange()) as pieces,
    ):
        first = await asyncio.wait_for(anext(pieces), 50)
        assert len(first) == 100
        assert [len(piece) async for piece in pieces] == [100, 50]


def alive(*kinds: type) -> tuple[int, ...]:
    """Return how many objects of each kind there are."""
    gc.collect()
    found = Counter(map(type, gc.get_objects()))
    return tuple(found[kind] for kind in kinds)


async def test_a_stream_whose_reader_sleeps_asks_for_no_more_than_it_may_hold() -> None:
    """Only `max_in_flight` pages beyond the one taken are sent for, of a chain too."""
    blocks, *as_bytes = alive(Block, PlannedPage, Response)
    chain = dataset({("Sales", "x"): {"FY2024": 1}})
    series = chain["publications"][0]["groups"][0]["series"]
    series[:] = [{**series[0], "series_id": f"s{at}"} for at in range(2000)]
    chain["publications"][0]["values"] = {f"s{at}": [[0, at]] for at in range(2000)}
    async with (
        Sandbox(chain) as sandbox,
        Client(sandbox.base_url, sandbox.token, max_in_flight=3) as client,
        client.stream(ENTITY_ID, Select(), FiscalRange()) as pieces,
    ):
        for taken in range(1, 6):
            await anext(pieces)
            await asyncio.sleep(1000)
            assert [served.operation for served in sandbox.log].count("query") == taken + 3
            blocks_now, *as_bytes_now = alive(Block, PlannedPage, Response)
            assert blocks_now - blocks <= 1 + 3, "a page is kept as its blocks"
            assert as_bytes_now == as_bytes, "and not as the bytes that came"


async def test_the_metadata_of_a_restart_are_not_those_of_a_cache_on_the_way() -> None:
    """An edge may keep them for minutes, and would name the old publication each time."""
    both = generate(7, series=20, publications=2)
    old, new = (DatasetFile(both.entity_id, both.name, (each,)) for each in both.publications)
    async with (
        Sandbox(old) as sandbox,
        capped(sandbox, exact=99) as (base_url, received),
        Client(base_url, sandbox.token) as client,
    ):
        await client.query(both.entity_id, Select(), FiscalRange())
        sandbox.publish(new)
        panel = await client.query(both.entity_id, Select(), FiscalRange())
    assert panel.dataset.dataset_id == both.publications[1].dataset_id
    assert [got.cache_control for got in received if got.operation == "dataset"] == ["no-cache"]
