"""What was known when a period was reported, from the values that one publication still
has.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

from asyncfin import Panel, Period, checks
from asyncfin.analysis.changes import reject_differing
from asyncfin.analysis.lines import PERIOD_FIELDS, table_metadata
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
    tables = [panel.to_arrow() for panel in (original, restated)]
    first, latest = map(_read_cells, tables)
    restated_ends = dict(latest)
    rows: list[tuple[Any, int, bool]] = []  # the cell, its row, whether it is certain
    undecided_count = 0
    for row, (cell, end) in enumerate(first):
        restated_end = restated_ends.get(cell)
        # A restated value that was reported later leaves the original one to decide;
        # one without a report period leaves the cell undecided.
        if cell not in restated_ends or (restated_end or 0) > last:
            undecided_count += end is None
            if end is not None and end <= last:
                rows.append((cell, row, cell not in restated_ends))
    for row, (cell, end) in enumerate(latest, len(first)):
        undecided_count += end is None
        if end is not None and end <= last:
            rows.append((cell, row, True))
    place = original.catalogue.places
    rows.sort(key=lambda entry: (place[entry[0][0]], entry[0][1:]))
    all_rows = pa.concat_tables(
        [table.replace_schema_metadata(None) for table in tables]
    )
    table = all_rows.unify_dictionaries().take(
        pa.array([row[1] for row in rows], pa.int64())
    )
    table = table.append_column(
        "certain", pa.array([row[2] for row in rows], pa.bool_())
    )
    metadata = table_metadata([original, restated], unreported=undecided_count)
    result: pyarrow.Table = table.replace_schema_metadata(metadata)
    return result


def _check_pair(original: Panel, latest: Panel) -> None:
    versions = original.value_version, latest.value_version
    if versions != ("original", "latest_restated"):
        raise SelectionError(
            "original and restated must be panels of the value versions 'original' and "
            "'latest_restated', in"
            f" this order, not {versions[0]!r} and {versions[1]!r}"
        )
    reject_differing(
        "original and restated",
        ("entity", original.dataset.entity_id, latest.dataset.entity_id),
        ("selection", original.select, latest.select),
        ("series", original.series_ids, latest.series_ids),
        ("periods", original.periods_asked, latest.periods_asked),
    )
    dataset_id = latest.dataset.dataset_id
    if not original.dataset.is_publication(dataset_id):
        raise SelectionError(
            "original and restated must be panels of one publication, not of "
            f"{original.dataset.dataset_id} and {dataset_id}: query both with the same "
            "Catalogue"
        )


def _read_cells(table: Any) -> list[tuple[tuple[Any, ...], int | None]]:
    """Return the cell of each row, and the fiscal end of its report period, if any."""
    names = (*_CELL, "report_year", "report_end_month")
    columns = [table.column(name).to_pylist() for name in names]
    return [
        (tuple(cell), None if year is None or month is None else year * 12 + month)
        for *cell, year, month in zip(*columns, strict=True)
    ]


def _read_period(period: Any) -> Period:
    """Return the period of a label; a date is rejected."""
    if isinstance(period, Period):
        return period
    try:
        is_date = isinstance(period, date)
        day = period if is_date else date.fromisoformat(str(period))
    except ValueError:
        return Period.parse(period)
    raise SelectionError(
        f"reported must be a fiscal period such as FY2023, not {period!r}; for a "
        "date keep a feed:"
        f' as_of(folder, "{day:%Y-%m-%d}")'
    )
