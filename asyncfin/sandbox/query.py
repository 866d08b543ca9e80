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
    content_type = request.headers.get("content-type", "").partition(";")[0]
    if content_type.strip().lower() != JSON_TYPE:
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
    # msgspec can't say that entries are distinct, nor compare two fields (spec 4.3).
    issues = []
    metrics: set[str] = set()
    for index, metric in enumerate(query.metric_ids):
        if metric in metrics:
            problem = f"repeats {show(metric)}; metric IDs are distinct"
            issues.append((f"metric_ids[{index}]", problem))
        metrics.add(metric)
    periods = query.periods
    if isinstance(periods, FiscalRange):
        start = fiscal_end(astuple(periods.start))
        end = fiscal_end(astuple(periods.end))
        if start > end:
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
    groups: Sequence[str] | None = None
    if query.reporting_group_ids is not UNSET:
        groups = query.reporting_group_ids
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
    series_numbers = [match.series for match in on_page]
    row = store.series(current.number, series_numbers, query.value_version)
    return _join_result(
        current, page_columns, row, cursor, query.value_version, dialect
    )


def list_series(matches: Sequence[Match], bits: int, dialect: Dialect) -> list[Match]:
    """Return the series that the dialect does not leave out; `bits` has one for a
    selected period.
    """
    listed_matches = []
    for match in matches:
        if not dialect.empty_series and not match.valued_periods & bits:
            continue
        if dialect.never_valued or match.valued_periods:
            listed_matches.append(match)
    return listed_matches


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
                problem = f"is {text}, which the dataset does not have"
                issues.append((f"{name}[{index}]", problem))
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
        places = dict(zip(periods, range(len(periods)), strict=True))
        exact_periods = sorted(set(map(astuple, choice.exact)))
        return [(period, places.get(period)) for period in exact_periods]
    earliest_start = 0
    if isinstance(choice, FiscalRange):
        low = fiscal_end(astuple(choice.start))
        high = fiscal_end(astuple(choice.end))
    else:
        high = 0
        for position, period in enumerate(periods):
            if bits >> position & 1:
                high = max(high, fiscal_end(period))
        # The spec names no bounds of the window (4.3). Here the last month counts, and
        # `months` in all.
        low = high - choice.months + 1
        if dialect.trailing == "within":
            earliest_start = low
    columns: list[Column] = []
    for index, period in enumerate(periods):
        end = fiscal_end(period)
        start = end - period[2] + 1
        if low <= end <= high and start >= earliest_start:
            columns.append((period, index))
    return columns


def cut_page(position: Position, total: int, limit: int, dialect: Dialect) -> Page:
    """Return the series of the page at a position, cut as the dialect has it."""
    start, number = position.offset, position.page
    # Only the even pages: each empty one is followed by a full one, or the pages would
    # never end.
    if dialect.pages == "empty" and number % 2 == 0 and start < total:
        return Page(slice(start, start), Position(start, number + 1))
    if dialect.pages == "short":
        limit = max(1, limit // 2)
    end = start + limit
    # A cursor only where there is more (spec 4.3 rule 3): the client stops when it is
    # absent.
    following = None
    if end < total:
        following = Position(end, number + 1)
    return Page(slice(start, end), following)


def make_cursor(page: Page, bound_to: str, dataset_id: str) -> str | None:
    """Return the cursor to what comes after a page, or None."""
    if page.following is None:
        return None
    return seal(page.following, bound_to, dataset_id)


def _select_periods(
    columns: list[Column], answer: int, page: int, dialect: Dialect
) -> list[Column]:
    if dialect.periods == "asked":
        return columns
    bits = answer
    if dialect.periods == "page":
        bits = page
    selected_columns: list[Column] = []
    for period, index in columns:
        if index is not None and bits >> index & 1:
            selected_columns.append((period, index))
    return selected_columns


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
    places = []
    for _, index in columns:
        places.append(-1 if index is None else index)
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
    label = dialect.unrestated
    if "original" in (value_version, label):
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
