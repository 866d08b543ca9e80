"""What was known when a period was reported, from the values that one publication still
has.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

from asyncfin import Panel, checks
from asyncfin.analysis.cells import numbered, plain, stacked
from asyncfin.analysis.changes import refuse_differing
from asyncfin.analysis.lines import PERIOD_FIELDS, table_metadata
from asyncfin.errors import SelectionError
from asyncfin.model.catalogue import is_same_publication
from asyncfin.model.period import Period
from asyncfin.optional import compute, pa

if TYPE_CHECKING:
    import pyarrow

_CELL = ("series_id", *PERIOD_FIELDS)
_check_panel = checks.instance_of(Panel)


def known_by(original: Panel, restated: Panel, reported: Period | str) -> pyarrow.Table:
    """Return what was known when a period was reported, from one publication (extra
    ``arrow``).

    Of each cell, a series at a period, it is the restated value if that was reported in
    `reported` or before; else the original value if that was; else the cell has no row.
    The service keeps the last restatement only: a cell that was restated several times
    can have had another value then, which `certain` shows. Fiscal periods are compared
    by their ends, and no dates are derived.

    Sends no request.

    Args:
        original: the panel of the original values.
        restated: the panel of the latest restated values, of the same publication and
            question.
        reported: the period, or its label, such as ``"FY2023"`` or ``"FY2024-Q2"``.

    Returns:
        The long table (docs/schema.md), series in catalogue order, each oldest first,
        and the column
        `certain`: False where the cell had been reported by then and was restated
            later. The entry
        `unreported` of its metadata (the JSON under ``asyncfin``) is the number of
        cells that were left out
        because the report period that decides is missing.

    Raises:
        ArgumentError: an argument is not a Panel.
        SelectionError: the panels are not the original and the latest restated values
            of one publication and question, or `reported` is not a period.
        MalformedAnswerError: a value breaks the spec.
        ImportError: pyarrow is not installed.

    >>> asyncfin.known_by(original, restated, "FY2022")  # doctest: +SKIP
    """
    _check_panel("original", original)
    _check_panel("restated", restated)
    _check_pair(original, restated)
    reported = _period(reported)
    first, latest = original.to_arrow(), restated.to_arrow()
    cells = numbered(stacked([first, latest], _CELL), _CELL)
    of_first, of_latest = cells[: len(first)], cells[len(first) :]
    ends = [_ends(table) for table in (first, latest)]
    known = [
        compute.less_equal(end, reported.fiscal_end) for end in ends
    ]  # null without a report period
    # A restated value that was reported later leaves the original one to decide; one
    # without a report period leaves the cell undecided.
    at = compute.index_in(of_first, value_set=of_latest)
    restated_known = known[1].take(at)
    is_later = compute.and_(
        compute.is_valid(at), compute.fill_null(compute.invert(restated_known), False)
    )
    is_first = compute.and_(
        compute.or_(compute.is_null(at), is_later), compute.fill_null(known[0], False)
    )
    is_latest = compute.fill_null(known[1], False)
    rows = pa.concat_tables([
        _certain(first.filter(is_first), compute.invert(is_later).filter(is_first)),
        _certain(latest.filter(is_latest), None),
    ])  # fmt: skip
    undecided = compute.and_(
        compute.or_(compute.is_null(at), is_later), compute.is_null(known[0])
    )
    unreported = compute.sum(undecided).as_py() or 0
    unreported += compute.sum(compute.is_null(known[1])).as_py() or 0
    table = _ordered(rows.unify_dictionaries(), original)
    metadata = table_metadata([original, restated], unreported=unreported)
    return table.replace_schema_metadata(metadata)


def _check_pair(original: Panel, restated: Panel) -> None:
    versions = original.value_version, restated.value_version
    if versions != ("original", "latest_restated"):
        raise SelectionError(
            "original and restated must be panels of the value versions 'original' and "
            "'latest_restated', in"
            f" this order, not {versions[0]!r} and {versions[1]!r}"
        )
    refuse_differing(
        "original and restated",
        ("entity", original.dataset.entity_id, restated.dataset.entity_id),
        ("selection", original.select, restated.select),
        ("series", original.series_ids, restated.series_ids),
        ("periods", original.periods_asked, restated.periods_asked),
    )
    one, other = original.dataset.dataset_id, restated.dataset.dataset_id
    if not is_same_publication(one, other):
        raise SelectionError(
            f"original and restated must be panels of one publication, not of {one} "
            f"and {other}: query both"
            " with the same Catalogue"
        )


def _ends(table: Any) -> Any:
    """Return the fiscal end of each row's report period, null where there is none."""
    years, months = (
        plain(table.column("report_year")),
        plain(table.column("report_end_month")),
    )
    return compute.add(compute.multiply(years, 12), months)


def _period(reported: Any) -> Period:
    """Return the period of a label; a date is refused with what takes one."""
    if isinstance(reported, Period):
        return reported
    try:
        day = (
            reported
            if isinstance(reported, date)
            else date.fromisoformat(str(reported))
        )
    except ValueError:
        return Period.parse(reported)
    raise SelectionError(
        f"reported must be a fiscal period such as FY2023, not {reported!r}; for a "
        "date keep a feed:"
        f' as_of(folder, "{day:%Y-%m-%d}")'
    )


def _certain(rows: Any, certain: Any) -> Any:
    certain = pa.repeat(pa.scalar(True), len(rows)) if certain is None else certain
    return rows.replace_schema_metadata(None).append_column("certain", certain)


def _ordered(rows: Any, panel: Panel) -> Any:
    """Return the rows in catalogue order, each series oldest first."""
    ids = pa.array(list(panel.catalogue.places), pa.string())
    place = compute.index_in(plain(rows.column("series_id")), value_set=ids)
    order = {"place": place, **{name: rows.column(name) for name in PERIOD_FIELDS}}
    keys = [(name, "ascending") for name in order]
    return rows.take(compute.sort_indices(pa.table(order), sort_keys=keys))
