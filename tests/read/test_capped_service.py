"""Services with caps that the spec does not state: what they return equals what one without caps returns."""

import asyncio
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from asyncfin import (
    Annual,
    Client,
    Exact,
    FiscalRange,
    MemoryCache,
    Quarterly,
    Select,
    ServiceError,
    Trailing,
    ValidationFailedError,
    extract,
)
from asyncfin.events import RequestStarted
from asyncfin.model.selection import PeriodSelection
from asyncfin.sandbox import Dialect, Latency, Sandbox
from asyncfin.sandbox.dataset import DatasetFile
from asyncfin.table.panel import Panel
from tests.altered import Got, capped
from tests.generate import generate

pytestmark = pytest.mark.virtual

LARGE = generate(17, series=600, publications=1, periods=60)
SMALL = generate(17, series=150, publications=1, periods=60)
ENTITY_ID = SMALL.entity_id


def cells(panel: Panel) -> dict[tuple[str, str], Any]:
    """Return all values with all their fields, by series and period."""
    return {(each.series_id, str(period)): value for each in panel for period, value in each.observations()}


def queries(received: list[Got]) -> list[Got]:
    return [got for got in received if got.operation == "query"]


def refused(received: list[Got]) -> list[Got]:
    return [got for got in received if got.status in (400, 413)]


ALL, YEARS, WINDOW = FiscalRange(), Annual(), Trailing(24)
CAPS: list[tuple[DatasetFile, PeriodSelection, dict[str, Any]]] = [
    (LARGE, ALL, {"ids": 1000}),
    (SMALL, YEARS, {"ids": 500}),
    (SMALL, WINDOW, {"ids": 200}),
    (LARGE, Quarterly(), {"size": 5120}),
    (SMALL, YEARS, {"size": 2900}),
    (SMALL, ALL, {"size": 2048}),
    (SMALL, ALL, {"months": 96}),
    (SMALL, WINDOW, {"months": 60}),
    (SMALL, FiscalRange("FY2019", "FY2024"), {"months": 60}),
    (SMALL, YEARS, {"months": 60}),
    (SMALL, YEARS, {"exact": 5}),
    (SMALL, Annual(last=1), {"exact": 5, "months": 60, "ids": 200, "size": 2048}),
    (SMALL, Annual(last=2), {"exact": 1, "months": 60}),
    (SMALL, YEARS, {"exact": 5, "months": 60}),
    (SMALL, Annual(last=2), {"exact": 1, "exact_status": 413}),
    (SMALL, Annual(last=2), {"exact": 1, "months": 12, "exact_status": 413}),
    (SMALL, YEARS, {"exact": 3, "ids": 500, "exact_status": 413}),
    (SMALL, ALL, {"ids": 500, "months": 60}),
    (SMALL, YEARS, {"ids": 500, "months": 60}),
    (SMALL, WINDOW, {"ids": 500, "size": 2048}),
    (SMALL, YEARS, {"exact": 3, "ids": 500}),
    (SMALL, YEARS, {"exact": 3, "size": 2048}),
    (SMALL, WINDOW, {"months": 60, "size": 2048}),
    (SMALL, YEARS, {"exact": 3, "months": 60, "ids": 200, "size": 2048}),
]


