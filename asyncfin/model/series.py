"""The series of a catalogue (spec 2.3), and those of a query result with their values
(spec 2.4).
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import compress
from operator import attrgetter, call
from types import MappingProxyType
from typing import Any

from attrs import field, frozen
from msgspec import Struct

from asyncfin import suggest
from asyncfin.checks import short_repr
from asyncfin.errors import SelectionError, printable
from asyncfin.model.period import Period, write_hint
from asyncfin.model.scope import ScopePath, ScopeRef, format_path
from asyncfin.words import counted, listed, spanned


class CatalogueSeries(Struct, frozen=True, gc=False, kw_only=True):
    """A series of a catalogue, which queries can select (spec 2.3). A text that is not
    sent is ``""``.

    Attributes:
        series_id: its id, which belongs to this publication.
        reporting_group_id: the reporting group it is part of.
        metric_id: what is measured.
        label: its name, for people.
        description: what it means. The unit, if there is one, is stated only here.
        basis: its reporting basis; an open set of words.
        scopes: its complete, ordered scope path.
        number_format: a display pattern, not a scale.
        period_meaning: how the period of a value is to be read; an open set of words.
    """

    series_id: str
    reporting_group_id: str
    metric_id: str
    label: str = ""
    description: str = ""
    basis: str = ""
    scopes: tuple[ScopeRef, ...]
    number_format: str = ""
    period_meaning: str = ""

    @property
    def scope_path(self) -> str:
        """The scope path in its text form."""
        return format_path(self.scopes)

    @property
    def is_consolidated(self) -> bool:
        """Whether it is of the whole entity, by its basis."""
        return self.basis.casefold() == "consolidated"

    def __repr__(self) -> str:
        return printable(
            f"<CatalogueSeries {self.series_id}: {self.label} ({self.metric_id}), "
            f"{self.scope_path or 'no scopes'}, {self.reporting_group_id}>"
        )


class SeriesHead(Struct, frozen=True, gc=False, kw_only=True):
    """A series of a page without its values (spec 2.4). None is a text that the page
    does not have.
    """

    series_id: str
    reporting_group_id: str
    metric_id: str
    label: str | None = None
    basis: str | None = None
    scopes: tuple[ScopeRef, ...]
    number_format: str | None = None
    period_meaning: str | None = None


SERIES_FIELDS = CatalogueSeries.__struct_fields__
# The fields of a series in the response to a query, which does not state the
# description (spec 2.4), and the names that tables have for fields.
PAGE_FIELDS = tuple(name for name in SERIES_FIELDS if name != "description")
_COLUMNS = {
    "label": "series_label",
    "scopes": "scope_path",
    "number_format": "series_number_format",
}
COLUMN_OF: Mapping[str, str] = MappingProxyType(
    {name: _COLUMNS.get(name, name) for name in SERIES_FIELDS}
)
# Those that identify a series, besides its id, and what a client stores of it in order
# to query it (spec 4.2 rule 4): ids belong to one publication. The others only describe
# it.
IDENTITY = ("metric_id", "reporting_group_id", "scopes")
triple = attrgetter(*IDENTITY)


def read_cell(series: "CatalogueSeries | Series", name: str) -> str | None:
    """Return a field of a series as the text of a cell, a scope path in its text form;
    None without one.
    """
    if name == "scopes":
        return format_path(series.scopes)
    text: str | None = getattr(series, name)
    return text


def no_series(key: object, series: Collection[CatalogueSeries]) -> KeyError:
    """Return the error for a key that is not a series_id; of a metric's id, it names
    the metric's series.
    """
    if not isinstance(key, str):
        return KeyError(f"no series {short_repr(key)}: the key is a series_id")
    texts = []
    for member in series:
        if member.metric_id == key:
            path = format_path(member.scopes)
            texts.append(f"{member.series_id} ({path}, {member.reporting_group_id})")
    if texts:
        return KeyError(f"no series {key!r}; of that metric: {listed(texts, 5)}")
    metric_ids = dict.fromkeys(map(attrgetter("metric_id"), series))
    series_ids = map(attrgetter("series_id"), series)
    matches = suggest.find_close(key, [*metric_ids, *series_ids])
    text = suggest.quote_unknown(key, matches)
    if not matches:
        text += suggest.list_few(metric_ids)
    return KeyError(f"no series {text}")


class Source(Struct, frozen=True, gc=False):
    """A reference to the origin of a value (spec 2.4).

    Attributes:
        item_id: the id of the item.
        row_index: the row in it; None if the service does not state it.
        column_index: the column in it, likewise.
    """

    item_id: str
    row_index: int | None = None
    column_index: int | None = None


# gc=False: an answer has millions, none in a cycle, and each collection would walk
# through them.
class Value(Struct, frozen=True, gc=False, kw_only=True):
    """One observation (spec 2.4). ``str(value)`` is its text, or its number if the text
    is blank.

    Attributes:
        number: the value. A reported zero is 0. Whole numbers stay exact. One that is
            too large for a float (10**400) is rejected as malformed. One that is too
            close to zero for a float (1e-400) is read as 0.0.
        text: the value as the service formats it.
        number_format: its display pattern, not a scale: `number` is complete as it is.
        fill_type: how it was obtained; an open set of words.
        value_version: ``"original"`` or ``"latest_restated"``, as the service labels
            it.
        report_period: the period in which it was reported, of duration 0; None if the
            service does not state one.
        sources: where it comes from, in the service's order.

    Texts and sources that the service does not send are ``""`` and ``()``.
    """

    number: int | float
    text: str = ""
    number_format: str = ""
    fill_type: str = ""
    value_version: str
    report_period: Period | None = None
    sources: tuple[Source, ...] = ()

    def __str__(self) -> str:
        return printable(write_value(self))


def write_value(value: Value) -> str:
    """Return the text of a value; its number if the text is blank, which would read as
    a gap.
    """
    if value.text.strip():
        return value.text
    return str(value.number)


# Not slotted: `values` are cached in the dictionary of an object that is otherwise
# frozen.
@frozen(slots=False, kw_only=True)
class Series:
    """A series with its values (spec 2.4). ``series["FY2024"]`` is the value at a
    period, or None.

    ``str(series)`` is one line: label, id, how many values of which version there are,
    and the latest.

    Attributes:
        series_id: its id, which belongs to this publication.
        reporting_group_id: the reporting group it is part of.
        metric_id: what is measured.
        label: its name, for people.
        basis: its reporting basis; an open set of words.
        scopes: its complete, ordered scope path.
        number_format: a display pattern, not a scale.
        period_meaning: how the period of a value is to be read; an open set of words.
        periods: the periods that `values` is aligned with.
        values: one entry a period: a Value, or None without an observation (a reported
            zero is a Value). They are decoded on first access, and cached as long as
            this object. MalformedAnswerError is raised then if the response broke the
            spec.

    Comparing two series decodes and compares their values too.
    """

    series_id: str
    reporting_group_id: str
    metric_id: str
    label: str
    basis: str
    scopes: ScopePath
    number_format: str
    period_meaning: str
    periods: tuple[Period, ...] = field(repr=False)
    # Compared by what it returns: two results with the same values are equal, however
    # they were read.
    _decode: Callable[[], tuple[Value | None, ...]] = field(
        repr=False, eq=call, hash=False
    )
    _version: str = field(
        default="", repr=False, eq=False
    )  # of a panel, the requested value version

    @property
    def scope_path(self) -> str:
        """The scope path in its text form."""
        return format_path(self.scopes)

    @property
    def values(self) -> tuple[Value | None, ...]:
        # By hand: cached_property takes a lock in Python 3.11, a microsecond for each
        # of thousands of series.
        values = self.__dict__.get("_values")
        if values is None:
            values = self.__dict__["_values"] = self._decode()
        return values

    def __getitem__(self, period: Period | str) -> Value | None:
        """Return the value at a period, a `Period` or its label, or None if the
        service has none there.

        Raises:
            SelectionError: the panel does not have this period, or it is neither.
            MalformedAnswerError: the values, which are decoded now, break the spec.
        """
        key: Any = period
        if isinstance(period, str):
            key = Period.parse(period)
        # None would claim that the service has no observation there, which was not
        # requested.
        if key not in self.periods:
            hint = ""
            if not isinstance(key, Period):
                hint = write_hint(key)
            raise SelectionError(
                f"period must be one of the panel's, not {short_repr(period)}: it has "
                f"{spanned(self.periods) or 'none'}{hint}"
            )
        return self.values[self.periods.index(key)]

    def __str__(self) -> str:
        periods = list(compress(self.periods, self.values))
        count = counted(len(periods), f"{self._version} value".lstrip())
        head = f"{self.label} ({self.series_id}): {count}"
        if not periods:
            return printable(head)
        *_, (period, latest) = self.observations()
        span = spanned(periods)
        return printable(f"{head}, {span}; in {period} {write_value(latest)}")

    def _repr_html_(self) -> str:
        from asyncfin.html import Table, document

        rows = []
        for period, value in self.observations():
            rows.append((period.label, write_value(value), value.fill_type))
        tables = []
        if rows:
            tables.append(Table(("period", "value", "fill type"), rows))
        return document([str(self)], tables)

    def observations(self) -> Iterator[tuple[Period, Value]]:
        """Return the pairs (Period, Value) where there is a value, in the order of
        `periods`.
        """
        # In C, and pairs only where there is a value: of a sparse series most periods
        # have none, and an entity has thousands.
        values = self.values
        return zip(compress(self.periods, values), filter(None, values), strict=True)
