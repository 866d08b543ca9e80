"""The answer of a planned question equals that of one query without caps (service description, 4.3)."""

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings, strategies as st

from asyncfin import (
    Annual,
    Client,
    Exact,
    FiscalRange,
    HalfYearly,
    MemoryCache,
    NotFoundError,
    Panel,
    Period,
    Quarterly,
    Select,
    Trailing,
    ValidationFailedError,
)
from asyncfin.model.selection import PeriodSelection
from asyncfin.model.series import CatalogueSeries
from asyncfin.sandbox import Dialect, Sandbox, Switch, load
from asyncfin.sandbox.dataset import DatasetFile, Publication
from tests import examples
from tests.conftest import VirtualTimeLoop
from tests.generate import generate, generate_table
from tests.handmade import dataset

Table = dict[str, dict[Period, Any]]


def stored(publication: Publication, series_ids: set[str], value_version: str) -> Table:
    """Read the values of some series straight from the publication."""
    periods = [Period(*period) for period in publication.periods]
    table: Table = {}
    for series_id in series_ids:
        rows = publication.values.get(series_id, ())
        latest = value_version == "latest_restated"
        found = {periods[at]: restated or original if latest else original for at, original, restated in rows}
        table[series_id] = {at: value for at, value in found.items() if value not in (None, "withdrawn")}
    return table


def expected(
    publication: Publication, series_ids: set[str], periods: PeriodSelection, value_version: str
) -> tuple[list[Period], Table]:
    """Answer the question by brute force: the periods of the table, and its values."""
    table = stored(publication, series_ids, value_version)
    known = sorted(Period(*period) for period in publication.periods)
    populated = sorted({period for values in table.values() for period in values})
    match periods:
        case Exact(periods=exact):
            shown = sorted(exact)
        case Annual(last=last):
            shown = [each for each in known if each.duration_months == 12 and each.end_month == 12][
                -(last or 0) :
            ]
        case Quarterly(last=last):
            shown = [each for each in known if each.duration_months == 3][-(last or 0) :]
        case FiscalRange(start=start, end=end):
            low = (start or known[0]).year * 12 + (start or known[0]).end_month
            high = (end or known[-1]).year * 12 + (end or known[-1]).end_month
            shown = [each for each in populated if low <= each.year * 12 + each.end_month <= high]
        case Trailing(months=months):
            last_end = max((each.year * 12 + each.end_month for each in populated), default=0)
            shown = [each for each in populated if last_end - months < each.year * 12 + each.end_month]
    inside = {name: {p: v for p, v in values.items() if p in shown} for name, values in table.items()}
    return shown, inside


def content(panel: Panel) -> Table:
    """Read a panel back into a table of numbers and texts."""
    return {
        series.series_id: {period: (value.number, value.text) for period, value in series.observations()}
        for series in panel
    }