@pytest.mark.parametrize(
    ("dataset", "periods", "caps"), CAPS, ids=lambda each: each.code() if hasattr(each, "code") else None
)
async def test_a_result_equals_that_of_a_service_without_caps_and_the_second_question_is_not_refused(
    dataset: DatasetFile, periods: PeriodSelection, caps: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    entity_id = dataset.entity_id
    async with (
        Sandbox(dataset) as sandbox,
        Client(sandbox.base_url, sandbox.token) as plain,
        capped(sandbox, **caps) as (base_url, received),
        Client(base_url, sandbox.token) as client,
    ):
        right = await plain.query(entity_id, Select(), periods)
        plan = await plain.plan(entity_id, Select(), periods)
        panel = await client.query(entity_id, Select(), periods)
        first = [*received]
        received.clear()
        again = await client.query(entity_id, Select(), periods)
    assert cells(panel) == cells(again) == cells(right)
    assert panel.periods == again.periods == right.periods
    assert panel.unlisted == right.unlisted
    assert (panel.requests, again.requests) == (len(first), len(received))
    assert len(refused(first)) <= 8 + 16
    assert not refused(received)
    checks = [got.cache_control for got in first if got.operation == "dataset"]
    assert checks == ["no-cache"] * any(got.status == 400 for got in first), "one request for the metadata"
    warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert bool(warned) == bool(refused(first))
    assert len(warned) <= len(caps), "one for each kind"
    if not refused(first):
        assert len(queries(first)) == plan.requests


COSTS = Path(__file__).parents[2] / "docs" / "how" / "exactness.md"


def costs() -> list[tuple[dict[str, int], str, list[int]]]:
    """Return the rows of the table: caps, question, and numbers of requests."""
    caps = {
        "nothing": {},
        "more than 1,000 metrics x paths": {"ids": 1000},
        "more than 500": {"ids": 500},
        "more than 200": {"ids": 200},
        "bodies above 4 KB": {"size": 4096},
        "bodies above 2 KB": {"size": 2048},
        "ranges above 60 months": {"months": 60},
        "more than 5 exact periods": {"exact": 5},
        "more than 500 metrics x paths, and ranges above 60 months": {"ids": 500, "months": 60},
    }
    rows = COSTS.read_text().partition("| the service refuses |")[2].partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("| ").split(" | ")] for row in rows]
    return [(caps[name], code.strip("`"), [*map(int, numbers)]) for name, code, *numbers in cells]


@pytest.mark.parametrize(("caps", "code", "numbers"), costs(), ids=str)
async def test_caps_cost_what_the_documents_say(caps: dict[str, Any], code: str, numbers: list[int]) -> None:
    periods = {each.code(): each for each in (ALL, YEARS, WINDOW)}[code]
    async with (
        Sandbox(LARGE) as sandbox,
        capped(sandbox, **caps) as (base_url, received),
        Client(base_url, sandbox.token, max_in_flight=1) as client,
    ):
        catalogue = await client.catalogue(LARGE.entity_id)
        months = catalogue.periods[-1].fiscal_end - catalogue.periods[0].fiscal_end + 1
        assert (len(catalogue), months) == (600, 100)
        received.clear()
        await client.query(LARGE.entity_id, Select(), periods)
        first = [*received]
        received.clear()
        await client.query(LARGE.entity_id, Select(), periods)
    assert [len(first), len(refused(first)), len(received)] == numbers


async def test_the_client_learns_for_its_life_and_for_every_entity() -> None:
    other = generate(18, series=250, publications=1, periods=60)
    async with (
        Sandbox(SMALL, other) as sandbox,
        capped(sandbox, ids=300, months=60) as (base_url, received),
        Client(base_url, sandbox.token) as client,
    ):
        await client.query(ENTITY_ID, Select(), ALL)
        received.clear()
        await client.query(other.entity_id, Select(), WINDOW)
        assert not refused(received)
        async with Client(base_url, sandbox.token) as another:
            await another.query(other.entity_id, Select(), WINDOW)
        assert refused(received), "nothing is shared"


async def test_a_metric_that_is_refused_in_itself_is_not_a_cap() -> None:
    """Its refusal is raised, an equal question sends no query, and batches of another entity are not cut."""
    other = generate(18, series=60, publications=1)
    async with Sandbox(SMALL, other) as sandbox, Client(sandbox.base_url, sandbox.token) as plain:
        plan = await plain.plan(other.entity_id, Select(), ALL)
        mine, others = [
            {series.metric_id for series in await plain.catalogue(each)}
            for each in (ENTITY_ID, other.entity_id)
        ]
        bad = sorted(mine - others)[3]
        async with (
            capped(sandbox, metrics=[bad]) as (base_url, received),
            Client(base_url, sandbox.token) as client,
        ):
            with pytest.raises(ValidationFailedError) as caught:
                await client.query(ENTITY_ID, Select(), ALL)
            smaller = len(refused(received)) - 1
            assert caught.value.__notes__ == [f"{smaller} smaller requests were refused too"]
            assert len(refused(received)) <= 8 + 16
            assert [got.operation for got in received].count("dataset") == 1
            received.clear()
            with pytest.raises(ValidationFailedError) as again:
                await client.query(ENTITY_ID, Select(), ALL)
            assert not queries(received)
            assert again.value.__notes__ == caught.value.__notes__
            await client.query(other.entity_id, Select(), ALL)
            assert [got.ids for got in queries(received)] == [
                len(each.metric_ids) * len(each.scope_combinations) for each in plan.batches
            ]
            received.clear()
            await client.query(ENTITY_ID, Select(metric_ids=sorted(mine - {bad})), ALL)
            assert not refused(received)


