"""The meaning of a Select in a catalogue: its series, and the missing names.

A catalogue is annotated with Any here, since its module imports this one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, TypeAlias

from attrs import field, frozen

from asyncfin import checks, suggest
from asyncfin.errors import SelectionError
from asyncfin.model.scope import format_path
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
        is_met: whether a series meets it.
        unknown_texts: the texts of the values that the catalogue does not have.
    """

    field: str
    texts: tuple[str, ...]
    is_met: Callable[[CatalogueSeries], bool]
    unknown_texts: tuple[str, ...] = ()

    def __str__(self) -> str:
        value = self.texts[0] if len(self.texts) == 1 else list(self.texts)
        return f"{_name_field(self.field)} {checks.short_repr(value)}"


@frozen
class Criterion:
    """What a field of a Select means.

    Attributes:
        field: its name.
        noun: what a message calls one value.
        read: the value of a series.
        list_values: the values in a catalogue.
        text: a value as it is written.
        is_word: whether a message lists the existing values instead of near matches.
    """

    field: str
    noun: str
    read: Callable[[Any, CatalogueSeries], Any]
    list_values: Callable[[Any], Collection[Any]]
    text: Callable[[Any], str] = str
    is_word: bool = False

    def bind(self, catalogue: Any, values: Collection[Any]) -> Condition:
        """Return the condition in a catalogue."""
        values_in_catalogue = self.list_values(catalogue)
        # A path must use all of the scope groups and no other.
        is_exact = self.field == "scope_group_ids"
        choices = {frozenset(values)} if is_exact else set(values)
        return Condition(
            self.field,
            tuple(map(self.text, values)),
            lambda series: self.read(catalogue, series) in choices,
            tuple(
                self.text(value) for value in values if value not in values_in_catalogue
            ),
        )


def _make_word_criterion(name: str) -> Criterion:
    """Return the criterion of a word that each series states."""
    read = attrgetter(name)
    return Criterion(
        name,
        name.replace("_", " "),
        lambda _, series: read(series),
        lambda catalogue: set(map(read, catalogue.series)),
        is_word=True,
    )


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
    _make_word_criterion("basis"),
    Criterion(
        "cadence",
        "cadence",
        lambda catalogue, series: catalogue.by_group[series.reporting_group_id].cadence,
        lambda catalogue: {group.cadence for group in catalogue.groups},
        is_word=True,
    ),
    _make_word_criterion("period_meaning"),
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
_WORDS = [criterion.field for criterion in CRITERIA if criterion.is_word]


def _list_conditions(catalogue: Any, select: Select) -> list[Condition]:
    """Return the conditions of a Select, without `where`."""
    conditions = []
    if select.picked is not None:
        conditions.append(_bind_picked(catalogue, select.picked))
    for criterion in CRITERIA:
        values = getattr(select, criterion.field)
        conditions += [] if values is None else [criterion.bind(catalogue, values)]
    if select.label is not None:
        label = select.label.casefold()
        conditions.append(
            Condition(
                "label",
                (select.label,),
                lambda series: label in series.label.casefold(),
            )
        )
    return conditions


def _bind_picked(catalogue: Any, rows: Sequence[Wanted]) -> Condition:
    """Return the condition of the rows of `Select.of`.

    They are compared by metric, group and path, and by id where series share these.
    """
    ids_met: set[str] = set()
    unknown_texts = []
    counts = Counter(row.series_id for row in rows)
    for row in rows:
        ids = _list_ids(catalogue, row)
        if len(ids) == 1 or row.series_id in ids:
            ids_met.add(ids[0] if len(ids) == 1 else str(row.series_id))
        else:
            has_id = row.series_id is not None and counts[row.series_id] == 1
            unknown_texts.append(str(row.series_id if has_id else row))
    return Condition(
        "series",
        tuple(map(str, rows)),
        lambda series: series.series_id in ids_met,
        tuple(unknown_texts),
    )


