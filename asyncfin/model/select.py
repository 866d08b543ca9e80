"""The choice of series, as a value that applies to any catalogue."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import Attribute, evolve, field, fields, frozen

from asyncfin import checks
from asyncfin.errors import SelectionError
from asyncfin.model.scope import (
    AnyPaths,
    ScopePath,
    ScopeRef,
    as_paths,
    format_path,
    parse_path,
)
from asyncfin.model.series import CatalogueSeries, Series
from asyncfin.words import listed

if TYPE_CHECKING:
    from cattrs import Converter

OneOf: TypeAlias = str | Iterable[str]
Ids: TypeAlias = tuple[str, ...] | None


def _one_of(value: OneOf | None) -> tuple[str, ...] | None:
    """Read a str as one id, a collection as distinct ids; `_check_ids` refuses the
    rest.
    """
    if value is None or isinstance(value, str):
        return None if value is None else (value,)
    given = tuple(value) if isinstance(value, Iterable) else (value,)
    # Others than str may not be hashable; `_check_ids` names them.
    return (
        tuple(dict.fromkeys(given))
        if all(isinstance(each, str) for each in given)
        else given
    )


def _paths(value: AnyPaths | None) -> tuple[ScopePath, ...] | None:
    if isinstance(value, str) and value and "=" not in value:
        raise SelectionError(
            "scope_combinations must be scope paths such as 'segment=cloud', not "
            f"{checks.short_repr(value)};"
            " several metrics are one collection: Select([first, second])"
        )
    return None if value is None else tuple(dict.fromkeys(as_paths(value)))


def _check_ids(
    _: object,
    attribute: Attribute[tuple[str, ...] | None],
    value: Iterable[object] | None,
) -> None:
    for each in value or ():
        if not isinstance(each, str):
            raise SelectionError(
                f"{attribute.name} must be a str or a collection of str, not "
                f"{checks.short_repr(each)}"
            )


_text_or_none = checks.instance_of(str).optional().as_selection_error().field


@frozen
class Wanted:
    """One series picked by hand: its triple, and its id, which decides between several
    of one triple.

    Without an id, the triple must have a single series.
    """

    metric_id: str
    reporting_group_id: str
    scopes: ScopePath
    series_id: str | None

    def __str__(self) -> str:
        triple = (
            f"({self.metric_id}, {self.reporting_group_id}, {format_path(self.scopes)})"
        )
        return triple if self.series_id is None else f"{self.series_id} {triple}"


@frozen(repr=False)
class Select:
    """A choice of series. Every given field narrows it; `Select()` is everything.

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
            keep a choice longer.
        where: a function that takes a `CatalogueSeries` and returns whether to include
            it.
        name: represents `where` where the Select is written down.

    Raises:
        SelectionError: a field is an empty collection, or contains a value of the wrong
            type.

    >>> Select(metric_ids="Revenue", basis=["segment", "product"])
    Select(metric_ids=('Revenue',), basis=('segment', 'product'))
    """

    # `asyncfin.model.judge.CRITERIA` defines what a field means in a catalogue.
    metric_ids: Ids = field(default=None, converter=_one_of, validator=_check_ids)
    scope_combinations: tuple[ScopePath, ...] | None = field(
        default=None, converter=_paths
    )
    reporting_group_ids: Ids = field(
        default=None, converter=_one_of, validator=_check_ids
    )
    scope_group_ids: Ids = field(default=None, converter=_one_of, validator=_check_ids)
    basis: Ids = field(default=None, converter=_one_of, validator=_check_ids)
    cadence: Ids = field(default=None, converter=_one_of, validator=_check_ids)
    period_meaning: Ids = field(default=None, converter=_one_of, validator=_check_ids)
    label: str | None = field(default=None, validator=_text_or_none)
    series_ids: Ids = field(default=None, converter=_one_of, validator=_check_ids)
    where: Callable[[CatalogueSeries], bool] | None = None
    name: str | None = field(default=None, validator=_text_or_none)
    _picked: tuple[Wanted, ...] | None = field(
        default=None, kw_only=True, alias="_picked"
    )

    def __attrs_post_init__(self) -> None:
        for attribute in fields(type(self)):
            # An empty choice is mostly a filter that found nothing; read as "no choice"
            # it would request everything.
            if getattr(self, attribute.name) == ():
                # As `of` and the written form call it.
                picked = attribute.name == "_picked"
                name, hint = (
                    ("series", "write Select()")
                    if picked
                    else (attribute.name, "leave it out")
                )
                raise SelectionError(
                    f"{name} must not be empty; {hint} to take every one"
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
        decides only where a catalogue has several series of one such triple.
        """
        several = (series,) if isinstance(series, (CatalogueSeries, Series)) else series
        if not isinstance(several, Iterable):
            raise SelectionError(
                "series must be of a catalogue or a panel, not "
                f"{checks.short_repr(series)}"
            )
        wanted: dict[Wanted, None] = {}
        for each in several:
            if not isinstance(each, (CatalogueSeries, Series)):
                raise SelectionError(
                    "series must be of a catalogue or a panel, not "
                    f"{checks.short_repr(each)}"
                )
            # A dict for its order: the same choice is the same Select.
            wanted[
                Wanted(
                    each.metric_id, each.reporting_group_id, each.scopes, each.series_id
                )
            ] = None
        return cls(_picked=tuple(wanted))

    @property
    def picked(self) -> tuple[Wanted, ...] | None:
        """The series given to `Select.of`: the triple and the id of each. None: none
        were given.
        """
        return self._picked

    def to_json(self) -> str:
        """Return the Select as JSON: an object of the given fields, paths in their text
        form.

        `from_json` reads it. A `where` is written as its `name`, and cannot be read.

        Raises:
            SelectionError: there is a `where` and no `name`.
        """
        written: dict[str, Any] = _converter().unstructure(self)
        if self.where is not None:
            if not self.name:
                raise SelectionError(
                    "a Select with `where` needs a `name` to be written down by"
                )
            written["where"] = written.pop("name")
        return json.dumps(written, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Select:
        """Return the Select that `to_json` wrote.

        The rows of ``series`` are metric, reporting group, scope path (in its text
        form) and series id; the id may be left out. A row that then matches several
        series is refused when it is selected.

        Raises:
            SelectionError: the text is not such JSON, or its Select had a `where`.
        """
        from cattrs.errors import ForbiddenExtraKeysError

        written = _read_object(text)
        if "where" in written:
            name = checks.short_repr(written["where"])
            raise SelectionError(
                f"where must be a predicate; a written Select has only its name, {name}"
            )
        try:
            return _converter().structure(written, cls)
        except ForbiddenExtraKeysError as error:
            unknown = listed(sorted(map(checks.short_repr, error.extra_fields)))
        raise SelectionError(f"a Select has no field {unknown}")

    def __repr__(self) -> str:
        # The constructor has no public argument for picked series.
        if self._picked is not None and self.where is None:
            return f"Select.from_json({self.to_json()!r})"
        given = ((each.name, getattr(self, each.name)) for each in fields(type(self)))
        return f"Select({', '.join(f'{name}={_shown(value)}' for name, value in given if value is not None)})"


def _shown(value: Any) -> str:
    """Return a field as it can be typed: paths in their text form."""
    match value:
        case (((ScopeRef(), *_) | ()), *_):
            paths = tuple(format_path(path) for path in value)
            return repr(paths[0] if len(paths) == 1 else paths)
    return repr(value)


def _read_object(text: str | bytes) -> dict[str, Any]:
    try:
        written = json.loads(text, object_pairs_hook=_distinct)
    # From `_distinct`; it is a ValueError too.
    except SelectionError:
        raise
    except (ValueError, TypeError, RecursionError) as error:
        raise SelectionError(
            f"a Select must be written as JSON, not {checks.short_repr(text)}: {error}"
        ) from None
    if not isinstance(written, dict):
        raise SelectionError(
            f"a Select must be written as a JSON object, not {checks.short_repr(text)}"
        )
    return written


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SelectionError(f"a Select has each field once: {twice!r} is there twice")
    return dict(pairs)


@cache
def _converter() -> Converter:
    """Return a converter that writes only the given fields, and reads with the checks
    of Select.
    """
    from cattrs import Converter  # slow to import, and rarely needed
    from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override

    converter = Converter(detailed_validation=False)
    converter.register_unstructure_hook(
        Select,
        make_dict_unstructure_fn(
            Select,
            converter,
            _cattrs_omit_if_default=True,
            where=override(omit=True),
            scope_combinations=override(
                unstruct_hook=lambda paths: [*map(format_path, paths)]
            ),
            _picked=override(
                rename="series",
                unstruct_hook=lambda picked: [
                    [s.metric_id, s.reporting_group_id, format_path(s.scopes)]
                    + ([] if s.series_id is None else [s.series_id])
                    for s in picked
                ],
            ),
        ),
    )
    converter.register_structure_hook(
        Select,
        make_dict_structure_fn(
            Select,
            converter,
            _cattrs_forbid_extra_keys=True,
            _cattrs_prefer_attrib_converters=True,
            where=override(omit=True),
            # Unconverted: the checks of Select are stricter than a conversion to str.
            label=override(struct_hook=lambda value, _: value),
            name=override(struct_hook=lambda value, _: value),
            _picked=override(rename="series", struct_hook=_wanted),
        ),
    )
    return converter


def _wanted(rows: Any, _: object) -> tuple[Wanted, ...] | None:
    if rows is None:
        return None
    if not isinstance(rows, list) or not all(
        isinstance(row, list)
        and len(row) in (3, 4)
        and all(isinstance(each, str) for each in row)
        for row in rows
    ):
        raise SelectionError(
            "series must be rows of metric, reporting group and scope path, with or "
            "without a series id,"
            f" not {checks.short_repr(rows)}"
        )
    return tuple(
        Wanted(metric, group, parse_path(path), *(series_id or [None]))
        for metric, group, path, *series_id in rows
    )


def _select_hint(value: object) -> str:
    """Return ``; write Select('Revenue')`` for what is probably a metric id, or
    several, or is the class.
    """
    if value is Select:
        return "; write Select()"
    if isinstance(value, str):
        return f"; write Select({checks.short_repr(value)})"
    return (
        "; write Select(metric_ids)"
        if isinstance(value, (list, tuple, set, frozenset))
        else ""
    )


check_select = partial(
    evolve(checks.instance_of(Select).as_selection_error(), hint=_select_hint), "select"
)
