"""The expected cost of an extraction, before it is begun."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

from attrs import define, frozen

from asyncfin import checks
from asyncfin.client import Client, publications_of
from asyncfin.errors import (
    AllowanceExhaustedError,
    AsyncfinError,
    BucketUnavailableError,
    ManifestMismatchError,
    ends_all,
)
from asyncfin.extraction.entity import check_client
from asyncfin.extraction.extract import checked_place, distinct_ids
from asyncfin.extraction.files import QuestionFiles, files_at
from asyncfin.extraction.parquet import Written
from asyncfin.extraction.progress import Tracker
from asyncfin.extraction.question import AskedVersion, SharedQuestion, written_question
from asyncfin.extraction.report import EntityReport, Failure, UnknownToAllError, failures
from asyncfin.extraction.unknown import sample
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.judge import Missing, complaint, has_nothing, unknown_names
from asyncfin.model.query import MAX_PAGE_SIZE
from asyncfin.model.select import Select
from asyncfin.model.selection import PeriodSelection
from asyncfin.model.words import counted, lasting
from asyncfin.read.entity import plan_versions
from asyncfin.read.read import Read
from asyncfin.tasks import bounded

# The cost of all series of an entity of the usual size (1,171), when nothing better is known.
_GUESS = 26


@frozen
class ExtractCost:
    """The expected cost of an extraction.

    Attributes:
        entities: how many entities it is for.
        new: how many of them have no file yet.
        changed: how many have a file that will be replaced: it is of an earlier publication or damaged, or
            a refresh was requested.
        unchanged: how many have a current file and will be skipped.
        failed: reports on those that can't be read now.
        requests: how many requests it will take, including one for the metadata of each entity with a file.
        least: how many it will take if each entity whose cost is not known takes as many as the cheapest of
            those whose cost is known.
        most: how many, if each of them takes as many as the most expensive.
        guessed: for how many entities the cost is not known, because they have no file and their catalogues
            were not read, or because too little is left of the bucket's budget to find out.
        spent: how many requests the estimate itself took.
        rate: requests per second, as the client's bucket has it. None: not known.
        budget: what is left of the bucket's daily budget. None: it has no budget.
    """

    entities: int
    new: int
    changed: int
    unchanged: int
    failed: tuple[EntityReport, ...]
    requests: int
    least: int
    most: int
    guessed: int
    spent: int
    rate: float | None
    budget: float | None

    @property
    def seconds(self) -> float | None:
        """The expected duration in seconds at `rate`. None: the rate is not known."""
        return None if self.rate is None else self.requests / self.rate

    @property
    def fits(self) -> bool | None:
        """Whether `requests` fit into `budget`. None: without a budget."""
        return None if self.budget is None else self.requests <= self.budget

    def __str__(self) -> str:
        of_others = counted(self.guessed, "entity", "entities")
        lines = [
            f"entities: {self.new:,} new, {self.changed:,} changed, {self.unchanged:,} unchanged,"
            f" {len(self.failed):,} failed",
            f"{'about ' if self.guessed else ''}{counted(self.requests, 'request')} will be sent"
            + (
                f", {self.least:,} to {self.most:,}: the cost of {of_others}"
                " is estimated from others, unless their catalogues are read"
                if self.guessed
                else ""
            ),
        ]
        if self.seconds is None:
            lines.append("how long that takes is not known: no rate was given, so it is learned on the way")
        else:
            lines.append(f"{lasting(self.seconds)} at {self.rate:,.3g} requests a second")
        if self.budget is not None:
            verdict = "it fits" if self.fits else "it does not fit"
            lines.append(f"left of the daily budget: {self.budget:,.0f}; {verdict}")
        return "\n".join(
            [*lines, *failures(self.failed), f"the estimate took {counted(self.spent, 'request')}"]
        )


@frozen
class _Expected:
    """The expected cost of one entity."""

    state: str  # as `ExtractCost` names it
    requests: int | None  # None: nothing is known of it
    guessed: bool = False  # whether it may have changed or not
    report: EntityReport | None = None
    missing: Missing | None = None  # of the question; None: not known


async def extract_cost(
    client: Client,
    entity_ids: Iterable[str],
    select: Select,
    periods: PeriodSelection,
    *,
    to: str | os.PathLike[str],
    value_version: AskedVersion = "original",
    refresh: bool = False,
    replace: bool = False,
    read_catalogues: bool = False,
) -> ExtractCost:
    """Return the expected cost of `extract` with the same arguments. Nothing is written.

    Requests: one for each entity that has a file, unless it is to be refreshed. The others are estimated by
    the average of those with a file or, where there is none, by the catalogues of the first, the middle and
    the last one. All count against the bucket's daily budget; if less is left of it than there are entities,
    no request is sent, as the run does not fit in any case.

    Args:
        read_catalogues: whether to read the catalogue of each new or changed entity and plan its question.
            The cost is then exact, provided that the budget lasts, the service fills its pages and no request
            is repeated.
            This spends the requests of the catalogues.

    Raises:
        ArgumentError, ManifestMismatchError, ImportError, OSError: as for `extract`.
        SelectionError: the question is not as described; or it names an id or word that no entity has, or the
            three entities whose catalogues are read have nothing of it (`UnknownToAllError`).
        AuthenticationError, AllowanceExhaustedError: the service refused the estimate itself.
    """
    ids = distinct_ids(entity_ids)
    question = written_question(select, periods, value_version)
    check_client("client", client)
    flags = {"refresh": refresh, "replace": replace, "read_catalogues": read_catalogues}
    for name, flag in flags.items():
        checks.flag(name, flag)
    place = await checked_place(to)
    files = files_at(place, question, lock=False)
    try:
        await files.read(replace=replace)
        tracker = Tracker(len(ids), None, asyncio.get_running_loop().time)
        return await _Estimate(client, question, files, refresh, read_catalogues, tracker).over(ids)
    finally:
        await files.place.aclose()


@define
class _Estimate:
    _client: Client
    _question: SharedQuestion
    _files: QuestionFiles
    _refresh: bool
    _read_catalogues: bool
    _tracker: Tracker
    _may_request: bool = True
    _example: Catalogue | None = None  # the last one that does not have something

    async def over(self, ids: tuple[str, ...]) -> ExtractCost:
        """Return the cost of all entities."""
        # Until then this process does not know what the others have spent. A user's own
        # bucket need not have this.
        if (inspect := getattr(self._client.bucket, "inspect", None)) is not None:
            with suppress(BucketUnavailableError):
                await inspect()
        left = self._left()
        self._may_request = left is None or len(ids) <= left
        expected: dict[str, _Expected] = {}
        with self._client.observed(self._tracker), self._tracker.counting():
            if not (self._files.known or self._read_catalogues):
                await self._add_sample(expected, ids)
            others = [each for each in ids if each not in expected]
            await self._add(expected, others, read_catalogues=self._read_catalogues)
        # Before the figures: a misspelt name would give an estimate of almost nothing.
        self._refuse_unknown(expected)
        return self._cost([expected[each] for each in ids])

    async def _add_sample(self, expected: dict[str, _Expected], ids: tuple[str, ...]) -> None:
        """Read the catalogues of the entities that a run would begin with, and refuse what would end it."""

        def chosen() -> tuple[str, ...]:
            return sample(ids, {each for each, found in expected.items() if found.state == "failed"})

        while unread := [each for each in chosen() if each not in expected]:
            await self._add(expected, unread, read_catalogues=True)
        if len(expected) < len(ids):
            self._refuse_unknown({each: expected[each] for each in chosen()}, early=True)

    async def _add(
        self, expected: dict[str, _Expected], ids: Sequence[str], *, read_catalogues: bool
    ) -> None:
        jobs = [partial(self._entity, each, read_catalogues) for each in ids]
        async with bounded(jobs, self._client.max_in_flight) as found:
            expected |= {entity_id: each async for entity_id, each in found}

    def _cost(self, expected: list[_Expected]) -> ExtractCost:
        states = [each.state for each in expected]
        known = [each.requests for each in expected if each.requests is not None]
        guessed = len(expected) - len(known)
        # What an entity takes that is read: a guess for those of which that is not known.
        taken = (
            [written.requests for written in self._files.known.values()]
            or [each.requests for each in expected if each.requests is not None and each.state == "new"]
            or [_GUESS]
        )
        return ExtractCost(
            entities=len(expected),
            new=states.count("new"),
            changed=states.count("changed"),
            unchanged=states.count("unchanged"),
            failed=tuple(each.report for each in expected if each.report is not None),
            requests=sum(known) + round(guessed * sum(taken) / len(taken)),
            least=sum(known) + guessed * min(taken),
            most=sum(known) + guessed * max(taken),
            guessed=guessed + sum(each.guessed for each in expected),
            spent=self._tracker.requests,
            rate=self._client.bucket.stats().rate,
            budget=self._left(),
        )

    def _refuse_unknown(self, expected: dict[str, _Expected], *, early: bool = False) -> None:
        """Raise UnknownToAllError for names that no entity has, once that is known of all entities.

        `early`: there are more entities, so these must have nothing of the question at all.
        """
        select = self._question.select
        known = [each.missing for each in expected.values() if each.missing is not None]
        if len(known) < len(expected) or (early and not all(has_nothing(select, each) for each in known)):
            return
        if not (unknown := unknown_names(select, known)):
            return
        near = complaint(self._example, unknown) if self._example else None
        reports = [EntityReport(each, "left") for each in expected]
        report = self._tracker.summary(reports, None, unknown, near)
        raise UnknownToAllError.of(report, len(known), early=early)

    def _left(self) -> float | None:
        """Return what is left of the bucket's daily budget; None: it has none."""
        bucket = self._client.bucket.stats()
        return None if bucket.daily_budget is None else bucket.daily_budget - (bucket.spent_today or 0.0)

    async def _entity(self, entity_id: str, read_catalogue: bool) -> tuple[str, _Expected]:
        last = self._files.known.get(entity_id)
        may_be_current = last is not None and not self._refresh
        if self._may_request and (read_catalogue or may_be_current):
            try:
                return entity_id, await self._expected(entity_id, last, read_catalogue)
            except ManifestMismatchError:
                raise
            except AsyncfinError as error:
                if not ends_all(error, waits=True):
                    report = EntityReport(entity_id, "failed", failure=Failure.of(error))
                    return entity_id, _Expected("failed", 1, report=report)
                left = self._left()
                # Only our own budget makes the rest a guess; a refusal of the service ends the estimate.
                if not isinstance(error, AllowanceExhaustedError) or left is None or left >= 1:
                    raise
        if last is not None:
            return entity_id, _Expected("changed", may_be_current + last.requests, guessed=may_be_current)
        return entity_id, _Expected("new", None)

    async def _expected(self, entity_id: str, last: Written | None, read_catalogue: bool) -> _Expected:
        """Return the expected cost of an entity: by its file's publication, or if wanted by its catalogue."""
        compared = last is not None and not self._refresh
        read = Read(publications_of(self._client), self._question.of(entity_id), "estimate", keeps=False)
        if last is not None and compared:
            read.successor = metadata = await read.metadata()
            if await self._files.is_current(metadata):
                return _Expected("unchanged", 1, missing=last.missing)
        if last is not None and not read_catalogue:
            return _Expected("changed", compared + last.requests)
        plans = await plan_versions(read, self._question.versions)
        question, catalogue = plans[0].question, plans[0].catalogue
        # The metadata that a file is compared with, the catalogue in full pages, and the plans, if no request
        # is repeated.
        requests = compared + max(1, -(-len(catalogue) // MAX_PAGE_SIZE))
        requests += sum(plan.requests for plan in plans)
        if missing := question.missing(catalogue):
            self._example = catalogue
        return _Expected("new" if last is None else "changed", requests, missing=missing)
