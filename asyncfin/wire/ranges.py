"""Joins the pages of several ranges of one query to the page of a query over all of them (spec 2.4, 4.3).

The service lists periods and series for each range separately. Values are placed by series and period, as the
JSON that was received: what is decoded later, and what is cached, is as of one page.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress

import msgspec
from attrs import evolve

from asyncfin.errors import MalformedAnswerError, error_context
from asyncfin.model.period import Period
from asyncfin.model.selection import FiscalRange, describe
from asyncfin.model.series import CatalogueSeries, triple
from asyncfin.tasks import decoding_lock
from asyncfin.wire.strict import decode
from asyncfin.wire.tolerance import Tolerance
from asyncfin.wire.values import PlannedPage, read_planned_page, series_path

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_objects = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_entries = msgspec.json.Decoder(list[msgspec.Raw])
_NULL = msgspec.Raw(b"null")

# A page, and the range that it is about.
RangePage = tuple[FiscalRange, PlannedPage]


async def joined_ranges(
    pages: Sequence[RangePage],
    wanted: Container[str],
    value_version: str,
    tolerance: Tolerance,
    *,
    periods: Container[Period] | None = None,
    keep_foreign: bool = False,
) -> PlannedPage:
    """Return one page with all series of the pages of one query. What they say of themselves is the first's.

    It has only the given `periods`; None: all. A value of a `wanted` series outside of the range of its page
    is a MalformedAnswerError, and one of a foreign series is dropped.
    """
    first = pages[0][1]
    heads: dict[str, CatalogueSeries] = {}
    for within, page in pages:
        with error_context("query", page.entity_id, page):
            _check(within, page, heads)
    # What is repaired has been reported as the pages were read.
    silent = Tolerance(strict=tolerance.strict)
    async with decoding_lock():
        body = await _joined_body(pages, wanted if not keep_foreign else heads, periods)
        joined = await read_planned_page(body, wanted, value_version, silent, keep_foreign=keep_foreign)
    return evolve(joined, at=pages[-1][1].at, request_id=first.request_id, attempts=first.attempts)


def _contains(within: FiscalRange, period: Period) -> bool:
    return bool(within.among([period]))


def _check(within: FiscalRange, page: PlannedPage, heads: dict[str, CatalogueSeries]) -> None:
    """Refuse a value outside of a page's range, and a series that another range describes as another one."""
    for index, head in enumerate(page.heads):
        if triple(heads.setdefault(head.series_id, head)) != triple(head):
            path = series_path(index, head.series_id)
            raise MalformedAnswerError(f"another range describes it as another series @ {path}")
    populated = {page.periods[at] for at in set(page.wanted.numbers.positions)}
    said = describe(within)
    if outside := sorted(period for period in populated if not _contains(within, period)):
        raise MalformedAnswerError(
            f"series {_first_at(page, period)} has a value at {period}, outside of {said} @ $.series"
            for period in outside
        )


def _first_at(page: PlannedPage, period: Period) -> str:
    """Return the id of a wanted series with a value at a period."""
    indices, (starts, positions, _) = page.wanted
    place = list(positions).index(page.periods.index(period))
    row = bisect_right(starts, place) - 1  # the last that begins there: those before it are empty
    return page.heads[indices[row]].series_id


async def _joined_body(
    pages: Sequence[RangePage], kept: Container[str], periods: Container[Period] | None
) -> bytes:
    """Return the JSON of all pages as one page, with the values of the series that are kept."""
    columns: dict[Period, int] = {}
    for within, page in pages:
        for period in page.periods:
            if _contains(within, period) and (periods is None or period in periods):
                columns.setdefault(period, len(columns))
    series: dict[str, dict[str, msgspec.Raw]] = {}
    values: dict[str, list[msgspec.Raw]] = {}
    for within, page in pages:
        await asyncio.sleep(0)  # others run between two pages
        places = [columns.get(period) if _contains(within, period) else None for period in page.periods]
        found = decode(bytes(decode(page.body, _object)["series"]), _objects)
        for head, raw in zip(page.heads, found, strict=True):
            series.setdefault(head.series_id, raw)
            row = values.setdefault(head.series_id, [_NULL] * len(columns))
            if head.series_id in kept:
                for place, entry in _placed(raw["values"], places):
                    row[place] = entry
    body = decode(pages[0][1].body, _object)
    body.pop("next_cursor", None)
    rows = [raw | {"values": values[series_id]} for series_id, raw in series.items()]
    return msgspec.json.encode({**body, "periods": [*columns], "series": rows})


def _placed(values: msgspec.Raw, places: Sequence[int | None]) -> Iterator[tuple[int, msgspec.Raw]]:
    """Yield the values of an array with their places; of an invalid one, and without a place, none."""
    with suppress(MalformedAnswerError):  # of a foreign series; those of wanted ones have been read
        entries = decode(values, _entries)
        if len(entries) == len(places):
            for place, entry in zip(places, entries, strict=True):
                if place is not None:
                    yield place, entry
