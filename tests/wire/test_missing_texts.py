"""What a real service may send against the spec: it works, or is rejected; by one table.

Each row is tried against a server written by hand, and every number must equal that of the unaltered one.
"""

import copy
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from attrs import evolve

from asyncfin import (
    Client,
    FiscalRange,
    MalformedAnswerError,
    MemoryCache,
    Query,
    Retry,
    Select,
    SelectionError,
    Series,
)
from tests.services.raw import Received, answer, judged

pytestmark = pytest.mark.virtual

Body = dict[str, Any]
Alter = Callable[[str, Body], None]
Numbers = tuple[tuple[str, str, float], ...]
HAND = "O-" + "h" * 32
UNUSUAL = "ACME Corp/7?"
TEXTS_OF_SERIES = ("label", "basis", "number_format", "period_meaning")

PATH = "company=total"
# What a field that is missing or null has; a text is "".
_EMPTY: dict[str, Any] = {"aliases": (), "sources": ()} | dict.fromkeys(
    ("report_period", "row_index", "column_index")
)
SCOPE = {"scope_id": "total", "name": "Total", "description": "All", "role": "total", "aliases": ["all"]}
PERIODS = [{"year": year, "end_month": 12, "duration_months": 12} for year in (2023, 2024)]


def hand_series(number: int) -> Body:
    return {
        "series_id": f"S-{number}",
        "reporting_group_id": "annual",
        "metric_id": f"M-{number}",
        "label": f"Metric {number}",
        "description": "in USD",
        "basis": "company",
        "scopes": [{"scope_group_id": "company", "scope_id": "total"}],
        "number_format": "#,##0",
        "period_meaning": "flow",
    }


def hand_value(number: float) -> Body:
    return {
        "number": number,
        "text": f"{number:g}",
        "number_format": "#,##0",
        "fill_type": "reported",
        "value_version": "original",
        "report_period": {"year": 2024, "end_month": 12, "duration_months": 0},
        "sources": [{"item_id": "10-K", "row_index": 1, "column_index": 2}],
    }


def hand_response(request: Received) -> tuple[str, Body]:
    """Return the operation and the response of the server written by hand: three series, two periods."""
    head = {
        "entity_id": HAND,
        "name": "By Hand",
        "dataset_id": "11111111-1111-4111-8111-111111111111",
        "created_timestamp": "2025-01-01T00:00:00Z",
    }
    operation = request.target.partition("?")[0].rsplit("/", 1)[-1]
    listed = [hand_series(number) for number in range(3)]
    if operation == "catalogue":
        group = {"reporting_group_id": "annual", "name": "Annual", "description": "", "basis": "reported"}
        scopes = {"scope_group_id": "company", "name": "Company", "description": "", "scopes": [SCOPE]}
        groups = [group | {"cadence": "annual", "series": listed}]
        return operation, head | {"periods": PERIODS, "scope_groups": [scopes], "groups": groups}
    if operation == "query":
        wanted = json.loads(request.body)["metric_ids"]
        found = [each for each in listed if each.pop("description") and each["metric_id"] in wanted]
        for number, each in enumerate(found):
            each["values"] = [hand_value(number + 0.5), None if number == 1 else hand_value(7)]
        return operation, head | {"periods": PERIODS, "series": found}
    return operation, head


@asynccontextmanager
async def service(alter: Alter) -> AsyncIterator[tuple[str, str, str]]:
    """Give base URL, token and entity id of the server whose responses pass through `alter`."""

    def judge(request: Received) -> bytes:
        operation, body = copy.deepcopy(hand_response(request))
        alter(operation, body)
        return answer(body=json.dumps(body).encode())

    async with judged(judge) as server:
        yield server.base_url, "token", HAND


def numbers(panel: Iterable[Series]) -> Numbers:
    return tuple(
        (series.series_id, period.label, value.number)
        for series in panel
        for period, value in series.observations()
    )


UNALTERED = (
    ("S-0", "FY2023", 0.5),
    ("S-0", "FY2024", 7),
    ("S-1", "FY2023", 1.5),
    ("S-2", "FY2023", 2.5),
    ("S-2", "FY2024", 7),
)


