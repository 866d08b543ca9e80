"""The meaning of a Select in a catalogue: its series, and the missing names.

A catalogue is annotated with Any here, since its module imports this one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
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

_read_id = attrgetter("series_id")


# --- The criteria


class Criterion(NamedTuple):
    """A field of a Select, and what it means in a catalogue.

    Attributes:
        field: its name.
        noun: what messages call a value.
        attribute: the attribute of a series that has the value.
        table: the attribute of a catalogue that has all values. "": they are words, of
            which messages list the existing ones in place of close matches.
    """

    field: str
    noun: str
    attribute: str = ""
    table: str = ""

    def read(self, catalogue: Any, series: CatalogueSeries) -> Any:
        """Return the value of a series."""
        return getattr(series, self.attribute)

    def list_values(self, catalogue: Any) -> Collection[Any]:
        """Return the values that a catalogue has."""
        if not self.table:
            return {self.read(catalogue, series) for series in catalogue.series}
        values: Collection[Any] = getattr(catalogue, self.table)
        return values

    def list_choices(self, values: Sequence[Any]) -> Collection[Any]:
        """Return the values of series that meet the criterion."""
        return frozenset(values)

    def bind(self, catalogue: Any, values: Sequence[Any]) -> Condition:
        """Return the condition that a series has one of the values."""
        unknown_values = set(values).difference(self.list_values(catalogue))
        unknown_texts = _write_values(filter(unknown_values.__contains__, values))
        choices = self.list_choices(values)

        def is_met(series: CatalogueSeries) -> bool:
            return self.read(catalogue, series) in choices

        return Condition(self.field, _write_values(values), is_met, unknown_texts)

    def find_close(self, catalogue: Any, value: str) -> list[str]:
        """Find the values that an unknown one probably means."""
        texts = _write_values(self.list_values(catalogue))
        return suggest.find_close(value, texts)

    def describe(self, catalogue: Any, values: Sequence[str]) -> str:
        """Return unknown values as a text, with close matches."""
        names = list(map(repr, values))
        if not self.table:
            texts = filter(None, self.list_values(catalogue))
            return listed(names) + suggest.list_few(list(texts))
        for index, value in enumerate(values[:_EXPLAINED]):
            matches = self.find_close(catalogue, value)
            names[index] = suggest.quote_unknown(value, matches)
        return listed(names)


class _Metrics(Criterion):
    __slots__ = ()

    def find_close(self, catalogue: Any, value: str) -> list[str]:
        from asyncfin.model.search import find_close_metrics  # reads the synonyms

        return find_close_metrics(catalogue, value)


class _ScopeGroups(Criterion):
    __slots__ = ()

    def read(self, catalogue: Any, series: CatalogueSeries) -> Any:
        return frozenset(ref.scope_group_id for ref in series.scopes)

    def list_values(self, catalogue: Any) -> Collection[Any]:
        return {group.scope_group_id for group in catalogue.scope_groups}

    def list_choices(self, values: Sequence[Any]) -> Collection[Any]:
        # A path must use all of the scope groups and no other.
        return [frozenset(values)]


class _Cadence(Criterion):
    __slots__ = ()

    def read(self, catalogue: Any, series: CatalogueSeries) -> Any:
        return catalogue.by_group[series.reporting_group_id].cadence

    def list_values(self, catalogue: Any) -> Collection[Any]:
        return {group.cadence for group in catalogue.groups}  # few, unlike the series


# In the order of messages. A further field of a Select is a field there, a row here,
# and an option of the command line.
CRITERIA = (
    _Metrics("metric_ids", "metric", "metric_id", "by_metric"),
    Criterion("scope_combinations", "scope path", "scopes", "by_path"),
    Criterion(
        "reporting_group_ids", "reporting group", "reporting_group_id", "by_group"
    ),
    _ScopeGroups("scope_group_ids", "scope group", table="scope_groups"),
    Criterion("basis", "basis", "basis"),
    _Cadence("cadence", "cadence"),
    Criterion("period_meaning", "period meaning", "period_meaning"),
    Criterion("series_ids", "series", "series_id", "places"),
)
_BY_FIELD = {criterion.field: criterion for criterion in CRITERIA}
# The rows of `Select.of` are explained as series ids are.
_BY_FIELD["series"] = CRITERIA[-1]


def _write_values(values: Iterable[Any]) -> tuple[str, ...]:
    texts = []
    for value in values:
        is_path = isinstance(value, tuple)
        text = format_path(value) if is_path else str(value)
        texts.append(text)
    return tuple(texts)


class Condition(NamedTuple):
    """A condition of a Select in a catalogue.

    Attributes:
        field: the field of the Select.
        texts: its values, as they are written.
        is_met: whether a series meets it.
        unknown_texts: the texts of the values that the catalogue does not have.
        problem: a message about a picked row that means one of multiple series, or "".
    """

    field: str
    texts: tuple[str, ...]
    is_met: Callable[[CatalogueSeries], bool]
    unknown_texts: tuple[str, ...] = ()
    problem: str = ""

    def __str__(self) -> str:
        value: object = list(self.texts)
        if len(self.texts) == 1:
            value = self.texts[0]
        return f"{_name_field(self.field)} {checks.short_repr(value)}"


def _list_conditions(catalogue: Any, select: Select) -> list[Condition]:
    """Return the conditions of a Select, without `where`."""
    conditions = []
    if select.picked is not None:
        conditions.append(_bind_picked(catalogue, select.picked))
    for criterion in CRITERIA:
        values = getattr(select, criterion.field)
        if values is not None:
            conditions.append(criterion.bind(catalogue, values))
    if select.label is not None:
        label = select.label.casefold()

        def has_label(series: CatalogueSeries) -> bool:
            return label in series.label.casefold()

        conditions.append(Condition("label", (select.label,), has_label))
    return conditions


def _bind_picked(catalogue: Any, rows: Sequence[Wanted]) -> Condition:
    """Return the condition of the rows of `Select.of`.

    They are compared by metric, group and path, and by id where series share these.
    """
    ids_met: set[str | None] = set()
    unknown_texts = []
    problem = ""
    counts = Counter(map(_read_id, rows))
    for row in rows:
        candidates = catalogue.by_triple.get(triple(row), ())
        ids = sorted(map(_read_id, candidates))
        if row.series_id in ids:
            ids_met.add(row.series_id)
        elif len(ids) == 1:
            ids_met.add(ids[0])
        elif row.series_id is not None and counts[row.series_id] == 1:
            unknown_texts.append(row.series_id)
        else:
            unknown_texts.append(str(row))
        # This publication has other ids, or the row has none.
        is_ambiguous = len(ids) > 1 and row.series_id not in ids
        if is_ambiguous and not problem:
            problem = (
                f"series {row} is one of several of its metric, group and path in "
                f"{named_entity(catalogue)}: {listed(ids)}; pick again with Select.of"
            )

    def is_met(series: CatalogueSeries) -> bool:
        return series.series_id in ids_met

    texts = _write_values(rows)
    return Condition("series", texts, is_met, tuple(unknown_texts), problem)


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
        notes = note_unstated(self.catalogue, self.select)
        return SelectionError("; ".join((message, *notes)), missing=self.missing)


def judge(catalogue: Any, select: Select) -> Judged:
    """Resolve a Select against a catalogue. `where` is called at most once for
    each series.
    """
    conditions = _list_conditions(catalogue, select)
    missing = {}
    problem = ""
    candidates = _list_candidates(catalogue, select)
    for condition in conditions:
        candidates = list(filter(condition.is_met, candidates))
        problem = problem or condition.problem
        if condition.unknown_texts:
            missing[condition.field] = condition.unknown_texts
    is_ambiguous = problem != ""
    series = tuple(candidates)
    if select.where is not None:
        # After the other conditions, on which it may rely.
        # Not by filter(), which takes a StopIteration of the predicate for the end.
        series = tuple([entry for entry in candidates if select.where(entry)])
    if catalogue.series and not series and not has_nothing(select, missing):
        if candidates and select.where is not None:
            texts = (select.name or "where",)
            conditions = [Condition("where", texts, select.where)]
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


def _list_candidates(catalogue: Any, select: Select) -> Sequence[CatalogueSeries]:
    """Return the series that have one of the metrics, if the Select has any, in
    catalogue order.
    """
    if select.metric_ids is None:
        series: Sequence[CatalogueSeries] = catalogue.series
        return series
    # One metric after the other, which is not the order of the catalogue.
    candidates: list[CatalogueSeries] = []
    for metric_id in select.metric_ids:
        candidates += catalogue.by_metric.get(metric_id, ())
    places = catalogue.places

    def read_place(series: CatalogueSeries) -> int:
        place: int = places[series.series_id]
        return place

    return sorted(candidates, key=read_place)


def _find_conflict(
    conditions: list[Condition], series: Iterable[CatalogueSeries]
) -> list[Condition]:
    """Return the conditions that leave nothing: one that no series meets, or all."""
    for condition in conditions:
        if not any(map(condition.is_met, series)):
            return [condition]
    return conditions


def note_unstated(catalogue: Any, select: Select) -> Iterator[str]:
    """Yield a line for each word of a Select about the series that state none, and meet
    all conditions about what they state.

    `where` is not called again: it counts as met.
    """
    ids: dict[str, list[str]] = {}
    for criterion in CRITERIA:
        value = getattr(select, criterion.field)
        if value is not None and not criterion.table:
            ids[criterion.field] = []
    if not ids:
        return
    conditions = _list_conditions(catalogue, select)
    for series in _list_candidates(catalogue, select):
        names = []
        for condition in conditions:
            if condition.is_met(series):
                continue
            name = condition.field
            if name not in ids or _BY_FIELD[name].read(catalogue, series):
                break
            names.append(name)
        else:
            for name in names:
                ids[name].append(series.series_id)
    for name, series_ids in ids.items():
        if not series_ids:
            continue
        verbs = "state none and are"
        if len(series_ids) == 1:
            verbs = "states none and is"
        text = listed(series_ids, _FEW)
        yield f"{name}: {len(series_ids):,} series {verbs} left out: {text}"


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
        if name == "periods":
            continue
        field = "picked" if name == "series" else name
        values = getattr(select, field) or ()
        if len(names) >= len(values):
            return True
    return False


def find_common_missing(missings: Iterable[Missing]) -> Missing:
    """Return the names that are missing in all of these, by field, in the order of the
    first.
    """
    iterator = iter(missings)
    common = dict(next(iterator, {}))
    for missing in iterator:
        for name, values in list(common.items()):
            names = set(missing.get(name, ()))
            common[name] = tuple(filter(names.__contains__, values))
            if not common[name]:
                del common[name]
    return common


# --- The words for it


def name_missing(missing: Missing) -> str:
    """Return missing ids and words with what they are, for people."""
    texts = []
    for name, values in missing.items():
        texts.append(f"{_name_field(name)} {_quote(name, values)}")
    return "; ".join(texts)


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
    texts = []
    for name, values in missing.items():
        if name in _BY_FIELD:
            text = _BY_FIELD[name].describe(catalogue, values)
        else:
            text = _quote(name, values)
        texts.append(f"{article} {_name_field(name)} {text}")
    subject = subject or named_entity(catalogue)
    return f"{next(iter(missing))}: {subject} has {'; '.join(texts)}"


def _name_field(name: str) -> str:
    if name == "select":
        return "series with"
    if name == "where":
        return "series that meets"
    if name in _BY_FIELD:
        return _BY_FIELD[name].noun
    # Others are periods, or conditions that no series meets.
    return name


def _quote(name: str, values: Sequence[str]) -> str:
    if name == "select":  # a text already
        return values[0]
    return listed(list(map(repr, values)))
