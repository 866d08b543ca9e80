"""The schema of the long table, one row an observation, and the origin of each column.

The schema does not depend on the question or the result. A column of type `word` is
dictionary-encoded. Columns of a series or a period cost one lookup a row. Columns of a
value decode its bytes, and of those only the chosen fields.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    get_type_hints,
)

import msgspec

from asyncfin import checks, suggest
from asyncfin.errors import SelectionError, shorten
from asyncfin.model import frame
from asyncfin.model.frame import SeriesColumn
from asyncfin.model.period import Period
from asyncfin.model.series import Value
from asyncfin.table.grid import Grid
from asyncfin.wire.values import ArraysDecoder

T = TypeVar("T")

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


class PeriodColumn(NamedTuple):
    """A column of the long table about the periods of a panel; `read` returns an entry
    for each of them.

    None: the number itself, which is stored decoded.
    """

    name: str
    type: str
    read: Callable[[Grid], list[Any]] | None


class ValueColumn(NamedTuple):
    """A column of the long table that is read from a field of values.

    Attributes:
        field: the field, which is decoded as `kind`.
        read: its entries for values.
    """

    name: str
    type: str
    field: str
    kind: Any
    read: Callable[[list[Any]], list[Any]]


Column: TypeAlias = SeriesColumn | PeriodColumn | ValueColumn


def _read_period(field: str, name: str = "", type_name: str = "int32") -> PeriodColumn:
    read = attrgetter(field)
    return PeriodColumn(
        name or field, type_name, lambda grid: list(map(read, grid.periods))
    )


def _read_value(
    name: str,
    type_name: str,
    field: str = "",
    kind: Any = str,
) -> ValueColumn:
    read = attrgetter(field or name)
    return ValueColumn(
        name, type_name, field or name, kind, lambda values: list(map(read, values))
    )


def _read_report_period(field: str) -> ValueColumn:
    def read(values: list[Any]) -> list[int | None]:
        # The service need not state a report period.
        return [getattr(value.report_period, field, None) for value in values]

    return ValueColumn(
        f"report_{field}", "int32", "report_period", _ReportPeriod | None, read
    )


*_SERIES_COLUMNS, _FORMAT_COLUMN = frame.COLUMNS
_COLUMNS: tuple[Column, ...] = (
    *_SERIES_COLUMNS,
    *map(_read_period, PERIOD_FIELDS),
    _read_period("label", "period_label", "word"),
    PeriodColumn("number", "float64", None),
    _read_value("text", "string"),
    _FORMAT_COLUMN,
    _read_value("value_number_format", "word", "number_format"),
    _read_value("fill_type", "word"),
    _read_value("value_version", "word"),
    PeriodColumn(
        "asked_version", "word", lambda grid: [grid.value_version] * len(grid.periods)
    ),
    *map(_read_report_period, PERIOD_FIELDS),
    _read_value("sources", "sources", kind=tuple[_Source, ...]),
)
COLUMNS = {column.name: column for column in _COLUMNS}
# The fields that a value may be without.
_DEFAULTS = {}
for _field in msgspec.structs.fields(Value):
    if not _field.required:
        _DEFAULTS[_field.name] = (_field.default,)


# A Struct type is slow to make, and the same columns are requested again.
@lru_cache
def make_decoder(fields: tuple[tuple[str, Any], ...]) -> ArraysDecoder[Any]:
    """Return a decoder of only these fields of values."""
    definitions: list[tuple[Any, ...]] = []
    for name, kind in fields:
        default = _DEFAULTS.get(name, ())
        definitions.append((name, kind, *default))
    observation = msgspec.defstruct("Observation", definitions, kw_only=True, gc=False)
    return ArraysDecoder(observation)


def choose_columns(names: Iterable[str], columns: Mapping[str, T]) -> list[T]:
    """Return columns by their names, in this order.

    Raises:
        SelectionError: a column is unknown.
    """
    chosen_columns = []
    for name in names:
        if name not in columns:
            text = suggest.quote_unknown(name, suggest.find_close(name, columns))
            # A wide table has thousands.
            all_names = shorten(", ".join(columns), 1_000)
            raise SelectionError(f"columns: no column {text}; there are {all_names}")
        chosen_columns.append(columns[name])
    return chosen_columns
