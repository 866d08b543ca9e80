"""Runs a plan: its batches in flight, a restart on a new publication, and the check that all came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import partial
from typing import TypeAlias

from asyncfin.errors import (
    DatasetChangedError,
    IncompleteResultError,
    MalformedAnswerError,
    SelectionError,
)
from asyncfin.fanout.catalogues import Catalogues, Reading
from asyncfin.fanout.plan import Batch, Plan
from asyncfin.fanout.plan import plan as make_plan
from asyncfin.fanout.stitch import Stitch
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.period import (
    FiscalRange,
    Period,
    PeriodSelection,
    Trailing,
    check_period_selection,
    resolve,
)
from asyncfin.model.query import MAX_PAGE_SIZE, check_value_version
from asyncfin.model.select import Select, check_select
from asyncfin.model.series import CatalogueSeries
from asyncfin.table.panel import Panel
from asyncfin.wire.codec import error_context
from asyncfin.wire.pages import query_pages
from asyncfin.wire.protocol import check_entity_id
from asyncfin.wire.sender import Sender
from asyncfin.wire.tasks import bounded, resumable
from asyncfin.wire.values import QueryPage, series_path

# Planning for more series takes so long that the loop should not stop for it.
_PLANNED_INLINE = 1000

Arrival: TypeAlias = tuple[Batch, list[QueryPage]]


class Runner:
    """Plans questions and answers them, with what one client knows of its service."""

    def __init__(self, sender: Sender, catalogues: Catalogues, max_in_flight: int) -> None:
        self._sender = sender
        self._catalogues = catalogues
        self._max_in_flight = max_in_flight
        # What the service has shown of its way with series without values, which spec 4.3 leaves open.
        self._lists_empty = False
        self._leaves_out_empty = False

    async def plan(
        self, source: str | Catalogue, select: Select, periods: PeriodSelection, value_version: str
    ) -> Plan:
        """Return the plan for a question, as `Client.plan` says."""
        return await self._planned(Reading(self._sender, "plan"), source, select, periods, value_version)

    async def query(
        self, source: str | Catalogue, select: Select, periods: PeriodSelection, value_version: str
    ) -> Panel:
        """Return the answer to a question, as `Client.query` says."""
        reading = Reading(self._sender, "query")
        return await self._answered(
            reading, await self._planned(reading, source, select, periods, value_version)
        )

    async def run(self, plan: Plan) -> Panel:
        """Return the answer to a planned question, as `Client.run` says."""
        return await self._answered(Reading(self._sender, "query"), plan)

    @asynccontextmanager
    async def stream(
        self, source: str | Catalogue, select: Select, periods: PeriodSelection, value_version: str
    ) -> AsyncGenerator[AsyncIterator[Panel], None]:
        """Give the answer in pieces, as `Client.stream` says."""
        reading = Reading(self._sender, "stream")
        plan = await self._planned(reading, source, select, periods, value_version)
        async with resumable(self._streamed(reading, plan)) as pieces:
            yield pieces

    async def _planned(
        self,
        reading: Reading,
        source: str | Catalogue,
        select: Select,
        periods: PeriodSelection,
        value_version: str,
    ) -> Plan:
        """Plan with a kept catalogue, but never refuse, or answer with nothing, by a stale one."""
        check_select(select)
        check_period_selection(periods)
        check_value_version(value_version)
        if isinstance(source, Catalogue):
            return await _plan(source, select, periods, value_version, pinned=True)
        check_entity_id(source)
        if kept := self._catalogues.kept(source):
            try:
                plan = await _plan(kept, select, periods, value_version, pinned=False)
            except SelectionError:
                plan = None
            if plan is not None and plan.batches:
                return plan
        current = await self._catalogues.current(source, reading)
        return await _plan(current, select, periods, value_version, pinned=False)

    async def _replanned(self, reading: Reading, plan: Plan, error: DatasetChangedError) -> Plan:
        """Return the plan for the publication that took the place of the plan's own."""
        if plan.pinned:
            raise error
        entity_id = plan.catalogue.entity_id
        reading.start_over(entity_id, error)
        self._catalogues.forget(plan.catalogue)
        current = await self._catalogues.current(entity_id, reading)
        return await _plan(current, plan.select, plan.period_selection, plan.value_version, pinned=False)

    async def _answered(self, reading: Reading, plan: Plan) -> Panel:
        while True:
            try:
                return await self._whole(reading, plan)
            except DatasetChangedError as error:
                changed = error
            plan = await self._replanned(reading, plan, changed)

    async def _whole(self, reading: Reading, plan: Plan) -> Panel:
        stitch = Stitch(plan.catalogue, plan.series, plan.periods)
        async with self._arrivals(reading, plan.catalogue.entity_id, plan.batches) as arrivals:
            async for batch, pages in arrivals:
                await _add(stitch, batch, pages)
        await self._complete(reading, plan, stitch, stitch.anchor)
        return _panel(reading, plan, stitch)

    async def _streamed(self, reading: Reading, plan: Plan) -> AsyncGenerator[Panel, None]:
        given = False
        while True:
            try:
                async with aclosing(self._pieces(reading, plan)) as pieces:
                    async for piece in pieces:
                        given = True
                        yield piece
                return
            except DatasetChangedError as error:
                if given:
                    raise
                changed = error
            plan = await self._replanned(reading, plan, changed)

    async def _pieces(self, reading: Reading, plan: Plan) -> AsyncGenerator[Panel, None]:
        """Yield a panel of each batch, as soon as its window is certain, and one of what was absent."""
        held = _HeldBack(plan)
        absent = {series.series_id: series for series in plan.series}
        async with self._arrivals(reading, plan.catalogue.entity_id, plan.batches) as arrivals:
            async for batch, pages in arrivals:
                came = batch.home.intersection(raw.series_id for page in pages for raw in page.raw_series)
                home = tuple(series for each, series in absent.items() if each in came)
                absent = {each: series for each, series in absent.items() if each not in came}
                stitch = Stitch(plan.catalogue, home, plan.periods)
                await _add(stitch, batch, pages)
                self._lists_empty |= stitch.lists_empty
                for piece in held.add(stitch):
                    yield _panel(reading, plan, piece, held.anchor)
        rest = Stitch(plan.catalogue, tuple(absent.values()), plan.periods)
        await self._complete(reading, plan, rest, held.anchor)
        for piece in held.end(rest):
            yield _panel(reading, plan, piece, held.anchor)

    def _arrivals(
        self, reading: Reading, entity_id: str, batches: Sequence[Batch]
    ) -> AbstractAsyncContextManager[AsyncIterator[Arrival]]:
        """Give the pages of each batch, whichever are there first."""
        jobs = [partial(_read_batch, reading, batch, entity_id) for batch in batches]
        return bounded(jobs, self._max_in_flight)

    async def _complete(self, reading: Reading, plan: Plan, stitch: Stitch, anchor: Period | None) -> None:
        """Make sure that no planned series is lost.

        Absent ones are lost if this service lists series without values. As long as that is not known,
        they are asked for once more, together: if none comes then, it leaves such series out.

        Raises:
            IncompleteResultError: a series is lost.
        """
        self._lists_empty |= stitch.lists_empty
        absent = stitch.absent if plan.batches else ()
        if absent and not self._lists_empty and not self._leaves_out_empty:
            again = _batches_again(plan, absent, anchor)
            async with self._arrivals(reading, plan.catalogue.entity_id, again) as arrivals:
                async for batch, pages in arrivals:
                    await _add(stitch, batch, pages)
            self._lists_empty |= stitch.lists_empty
            self._leaves_out_empty = stitch.absent == absent
            absent = stitch.absent
        if absent and self._lists_empty:
            raise _lost(reading, plan, absent)


