"""A dataset and its catalogue (spec 2.2, 2.3), and which of its series a Select means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property, partial
from itertools import combinations, islice
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

from attrs import evolve, frozen
from msgspec import Struct

from asyncfin import checks
from asyncfin.errors import SelectionError, printable
from asyncfin.model import suggest
from asyncfin.model.deviation import Deviation
from asyncfin.model.frame import Tabular
from asyncfin.model.period import Period, PeriodSelection, Resolved, describe, existing, resolve
from asyncfin.model.scope import ScopePath, ScopeRef, format_path
from asyncfin.model.select import Select, Wanted, check_select
from asyncfin.model.series import CatalogueSeries, Series
from asyncfin.model.words import counted, listed, spanned

K = TypeVar("K", bound=Hashable)
Grouped: TypeAlias = dict[K, tuple[CatalogueSeries, ...]]
Fits: TypeAlias = Callable[[CatalogueSeries], object]

# How often near matches are looked for in one message: that is slow.
_EXPLAINED = 3
# How many metrics a notebook shows.
_SHOWN_METRICS = 200
# A message lists all known values if there are at most this many.
_FEW = 12

# What a client keeps of a series in order to query it (spec 4.2 rule 4). Ids belong to one publication.
triple = attrgetter("metric_id", "reporting_group_id", "scopes")


def written_triple(series: CatalogueSeries | Series) -> tuple[str, str, str]:
    """Return the triple of a series with its path in the text form."""
    return series.metric_id, series.reporting_group_id, format_path(series.scopes)


def publication_id(dataset_id: str) -> str:
    """Return what identifies a publication: its dataset id, in lower case (RFC 9562, section 4)."""
    return dataset_id.lower()


def is_same_publication(one: str, other: str) -> bool:
    """Return whether two dataset ids name the same publication."""
    return publication_id(one) == publication_id(other)


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


# gc=False: texts and periods cannot form a cycle, and a catalogue has thousands of scopes.
class Scope(Struct, frozen=True, gc=False):
    """A company scope (spec 2.3).

    Attributes:
        scope_id: its id within the scope group.
        name: its name.
        description: what it is.
        role: its role; an open set of words.
        aliases: its other names.
        active_start: the first period in which it is active, of duration 0; None if not given.
        active_end: the last one, likewise.
    """

    scope_id: str
    name: str
    description: str
    role: str
    aliases: tuple[str, ...]
    active_start: Period | None = None
    active_end: Period | None = None


@frozen
class ScopeGroup:
    """A group of company scopes (spec 2.3), such as the segments.

    Attributes:
        scope_group_id: its id.
        name: its name.
        description: what it is.
        scopes: the scopes, in the service's order.
    """

    scope_group_id: str
    name: str
    description: str
    scopes: tuple[Scope, ...]


@frozen
class ReportingGroup:
    """A reporting group with its series (spec 2.3).

    Attributes:
        reporting_group_id: its id.
        name: its name.
        description: what it is.
        basis: its reporting basis; an open set of words.
        cadence: how often it is reported; an open set of words.
        series: its series: in a `Catalogue` all of them, in a `CataloguePage` those of that page.
    """

    reporting_group_id: str
    name: str
    description: str
    basis: str
    cadence: str
    series: tuple[CatalogueSeries, ...]


@frozen
class CataloguePage(Dataset):
    """One page of a catalogue (spec 4.2): a `Dataset` with some of its series.

    Attributes:
        periods: the fiscal periods found anywhere in the dataset, in the service's order.
        scope_groups: the available company scopes.
        groups: the reporting groups of this page, each with those of its series that are on it.
        next_cursor: the cursor of the next page; None on the last one.
        deviations: what the page contains against the spec, and was repaired.
    """

    periods: tuple[Period, ...]
    scope_groups: tuple[ScopeGroup, ...]
    groups: tuple[ReportingGroup, ...]
    next_cursor: str | None = None
    deviations: tuple[Deviation, ...] = ()


# Not slotted, for the cached properties (see `Series`); a pickle has the fields only.
@frozen(repr=False, slots=False, getstate_setstate=True)
class Catalogue(Dataset, Tabular):
    """The whole catalogue of one publication (spec 2.3): a `Dataset` with all that a query can select.

    Iterating gives its series, in the service's order; ``len`` counts them; ``catalogue[series_id]``
    is one of them. polars and DuckDB read it as the table of `to_arrow`.

    Attributes:
        periods: the fiscal periods found anywhere in the dataset, oldest first. None of them is
            promised for every series.
        scope_groups: the available company scopes.
        groups: the reporting groups, each with all its series.
        deviations: what its pages contain against the spec, and was repaired: a missing text is ``""``,
            missing aliases are ``()``.
    """

    periods: tuple[Period, ...]
    scope_groups: tuple[ScopeGroup, ...]
    groups: tuple[ReportingGroup, ...]
    deviations: tuple[Deviation, ...] = ()

    @property
    def dataset(self) -> Dataset:
        """The publication's metadata."""
        return Dataset(self.entity_id, self.name, self.dataset_id, self.created_timestamp)

    @cached_property
    def series(self) -> tuple[CatalogueSeries, ...]:
        """All series, group by group."""
        return tuple(series for group in self.groups for series in group.series)

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The index in `series` of each series, by its id."""
        return {series.series_id: place for place, series in enumerate(self.series)}

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
        """The series of each metric, reporting group and scope path; rarely more than one."""
        return _grouped(self.series, triple)

    @cached_property
    def by_group(self) -> Mapping[str, ReportingGroup]:
        """The reporting groups, by id."""
        return {group.reporting_group_id: group for group in self.groups}

    @cached_property
    def _scopes(self) -> dict[ScopeRef, Scope]:
        return {
            ScopeRef(group.scope_group_id, scope.scope_id): scope
            for group in self.scope_groups
            for scope in group.scopes
        }

    def scope_names(self, path: ScopePath) -> tuple[str, ...]:
        """Return the names of the scopes on a path, in order; the id of an unlisted scope."""
        return tuple(self._scopes[ref].name if ref in self._scopes else ref.scope_id for ref in path)

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
        place = self.places.get(series_id) if isinstance(series_id, str) else None
        if place is None:
            raise suggest.no_series(series_id, self.series)
        return self.series[place]

    def search(self, text: str) -> tuple[CatalogueSeries, ...]:
        """Return the series in whose texts every word of `text` occurs, in catalogue order.

        The texts of a series are its label, description, metric id, series id and reporting group id, and
        the names and aliases of its scopes. Case does not matter, and a part of a word is enough. Without
        words, all series are returned. No request.

        Raises:
            ArgumentError: `text` is not a str.
        """
        checks.instance_of(str)("text", text)
        words = set(text.casefold().split())
        found = []
        for series in self.series:
            ids = series.series_id, series.metric_id, series.reporting_group_id
            aliases = [alias for scope in self.listed_scopes(series.scopes) for alias in scope.aliases]
            texts = [series.label, series.description, *ids, *self.scope_names(series.scopes), *aliases]
            searched = "\n".join(texts).casefold()
            if all(word in searched for word in words):
                found.append(series)
        return tuple(found)

    def rows(self, select: Select | None = None) -> Iterator[tuple[str, ...]]:
        for each in self.series if select is None else self.select(select):
            yield (
                *(each.series_id, each.metric_id, each.label, format_path(each.scopes)),
                *(each.reporting_group_id, each.basis, self.by_group[each.reporting_group_id].cadence),
                *(each.period_meaning, each.number_format, each.description),
            )

    def select(self, select: Select) -> tuple[CatalogueSeries, ...]:
        """Return the series that a Select means here, in catalogue order; none only of an empty catalogue.

        Raises:
            SelectionError: this catalogue has nothing of the Select, or not all of it. `missing` of the error
                is what `missing` returns; the message also says what comes close, or which conditions
                exclude each other.
        """
        check_select(select)
        if undecided := self.undecided(select):
            raise SelectionError(self._undecided_message(undecided), missing=undecided)
        if self._unknown_names(select):
            missing = self.missing(select)
            raise SelectionError(self.complaint(missing), missing=missing)
        return self.matching(select)

    def matching(self, select: Select) -> tuple[CatalogueSeries, ...]:
        """Return what `select` returns, without the series whose texts do not decide a condition.

        Raises:
            SelectionError: no series meets all conditions.
        """
        conditions = dict(self._conditions(select))
        series = _meeting(conditions.values(), self.series)
        # Each id exists, but no series has all of them: an empty result would not say why.
        if conditions and not series:
            raise SelectionError(
                self._exclusion(select, conditions), missing=self._excluded(select, conditions)
            )
        return series

    def undecided(self, select: Select) -> Mapping[str, tuple[str, ...]]:
        """Return the ids of the series that have no text in a field of the Select, by field.

        `deviations` names such fields. A series that another condition excludes is not among them.
        """
        unstated = [
            field
            for field, path in _STATED_AT.items()
            if getattr(select, field) is not None and any(each.path == path for each in self.deviations)
        ]
        if not unstated:
            return {}
        conditions = dict(self._conditions(select))
        found: dict[str, list[str]] = {}
        for series in self.series:
            group = self.by_group[series.reporting_group_id]
            empty = [name for name in unstated if not getattr(group if name == "cadence" else series, name)]
            if empty and all(fits(series) for name, fits in conditions.items() if name not in empty):
                for field in empty:
                    found.setdefault(field, []).append(series.series_id)
        return {field: tuple(ids) for field, ids in found.items()}

    def _undecided_message(self, undecided: Mapping[str, tuple[str, ...]]) -> str:
        named = "; ".join(
            f"{field}: {self._named} states none for {', '.join(ids[:_FEW])}"
            + (f" and {len(ids) - _FEW} more series" if ids[_FEW:] else "")
            for field, ids in undecided.items()
        )
        return f"{named}; select by ids instead"

    def missing(self, select: Select) -> Mapping[str, tuple[str, ...]]:
        """Return what a Select names and this catalogue does not have, by field; empty if it has all of it.

        Ids and words are listed under their fields, paths in their text form. A series picked by `Select.of`
        is listed by its id, with its triple where the Select has several of that id. If no series meets all
        conditions with what exists of them, a further entry is the condition that no series meets (``label``:
        its text, ``where``: the `name` of the Select), or ``select``, at most 200 characters of the Select.
        """
        missing = dict(self._unknown_names(select))
        if (known := self._known_part(select)) is not None:
            conditions = dict(self._conditions(known))
            if conditions and not _meeting(conditions.values(), self.series):
                missing |= self._excluded(select, conditions)
        return missing

    def _unknown_names(self, select: Select) -> Mapping[str, tuple[str, ...]]:
        unknown = {
            each.field: tuple(each.text(name) for name in given if name not in known)
            for each in CRITERIA
            if (given := getattr(select, each.field)) is not None
            for known in (each.known(self),)
        }
        if (picked := select.picked) is not None:
            alike = Counter(wanted.series_id for wanted in picked)
            unknown[PICKED] = tuple(
                str(each) if each.series_id is None or alike[each.series_id] > 1 else each.series_id
                for each in picked
                if triple(each) not in self.by_triple
            )
        return {field: names for field, names in unknown.items() if names}

    def complaint(self, missing: Mapping[str, tuple[str, ...]]) -> str:
        """Return a message about what is missing here, given by field as `missing` returns it."""
        (field, first), *others = ((field, self._complaint(field, names)) for field, names in missing.items())
        rest = "".join(f"; {field}: {complaint}" for field, complaint in others)
        return f"{field}: {self._named} has {first}{rest}"

    def _complaint(self, field: str, names: tuple[str, ...]) -> str:
        criterion = _CRITERION.get(field)
        if criterion is None:  # periods, or conditions that no series meets
            return f"no {field} {listed(list(map(repr, names)))}"
        # Made only for a message: near matches of thousands of ids take milliseconds.
        known = tuple(map(criterion.text, criterion.known(self)))
        if criterion.words:
            return f"no {criterion.thing} {listed(list(map(repr, names)))}{suggest.all_of(known)}"
        described = criterion.described(self) if criterion.described else None
        explained = [suggest.quoted(each, known, described) for each in names[:_EXPLAINED]]
        return f"no {criterion.thing} {listed([*explained, *map(repr, names[_EXPLAINED:])])}"

    def _conditions(self, select: Select) -> Iterator[tuple[str, Fits]]:
        """Yield the given fields, each with what a series must pass; `where` may rely on the rest."""
        if select.picked is not None:
            yield PICKED, partial(_among, attrgetter("series_id"), self._picked(select.picked))
        for each in CRITERIA:
            if (given := getattr(select, each.field)) is not None:
                yield (
                    each.field,
                    partial(
                        _among, partial(each.read, self), {frozenset(given)} if each.every else set(given)
                    ),
                )
        # Not a Criterion: a substring is not the name of anything.
        if select.label is not None:
            label = select.label.casefold()
            yield "label", lambda series: label in series.label.casefold()
        if select.where is not None:
            yield "where", select.where

    def _picked(self, wanted: tuple[Wanted, ...]) -> set[str]:
        """Return the ids of series picked by hand: by triple, and by id where a triple has several."""
        picked: set[str] = set()
        for each in wanted:
            ids = {series.series_id for series in self.by_triple[triple(each)]}
            # Only the ids distinguished the series, and this publication has other ids, or the row has none.
            if len(ids) > 1 and each.series_id not in ids:
                raise SelectionError(
                    f"series {each} is one of several of its metric, group and path in {self._named}:"
                    f" {listed(sorted(ids))}; pick again with Select.of"
                )
            picked |= ids if len(ids) == 1 else {str(each.series_id)}
        return picked

    def _blamed(self, conditions: Mapping[str, Fits]) -> tuple[str, ...]:
        """Return the conditions that leave nothing: one, two that exclude each other, or all."""
        given = {field: fits for field, fits in conditions.items() if field != "where"}
        if "where" in conditions and _meeting(given.values(), self.series):
            return ("where",)
        left = {field: set(_meeting((fits,), self.series)) for field, fits in given.items()}
        for field, series in left.items():
            if not series:
                return (field,)
        # Most mistakes are two conditions that do not go together.
        for one, other in combinations(left, 2):
            if left[one].isdisjoint(left[other]):
                return one, other
        return tuple(given)

    def _excluded(self, select: Select, conditions: Mapping[str, Fits]) -> Mapping[str, tuple[str, ...]]:
        match self._blamed(conditions):
            case ("where",):
                return {"where": (select.name or "where",)}
            case (field,):
                return {field: _texts(select, field)}
        return {"select": (checks.short_repr(select),)}

    def _exclusion(self, select: Select, conditions: Mapping[str, Fits]) -> str:
        """Return a message that names the conditions which leave nothing."""
        match self._blamed(conditions):
            case ("where",):
                name = f" ({select.name})" if select.name else ""
                others = " that meets the other conditions" if len(conditions) > 1 else ""
                return f"where{name}: it fits no series of {self._named}{others}"
            case (field,):
                return f"{_written(select, field)}: no series of {self._named} matches"
            case (one, other):
                instead = "".join(
                    self._instead(field, _meeting((conditions[than],), self.series))
                    for field, than in ((other, one), (one, other))
                )
                return (
                    f"{_written(select, one)} and {_written(select, other)} leave nothing:"
                    f" no series of {self._named} matches both{instead}"
                )
            case several:
                together = ", ".join(_written(select, field) for field in several)
                return f"{together} leave nothing together: no series of {self._named} matches all of these"

    def _instead(self, field: str, series: Iterable[CatalogueSeries]) -> str:
        """Return the values of a field in these series, if they are words and few."""
        if (criterion := _CRITERION.get(field)) is None or not criterion.words:
            return ""
        found = sorted({printable(str(criterion.read(self, each))) for each in series})
        return f"; {field} could be {', '.join(found)}" if len(found) <= _FEW else ""

    @property
    def _named(self) -> str:
        return f"{printable(self.name)} ({self.entity_id})"

    def narrowed(self, select: Select) -> Select | None:
        """Return what this catalogue has of a Select; None where that is nothing.

        That is so where it has none of a field's ids or words, does not have one of `scope_group_ids` (which
        are not "one of these" but "exactly these"), or where no series meets all conditions.
        """
        known = self._known_part(select)
        conditions = {} if known is None else dict(self._conditions(known))
        return known if not conditions or _meeting(conditions.values(), self.series) else None

    def _known_part(self, select: Select) -> Select | None:
        """Return a Select without unknown ids and words; None if a field has no others."""
        kept: dict[str, Any] = {}
        for each in CRITERIA:
            if (given := getattr(select, each.field)) is not None:
                known = each.known(self)
                kept[each.field] = tuple(name for name in given if name in known)
                if not kept[each.field] or (each.every and len(kept[each.field]) < len(given)):
                    return None
        if select.picked is not None:
            kept["_picked"] = tuple(each for each in select.picked if triple(each) in self.by_triple)
            if not kept["_picked"]:
                return None
        return evolve(select, **kept)

    def resolve(self, periods: PeriodSelection) -> Resolved:
        """Return the periods to request: rules and open ends resolved against the catalogue's periods.

        Raises:
            SelectionError: this catalogue has none of the periods.
        """
        if (resolved := resolve(periods, self.periods)) is not None:
            return resolved
        has = existing(self.periods, periods)
        raise SelectionError(f"periods: {self._named} has none of {describe(periods)}; it has {has}")

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
        lines += [f"  {group.reporting_group_id}: {len(group.series):,} series" for group in self.groups]
        return "\n".join(map(printable, lines))

    def __repr__(self) -> str:
        # asyncio.run builds the result's repr and discards it, so the cached properties are not used here.
        series = sum(len(group.series) for group in self.groups)
        periods = counted(len(self.periods), "period")
        return printable(f"<Catalogue of {self.name} ({self.entity_id}): {series:,} series, {periods}>")

    def _repr_html_(self) -> str:
        from asyncfin.html import Table, document

        groups = [
            (group.reporting_group_id, group.name, group.basis, group.cadence, f"{len(group.series):,}")
            for group in self.groups
        ]
        metrics = [
            (metric, series[0].label, str(len({each.scopes for each in series})), f"{len(series):,}")
            for metric, series in islice(self.by_metric.items(), _SHOWN_METRICS)
        ]
        more = len(self.by_metric) - len(metrics)
        notes = (
            [f"{counted(more, 'more metric')}: catalogue.search(text), catalogue.to_pandas()"] if more else []
        )
        tables = [
            Table(("metric", "label", "scope paths", "series"), metrics, names=2),
            Table(("group", "name", "basis", "cadence", "series"), groups, names=4),
        ]
        return document(str(self).split("\n")[:4], tables, notes)


def _grouped(series: Iterable[CatalogueSeries], key: Callable[[CatalogueSeries], K]) -> Grouped[K]:
    """Return the series under each key, both in order of appearance."""
    grouped: dict[K, list[CatalogueSeries]] = {}
    for each in series:
        grouped.setdefault(key(each), []).append(each)
    return {name: tuple(members) for name, members in grouped.items()}


def _among(read: Callable[[CatalogueSeries], K], allowed: Collection[K], series: CatalogueSeries) -> bool:
    return read(series) in allowed


def _meeting(conditions: Iterable[Fits], series: Iterable[CatalogueSeries]) -> tuple[CatalogueSeries, ...]:
    """Return the series that meet all conditions."""
    for fits in conditions:
        series = tuple(filter(fits, series))
    return tuple(series)


def _texts(select: Select, field: str) -> tuple[str, ...]:
    """Return the values of a condition as texts."""
    value = getattr(select, _ATTRIBUTE.get(field, field))
    text = _CRITERION[field].text if field in _CRITERION else str
    return tuple(map(text, value)) if isinstance(value, tuple) else (text(value),)


def _written(select: Select, field: str) -> str:
    """Return a condition as it was given."""
    values = _texts(select, field)
    return f"{field}={checks.short_repr(values[0] if len(values) == 1 else list(values))}"


@frozen
class Criterion:
    """A field of a Select that takes ids or words: what it names, in a series and in a catalogue."""

    field: str
    thing: str  # what one of its values is called
    read: Callable[[Catalogue, CatalogueSeries], Hashable]  # what is compared
    known: Callable[[Catalogue], Collection[Any]]  # what it can name
    every: bool = False  # whether a series must have exactly what is given; else any one of it
    text: Callable[[Any], str] = str  # the text form of a value
    words: bool = False  # whether a message lists all known values, instead of those that come close
    # A text about each known value, which may contain an unknown name.
    described: Callable[[Catalogue], Mapping[str, str]] | None = None


def _labels(catalogue: Catalogue) -> Mapping[str, str]:
    return {
        metric: "\n".join(dict.fromkeys(each.label for each in series))
        for metric, series in catalogue.by_metric.items()
    }


def _field(name: str) -> Callable[[Catalogue, CatalogueSeries], Hashable]:
    return lambda _, series: getattr(series, name)


def _series_word(name: str) -> Criterion:
    """Return the criterion of a word that each series has in the field of that name."""
    return Criterion(
        name,
        name.replace("_", " "),
        _field(name),
        lambda catalogue: {getattr(series, name) for series in catalogue.series},
        words=True,
    )


# A further field of a Select is a field there, a row here, and an option of the command line.
CRITERIA = (
    Criterion("metric_ids", "metric", _field("metric_id"), attrgetter("by_metric"), described=_labels),
    Criterion("scope_combinations", "scope path", _field("scopes"), attrgetter("by_path"), text=format_path),
    Criterion("reporting_group_ids", "reporting group", _field("reporting_group_id"), attrgetter("by_group")),
    Criterion(
        "scope_group_ids",
        "scope group",
        lambda _, series: frozenset(ref.scope_group_id for ref in series.scopes),
        lambda catalogue: {group.scope_group_id for group in catalogue.scope_groups},
        every=True,
    ),
    _series_word("basis"),
    Criterion(
        "cadence",
        "cadence",
        lambda catalogue, series: catalogue.by_group[series.reporting_group_id].cadence,
        lambda catalogue: {group.cadence for group in catalogue.groups},
        words=True,
    ),
    _series_word("period_meaning"),
    Criterion("series_ids", "series", _field("series_id"), attrgetter("places")),
)
# Where a catalogue page has the texts that a Select compares.
_STATED_AT = {
    **{field: f"$.groups[*].series[*].{field}" for field in ("basis", "period_meaning", "label")},
    "cadence": "$.groups[*].cadence",
}
# What `Select.of` picks is compared by triple, so it is not a Criterion.
PICKED = "series"
_ATTRIBUTE = {PICKED: "picked"}
_PICKED = evolve(CRITERIA[-1], field=PICKED)
_CRITERION = {each.field: each for each in (*CRITERIA, _PICKED)}
