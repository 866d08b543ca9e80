"""The schema of the long table, one row an observation, and the origin of each column.

The schema does not depend on the question or the result. A column of type `word` is
dictionary-encoded. Columns of a series or a period cost one lookup a row. Columns of a
value decode its bytes, and of those only the chosen fields.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, Literal, TypeAlias, get_type_hints

import msgspec
from attrs import frozen

from asyncfin import checks, suggest
from asyncfin.errors import SelectionError
from asyncfin.model import frame
from asyncfin.model.frame import SeriesColumn
from asyncfin.model.period import Period
from asyncfin.model.series import COLUMN_OF, CatalogueSeries
from asyncfin.model.value import Value
from asyncfin.table.grid import Grid
from asyncfin.wire.values import ArraysDecoder

Layout: TypeAlias = Literal["long", "wide"]
check_layout = checks.one_of("long", "wide")
PERIOD_FIELDS = ("year", "end_month", "duration_months")

# What does not fit into Arrow's types is malformed here; as a Value it can be read.
_Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


# As Period, without the checks of those that are constructed: decoding has checked all.
_ReportPeriod = msgspec.defstruct(
    "_ReportPeriod", get_type_hints(Period, include_extras=True).items(), gc=False
)


class _Source(msgspec.Struct, gc=False):
    item_id: str
    row_index: _Int64 | None = None
    column_index: _Int64 | None = None


@frozen
class OfSeries:
    """A column read from the series: `read` takes one series for each value of the key
    `by`.

    None: all series of a result have the same entry.
    """

    read: Callable[[Grid, Sequence[CatalogueSeries]], list[Any]]
    by: Callable[[CatalogueSeries], Hashable] | None


@frozen
class OfPeriod:
    """A column read from the period."""

    read: Callable[[Period], Any]


@frozen
class OfValue:
    """A column read from a field of values, which is decoded as `kind`: `read` takes
    many values at once.
    """

    field: str
    kind: Any
    read: Callable[[list[Any]], list[Any]]


class OfNumber:
    """The number itself, which is stored decoded."""


Origin: TypeAlias = OfSeries | OfPeriod | OfValue | OfNumber


def _read_value(name: str, kind: Any = str) -> OfValue:
    return OfValue(name, kind, lambda values: list(map(attrgetter(name), values)))


def _report_period(name: str) -> OfValue:
    of_all, of_one = attrgetter(f"report_period.{name}"), attrgetter(name)

    def read(values: list[Any]) -> list[int | None]:
        try:
            return list(map(of_all, values))
        except AttributeError:  # None: the service states no report period
            periods = (value.report_period for value in values)
            return [None if period is None else of_one(period) for period in periods]

    return OfValue("report_period", _ReportPeriod | None, read)


def _read_catalogue(column: SeriesColumn) -> OfSeries:
    return OfSeries(
        lambda grid, examples: column.read(grid.catalogue, examples), column.by
    )


def _read_period(name: str) -> OfPeriod:
    return OfPeriod(attrgetter(name))


def _read_version(grid: Grid, examples: Sequence[CatalogueSeries]) -> list[Any]:
    return [grid.value_version] * len(examples)


@frozen
class Column:
    """A column of the long table. `type` is the name of its Arrow type, as in
    docs/schema.md.
    """

    name: str
    type: str
    origin: Origin


_OF_SERIES = [
    Column(column.name, column.type, _read_catalogue(column))
    for column in frame.COLUMNS
]
_FORMAT = next(
    place
    for place, column in enumerate(_OF_SERIES)
    if column.name == COLUMN_OF["number_format"]
)
COLUMNS: tuple[Column, ...] = (
    *_OF_SERIES[:_FORMAT],
    Column("year", "int32", _read_period("year")),
    Column("end_month", "int32", _read_period("end_month")),
    Column("duration_months", "int32", _read_period("duration_months")),
    Column("period_label", "word", _read_period("label")),
    Column("number", "float64", OfNumber()),
    Column("text", "string", _read_value("text")),
    _OF_SERIES[_FORMAT],
    Column("value_number_format", "word", _read_value("number_format")),
    Column("fill_type", "word", _read_value("fill_type")),
    Column("value_version", "word", _read_value("value_version")),
    Column("asked_version", "word", OfSeries(_read_version, None)),
    Column("report_year", "int32", _report_period("year")),
    Column("report_end_month", "int32", _report_period("end_month")),
    Column("report_duration_months", "int32", _report_period("duration_months")),
    Column("sources", "sources", _read_value("sources", tuple[_Source, ...])),
    *_OF_SERIES[_FORMAT + 1 :],
)
_BY_NAME = {column.name: column for column in COLUMNS}
# The fields that a value may be without.
_DEFAULTS = {
    field.name: (field.default,)
    for field in msgspec.structs.fields(Value)
    if not field.required
}


# A Struct type is slow to make, and the same columns are requested again.
@lru_cache
def decoder(fields: tuple[tuple[str, Any], ...]) -> ArraysDecoder[Any]:
    """Return a decoder of only these fields of values."""
    declared = [(name, kind, *_DEFAULTS.get(name, ())) for name, kind in fields]
    return ArraysDecoder(
        msgspec.defstruct("Observation", declared, kw_only=True, gc=False)
    )


def choose_columns(names: Iterable[str] | None) -> tuple[Column, ...]:
    """Return the columns of these names, in this order; None: all.

    Raises:
        SelectionError: a column is unknown.
    """
    if names is None:
        return COLUMNS
    names = dict.fromkeys(names)
    for name in names:
        if name not in _BY_NAME:
            raise SelectionError(
                f"columns: no column {suggest.quoted(name, _BY_NAME)}; there are "
                f"{', '.join(_BY_NAME)}"
            )
    return tuple(map(_BY_NAME.__getitem__, names))


def column_names(names: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the names of columns; a str is one name.

    Raises:
        ArgumentError: there is something else than names.
    """
    if names is None:
        return None
    if isinstance(names, str):
        return (names,)
    checks.several("columns", names, "names")
    names = tuple(names)
    for name in names:  # others may not be hashable
        checks.instance_of(str)("each of columns", name)
    return names