class _HeldBack:
    """Pieces of a stream. Those of a `Trailing` wait until it is certain where its window ends."""

    def __init__(self, plan: Plan) -> None:
        self._trailing = isinstance(plan.periods, Trailing)
        self._last = max(plan.catalogue.periods, default=None)
        self._pieces: list[Stitch] = []
        self.anchor: Period | None = None

    def add(self, piece: Stitch) -> list[Stitch]:
        """Take a piece, and return those that can be given away now."""
        if piece.series:
            self._pieces.append(piece)
        if not self._trailing:
            return self._released()
        self.anchor = max(filter(None, (self.anchor, piece.anchor)), default=None)
        certain = self.anchor and self._last and self.anchor.fiscal_end == self._last.fiscal_end
        return self._released() if certain else []

    def end(self, rest: Stitch) -> list[Stitch]:
        """Take what came last, if anything, and return all that is left."""
        return [*self.add(rest), *self._released()]

    def _released(self) -> list[Stitch]:
        released, self._pieces = self._pieces, []
        return released


async def _plan(
    catalogue: Catalogue, select: Select, periods: PeriodSelection, value_version: str, *, pinned: bool
) -> Plan:
    wanted = catalogue.select(select)
    make = partial(
        make_plan,
        catalogue,
        wanted,
        catalogue.resolve(periods) if wanted else None,
        select=select,
        period_selection=periods,
        value_version=value_version,
        pinned=pinned,
    )
    return make() if len(wanted) <= _PLANNED_INLINE else await asyncio.to_thread(make)


