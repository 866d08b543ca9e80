"""A dataset and its catalogue (spec 2.2, 2.3)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import frozen
from msgspec import Struct

from asyncfin import checks
from asyncfin.errors import printable
from asyncfin.model.frame import Tabular
from asyncfin.model.judge import Missing, explain, judge
from asyncfin.model.period import Period
from asyncfin.model.scope import ScopePath, ScopeRef
from asyncfin.model.select import Select, check_select
from asyncfin.model.selection import (
    PeriodSelection,
    Resolved,
    nothing_selected,
    resolve,
)
from asyncfin.model.series import CatalogueSeries, no_series, triple
from asyncfin.words import counted, named_entity, spanned

if TYPE_CHECKING:
    from asyncfin.model.matches import SearchResult
    from asyncfin.model.search import Entry

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def publication_id(dataset_id: str) -> str:
    """Return the key of a publication: its dataset id, in lower case (RFC 9562,
    section 4).
    """
    return dataset_id.lower()


def is_same_publication(first: str | None, second: str) -> bool:
    """Return whether two dataset ids name one publication."""
    return first is not None and publication_id(first) == publication_id(second)


@frozen
class Dataset:
    """The metadata of a publication (spec 2.2).

    Attributes:
        entity_id: the entity, usually ``O-`` and 32 characters.
        name: its name.
        dataset_id: the publication, a UUID.
        created_timestamp: when it was published, an aware datetime in UTC.
    """

    entity_id: str
    name: str
    dataset_id: str
    created_timestamp: datetime


# gc=False: texts and periods cannot form a cycle, and a catalogue has thousands of
# scopes.
class Scope(Struct, frozen=True, gc=False):
    """A company scope (spec 2.3).

    Attributes:
        scope_id: its id within the scope group.
        name: its name.
        description: what it is.
        role: its role; an open set of words.
        aliases: its other names.
        active_start: the first period in which it is active, of duration 0, or None if
            the service does not state it.
        active_end: the last one, likewise.
    """

    scope_id: str
    name: str = ""
    description: str = ""
    role: str = ""
    aliases: tuple[str, ...] = ()
    active_start: Period | None = None
    active_end: Period | None = None


@frozen(kw_only=True)
class ScopeGroup:
    """A group of company scopes (spec 2.3), such as the segments.

    Attributes:
        scope_group_id: its id.
        name: its name.
        description: what it is.
        scopes: the scopes, in the service's order.
    """

    scope_group_id: str
    name: str = ""
    description: str = ""
    scopes: tuple[Scope, ...]


@frozen(kw_only=True)
class ReportingGroup:
    """A reporting group with its series (spec 2.3).

    Attributes:
        reporting_group_id: its id.
        name: its name.
        description: what it is.
        basis: its reporting basis; an open set of words.
        cadence: how often it is reported; an open set of words.
        series: its series: in a `Catalogue` all of them, in a `CataloguePage` those of
            that page.
    """

    reporting_group_id: str
    name: str = ""
    description: str = ""
    basis: str = ""
    cadence: str = ""
    series: tuple[CatalogueSeries, ...]


@frozen
class CataloguePage(Dataset):
    """One page of a catalogue (spec 4.2): a `Dataset` with some of its series.

    Attributes:
        periods: the fiscal periods found anywhere in the dataset, in the service's
            order.
        scope_groups: the available company scopes.
        groups: the reporting groups of this page, each with those of its series that
            are on it.
        next_cursor: the cursor of the next page; None on the last one.
    """

    periods: tuple[Period, ...]
    scope_groups: tuple[ScopeGroup, ...]
    groups: tuple[ReportingGroup, ...]
    next_cursor: str | None = None


# Not slotted, for the cached properties (see `Series`); a pickle has the fields only.
@frozen(repr=False, slots=False, getstate_setstate=True)
class Catalogue(Dataset, Tabular):
    """The whole catalogue of one publication (spec 2.3): a `Dataset` with all that a
    query can select.

    Iterating gives its series, in the service's order; ``len`` counts them;
    ``catalogue[series_id]`` is one of them. polars and DuckDB read it as the table of
    `to_arrow`.

    Attributes:
        periods: the fiscal periods found anywhere in the dataset, oldest first. None of
            them is promised for every series.
        scope_groups: the available company scopes.
        groups: the reporting groups, each with all its series.

    A text that the service does not send is ``""``. Where pages state different ones,
    the first page counts.
    """

    periods: tuple[Period, ...]
    scope_groups: tuple[ScopeGroup, ...]
    groups: tuple[ReportingGroup, ...]

    @property
    def dataset(self) -> Dataset:
        """The publication's metadata."""
        return Dataset(
            self.entity_id, self.name, self.dataset_id, self.created_timestamp
        )

    @cached_property
    def series(self) -> tuple[CatalogueSeries, ...]:
        """All series, group by group."""
        series: list[CatalogueSeries] = []
        for group in self.groups:
            series += group.series
        return tuple(series)

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The index in `series` of each series, by its id."""
        return {series.series_id: place for place, series in enumerate(self.series)}

    @cached_property
    def by_metric(self) -> Mapping[str, tuple[CatalogueSeries, ...]]:
        """The series of each metric, by metric id."""
        return _group_by(self.series, attrgetter("metric_id"))

    @cached_property
    def by_path(self) -> Mapping[ScopePath, tuple[CatalogueSeries, ...]]:
        """The series of each scope path."""
        return _group_by(self.series, attrgetter("scopes"))

    @cached_property
    def by_triple(
        self,
    ) -> Mapping[tuple[str, str, ScopePath], tuple[CatalogueSeries, ...]]:
        """The series of each metric, reporting group and scope path; rarely more than
        one.
        """
        return _group_by(self.series, triple)

    @cached_property
    def by_group(self) -> Mapping[str, ReportingGroup]:
        """The reporting groups, by id."""
        return {group.reporting_group_id: group for group in self.groups}

    @cached_property
    def _scopes(self) -> dict[ScopeRef, Scope]:
        scopes: dict[ScopeRef, Scope] = {}
        for group in self.scope_groups:
            for scope in group.scopes:
                ref = ScopeRef(group.scope_group_id, scope.scope_id)
                scopes[ref] = scope
        return scopes

    def scope_names(self, path: ScopePath) -> tuple[str, ...]:
        """Return the names of the scopes on a path, in order; the id of an unlisted
        scope.
        """
        names = []
        for ref in path:
            scope = self._scopes.get(ref)
            names.append(ref.scope_id if scope is None else scope.name)
        return tuple(names)

    def listed_scopes(self, path: ScopePath) -> list[Scope]:
        """Return the scopes on a path, in order, without unlisted ones."""
        return [self._scopes[ref] for ref in path if ref in self._scopes]

    def __len__(self) -> int:
        return len(self.series)

    def __iter__(self) -> Iterator[CatalogueSeries]:
        return iter(self.series)

    def __contains__(self, series_id: object) -> bool:
        return series_id in self.places

    def __getitem__(self, series_id: str) -> CatalogueSeries:
        # A list has no hash, so that it can't be looked up.
        if not isinstance(series_id, str) or series_id not in self.places:
            raise no_series(series_id, self.series)
        return self.series[self.places[series_id]]

    @cached_property
    def _search_entries(self) -> list[Entry]:
        """The series with the words that find them, for `search`."""
        from asyncfin.model.search import read_entries  # reads the synonyms

        return read_entries(self)

    def search(
        self, text: str, *, last_periods: Mapping[str, Period] | None = None
    ) -> SearchResult:
        """Return the series that the words of a text mean, best first; without words
        all.

        Case, punctuation and the plural do not matter, and "DilutedEPS" is two words.
        First come the series whose label, metric or scope the words are, or whose id
        the text is, and those of the same meaning ("sales": Revenue). Then those that
        have all words in label, metric and names of scopes, and those of which a word
        is a beginning, an alias or a synonym. Words of the entity's name, the cadence,
        the basis and the reporting group restrict. Descriptions count only if there are
        no such series. If no series has all words, those are returned that come close,
        and `close` of the result is True. Series of the whole entity come before parts.
        No request.

        Args:
            text: the words.
            last_periods: the last period with a value, by series id. Series that end a
                year before most others come after them, and the result shows since
                when.

        Raises:
            ArgumentError: `text` is not a str.
        """
        from asyncfin.model.matches import SearchResult
        from asyncfin.model.search import search

        checks.instance_of(str)("text", text)
        matches = search(self, text, last_periods or {})
        return SearchResult(matches, self)

    def select(
        self, select: Select, *, allow_missing: bool = False
    ) -> tuple[CatalogueSeries, ...]:
        """Return the series that a Select means here, in catalogue order; none only of
        an empty catalogue.

        Args:
            select: the choice.
            allow_missing: whether to ignore what the catalogue does not have. Then the
                result may be empty.

        Raises:
            SelectionError: this catalogue has nothing of the Select, or not all of it.
                `missing` of the error is what `missing` returns. The message names
                close matches, or the condition that no series meets.
        """
        check_select(select)
        judgement = judge(self, select)
        if judgement.missing and not allow_missing:
            raise judgement.error()
        return judgement.series

    def missing(self, select: Select) -> Missing:
        """Return the names of a Select that this catalogue does not have, by field;
        empty if it has all.

        Ids and words are listed under their fields, paths in their text form. A series
        picked by `Select.of` is listed by its id, with its triple where the Select has
        several of that id. If no series meets all conditions with what exists of them,
        a further entry is the condition that no series meets (``label``: its text,
        ``where``: the `name` of the Select), or ``select``: the conditions that no
        series meets together.
        """
        check_select(select)
        return judge(self, select).missing

    def explain(self, missing: Missing, subject: str = "") -> str:
        """Return a sentence about missing names, with close matches. It is empty if no
        name is missing.

        Args:
            missing: names by field, as `missing` and `SelectionError.missing` have
                them.
            subject: who does not have them, such as "no entity". "": this entity.
        """
        if not missing:
            return ""
        return explain(self, missing, subject)

    def resolve(self, periods: PeriodSelection) -> Resolved:
        """Return the periods to request: rules and open ends resolved against the
        catalogue's periods.

        Raises:
            SelectionError: this catalogue has none of the periods.
        """
        selection = resolve(periods, self.periods)
        if selection is not None:
            return selection
        labels = str(periods).removeprefix("exactly ")
        has = f"periods: {named_entity(self)} has none of these: {labels}; it has"
        raise nothing_selected(has, self.periods, periods)

    def __str__(self) -> str:
        metrics = counted(len(self.by_metric), "metric")
        paths = counted(len(self.by_path), "scope path")
        groups = counted(len(self.groups), "reporting group")
        periods = "no periods"
        if self.periods:
            periods = f"{counted(len(self.periods), 'period')}: {spanned(self.periods)}"
        lines = [
            named_entity(self),
            f"publication {self.dataset_id} of "
            f"{self.created_timestamp:%Y-%m-%d %H:%M %Z}",
            f"{len(self.series):,} series: {metrics}, {paths}, {groups}",
            periods,
        ]
        for group in self.groups:
            lines.append(f"  {group.reporting_group_id}: {len(group.series):,} series")
        return "\n".join(map(printable, lines))

    def __repr__(self) -> str:
        # asyncio.run builds the result's repr and discards it, so the cached properties
        # are not used here.
        series_count = 0
        for group in self.groups:
            series_count += len(group.series)
        periods = counted(len(self.periods), "period")
        entity = named_entity(self)
        return f"<Catalogue of {entity}: {series_count:,} series, {periods}>"

    def _repr_html_(self) -> str:
        from asyncfin.html import document

        return document(str(self).split("\n"), ())


def join_pages(dataset: Dataset, pages: Sequence[CataloguePage]) -> Catalogue:
    """Return the catalogue of all its pages, in their order.

    A page may list all scopes of a group, some, or none, and the series of a reporting
    group may be on many pages (spec 4.2 rule 1). What pages state differently is taken
    from the first one that states it.
    """
    periods: set[Period] = set()
    scope_group_parts: list[ScopeGroup] = []
    group_parts: list[ReportingGroup] = []
    for page in pages:
        periods.update(page.periods)
        group_parts += page.groups
        # Most pages repeat the scope groups: the same bytes are the same object.
        if page is pages[0] or page.scope_groups is not pages[0].scope_groups:
            scope_group_parts += page.scope_groups
    scope_groups = []
    parts_by_id = _group_by(scope_group_parts, attrgetter("scope_group_id"))
    for parts in parts_by_id.values():
        all_scopes = chain.from_iterable(map(attrgetter("scopes"), parts))
        scopes_by_id = _group_by(all_scopes, attrgetter("scope_id"))
        scopes = []
        for duplicates in scopes_by_id.values():
            scopes.append(_merge_parts(duplicates, Scope.__struct_fields__))
        scope_group = _merge_parts(parts, _SCOPE_GROUP_FIELDS, scopes=tuple(scopes))
        scope_groups.append(scope_group)
    groups = []
    members_by_id = _group_by(group_parts, attrgetter("reporting_group_id"))
    for members in members_by_id.values():
        series = chain.from_iterable(map(attrgetter("series"), members))
        group = _merge_parts(members, _GROUP_FIELDS, series=tuple(series))
        groups.append(group)
    return Catalogue(
        dataset.entity_id,
        dataset.name or pages[0].name,
        dataset.dataset_id,
        dataset.created_timestamp,
        tuple(sorted(periods)),
        tuple(scope_groups),
        tuple(groups),
    )


_SCOPE_GROUP_FIELDS = ("scope_group_id", "name", "description")
_GROUP_FIELDS = ("reporting_group_id", "name", "description", "basis", "cadence")


def _merge_parts(parts: Sequence[Any], names: Iterable[str], **fields: Any) -> Any:
    """Return a thing from its parts: each field as the first part that states it has
    it.
    """
    if len(parts) == 1 and not fields:
        return parts[0]
    for name in names:
        values = filter(None, map(attrgetter(name), parts))
        fields[name] = next(values, getattr(parts[0], name))
    return type(parts[0])(**fields)


def _group_by(things: Iterable[T], key: Callable[[T], K]) -> dict[K, tuple[T, ...]]:
    """Return the things under each key, both in order of appearance."""
    groups: dict[K, list[T]] = {}
    for thing in things:
        group = groups.setdefault(key(thing), [])
        group.append(thing)
    return {name: tuple(group) for name, group in groups.items()}
