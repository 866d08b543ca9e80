"""The choice of series, as a value that applies to any catalogue."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from attrs import asdict, field, fields_dict, frozen

from asyncfin import checks
from asyncfin.errors import SelectionError
from asyncfin.model.scope import (
    AnyPaths,
    ScopePath,
    as_paths,
    format_path,
    parse_path,
)
from asyncfin.model.series import CatalogueSeries, Series, triple
from asyncfin.words import listed

OneOf: TypeAlias = str | Iterable[str]
Ids: TypeAlias = tuple[str, ...] | None


def _read_ids(value: OneOf | None) -> Ids:
    """Read a str as one id, a collection as distinct ids; the class rejects others."""
    if value is None:
        return None
    if isinstance(value, str) or not isinstance(value, Iterable):
        return (value,)
    ids = tuple(value)
    try:
        return tuple(dict.fromkeys(ids))
    except TypeError:  # something else than a str, which has no hash
        return ids


def _read_paths(value: AnyPaths | None) -> tuple[ScopePath, ...] | None:
    if isinstance(value, str) and value and "=" not in value:
        raise SelectionError(
            "scope_combinations must be scope paths such as 'segment=cloud', not "
            f"{checks.short_repr(value)};"
            " several metrics are one collection: Select([first, second])"
        )
    if value is None:
        return None
    return tuple(dict.fromkeys(as_paths(value)))


# The fields whose values are no ids; their converters check them.
_OBJECTS = ("scope_combinations", "picked")
_text_or_none = checks.instance_of(str).optional().as_selection_error().field


@frozen
class Wanted:
    """One series picked by hand: its triple, and its id, which decides between
    series of one triple.

    Without an id, the triple must have a single series.
    """

    metric_id: str
    reporting_group_id: str
    scopes: ScopePath
    series_id: str | None

    def __str__(self) -> str:
        path = format_path(self.scopes)
        triple = f"({self.metric_id}, {self.reporting_group_id}, {path})"
        if self.series_id is None:
            return triple
        return f"{self.series_id} {triple}"


@frozen(repr=False)
class Select:
    """A choice of series. Each argument narrows it; `Select()` is everything.

    A str is one id, a collection means "one of these". The same Select applies to any
    catalogue (`Catalogue.select`), so it survives a new publication.

    Args:
        metric_ids: metric ids.
        scope_combinations: complete scope paths, or a single one: of `ScopeRef`, of
            pairs of str, or in the text form ``group=scope|group=scope``. The path
            without scopes is ``""``, or ``()`` within a collection.
        reporting_group_ids: reporting group ids.
        scope_group_ids: paths that use exactly these scope groups, in any order.
        basis: bases of the series, such as ``"segment"``.
        cadence: cadences of the series' reporting group, such as ``"annual"``.
        period_meaning: period meanings of the series.
        label: a substring of the series' label, compared without case.
        series_ids: series ids. They are those of one publication; use `Select.of` to
            store a choice longer.
        where: a function that takes a `CatalogueSeries` and returns whether to include
            it.
        name: represents `where` where the Select is written down.

    Raises:
        SelectionError: a field is an empty collection, or contains a value of the wrong
            type.

    >>> Select(metric_ids="Revenue", basis=["segment", "product"])
    Select(metric_ids=('Revenue',), basis=('segment', 'product'))
    """

    # `asyncfin.model.judge` defines what a field means in a catalogue.
    metric_ids: Ids = field(default=None, converter=_read_ids)
    scope_combinations: tuple[ScopePath, ...] | None = field(
        default=None, converter=_read_paths
    )
    reporting_group_ids: Ids = field(default=None, converter=_read_ids)
    scope_group_ids: Ids = field(default=None, converter=_read_ids)
    basis: Ids = field(default=None, converter=_read_ids)
    cadence: Ids = field(default=None, converter=_read_ids)
    period_meaning: Ids = field(default=None, converter=_read_ids)
    label: str | None = field(default=None, validator=_text_or_none)
    series_ids: Ids = field(default=None, converter=_read_ids)
    where: Callable[[CatalogueSeries], bool] | None = None
    name: str | None = field(default=None, validator=_text_or_none)
    # The series of `Select.of`: the triple and the id of each.
    picked: tuple[Wanted, ...] | None = field(
        default=None, kw_only=True, alias="_picked"
    )

    def __attrs_post_init__(self) -> None:
        for name, value in asdict(self, recurse=False).items():
            # An empty choice is mostly a filter that found nothing; read as "no choice"
            # it would request everything.
            if value == ():
                if name == "picked":
                    name = "series"  # as `of` and the JSON call it
                raise SelectionError(
                    f"{name} must not be empty; leave it out to take every one"
                )
            if not isinstance(value, tuple) or name in _OBJECTS:
                continue
            for entry in value:
                if not isinstance(entry, str):
                    raise SelectionError(
                        f"{name} must be a str or a collection of str, not "
                        f"{checks.short_repr(entry)}"
                    )
        if self.where is not None and not callable(self.where):
            raise SelectionError(
                f"where must be a predicate on a CatalogueSeries, not {self.where!r}"
            )

    @classmethod
    def of(
        cls, series: CatalogueSeries | Series | Iterable[CatalogueSeries | Series]
    ) -> Select:
        """Return the Select of just these series, from a catalogue or a panel.

        Kept are each one's metric, reporting group and scope path, and its id, which
        decides only where a catalogue has more than one series of a triple.
        """
        entries: Any = series
        if not isinstance(series, Iterable):
            entries = [series]
        rows: dict[Wanted, None] = {}  # in order: the same choice is the same Select
        for entry in entries:
            if not isinstance(entry, (CatalogueSeries, Series)):
                raise SelectionError(
                    "series must be of a catalogue or a panel, not "
                    f"{checks.short_repr(entry)}"
                )
            rows[Wanted(*triple(entry), entry.series_id)] = None
        return cls(_picked=tuple(rows))

    def to_json(self) -> str:
        """Return the Select as JSON: its fields that are not None, paths in their text
        form.

        `from_json` reads it. A `where` is written as its `name`, and cannot be read.

        Raises:
            SelectionError: there is a `where` and no `name`.
        """
        fields = self._list_fields()
        if self.where is not None:
            if not self.name:
                raise SelectionError(
                    "a Select with `where` needs a `name` to be written down by"
                )
            fields["where"] = fields.pop("name")
        if self.picked is not None:
            del fields["picked"]
            rows: list[list[str]] = []
            for row in self.picked:
                path = format_path(row.scopes)
                rows.append([row.metric_id, row.reporting_group_id, path])
                if row.series_id is not None:
                    rows[-1].append(row.series_id)
            fields["series"] = rows
        return json.dumps(fields, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Select:
        """Return the Select that `to_json` wrote.

        The rows of ``series`` are metric, reporting group, scope path (in its text
        form) and series id; the id may be left out. A row that then matches more
        than one series is rejected when it is selected.

        Raises:
            SelectionError: the text is not such JSON, or its Select had a `where`.
        """
        try:
            arguments = json.loads(text)
        except (ValueError, TypeError, RecursionError) as error:
            raise SelectionError(
                f"a Select must be written as JSON, not {checks.short_repr(text)}: "
                f"{error}"
            ) from None
        if not isinstance(arguments, dict):
            raise SelectionError(
                f"a Select must be written as a JSON object, not "
                f"{checks.short_repr(text)}"
            )
        if "where" in arguments:
            name = checks.short_repr(arguments["where"])
            raise SelectionError(
                f"where must be a predicate; a written Select has only its name, {name}"
            )
        rows = _read_rows(arguments.pop("series", None))
        names = fields_dict(cls).keys() - {"picked"}
        if unknown_names := sorted(map(checks.short_repr, arguments.keys() - names)):
            raise SelectionError(f"a Select has no field {listed(unknown_names)}")
        return cls(**arguments, _picked=rows)

    def _list_fields(self) -> dict[str, Any]:
        """Return the fields that are not None, with paths in their text form."""
        values = asdict(self, recurse=False)
        if self.scope_combinations is not None:
            paths = map(format_path, self.scope_combinations)
            values["scope_combinations"] = tuple(paths)
        return {name: value for name, value in values.items() if value is not None}

    def __repr__(self) -> str:
        # The constructor has no public argument for picked series.
        if self.picked is not None and self.where is None:
            return f"Select.from_json({self.to_json()!r})"
        arguments = []
        for name, value in self._list_fields().items():
            arguments.append(f"{name}={value!r}")
        return f"Select({', '.join(arguments)})"


def _read_rows(rows: Any) -> tuple[Wanted, ...] | None:
    """Read the picked series of a written Select."""
    if rows is None:
        return None
    entries = rows if isinstance(rows, list) else [rows]
    wanted_rows = []
    for entry in entries:
        is_row = isinstance(entry, list) and len(entry) in (3, 4)
        if not is_row or not all(isinstance(text, str) for text in entry):
            raise SelectionError(
                "series must be rows of metric, reporting group and scope path, with "
                f"or without a series id, not {checks.short_repr(rows)}"
            )
        metric_id, group_id, path, *ids = entry
        series_id = ids[0] if ids else None
        wanted_rows.append(Wanted(metric_id, group_id, parse_path(path), series_id))
    return tuple(wanted_rows)


def check_select(select: object) -> None:
    """Reject what is not a Select; the error shows what to write in place of metric
    ids, or of the class.
    """
    if isinstance(select, Select):
        return
    hint = ""
    if select is Select:
        hint = "; write Select()"
    elif isinstance(select, (str, list, tuple, set, frozenset)) and all(
        isinstance(entry, str) for entry in select
    ):
        hint = f"; write Select({checks.short_repr(select)})"
    raise SelectionError(
        f"select must be a Select, not {checks.short_repr(select)}{hint}"
    )