def _list_ids(catalogue: Any, row: Wanted) -> list[str]:
    """Return the ids of the series that have the triple of a row."""
    return [series.series_id for series in catalogue.by_triple.get(triple(row), ())]


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
        is_ambiguous: whether a picked row means one of multiple series, and nothing
            shows which.
    """

    series: tuple[CatalogueSeries, ...]
    missing: Missing
    catalogue: Any = field(repr=False)
    select: Select
    is_ambiguous: bool
    _problem: str  # about the picked row, or the conditions that no series meets

    def error(self) -> SelectionError | None:
        """Return the error if the catalogue does not have all of the Select, or has it
        more than once.
        """
        if not self.missing:
            return None
        message = self._problem or explain(self.catalogue, self.missing)
        notes = unstated_notes(self.catalogue, self.select)
        return SelectionError("; ".join((message, *notes)), missing=self.missing)


def judge(catalogue: Any, select: Select) -> Judged:
    """Resolve a Select against a catalogue. `where` is called at most once for
    each series.
    """
    conditions = _list_conditions(catalogue, select)
    missing = {
        condition.field: condition.unknown_texts
        for condition in conditions
        if condition.unknown_texts
    }
    meeting: Iterable[CatalogueSeries] = _list_candidates(catalogue, select)
    for condition in conditions:
        meeting = filter(condition.is_met, meeting)
    # After the other conditions, on which it may rely.
    series = meeting = tuple(meeting)
    if select.where is not None:
        series = tuple(filter(select.where, meeting))
    ambiguity = _describe_ambiguous(catalogue, select.picked or ())
    conflict = ""
    if catalogue.series and not series and not has_nothing(select, missing):
        # Unknown names explain more.
        has_unknown = bool(missing)
        if meeting and select.where is not None:
            where = Condition("where", (select.name or "where",), select.where)
            conditions = [where]
        else:
            conditions = _find_conflict(conditions, catalogue.series)
        text = " and ".join(map(str, conditions))
        if len(conditions) == 1:
            missing[conditions[0].field] = conditions[0].texts
        else:
            missing["select"] = (text,)
        if not has_unknown:
            conflict = f"{text}: no series of {named_entity(catalogue)} matches"
    problem = ambiguity or conflict
    return Judged(series, missing, catalogue, select, bool(ambiguity), problem)


def _describe_ambiguous(catalogue: Any, rows: Iterable[Wanted]) -> str:
    """Return a message about the first row that means one of multiple series, or ""."""
    for row in rows:
        ids = sorted(_list_ids(catalogue, row))
        # This publication has other ids, or the row has none.
        if len(ids) > 1 and row.series_id not in ids:
            return (
                f"series {row} is one of several of its metric, group and path in "
                f"{named_entity(catalogue)}: {listed(ids)}; pick again with Select.of"
            )
    return ""


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
    conditions: list[Condition], series: Iterable[CatalogueSeries]
) -> list[Condition]:
    """Return the conditions that leave nothing: one that no series meets, or all."""
    for condition in conditions:
        if not any(map(condition.is_met, series)):
            return [condition]
    return conditions


def unstated_notes(catalogue: Any, select: Select) -> Iterator[str]:
    """Yield a line for each word of a Select about the series that state none, and meet
    all conditions about what they state.

    `where` is not called again: it counts as met.
    """
    conditions = _list_conditions(catalogue, select)
    words = [name for name in _WORDS if getattr(select, name) is not None]
    ids: dict[str, list[str]] = {name: [] for name in words}
    for series in _list_candidates(catalogue, select) if words else ():
        unmet_names = [
            condition.field for condition in conditions if not condition.is_met(series)
        ]
        stated_names = [
            name
            for name in unmet_names
            if name not in ids or _BY_FIELD[name].read(catalogue, series)
        ]
        if not stated_names:
            for name in unmet_names:
                ids[name].append(series.series_id)
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
    all_missing = [*missings] or [{}]
    common: dict[str, tuple[str, ...]] = {}
    for name, values in all_missing[0].items():
        shared_values = tuple(
            value
            for value in values
            if all(value in missing.get(name, ()) for missing in all_missing)
        )
        if shared_values:
            common[name] = shared_values
    return common


# --- The words for it


def name_missing(missing: Missing) -> str:
    """Return missing ids and words with what they are, for people."""
    return "; ".join(
        f"{_name_field(name)} {_quote(name, values)}"
        for name, values in missing.items()
    )


def explain(catalogue: Any, missing: Missing, subject: str = "") -> str:
    """Return a message about missing names, by field, with the close matches of a
    catalogue.

    Args:
        catalogue: the catalogue.
        missing: names by field, as in `Judged.missing`.
        subject: those that do not have the names, such as "no entity". "": the entity
            of the catalogue.
    """
    article = "the" if subject else "no"
    names = "; ".join(
        f"{article} {_name_field(name)} {_list_with_matches(catalogue, name, values)}"
        for name, values in missing.items()
    )
    return f"{next(iter(missing))}: {subject or named_entity(catalogue)} has {names}"


def _name_field(name: str) -> str:
    # Others are periods, or conditions that no series meets.
    if name == "select":
        return "series with"
    return _BY_FIELD[name].noun if name in _BY_FIELD else name


def _list_with_matches(catalogue: Any, name: str, values: tuple[str, ...]) -> str:
    criterion = _BY_FIELD.get(name)
    if criterion is None:
        return _quote(name, values)
    texts = [criterion.text(value) for value in criterion.list_values(catalogue)]
    if criterion.is_word:
        return _quote(name, values) + suggest.all_of([*filter(None, texts)])
    from asyncfin.model.search import close_metrics  # reads the synonyms

    names = [repr(value) for value in values]
    for index, value in enumerate(values[:_EXPLAINED]):
        close = close_metrics(catalogue, value) if name == "metric_ids" else None
        names[index] = suggest.quoted(value, texts, close)
    return listed(names)


def _quote(name: str, values: tuple[str, ...]) -> str:
    # Conditions are a text already.
    return values[0] if name == "select" else listed(list(map(repr, values)))