async def test_a_search_that_takes_too_long_raises_the_first_refusal_and_keeps_what_it_has_shown() -> None:
    async with (
        Sandbox(SMALL) as sandbox,
        capped(sandbox, exact=1, months=4, ids=1) as (base_url, received),
        Client(base_url, sandbox.token, max_in_flight=1) as client,
    ):
        with pytest.raises(ValidationFailedError, match="9 periods, 0 months") as caught:
            await client.query(ENTITY_ID, Select(), YEARS)
        assert len(refused(received)) == 1 + 16
        assert caught.value.__notes__ == ["16 smaller requests were refused too"]
        received.clear()
        async with client.stream(ENTITY_ID, Select(), YEARS) as stream:
            assert len(await anext(stream)) == 1
        assert {got.months for got in queries(received)} == {4}
        assert queries(received)[0].ids < 10
        assert len(refused(received)) < 5


async def test_a_search_ends_although_a_batch_in_flight_is_the_last_that_may_be_refused() -> None:
    """It waits for the search, and the search for the place of a request."""
    async with (
        Sandbox(LARGE) as sandbox,
        capped(sandbox, exact=1, months=4, ids=1, slow=10) as (base_url, received),
        Client(base_url, sandbox.token, max_in_flight=2) as client,
        asyncio.timeout(100),
    ):
        with pytest.raises(ValidationFailedError, match="9 periods, 0 months"):
            await client.query(LARGE.entity_id, Select(), YEARS)
        assert len(refused(received)) == 2 + 16
        assert refused(received)[-1].exact == 9, "the slow one was the last"


@pytest.mark.parametrize("form", ["entity", "catalogue", "plan"])
async def test_a_service_that_refuses_every_query_receives_a_bounded_number(form: str) -> None:
    """The first refusal is raised; one request has shown that the publication was not replaced."""
    async with (
        Sandbox(LARGE) as sandbox,
        capped(sandbox, exact=0, months=0) as (base_url, received),
        Client(base_url, sandbox.token) as client,
    ):
        catalogue = await client.catalogue(LARGE.entity_id)
        plan = await client.plan(catalogue, Select(), YEARS)
        received.clear()
        source = catalogue if form == "catalogue" else LARGE.entity_id
        asked = client.run(plan) if form == "plan" else client.query(source, Select(), YEARS)
        with pytest.raises(ValidationFailedError, match="9 periods"):
            await asked
        assert len(refused(received)) <= 8 + 16
        assert [got.operation for got in received].count("dataset") == 1


async def test_a_plan_and_a_catalogue_are_cut_too_and_a_query_of_the_callers_own_is_not() -> None:
    async with (
        Sandbox(SMALL) as sandbox,
        Client(sandbox.base_url, sandbox.token) as plain,
        capped(sandbox, ids=300) as (base_url, received),
    ):
        right = cells(await plain.query(ENTITY_ID, Select(), ALL))
        async with Client(base_url, sandbox.token) as client:
            plan = await client.plan(ENTITY_ID, Select(), ALL)
            assert plan.requests == 2, "a plan knows nothing of caps"
            panel = await client.run(plan)
            assert cells(panel) == right
            assert panel.requests > plan.requests
            assert (await client.plan(ENTITY_ID, Select(), ALL)).batches == plan.batches
        async with Client(base_url, sandbox.token) as client:
            assert cells(await client.query(plan.catalogue, Select(), ALL)) == right
        received.clear()
        async with Client(base_url, sandbox.token) as client:
            for _ in range(2):
                with pytest.raises(ValidationFailedError):
                    await anext(client.query_pages(ENTITY_ID, plan.batches[0]))
        assert [got.operation for got in received] == ["query"] * 2


