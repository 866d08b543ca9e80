"""What a Select means in a catalogue: which series, what is missing, and what nothing decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations
from operator import attrgetter
from typing import Any, Protocol, TypeAlias

from attrs import evolve, field, frozen

from asyncfin import checks
from asyncfin.errors import SelectionError, printable, shorten
from asyncfin.model import suggest
from asyncfin.model.deviation import Deviation
from asyncfin.model.scope import ScopePath, format_path
from asyncfin.model.search import Searchable, close_metrics
from asyncfin.model.select import Select, Wanted
from asyncfin.model.series import CatalogueSeries, triple
from asyncfin.model.words import listed, named_entity

# What is wanted and not there, by the field that names it.
Missing: TypeAlias = Mapping[str, tuple[str, ...]]
_Fits: TypeAlias = Callable[[CatalogueSeries], object]

# How often near matches are looked for in one message: that is slow.
_EXPLAINED = 3
# A message lists all known values if there are at most this many.
_FEW = 12


class _ScopeGroup(Protocol):
    @property
    def scope_group_id(self) -> str: ...


class CatalogueView(Searchable, Protocol):
    """What a judgement reads of a `Catalogue`, whose module imports this one."""

    @property
    def entity_id(self) -> str: ...
    @property
    def places(self) -> Mapping[str, int]: ...
    @property
    def by_path(self) -> Mapping[ScopePath, tuple[CatalogueSeries, ...]]: ...
    @property
    def by_triple(self) -> Mapping[tuple[str, str, ScopePath], tuple[CatalogueSeries, ...]]: ...
    @property
    def scope_groups(self) -> Sequence[_ScopeGroup]: ...
    @property
    def deviations(self) -> tuple[Deviation, ...]: ...
    @property
    def several_cadences(self) -> tuple[str, ...]: ...


@frozen
class Judged:
    """What a Select means in a catalogue.

    Attributes:
        series: the series that meet the known part, in catalogue order; none if nothing is known. A series
            that has no text in a field of the Select does not meet it.
        missing: the ids and words that the catalogue does not have, and the condition that no series meets,
            as `Catalogue.missing` returns them.
        undecided: the ids of the series that have no text in a field of the Select, or of whose cadence the
            catalogue's pages state several, by field. `deviations` of the catalogue names such fields. A
            series that another condition excludes is not among them.
        known: the Select without unknown ids and words. None: the catalogue has none of the ids or words of
            a field, does not have all of `scope_group_ids`, or has no series that meets all conditions.
        catalogue: the catalogue.
        select: the Select.
    """

    series: tuple[CatalogueSeries, ...]
    missing: Missing
    undecided: Missing
    known: Select | None
    catalogue: CatalogueView = field(repr=False)
    select: Select
    _unknown: Missing  # of `missing`, the ids and words
    _blamed: tuple[str, ...]  # the conditions that leave nothing, if each has a known id or word
    _ambiguous: Mapping[Wanted, Sequence[str]]  # picked rows, with the series between which nothing decides

    def error(self) -> SelectionError | None:
        """Return the error if the catalogue does not have all of the Select, or if it is not decided."""
        if self._ambiguous:
            return SelectionError(self._about_ambiguous(), missing=self.missing)
        if self.undecided:
            return SelectionError(self._about_undecided(), missing=self.undecided)
        if self._unknown:
            return SelectionError(complaint(self.catalogue, self.missing), missing=self.missing)
        # Each id exists, but no series has all of them: an empty result would not say why.
        return SelectionError(self._about_excluded(), missing=self.missing) if self.missing else None

    @property
    def is_ambiguous(self) -> bool:
        """Whether a picked row means one of several series, and nothing says which."""
        return bool(self._ambiguous)

    def _about_ambiguous(self) -> str:
        wanted, ids = next(iter(self._ambiguous.items()))
        return (
            f"series {wanted} is one of several of its metric, group and path in"
            f" {named_entity(self.catalogue)}: {listed(ids)}; pick again with Select.of"
        )

    def _about_undecided(self) -> str:
        several = " or different ones" if self.catalogue.several_cadences else ""
        named = "; ".join(
            f"{name}: {named_entity(self.catalogue)} states none{several if name == 'cadence' else ''}"
            f" for {', '.join(ids[:_FEW])}" + (f" and {len(ids) - _FEW} more series" if ids[_FEW:] else "")
            for name, ids in self.undecided.items()
        )
        return f"{named}; select by ids instead"

    def _about_excluded(self) -> str:
        """Return a message that names the conditions which leave nothing."""
        entity, select = named_entity(self.catalogue), self.select
        conditions = _conditions(self.catalogue, select)
        match self._blamed:
            case ("where",):
                name = f" ({select.name})" if select.name else ""
                others = " that meets the other conditions" if conditions else ""
                return f"where{name}: it fits no series of {entity}{others}"
            case (one,):
                return f"{_written(select, one)}: no series of {entity} matches"
            case (one, other):
                instead = "".join(
                    _instead(self.catalogue, name, filter(conditions[than], self.catalogue.series))
                    for name, than in ((other, one), (one, other))
                )
                return (
                    f"{_written(select, one)} and {_written(select, other)} leave nothing:"
                    f" no series of {entity} matches both{instead}"
                )
            case several:
                together = ", ".join(_written(select, name) for name in several)
                return f"{together} leave nothing together: no series of {entity} matches all of these"


def judge(catalogue: CatalogueView, select: Select) -> Judged:
    """Return what a Select means in a catalogue. `where` is called at most once for each series."""
    ambiguous = _ambiguous(catalogue, select)
    unknown, known = _split(catalogue, select, ambiguous)
    conditions = _conditions(catalogue, select)
    candidates = _candidates(catalogue, select)
    meeting = _meeting(conditions.values(), candidates)
    unstated = _unstated(catalogue, select, conditions, candidates)
    series = meeting
    if (where := select.where) is not None:
        # It may rely on the other conditions. One pass: it can take long, and need not return the same twice.
        passing = {each.series_id for each in (*meeting, *(s for s, _ in unstated)) if where(each)}
        series = tuple(each for each in meeting if each.series_id in passing)
        unstated = [(each, fields) for each, fields in unstated if each.series_id in passing]
    blamed: tuple[str, ...] = ()
    if known is not None and not series and (conditions or where is not None):
        blamed = ("where",) if meeting else _blamed(conditions, catalogue.series)
        known = None
    undecided: dict[str, list[str]] = {}
    for each, fields in unstated:
        for name in fields:
            undecided.setdefault(name, []).append(each.series_id)
    return Judged(
        series,
        {**unknown, **_excluded(select, blamed)},
        {name: tuple(ids) for name, ids in undecided.items()},
        known,
        catalogue,
        select,
        unknown,
        blamed,
        ambiguous,
    )


def complaint(catalogue: CatalogueView, missing: Missing) -> str:
    """Return a message about what a catalogue does not have, given by field as in `Judged.missing`."""
    (name, first), *others = ((name, _complaint(catalogue, name, names)) for name, names in missing.items())
    rest = "".join(f"; {other}: {about}" for other, about in others)
    return f"{name}: {named_entity(catalogue)} has {first}{rest}"


def has_nothing(select: Select, missing: Missing) -> bool:
    """Return whether an entity has no series of a Select, given what is missing there.

    That is so if it has none of the ids or words of a field, or if no series meets all conditions. Missing
    periods do not count.
    """
    return any(_excludes_all(select, name, names) for name, names in missing.items())


def unknown_names(select: Select, missing: Collection[Missing]) -> Missing:
    """Return the ids and words that are missing in all; if no entity has anything, all that are missing."""
    names = [without_periods(each) for each in missing]
    common = missing_in_all(names)
    if common or not all(has_nothing(select, each) for each in names):
        return common
    union: dict[str, dict[str, None]] = {}
    for each in names:
        for named_field, values in each.items():
            union.setdefault(named_field, {}).update(dict.fromkeys(values))
    return {named_field: tuple(values) for named_field, values in union.items()}


def without_periods(missing: Missing) -> Missing:
    """Return the ids and words alone: periods that do not exist yet are not a mistake."""
    return {name: values for name, values in missing.items() if name != "periods"}


def named(missing: Missing) -> str:
    """Return ids and words with their fields, for people."""
    return "; ".join(f"{field} {listed(list(map(repr, names)))}" for field, names in missing.items())


def missing_in_all(each: Iterable[Missing]) -> Missing:
    """Return the names that are missing in all of these, by field, in the order of the first."""
    first, *others = [*each] or [{}]
    sets = [{field: set(names) for field, names in other.items()} for other in others]
    common = {
        field: tuple(name for name in names if all(name in other.get(field, ()) for other in sets))
        for field, names in first.items()
    }
    return {field: names for field, names in common.items() if names}


def _excludes_all(select: Select, name: str, names: Collection[str]) -> bool:
    """Return whether what is missing in a field excludes all series; it may include ids of single series."""
    match name:
        case "select":
            return True
        case "label":
            return select.label in names
        case "where":
            return (select.name or "where") in names
        case "periods":
            return False
    if name == PICKED:
        return len(names) == len(select.picked or ())
    # A series must have exactly the given scope groups, but any one of the values of other fields.
    return (any if _CRITERION[name].every else all)(each in names for each in _texts(select, name))


def _ambiguous(catalogue: CatalogueView, select: Select) -> Mapping[Wanted, Sequence[str]]:
    """Return the picked rows of which only the ids would distinguish the series, and do not."""
    found: dict[Wanted, Sequence[str]] = {}
    for each in select.picked or ():
        ids = [series.series_id for series in catalogue.by_triple.get(triple(each), ())]
        # This publication has other ids, or the row has none.
        if len(ids) > 1 and each.series_id not in ids:
            found[each] = sorted(ids)
    return found


def _split(
    catalogue: CatalogueView, select: Select, ambiguous: Collection[Wanted]
) -> tuple[dict[str, tuple[str, ...]], Select | None]:
    """Return the unknown ids and words by field, and the Select without them; None: a field has no others."""
    unknown: dict[str, tuple[str, ...]] = {}
    kept: dict[str, Any] = {}
    is_known = True
    for each in CRITERIA:
        if (given := getattr(select, each.field)) is None:
            continue
        known = each.known(catalogue)
        kept[each.field] = tuple(name for name in given if name in known)
        if len(kept[each.field]) < len(given):
            unknown[each.field] = tuple(each.text(name) for name in given if name not in known)
            is_known = is_known and bool(kept[each.field]) and not each.every
    if (picked := select.picked) is not None:
        found = {each for each in picked if each not in ambiguous and triple(each) in catalogue.by_triple}
        kept["_picked"] = tuple(each for each in picked if each in found)
        alike = Counter(each.series_id for each in picked)
        if len(kept["_picked"]) < len(picked):
            unknown[PICKED] = tuple(
                str(each) if each.series_id is None or alike[each.series_id] > 1 else each.series_id
                for each in picked
                if each not in found
            )
            is_known = is_known and bool(found)
    if not unknown:
        return unknown, select
    return unknown, evolve(select, **kept) if is_known else None


def _conditions(catalogue: CatalogueView, select: Select) -> dict[str, _Fits]:
    """Return what a series must pass, by field, without `where`."""
    conditions: dict[str, _Fits] = {}
    if select.picked is not None:
        conditions[PICKED] = partial(_among, attrgetter("series_id"), _picked_ids(catalogue, select.picked))
    for each in CRITERIA:
        if (given := getattr(select, each.field)) is not None:
            allowed = {frozenset(given)} if each.every else set(given)
            conditions[each.field] = partial(_among, partial(each.read, catalogue), allowed)
    # Not a Criterion: a substring is not the name of anything.
    if select.label is not None:
        label = select.label.casefold()
        conditions["label"] = lambda series: label in series.label.casefold()
    return conditions


def _picked_ids(catalogue: CatalogueView, picked: Iterable[Wanted]) -> set[str]:
    """Return the ids of series picked by hand: by triple, and by id where a triple has several."""
    ids: set[str] = set()
    for wanted in picked:
        found = {series.series_id for series in catalogue.by_triple.get(triple(wanted), ())}
        ids |= found if len(found) == 1 else found.intersection([str(wanted.series_id)])
    return ids


def _candidates(catalogue: CatalogueView, select: Select) -> Sequence[CatalogueSeries]:
    """Return the series that have one of the metrics, if any are given, in catalogue order."""
    if select.metric_ids is None:
        return catalogue.series
    found = [series for metric_id in select.metric_ids for series in catalogue.by_metric.get(metric_id, ())]
    return sorted(found, key=lambda series: catalogue.places[series.series_id])


def _unstated(
    catalogue: CatalogueView,
    select: Select,
    conditions: Mapping[str, _Fits],
    candidates: Sequence[CatalogueSeries],
) -> list[tuple[CatalogueSeries, list[str]]]:
    """Return series without a text in fields of the Select, with these, if they meet the other conditions."""
    asked = [
        name
        for name, path in _STATED_AT.items()
        if getattr(select, name) is not None and any(each.path == path for each in catalogue.deviations)
    ]
    found = []
    for series in candidates if asked else ():
        empty = [
            name
            for name in asked
            if not (_cadence(catalogue, series) if name == "cadence" else getattr(series, name))
        ]
        if empty and all(fits(series) for name, fits in conditions.items() if name not in empty):
            found.append((series, empty))
    return found


def _blamed(conditions: Mapping[str, _Fits], series: Sequence[CatalogueSeries]) -> tuple[str, ...]:
    """Return the conditions that leave nothing: one, two that exclude each other, or all."""
    left = {name: set(_meeting((fits,), series)) for name, fits in conditions.items()}
    for name, found in left.items():
        if not found:
            return (name,)
    # Most mistakes are two conditions that do not go together.
    for one, other in combinations(left, 2):
        if left[one].isdisjoint(left[other]):
            return one, other
    return tuple(conditions)


def _excluded(select: Select, blamed: tuple[str, ...]) -> Missing:
    """Return the condition that no series meets, as it is listed among what is missing."""
    match blamed:
        case ():
            return {}
        case ("where",):
            return {"where": (select.name or "where",)}
        case (name,):
            return {name: _texts(select, name)}
    return {"select": (checks.short_repr(select),)}


def _complaint(catalogue: CatalogueView, name: str, names: tuple[str, ...]) -> str:
    criterion = _CRITERION.get(name)
    if criterion is None:  # periods, or conditions that no series meets
        return f"no {name} {listed(list(map(repr, names)))}"
    # Made only for a message: near matches of thousands of ids take milliseconds.
    known = tuple(map(criterion.text, criterion.known(catalogue)))
    if criterion.words:
        return f"no {criterion.thing} {listed(list(map(repr, names)))}{suggest.all_of(known)}"
    explained = []
    for each in names[:_EXPLAINED]:
        close = close_metrics([catalogue], each) if name == "metric_ids" else None
        explained.append(suggest.quoted(each, known, close))
    return f"no {criterion.thing} {listed([*explained, *map(repr, names[_EXPLAINED:])])}"


def _instead(catalogue: CatalogueView, name: str, series: Iterable[CatalogueSeries]) -> str:
    """Return the values of a field in these series, if they are words and few."""
    if (criterion := _CRITERION.get(name)) is None or not criterion.words:
        return ""
    words = {str(criterion.read(catalogue, each)) for each in series}
    found = sorted(printable(shorten(word, suggest.LONGEST)) for word in words)
    return f"; {name} could be {', '.join(found)}" if len(found) <= _FEW else ""


def _among(
    read: Callable[[CatalogueSeries], Hashable], allowed: Collection[Hashable], series: CatalogueSeries
) -> bool:
    return read(series) in allowed


def _meeting(conditions: Iterable[_Fits], series: Iterable[CatalogueSeries]) -> tuple[CatalogueSeries, ...]:
    """Return the series that meet all conditions."""
    for fits in conditions:
        series = tuple(filter(fits, series))
    return tuple(series)


def _texts(select: Select, name: str) -> tuple[str, ...]:
    """Return the values of a condition as texts."""
    value = select.picked if name == PICKED else getattr(select, name)
    text = _CRITERION[name].text if name in _CRITERION else str
    return tuple(map(text, value)) if isinstance(value, tuple) else (text(value),)


def _written(select: Select, name: str) -> str:
    """Return a condition as it was given."""
    values = _texts(select, name)
    return f"{name}={checks.short_repr(values[0] if len(values) == 1 else list(values))}"


@frozen
class Criterion:
    """A field of a Select that takes ids or words: what it names, in a series and in a catalogue."""

    field: str
    thing: str  # what one of its values is called
    read: Callable[[CatalogueView, CatalogueSeries], Hashable]  # what is compared
    known: Callable[[CatalogueView], Collection[Any]]  # what it can name
    every: bool = False  # whether a series must have exactly what is given; else any one of it
    text: Callable[[Any], str] = str  # the text form of a value
    words: bool = False  # whether a message lists all known values, instead of those that come close


def _field(name: str) -> Callable[[CatalogueView, CatalogueSeries], Hashable]:
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


def _cadence(catalogue: CatalogueView, series: CatalogueSeries) -> str:
    """Return the cadence of a series; "" if its pages state none, or different ones."""
    group_id = series.reporting_group_id
    return "" if group_id in catalogue.several_cadences else catalogue.by_group[group_id].cadence


# A further field of a Select is a field there, a row here, and an option of the command line.
CRITERIA = (
    Criterion("metric_ids", "metric", _field("metric_id"), attrgetter("by_metric")),
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
        _cadence,
        lambda catalogue: {group.cadence for group in catalogue.by_group.values()},
        words=True,
    ),
    _series_word("period_meaning"),
    Criterion("series_ids", "series", _field("series_id"), attrgetter("places")),
)
# Where a catalogue page has the texts that a Select compares.
_STATED_AT = {
    **{name: f"$.groups[*].series[*].{name}" for name in ("basis", "period_meaning", "label")},
    "cadence": "$.groups[*].cadence",
}
# What `Select.of` picks is compared by triple, so it is not a Criterion.
PICKED = "series"
_CRITERION = {each.field: each for each in (*CRITERIA, evolve(CRITERIA[-1], field=PICKED))}
