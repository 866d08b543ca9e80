"""What the caller wants, as a value that any catalogue can be asked for."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias

from attrs import Attribute, field, fields, frozen

from asyncfin.errors import SelectionError
from asyncfin.model import checks
from asyncfin.model.scope import ScopePath, as_paths, format_path
from asyncfin.model.series import CatalogueSeries, Series

OneOf: TypeAlias = str | Iterable[str]


def _one_of(value: OneOf | None) -> tuple[str, ...] | None:
    """Take a str as one id, a collection as "one of these" without duplicates; `_check_ids` sees the rest."""
    if value is None or isinstance(value, str):
        return None if value is None else (value,)
    given = tuple(value) if isinstance(value, Iterable) else (value,)
    return tuple(dict.fromkeys(given)) if all(isinstance(each, str) for each in given) else given


def _check_ids(_: "Select", attribute: "Attribute[Any]", value: tuple[str, ...] | None) -> None:
    for each in value or ():
        if not isinstance(each, str):
            raise SelectionError(f"{attribute.name} must be a str or a collection of str, not {each!r}")


def _paths(value: Any) -> tuple[ScopePath, ...] | None:
    return None if value is None else tuple(dict.fromkeys(as_paths(value)))


@frozen
class Wanted:
    """One series picked by hand: its triple, and its id to tell apart several of one triple."""

    metric_id: str
    reporting_group_id: str
    scopes: ScopePath
    series_id: str

    def __str__(self) -> str:
        return f"{self.series_id} ({self.metric_id}, {self.reporting_group_id}, {format_path(self.scopes)})"


@frozen(repr=False)
class Select:
    """A choice of series. Every given field narrows it; `Select()` is everything.

    A str is one id, a collection means "one of these". The same Select can be asked of any
    catalogue (`Catalogue.select`), so it survives a new publication.

    Args:
        metric_ids: metrics.
        scope_combinations: complete scope paths, or a single one: of `ScopeRef`, of pairs of str, or
            in the text form ``group=scope|group=scope``. The path of no scope is ``""``, or ``()`` within
            a collection.
        reporting_group_ids: reporting groups.
        scope_group_ids: paths that use exactly these scope groups, in whatever order.
        basis, period_meaning: words of the series.
        cadence: words of the series' reporting group.
        label: a part of the series' label, in whatever case.
        where: a predicate on a `CatalogueSeries`.
        name: what stands for `where` where the Select is written down.

    Raises:
        SelectionError: a field is an empty collection, or holds what it can't.

    >>> Select(metric_ids="Revenue", basis=["segment", "product"])
    Select(metric_ids=('Revenue',), basis=('segment', 'product'))
    """

    metric_ids: tuple[str, ...] | None = field(default=None, converter=_one_of, validator=_check_ids)
    scope_combinations: tuple[ScopePath, ...] | None = field(default=None, converter=_paths)
    reporting_group_ids: tuple[str, ...] | None = field(default=None, converter=_one_of, validator=_check_ids)
    scope_group_ids: tuple[str, ...] | None = field(default=None, converter=_one_of, validator=_check_ids)
    basis: tuple[str, ...] | None = field(default=None, converter=_one_of, validator=_check_ids)
    cadence: tuple[str, ...] | None = field(default=None, converter=_one_of, validator=_check_ids)
    period_meaning: tuple[str, ...] | None = field(default=None, converter=_one_of, validator=_check_ids)
    label: str | None = None
    where: Callable[[CatalogueSeries], bool] | None = None
    name: str | None = None
    series: tuple[Wanted, ...] | None = field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        for attribute in fields(type(self)):
            if getattr(self, attribute.name) == ():
                raise SelectionError(f"{attribute.name} must not be empty; leave it out to take every one")
        for name, text in (("label", self.label), ("name", self.name)):
            if text is not None and not isinstance(text, str):
                raise SelectionError(f"{name} must be a str, not {text!r}")
        if self.where is not None and not callable(self.where):
            raise SelectionError(f"where must be a predicate on a CatalogueSeries, not {self.where!r}")

    @classmethod
    def of(cls, series: CatalogueSeries | Series | Iterable[CatalogueSeries | Series]) -> "Select":
        """Return the Select of just these series, from a catalogue or a panel.

        Kept are each one's metric, reporting group and scope path, and its id, which decides only
        where a catalogue holds several series of one such triple.
        """
        several = tuple(series) if isinstance(series, Iterable) else (series,)
        for each in several:
            if not isinstance(each, (CatalogueSeries, Series)):
                raise SelectionError(f"series must be of a catalogue or a panel, not {each!r}")
        wanted = (Wanted(s.metric_id, s.reporting_group_id, s.scopes, s.series_id) for s in several)
        return cls(series=tuple(dict.fromkeys(wanted)))

    def __repr__(self) -> str:
        given = ((each.name, getattr(self, each.name)) for each in fields(type(self)))
        return f"Select({', '.join(f'{name}={value!r}' for name, value in given if value is not None)})"


check_select = partial(checks.instance_of(Select).of_question(), "select")