async def read_all(client: Client, entity_id: str) -> None:
    await client.dataset(entity_id)
    panel = await client.query(entity_id, Select(), FiscalRange())
    panel.check()


def objects(body: Any, path: str) -> Iterator[Body]:
    """Yield the objects at a path such as ``groups[*].series[*]``; an empty one is the body."""
    name, _, rest = path.partition(".")
    if not name:
        yield body
    elif name.endswith("[*]"):
        for each in body[name[:-3]]:
            if each is not None:
                yield from objects(each, rest)
    else:
        yield from objects(body[name], rest)


class At:
    """An alteration of one field, in every object at a path of the responses of an operation."""

    def __init__(self, operation: str, path: str, change: str, to: Any = None) -> None:
        self.operation, self.change, self.to = operation, change, to
        self.path, _, self.name = path.rpartition(".")

    def __call__(self, operation: str, body: Body) -> None:
        if operation == self.operation:
            for each in objects(body, self.path):
                if self.change == "missing":
                    each.pop(self.name)
                elif self.change == "empty" and each.get(self.name):
                    pass  # only the cursor of the last page is empty
                else:
                    each[self.name] = self.to

    @property
    def finding(self) -> tuple[str, str]:
        return "$." + ".".join(filter(None, [self.path, self.name])), self.change

    def __repr__(self) -> str:
        return f"{self.operation} {self.path}.{self.name} {self.change} {self.to}"


OPTIONAL = {
    "dataset": ["name"],
    "catalogue": [
        "name",
        *(f"scope_groups[*].{name}" for name in ("name", "description")),
        *(f"scope_groups[*].scopes[*].{name}" for name in ("name", "description", "role", "aliases")),
        *(f"groups[*].{name}" for name in ("name", "description", "basis", "cadence")),
        *(f"groups[*].series[*].{name}" for name in ("description", *TEXTS_OF_SERIES)),
    ],
    "query": [
        "name",
        *(f"series[*].{name}" for name in TEXTS_OF_SERIES),
        *(
            f"series[*].values[*].{name}"
            for name in ("text", "number_format", "fill_type", "report_period", "sources")
        ),
        *(f"series[*].values[*].sources[*].{name}" for name in ("row_index", "column_index")),
    ],
}
EMPTY = [
    At(operation, path, change)
    for operation, paths in OPTIONAL.items()
    for path in paths
    for change in ("null", "missing")
] + [
    *(At(operation, "next_cursor", "empty", "") for operation in ("catalogue", "query")),
]
HARMLESS = [
    At(operation, "created_timestamp", "is", text)
    for operation in ("dataset", "catalogue", "query")
    for text in ("2025-01-01T00:00:00.123456789Z", "2025-01-01T00:00:00+0000")
]
REFUSED = [
    At("query", "series[*].values[*].number", "null"),
    At("query", "series[*].values[*].number", "is", "12"),
    At("query", "series[*].values[*].value_version", "null"),
    At("query", "series[*].values[*].sources[*].item_id", "null"),
    At("query", "series[*].series_id", "is", "unknown"),
    At("query", "series[*].metric_id", "null"),
    At("query", "series[*].scopes", "null"),
    At("query", "series[*].label", "is", 5),
    At("query", "series[*].values", "null"),
    At("dataset", "created_timestamp", "is", 1735689600),
    At("dataset", "dataset_id", "null"),
    At("dataset", "dataset_id", "is", ""),
    At("catalogue", "groups[*].series[*].metric_id", "null"),
    At("catalogue", "scope_groups[*].scopes[*].aliases", "is", [None]),
    At("catalogue", "periods", "is", [PERIODS[0], PERIODS[0]]),
]


