"""What was known when a period was reported, from the values that one publication still
has.
"""

from __future__ import annotations

from datetime import date
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from asyncfin import Panel, Period, checks
from asyncfin.analysis.changes import reject_differing
from asyncfin.analysis.lines import PERIOD_FIELDS, make_metadata
from asyncfin.errors import SelectionError
from asyncfin.optional import pa

if TYPE_CHECKING:
    import pyarrow

_CELL = ("series_id", *PERIOD_FIELDS)
_check_panel = checks.instance_of(Panel)


def known_by(original: Panel, restated: Panel, reported: Period | str) -> pyarrow.Table:
    """Restore the values as they were when a period was reported, from one publication
    (extra ``arrow``).

    Of each cell, a series at a period, it is the restated value if that was reported in
    `reported` or before; else the original value if that was; else the cell has no row.
    The service returns the last restatement only. A cell that was restated repeatedly
    can have had another value then, which `certain` shows. Fiscal periods are compared
    by their ends, and no dates are derived.

    Sends no request.

    Args:
        original: the panel of the original values.
        restated: the panel of the latest restated values, of the same publication and
            query.
        reported: the period, or its label, such as ``"FY2023"`` or ``"FY2024-Q2"``.

    Returns:
        The long table (docs/schema.md), series in catalogue order, each oldest first.
        The column `certain` is False where the cell had been reported by then and was
        restated later. The entry `unreported` of its metadata (the JSON under
        ``asyncfin``) is the number of cells that were left out because the report
        period that decides is missing.

    Raises:
        ArgumentError: an argument is not a Panel.
        SelectionError: the panels are not the original and the latest restated values
            of one publication and query, or `reported` is not a period.
        MalformedAnswerError: a value breaks the spec.
        ImportError: pyarrow is not installed.

    >>> asyncfin.known_by(original, restated, "FY2022")  # doctest: +SKIP
    """
    _check_panel("original", original)
    _check_panel("restated", restated)
    _check_pair(original, restated)
    last = _read_period(reported).fiscal_end
    original_table = original.to_arrow()
    table = pa.concat_tables([original_table, restated.to_arrow()])
    cells = _read_cells(table)
    first_restated_row = len(original_table)
    restated_ends = dict(cells[first_restated_row:])
    rows: list[tuple[Any, int, bool]] = []  # the cell, its row, whether it is certain
    undecided_count = 0
    for row, (cell, end) in enumerate(cells):
        is_certain = row >= first_restated_row or cell not in restated_ends
        # A restated value that was reported later leaves the original one to decide;
        # one without a report period leaves the cell undecided.
        if not is_certain and (restated_ends[cell] or 0) <= last:
            continue
        if end is None:
            undecided_count += 1
        elif end <= last:
            rows.append((cell, row, is_certain))
    places = original.catalogue.places

    def read_order(entry: tuple[Any, int, bool]) -> tuple[int, Any]:
        series_id, *fields = entry[0]
        return places[series_id], fields

    rows.sort(key=read_order)
    row_numbers = pa.array(map(itemgetter(1), rows), pa.int64())
    certain = pa.array(map(itemgetter(2), rows), pa.bool_())
    table = table.unify_dictionaries()
    table = table.take(row_numbers)
    table = table.append_column("certain", certain)
    metadata = make_metadata([original, restated], unreported=undecided_count)
    result: pyarrow.Table = table.replace_schema_metadata(metadata)
    return result


def _check_pair(original: Panel, latest: Panel) -> None:
    versions = original.value_version, latest.value_version
    if versions != ("original", "latest_restated"):
        raise SelectionError(
            "original and restated must be panels of the value versions 'original' and "
            f"'latest_restated', in this order, not {versions[0]!r} and {versions[1]!r}"
        )
    dataset = original.dataset
    latest_dataset = latest.dataset
    reject_differing(
        "original and restated",
        ("entity", dataset.entity_id, latest_dataset.entity_id),
        ("publication", dataset.dataset_id.lower(), latest_dataset.dataset_id.lower()),
        ("selection", original.select, latest.select),
        ("series", original.series_ids, latest.series_ids),
        ("periods", original.periods_asked, latest.periods_asked),
    )


def _read_period(period: Any) -> Period:
    """Read the period of a label; a date is rejected."""
    if isinstance(period, Period):
        return period
    day = period
    if not isinstance(day, date):
        try:
            day = date.fromisoformat(str(period))
        except ValueError:
            return Period.parse(period)
    raise SelectionError(
        f"reported must be a fiscal period such as FY2023, not {period!r}; for a "
        f'date keep a feed: as_of(folder, "{day:%Y-%m-%d}")'
    )


def _read_cells(table: Any) -> list[tuple[tuple[Any, ...], int | None]]:
    """The cell of each row, and the fiscal end of its report period, if any."""
    names = (*_CELL, "report_year", "report_end_month")
    columns = [table.column(name).to_pylist() for name in names]
    cells = []
    for *cell, year, month in zip(*columns, strict=True):
        end = None
        if year is not None and month is not None:
            end = year * 12 + month
        cells.append((tuple(cell), end))
    return cells
