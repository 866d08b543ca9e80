"""What a Select means in a catalogue: the series that it selects, and what is
missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from itertools import chain, combinations
from typing import Any, Protocol, TypeAlias

from attrs import field, frozen

from asyncfin import checks, suggest
from asyncfin.errors import SelectionError, printable, shorten
from asyncfin.model.scope import ScopePath, format_path
from asyncfin.model.search import Searchable, close_metrics
from asyncfin.model.select import Select, Wanted
from asyncfin.model.series import CatalogueSeries, triple
from asyncfin.words import listed, named_entity

# What a Select names and does not exist, by field.
Missing: TypeAlias = Mapping[str, tuple[str, ...]]
_Predicate: TypeAlias = Callable[[CatalogueSeries], object]

# Near matches are slow to find, so one message explains at most this many names.
_EXPLAINED = 3
# A message lists all words of a catalogue if there are at most this many.
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
    def by_triple(
        self,
    ) -> Mapping[tuple[str, str, ScopePath], tuple[CatalogueSeries, ...]]: ...
    @property
    def scope_groups(self) -> Sequence[_ScopeGroup]: ...


# --- The criteria


@frozen
class Criterion:
    """One condition of a Select: the values that it names, and the series that meet
    it.
    """

    field: str
    noun: str  # what a message calls one value
    read: Callable[[CatalogueView, CatalogueSeries], Hashable]  # the value of a series
    existing: Callable[[CatalogueView], Collection[Any]]  # the values in a catalogue
    text: Callable[[Any], str] = str
    exact: bool = (
        False  # a series must have all the values and no other, not just one of them
    )
    is_word: bool = False  # a message lists the existing values instead of near matches

    def values(self, select: Select) -> tuple[Any, ...] | None:
        """Return the values that the Select names, or None if it has no such
        condition.
        """
        values: tuple[Any, ...] | None = getattr(select, self.field)
        return values

    def texts(self, select: Select) -> tuple[str, ...]:
        return tuple(map(self.text, self.values(select) or ()))

    def unknown(self, catalogue: CatalogueView, select: Select) -> tuple[str, ...]:
        """Return the texts of the values that the catalogue does not have."""
        if (values := self.values(select)) is None:
            return ()
        existing = self.existing(catalogue)
        return tuple(self.text(value) for value in values if value not in existing)

    def predicate(self, catalogue: CatalogueView, select: Select) -> _Predicate:
        values = self.values(select) or ()
        allowed = {frozenset(values)} if self.exact else set(values)
        return lambda series: self.read(catalogue, series) in allowed

    def excludes_all(self, select: Select, names: Collection[str]) -> bool:
        """Return whether no series can meet the condition, if these names are
        missing.
        """
        return (any if self.exact else all)(
            text in names for text in self.texts(select)
        )


class _Label(Criterion):
    """The substring of a label. It names nothing, so nothing of it is unknown."""

    def values(self, select: Select) -> tuple[str, ...] | None:
        return None if select.label is None else (select.label,)

    def unknown(self, catalogue: CatalogueView, select: Select) -> tuple[str, ...]:
        return ()

    def predicate(self, catalogue: CatalogueView, select: Select) -> _Predicate:
        label = (select.label or "").casefold()
        return lambda series: label in series.label.casefold()


class _Where(_Label):
    """The caller's predicate, which a message calls by its name."""

    def values(self, select: Select) -> tuple[str, ...] | None:
        return None if select.where is None else (select.name or self.field,)


class _Picked(Criterion):
    """The rows of `Select.of`, compared by metric, group and path, and by id where
    series share these.
    """

    def values(self, select: Select) -> tuple[Wanted, ...] | None:
        return select.picked

    def ambiguous(
        self, catalogue: CatalogueView, select: Select
    ) -> dict[Wanted, list[str]]:
        """Return the rows that mean one of multiple series, with the ids of these."""
        ids = {row: _ids_of(catalogue, row) for row in select.picked or ()}
        # This publication has other ids, or the row has none.
        return {
            row: sorted(series_ids)
            for row, series_ids in ids.items()
            if len(series_ids) > 1 and row.series_id not in series_ids
        }

    def unknown(self, catalogue: CatalogueView, select: Select) -> tuple[str, ...]:
        ambiguous = self.ambiguous(catalogue, select)
        rows = select.picked or ()
        count = Counter(row.series_id for row in rows)
        return tuple(
            str(row)
            if row.series_id is None or count[row.series_id] > 1
            else row.series_id
            for row in rows
            if row in ambiguous or triple(row) not in catalogue.by_triple
        )

    def predicate(self, catalogue: CatalogueView, select: Select) -> _Predicate:
        allowed: set[str] = set()
        for row in select.picked or ():
            ids = _ids_of(catalogue, row)
            allowed |= ids if len(ids) == 1 else ids & {str(row.series_id)}
        return lambda series: series.series_id in allowed

    def excludes_all(self, select: Select, names: Collection[str]) -> bool:
        return len(names) == len(select.picked or ())


