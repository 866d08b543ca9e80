"""A query (spec 4.3): its body, the series that match, the selected periods, and the
joined page.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import reduce
from operator import itemgetter, or_

from attrs import frozen
from msgspec import UNSET
from msgspec.json import encode
from msgspec.structs import astuple, replace

from asyncfin.sandbox.cursor import Position, find_start, hash_selection, seal
from asyncfin.sandbox.dataset import Period
from asyncfin.sandbox.dataset_file import make_period
from asyncfin.sandbox.dialect import Dialect
from asyncfin.sandbox.encode import fiscal_end, write_path, write_version_end
from asyncfin.sandbox.errors import invalid
from asyncfin.sandbox.reader import parse_json, read_fields, show
from asyncfin.sandbox.request import JSON_TYPE, Request
from asyncfin.sandbox.schema import Exact, FiscalRange, Query, Trailing
from asyncfin.sandbox.store import Current, Match, Selection, Store, Stored

Column = tuple[Period, int | None]


@frozen
class Page:
    """The series of a page, and the place of the next page, or None after the last."""

    series: slice
    following: Position | None


def read_query(request: Request) -> Query:
    """Return the body of a query, checked as far as possible without the dataset (spec
    4.3, 8).
    """
    content_type = (
        request.headers.get("content-type", "").partition(";")[0].strip().lower()
    )
    if content_type != JSON_TYPE:
        raise invalid([("Content-Type", f"is not {JSON_TYPE}")])
    coding = request.headers.get("content-encoding", "")
    if coding.lower() not in ("", "identity"):
        raise invalid(
            [("Content-Encoding", f"is {coding!r}; a body is sent without any")]
        )
    try:
        body = parse_json(request.body or b"", whole_numbers=True)
    except (ValueError, RecursionError, OverflowError) as error:
        raise invalid([("body", f"is not JSON in UTF-8 ({error})")]) from None
    if not isinstance(body, dict):
        raise invalid([("body", "is not a JSON object")])
    query = read_fields(body, Query)
    metrics, periods = query.metric_ids, query.periods
    # msgspec can't say that entries are distinct, nor compare two fields (spec 4.3).
    issues = [
        (f"metric_ids[{index}]", f"repeats {show(metric)}; metric IDs are distinct")
        for index, metric in enumerate(metrics)
        if metric in metrics[:index]
    ]
    if isinstance(periods, FiscalRange) and fiscal_end(
        astuple(periods.start)
    ) > fiscal_end(astuple(periods.end)):
        issues.append(("periods.from", "lies after periods.to"))
    if issues:
        raise invalid(issues)
    return query


def query_page(query: Query, current: Current, store: Store, dialect: Dialect) -> bytes:
    """Return the JSON of one page."""
    paths = [write_path(map(astuple, path)) for path in query.scope_combinations]
    # All that decides which series and values there are, whatever the size of a page.
    selection = replace(query, expected_dataset_id=UNSET, limit=1, cursor=UNSET)
    bound_to = hash_selection(encode([current.entity_id, selection]))
    groups = None if query.reporting_group_ids is UNSET else query.reporting_group_ids
    result = store.selection(
        current.number, query.metric_ids, paths, groups, query.value_version
    )
    # Rules 5 and 6 of spec 4.3 have no order, so both ways are right.
    if dialect.ids_before_pin:
        check_ids(query, paths, current, result)
    position = find_start(
        query.cursor, bound_to, query.expected_dataset_id, current.dataset_id, dialect
    )
    if not dialect.ids_before_pin:
        check_ids(query, paths, current, result)
    matches: Sequence[Match] = result.matches
    # Over all matches, not over the page: which periods are selected may not depend on
    # how pages are cut.
    answer = _select_populated(matches)
    columns = select_columns(query.periods, current.periods, answer, dialect)
    bits = sum(1 << index for _, index in columns if index is not None)
    # Before the cut, so that pages are full; with "some" after it, so that a page may
    # be short.
    if dialect.left_out_on == "every":
        matches = list_series(matches, bits, dialect)
    page = cut_page(position, len(matches), query.limit, dialect)
    on_page = matches[page.series]
    if (
        dialect.left_out_on == "some"
        and draw(f"{bound_to} {position.page} left out").random() < 0.5
    ):
        on_page = list_series(on_page, bits, dialect)
    page_columns = _select_periods(columns, answer, _select_populated(on_page), dialect)
    _order(page_columns, dialect, f"{bound_to} {position.page}")
    cursor = make_cursor(page, bound_to, current.dataset_id)
    row = store.series(
        current.number, [match.series for match in on_page], query.value_version
    )
    return _join_result(
        current, page_columns, row, cursor, query.value_version, dialect
    )


def list_series(matches: Sequence[Match], bits: int, dialect: Dialect) -> list[Match]:
    """Return the series that the dialect does not leave out; `bits` has one for a
    selected period.
    """
    return [
        match
        for match in matches
        if (dialect.empty_series or match.valued_periods & bits)
        and (dialect.never_valued or match.valued_periods)
    ]


def draw(seed: str) -> random.Random:
    """Return a source of chance that is the same for the same request, in every
    process.
    """
    return random.Random(seed)  # noqa: S311


def _select_populated(matches: Sequence[Match]) -> int:
    return reduce(or_, (match.valued_periods for match in matches), 0)


def check_ids(
    query: Query, paths: Sequence[str], current: Current, selection: Selection
) -> None:
    """Reject unknown ids (spec 4.3 rule 5)."""
    issues = []
    for name, ids, listed_ids in (
        ("metric_ids", query.metric_ids, selection.metrics),
        ("scope_combinations", paths, selection.paths),
        ("reporting_group_ids", query.reporting_group_ids or (), current.groups),
    ):
        for index, text in enumerate(ids):
            if text not in listed_ids:
                issues.append(
                    (f"{name}[{index}]", f"is {text}, which the dataset does not have")
                )
    if issues:
        raise invalid(issues)


def select_columns(
    choice: Exact | FiscalRange | Trailing,
    periods: Sequence[Period],
    bits: int,
    dialect: Dialect,
) -> list[Column]:
    """Return the selected periods, oldest first (spec 4.3), each with its index in the
    dataset or None.

    `bits` has one for each period in which a matching series has a value of the
    requested version. A trailing window ends at the latest of them; without one the
    window is empty.
    """
    if isinstance(choice, Exact):
        places = {period: index for index, period in enumerate(periods)}
        return [
            (period, places.get(period))
            for period in sorted({astuple(entry) for entry in choice.exact})
        ]
    earliest_start = 0
    if isinstance(choice, FiscalRange):
        low, high = fiscal_end(astuple(choice.start)), fiscal_end(astuple(choice.end))
    else:
        high = max(
            (
                fiscal_end(period)
                for position, period in enumerate(periods)
                if bits >> position & 1
            ),
            default=0,
        )
        # The spec names no bounds of the window (4.3). Here the last month counts, and
        # `months` in all.
        low = high - choice.months + 1
        if dialect.trailing == "within":
            earliest_start = low
    return [
        (period, index)
        for index, period in enumerate(periods)
        if low <= fiscal_end(period) <= high
        and fiscal_end(period) - period[2] + 1 >= earliest_start
    ]


def cut_page(position: Position, total: int, limit: int, dialect: Dialect) -> Page:
    """Return the series of the page at a position, cut as the dialect has it."""
    start, number = position.offset, position.page
    # Only the even pages: each empty one is followed by a full one, or the pages would
    # never end.
    if dialect.pages == "empty" and number % 2 == 0 and start < total:
        return Page(slice(start, start), Position(start, number + 1))
    end = start + (max(1, limit // 2) if dialect.pages == "short" else limit)
    # A cursor only where there is more (spec 4.3 rule 3): the client stops when it is
    # absent.
    return Page(slice(start, end), Position(end, number + 1) if end < total else None)


def make_cursor(page: Page, bound_to: str, dataset_id: str) -> str | None:
    """Return the cursor to what comes after a page, or None."""
    return (
        None if page.following is None else seal(page.following, bound_to, dataset_id)
    )


def _select_periods(
    columns: list[Column], answer: int, page: int, dialect: Dialect
) -> list[Column]:
    if dialect.periods == "asked":
        return columns
    bits = page if dialect.periods == "page" else answer
    return [
        column for column in columns if column[1] is not None and bits >> column[1] & 1
    ]


def _order(columns: list[Column], dialect: Dialect, seed: str) -> None:
    if dialect.order == "newest":
        columns.reverse()
    elif dialect.order == "shuffled":
        draw(seed).shuffle(columns)


def _join_result(
    current: Current,
    columns: list[Column],
    series: Sequence[Stored],
    cursor: str | None,
    value_version: str,
    dialect: Dialect,
) -> bytes:
    """Return a query result (spec 2.4), in one join: its megabytes are copied once."""
    places = [-1 if index is None else index for _, index in columns]
    as_stored = places == list(range(len(current.periods)))
    # itemgetter is the fastest way to pick entries, and returns a single one bare.
    pick = (
        itemgetter(*places)
        if len(places) > 1
        else lambda lines: [lines[place] for place in places]
    )
    periods = encode([make_period(period) for period, _ in columns])
    parts = [current.head, b',"periods":', periods, b',"series":[']
    for position, row in enumerate(series):
        # At place -1, of a period that the dataset does not have, nothing is found.
        values = row.cells if as_stored else b",".join(pick(row.entries))
        values = label_cells(values, value_version, dialect)
        parts += (b"," if position else b"", row.head, b',"values":[', values, b"]}")
    parts += (b"]", write_cursor(cursor, dialect), b"}")
    return b"".join(parts)


def label_cells(values: bytes, value_version: str, dialect: Dialect) -> bytes:
    """Return the cells with the dialect's `value_version` of those never restated."""
    label = "original" if value_version == "original" else dialect.unrestated
    if label == "original":
        return values
    # The end of a cell cannot occur inside one: in a JSON string its quotes would be
    # escaped.
    return values.replace(write_version_end("original"), write_version_end(label))


def write_cursor(cursor: str | None, dialect: Dialect) -> bytes:
    """Return the `next_cursor` member of a page, and the comma before it; nothing where
    it is absent.
    """
    # The spec has "absent" (2.4). Many services send null instead, so a client should
    # accept both.
    if cursor is None and dialect.last_cursor == "absent":
        return b""
    return b',"next_cursor":' + encode(cursor)
