"""The meaning of a Select in a catalogue: its series, and the missing names.

A catalogue is annotated with Any here, since its module imports this one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

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

# The fields with values, in the order of messages, and what these call one value. A
# further field of a Select is a field there, a row here, a case in the two functions
# below, and an option of the command line.
NOUNS = {
    "metric_ids": "metric",
    "scope_combinations": "scope path",
    "reporting_group_ids": "reporting group",
    "scope_group_ids": "scope group",
    "basis": "basis",
    "cadence": "cadence",
    "period_meaning": "period meaning",
    "series_ids": "series",
}
# Of these a message lists the existing values instead of near matches.
WORDS = ("basis", "cadence", "period_meaning")


def read_value(catalogue: Any, name: str, series: CatalogueSeries) -> Any:
    """Return what a series has in a field of a Select."""
    match name:
        case "metric_ids":
            return series.metric_id
        case "scope_combinations":
            return series.scopes
        case "reporting_group_ids":
            return series.reporting_group_id
        case "scope_group_ids":
            return frozenset(ref.scope_group_id for ref in series.scopes)
        case "cadence":
            return catalogue.by_group[series.reporting_group_id].cadence
        case "series_ids":
            return series.series_id
    return getattr(series, name)


def list_values(catalogue: Any, name: str) -> Collection[Any]:
    """Return the values that a catalogue has in a field of a Select."""
    match name:
        case "metric_ids":
            values: Collection[Any] = catalogue.by_metric
        case "scope_combinations":
            values = catalogue.by_path
        case "reporting_group_ids":
            values = catalogue.by_group
        case "scope_group_ids":
            values = [group.scope_group_id for group in catalogue.scope_groups]
        case "cadence":
            values = {group.cadence for group in catalogue.groups}
        case "series_ids":
            values = catalogue.places
        case _:
            values = {getattr(series, name) for series in catalogue.series}
    return values


class Condition(NamedTuple):
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


def _list_conditions(catalogue: Any, select: Select) -> list[Condition]:
    """Return the conditions of a Select, without `where`."""
    conditions = []
    if select.picked is not None:
        conditions.append(_bind_picked(catalogue, select.picked))
    for name in NOUNS:
        values = getattr(select, name)
        if values is not None:
            conditions.append(_bind(catalogue, name, values))
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


def _bind(catalogue: Any, name: str, values: Collection[Any]) -> Condition:
    """Return the condition that a series has one of the values."""
    # A path must use all of the scope groups and no other.
    choices = {frozenset(values)} if name == "scope_group_ids" else set(values)

    def is_met(series: CatalogueSeries) -> bool:
        return read_value(catalogue, name, series) in choices

    unknown_values = set(values).difference(list_values(catalogue, name))
    return Condition(
        name,
        _write_values(name, values),
        is_met,
        _write_values(name, filter(unknown_values.__contains__, values)),
    )


def _write_values(name: str, values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(map(format_path if name == "scope_combinations" else str, values))


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


class Judged(NamedTuple):
    """What a Select means in a catalogue.

    Attributes:
        series: the series that meet it, in catalogue order. Ids and words that the
            catalogue does not have are ignored where a field has others.
        missing: the ids and words that the catalogue does not have, and the condition
            that no series meets, as `Catalogue.missing` returns them.
        catalogue: the catalogue.
        select: the Select.
        problem: a message about a picked row that means one of multiple series, or
            about the conditions that no series meets. "": neither.
        is_ambiguous: whether the problem is such a row, and nothing shows which series.
    """

    series: tuple[CatalogueSeries, ...]
    missing: Missing
    catalogue: Any
    select: Select
    problem: str
    is_ambiguous: bool

    def error(self) -> SelectionError:
        """Return the error about what is missing, or means more than one series."""
        message = self.problem or explain(self.catalogue, self.missing)
        notes = unstated_notes(self.catalogue, self.select)
        return SelectionError("; ".join((message, *notes)), missing=self.missing)


def judge(catalogue: Any, select: Select) -> Judged:
    """Resolve a Select against a catalogue. `where` is called at most once for
    each series.
    """
    conditions = _list_conditions(catalogue, select)
    missing = {}
    candidates = _list_candidates(catalogue, select)
    for condition in conditions:
        candidates = list(filter(condition.is_met, candidates))
        if condition.unknown_texts:
            missing[condition.field] = condition.unknown_texts
    # After the other conditions, on which it may rely.
    series = tuple(filter(select.where, candidates) if select.where else candidates)
    problem = _describe_ambiguous(catalogue, select.picked) if select.picked else ""
    is_ambiguous = problem != ""
    if catalogue.series and not series and not has_nothing(select, missing):
        if candidates and select.where is not None:
            conditions = [Condition("where", (select.name or "where",), select.where)]
        else:
            conditions = _find_conflict(conditions, catalogue.series)
        text = " and ".join(map(str, conditions))
        # Unknown names explain more.
        if not missing:
            problem = f"{text}: no series of {named_entity(catalogue)} matches"
        if len(conditions) == 1:
            missing[conditions[0].field] = conditions[0].texts
        else:
            missing["select"] = (text,)
    return Judged(series, missing, catalogue, select, problem, is_ambiguous)


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
    candidates: Sequence[CatalogueSeries] = catalogue.series
    if select.metric_ids is None:
        return candidates
    # One metric after the other, which is not the order of the catalogue.
    candidates = []
    for metric_id in select.metric_ids:
        candidates += catalogue.by_metric.get(metric_id, ())
    places = catalogue.places
    return sorted(candidates, key=lambda series: places[series.series_id])


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
    words = [name for name in WORDS if getattr(select, name) is not None]
    ids: dict[str, list[str]] = {name: [] for name in words}
    for series in _list_candidates(catalogue, select) if words else ():
        unmet_names = [
            condition.field for condition in conditions if not condition.is_met(series)
        ]
        stated_names = [
            name
            for name in unmet_names
            if name not in ids or read_value(catalogue, name, series)
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
    first, *missings = [*missings] or [{}]
    common: dict[str, tuple[str, ...]] = dict(first)
    for missing in missings:
        for name, values in list(common.items()):
            common[name] = tuple(filter(missing.get(name, ()).__contains__, values))
    return {name: values for name, values in common.items() if values}


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
    return "series with" if name == "select" else NOUNS.get(name, name)


def _list_with_matches(catalogue: Any, name: str, values: tuple[str, ...]) -> str:
    # The rows of `Select.of` are explained as series ids are.
    name = "series_ids" if name == "series" else name
    if name not in NOUNS:
        return _quote(name, values)
    texts = _write_values(name, list_values(catalogue, name))
    if name in WORDS:
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
