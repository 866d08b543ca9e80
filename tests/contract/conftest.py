"""What the contract tests share: a small dataset written by hand, and the client against a sandbox of it."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from attrs import evolve

from asyncfin import Client, Exact, FiscalRange, Period, Query, Retry, ScopeRef, Trailing, Value
from asyncfin.sandbox import Account, Dialect, Publication, Sandbox
from tests.services.raw import Scripted, answer, scripted

ENTITY = "O-" + "1b" * 16
FIRST, SECOND = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
CREATED = "2025-02-01T06:00:00Z"
TOTAL = (ScopeRef("company", "total"),)
CLOUD = (ScopeRef("segment", "cloud & co"),)
EMEA = (ScopeRef("segment", "cloud & co"), ScopeRef("region", "é=|%"))
LABELS = ("FY2023-Q1", "FY2023-Q2", "FY2023-H1", "FY2023", "FY2024-Q1", "FY2024-Q2", "FY2024")
PERIODS = tuple(map(Period.parse, LABELS))
EVERYTHING = FiscalRange(2023, 2024)

# series: reporting group, metric, path, and its values: original, restated
SERIES: dict[str, tuple[str, str, tuple[ScopeRef, ...], dict[str, tuple[float, float | None]]]] = {
    "A-sales": ("annual", "sales", TOTAL, {"FY2023": (100, 101), "FY2024": (120, None)}),
    "A-profit": ("annual", "profit", TOTAL, {"FY2023": (0, None)}),
    "A-staff": ("annual", "staff", TOTAL, {}),
    "Q-sales": (
        "quarterly",
        "sales",
        TOTAL,
        {"FY2023-Q1": (20, None), "FY2023-Q2": (30, 31), "FY2023-H1": (50, 51), "FY2024-Q1": (25, None)},
    ),
    "Q-profit": ("quarterly", "profit", TOTAL, {"FY2024-Q2": (-3.5, None)}),
    "Q-cloud": ("quarterly", "sales", CLOUD, {"FY2024-Q1": (5, None)}),
    "Q-emea": ("quarterly", "sales", EMEA, {"FY2023-Q1": (1, 2)}),
}
METRICS, PATHS = ("sales", "profit", "staff"), (TOTAL, CLOUD, EMEA)


def references(path: Iterable[ScopeRef]) -> list[dict[str, str]]:
    return [{"scope_group_id": ref.scope_group_id, "scope_id": ref.scope_id} for ref in path]


def period(label: str, duration_months: int | None = None) -> dict[str, int]:
    found = Period.parse(label)
    months = found.duration_months if duration_months is None else duration_months
    return {"year": found.year, "end_month": found.end_month, "duration_months": months}


def value(number: float, label: str) -> dict[str, Any]:
    return {
        "number": number,
        "text": f"{number:,}",
        "number_format": "#,##0.0",
        "fill_type": "reported",
        "report_period": period(label, 0),
        "sources": [{"item_id": f"item {label}", "row_index": 3, "column_index": 4}],
    }


def _series(series_id: str) -> dict[str, Any]:
    group_id, metric_id, path, _ = SERIES[series_id]
    return {
        "series_id": series_id,
        "reporting_group_id": group_id,
        "metric_id": metric_id,
        "label": f"The {metric_id}",
        "description": f"{metric_id} in USD",
        "basis": "company" if path == TOTAL else "segment",
        "scopes": references(path),
        "number_format": "#,##0",
        "period_meaning": "flow",
    }


def _group(group_id: str) -> dict[str, Any]:
    texts = {
        "name": f"The {group_id}",
        "description": "As reported",
        "basis": "reported",
        "cadence": group_id,
    }
    members = [_series(series_id) for series_id, facts in SERIES.items() if facts[0] == group_id]
    return {"reporting_group_id": group_id, **texts, "series": members}


def _scope_group(ref: ScopeRef) -> dict[str, Any]:
    scope = {
        "scope_id": ref.scope_id,
        "name": "A scope",
        "description": "Of the company",
        "role": "member",
        "aliases": ["one", "two"],
        "active_start": period("FY2023-Q1", 0),
        "active_end": period("FY2024", 0),
    }
    head = {"scope_group_id": ref.scope_group_id, "name": "A scope group", "description": "Of scopes"}
    return head | {"scopes": [scope]}


PUBLICATION = Publication(
    entity_id=ENTITY,
    name="Ünited Sample",
    dataset_id=FIRST,
    created_timestamp=CREATED,
    periods=tuple((each.year, each.end_month, each.duration_months) for each in PERIODS),
    scope_groups=tuple(map(_scope_group, (TOTAL[0], *EMEA))),
    groups=(_group("annual"), _group("quarterly")),
    values={
        series_id: [
            (LABELS.index(label), value(first, label), None if last is None else value(last, label))
            for label, (first, last) in cells.items()
        ]
        for series_id, (*_, cells) in SERIES.items()
    },
)
LATER = evolve(PUBLICATION, dataset_id=SECOND)

DIALECTS = {
    "as it comes": Dialect(),
    "everything asked, newest first, short pages": Dialect(
        periods="asked", order="newest", last_cursor="null", pages="short", scope_groups="first"
    ),
    "periods of the page, shuffled, empty pages": Dialect(
        periods="page", order="shuffled", pages="empty", scope_groups="used", unrestated="original"
    ),
    "empty series left out, extras, gzip": Dialect(
        periods="page", empty_series=False, last_cursor="null", extras=True, gzip=True
    ),
    "ids and cursor before the pin, never valued left out": Dialect(
        ids_before_pin=True, cursor_before_pin=True, never_valued=False, metadata_lag=1
    ),
    "everything odd": Dialect(
        periods="asked",
        order="shuffled",
        empty_series=False,
        left_out_on="some",
        last_cursor="null",
        pages="empty",
        scope_groups="used",
        unrestated="original",
        extras=True,
        gzip=True,
    ),
}
each_dialect = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
ONCE = Retry(attempts=1)


def query(**fields: Any) -> Query:
    """Return a query for everything but for what is given."""
    whole = {"metric_ids": METRICS, "scope_combinations": PATHS, "periods": EVERYTHING}
    return Query(**{**whole, **fields})


Cells = Mapping[tuple[str, str], Value]


async def cells(client: Client, asked: Query, **options: Any) -> Cells:
    """Return all values that the pages of a query bring, by series and period label."""
    return {
        (series.series_id, found.label): value
        async for page in client.query_pages(ENTITY, asked, **options)
        for series in page.series
        for found, value in series.observations()
    }


async def numbers(client: Client, asked: Query, **options: Any) -> dict[tuple[str, str], float]:
    return {place: value.number for place, value in (await cells(client, asked, **options)).items()}


def meant(asked: Query) -> dict[tuple[str, str], float]:
    """Return what a query means, read off the dataset as it is written above (spec 4.3)."""
    restated = asked.value_version == "latest_restated"
    found = {
        (series_id, label): last if restated and last is not None else first
        for series_id, (group_id, metric_id, path, values) in SERIES.items()
        if metric_id in asked.metric_ids and path in asked.scope_combinations
        if asked.reporting_group_ids is None or group_id in asked.reporting_group_ids
        for label, (first, last) in values.items()
    }
    ends = {label: Period.parse(label).fiscal_end for _, label in found}
    match asked.periods:
        case Exact(periods=exact):
            return {place: number for place, number in found.items() if Period.parse(place[1]) in exact}
        case FiscalRange(start=start, end=end):
            assert start
            assert end
            first, last = start.fiscal_end, end.fiscal_end
        case Trailing(months=months):
            last = max(ends.values(), default=0)
            first = last - months + 1
    return {place: number for place, number in found.items() if first <= ends[place[1]] <= last}


@pytest.fixture
def dialect() -> Dialect:
    """The sandbox's dialect; tests over several give their own."""
    return Dialect()