@pytest.mark.parametrize("caps", [{"months": 60}, {"ids": 300, "months": 60}, {"size": 2048}], ids=str)
@pytest.mark.parametrize("periods", [ALL, WINDOW], ids=lambda each: each.code())
async def test_a_stream_has_each_series_once(caps: dict[str, Any], periods: PeriodSelection) -> None:
    """A batch whose months were cut is one piece."""
    async with (
        Sandbox(SMALL) as sandbox,
        Client(sandbox.base_url, sandbox.token) as plain,
        capped(sandbox, **caps) as (base_url, received),
        Client(base_url, sandbox.token) as client,
    ):
        right = cells(await plain.query(ENTITY_ID, Select(), periods))
        for _ in range(2):
            received.clear()
            pieces = []
            async with client.stream(ENTITY_ID, Select(), periods) as stream:
                async for piece in stream:
                    pieces.append(piece)
            assert Counter(series.series_id for piece in pieces for series in piece).most_common(1)[0][1] == 1
            assert {key: each for piece in pieces for key, each in cells(piece).items()} == right
        assert not refused(received)


async def test_only_what_was_requested_over_the_whole_span_is_cached() -> None:
    """With a cache all parts are requested, and without one those in which exact periods end."""
    cache = MemoryCache()
    async with (
        Sandbox(SMALL) as sandbox,
        Client(sandbox.base_url, sandbox.token) as plain,
        capped(sandbox, exact=1, months=40) as (base_url, received),
        Client(base_url, sandbox.token, cache=cache, max_age=60) as client,
        Client(base_url, sandbox.token) as without,
    ):
        years = Exact(["FY2024", "FY2025"])
        async with client.query_many([ENTITY_ID], Select(), years) as answers:
            assert [len(each.panel or ()) async for each in answers] == [150]
        assert cells(await client.query(ENTITY_ID, Select(), years)) == cells(
            await plain.query(ENTITY_ID, Select(), years)
        )
        assert {got.months for got in queries(received) if got.status == 200} == {25}
        received.clear()
        panel = await client.query(ENTITY_ID, Select(), ALL)
        assert not received, "all of it is cached"
        assert cells(panel) == cells(await plain.query(ENTITY_ID, Select(), ALL))
        for _ in range(2):
            received.clear()
            panel = await without.query(ENTITY_ID, Select(), years)
        assert cells(panel) == cells(await plain.query(ENTITY_ID, Select(), years))
        assert len(queries(received)) == 2, "the newest part of each of the two batches, and no other"


@pytest.mark.parametrize("periods", [ALL, YEARS, WINDOW], ids=lambda each: each.code())
async def test_missing_series_are_requested_again_in_the_same_parts(periods: PeriodSelection) -> None:
    """A range lists the series that have a value in it, and about half of the others."""
    dialect = Dialect(empty_series=False, left_out_on="some")
    async with (
        Sandbox(SMALL, dialect=dialect) as sandbox,
        Client(sandbox.base_url, sandbox.token) as plain,
        capped(sandbox, ids=300, months=60) as (base_url, received),
        Client(base_url, sandbox.token) as client,
    ):
        right = await plain.query(ENTITY_ID, Select(), periods)
        for _ in range(2):
            received.clear()
            panel = await client.query(ENTITY_ID, Select(), periods)
            assert cells(panel) == cells(right)
            assert panel.unlisted == right.unlisted
        assert not refused(received)


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_409_in_any_part_is_a_change_of_the_whole_read(streamed: bool) -> None:
    both = generate(17, series=250, publications=2, periods=60)
    old, new = (DatasetFile(both.entity_id, both.name, (each,)) for each in both.publications)
    async with (
        Sandbox(old) as sandbox,
        capped(sandbox, months=60) as (base_url, received),
        Client(base_url, sandbox.token) as client,
    ):
        await client.query(both.entity_id, Select(), ALL)
        received.clear()
        later = [new]

        def publish(event: object) -> None:
            if isinstance(event, RequestStarted) and len(queries(received)) >= 3 and later:
                sandbox.publish(later.pop())

        with client.observed(publish):
            if streamed:
                async with client.stream(both.entity_id, Select(), ALL) as stream:
                    pieces = [piece async for piece in stream]
            else:
                pieces = [await client.query(both.entity_id, Select(), ALL)]
        assert 409 in {got.status for got in received}
        async with Client(sandbox.base_url, sandbox.token) as plain:
            right = await plain.query(both.entity_id, Select(), ALL)
        assert {piece.dataset.dataset_id for piece in pieces} == {right.dataset.dataset_id}
        assert {key: each for piece in pieces for key, each in cells(piece).items()} == cells(right)


