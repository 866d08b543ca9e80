"""`Client.compare`: one question to several entities, side by side."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from asyncfin import (
    Annual,
    ArgumentError,
    AuthenticationError,
    Client,
    Comparison,
    DatasetChangedError,
    Exact,
    FiscalRange,
    NotFoundError,
    Quarterly,
    Select,
    SelectionError,
    Trailing,
    concat,
)
from asyncfin.events import Event, QuestionFinished, QuestionStarted
from asyncfin.sandbox import Latency, Sandbox, Status, Switch
from tests.handmade import SECOND, dataset
from tests.services.independent import METRICS, VERSIONS, Key, Service, expected, publish_once, serving
from tests.services.independent_client import RULES, cache_of, client_of, key_of, texts_of

A, B, C, D = (f"O-{number:032d}" for number in (1, 2, 3, 4))
REVENUE = Select("Revenue")


def company(entity_id: str, *years: int, metric: str = "Revenue", **options: Any) -> dict[str, Any]:
    """Return a dataset with one series whose value in each fiscal year is the year."""
    numbers = {f"FY{year}": float(year) for year in years}
    return dataset({(metric, "all"): numbers}, entity_id=entity_id, **options)


@asynccontextmanager
async def session(
    *datasets: dict[str, Any], faults: Any = (), allowance: int | None = None, **options: Any
) -> AsyncIterator[tuple[Sandbox, Client]]:
    async with (
        Sandbox(*datasets, faults=faults, allowance=allowance) as sandbox,
        Client(sandbox.base_url, sandbox.token, **options) as client,
    ):
        yield sandbox, client


class ChangingService(Service):
    """It publishes before the requests of given numbers."""

    def __init__(self, seed: int, entities: int) -> None:
        super().__init__(seed, entities)
        self.changes: dict[int, tuple[str, int]] = {}

    def _admit(self, request: Any) -> Any:
        if change := self.changes.pop(self.requests, None):
            self.publish(*change)
        return super()._admit(request)


def resolved(rule: tuple[Any, ...], periods: set[Key]) -> list[Key]:
    """Return the periods of a rule over those of all catalogues, from the words of the documents."""
    kind, last = rule
    shape = {"annual": lambda each: each[1:] == (12, 12), "quarterly": lambda each: each[2] == 3}[kind]
    return sorted(filter(shape, periods))[-last:]


@pytest.mark.parametrize("kind", ["none", "memory", "file"])
async def test_panels_share_the_resolved_periods(kind: str, tmp_path: Any) -> None:
    """Cell by cell, while publications are replaced under the reading."""
    rng = random.Random(kind)
    service = ChangingService(7, entities=4)
    ids, shown, changed, nothing = list(service.entities), 0, 0, 0
    async with serving(service) as base_url, client_of(base_url, cache_of(f"{kind}:{tmp_path}")) as client:
        for _ in range(25):
            select = {"metric_ids": rng.sample(METRICS, rng.choice([1, 5, 40]))} if rng.random() < 0.9 else {}
            rule = rng.choice([("annual", 1), ("annual", 3), ("quarterly", 2), ("quarterly", 30)])
            version = rng.choice(VERSIONS)
            asked = rng.sample(ids, rng.choice([2, 3, 4]))
            before = {each: service.entities[each].publication.number for each in asked}
            service.changes = {
                service.requests + rng.randrange(10): (rng.choice(ids), rng.randrange(6)) for _ in range(3)
            }
            work = client.compare(asked, Select(**select), RULES[rule[0]](rule[1]), value_version=version)
            (found,) = await asyncio.gather(work, return_exceptions=True)
            if isinstance(found, SelectionError):  # none has one of the metrics
                nothing += 1
                continue
            assert isinstance(found, Comparison), found
            assert list(found.panels) == asked
            numbers = {
                panel.dataset.entity_id: next(
                    number
                    for _, number in service.entities[panel.dataset.entity_id].current
                    if publish_once(panel.dataset.entity_id, number).dataset_id == panel.dataset.dataset_id
                )
                for panel in found
            }
            changed += numbers != before
            publications = [publish_once(*each) for each in numbers.items()]
            periods = resolved(rule, {each for one in publications for each in one.periods})
            if any("was replaced by publication" in note for note in found.notes):
                periods = [*map(key_of, found.periods)]
            for publication in publications:
                panel = found[publication.entity_id]
                ids_of = expected(publication, select, ("range", (2000, 1), (2100, 12)), version)[1]
                if not set(periods) & set(publication.periods):
                    ids_of = {}  # the catalogue has none of the periods
                assert texts_of(panel) == {
                    one: {
                        key: publication.text(one, version, key)
                        for key in periods
                        if key in publication.values[version].get(one, {})
                    }
                    for one in ids_of
                }
                if len(panel):
                    assert [*map(key_of, panel.periods)] == periods
            shown += sum(map(len, found))
    assert shown > 100
    assert changed > 3
    assert nothing < 10


async def test_results_follow_the_order_of_ids() -> None:
    """Whatever arrives first; a repeated id is one, and a malformed one costs no request."""
    slow = Latency(seconds=0.05, operation="dataset", nth=1)
    async with session(company(A, 2023), company(C, 2024), faults=[slow]) as (sandbox, client):
        found = await client.compare(iter([C, "", B, A, C]), REVENUE, Annual())
    assert list(found.panels) == [C, A]
    assert list(found.failed) == ["", B]
    assert isinstance(found.failed[B], NotFoundError)
    assert isinstance(found.failed[""], SelectionError)
    assert [panel.dataset.entity_id for panel in found] == [C, A]
    assert [period.label for period in found.periods] == ["FY2023", "FY2024"]
    assert len(found) == 2
    assert B not in found
    with pytest.raises(KeyError, match="could not be read: NotFoundError"):
        found[B]
    assert found.requests == len(sandbox.log)


@pytest.mark.parametrize(
    "periods", [Annual(last=2), Exact(["FY2023", "FY2024"]), FiscalRange(), Trailing(12)], ids=repr
)
async def test_it_costs_what_the_queries_cost(periods: Any) -> None:
    """The catalogues that a rule is resolved over are not read or confirmed a second time."""
    exact = Exact(["FY2023", "FY2024"]) if isinstance(periods, Annual) else periods
    spent = []
    async with Sandbox(company(A, 2023), company(B, 2024)) as sandbox:
        for compares in (False, True):
            async with Client(sandbox.base_url, sandbox.token) as client:
                for _ in range(2):  # cold and warm
                    before = len(sandbox.log)
                    if compares:
                        found = await client.compare([A, B], REVENUE, periods)
                        assert found.requests == len(sandbox.log) - before
                    else:
                        for each in (A, B):
                            await client.query(each, REVENUE, exact)
                    spent.append(Counter(each.operation for each in sandbox.log[before:]))
    cold, warm, cold_together, warm_together = spent
    assert cold_together == cold
    assert warm_together == warm + Counter(dataset=2 if isinstance(periods, Annual) else 0)


def number_id(number: int) -> str:
    return f"{number}" * 8 + "-2222-4222-8222-222222222222"


def queries(sandbox: Sandbox, entity_id: str) -> int:
    """Return how many queries were sent for an entity."""
    paths = [served.path for served in sandbox.log if served.operation == "query"]
    return sum(entity_id in path for path in paths)


@pytest.mark.parametrize(("newest", "again"), [(2024, 1), (2025, 2)])
async def test_only_changed_entity_is_reread(newest: int, again: int) -> None:
    """The others only if the rule then resolves to other periods."""
    newer = company(B, 2023, newest, dataset_id=SECOND)
    async with Sandbox(company(A, 2023, 2024), company(B, 2023, 2024)) as sandbox:
        sandbox.inject(Switch(operation="query", nth=1, publication=newer))
        async with Client(sandbox.base_url, sandbox.token, max_in_flight=1) as client:
            comparison = await client.compare([A, B], REVENUE, Annual(last=2))
    assert not comparison.failed
    assert comparison[B].dataset.dataset_id == SECOND
    assert (queries(sandbox, A), queries(sandbox, B)) == (again, 2)
    for panel in comparison:
        assert [period.label for period in panel.periods][-1] == f"FY{newest}"
    assert comparison.requests == len(sandbox.log)


async def test_failed_entity_no_longer_decides_periods() -> None:
    """Its catalogue was read, but its values were rejected; then another one changes."""
    newer = company(B, 2022, 2023, dataset_id=SECOND)
    files = company(A, 2022, 2023), company(B, 2022, 2023), company(C, 2022, 2023, 2024)
    async with Sandbox(*files) as sandbox:
        sandbox.inject(Switch(operation="query", nth=2, publication=newer))
        sandbox.inject(Status(status=404, code="entity_not_found", operation="query", nth=3))
        async with Client(sandbox.base_url, sandbox.token, max_in_flight=1) as client:
            comparison = await client.compare([A, B, C], REVENUE, Annual(last=2))
    assert [*comparison.failed] == [C]
    for entity_id in (A, B):
        assert [*map(str, comparison[entity_id].periods)] == ["FY2022", "FY2023"]


async def test_entity_that_keeps_changing_fails() -> None:
    """After three restarts; the others are shown."""
    async with Sandbox(company(A, 2023, 2024), company(B, 2023, 2024)) as sandbox:
        # Before each query of B, of which the first is the second of all.
        for number in range(2, 6):
            newer = company(B, 2023, 2024, dataset_id=number_id(number))
            sandbox.inject(Switch(operation="query", nth=number, publication=newer))
        async with Client(sandbox.base_url, sandbox.token, max_in_flight=1) as client:
            comparison = await client.compare([A, B], REVENUE, Annual(last=2))
    assert list(comparison.panels) == [A]
    error = comparison.failed[B]
    assert isinstance(error, DatasetChangedError)
    assert error.entity_id == B
    assert (queries(sandbox, A), queries(sandbox, B)) == (1, 4)


async def test_missing_and_unknown_are_listed() -> None:
    """An entity with nothing of the question has a panel without series."""
    datasets = (company(A, 2023), company(B, 2023, metric="Sales"))
    async with Sandbox(*datasets) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        found = await client.compare([A, B], Select(["Revenue", "Revenu"]), Annual())
    assert found.missing == {A: {"metric_ids": ("Revenu",)}, B: {"metric_ids": ("Revenue", "Revenu")}}
    assert found.unknown == {"metric_ids": ("Revenu",)}
    assert [len(panel) for panel in found] == [1, 0]
    assert found.notes[0].startswith("metric_ids: no entity has the metric 'Revenu' (close: Revenue")
    assert "Revenue" in found.notes[0]
    assert f"Example ({B}) has no metric 'Revenue'" in found.notes
    assert max(map(len, str(found).splitlines())) <= 100


async def test_entity_without_the_periods_is_noted() -> None:
    """It has years, but none of the last two of all; an empty panel without a word would mean no value."""
    datasets = (company(A, 2022, 2023, 2024), company(B, 2020, 2021), company(C, 2023))
    async with session(*datasets) as (_, client):
        found = await client.compare([A, B, C], REVENUE, Annual(last=2))
    assert [len(panel) for panel in found] == [1, 0, 1]
    assert found.missing == {B: {"periods": ("FY2023", "FY2024")}}
    assert any(B in note and "FY2023" in note for note in found.notes)


@pytest.mark.parametrize(
    ("ids", "select", "periods", "error", "text"),
    [
        ([], REVENUE, Annual(), SelectionError, "entity_ids must name at least one"),
        (A, REVENUE, Annual(), ArgumentError, f"write \\['{A}'\\]"),
        ([A, 1], REVENUE, Annual(), ArgumentError, "each of entity_ids must be"),
        ([A], "Revenue", Annual(), SelectionError, "select"),
        ([A], REVENUE, "FY2024", SelectionError, "periods"),
    ],
)
async def test_arguments_are_checked_first(
    ids: Any, select: Any, periods: Any, error: type[Exception], text: str
) -> None:
    """It says what is wrong."""
    async with Sandbox(company(A, 2023)) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        with pytest.raises(error, match=text):
            await client.compare(ids, select, periods)
    assert not sandbox.log


async def test_nothing_to_show_is_an_error() -> None:
    """The error of the first if all failed; what is missing if none failed; a rule without periods."""
    async with session(company(A, 2023), company(B, 2023)) as (_sandbox, client):
        with pytest.raises(SelectionError, match="''") as malformed:
            await client.compare(["", C], REVENUE, Annual())
        assert not malformed.value.missing
        with pytest.raises(NotFoundError):
            await client.compare([C, ""], REVENUE, Annual())
        with pytest.raises(SelectionError, match="no entity has the metric 'Sales'") as nothing:
            await client.compare([A, B], Select("Sales"), Annual())
        assert nothing.value.missing == {"metric_ids": ("Sales",)}
        with pytest.raises(SelectionError, match="quarter"):
            await client.compare([A, C, B], REVENUE, Quarterly())
        # One failed: whether it has the series is not known.
        found = await client.compare([A, C], Select("Sales"), Annual())
    assert [len(panel) for panel in found] == [0]


@pytest.mark.parametrize("periods", [FiscalRange(), Annual()])
async def test_final_error_fails_unread_entities(periods: Any) -> None:
    """It is raised only if no entity was read."""
    at = 2 if periods == FiscalRange() else 1
    refused = Status(status=401, operation="query" if at == 1 else "catalogue", nth=range(2, 9))
    async with session(
        company(A, 2023), company(B, 2023), company(C, 2023), faults=[refused], max_in_flight=1
    ) as (_sandbox, client):
        found = await client.compare([A, B, C], REVENUE, periods)
        assert list(found) == [found[A]]
        assert isinstance(found.ended, AuthenticationError)
        assert {each: type(error) for each, error in found.failed.items()} == {
            B: AuthenticationError,
            C: AuthenticationError,
        }
        with pytest.raises(AuthenticationError):
            await client.compare([B, C], REVENUE, periods)


async def test_observers_see_one_query_per_entity() -> None:
    """Its requests are those of both steps, and a failure is its own."""
    seen: list[Event] = []
    async with session(company(A, 2023), company(B, 2024), observers=[seen.append]) as (sandbox, client):
        await client.compare([A, B, C], REVENUE, Annual())
    started = [each.entity_id for each in seen if isinstance(each, QuestionStarted)]
    finished = {each.entity_id: each for each in seen if isinstance(each, QuestionFinished)}
    assert started == [A, B, C]
    assert [(each, finished[each].series, finished[each].failure) for each in (A, B, C)] == [
        (A, 1, None),
        (B, 1, None),
        (C, None, "NotFoundError"),
    ]
    assert sum(each.requests for each in finished.values()) == len(sandbox.log)


@pytest.mark.virtual
async def test_cancelled_comparison_leaves_nothing() -> None:
    """At each moment of the reading; the client can be used afterwards."""
    for tenths in range(1, 38, 7):
        async with session(
            company(A, 2023), company(B, 2024), faults=[Latency(seconds=1)], max_in_flight=1
        ) as (sandbox, client):
            await client.usage("2026-01-01", "2026-01-01")
            tasks = asyncio.all_tasks()
            work = asyncio.create_task(client.compare([A, B], REVENUE, Annual()))
            await asyncio.sleep(tenths / 10)
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            assert work.cancelled()
            await asyncio.sleep(0)
            sent = len(sandbox.log)
            left = {task for task in asyncio.all_tasks() - tasks if "Sandbox" not in repr(task)}
            assert not [task for task in left if "asyncfin/read" in repr(task)]
            await asyncio.sleep(30)
            assert len(sandbox.log) <= sent + 1  # that in flight is logged when it is answered
            assert len(await client.compare([A, B], REVENUE, Annual())) == 2


async def test_tables_equal_those_of_panels() -> None:
    """A failed entity has no column, nor has one without a series; the mean is over the others."""
    async with session(company(A, 2022, 2023), company(B, 2022, 2023, metric="Sales"), company(D, 2023)) as (
        _,
        client,
    ):
        found = await client.compare([A, C, B, D], REVENUE, Annual())
    table = found.to_arrow()
    metadata = dict(table.schema.metadata)
    expected = concat(list(found), "wide", labels=True)
    facts = json.loads(metadata[b"asyncfin"])
    assert facts.pop("failed") == {C: f"NotFoundError: {found.failed[C]}"}
    assert table.equals(expected, check_metadata=False)
    assert facts == json.loads(expected.schema.metadata[b"asyncfin"])
    assert metadata[b"pandas"] == expected.schema.metadata[b"pandas"]
    assert table.num_columns == 3
    frame = found.to_pandas()
    assert frame.mean(axis=1).to_dict() == {"FY2022": 2022, "FY2023": 2023}
    assert C in frame.attrs["asyncfin"]
    first = found.to_pandas(columns=[str(frame.columns[0])])
    assert first.equals(frame[[*frame.columns[:1]]])
    assert first.index.name == "period"
    assert found.to_polars().to_dicts() == table.to_pylist()
    assert found.to_arrow(columns=["period"]).column_names == ["period"]
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    assert len(found.plot().lines) == 2
    pyplot.close("all")


async def test_different_windows_make_no_wide_table() -> None:
    """A null would be a value that was not requested; the error says what is one question for all."""
    async with session(company(A, 2022, 2023), company(B, 2021, 2022)) as (_, client):
        found = await client.compare([A, B], REVENUE, Trailing(12))
        same = await client.compare([A, D, C], REVENUE, Trailing(12))
    with pytest.raises(SelectionError, match=r"FY2022.*Quarterly\(last=.*long"):
        found.to_pandas()
    assert found.to_arrow("long").num_rows == 2
    assert same.to_arrow().num_rows == 1


async def test_notes_begin_with_failures() -> None:
    """Texts of the service are no markup in a notebook."""
    other = company(B, 2023) | {"name": "<b>Other</b>"}
    other["publications"][0]["groups"][0]["series"][0]["description"] = "in thousands"
    async with Sandbox(company(A, 2023), other) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        found = await client.compare([C, A, B], REVENUE, Annual())
    assert found.notes[0].startswith(f"{C}: NotFoundError: ")
    assert found.notes[-2] == "the same fiscal period of two entities can be different months"
    assert "different descriptions" in found.notes[-1]
    html = found._repr_html_()
    assert "&lt;b&gt;Other&lt;/b&gt;" in html
    assert "<b>" not in html
    assert str(found).count("different descriptions") == 1
    assert "2 entities" in repr(found)


async def test_budget_is_kept_without_private_names() -> None:
    """A program reads catalogues, sums the requests of the plans, and compares the Catalogues."""
    datasets = company(A, 2022, 2023), company(B, 2023, 2024), company(C, 2024, metric="Rainfall")
    async with session(*datasets) as (_, client):
        catalogues = [await client.catalogue(entity_id) for entity_id in (A, B, C)]
        periods = Annual(last=3).resolve(catalogues)
        sent = client.stats().requests
        plans = [
            await client.plan(catalogue, REVENUE, periods, allow_missing=True) for catalogue in catalogues
        ]
        assert [plan.requests for plan in plans] == [1, 1, 0]
        assert client.stats().requests == sent
        with pytest.raises(SelectionError, match="Revenue"):
            await client.plan(catalogues[-1], REVENUE, periods)
        compared = await client.compare(catalogues, REVENUE, Annual(last=3))
    assert compared.requests == client.stats().requests - sent == 2
    for entity_id in (A, B):
        assert [*map(str, compared[entity_id].periods)] == ["FY2022", "FY2023", "FY2024"]
    assert compared.missing == {C: {"metric_ids": ("Revenue",)}}


@pytest.mark.parametrize("periods", [Annual(last=2), FiscalRange()])
async def test_changed_source_fails_its_company_only(periods: Any) -> None:
    """With a Catalogue as its source a company is not read again; the others are."""
    async with session(company(A, 2022), company(B, 2022)) as (sandbox, client):
        catalogue = await client.catalogue(A)
        for entity_id in (A, B):
            sandbox.publish(company(entity_id, 2022, 2023, dataset_id=SECOND))
        compared = await client.compare([catalogue, B], REVENUE, periods)
    assert isinstance(compared.failed[A], DatasetChangedError)
    assert "FY2023" in map(str, compared[B].periods)


async def test_cached_catalogue_sends_no_request() -> None:
    async with session(company(A, 2022), max_age=60) as (_, client):
        assert await client.cached_catalogue(A) is None
        assert client.stats().requests == 0
        catalogue = await client.catalogue(A)
        sent = client.stats().requests
        assert await client.cached_catalogue(A) is catalogue
        assert await client.cached_catalogue(A, max_age=0) is None
        assert client.stats().requests == sent
