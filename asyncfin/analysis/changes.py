"""What changed between two publications of one query: rows that appeared, were
restated or vanished.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from attrs import frozen

from asyncfin import Panel, Period, checks, concat
from asyncfin.analysis.cells import (
    SERIES,
    TRIPLE,
    decode_plain,
    number_rows,
    read_examples,
)
from asyncfin.analysis.lines import PERIOD_FIELDS, make_metadata
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
_read_key = attrgetter("series_id", *TRIPLE)


@frozen
class Snapshot:
    """The rows of one entity in one publication, and the facts to compare them by.

    Attributes:
        table: the long table.
        dataset_id: the publication.
        ambiguous: the series that share metric, reporting group and scope path with
            another one of the publication.
        query_periods: the resolved periods of the query. None: all that it admits.
        catalogue_periods: the periods of the catalogue.
    """

    table: Any
    dataset_id: str
    ambiguous: frozenset[SeriesKey] = frozenset()
    query_periods: frozenset[Period] | None = None
    catalogue_periods: frozenset[Period] = frozenset()

    @classmethod
    @cache
    def empty(cls, dataset_id: str = "") -> Snapshot:
        """The snapshot of an entity without rows."""
        table = concat([])
        table = table.replace_schema_metadata(None)
        return cls(table, dataset_id)

    @classmethod
    def of(cls, panel: Panel) -> Snapshot:
        """The snapshot of a panel."""
        return cls(
            panel.to_arrow(),
            panel.dataset.dataset_id,
            find_ambiguous(panel),
            frozenset(panel.periods_asked),
            frozenset(panel.catalogue.periods),
        )

    def covers(self, period: Period) -> bool:
        """Whether the query would have returned a value of this period."""
        if self.query_periods is None or period in self.query_periods:
            return True
        return period not in self.catalogue_periods


def find_ambiguous(panel: Panel) -> frozenset[SeriesKey]:
    """The panel's series whose metric, group and path the catalogue has more than
    once.
    """
    ids = frozenset(panel.series_ids)
    keys: set[SeriesKey] = set()
    for members in panel.catalogue.by_triple.values():
        if len(members) > 1:
            for member in members:
                if member.series_id in ids:
                    keys.add(_read_key(member))
    return frozenset(keys)


def compare(old: Snapshot, current: Snapshot) -> Any:
    """Compare one publication of an entity with another one.

    Returns:
        The long table and `change`, `before`, `before_text` and `before_dataset_id`:
        first the rows of `current`, in its order, then those that vanished, in the
        order of `old`.
    """
    if old is Snapshot.empty():  # a first run has thousands of these
        row_count = len(current.table)
        words = _repeat("appeared", row_count)
        nulls = pa.nulls(row_count, pa.int64())
        return _add_changes(current.table, words, old, nulls)
    old_cells, current_cells = _number_cells(old, current)
    # The row of the same cell in the old table.
    places = compute.index_in(current_cells, value_set=old_cells)
    is_common = compute.is_valid(places)
    is_covered = _find_covered(current.table, old)
    has_other_number = _find_differing(old, current, places, ["number"])
    has_other_label = _find_differing(old, current, places, COMPARED)
    conditions = compute.make_struct(
        compute.and_not(is_covered, is_common),
        compute.and_(is_common, has_other_number),
        compute.and_(is_common, has_other_label),
    )
    words = compute.case_when(conditions, *CHANGES[:-1])
    rows = compute.indices_nonzero(compute.is_valid(words))
    changed_rows = current.table.take(rows)
    words = words.take(rows)
    places = places.take(rows)
    current_changes = _add_changes(changed_rows, words, old, places)
    # The rows that vanished.
    is_covered = _find_covered(old.table, current)
    is_common = compute.is_in(old_cells, value_set=current_cells)
    is_absent = compute.and_not(is_covered, is_common)
    rows = compute.indices_nonzero(is_absent)
    absent_rows = old.table.take(rows)
    words = _repeat("vanished", len(rows))
    old_changes = _add_changes(absent_rows, words, old, rows)
    table = pa.concat_tables([current_changes, old_changes])
    return table.unify_dictionaries()


def _repeat(entry: Any, count: int) -> Any:
    return pa.repeat(pa.scalar(entry), count)


def _number_cells(old: Snapshot, current: Snapshot) -> tuple[Any, Any]:
    """Number the cells of both tables: a cell of the same series and period has the
    same number.
    """
    names = [*SERIES, *PERIOD_FIELDS]
    old_rows = old.table.select(names)
    current_rows = current.table.select(names)
    rows = pa.concat_tables([old_rows, current_rows])
    count = len(old.table)
    numbers = number_rows(rows, SERIES)
    heads = read_examples(rows, numbers, SERIES[1:])
    # The same id and triple, which have the same number already, or else a triple that
    # both have once. The feed has the rows of a series under the ids that it had when
    # they were written.
    by_triple: dict[tuple[str, ...], list[int]] = {}
    for number in numbers[:count].unique().to_pylist():
        version, series_id, *triple = heads[number]
        key = version, *triple
        if (series_id, *triple) not in old.ambiguous:
            by_triple.setdefault(key, []).append(number)
    series_numbers = list(range(len(heads)))
    for number in numbers[count:].unique().to_pylist():
        version, series_id, *triple = heads[number]
        key = version, *triple
        if (series_id, *triple) not in current.ambiguous:
            for old_number in by_triple.get(key, ()):
                series_numbers[old_number] = series_numbers[number]
    series = pa.array(series_numbers, pa.int64())
    series = series.take(numbers)
    cells = number_rows(rows, PERIOD_FIELDS, series)
    return cells[:count], cells[count:]


def _find_differing(
    old: Snapshot, current: Snapshot, places: Any, names: Sequence[str]
) -> Any:
    """Find for each new row whether one of these columns differs from the old row."""
    differs = _repeat(False, len(current.table))
    for name in names:
        values = decode_plain(current.table.column(name))
        old_values = decode_plain(old.table.column(name))
        old_values = old_values.take(places)
        # A field that the service did not state is null, and equal to null.
        is_unequal = compute.not_equal(values, old_values)
        is_unequal = compute.fill_null(is_unequal, False)
        is_null = compute.is_null(values)
        was_null = compute.is_null(old_values)
        has_one_null = compute.xor(is_null, was_null)
        is_different = compute.or_(is_unequal, has_one_null)
        differs = compute.or_(differs, is_different)
    return differs


def _find_covered(table: Any, snapshot: Snapshot) -> Any:
    """Find for each row of a table whether the query of a snapshot covers its
    period.
    """
    numbers = number_rows(table, PERIOD_FIELDS)
    periods = read_examples(table, numbers, PERIOD_FIELDS)
    is_covered = []
    for fields in periods:
        period = Period(*fields)
        is_covered.append(snapshot.covers(period))
    is_covered_array = pa.array(is_covered, pa.bool_())
    return is_covered_array.take(numbers)


def _add_changes(rows: Any, words: Any, old: Snapshot, places: Any) -> Any:
    """Add the columns about changes; `places` are the rows of the old table, or
    null.
    """
    numbers = decode_plain(old.table.column("number"))
    numbers = numbers.take(places)
    texts = decode_plain(old.table.column("text"))
    texts = texts.take(places)
    datasets = compute.if_else(
        compute.is_valid(numbers),
        pa.scalar(old.dataset_id),
        pa.scalar(None, pa.string()),
    )
    rows = rows.append_column(CHANGE, words.dictionary_encode())
    rows = rows.append_column(BEFORE, numbers)
    rows = rows.append_column(BEFORE_TEXT, texts)
    return rows.append_column(BEFORE_DATASET, datasets.dictionary_encode())


def make_known_from(rows: int, moment: datetime) -> Any:
    """The column `known_from` of rows that were first seen together."""
    entry = pa.scalar(moment, pa.timestamp("us", "UTC"))
    return pa.repeat(entry, rows)


def changes(old: Panel, new: Panel) -> pyarrow.Table:
    """List the changes between two panels of one query, an older and a newer one
    (extra ``arrow``).

    A cell is a series at a period. A cell vanishes or appears only if both queries
    cover its period: a window that moves, as that of ``Annual(last=3)``, reports
    nothing vanished. A series stays the same if it has the same id, metric,
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
    is_one_publication = old.dataset.dataset_id == new.dataset.dataset_id
    if is_one_publication and old.value_version != new.value_version:
        raise SelectionError(
            f"old and new differ in their value version: {old.value_version}, "
            f'{new.value_version}; known_by(original, restated, "FY2024") returns '
            "what was known at a time"
        )
    reject_differing(
        "old and new",
        ("entity", old.dataset.entity_id, new.dataset.entity_id),
        ("value version", old.value_version, new.value_version),
        ("selection", old.select, new.select),
    )
    table = compare(Snapshot.of(old), Snapshot.of(new))
    earliest = old.dataset.created_timestamp + timedelta(microseconds=1)
    known_from = max(new.dataset.created_timestamp, earliest)
    column = make_known_from(len(table), known_from)
    table = table.append_column(KNOWN_FROM, column)
    metadata = make_metadata([old, new])
    return table.replace_schema_metadata(metadata)


def reject_differing(panels: str, *facts: tuple[str, object, object]) -> None:
    """Reject two panels that are not of one query.

    Args:
        panels: the names of the arguments.
        facts: what must be equal: its name, and what it is for either panel.

    Raises:
        SelectionError: they differ; the message names the first difference.
    """
    for name, first, second in facts:
        if first != second:
            raise SelectionError(
                f"{panels} must be panels of one query, but differ in their {name}: "
                f"{checks.short_repr(first)} and {checks.short_repr(second)}"
            )