async def _read_batch(reading: Reading, batch: Batch, entity_id: str) -> Arrival:
    pages = query_pages(
        reading.send,
        entity_id,
        batch,
        page_size=MAX_PAGE_SIZE,
        prefetch=False,
        check=partial(_refuse_unlisted, batch),  # by id; what each id stands for, the stitch compares
    )
    async with aclosing(pages):
        return batch, [page async for page in pages]


async def _add(stitch: Stitch, batch: Batch, pages: list[QueryPage]) -> None:
    for page in pages:
        with error_context("query", page.entity_id, page):
            await stitch.add(page, home=batch.home, asked=batch.periods)


def _refuse_unlisted(batch: Batch, page: QueryPage) -> None:
    for at, raw in enumerate(page.raw_series):
        if raw.series_id not in batch.matched:
            raise MalformedAnswerError(
                f"the catalogue lists no such series @ {series_path(at, raw.series_id)}"
            )


def _panel(reading: Reading, plan: Plan, stitch: Stitch, anchor: Period | None = None) -> Panel:
    return stitch.panel(
        select=plan.select, value_version=plan.value_version, requests=reading.requests, anchor=anchor
    )


def _batches_again(plan: Plan, absent: Sequence[CatalogueSeries], anchor: Period | None) -> tuple[Batch, ...]:
    """Return the batches that ask for absent series once more.

    A `Trailing` is asked as the range from its window's start on: alone, the series would move it.
    """
    periods = plan.periods
    if isinstance(periods, Trailing):
        spanned = [
            period
            for period in plan.catalogue.periods
            if anchor is None or period > anchor or periods.reaches(period, anchor)
        ]
        periods = resolve(FiscalRange(), spanned)
    return make_plan(
        plan.catalogue,
        absent,
        periods,
        select=plan.select,
        period_selection=plan.period_selection,
        value_version=plan.value_version,
        pinned=plan.pinned,
    ).batches


def _lost(reading: Reading, plan: Plan, absent: Sequence[CatalogueSeries]) -> IncompleteResultError:
    ids = [series.series_id for series in absent]
    named = ", ".join(ids[:20]) + (", ..." if len(ids) > 20 else "")
    return IncompleteResultError(
        f"{len(ids)} of the {len(plan.series)} planned series did not come: {named}",
        series_ids=ids,
        operation="query",
        entity_id=plan.catalogue.entity_id,
        at=reading.answered_at,
    )