@pytest.fixture
async def sandbox(dialect: Dialect) -> AsyncIterator[Sandbox]:
    async with Sandbox(PUBLICATION, dialect=dialect) as running:
        running.put_account(Account("other"))
        yield running


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with Client(sandbox.base_url, sandbox.token, retry=ONCE) as session:
        yield session


def asking(sandbox: Sandbox, token: str | None = None, **options: Any) -> Client:
    """Return another client of the sandbox."""
    return Client(sandbox.base_url, token or sandbox.token, **{"retry": ONCE, **options})


def metadata(**fields: Any) -> dict[str, Any]:
    whole = {"entity_id": ENTITY, "name": "Sample", "dataset_id": FIRST, "created_timestamp": CREATED}
    return whole | fields


def query_series(series_id: str, values: list[Any], **fields: Any) -> dict[str, Any]:
    head = {name: text for name, text in _series(series_id).items() if name != "description"}
    return head | {"values": values} | fields


def query_body(
    *series: dict[str, Any], periods: Iterable[str] = ("FY2023",), **fields: Any
) -> dict[str, Any]:
    return metadata() | {"periods": list(map(period, periods)), "series": list(series)} | fields


def catalogue_body(*series: dict[str, Any], **fields: Any) -> dict[str, Any]:
    group = _group("annual") | {"series": list(series)}
    return metadata() | {"periods": [period("FY2023")], "scope_groups": [], "groups": [group]} | fields


def catalogue_series(series_id: str, **fields: Any) -> dict[str, Any]:
    return _series(series_id) | fields


@asynccontextmanager
async def wrong_service(*bodies: Any, **options: Any) -> AsyncIterator[tuple[Client, Scripted]]:
    """Give a client of a service that answers with these bodies, the last one again and again."""
    steps = [answer(body=json.dumps(body).encode()) for body in bodies]
    async with scripted(*steps) as server, Client(server.base_url, "token", retry=ONCE, **options) as session:
        yield session, server