@pytest.mark.parametrize("alter", EMPTY, ids=repr)
async def test_missing_text_is_empty(alter: At, caplog: pytest.LogCaptureFixture) -> None:
    """The panel works in all its forms, from the cache too, with every number; nothing is logged."""
    cache = MemoryCache()
    async with (
        service(alter) as (url, token, entity_id),
        Client(url, token, cache=cache, retry=Retry(attempts=1)) as client,
    ):
        await client.dataset(entity_id)
        panel = await client.query(entity_id, Select(), FiscalRange())
        panel.check()
        again = await client.query(entity_id, Select(), FiscalRange())
        again.check()
        query = Query([f"M-{number}" for number in range(3)], [PATH], FiscalRange((2023, 12), (2024, 12)))
        (page,) = [page async for page in client.query_pages(entity_id, query)]
    assert numbers(panel) == numbers(again) == numbers(page.series) == UNALTERED
    assert panel.to_arrow().num_rows == len(UNALTERED)
    assert "entity_id" in panel.to_json()
    empty = _EMPTY.get(alter.name, "")
    if alter.path.startswith("series[*].values[*]"):
        for series in (*panel, *page.series):
            for _, value in series.observations():
                things = value.sources if alter.path.endswith("sources[*]") else (value,)
                assert {getattr(thing, alter.name) for thing in things} == {empty}
    elif alter.path == "series[*]":
        assert {getattr(series, alter.name) for series in page.series} == {empty}
        assert [series.label for series in panel] == [f"Metric {number}" for number in range(3)]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("name", TEXTS_OF_SERIES)
async def test_catalogue_counts_before_query(name: str) -> None:
    """A text that a query states otherwise changes nothing in a panel; the page of a query has its own."""
    alter = At("query", f"series[*].{name}", "is", "other")
    async with service(alter) as (url, token, entity_id), Client(url, token) as client:
        panel = await client.query(entity_id, Select(), FiscalRange())
        panel.check()
    assert numbers(panel) == UNALTERED
    assert [getattr(series, name) for series in panel] == [hand_series(number)[name] for number in range(3)]


@pytest.mark.parametrize("alter", HARMLESS, ids=repr)
async def test_other_forms_of_timestamps_work(alter: At) -> None:
    """Nine digits of a second, and an offset without a colon, are ISO 8601 too."""
    async with (
        service(alter) as (url, token, entity_id),
        Client(url, token) as client,
    ):
        panel = await client.query(entity_id, Select(), FiscalRange())
    assert numbers(panel) == UNALTERED


@pytest.mark.parametrize("alter", REFUSED, ids=repr)
async def test_what_numbers_depend_on_is_strict(alter: At) -> None:
    """Ids, numbers, periods, paths, lengths, timestamps and wrong types are rejected."""
    async with (
        service(alter) as (url, token, entity_id),
        Client(url, token, retry=Retry(attempts=1)) as client,
    ):
        with pytest.raises(MalformedAnswerError):
            await read_all(client, entity_id)


WORDS = {"basis": "company", "period_meaning": "flow", "cadence": "annual"}


@pytest.mark.parametrize("name", WORDS)
async def test_select_notes_series_without_word(name: str) -> None:
    """They are left out and named: by the result, or by the error if no other series is left."""

    def empty_first(operation: str, body: Body) -> None:
        if operation == "catalogue":
            (group,) = body["groups"]
            if name == "cadence":
                first = {**group, "reporting_group_id": "other", "cadence": None}
                first["series"] = [{**group["series"].pop(0), "reporting_group_id": "other"}]
                body["groups"].append(first)
            else:
                group["series"][0][name] = None

    select = Select(**{name: WORDS[name]})
    async with service(empty_first) as (url, token, entity_id), Client(url, token) as client:
        panel = await client.query(entity_id, select, FiscalRange())
        narrow = await client.query(entity_id, evolve(select, metric_ids=["M-1", "M-2"]), FiscalRange())
        with pytest.raises(SelectionError, match=f"{name}: 1 series states none and is left out: S-0"):
            await client.query(entity_id, evolve(select, metric_ids="M-0"), FiscalRange())
        async with client.query_many([entity_id], select, FiscalRange()) as answers:
            (result,) = [answer async for answer in answers]
    note = f"{name}: 1 series states none and is left out: S-0"
    assert panel.series_ids == narrow.series_ids == ("S-1", "S-2")
    assert note in panel.notes
    assert note not in narrow.notes
    assert result.panel is not None
    assert note in result.panel.notes
    assert result.missing == {}


async def test_entity_id_of_another_form() -> None:
    """Every request works."""

    def alter(operation: str, body: Body) -> None:
        body["entity_id"] = UNUSUAL

    async with service(alter) as (url, token, _), Client(url, token) as client:
        panel = await client.query(UNUSUAL, Select(), FiscalRange())
    assert numbers(panel) == UNALTERED
