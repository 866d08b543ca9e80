"""A dataset and its catalogue (spec 2.2, 2.3), and which of its series a Select means."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

from attrs import frozen
from msgspec import Struct

from asyncfin.errors import SelectionError
from asyncfin.model import near
from asyncfin.model.period import Period
from asyncfin.model.scope import ScopePath, format_path
from asyncfin.model.select import Select, Wanted, check_select
from asyncfin.model.series import CatalogueSeries
from asyncfin.model.words import counted, spanned

K = TypeVar("K", bound=Hashable)
Grouped: TypeAlias = dict[K, tuple[CatalogueSeries, ...]]

# How often near matches are looked for in one message: that is slow.
_EXPLAINED = 3

# The fields of a Select that name something, and what the one thing is called.
_NAMED = {
    "metric_ids": "metric",
    "reporting_group_ids": "reporting group",
    "scope_group_ids": "scope group",
    "scope_combinations": "scope path",
    "series": "series",
    "basis": "basis",
    "cadence": "cadence",
    "period_meaning": "period meaning",
}
_WORDS = ("basis", "cadence", "period_meaning")

# The fields of a Select that are compared with one field of a series.
_READ: dict[str, Callable[[CatalogueSeries], Any]] = {
    "metric_ids": attrgetter("metric_id"),
    "reporting_group_ids": attrgetter("reporting_group_id"),
    "scope_combinations": attrgetter("scopes"),
    "basis": attrgetter("basis"),
    "period_meaning": attrgetter("period_meaning"),
}
triple = attrgetter("metric_id", "reporting_group_id", "scopes")


def is_same_publication(one: str, other: str) -> bool:
    """Return whether two dataset ids are the same; UUIDs are compared without case (RFC 9562, section 4)."""
    return one.lower() == other.lower()


@frozen
class Dataset:
    """The metadata of a publication (spec 2.2). `created_timestamp` is aware, in UTC."""

    entity_id: str
    name: str
    dataset_id: str
    created_timestamp: datetime


class Scope(Struct, frozen=True, gc=False):
    """A company scope (spec 2.3). `active_start` and `active_end` are None where the service gives none."""

    scope_id: str
    name: str
    description: str
    role: str
    aliases: tuple[str, ...]
    active_start: Period | None = None
    active_end: Period | None = None


@frozen
class ScopeGroup:
    """A group of company scopes (spec 2.3)."""

    scope_group_id: str
    name: str
    description: str
    scopes: tuple[Scope, ...]


@frozen
class ReportingGroup:
    """A reporting group with its series (spec 2.3)."""

    reporting_group_id: str
    name: str
    description: str
    basis: str
    cadence: str
    series: tuple[CatalogueSeries, ...]


@frozen
class CataloguePage(Dataset):
    """One page of a catalogue (spec 4.2). `next_cursor` is None on the last one."""

    periods: tuple[Period, ...]
    scope_groups: tuple[ScopeGroup, ...]
    groups: tuple[ReportingGroup, ...]
    next_cursor: str | None = None


@frozen(repr=False)
class Catalogue(Dataset):
    """The whole catalogue of one publication (spec 2.3): all that a query can ask for.

    Iterating gives its series, in the service's order; ``len`` counts them; ``catalogue[series_id]``
    is one of them.

    Attributes:
        periods: the fiscal periods found anywhere in the dataset, oldest first. None of them is
            promised for every series.
        scope_groups: the available company scopes.
        groups: the reporting groups, each with all its series.
    """

    periods: tuple[Period, ...]
    scope_groups: tuple[ScopeGroup, ...]
    groups: tuple[ReportingGroup, ...]

    @property
    def dataset(self) -> Dataset:
        """The publication's metadata."""
        return Dataset(self.entity_id, self.name, self.dataset_id, self.created_timestamp)

    @cached_property
    def series(self) -> tuple[CatalogueSeries, ...]:
        """All series, group by group."""
        return tuple(series for group in self.groups for series in group.series)

    @cached_property
    def _by_id(self) -> dict[str, CatalogueSeries]:
        return {series.series_id: series for series in self.series}

    @cached_property
    def by_metric(self) -> Mapping[str, tuple[CatalogueSeries, ...]]:
        """The series of each metric, by metric id."""
        return _grouped(self.series, attrgetter("metric_id"))

    @cached_property
    def by_path(self) -> Mapping[ScopePath, tuple[CatalogueSeries, ...]]:
        """The series of each scope path."""
        return _grouped(self.series, attrgetter("scopes"))

    @cached_property
    def by_triple(self) -> Mapping[tuple[str, str, ScopePath], tuple[CatalogueSeries, ...]]:
        """The series of each metric, reporting group and scope path; seldom more than one."""
        return _grouped(self.series, triple)

    @cached_property
    def by_group(self) -> Mapping[str, ReportingGroup]:
        """The reporting groups, by id."""
        return {group.reporting_group_id: group for group in self.groups}

    @cached_property
    def _scope_names(self) -> dict[tuple[str, str], str]:
        return {
            (group.scope_group_id, scope.scope_id): scope.name
            for group in self.scope_groups
            for scope in group.scopes
        }

    def scope_names(self, path: ScopePath) -> tuple[str, ...]:
        """Return the names of the scopes on a path, in order; the id of an unlisted scope."""
        return tuple(self._scope_names.get((ref.scope_group_id, ref.scope_id), ref.scope_id) for ref in path)

    def __len__(self) -> int:
        return len(self.series)

    def __iter__(self) -> Iterator[CatalogueSeries]:
        return iter(self.series)

    def __contains__(self, series_id: object) -> bool:
        return series_id in self._by_id

    def __getitem__(self, series_id: str) -> CatalogueSeries:
        if (series := self._by_id.get(series_id)) is None:
            raise near.no_series(series_id, self.series)
        return series

    def select(self, select: Select) -> tuple[CatalogueSeries, ...]:
        """Return the series that a Select means here, in catalogue order; none where its predicates fit none.

        Raises:
            SelectionError: the Select names metrics, groups, paths, series or words (basis, cadence,
                period meaning) that this catalogue lacks: `lacking` has them by field, and the message
                also what comes close.
        """
        check_select(select)
        if lacking := self.lacking(select):
            raise SelectionError(self.complaint(lacking), lacking=lacking)
        series = self.series
        for fits in self._predicates(select):
            series = tuple(filter(fits, series))
        return series

    def lacking(self, select: Select) -> Mapping[str, tuple[str, ...]]:
        """Return the ids and words that a Select names and this catalogue lacks, by field; paths as text.

        A series stands there by its id, with its triple where the Select has several of that id.
        """
        lacking = {
            field: self._lacking(field, given) for field in _NAMED if (given := getattr(select, field))
        }
        return {field: ids for field, ids in lacking.items() if ids}

    def _lacking(self, field: str, given: tuple[Any, ...]) -> tuple[str, ...]:
        match field:
            case "scope_combinations":
                return tuple(map(format_path, _absent(given, self.by_path)))
            case "series":
                absent = tuple(wanted for wanted in given if triple(wanted) not in self.by_triple)
                alike = Counter(wanted.series_id for wanted in given)
                return tuple(str(each) if alike[each.series_id] > 1 else each.series_id for each in absent)
        return _absent(given, self._known(field))

    def _known(self, field: str) -> Collection[str]:
        """Return what a field of a Select can name here, paths in their text form."""
        match field:
            case "metric_ids":
                return self.by_metric.keys()
            case "reporting_group_ids":
                return self.by_group.keys()
            case "scope_group_ids":
                return {group.scope_group_id for group in self.scope_groups}
            case "scope_combinations":
                return list(map(format_path, self.by_path))
            case "cadence":
                return {group.cadence for group in self.groups}
            case "basis" | "period_meaning":
                return {getattr(series, field) for series in self.series}
        return self._by_id.keys()

    def complaint(self, lacking: Mapping[str, tuple[str, ...]]) -> str:
        """Say what is lacking here, given by field as `lacking` returns it, and what would be right."""
        (field, first), *others = (
            (field, _complaint(field, ids, self._known(field))) for field, ids in lacking.items()
        )
        rest = "".join(f"; {field}: {complaint}" for field, complaint in others)
        return f"{field}: {self.name} ({self.entity_id}) has {first}{rest}"

    def _picked(self, wanted: tuple[Wanted, ...]) -> set[str]:
        """Return the ids of series picked by hand: by triple, and by id where a triple has several."""
        picked: set[str] = set()
        for each in wanted:
            ids = {series.series_id for series in self.by_triple[triple(each)]}
            if len(ids) > 1 and each.series_id not in ids:
                raise SelectionError(
                    f"series {each.series_id!r} is one of several of its metric, group and path, and"
                    f" this catalogue names them {', '.join(sorted(ids))}: pick again"
                )
            picked |= ids if len(ids) == 1 else {each.series_id}
        return picked

    def _predicates(self, select: Select) -> Iterator[Callable[[CatalogueSeries], object]]:
        """Yield what a series must pass, a predicate for each given field; `where` comes last."""
        if select.series is not None:
            yield partial(_among, attrgetter("series_id"), self._picked(select.series))
        for field, read in _READ.items():
            if (allowed := getattr(select, field)) is not None:
                yield partial(_among, read, allowed)
        if (cadence := select.cadence) is not None:
            yield lambda series: self.by_group[series.reporting_group_id].cadence in cadence
        if select.scope_group_ids is not None:
            group_ids = set(select.scope_group_ids)
            yield lambda series: {ref.scope_group_id for ref in series.scopes} == group_ids
        if select.label is not None:
            label = select.label.casefold()
            yield lambda series: label in series.label.casefold()
        if select.where is not None:
            yield select.where

    def __str__(self) -> str:
        metrics = counted(len(self.by_metric), "metric")
        paths = counted(len(self.by_path), "scope path")
        groups = counted(len(self.groups), "reporting group")
        periods = f"{counted(len(self.periods), 'period')}: {spanned(self.periods)}"
        lines = [
            f"{self.name} ({self.entity_id})",
            f"publication {self.dataset_id} of {self.created_timestamp:%Y-%m-%d %H:%M %Z}",
            f"{len(self.series):,} series: {metrics}, {paths}, {groups}",
            periods if self.periods else "no periods",
        ]
        return "\n".join(
            lines + [f"  {group.reporting_group_id}: {len(group.series):,} series" for group in self.groups]
        )

    def __repr__(self) -> str:
        # asyncio.run writes the result's repr, and throws it away: nothing is gathered here.
        series = sum(len(group.series) for group in self.groups)
        periods = counted(len(self.periods), "period")
        return f"<Catalogue of {self.name} ({self.entity_id}): {series:,} series, {periods}>"

    def _repr_html_(self) -> str:
        from html import escape

        head = "<br>".join(map(escape, str(self).split("\n")[:4]))
        rows = "".join(
            f"<tr><td>{escape(group.reporting_group_id)}</td><td>{escape(group.name)}</td>"
            f"<td>{escape(group.basis)}</td><td>{escape(group.cadence)}</td><td>{len(group.series)}</td></tr>"
            for group in self.groups
        )
        titles = "".join(f"<th>{title}</th>" for title in ("group", "name", "basis", "cadence", "series"))
        return f"<p>{head}</p><table><thead><tr>{titles}</tr></thead><tbody>{rows}</tbody></table>"


def _grouped(series: Iterable[CatalogueSeries], key: Callable[[CatalogueSeries], K]) -> Grouped[K]:
    """Return the series under each key, both in order of appearance."""
    grouped: dict[K, list[CatalogueSeries]] = {}
    for each in series:
        grouped.setdefault(key(each), []).append(each)
    return {name: tuple(members) for name, members in grouped.items()}


def _among(read: Callable[[CatalogueSeries], K], allowed: Collection[K], series: CatalogueSeries) -> bool:
    return read(series) in allowed


def _absent(asked: Iterable[K] | None, known: Collection[K]) -> tuple[K, ...]:
    return tuple(each for each in asked or () if each not in known)


def _complaint(field: str, ids: tuple[str, ...], known: Collection[str]) -> str:
    """Say which names of a field are unknown, and what would be right."""
    if field in _WORDS:
        named, rest = list(map(repr, ids)), near.all_of(known)
    else:
        named, rest = [near.quoted(each, known) for each in ids[:_EXPLAINED]], ""
        named += map(repr, ids[_EXPLAINED:])
    return f"no {_NAMED[field]} {', '.join(named)}{rest}"