def _ids_of(catalogue: CatalogueView, row: Wanted) -> set[str]:
    return {series.series_id for series in catalogue.by_triple.get(triple(row), ())}


def _attribute(name: str) -> Callable[[CatalogueView, CatalogueSeries], Hashable]:
    return lambda _, series: getattr(series, name)


def _word(name: str) -> Criterion:
    """Return the criterion of a word that each series states."""
    return Criterion(
        name,
        name.replace("_", " "),
        read=_attribute(name),
        existing=lambda catalogue: {
            getattr(series, name) for series in catalogue.series
        },
        is_word=True,
    )


# A further field of a Select is a field there, a row here, and an option of the command
# line.
CRITERIA = (
    Criterion(
        "metric_ids",
        "metric",
        _attribute("metric_id"),
        lambda catalogue: catalogue.by_metric,
    ),
    Criterion(
        "scope_combinations",
        "scope path",
        read=_attribute("scopes"),
        existing=lambda catalogue: catalogue.by_path,
        text=format_path,
    ),
    Criterion(
        "reporting_group_ids",
        "reporting group",
        read=_attribute("reporting_group_id"),
        existing=lambda catalogue: catalogue.by_group,
    ),
    Criterion(
        "scope_group_ids",
        "scope group",
        read=lambda _, series: frozenset(ref.scope_group_id for ref in series.scopes),
        existing=lambda catalogue: {
            group.scope_group_id for group in catalogue.scope_groups
        },
        exact=True,
    ),
    _word("basis"),
    Criterion(
        "cadence",
        "cadence",
        read=lambda catalogue, series: (
            catalogue.by_group[series.reporting_group_id].cadence
        ),
        existing=lambda catalogue: {
            group.cadence for group in catalogue.by_group.values()
        },
        is_word=True,
    ),
    _word("period_meaning"),
    Criterion(
        "series_ids",
        "series",
        _attribute("series_id"),
        lambda catalogue: catalogue.places,
    ),
)
_PICKED = _Picked("series", "series", CRITERIA[-1].read, CRITERIA[-1].existing)
_LABEL = _Label("label", "", _attribute("label"), lambda _: ())
_WHERE = _Where("where", "", _attribute("series_id"), lambda _: ())
_BY_FIELD = {
    criterion.field: criterion for criterion in (*CRITERIA, _PICKED, _LABEL, _WHERE)
}


# --- The judgement


