"""No planned series is lost in silence, and none is called lost that the service only leaves out."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from asyncfin import (
    Annual,
    Client,
    Exact,
    FiscalRange,
    IncompleteResultError,
    MemoryCache,
    Panel,
    Period,
    Select,
    Trailing,
)
from asyncfin.model.selection import PeriodSelection
from asyncfin.sandbox import Dialect, Sandbox
from asyncfin.typing import ValueVersion
from tests.handmade import ENTITY_ID, dataset, series_id
from tests.services.altering import altered

pytestmark = pytest.mark.virtual

# Two paths of some 60 metrics each, which take two batches; one metric is on both.
VALUED = {
    **{(f"A{at}", "x"): {"FY2022": at, "FY2023": at, "FY2024": at} for at in range(60)},
    **{(f"B{at}", "y"): {"FY2021": at, "FY2022": at} for at in range(60)},
    ("A0", "y"): {"FY2021": 1},
}
NEVER = {("N1", "x"): {}, ("N2", "y"): {}}
DATASET = dataset({**VALUED, **NEVER})
FIRST = series_id("A0", "x")
Response = dict[str, Any]


def without(ids: set[str], times: int) -> Callable[[str, Response, Response], None]:
    """Return what takes series out of the first responses that would have brought each."""
    left = dict.fromkeys(ids, times)

    def alter(name: str, sent: Response, answer: Response) -> None:
        if name != "query":
            return
        for each in [series["series_id"] for series in answer["series"]]:
            if left.get(each, 0):
                left[each] -= 1
                answer["series"] = [one for one in answer["series"] if one["series_id"] != each]

    return alter


@asynccontextmanager
async def service(
    alter: Callable[[str, Response, Response], None] = lambda name, sent, answer: None, **options: Any
) -> AsyncIterator[tuple[Client, Sandbox]]:
    async with (
        Sandbox(DATASET, **options) as sandbox,
        altered(sandbox, alter) as base_url,
        Client(base_url, sandbox.token) as client,
    ):
        yield client, sandbox


def queries(sandbox: Sandbox) -> list[Response]:
    """Return the bodies of the queries that were sent."""
    return [served.body for served in sandbox.log if served.operation == "query"]


async def expected(periods: PeriodSelection) -> dict[str, dict[Period, float]]:
    async with Sandbox(DATASET) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        return numbers(await client.query(ENTITY_ID, Select(), periods))


def numbers(*panels: Panel) -> dict[str, dict[Period, float]]:
    return {
        series.series_id: {period: value.number for period, value in series.observations()}
        for panel in panels
        for series in panel
    }


@pytest.mark.parametrize(
    "periods", [FiscalRange(), FiscalRange(2023, 2024), Exact("FY2021"), Annual(last=1), Trailing(12)]
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_series_lost_once_is_whole(periods: PeriodSelection, streamed: bool) -> None:
    """Lost once, it is asked for over the whole span, and what comes is cut to the question."""
    lost = {FIRST, series_id("B7", "y")}
    async with service(without(lost, 1)) as (client, sandbox):
        if streamed:
            async with client.stream(ENTITY_ID, Select(), periods) as pieces:
                panels = [piece async for piece in pieces]
        else:
            panels = [await client.query(ENTITY_ID, Select(), periods)]
        plan = await client.plan(ENTITY_ID, Select(), periods)
        again = queries(sandbox)[plan.requests :]
    assert numbers(*panels) == await expected(periods)
    assert all(panel.unlisted == () for panel in panels)
    assert [body["periods"]["mode"] for body in again] == ["fiscal_range"]


async def test_series_left_out_twice_is_unlisted() -> None:
    """Some services leave out series that never had a value: they are named, and not asked for again."""
    never = {series_id(*names) for names in NEVER}
    async with service(without(never, 99)) as (client, sandbox):
        plan = await client.plan(ENTITY_ID, Select(), FiscalRange())
        first = await client.query(ENTITY_ID, Select(), FiscalRange())
        spent = len(queries(sandbox))
        second = await client.query(ENTITY_ID, Select(), Annual())
        assert len(queries(sandbox)) == spent + plan.requests == plan.requests * 2 + 1
    for panel in (first, second):
        assert set(panel.unlisted) == never
        assert len(panel) == len(VALUED) + len(NEVER)
        assert all(value is None for each in never for value in panel[each].values)
        assert "2 series were left out by the service" in str(panel)


async def test_unlisted_series_hide_no_loss() -> None:
    """Series that a service has left out for good do not hide that it loses another one."""
    never = {series_id(*names) for names in NEVER}
    lose_later = without({FIRST}, 1)
    leave_out = without(never, 99)
    losing = False

    def alter(name: str, sent: Response, answer: Response) -> None:
        leave_out(name, sent, answer)
        if losing:
            lose_later(name, sent, answer)

    async with service(alter) as (client, _):
        await client.query(ENTITY_ID, Select(), FiscalRange())
        losing = True
        panel = await client.query(ENTITY_ID, Select(), FiscalRange())
    assert set(panel.unlisted) == never
    assert numbers(panel)[FIRST] == (await expected(FiscalRange()))[FIRST]


MANY = {(f"C{at}", "x"): {"FY2022": at, "FY2023": at + 1, "FY2024": at + 2} for at in range(80)}


def at_most(count: int) -> Callable[[str, Response, Response], None]:
    """Return what makes a service return only so many series a query, without a cursor."""

    def alter(name: str, sent: Response, answer: Response) -> None:
        if name == "query":
            del answer["series"][count:]
            answer.pop("next_cursor", None)

    return alter


@pytest.mark.parametrize("version", ["original", "latest_restated"])
@pytest.mark.parametrize("periods", [FiscalRange(), Annual(last=1), Exact("FY2022"), Trailing(12)], ids=repr)
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
async def test_missing_series_take_many_rounds(
    version: ValueVersion, periods: PeriodSelection, cached: bool, streamed: bool
) -> None:
    """A service returns 20 series a query, and no cursor: all 80 are in the result, and none is unlisted."""
    async with (
        Sandbox(dataset(MANY)) as sandbox,
        Client(sandbox.base_url, sandbox.token) as plain,
        altered(sandbox, at_most(20)) as base_url,
        Client(base_url, sandbox.token, cache=MemoryCache() if cached else None) as client,
    ):
        whole = numbers(await plain.query(ENTITY_ID, Select(), periods, value_version=version))
        since = len(queries(sandbox))
        if streamed:
            async with client.stream(ENTITY_ID, Select(), periods, value_version=version) as pieces:
                panels = [piece async for piece in pieces]
        else:
            panels = [await client.query(ENTITY_ID, Select(), periods, value_version=version)]
        sent = queries(sandbox)[since:]
    assert len(whole) == 80
    assert numbers(*panels) == whole
    assert [each for panel in panels for each in panel.unlisted] == []
    # 40 of two batches; then 20 of the 40 that are missing, and 20 of 20.
    assert [len(body["metric_ids"]) for body in sent[2:]] == [40, 20]
    assert {body["value_version"] for body in sent} == {version}


@pytest.mark.parametrize("foreign", [False, True])
async def test_lost_series_is_an_error(foreign: bool) -> None:
    """A series that a response over the whole span listed, and two left out since, is an error."""
    losing = False
    lose = without({FIRST}, 99)

    def alter(name: str, sent: Response, answer: Response) -> None:
        if losing:
            lose(name, sent, answer)

    async with service(alter) as (client, _):
        catalogue = await client.catalogue(ENTITY_ID)
        # The cross product of these two matches the series too, though it is not asked for.
        around = Select.of([catalogue[series_id("A0", "y")], catalogue[series_id("A1", "x")]])
        panel = await client.query(ENTITY_ID, around if foreign else Select(), FiscalRange())
        assert (FIRST in panel) != foreign
        losing = True
        with pytest.raises(IncompleteResultError) as caught:
            await client.query(ENTITY_ID, Select(), Annual(last=1))
    assert caught.value.series_ids == (FIRST,)
    assert FIRST in str(caught.value)
    facts = [line.partition(":")[0] for line in caught.value.report().splitlines()]
    assert {"operation", "entity", "time", "message"} <= {*facts}
    assert "attempts" not in facts, "many requests were sent, none of which failed"


async def test_last_piece_has_unlisted_series() -> None:
    """Every other piece has brought what is in it."""
    never = {series_id(*names) for names in NEVER}
    async with (
        service(without(never, 99)) as (client, _),
        client.stream(ENTITY_ID, Select(), FiscalRange()) as pieces,
    ):
        *others, last = [piece async for piece in pieces]
    assert set(last.series_ids) == set(last.unlisted) == never
    assert all(piece.unlisted == () for piece in others)


@pytest.mark.parametrize("first", ["original", "latest_restated"])
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("others", [False, True])
async def test_value_versions_are_complete(first: ValueVersion, cached: bool, others: bool) -> None:
    """The service lists only series with values of the version: one is only restated, one was withdrawn."""
    restated, withdrawn = series_id("R", "x"), series_id("W", "x")
    data = dataset(
        {("R", "x"): {"FY2024": 1}, ("W", "x"): {"FY2024": 2}, **{names: {"FY2024": 3} for names in VALUED}}
    )
    values = data["publications"][0]["values"]
    values[restated], values[withdrawn] = [[0, None, 1]], [[0, 2, None]]
    second: ValueVersion = "original" if first == "latest_restated" else "latest_restated"
    select = Select() if others else Select(series_ids=[restated, withdrawn])
    unlisted = {"original": (restated,), "latest_restated": (withdrawn,)}
    async with (
        Sandbox(data, dialect=Dialect(empty_series=False, never_valued=False)) as sandbox,
        Client(sandbox.base_url, sandbox.token, cache=MemoryCache() if cached else None) as client,
    ):
        for version in (first, second, first):
            panel = await client.query(ENTITY_ID, select, FiscalRange(), value_version=version)
            assert panel.unlisted == unlisted[version]
            (listed,) = {restated, withdrawn} - {*panel.unlisted}
            assert [value and value.number for value in panel[listed].values] == [
                1 if listed == restated else 2
            ]
