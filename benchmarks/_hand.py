"""An extraction as a good programmer writes it: aiohttp, msgspec and pyarrow, for the
requests of `extract`.

It plans nothing, checks nothing, paces nothing and repeats nothing. Its rows are those
of `extract`, but for escapes in scope paths.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks._night import TOKEN, entity_id

IN_FLIGHT = 8
KINDS = 6
ROWS_A_GROUP = 131_072

_WORD = pa.dictionary(pa.int32(), pa.string())
_REFS = pa.list_(
    pa.struct([("scope_group_id", pa.string()), ("scope_id", pa.string())])
)
_SOURCE = [
    ("item_id", pa.string()),
    ("row_index", pa.int64()),
    ("column_index", pa.int64()),
]
# The columns with one entry a company, and those of series, groups and values, by their
# fields.
_COMPANY = {"entity_id": "entity_id", "entity_name": "name", "dataset_id": "dataset_id"}
_SERIES = {
    field_name: field_name
    for field_name in (
        "series_id",
        "metric_id",
        "description",
        "basis",
        "period_meaning",
    )
}
_SERIES |= {"series_label": "label", "series_number_format": "number_format"}
_GROUP = {
    "reporting_group_id": "reporting_group_id",
    "reporting_group_name": "name",
    "cadence": "cadence",
}
_VALUE = {
    "value_number_format": "number_format",
    "fill_type": "fill_type",
    "value_version": "value_version",
}
_PERIOD = ("year", "end_month", "duration_months")


class Period(msgspec.Struct, gc=False, frozen=True):
    year: int
    end_month: int
    duration_months: int

    @property
    def label(self) -> str:
        year, month, months = self.year, self.end_month, self.duration_months
        if months == 12 and month == 12:
            return f"FY{year}"
        if months in (3, 6) and month % months == 0:
            return f"FY{year}-{'Q' if months == 3 else 'H'}{month // months}"
        return (
            f"FY{year}-9M"
            if months == month == 9
            else f"FY{year}-{month:02}-{months:02}M"
        )


class Ref(msgspec.Struct, gc=False, frozen=True):
    scope_group_id: str
    scope_id: str


class Source(msgspec.Struct, gc=False):
    item_id: str
    row_index: int
    column_index: int


class Value(msgspec.Struct, gc=False):
    number: float
    text: str
    number_format: str
    fill_type: str
    value_version: str
    report_period: Period
    sources: list[Source]


class Series(msgspec.Struct, gc=False):
    series_id: str
    values: list[Value | None]


class Part(msgspec.Struct, gc=False):
    """A page of a query."""

    periods: list[Period]
    series: list[Series]


class Listed(msgspec.Struct, gc=False):
    series_id: str
    metric_id: str
    label: str
    description: str
    basis: str
    number_format: str
    period_meaning: str
    scopes: list[Ref]


class Group(msgspec.Struct, gc=False):
    reporting_group_id: str
    name: str
    cadence: str
    series: list[Listed]


class Scope(msgspec.Struct, gc=False):
    scope_id: str
    name: str


class ScopeGroup(msgspec.Struct, gc=False):
    scope_group_id: str
    scopes: list[Scope]


class Page(msgspec.Struct, gc=False):
    """A page of the catalogue."""

    entity_id: str
    name: str
    dataset_id: str
    scope_groups: list[ScopeGroup]
    groups: list[Group]


_page, _part = msgspec.json.Decoder(Page), msgspec.json.Decoder(Part)


async def extract_by_hand(url: str, entities: int, folder: Path) -> int:
    """Write the rows of some companies of the night, a file each; return how many
    requests were sent.
    """
    await asyncio.to_thread(folder.mkdir, parents=True)
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT)
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(
        url, connector=connector, headers=headers
    ) as session:
        bodies = [await requests_of(session, kind) for kind in range(KINDS)]
        numbers, counts = iter(range(1, entities + 1)), []

        async def work() -> None:
            for number in numbers:
                requests = bodies[number % KINDS]
                counts.append(len(requests))
                pages: list[Page] = []
                parts: list[Part] = []
                for method, path, body in requests:
                    path_of_company = path.replace(
                        entity_id(number % KINDS), entity_id(number)
                    )
                    async with session.request(
                        method, path_of_company, data=body or None
                    ) as answer:
                        content = await answer.read()
                    if method == "POST":
                        parts.append(_part.decode(content))
                    elif "catalogue" in path:
                        pages.append(_page.decode(content))
                file = folder / f"{entity_id(number)}.parquet"
                await asyncio.to_thread(_write, file, pages, parts)

        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    return sum(counts)


async def requests_of(
    session: aiohttp.ClientSession, kind: int
) -> list[tuple[str, str, str]]:
    """Return what has been asked of a company of a kind: method, path and body of each
    request.
    """
    async with session.get(f"/requests/{entity_id(kind)}") as answer:
        return [tuple(request) for request in await answer.json(content_type=None)]


def _write(file: Path, pages: list[Page], parts: list[Part]) -> None:
    """Write a file that is whole or absent, also after a loss of power."""
    partial = file.with_suffix(".new")
    with partial.open("wb") as output:
        pq.write_table(
            _table(pages, parts),
            output,
            compression="zstd",
            row_group_size=ROWS_A_GROUP,
            write_page_checksum=True,
        )
        output.flush()
        os.fsync(output.fileno())
    partial.replace(file)


def _table(pages: list[Page], parts: list[Part]) -> pa.Table:
    groups = [
        (group, series)
        for page in pages
        for group in page.groups
        for series in group.series
    ]
    series = [series for _, series in groups]
    # A series may come with several queries; the first one is taken.
    places = {item.series_id: place for place, item in enumerate(series)}
    periods: dict[Period, int] = {}
    rows_of_values, periods_of_values, values = [], [], list[Value]()
    for part in parts:
        numbers = [periods.setdefault(period, len(periods)) for period in part.periods]
        for observed_series in part.series:
            place = places.pop(observed_series.series_id, None)
            if place is None:
                continue
            for number, value in zip(numbers, observed_series.values, strict=True):
                if value is not None:
                    rows_of_values.append(place)
                    periods_of_values.append(number)
                    values.append(value)
    rows = pa.array(rows_of_values, pa.int32())
    dates = pa.array(periods_of_values, pa.int32())
    order = pc.sort_indices(rows)  # stable, and the periods of a page are in order
    rows, dates = rows.take(order), dates.take(order)
    columns = {
        name: _constant(getattr(pages[0], field), len(rows))
        for name, field in _COMPANY.items()
    }
    columns["asked_version"] = _constant("original", len(rows))
    for name, field in _SERIES.items():
        columns[name] = _words([getattr(item, field) for item in series], rows)
    for name, field in _GROUP.items():
        columns[name] = _words([getattr(group, field) for group, _ in groups], rows)
    columns |= _scopes(pages[0], series, rows)
    for name in _PERIOD:
        distinct = pa.array([getattr(period, name) for period in periods], pa.int32())
        columns[name] = distinct.take(dates)
        report_periods = [getattr(value.report_period, name) for value in values]
        columns[f"report_{name}"] = pa.array(report_periods, pa.int32()).take(order)
    columns["period_label"] = _words([period.label for period in periods], dates)
    numbers = pa.array([value.number for value in values], pa.float64())
    columns["number"] = numbers.take(order)
    columns["text"] = pa.array([value.text for value in values]).take(order)
    for name, field in _VALUE.items():
        words = pa.array([getattr(value, field) for value in values], _WORD)
        columns[name] = words.take(order)
    columns["sources"] = _sources([value.sources for value in values]).take(order)
    return pa.table(columns)


def _constant(text: str, count: int) -> pa.Array:
    zeros = pa.repeat(pa.scalar(0, pa.int32()), count)
    return pa.DictionaryArray.from_arrays(zeros, pa.array([text]))


def _words(texts: list[str], places: pa.Array) -> pa.Array:
    """Return the text of each place; each distinct text is encoded once."""
    return pa.array(texts, _WORD).take(places)


def _scopes(page: Page, series: list[Listed], rows: pa.Array) -> dict[str, Any]:
    names = {
        (group.scope_group_id, scope.scope_id): scope.name
        for group in page.scope_groups
        for scope in group.scopes
    }
    numbers: dict[tuple[tuple[str, str], ...], int] = {}
    paths_of_series = []
    for item in series:
        path = tuple((ref.scope_group_id, ref.scope_id) for ref in item.scopes)
        paths_of_series.append(numbers.setdefault(path, len(numbers)))
    places = pa.array(paths_of_series, pa.int32()).take(rows)
    texts = ["|".join(f"{group}={scope}" for group, scope in path) for path in numbers]
    scope_names = [[names[ref] for ref in path] for path in numbers]
    return {
        "scopes": pa.array(list(numbers), _REFS).take(places),
        "scope_path": _words(texts, places),
        "scope_names": pa.array(scope_names).take(places),
    }


def _sources(entries: list[list[Source]]) -> pa.Array:
    sources, ends = [], [0]
    for entry in entries:
        sources += entry
        ends.append(len(sources))
    fields = [
        pa.array([getattr(source, name) for source in sources], kind)
        for name, kind in _SOURCE
    ]
    structs = pa.StructArray.from_arrays(fields, [name for name, _ in _SOURCE])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), structs)