@frozen
class Judged:
    """What a Select means in a catalogue.

    Attributes:
        series: the series that meet it, in catalogue order. Ids and words that the
            catalogue does not have are ignored where a field has others.
        missing: the ids and words that the catalogue does not have, and the condition
            that no series meets, as `Catalogue.missing` returns them.
        catalogue: the catalogue.
        select: the Select.
    """

    series: tuple[CatalogueSeries, ...]
    missing: Missing
    catalogue: CatalogueView = field(repr=False)
    select: Select
    _unknown: Missing  # the ids and words of `missing`
    _blamed: tuple[str, ...]  # the conditions that no series meets together

    def error(self) -> SelectionError | None:
        """Return the error if the catalogue does not have all of the Select, or has it
        more than once.
        """
        if not self.missing:
            return None
        if ambiguous := self._ambiguous:
            row, ids = next(iter(ambiguous.items()))
            message = (
                f"series {row} is one of several of its metric, group and path in"
                f" {named_entity(self.catalogue)}: {listed(ids)}; pick again with "
                "Select.of"
            )
        elif self._unknown:
            message = complaint(self.catalogue, self.missing)
        else:
            message = self._about_blamed()
        unstated = unstated_notes(self.catalogue, self.select)
        return SelectionError("; ".join((message, *unstated)), missing=self.missing)

    @property
    def is_ambiguous(self) -> bool:
        """Whether a picked row means one of multiple series, and nothing says which."""
        return bool(self._ambiguous)

    @property
    def _ambiguous(self) -> Mapping[Wanted, list[str]]:
        return (
            _PICKED.ambiguous(self.catalogue, self.select)
            if _PICKED.field in self.missing
            else {}
        )

    def _about_blamed(self) -> str:
        """Return which conditions leave nothing: each id exists, so an empty result
        would not say why.
        """
        entity, select = named_entity(self.catalogue), self.select
        conditions = [_written(select, name) for name in self._blamed]
        match self._blamed:
            case ("where",):
                name = f" ({select.name})" if select.name else ""
                others = (
                    " that meets the other conditions"
                    if _predicates(self.catalogue, select)
                    else ""
                )
                return f"where{name}: it fits no series of {entity}{others}"
            case (_,):
                return f"{conditions[0]}: no series of {entity} matches"
            case (first, second):
                instead = self._instead(second, than=first) + self._instead(
                    first, than=second
                )
                together = " and ".join(conditions)
                return (
                    f"{together} leave nothing: no series of {entity} matches "
                    f"both{instead}"
                )
        together = ", ".join(conditions)
        return (
            f"{together} leave nothing together: no series of {entity} matches all of "
            "these"
        )

    def _instead(self, name: str, *, than: str) -> str:
        """Return the words that would go with another condition, if they are few."""
        criterion = _BY_FIELD[name]
        if not criterion.is_word:
            return ""
        meets = _BY_FIELD[than].predicate(self.catalogue, self.select)
        words = {
            str(criterion.read(self.catalogue, series))
            for series in filter(meets, self.catalogue.series)
        }
        shown = sorted(
            printable(shorten(word, suggest.LONGEST)) for word in words - {""}
        )
        return f"; {name} could be {', '.join(shown)}" if 0 < len(shown) <= _FEW else ""


def judge(catalogue: CatalogueView, select: Select) -> Judged:
    """Return what a Select means in a catalogue. `where` is called at most once for
    each series.
    """
    names = {
        criterion.field: criterion.unknown(catalogue, select)
        for criterion in (*CRITERIA, _PICKED)
    }
    unknown = {name: texts for name, texts in names.items() if texts}
    predicates = _predicates(catalogue, select)
    meeting = _meeting(predicates.values(), _candidates(catalogue, select))
    # After the other conditions, on which it may rely.
    series = meeting if select.where is None else tuple(filter(select.where, meeting))
    blamed: tuple[str, ...] = ()
    if not series and not has_nothing(select, unknown):
        blamed = ("where",) if meeting else _blamed(predicates, catalogue.series)
    return Judged(
        series,
        {**unknown, **_excluded(select, blamed)},
        catalogue,
        select,
        unknown,
        blamed,
    )


def unstated_notes(catalogue: CatalogueView, select: Select) -> Iterator[str]:
    """Yield a line for each word of a Select about the series that state none, and meet
    the rest of it.

    `where` is not called again: it counts as met.
    """
    predicates = _predicates(catalogue, select)
    words = [
        criterion
        for criterion in CRITERIA
        if criterion.is_word and criterion.field in predicates
    ]
    ids: dict[str, list[str]] = {criterion.field: [] for criterion in words}
    for series in _candidates(catalogue, select) if words else ():
        failed = {name for name, meets in predicates.items() if not meets(series)}
        empty = {word.field for word in words if not word.read(catalogue, series)}
        for name in failed if failed <= empty else ():
            ids[name].append(series.series_id)
    for name, series_ids in ids.items():
        if series_ids:
            are = "states none and is" if len(series_ids) == 1 else "state none and are"
            yield (
                f"{name}: {len(series_ids):,} series {are} left out: "
                f"{listed(series_ids, _FEW)}"
            )


def _predicates(catalogue: CatalogueView, select: Select) -> dict[str, _Predicate]:
    """Return what a series must meet, by field, without `where`."""
    return {
        criterion.field: criterion.predicate(catalogue, select)
        for criterion in (_PICKED, *CRITERIA, _LABEL)
        if criterion.values(select) is not None
    }


def _candidates(catalogue: CatalogueView, select: Select) -> Sequence[CatalogueSeries]:
    """Return the series that have one of the metrics, if the Select has any, in
    catalogue order.
    """
    if select.metric_ids is None:
        return catalogue.series
    by_metric = [
        catalogue.by_metric.get(metric_id, ()) for metric_id in select.metric_ids
    ]
    return sorted(
        chain.from_iterable(by_metric),
        key=lambda series: catalogue.places[series.series_id],
    )