def texts(table: Table) -> Table:
    return {
        name: {period: (value["number"], value["text"]) for period, value in values.items()}
        for name, values in table.items()
    }


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a test in virtual time, and see that it leaves no task behind."""

    async def alone() -> None:
        await test()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(alone())


DIALECTS = st.builds(
    Dialect,
    periods=st.sampled_from(["answer", "asked", "page"]),
    order=st.sampled_from(["oldest", "newest", "shuffled"]),
    empty_series=st.booleans(),
    last_cursor=st.sampled_from(["absent", "null"]),
    pages=st.sampled_from(["full", "short", "empty"]),
    scope_groups=st.sampled_from(["every", "first", "used"]),
    unrestated=st.sampled_from(["latest_restated", "original"]),
    extras=st.booleans(),
    gzip=st.booleans(),
)
DATASETS = [
    *(generate(seed, series=size) for seed, size in enumerate([3, 40, 250, 250, 400])),
    generate(5, series=250, one_version=0.15),
    generate(6, series=150, periods=12, fill=0.05, one_version=0.3),
]


@st.composite
def period_selections(draw: st.DrawFn, dataset: DatasetFile) -> PeriodSelection:
    known = [Period(*period) for period in dataset.publications[-1].periods]
    ends = sorted({(each.year, each.end_month) for each in known})
    kind = draw(st.sampled_from(["exact", "range", "open", "trailing", "annual", "quarterly"]))
    if kind == "exact":
        return Exact(draw(st.lists(st.sampled_from(known), min_size=1, max_size=5, unique=True)))
    if kind == "range":
        return FiscalRange(*sorted(draw(st.tuples(st.sampled_from(ends), st.sampled_from(ends)))))
    if kind == "trailing":
        return Trailing(draw(st.integers(1, 40)))
    last = draw(st.none() | st.integers(1, 4))
    return {"open": FiscalRange(), "annual": Annual(last=last), "quarterly": Quarterly(last=last)}[kind]


@st.composite
def questions(draw: st.DrawFn) -> tuple[int, list[int], PeriodSelection, str]:
    """Draw the place of a dataset, of some of its series, and the rest of a question."""
    at = draw(st.integers(0, len(DATASETS) - 1))
    count = len(series_ids(DATASETS[at]))
    share = draw(st.sampled_from([1.0, 0.3, 0.05]))
    places = random.Random(draw(st.integers(0, 99))).sample(range(count), max(1, int(share * count)))
    version = draw(st.sampled_from(["original", "latest_restated"]))
    return at, places, draw(period_selections(DATASETS[at])), version


def series_ids(dataset: DatasetFile) -> list[str]:
    return [series["series_id"] for group in dataset.publications[-1].groups for series in group["series"]]


@settings(max_examples=examples(60))
@given(questions(), DIALECTS, st.booleans())
def test_panel_equals_query_without_caps(
    question: tuple[int, list[int], PeriodSelection, str], dialect: Dialect, streamed: bool
) -> None:
    """Any selection, every mode, both versions, in every dialect, read whole or in pieces."""
    at, places, periods, version = question
    dataset = DATASETS[at]
    wanted = {series_ids(dataset)[place] for place in places}
    shown, values = expected(dataset.publications[-1], wanted, periods, version)
    select = Select(where=lambda series: series.series_id in wanted)

    async def ask() -> None:
        async with (
            Sandbox(dataset, dialect=dialect) as sandbox,
            Client(sandbox.base_url, sandbox.token) as client,
        ):
            if streamed:
                async with client.stream(dataset.entity_id, select, periods, value_version=version) as stream:
                    pieces = [piece async for piece in stream]
            else:
                pieces = [await client.query(dataset.entity_id, select, periods, value_version=version)]
                order = [each.series_id for each in pieces[0].catalogue if each.series_id in wanted]
                assert list(pieces[0].series_ids) == order
                assert list(pieces[0].periods) == shown
                assert pieces[0].requests == len(sandbox.log)
        assert sum(map(len, pieces)) == len(wanted)
        assert {name: row for piece in pieces for name, row in content(piece).items()} == texts(values)

    run(ask)


OPEN = [FiscalRange(), Annual(), Annual(last=2), Quarterly(), HalfYearly(), Trailing(12)]


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("periods", OPEN, ids=repr)
async def test_dataset_without_periods_has_empty_series(periods: Any, cached: bool) -> None:
    """A series may exist before its first value: the panel has it, and no query is sent."""
    dataset = generate_table(1, metrics=1, paths=6, density=0.5)
    assert not dataset.publications[-1].periods
    cache = MemoryCache() if cached else None
    async with Sandbox(dataset) as sandbox, Client(sandbox.base_url, sandbox.token, cache=cache) as client:
        panel = await client.query(dataset.entity_id, Select(), periods)
        plan = await client.plan(dataset.entity_id, Select(), periods)
        async with client.stream(dataset.entity_id, Select(), periods) as pieces:
            streamed = [piece async for piece in pieces]
        async with client.query_many([dataset.entity_id], Select(), periods) as answers:
            several = [answer async for answer in answers]
        assert {served.operation for served in sandbox.log} <= {"catalogue", "dataset"}
    assert (len(plan.series), plan.periods, plan.requests) == (1, None, 0)
    for each in (panel, *streamed, *(answer.panel for answer in several)):
        assert each is not None
        assert (each.periods, each.anchor, each.unlisted, len(each)) == ((), None, (), 1)
    assert (len(streamed), [dict(answer.missing) for answer in several]) == (1, [{}])


SWITCHING = generate(31, series=120, publications=2)
STALE = st.builds(
    Dialect,
    ids_before_pin=st.booleans(),
    cursor_before_pin=st.booleans(),
    metadata_lag=st.integers(0, 2),
    pages=st.sampled_from(["full", "short"]),
)


@settings(max_examples=examples(40))
@given(STALE, st.integers(1, 8), st.integers(0, 2**16))
def test_panel_is_of_one_publication(dialect: Dialect, nth: int, seed: int) -> None:
    """A new publication may come at any request, its metadata lag, and a stale question be 400 or 409.

    The panel equals one query without caps over the publication it names, and the client is never stuck.
    """
    publications = {each.dataset_id: each for each in SWITCHING.publications}
    old, new = (evolve(SWITCHING, publications=(each,)) for each in SWITCHING.publications)
    known = set(random.Random(seed).sample(series_ids(SWITCHING), 60))
    select = Select(where=lambda series: series.series_id in known)
    # While the metadata still name the old publication, nothing shows that a 400 was a change.
    may_refuse = dialect.metadata_lag and (dialect.ids_before_pin or dialect.cursor_before_pin)

    async def ask() -> None:
        async with (
            Sandbox(old, dialect=dialect, faults=[Switch(nth=nth, publication=new)]) as sandbox,
            Client(sandbox.base_url, sandbox.token) as client,
        ):
            refused = 0
            panel = None
            while panel is None or panel.dataset.dataset_id != new.publications[0].dataset_id:
                try:
                    panel = await client.query(SWITCHING.entity_id, select, FiscalRange())
                except ValidationFailedError:
                    refused += 1
                    assert refused <= may_refuse
                    continue
                publication = publications[panel.dataset.dataset_id]
                listed = {series["series_id"] for group in publication.groups for series in group["series"]}
                shown, values = expected(publication, known & listed, FiscalRange(), "original")
                assert list(panel.periods) == shown
                assert content(panel) == texts(values)

    run(ask)


async def test_predicate_runs_on_loop_thread() -> None:
    """It may use what belongs to that thread; of a large company other Selects are judged aside."""
    threads = set()

    def where(series: CatalogueSeries) -> bool:
        threads.add(threading.get_ident())
        return series.metric_id == "M7"

    numbers = {(f"M{number}", "all"): {"FY2024": number} for number in range(1_100)}
    async with (
        Sandbox(load(dataset(numbers))) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        panel = await client.query(sandbox.entities[0], Select(where=where), FiscalRange())
    assert [series.metric_id for series in panel] == ["M7"]
    assert threads == {threading.get_ident()}


async def test_sharers_get_an_error_each() -> None:
    """Equal pending queries share a request; each caller's error has its own traceback and notes."""
    async with Sandbox.demo() as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        query = partial(client.query, "O-" + "0" * 32, Select("Revenue"), Annual())
        errors = await asyncio.gather(query(), query(), query(), return_exceptions=True)
        assert client.stats().requests == 1
    for number, error in enumerate(errors):
        assert isinstance(error, NotFoundError)
        error.add_note(f"of caller {number}")
    assert [sum(note.startswith("of caller") for note in error.__notes__) for error in errors] == [1, 1, 1]
    assert len(set(map(str, errors))) == 1
