"""The dataset file (docs/dataset-format.md): its shape, and its way to the shapes of
spec 2 and back.

Values are rows of numbers and table indexes in a file. What its shape cannot say (ids
are distinct, indexes lie within their tables) is checked while the rows are expanded.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

import msgspec
from attrs import define, field
from msgspec import UNSET, Meta, Struct, UnsetType

from asyncfin.sandbox.reader import WrongPlaceError, read, show, suggest
from asyncfin.sandbox.schema import MAX_DURATION, EntityId, Month, Uuid, Year

# The first is what `dump` writes. Files of the second have the same tables, and more
# keys, which are ignored.
FORMATS = ("asyncfin-dataset/1", "findata-dataset/1")
WITHDRAWN: Final = "withdrawn"  # in place of a restated value: a restatement left none

# UTF-8 cannot carry half of a surrogate pair, and SQLite would end a text at a NUL.
Text = Annotated[str, Meta(pattern=r"^[^\0\ud800-\udfff]*$")]
_Index = Annotated[int, Meta(ge=0)]


# A mistyped key of an optional member would otherwise leave its default there in
# silence.
class _Closed(Struct, forbid_unknown_fields=True):
    pass


# The ends of a scope's activity and report periods are points in time (spec 2.1).
class _End(_Closed):
    year: Year
    end_month: Month
    duration_months: Literal[0]


class _Scope(_Closed):
    scope_id: Text
    name: Text | UnsetType = UNSET
    description: Text | UnsetType = UNSET
    role: Text | UnsetType = UNSET
    # msgspec copies an empty default, so no two scopes share it.
    aliases: list[Text] = []
    active_start: _End | UnsetType = UNSET
    active_end: _End | UnsetType = UNSET

    def __post_init__(self) -> None:
        self.name = _get_text(self.name, self.scope_id)
        self.description = _get_text(self.description, self.name)


class _ScopeGroup(_Closed, kw_only=True):
    scope_group_id: Text
    name: Text | UnsetType = UNSET
    description: Text | UnsetType = UNSET
    scopes: list[_Scope]

    def __post_init__(self) -> None:
        self.name = _get_text(self.name, self.scope_group_id)
        self.description = _get_text(self.description, self.name)
        for scope in self.scopes:
            scope.role = _get_text(scope.role, self.scope_group_id)


class _Reference(Struct, frozen=True, forbid_unknown_fields=True):
    scope_group_id: Text
    scope_id: Text


class _Series(_Closed, kw_only=True):
    series_id: Text
    # Optional here and in a file as people write it; a file made from catalogue
    # responses has both.
    reporting_group_id: Text | UnsetType = UNSET
    metric_id: Text
    label: Text | UnsetType = UNSET
    description: Text | UnsetType = UNSET
    basis: Text | UnsetType = UNSET
    scopes: Annotated[list[_Reference], Meta(max_length=20)]
    number_format: Text = "#,##0"
    period_meaning: Text = "over_period"

    def __post_init__(self) -> None:
        self.label = _get_text(self.label, self.metric_id)
        self.description = _get_text(self.description, self.label)


class _Group(_Closed, kw_only=True):
    reporting_group_id: Text
    name: Text | UnsetType = UNSET
    description: Text | UnsetType = UNSET
    basis: Text
    cadence: Text
    series: list[_Series]

    def __post_init__(self) -> None:
        self.name = _get_text(self.name, self.reporting_group_id)
        self.description = _get_text(self.description, self.name)
        for series in self.series:
            series.reporting_group_id = _get_text(
                series.reporting_group_id, self.reporting_group_id
            )
            series.basis = _get_text(series.basis, self.basis)


# As an array: a file lists a hundred of them, and rows point to them by index.
class _Period(_Closed, array_like=True):
    year: Year
    end_month: Month
    duration_months: Annotated[
        int, Meta(ge=0, le=MAX_DURATION)
    ]  # 0: a service may list balances so


class _ReportPeriod(_Closed, array_like=True):
    year: Year
    end_month: Month
    duration_months: Literal[0]


class _Publication(_Closed, kw_only=True):
    dataset_id: Uuid
    created_timestamp: Text
    periods: list[_Period]
    scope_groups: list[_ScopeGroup]
    groups: list[_Group]
    values: dict[Text, Any]
    report_periods: list[_ReportPeriod] = []
    items: list[Text] = []
    fill_types: list[Text] = []
    # Where the figures come from is passed over: one key of ours, the others of
    # findata-dataset/1.
    provenance: Any = None
    as_of: Any = None
    filings: Any = None
    counts: Any = None


class _File(_Closed, kw_only=True):
    format: str
    entity_id: EntityId
    name: Text
    publications: Annotated[list[_Publication], Meta(min_length=1)]
    provenance: Any = None
    cik: Any = None
    fiscal_year_end_month: Any = None
    filings: Any = None
    build_notes: Any = None


class _Source(_Closed, array_like=True):
    item: _Index
    row_index: _Index
    column_index: _Index


class _Sourced(_Closed, array_like=True):
    number: int | float
    fill_type: _Index
    report_period: _Index
    sources: list[_Source]
    # Where the display pattern of the series does not give them.
    text: Text | UnsetType = UNSET
    number_format: Text | UnsetType = UNSET


_Value = int | float | _Sourced | None


class _Row(_Closed, array_like=True):
    period: _Index
    original: _Value
    restated: _Value | UnsetType = UNSET


def _get_text(text: str | UnsetType, default: str) -> str:
    return default if isinstance(text, UnsetType) else text


def read_document(document: Any) -> tuple[str, str, list[dict[str, Any]]]:
    """Return the entity_id, the name, and the fields of each publication, in the shapes
    of spec 2.
    """
    # First of all: under another format all other keys may be right.
    if isinstance(document, Mapping) and document.get("format") not in FORMATS:
        text = show(document.get("format"))
        raise WrongPlaceError(
            "$.format",
            f"is {text}, not a format of this version: write {show(FORMATS[0])}",
        )
    file = read(document, _File, "$")
    places = _number_entries("$.publications", file.publications)
    # UUIDs are the same in upper and lower case.
    ids = [entry.dataset_id.lower() for entry in file.publications]
    reject_repeated(places, ids, "dataset_id")
    publications = list(map(_expand, file.publications, places))
    stamps = [entry.created_timestamp for entry in file.publications]
    for place, previous, stamp in zip(places[1:], stamps, stamps[1:], strict=False):
        if datetime.fromisoformat(stamp) < datetime.fromisoformat(previous):
            raise WrongPlaceError(
                f"{place}.created_timestamp",
                f"is {stamp!r}, before {previous!r}: publications are listed oldest "
                "first",
            )
    return file.entity_id, file.name, publications


def _expand(publication: _Publication, place: str) -> dict[str, Any]:
    """Return the fields of a publication in the shapes of spec 2."""
    check_timestamp(publication.created_timestamp, place)
    periods = tuple(map(msgspec.structs.astuple, publication.periods))
    for index, (previous, period) in enumerate(pairwise(periods), 1):
        if period <= previous:
            fault = "occurs twice"
            if period < previous:
                fault = f"is before {show(previous)}"
            raise WrongPlaceError(
                f"{place}.periods[{index}]",
                f"is {show(period)}, which {fault}: sort by year, end month, duration",
            )
    check_ids(publication, place)
    # Each series has an entry in `values` from here on, though a file may leave out one
    # without any.
    formats = {}
    for group in publication.groups:
        for series in group.series:
            formats[series.series_id] = series.number_format
    for series_id in publication.values:
        if series_id not in formats:
            raise WrongPlaceError(
                f"{place}.values.{series_id}",
                f"is not a series of the groups; {suggest(series_id, formats)}",
            )
    tables = _Tables.of(publication, periods)
    values = {}
    for series_id, pattern in formats.items():
        rows = publication.values.get(series_id, ())
        values[series_id] = tables.rows(rows, f"{place}.values.{series_id}", pattern)
    return {
        "dataset_id": publication.dataset_id,
        "created_timestamp": publication.created_timestamp,
        "periods": periods,
        "scope_groups": tuple(msgspec.to_builtins(publication.scope_groups)),
        "groups": tuple(msgspec.to_builtins(publication.groups)),
        "values": values,
    }


def check_timestamp(timestamp: str, place: str) -> None:
    try:
        if datetime.fromisoformat(timestamp).utcoffset() == timedelta(0):
            return
    except ValueError:
        pass
    raise WrongPlaceError(
        f"{place}.created_timestamp",
        f"is {show(timestamp)}, not a UTC time: write ISO 8601 such as "
        "2025-02-01T06:00:00Z",
    )


def check_ids(publication: _Publication, place: str) -> None:
    """Reject repeated ids, series in a foreign group, and references to unknown
    scopes.
    """
    scope_places = _number_entries(f"{place}.scope_groups", publication.scope_groups)
    reject_repeated(
        scope_places,
        [member.scope_group_id for member in publication.scope_groups],
        "scope_group_id",
    )
    scopes = set()
    for scope_place, scope_group in zip(
        scope_places, publication.scope_groups, strict=True
    ):
        ids = [scope.scope_id for scope in scope_group.scopes]
        reject_repeated(_number_entries(f"{scope_place}.scopes", ids), ids, "scope_id")
        for scope_id in ids:
            scopes.add(_Reference(scope_group.scope_group_id, scope_id))
    group_places = _number_entries(f"{place}.groups", publication.groups)
    reject_repeated(
        group_places,
        [member.reporting_group_id for member in publication.groups],
        "reporting_group_id",
    )
    series: dict[str, _Series] = {}
    for group_place, group in zip(group_places, publication.groups, strict=True):
        series_places = _number_entries(f"{group_place}.series", group.series)
        members = dict(zip(series_places, group.series, strict=True))
        series |= members
        for series_place, member in members.items():
            if member.reporting_group_id != group.reporting_group_id:
                raise WrongPlaceError(
                    f"{series_place}.reporting_group_id",
                    f"is {show(member.reporting_group_id)}, not that of its group:"
                    f" write {show(group.reporting_group_id)} or leave it out",
                )
    reject_repeated(
        series, [member.series_id for member in series.values()], "series_id"
    )
    for series_place, member in series.items():
        for number, reference in enumerate(member.scopes):
            if reference not in scopes:
                text = show(msgspec.to_builtins(reference))
                raise WrongPlaceError(
                    f"{series_place}.scopes[{number}]",
                    f"is {text}, not a scope of scope_groups: add it there",
                )


def _number_entries(place: str, entries: Sequence[Any]) -> list[str]:
    return [f"{place}[{index}]" for index in range(len(entries))]


def reject_repeated(places: Iterable[str], ids: Iterable[str], key: str) -> None:
    """Reject an id that an earlier entry has."""
    first: dict[str, str] = {}
    for place, entry in zip(places, ids, strict=True):
        other_place = first.setdefault(entry, place)
        if other_place != place:
            raise WrongPlaceError(
                f"{place}.{key}",
                f"is {show(entry)}, which {other_place} has: give each its own",
            )


@define
class _Tables:
    """What the rows of a publication point into; `own_reports` for values that name no
    report period.
    """

    periods: Sequence[tuple[int, int, int]]
    own_reports: Sequence[dict[str, int]]
    report_periods: Sequence[dict[str, int]]
    items: Sequence[str]
    fill_types: Sequence[str]

    @classmethod
    def of(
        cls, publication: _Publication, periods: Sequence[tuple[int, int, int]]
    ) -> _Tables:
        reports = map(msgspec.structs.astuple, publication.report_periods)
        return cls(
            periods,
            [make_period((year, month, 0)) for year, month, _ in periods],
            list(map(make_period, reports)),
            publication.items,
            publication.fill_types or ["reported"],
        )

    def rows(self, entries: Any, place: str, pattern: str) -> tuple[Any, ...]:
        """Return the rows of a series with complete value objects, ascending by period
        index.
        """
        # Rows are in the order of the periods, so one pass finds both disorder and
        # repetition.
        rows = []
        last = -1
        for index, row in enumerate(read(entries, list[_Row], place)):
            row_place = f"{place}[{index}]"
            self.check(row.period, self.periods, f"{row_place}[0]", "periods")
            if row.period <= last:
                raise WrongPlaceError(
                    f"{row_place}[0]",
                    f"is {row.period} after {last}: rows are in the order of the "
                    "periods, one for each",
                )
            if row.original is None and row.restated in (None, UNSET):
                raise WrongPlaceError(row_place, "holds no value: leave the row out")
            last = row.period
            value_place = f"{row_place}[1]"
            original = self._convert_value(row.original, last, pattern, value_place)
            latest: Any = None
            if not isinstance(row.restated, UnsetType):
                value_place = f"{row_place}[2]"
                latest = self._convert_value(row.restated, last, pattern, value_place)
                latest = latest or WITHDRAWN
            rows.append((last, original, latest))
        return tuple(rows)

    def _convert_value(
        self, value: Any, index: int, pattern: str, place: str
    ) -> dict[str, Any] | None:
        """Return the value object of spec 2.4, without its `value_version`."""
        if value is None:
            return None
        number = value
        fill_type = self.fill_types[0]
        report_period = self.own_reports[index]
        text: str | UnsetType = UNSET
        sources: list[dict[str, Any]] = []
        if isinstance(value, _Sourced):
            number, text = value.number, value.text
            pattern = _get_text(value.number_format, pattern)
            self.check(value.fill_type, self.fill_types, f"{place}[1]", "fill_types")
            reports = self.report_periods
            self.check(value.report_period, reports, f"{place}[2]", "report_periods")
            fill_type = self.fill_types[value.fill_type]
            report_period = reports[value.report_period]
            for position, source in enumerate(value.sources):
                source_place = f"{place}[3][{position}][0]"
                self.check(source.item, self.items, source_place, "items")
                fields = {
                    "item_id": self.items[source.item],
                    "row_index": source.row_index,
                    "column_index": source.column_index,
                }
                sources.append(fields)
        # Also for an int: JSON can spell one that no float reaches. A NaN fails every
        # comparison.
        if not abs(number) <= sys.float_info.max:
            raise WrongPlaceError(place, f"is {show(number)}, not a finite number")
        if isinstance(text, UnsetType):
            text = format_number(number, pattern)
        return {
            "number": number,
            "text": text,
            "number_format": pattern,
            "fill_type": fill_type,
            "report_period": report_period,
            "sources": sources,
        }

    @staticmethod
    def check(index: int, table: Sequence[Any], place: str, name: str) -> None:
        if index >= len(table):
            right = f"{name} is empty or absent"
            if table:
                right = f"write 0 to {len(table) - 1}"
            raise WrongPlaceError(
                place, f"is {index}, not an index into {name}: {right}"
            )


def make_period(period: tuple[int, int, int]) -> dict[str, int]:
    """Return the period object of spec 2.1."""
    return dict(zip(("year", "end_month", "duration_months"), period, strict=True))


def format_number(number: float, pattern: str) -> str:
    """Return the number as the display pattern shows it, or plain if the pattern is not
    understood.
    """
    return make_formatter(pattern)(number)


@lru_cache
def make_formatter(pattern: str) -> Callable[[float], str]:
    """Make the function that writes a number by this pattern: #,##0 or 0, then
    decimals, then a percent sign.
    """
    if pattern == ";;;":  # hidden, as in spreadsheets
        return lambda number: ""
    match = re.fullmatch(r"(#,##0|0)(?:\.(0+))?(%?)", pattern)
    if match is None:
        return str
    grouping = "," if match[1] == "#,##0" else ""
    fraction = f"z{grouping}.{len(match[2] or '')}{match[3] or 'f'}"  # z: no "-0"
    if match[2] or match[3]:
        return lambda number: format(float(number), fraction)
    # "d" accepts no float, and "f" turns a large int into the nearest float.
    integral = f"{grouping}d"
    return lambda number: format(
        number, integral if isinstance(number, int) else fraction
    )


class _Table:
    """Distinct entries in the order of their first use."""

    def __init__(self, entries: Sequence[Any] = ()) -> None:
        self._indexes = {entry: index for index, entry in enumerate(entries)}

    def index(self, entry: Any) -> int:
        return self._indexes.setdefault(entry, len(self._indexes))

    def entries(self) -> list[Any]:
        return list(self._indexes)


@define
class _Compacted:
    """The tables of one publication, as its values fill them."""

    periods: Sequence[tuple[int, int, int]]
    report_periods: _Table = field(factory=_Table)
    items: _Table = field(factory=_Table)
    fill_types: _Table = field(factory=lambda: _Table(["reported"]))

    def row(self, row: tuple[int, Any, Any], pattern: str) -> list[Any]:
        index, original, latest = row
        values = [self._convert_value(original, index, pattern)]
        if latest == WITHDRAWN:
            values.append(None)
        elif latest is not None:
            values.append(self._convert_value(latest, index, pattern))
        return [index, *values]

    def _convert_value(self, value: Any, index: int, pattern: str) -> Any:
        """Return the bare number where the rest of the value is what the loader
        supplies anyway.
        """
        if value is None:
            return None
        report = value["report_period"]
        end = (report["year"], report["end_month"])
        texts = [value["text"], value["number_format"]]
        # Left out where the loader supplies them.
        if texts == [format_number(value["number"], pattern), pattern]:
            texts = []
        # Most values of most files are of this kind, and a bare number is much shorter.
        members = end == self.periods[index][:2] and value["fill_type"] == "reported"
        if members and not value["sources"] and not texts:
            return value["number"]
        fill_type = self.fill_types.index(value["fill_type"])
        report_period = self.report_periods.index((*end, 0))
        sources = []
        for source in value["sources"]:
            item = self.items.index(source["item_id"])
            sources.append([item, source["row_index"], source["column_index"]])
        return [value["number"], fill_type, report_period, sources, *texts]


def compact(publication: Any) -> dict[str, Any]:
    """Return a publication as a file holds it."""
    tables = _Compacted(publication.periods)
    patterns = {}
    for group in publication.groups:
        for series in group["series"]:
            patterns[series["series_id"]] = series["number_format"]
    values = {}
    for series_id, rows in publication.values.items():
        pattern = patterns[series_id]
        if rows:
            values[series_id] = [tables.row(row, pattern) for row in rows]
    return {
        "dataset_id": publication.dataset_id,
        "created_timestamp": publication.created_timestamp,
        "periods": publication.periods,
        "report_periods": tables.report_periods.entries(),
        "items": tables.items.entries(),
        "fill_types": tables.fill_types.entries(),
        "scope_groups": publication.scope_groups,
        "groups": publication.groups,
        "values": values,
    }
