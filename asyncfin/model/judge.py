"""What a Select means in a catalogue: the series that it selects, and what is missing.

A catalogue is annotated with Any here, since its module imports this one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations
from typing import Any, TypeAlias

from attrs import field, frozen

from asyncfin import checks, suggest
from asyncfin.errors import SelectionError
from asyncfin.model.scope import format_path
from asyncfin.model.search import close_metrics
from asyncfin.model.select import Select, Wanted
from asyncfin.model.series import CatalogueSeries, triple
from asyncfin.words import listed, named_entity

# What a Select names and does not exist, by field.
Missing: TypeAlias = Mapping[str, tuple[str, ...]]

# Near matches are slow to find, so one message explains at most this many names.
_EXPLAINED = 3
_FEW = 12


# --- The conditions


@frozen
class Condition:
    """A condition of a Select in a catalogue.

    Attributes:
        field: the field of the Select.
        texts: its values, as they are written.
        meets: whether a series meets it.
        unknown: the texts of the values that the catalogue does not have.
        read_word: the word of a series, for a condition on a word that may be empty.
    """

    field: str
    texts: tuple[str, ...]
    meets: Callable[[CatalogueSeries], bool]
    unknown: tuple[str, ...] = ()
    read_word: Callable[[CatalogueSeries], Any] | None = None

    def __str__(self) -> str:
        value = self.texts[0] if len(self.texts) == 1 else list(self.texts)
        return f"{self.field}={checks.short_repr(value)}"


@frozen
class Criterion:
    """What a field of a Select means.

    Attributes:
        field: its name.
        noun: what a message calls one value.
        read: the value of a series.
        existing: the values in a catalogue.
        text: a value as it is written.
        is_word: whether a message lists the existing values instead of near matches.
    """

    field: str
    noun: str
    read: Callable[[Any, CatalogueSeries], Any]
    existing: Callable[[Any], Collection[Any]]
    text: Callable[[Any], str] = str
    is_word: bool = False

    def bind(self, catalogue: Any, values: Collection[Any]) -> Condition:
        """Return the condition in a catalogue."""
        existing = self.existing(catalogue)
        # A path must use all of the scope groups and no other.
        is_exact = self.field == "scope_group_ids"
        allowed = {frozenset(values)} if is_exact else set(values)
        return Condition(
            self.field,
            tuple(map(self.text, values)),
            lambda series: self.read(catalogue, series) in allowed,
            tuple(self.text(value) for value in values if value not in existing),
            (lambda series: self.read(catalogue, series)) if self.is_word else None,
        )


def _read_word(name: str) -> Criterion:
    """Return the criterion of a word that each series states."""

    def read(_: Any, series: CatalogueSeries) -> Any:
        return getattr(series, name)

    def list_words(catalogue: Any) -> set[Any]:
        return {getattr(series, name) for series in catalogue.series}

    return Criterion(name, name.replace("_", " "), read, list_words, is_word=True)


# A further field of a Select is a field there, a row here, and an option of the command
# line.
CRITERIA = (
    Criterion(
        "metric_ids",
        "metric",
        lambda _, series: series.metric_id,
        lambda catalogue: catalogue.by_metric,
    ),
    Criterion(
        "scope_combinations",
        "scope path",
        lambda _, series: series.scopes,
        lambda catalogue: catalogue.by_path,
        text=format_path,
    ),
    Criterion(
        "reporting_group_ids",
        "reporting group",
        lambda _, series: series.reporting_group_id,
        lambda catalogue: catalogue.by_group,
    ),
    Criterion(
        "scope_group_ids",
        "scope group",
        lambda _, series: frozenset(ref.scope_group_id for ref in series.scopes),
        lambda catalogue: [group.scope_group_id for group in catalogue.scope_groups],
    ),
    _read_word("basis"),
    Criterion(
        "cadence",
        "cadence",
        lambda catalogue, series: catalogue.by_group[series.reporting_group_id].cadence,
        lambda catalogue: {group.cadence for group in catalogue.groups},
        is_word=True,
    ),
    _read_word("period_meaning"),
    Criterion(
        "series_ids",
        "series",
        lambda _, series: series.series_id,
        lambda catalogue: catalogue.places,
    ),
)
_BY_FIELD = {criterion.field: criterion for criterion in CRITERIA}
# The rows of `Select.of`; they are explained as series ids are.
_BY_FIELD["series"] = CRITERIA[-1]


def _list_conditions(catalogue: Any, select: Select) -> Iterator[Condition]:
    """Yield the conditions of a Select, without `where`."""
    if select.picked is not None:
        yield _bind_picked(catalogue, select.picked)
    for criterion in CRITERIA:
        if (values := getattr(select, criterion.field)) is not None:
            yield criterion.bind(catalogue, values)
    if select.label is not None:
        label = select.label.casefold()
        yield Condition(
            "label", (select.label,), lambda series: label in series.label.casefold()
        )


def _bind_picked(catalogue: Any, rows: Sequence[Wanted]) -> Condition:
    """Return the condition of the rows of `Select.of`.

    They are compared by metric, group and path, and by id where series share these.
    """
    ambiguous = _find_ambiguous(catalogue, rows)
    allowed: set[str] = set()
    unknown = []
    counts = Counter(row.series_id for row in rows)
    for row in rows:
        ids = _ids_of(catalogue, row)
        allowed |= ids if len(ids) == 1 else ids & {str(row.series_id)}
        if row in ambiguous or not ids:
            has_id = row.series_id is not None and counts[row.series_id] == 1
            unknown.append(str(row.series_id if has_id else row))
    return Condition(
        "series",
        tuple(map(str, rows)),
        lambda series: series.series_id in allowed,
        tuple(unknown),
    )


def _find_ambiguous(catalogue: Any, rows: Iterable[Wanted]) -> dict[Wanted, list[str]]:
    """Return the rows that mean one of multiple series, with the ids of these."""
    ids = {row: _ids_of(catalogue, row) for row in rows}
    # This publication has other ids, or the row has none.
    return {
        row: sorted(series_ids)
        for row, series_ids in ids.items()
        if len(series_ids) > 1 and row.series_id not in series_ids
    }


def _ids_of(catalogue: Any, row: Wanted) -> set[str]:
    return {series.series_id for series in catalogue.by_triple.get(triple(row), ())}


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
    catalogue: Any = field(repr=False)
    select: Select
    _conflict: str = ""  # about the conditions that no series meets together

    def error(self) -> SelectionError | None:
        """Return the error if the catalogue does not have all of the Select, or has it
        more than once.
        """
        if not self.missing:
            return None
        ambiguous = _find_ambiguous(self.catalogue, self.select.picked or ())
        if ambiguous:
            row, ids = next(iter(ambiguous.items()))
            message = (
                f"series {row} is one of several of its metric, group and path in "
                f"{named_entity(self.catalogue)}: {listed(ids)}; pick again with "
                "Select.of"
            )
        else:
            message = self._conflict or complaint(self.catalogue, self.missing)
        unstated = unstated_notes(self.catalogue, self.select)
        return SelectionError("; ".join((message, *unstated)), missing=self.missing)

    @property
    def is_ambiguous(self) -> bool:
        """Whether a picked row means one of multiple series, and nothing says which."""
        return bool(_find_ambiguous(self.catalogue, self.select.picked or ()))


def judge(catalogue: Any, select: Select) -> Judged:
    """Return what a Select means in a catalogue. `where` is called at most once for
    each series.
    """
    conditions = [*_list_conditions(catalogue, select)]
    missing = {
        condition.field: condition.unknown
        for condition in conditions
        if condition.unknown
    }
    series: Iterable[CatalogueSeries] = _list_candidates(catalogue, select)
    for condition in conditions:
        series = filter(condition.meets, series)
    # After the other conditions, on which it may rely.
    meeting = tuple(series)
    chosen = meeting if select.where is None else tuple(filter(select.where, meeting))
    conflict = ""
    if catalogue.series and not chosen and not has_nothing(select, missing):
        entity = named_entity(catalogue)
        if meeting:
            missing["where"] = (select.name or "where",)
            name = f" ({select.name})" if select.name else ""
            others = " that meets the other conditions" if conditions else ""
            conflict = f"where{name}: it fits no series of {entity}{others}"
        else:
            blamed = _find_conflict(conditions, catalogue.series)
            written = " and ".join(map(str, blamed))
            conflict = f"{written}: no series of {entity} matches"
            if len(blamed) == 1:
                missing[blamed[0].field] = blamed[0].texts
            else:
                conflict = f"{written} leave nothing: no series of {entity} matches all"
                missing["select"] = (checks.short_repr(select),)
        # Unknown names explain more.
        if any(condition.unknown for condition in conditions):
            conflict = ""
    return Judged(chosen, missing, catalogue, select, conflict)


def _list_candidates(catalogue: Any, select: Select) -> Sequence[CatalogueSeries]:
    """Return the series that have one of the metrics, if the Select has any, in
    catalogue order.
    """
    series: Sequence[CatalogueSeries] = catalogue.series
    if select.metric_ids is None:
        return series
    by_metric = (
        catalogue.by_metric.get(metric_id, ()) for metric_id in select.metric_ids
    )
    places = catalogue.places
    return sorted(
        chain.from_iterable(by_metric), key=lambda series: places[series.series_id]
    )


def _find_conflict(
    conditions: Sequence[Condition], series: Sequence[CatalogueSeries]
) -> Sequence[Condition]:
    """Return the conditions that leave nothing: one, two that exclude each other, or
    all.
    """
    ids = [
        {member.series_id for member in series if condition.meets(member)}
        for condition in conditions
    ]
    for condition, members in zip(conditions, ids, strict=True):
        if not members:
            return [condition]
    # Most mistakes are two conditions that do not go together.
    for first, second in combinations(range(len(ids)), 2):
        if ids[first].isdisjoint(ids[second]):
            return conditions[first], conditions[second]
    return conditions


def unstated_notes(catalogue: Any, select: Select) -> Iterator[str]:
    """Yield a line for each word of a Select about the series that state none, and meet
    the rest of it.

    `where` is not called again: it counts as met.
    """
    conditions = [*_list_conditions(catalogue, select)]
    words = [condition for condition in conditions if condition.read_word]
    ids: dict[str, list[str]] = {condition.field: [] for condition in words}
    for series in _list_candidates(catalogue, select) if words else ():
        failed = [condition for condition in conditions if not condition.meets(series)]
        if all(
            condition.read_word and not condition.read_word(series)
            for condition in failed
        ):
            for condition in failed:
                ids[condition.field].append(series.series_id)
    for name, series_ids in ids.items():
        if series_ids:
            are = "states none and is" if len(series_ids) == 1 else "state none and are"
            yield (
                f"{name}: {len(series_ids):,} series {are} left out: "
                f"{listed(series_ids, _FEW)}"
            )


# --- What is missing


def has_nothing(select: Select, missing: Missing) -> bool:
    """Return whether an entity has no series of a Select, from what is missing there.

    That is so if it has none of the ids or words of a field, or if no series meets all
    conditions. Missing periods do not count.
    """
    for name, names in missing.items():
        # Of these one missing name is enough.
        if name in ("select", "label", "where", "scope_group_ids"):
            return True
        values = select.picked if name == "series" else getattr(select, name, None)
        if name != "periods" and len(names) >= len(values or ()):
            return True
    return False


def missing_in_all(missings: Iterable[Missing]) -> Missing:
    """Return the names that are missing in all of these, by field, in the order of the
    first.
    """
    first, *others = [*missings] or [{}]
    common: dict[str, tuple[str, ...]] = {}
    for name, values in first.items():
        for other in others:
            values = tuple(value for value in values if value in other.get(name, ()))
        if values:
            common[name] = values
    return common


def unknown_names(select: Select, missings: Collection[Missing]) -> Missing:
    """Return the ids and words that are missing in all; if no entity has anything, all
    that are missing.
    """
    # Periods that do not exist yet are not a mistake.
    without_periods = [
        {name: values for name, values in missing.items() if name != "periods"}
        for missing in missings
    ]
    common = missing_in_all(without_periods)
    if common or not all(has_nothing(select, missing) for missing in without_periods):
        return common
    union: dict[str, dict[str, None]] = {}
    for missing in without_periods:
        for name, values in missing.items():
            union.setdefault(name, {}).update(dict.fromkeys(values))
    return {name: tuple(values) for name, values in union.items()}


# --- The words for it


def named(missing: Missing) -> str:
    """Return ids and words with their fields, for people."""
    return "; ".join(f"{name} {_quote(values)}" for name, values in missing.items())


def complaint(catalogue: Any, missing: Missing) -> str:
    """Return a message about what a catalogue does not have, by field as in
    `Judged.missing`.
    """
    (name, first), *others = (
        (name, _explain(catalogue, name, values)) for name, values in missing.items()
    )
    further = "".join(f"; {other}: {about}" for other, about in others)
    return f"{name}: {named_entity(catalogue)} has {first}{further}"


def _explain(catalogue: Any, name: str, values: tuple[str, ...]) -> str:
    criterion = _BY_FIELD.get(name)
    if criterion is None:  # periods, or a condition that no series meets
        return f"no {name} {_quote(values)}"
    existing = tuple(filter(None, map(criterion.text, criterion.existing(catalogue))))
    if criterion.is_word:
        return f"no {criterion.noun} {_quote(values)}{suggest.all_of(existing)}"
    explained = [repr(value) for value in values]
    for index, value in enumerate(values[:_EXPLAINED]):
        close = close_metrics(catalogue, value) if name == "metric_ids" else None
        explained[index] = suggest.quoted(value, existing, close)
    return f"no {criterion.noun} {listed(explained)}"


def _quote(values: Iterable[str]) -> str:
    return listed(list(map(repr, values)))
