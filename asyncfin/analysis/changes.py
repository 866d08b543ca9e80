"""What changed between two publications of one question: rows that appeared, were
restated or vanished.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

from attrs import frozen

from asyncfin import Panel, Period, checks, concat
from asyncfin.analysis.cells import (
    SERIES,
    TRIPLE,
    combined,
    example_rows,
    numbered,
    plain,
    stacked,
)
from asyncfin.analysis.lines import PERIOD_FIELDS, table_metadata
from asyncfin.errors import SelectionError
from asyncfin.optional import compute, pa

if TYPE_CHECKING:
    import pyarrow

# A row with an equal number is relabelled if one of these differs.
COMPARED = (
    "text",
    "fill_type",
    "report_year",
    "report_end_month",
    "report_duration_months",
    "value_version",
    "value_number_format",
)
CHANGE, BEFORE, BEFORE_TEXT, BEFORE_DATASET = (
    "change",
    "before",
    "before_text",
    "before_dataset_id",
)
KNOWN_FROM, RUN = "known_from", "run"
# What a row of changes can be.
CHANGES = ("appeared", "restated", "relabelled", "vanished")
_check_panel = checks.instance_of(Panel)

# A series: its id, and its metric, reporting group and scope path.
SeriesKey = tuple[str, str, str, str]


@frozen
class Snapshot:
    """The rows of one entity in one publication, with what is needed to compare them
    with another's.

    Attributes:
        table: the long table.
        dataset_id: the publication.
        ambiguous: the series that share metric, reporting group and scope path with
            another one of the publication.
        asked: the resolved periods of the question. None: all that the question admits.
        listed: the periods of the catalogue.
    """

    table: Any
    dataset_id: str
    ambiguous: frozenset[SeriesKey] = frozenset()
    asked: frozenset[Period] | None = None
    listed: frozenset[Period] = frozenset()

    @classmethod
    @cache
    def empty(cls, dataset_id: str = "") -> Snapshot:
        """Return the snapshot of an entity without rows."""
        return cls(concat([]).replace_schema_metadata(None), dataset_id)

    @classmethod
    def of(cls, panels: Sequence[Panel], table: Any) -> Snapshot:
        """Return the snapshot of the panels of one publication, which differ in their
        value version.

        `table` has their rows.
        """
        first = panels[0]
        return cls(
            table.replace_schema_metadata(None),
            first.dataset.dataset_id,
            ambiguous_series(first),
            frozenset(first.periods_asked),
            frozenset(first.catalogue.periods),
        )

    def covers(self, period: Period) -> bool:
        """Return whether the question would have returned a value of this period."""
        return self.asked is None or period in self.asked or period not in self.listed


def ambiguous_series(panel: Panel) -> frozenset[SeriesKey]:
    """Return the panel's series whose metric, group and path the catalogue has several
    times.
    """
    ids = frozenset(panel.series_ids)
    return frozenset(
        (
            series.series_id,
            series.metric_id,
            series.reporting_group_id,
            series.scope_path,
        )
        for same in panel.catalogue.by_triple.values()
        if len(same) > 1
        for series in same
        if series.series_id in ids
    )


def compare(old: Snapshot, new: Snapshot) -> Any:
    """Return the changes from one publication of an entity to another one.

    Returns:
        The long table and `change`, `before`, `before_text` and `before_dataset_id`:
        first the rows of
        `new`, in its order, then those that vanished, in the order of `old`.
    """
    if old is Snapshot.empty():  # a first run has thousands of these
        words = pa.repeat(pa.scalar("appeared"), len(new.table))
        return _with_changes(
            new.table, words, old, pa.nulls(len(new.table), pa.int64())
        )
    series = _same_series(old, new)
    both = stacked([old.table, new.table], PERIOD_FIELDS)
    cells = combined(series, numbered(both, PERIOD_FIELDS))
    before, after = cells[: len(old.table)], cells[len(old.table) :]
    places = compute.index_in(
        after, value_set=before
    )  # the row of the same cell in the old table
    appeared = compute.indices_nonzero(
        compute.and_(compute.is_null(places), _covered(new.table, old))
    )
    common = compute.indices_nonzero(compute.is_valid(places))
    restated, relabelled = _altered(old, new.table, common, places.take(common))
    is_gone = compute.invert(compute.is_in(before, value_set=after))
    covered = compute.and_(_covered(old.table, old), _covered(old.table, new))
    vanished = compute.indices_nonzero(compute.and_(is_gone, covered))
    changed = {"appeared": appeared, "restated": restated, "relabelled": relabelled}
    rows = pa.concat_arrays([rows.cast(pa.int64()) for rows in changed.values()])
    words = pa.array(
        [word for word, rows in changed.items() for _ in range(len(rows))], pa.string()
    )
    order = compute.sort_indices(rows)
    rows, words = rows.take(order), words.take(order)
    gone = pa.repeat(pa.scalar("vanished"), len(vanished))
    tables = [
        _with_changes(new.table.take(rows), words, old, places.take(rows)),
        _with_changes(old.table.take(vanished), gone, old, vanished),
    ]
    return pa.concat_tables(tables).unify_dictionaries()


def _same_series(old: Snapshot, new: Snapshot) -> Any:
    """Return a number for each row of both, equal for the same series."""
    rows = stacked([old.table, new.table], SERIES)
    numbers = numbered(rows, SERIES)
    heads = example_rows(rows, numbers, ["asked_version", "series_id", *TRIPLE])
    number_of = {head: number for number, head in enumerate(heads)}
    count = len(old.table)
    of_old, of_new = (
        {heads[number] for number in part.unique().to_pylist()}
        for part in (numbers[:count], numbers[count:])
    )
    # The same id and triple, which have the same number already, or else a triple that
    # both have once. The feed has the rows of a series under the ids that it had when
    # they were written.
    unique: dict[tuple[str, Any], list[Any]] = {}
    for head in of_old:
        if head[1:] not in old.ambiguous:
            unique.setdefault((head[0], head[2:]), []).append(head)
    for head in of_new:
        if head[1:] not in new.ambiguous:
            for same in unique.get((head[0], head[2:]), ()):
                number_of[same] = number_of[head]
    return pa.array([number_of[head] for head in heads], pa.int64()).take(numbers)


def _altered(old: Snapshot, new: Any, rows: Any, before: Any) -> tuple[Any, Any]:
    """Return which of these rows of the new table have another number, and which only
    another label.
    """

    def differs(name: str) -> Any:
        now, then = (
            plain(new.column(name)).take(rows),
            plain(old.table.column(name)).take(before),
        )
        # A field that the service did not state is null, and equal to null.
        unequal = compute.fill_null(compute.not_equal(now, then), False)
        return compute.or_(
            unequal, compute.xor(compute.is_null(now), compute.is_null(then))
        )

    number, label = differs("number"), pa.repeat(pa.scalar(False), len(rows))
    for name in COMPARED:
        label = compute.or_(label, differs(name))
    return rows.filter(number), rows.filter(compute.and_not(label, number))


def _covered(table: Any, snapshot: Snapshot) -> Any:
    """Return for each row of a table whether the question of a snapshot covers its
    period.
    """
    numbers = numbered(table, PERIOD_FIELDS)
    covered = [
        snapshot.covers(Period(*period))
        for period in example_rows(table, numbers, PERIOD_FIELDS)
    ]
    return pa.array(covered, pa.bool_()).take(numbers)


def _with_changes(rows: Any, words: Any, old: Snapshot, places: Any) -> Any:
    """Return rows with the columns that say what changed; `at` are the rows of the old
    table, or null.
    """
    before, texts = (
        plain(old.table.column(name)).take(places) for name in ("number", "text")
    )
    dataset_id, none = pa.scalar(old.dataset_id), pa.scalar(None, pa.string())
    datasets = compute.if_else(compute.is_valid(before), dataset_id, none)
    return (
        rows.append_column(CHANGE, words.dictionary_encode())
        .append_column(BEFORE, before)
        .append_column(BEFORE_TEXT, texts)
        .append_column(BEFORE_DATASET, datasets.dictionary_encode())
    )


def known_from_column(rows: int, moment: datetime) -> Any:
    """Return the column `known_from` of rows that became known together."""
    return pa.repeat(pa.scalar(moment, pa.timestamp("us", "UTC")), rows)


def changes(old: Panel, new: Panel) -> pyarrow.Table:
    """Return what changed between two panels of one question, an older and a newer one
    (extra ``arrow``).

    A cell is a series at a period. A cell vanishes or appears only if both questions
    cover its period: a window that moves, as that of ``Annual(last=3)``, reports
    nothing vanished. A series keeps its identity if it has the same id, metric,
    reporting group and scope path, or if the last three are unique in both catalogues.
    A series in `unlisted` counts as one without values.

    Sends no request.

    Returns:
        The long table (docs/schema.md), with one row for each changed cell, and the
        columns

        - `change`: ``"appeared"``; ``"restated"``: another number; ``"relabelled"``: an
          equal number with another text, fill type, report period, value version or
          value format; ``"vanished"``: a cell without a value now, whose row is the old
          one.
        - `before`: the old number, null for a cell that appeared; `before_text`: its
          text, null where `before` is; `before_dataset_id`: its publication.
        - `known_from`: when the new publication was created, aware UTC; a microsecond
          after the old one where the service dates it no later.

        First the rows of the new panel in its order, then the vanished ones in the
        order of the old panel.

    Raises:
        ArgumentError: an argument is not a Panel.
        SelectionError: the panels are of different entities, value versions or
            selections.
        MalformedAnswerError: a value breaks the spec.
        ImportError: pyarrow is not installed.
    """
    _check_panel("old", old)
    _check_panel("new", new)
    if old.value_version != new.value_version and old.dataset.is_publication(
        new.dataset.dataset_id
    ):
        raise SelectionError(
            f"old and new differ in their value version: {old.value_version}, "
            f"{new.value_version}; for what"
            ' was known at a time, write known_by(original, restated, "FY2024"); for '
            "what differs,"
            ' original.to_pandas("wide").compare(restated.to_pandas("wide"))'
        )
    refuse_differing(
        "old and new",
        ("entity", old.dataset.entity_id, new.dataset.entity_id),
        ("value version", old.value_version, new.value_version),
        ("selection", old.select, new.select),
    )
    before, after = (Snapshot.of([panel], panel.to_arrow()) for panel in (old, new))
    table = compare(before, after)
    earliest = old.dataset.created_timestamp + timedelta(microseconds=1)
    known_from = max(new.dataset.created_timestamp, earliest)
    table = table.append_column(KNOWN_FROM, known_from_column(len(table), known_from))
    return table.replace_schema_metadata(table_metadata([old, new]))


def refuse_differing(panels: str, *facts: tuple[str, object, object]) -> None:
    """Refuse two panels that are not of one question.

    Args:
        panels: the names of the arguments.
        facts: what must be equal: its name, and what it is for either panel.

    Raises:
        SelectionError: they differ; the message names the first difference.
    """
    for name, one, other in facts:
        if one != other:
            raise SelectionError(
                f"{panels} must be panels of one question, but differ in their {name}:"
                f" {checks.short_repr(one)} and {checks.short_repr(other)}"
            )