def _meeting(
    predicates: Iterable[_Predicate], series: Iterable[CatalogueSeries]
) -> tuple[CatalogueSeries, ...]:
    """Return the series that meet all conditions."""
    for meets in predicates:
        series = filter(meets, series)
    return tuple(series)


def _blamed(
    predicates: Mapping[str, _Predicate], series: Sequence[CatalogueSeries]
) -> tuple[str, ...]:
    """Return the conditions that leave nothing: one, two that exclude each other, or
    all.
    """
    meeting = {name: set(filter(meets, series)) for name, meets in predicates.items()}
    for name, members in meeting.items():
        if not members:
            return (name,)
    # Most mistakes are two conditions that do not go together.
    for first, second in combinations(meeting, 2):
        if meeting[first].isdisjoint(meeting[second]):
            return first, second
    return tuple(predicates)


def _excluded(select: Select, blamed: tuple[str, ...]) -> Missing:
    """Return the condition that no series meets, as it is listed among what is
    missing.
    """
    if len(blamed) > 1:
        return {"select": (checks.short_repr(select),)}
    return {name: _BY_FIELD[name].texts(select) for name in blamed}


# --- What is missing


def has_nothing(select: Select, missing: Missing) -> bool:
    """Return whether an entity has no series of a Select, from what is missing there.

    That is so if it has none of the ids or words of a field, or if no series meets all
    conditions. Missing periods do not count.
    """
    return any(
        name == "select" or _BY_FIELD[name].excludes_all(select, names)
        for name, names in without_periods(missing).items()
    )


def without_periods(missing: Missing) -> Missing:
    """Return the ids and words alone: periods that do not exist yet are not a
    mistake.
    """
    return {name: values for name, values in missing.items() if name != "periods"}


def missing_in_all(missings: Iterable[Missing]) -> Missing:
    """Return the names that are missing in all of these, by field, in the order of the
    first.
    """
    first, *others = [*missings] or [{}]
    sets = [{name: set(values) for name, values in other.items()} for other in others]
    common = {
        name: tuple(
            value
            for value in values
            if all(value in other.get(name, ()) for other in sets)
        )
        for name, values in first.items()
    }
    return {name: values for name, values in common.items() if values}


def unknown_names(select: Select, missings: Collection[Missing]) -> Missing:
    """Return the ids and words that are missing in all; if no entity has anything, all
    that are missing.
    """
    named_ones = [without_periods(missing) for missing in missings]
    common = missing_in_all(named_ones)
    if common or not all(has_nothing(select, missing) for missing in named_ones):
        return common
    union: dict[str, dict[str, None]] = {}
    for missing in named_ones:
        for name, values in missing.items():
            union.setdefault(name, {}).update(dict.fromkeys(values))
    return {name: tuple(values) for name, values in union.items()}


# --- The words for it


def named(missing: Missing) -> str:
    """Return ids and words with their fields, for people."""
    return "; ".join(f"{name} {_quoted(values)}" for name, values in missing.items())


def complaint(catalogue: CatalogueView, missing: Missing) -> str:
    """Return a message about what a catalogue does not have, by field as in
    `Judged.missing`.
    """
    (name, first), *others = (
        (name, _complaint(catalogue, name, values)) for name, values in missing.items()
    )
    rest = "".join(f"; {other}: {about}" for other, about in others)
    return f"{name}: {named_entity(catalogue)} has {first}{rest}"


def _complaint(catalogue: CatalogueView, name: str, values: tuple[str, ...]) -> str:
    criterion = _BY_FIELD.get(name)
    if (
        criterion is None or not criterion.noun
    ):  # periods, or a condition that no series meets
        return f"no {name} {_quoted(values)}"
    existing = tuple(filter(None, map(criterion.text, criterion.existing(catalogue))))
    if criterion.is_word:
        return f"no {criterion.noun} {_quoted(values)}{suggest.all_of(existing)}"
    explained = []
    for value in values[:_EXPLAINED]:
        close = close_metrics(catalogue, value) if name == "metric_ids" else None
        explained.append(suggest.quoted(value, existing, close))
    return (
        f"no {criterion.noun} {listed([*explained, *map(repr, values[_EXPLAINED:])])}"
    )


def _quoted(values: Iterable[str]) -> str:
    return listed(list(map(repr, values)))


def _written(select: Select, name: str) -> str:
    """Return a condition as it was given."""
    texts = _BY_FIELD[name].texts(select)
    return f"{name}={checks.short_repr(texts[0] if len(texts) == 1 else list(texts))}"
