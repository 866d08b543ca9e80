"""Files and change feeds of a publication that was changed in place: one `dataset_id`, later timestamps."""

import json
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

from asyncfin import (
    Cache,
    Client,
    Exact,
    ExtractReport,
    FileCache,
    FiscalRange,
    MemoryCache,
    Select,
    as_of,
    extract,
    extract_cost,
    read_changes,
)
from asyncfin.extraction.feed import Feed
from asyncfin.extraction.files import place_of
from asyncfin.extraction.latest import latest_changes
from asyncfin.extraction.tree import tree_at
from tests.corrected import (
    DATASET_ID,
    ID,
    NEW_CONTENT,
    OLD_CONTENT,
    REVENUE,
    TOKEN,
    Corrected,
    corrected,
    day,
)
from tests.nights import LABELS, Cell, Key, changes_in, expected_changes, nights

EVERYTHING = (Select(), FiscalRange())


@pytest.fixture
async def service() -> AsyncIterator[Corrected]:
    async with corrected() as running:
        yield running


@pytest.fixture(params=["none", "memory", "file"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Cache | None:
    makes: dict[str, Callable[[], Cache | None]] = {
        "none": lambda: None,
        "memory": lambda: MemoryCache(account="desk"),
        "file": lambda: FileCache(tmp_path / "cache", account="desk"),
    }
    return makes[request.param]()


async def run(
    service: Corrected, to: Path, number: int, cache: Cache | None = None, **options: Any
) -> ExtractReport:
    """Extract as a new process does, on the night of a number."""
    async with Client(service.base_url, TOKEN, cache=cache) as client:
        now = day(number) + timedelta(hours=1)
        return await extract(client, [ID], *EVERYTHING, to=to, clock=lambda: now, **options)


def cells(table: Any) -> list[tuple[Any, ...]]:
    names = ("metric_id", "reporting_group_id", "scope_path", "period_label", "number", "text")
    return sorted(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def published(content: Any) -> list[tuple[Any, ...]]:
    return sorted(
        (
            key.metric_id,
            key.group,
            f"company={key.scope}",
            label,
            cell.number,
            f"{cell.number:,} {cell.label}",
        )
        for key, row in content.items()
        for label, cell in row.items()
    )


def file_of(to: Path) -> Path:
    return to / f"{ID}.parquet"


def footer(to: Path) -> dict[str, Any]:
    metadata = pq.read_schema(file_of(to)).metadata[b"asyncfin"]
    return dict(json.loads(metadata)["panels"][0])


@pytest.mark.parametrize("history", [None, True])
async def test_a_file_with_an_earlier_timestamp_is_read_again(
    service: Corrected,
    cache: Cache | None,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    history: bool | None,
) -> None:
    """Once: the next night costs one request. Also if another client's cache has all of the old values."""
    caplog.set_level(logging.WARNING)
    to = tmp_path / "night"
    await run(service, to, 1, cache, history=history)
    async with Client(service.base_url, TOKEN, cache=cache) as client:
        await client.query(ID, *EVERYTHING)
    service.correct(NEW_CONTENT, day(2))
    async with Client(service.base_url, TOKEN) as client:
        expected = await extract_cost(client, [ID], *EVERYTHING, to=to, read_catalogues=True)
    assert (expected.changed, expected.requests) == (1, 3)
    caplog.clear()
    for number, state, spent in ((2, "done", 3), (3, "unchanged", 1)):
        service.operations.clear()
        report = await run(service, to, number, cache, history=history)
        assert [each.state for each in report.entities] == [state]
        assert len(service.operations) == spent
        assert cells(pq.read_table(file_of(to))) == published(NEW_CONTENT)
    assert [record.getMessage() for record in caplog.records] == [
        f"{ID}: publication {DATASET_ID} was changed in place"
        " (2025-01-02T06:00:00Z -> 2025-01-03T06:00:00Z); it is read again"
    ]


@pytest.mark.parametrize("seed", range(3))
async def test_the_feed_has_what_was_changed_in_place(
    service: Corrected, cache: Cache | None, tmp_path: Path, seed: int
) -> None:
    """Night after night under one id; after each of them `as_of` is the file, and so it stays."""
    to, before = tmp_path / "night", dict[Key, dict[str, Cell]]()
    contents = [{Key("S-9", "Always"): {"FY2020": Cell(1)}} | each for each in nights(Random(seed), 6)]
    # One client, which has what it reads for other questions between the nights.
    async with Client(service.base_url, TOKEN, cache=cache) as client:
        for number, content in enumerate(contents, 1):
            service.correct(content, day(number))
            now = day(number) + timedelta(hours=1)
            await extract(client, [ID], Select(), Exact(LABELS), to=to, history=True, clock=lambda at=now: at)
            await client.query(ID, *EVERYTHING)
            assert cells(pq.read_table(file_of(to))) == published(content)
            for night, known in enumerate(contents[:number], 1):
                assert cells(as_of(to, day(night) + timedelta(hours=2))) == published(known), (number, night)
    rows = read_changes(to)
    for number, content in enumerate(contents, 1):
        that_night = [each for each in rows.to_pylist() if each["known_from"] == day(number)]
        twice = {key.triple for each in contents for key in each if _has_twin(key, each)}
        expected = [each for each in expected_changes(before, content) if each[1] not in twice]
        found = changes_in(rows.schema.empty_table().from_pylist(that_night, rows.schema))
        assert [each for each in found if each[1] not in twice] == expected
        before = dict(content)


def _has_twin(key: Key, content: Any) -> bool:
    return sum(each.triple == key.triple for each in content) > 1


async def test_timestamps_that_differ_within_one_read_do_not_cost_a_read_every_night(
    service: Corrected, cache: Cache | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As where they are the time of the response: the file's footer says so, and the id alone decides."""
    caplog.set_level(logging.WARNING)
    moments, to = map(day, count(1)), tmp_path / "night"
    service.created = lambda operation: next(moments)
    await run(service, to, 1, cache)
    assert footer(to)["timestamps_differ"] is True
    for number in (2, 3):
        service.operations.clear()
        report = await run(service, to, number, cache)
        assert ([each.state for each in report.entities], service.operations) == (["unchanged"], ["dataset"])
    assert caplog.records == []


async def test_metadata_that_are_always_later_than_the_file_cost_one_read(
    service: Corrected, cache: Cache | None, tmp_path: Path
) -> None:
    """In that read they differ from the other heads, so they show nothing from the next night on."""
    service.created = lambda operation: day(1 if operation != "dataset" else 2)
    to, spent = tmp_path / "night", []
    for number in range(1, 5):
        service.operations.clear()
        await run(service, to, number, cache)
        spent.append(len(service.operations))
        assert footer(to)["timestamps_differ"] is (number > 1)
    assert spent == [2, 3, 1, 1]


@pytest.mark.parametrize("created", [day(0), day(1) + timedelta(milliseconds=999)])
async def test_a_file_with_a_timestamp_that_is_not_earlier_is_unchanged(
    service: Corrected, tmp_path: Path, created: Any
) -> None:
    """In whole seconds."""
    to = tmp_path / "night"
    await run(service, to, 1)
    service.correct(NEW_CONTENT, created)
    service.operations.clear()
    await run(service, to, 2)
    assert service.operations == ["dataset"]


async def test_workers_read_it_again_once(
    service: Corrected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk that is repeated finds what a killed worker has put in place by its timestamp."""
    monkeypatch.setenv("ASYNCFIN_BASE_URL", service.base_url)
    monkeypatch.setenv("ASYNCFIN_TOKEN", TOKEN)
    to = tmp_path / "night"
    with ThreadPoolExecutor(1) as executor:
        for number, content, spent in ((1, OLD_CONTENT, 2), (2, NEW_CONTENT, 3), (3, NEW_CONTENT, 1)):
            service.correct(content, day(min(number, 2)))
            service.operations.clear()
            await extract(Client.from_env, [ID], *EVERYTHING, to=to, executor=executor, history=True)
            assert len(service.operations) == spent
            assert cells(pq.read_table(file_of(to))) == published(content)


async def test_the_last_changes_of_an_entity_are_those_of_its_changed_publication(
    service: Corrected, tmp_path: Path
) -> None:
    """The same id a second time does not mean that it has left the extraction."""
    to = tmp_path / "night"
    for number, content in ((1, OLD_CONTENT), (2, NEW_CONTENT)):
        service.correct(content, day(number))
        await run(service, to, number, history=True)
    wanted = {ID: {REVENUE.metric_id}}
    latest = latest_changes(Feed(tree_at(place_of(to))), wanted)
    assert latest[ID].dataset_id == DATASET_ID
    assert (latest[ID].is_first, latest[ID].count, len(latest[ID].rows)) == (False, 5, 3)
