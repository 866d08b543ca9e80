"""Running a query (spec 4.3): which series match, which periods are selected, and the joined page."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import reduce
from operator import or_

from attrs import frozen

from asyncfin.sandbox.cursor import Position, seal, start_of
from asyncfin.sandbox.dataset import Period
from asyncfin.sandbox.dialect import Dialect
from asyncfin.sandbox.encode import BETWEEN, NULL, fiscal_end, version_end
from asyncfin.sandbox.fields import Issues
from asyncfin.sandbox.json_place import period_object
from asyncfin.sandbox.request import encode
from asyncfin.sandbox.selection import Exact, FiscalRange, Selection, Trailing
from asyncfin.sandbox.store import Current, Match, Store, Stored

Column = tuple[Period, int | None]


@frozen
class Page:
    """Which of the series stand on a page, and what comes after it (None: nothing)."""

    series: slice
    following: Position | None


def query_page(selection: Selection, current: Current, store: Store, dialect: Dialect) -> bytes:
    """The JSON of one page; raises RefusedError: 409 for an old pin or cursor, 400 for unknown ids."""
    bound_to = selection.fingerprint(current.entity_id)
    if dialect.ids_before_pin:
        _check_ids(selection, current, store)
    position = start_of(
        selection.cursor, bound_to, selection.expected_dataset_id, current.dataset_id, dialect
    )
    if not dialect.ids_before_pin:
        _check_ids(selection, current, store)
    matches = store.matching(
        current.number,
        selection.metric_ids,
        selection.scope_combinations,
        selection.reporting_group_ids,
        selection.value_version,
    )
    answer = _populated(matches)
    columns = selected_columns(selection.periods, current.periods, answer, dialect)
    selected = sum(1 << index for _, index in columns if index is not None)
    if dialect.left_out_on == "every":
        matches = _listed_series(matches, selected, dialect)
    page = cut_page(position, len(matches), selection.limit, dialect)
    on_page = matches[page.series]
    if dialect.left_out_on == "some" and _draw(f"{bound_to} {position.page} left out").random() < 0.5:
        on_page = _listed_series(on_page, selected, dialect)
    listed = _listed(columns, answer, _populated(on_page), dialect)
    _order(listed, dialect, f"{bound_to} {position.page}")
    cursor = next_cursor(page, bound_to, current.dataset_id)
    stored = store.encoded([match.series for match in on_page], selection.value_version)
    return _joined(current, listed, stored, cursor, selection.value_version, dialect)


def _listed_series(matches: Sequence[Match], selected: int, dialect: Dialect) -> list[Match]:
    """Return the series that the dialect does not leave out; `selected` has a bit for a selected period."""
    return [
        match
        for match in matches
        if (dialect.empty_series or match.populated & selected) and (dialect.never_valued or match.populated)
    ]


def _draw(seed: str) -> random.Random:
    """Return a source of chance that is the same for the same request, in every process."""
    return random.Random(seed)  # noqa: S311


def _populated(matches: Sequence[Match]) -> int:
    return reduce(or_, (match.populated for match in matches), 0)


def _check_ids(selection: Selection, current: Current, store: Store) -> None:
    """spec 4.3 rule 5."""
    metrics, paths = selection.metric_ids, selection.scope_combinations
    issues = Issues()
    for name, ids, known in (
        ("metric_ids", metrics, store.known_metrics(current.number, metrics)),
        ("scope_combinations", paths, store.known_paths(current.number, paths)),
        ("reporting_group_ids", selection.reporting_group_ids or (), current.groups),
    ):
        for at, text in enumerate(ids):
            if text not in known:
                issues.add(f"{name}[{at}]", f"is {text}, which the dataset does not have")
    issues.refuse()


def selected_columns(
    choice: Exact | FiscalRange | Trailing, periods: Sequence[Period], populated: int, dialect: Dialect
) -> list[Column]:
    """Return the selected periods, oldest first (spec 4.3), each with its index in the dataset or None.

    `populated` has a bit for each period in which a matching series has a value of the version asked for.
    Trailing ends at the latest of them, and holds what ends in the window, whatever its duration, or in the
    narrower reading what lies within it whole. Without a populated period there is no window.
    """
    if isinstance(choice, Exact):
        places = {period: index for index, period in enumerate(periods)}
        return [(period, places.get(period)) for period in sorted(choice.periods)]
    if isinstance(choice, Trailing):
        ends = [fiscal_end(period) for at, period in enumerate(periods) if populated >> at & 1]
        if not ends:
            return []
        window = FiscalRange(max(ends) - choice.months + 1, max(ends))
        columns = selected_columns(window, periods, populated, dialect)
        if dialect.trailing == "within":
            columns = [each for each in columns if fiscal_end(each[0]) - each[0][2] + 1 >= window.start]
        return columns
    return [
        (period, index)
        for index, period in enumerate(periods)
        if choice.start <= fiscal_end(period) <= choice.end
    ]


def cut_page(position: Position, total: int, limit: int, dialect: Dialect) -> Page:
    """The series of the page at a position, by the dialect's way of cutting."""
    start, number = position.offset, position.page
    if dialect.pages == "empty" and number % 2 == 0 and start < total:
        return Page(slice(start, start), Position(start, number + 1))
    end = start + (max(1, limit // 2) if dialect.pages == "short" else limit)
    return Page(slice(start, end), Position(end, number + 1) if end < total else None)


def next_cursor(page: Page, bound_to: str, dataset_id: str) -> str | None:
    """The cursor to what comes after a page, or None."""
    return None if page.following is None else seal(page.following, bound_to, dataset_id)


def _listed(columns: list[Column], answer: int, page: int, dialect: Dialect) -> list[Column]:
    if dialect.periods == "asked":
        return columns
    populated = page if dialect.periods == "page" else answer
    return [column for column in columns if column[1] is not None and populated >> column[1] & 1]


def _order(columns: list[Column], dialect: Dialect, seed: str) -> None:
    if dialect.order == "newest":
        columns.reverse()
    elif dialect.order == "shuffled":
        _draw(seed).shuffle(columns)


def _joined(
    current: Current,
    columns: list[Column],
    series: Sequence[Stored],
    cursor: str | None,
    value_version: str,
    dialect: Dialect,
) -> bytes:
    """A query result (spec 2.4), in one join: its megabytes are copied once."""
    places: list[int] | None = [-1 if index is None else index for _, index in columns]
    if places == list(range(len(current.periods))):
        places = None
    periods = encode([period_object(period) for period, _ in columns])
    parts = [current.head, b',"periods":', periods, b',"series":[']
    for at, stored in enumerate(series):
        values = _labelled(_values(stored.cells, places), value_version, dialect)
        parts += (b"," if at else b"", stored.head, b',"values":[', values, b"]}")
    parts += (b"]", cursor_member(cursor, dialect), b"}")
    return b"".join(parts)


def _values(cells: bytes, places: Sequence[int] | None) -> bytes:
    """The cells at these places, joined (None: all as stored); at place -1 there is no value."""
    if places is None:
        return cells
    lines = [*cells.split(BETWEEN), NULL]
    return b",".join([lines[place] for place in places])


def _labelled(values: bytes, value_version: str, dialect: Dialect) -> bytes:
    """The cells with the `value_version` that the dialect gives those never restated.

    The end of a cell cannot stand inside one: in a JSON string its quotes would be escaped.
    """
    unrestated = "original" if value_version == "original" else dialect.unrestated
    if unrestated == "original":
        return values
    return values.replace(version_end("original"), version_end(unrestated))


def cursor_member(cursor: str | None, dialect: Dialect) -> bytes:
    """The `next_cursor` of a page with what comes before it; on the last page as the dialect has it."""
    if cursor is None and dialect.last_cursor == "absent":
        return b""
    return b',"next_cursor":' + encode(cursor)
