"""Runs an extraction: entities side by side, each read, written and noted as a whole."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Literal, TypeAlias

from anyio import CapacityLimiter, to_thread
from attrs import define, field, frozen

from asyncfin import checks
from asyncfin.client import Client
from asyncfin.clock import utc_now
from asyncfin.errors import (
    AllowanceExhaustedError,
    AuthenticationError,
    BucketUnavailableError,
    IncompleteResultError,
    MalformedAnswerError,
    SelectionError,
    ServiceError,
    TransportError,
)
from asyncfin.extraction.entity import read
from asyncfin.extraction.history import History
from asyncfin.extraction.parquet import encode
from asyncfin.extraction.progress import Tracker
from asyncfin.extraction.question import SharedQuestion
from asyncfin.extraction.report import (
    EntityReport,
    EntityState,
    ExtractReport,
    Failure,
    Stopped,
    missing_in_all,
    named,
    unknown_to_all,
)
from asyncfin.extraction.store import Store
from asyncfin.model.catalogue import Catalogue
from asyncfin.plan.question import Missing
from asyncfin.read.entity import EntityAnswer
from asyncfin.tasks import bounded

OnError: TypeAlias = Literal["continue", "raise"]

_log = logging.getLogger("asyncfin")
# What can be wrong with one entity alone.
FAILURES = (ServiceError, TransportError, MalformedAnswerError, IncompleteResultError, SelectionError)
# What is half read when the allowance ends is lost. If a small allowance were spread over many entities,
# none would ever be done: so two are read at once at first, and one more for every eight done.
_READ_AT_FIRST = 2
_DONE_FOR_ONE_MORE = 8
# A name that none of this many entities has is probably misspelt.
ENOUGH_TO_DOUBT = 3
# How often a run that sleeps reports it, and looks at the wall clock: the monotonic one may stand still.
_LOOK_SECONDS = 10.0


@frozen(kw_only=True)
class Options:
    """The options of a run, as `extract` describes them.

    Raises:
        ArgumentError: one is not as described.
    """

    on_error: OnError = field(validator=checks.one_of("continue", "raise").field)
    refresh: bool = field(validator=checks.flag.field)
    wait: bool = field(default=False, validator=checks.flag.field)
    allow_unknown: bool = field(validator=checks.flag.field)
    stop: asyncio.Event = field(factory=asyncio.Event, validator=checks.instance_of(asyncio.Event).field)
    clock: Callable[[], datetime] = field(default=utc_now, validator=checks.plain_callable.field)


@define
class Run:
    """One run, from its first entity to its last."""

    _client: Client
    _question: SharedQuestion
    _store: Store
    _tracker: Tracker
    _options: Options
    _history: History | None = None
    # One at a time: encoding takes memory, and the interpreter's lock.
    _encoding: CapacityLimiter = field(factory=partial(CapacityLimiter, 1))
    _reading: asyncio.Semaphore = field(factory=partial(asyncio.Semaphore, _READ_AT_FIRST))
    _done: int = 0  # since the allowance was last used up
    _stopped: Stopped | None = None
    _first: list[tuple[Missing, bool]] = field(factory=list)  # what they lack, and whether that is all
    found_nothing: bool = False  # whether the first entities have nothing, because of names that they lack
    _example: Catalogue | None = None  # the last one that lacked something

    async def over(self, ids: tuple[str, ...]) -> ExtractReport:
        """Return the report on all entities."""
        by_id = await self._entities(ids)
        unknown: Missing = {}
        if self._in_doubt:
            read = (each.missing for each in by_id.values() if each.state in ("done", "unchanged"))
            unknown = missing_in_all(read)
            if not unknown:  # one that was being read meanwhile has something
                self.found_nothing = False
                by_id |= await self._entities(tuple(each for each in ids if by_id[each].state == "left"))
        entities = tuple(by_id[entity_id] for entity_id in ids)
        unknown = unknown or await asyncio.to_thread(unknown_to_all, entities)
        return ExtractReport(
            entities,
            self._tracker.seconds,
            self._tracker.waits,
            self._stopped,
            unknown,
            self._example.complaint(unknown) if self._example and unknown else None,
        )

    async def _entities(self, ids: tuple[str, ...]) -> dict[str, EntityReport]:
        by_id: dict[str, EntityReport] = {}
        with self._client.observed(self._tracker), self._tracker.counting():
            # Entities without a file come first: asking whether files are current could use up an allowance.
            for has_file in (False, True):
                chosen = [each for each in ids if (each in self._store.known) == has_file]
                jobs = [partial(self._entity, each, has_file) for each in chosen if each not in by_id]
                async with bounded(jobs, self._client.max_in_flight) as reports:
                    by_id |= {report.entity_id: report async for report in reports}
        return by_id

    @property
    def _in_doubt(self) -> bool:
        return self.found_nothing and not self._options.allow_unknown

    @property
    def _ending(self) -> bool:
        return self._stopped is not None or self._in_doubt or self._options.stop.is_set()

    async def _entity(self, entity_id: str, has_file: bool) -> EntityReport:
        """Return the report on one entity: "left" if the run ends before its turn."""
        while not self._ending:
            self._store.files.check()
            try:
                if (report := await self._read(entity_id, has_file)) is not None:
                    return self._tracker.ended(report)
            except (AuthenticationError, BucketUnavailableError) as error:
                self._stopped = self._stopped or error
            except AllowanceExhaustedError as error:
                if not self._options.wait:
                    self._stopped = self._stopped or error
                else:
                    # Those that wait for the old semaphore get it soon: its holders are refused too.
                    self._reading, self._done = asyncio.Semaphore(_READ_AT_FIRST), 0
                    await sleep_until(error.resume_at, entity_id, self._tracker, self._options)
            except FAILURES as error:
                spent, failure = self._tracker.spent(entity_id), Failure.of(error)
                if self._options.on_error == "raise":
                    raise
                return self._tracker.ended(EntityReport(entity_id, "failed", requests=spent, failure=failure))
        return EntityReport(entity_id, "left", requests=self._tracker.spent(entity_id))

    async def _read(self, entity_id: str, has_file: bool) -> EntityReport | None:
        """Read an entity whose file is not of the current publication; None: the run ends before its turn."""
        dataset = None
        if has_file and not self._options.refresh:
            dataset = await self._client.dataset(entity_id)
            if await self._store.is_current(dataset):
                return self._report(entity_id, "unchanged")
        # Held until the file is in place: what is read and not written is lost when an allowance ends.
        async with self._reading:
            if self._ending:
                return None
            answer = await read(self._client, self._question, entity_id, "extract", dataset)
            await self._put(answer)
        self._done += 1
        if self._done % _DONE_FOR_ONE_MORE == 0:
            # One more may read: see `_DONE_FOR_ONE_MORE`.
            self._reading.release()
        return self._report(entity_id, "done")

    async def _put(self, answer: EntityAnswer) -> None:
        assert answer.panel is not None
        requests = self._tracker.spent(answer.entity_id)
        # What changed is durable before the file that it was compared with is replaced.
        run = None if self._history is None else await self._history.record(answer.panel)
        make = partial(
            encode, answer.panel, self._question, requests=requests, missing=answer.missing, run=run
        )
        await self._store.put(await to_thread.run_sync(make, limiter=self._encoding))
        if answer.missing:
            self._example = answer.panel.catalogue
        if len(self._first) < ENOUGH_TO_DOUBT:
            unknown = {field: names for field, names in answer.missing.items() if field != "periods"}
            self._first.append((unknown, bool(unknown) and not answer.panel.series))
            if len(self._first) == ENOUGH_TO_DOUBT:
                self._judge_first()

    def _judge_first(self) -> None:
        """Report the names that the first entities all lack; end the run if nothing is left to write."""
        unknown = missing_in_all(missing for missing, _ in self._first)
        if not unknown or self._example is None:
            return
        self._tracker.unknown = unknown
        _log.warning(
            "none of the first %d entities has %s; %s",
            len(self._first),
            named(unknown),
            self._example.complaint(unknown),
        )
        # A rare name may still come: but where nothing has a row yet, ending now loses nothing.
        self.found_nothing = all(is_unknown for _, is_unknown in self._first) and not any(
            written.rows for written in self._store.known.values()
        )

    def _report(self, entity_id: str, state: EntityState) -> EntityReport:
        written = self._store.known[entity_id]
        return EntityReport(
            entity_id,
            state,
            written.dataset_id,
            written.rows,
            written.bytes,
            self._tracker.spent(entity_id),
            written.missing,
            path=self._store.files.path(entity_id),
        )


async def sleep_until(until: datetime, entity_id: str, tracker: Tracker, options: Options) -> None:
    """Wait for the allowance on behalf of an entity, or until the run is to stop."""
    while True:
        tracker.sleeping(entity_id, until)
        seconds = (until - options.clock()).total_seconds()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(max(seconds, 1.0), _LOOK_SECONDS)):
                await options.stop.wait()
        if options.stop.is_set() or options.clock() >= until:
            return