async def test_questions_at_once_learn_together() -> None:
    """While a batch of one looks for a size, those of the others wait."""
    async with (
        Sandbox(LARGE) as sandbox,
        Client(sandbox.base_url, sandbox.token) as plain,
        capped(sandbox, ids=300) as (base_url, received),
        Client(base_url, sandbox.token) as client,
    ):
        catalogue = await client.catalogue(LARGE.entity_id)
        selects = [Select(basis=each) for each in sorted({series.basis for series in catalogue})]
        panels = await asyncio.gather(*(client.query(LARGE.entity_id, each, ALL) for each in selects))
        for select, panel in zip(selects, panels, strict=True):
            assert cells(panel) == cells(await plain.query(LARGE.entity_id, select, ALL))
        assert len(refused(received)) <= 8 + 16


async def test_a_question_that_is_cancelled_in_its_search_hinders_no_other() -> None:
    """Also a second one that waits for what the first one finds out."""
    async with (
        Sandbox(SMALL, faults=[Latency(operation="query", seconds=10)]) as sandbox,
        capped(sandbox, ids=300, months=60) as (base_url, received),
        Client(base_url, sandbox.token) as client,
    ):
        questions = [asyncio.ensure_future(client.query(ENTITY_ID, Select(), each)) for each in (ALL, WINDOW)]
        async with asyncio.timeout(100):
            # The batches of both, and then a smaller request.
            while len(refused(received)) < 5:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        questions[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await questions[0]
        panel = await questions[1]
        assert len(panel) == 150
        received.clear()
        await client.query(ENTITY_ID, Select(), ALL)
        assert not refused(received)


async def test_a_cap_is_logged_once_with_the_smallest_refused_size_and_the_largest_that_passed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        Sandbox(SMALL) as sandbox,
        capped(sandbox, ids=300, exact=3) as (base_url, _),
        Client(base_url, sandbox.token) as client,
    ):
        for periods in (YEARS, Quarterly(), ALL):
            await client.query(ENTITY_ID, Select(), periods)
    assert [record.getMessage() for record in caplog.records] == [
        "the service refuses a query of 9 exact periods: more than 8 are sent as a range",
        "the service refuses a query of 512 metric_ids x scope_combinations: more than 256 are cut",
    ]


async def test_a_413_without_an_error_object_is_one_too() -> None:
    """As that of a proxy in front of the service."""
    async with (
        Sandbox(SMALL) as sandbox,
        capped(sandbox, size=100) as (base_url, received),
        Client(base_url, sandbox.token) as client,
    ):
        with pytest.raises(ServiceError) as caught:
            await client.query(ENTITY_ID, Select(), ALL)
    assert caught.value.status == 413
    assert [got.operation for got in received].count("dataset") == 0
    assert len(refused(received)) <= 8 + 16


async def test_a_run_counts_what_was_sent_and_learns_with_the_first_value_version(
    tmp_path: Path,
) -> None:
    async with (
        Sandbox(SMALL) as sandbox,
        capped(sandbox, ids=300, months=60) as (base_url, received),
        Client(base_url, sandbox.token) as client,
    ):
        report = await extract(client, [ENTITY_ID], Select(), ALL, value_version="both", to=tmp_path)
    assert [each.entity_id for each in report.done] == [ENTITY_ID]
    assert report.requests == len(received)
    versions = [got.sent["value_version"] for got in refused(received)]
    assert {*versions} == {"original"}
