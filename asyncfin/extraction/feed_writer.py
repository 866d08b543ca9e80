"""Writes the change feed during a run: what a publication changes, before the entity's
file is replaced.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import cached_property
from itertools import count, islice, takewhile
from typing import Any

from attrs import define, evolve, frozen

from asyncfin import Panel, concat
from asyncfin.analysis.cells import SERIES, TRIPLE, example_rows, numbered
from asyncfin.analysis.changes import (
    KNOWN_FROM,
    SeriesKey,
    Snapshot,
    compare,
    known_from_column,
)
from asyncfin.errors import ArgumentError, ManifestMismatchError
from asyncfin.extraction.as_of import folded
from asyncfin.extraction.feed import (
    Expects,
    Feed,
    Recorded,
    RunFooter,
    empty_rows,
    part_name,
    run_name,
    with_run,
)
from asyncfin.extraction.place import Place
from asyncfin.extraction.question import SharedQuestion, differences
from asyncfin.extraction.record import Record
from asyncfin.model.selection import FiscalRange, PeriodSelection, Rule
from asyncfin.optional import compute

_MICROSECOND = timedelta(microseconds=1)
_READ_AT_ONCE = 16


def find_feed(
    place: Place, question: SharedQuestion, history: bool | None
) -> Feed | None:
    """Return the feed that a run continues or begins; None if it keeps none.

    Raises:
        ArgumentError: `history` is True, and the periods of the question move.
        ManifestMismatchError: the feed is of another question, is damaged, or exists
            although `history` is False.
    """
    if history:
        refuse_moving(question.periods)
    feed = Feed(place)
    feed.check_head()
    before = feed.question()
    if before is None:
        return feed if history else None
    if history is False:
        raise ManifestMismatchError(
            f"{feed} exists, and a run with history=False would leave a gap in it: "
            "continue it"
            " (history=None), or move it away first"
        )
    if before != question.text:
        raise ManifestMismatchError(
            f"{feed} belongs to another question, which differs in "
            f"{differences(question.text, before)}:"
            " move it away first, or give another place"
        )
    return feed


def _staying(periods: PeriodSelection) -> PeriodSelection:
    """Return the selection of all periods of that kind, old ones too."""
    return evolve(periods, last=None) if isinstance(periods, Rule) else FiscalRange()


def refuse_moving(periods: PeriodSelection) -> None:
    """Raise ArgumentError for periods that move: rows that only left the window would
    count as vanished.
    """
    if periods.moves:
        raise ArgumentError(
            f"history needs periods that stay, not {periods}, which each new "
            "one moves: choose the"
            " latest ones when you read",
            instead=_staying(periods),
        )


@frozen
class FeedRun:
    """A run of the feed: its name, the run before it, None for the first one, and when
    it began.

    It is named after a later time than it began if the run before it was.
    """

    name: str
    before: str | None
    began: datetime


@define
class FeedWriter:
    """Writes the change feed in a run, or in one worker of it. Its calls block, and
    come one at a time.
    """

    _feed: Feed
    _question: SharedQuestion
    run: FeedRun

    def record(self, panels: Sequence[Panel], table: Any) -> str | None:
        """Write what a new publication changes, and return the run that the entity's
        file is to name.

        That is this run if something changed, else the one before it. `table` has the
        panels' rows.
        """
        entity_id, created = (
            panels[0].dataset.entity_id,
            panels[0].dataset.created_timestamp,
        )
        new = Snapshot.of(panels, table)
        file = self._feed.describe_entity_file(entity_id)
        before = self._before(entity_id, file)
        last = before[-1][1] if before else None
        rows = compare(self._previous(entity_id, file, before, new.ambiguous), new)
        if not len(rows):
            return (
                self.run.name
                if before and before[-1][0].run == self.run.name
                else self.run.before
            )
        self._write(
            entity_id, new, rows, self._known_from(last, created), run=self.run.name
        )
        return self.run.name

    def _before(
        self, entity_id: str, file: Mapping[str, Any] | None
    ) -> list[tuple[RunFooter, Recorded]]:
        """Return the publications of an entity in the feed and in this run, oldest
        first.

        A worker that was killed may have left parts of this run; those whose file was
        not replaced are deleted.
        """
        parts = [self._feed.part(name) for name in self._part_names(entity_id)]
        kept = parts_in_effect(parts, file)
        for part in parts[len(kept) :]:
            self._feed.discard(part.parts)
            self._pending.difference_update(part.parts)
        return self._publications.get(entity_id, []) + [
            (part, part.publications[0]) for part in kept
        ]

    @cached_property
    def _pending(self) -> set[str]:
        """The names of the pending parts, also of those that this run adds."""
        return self._feed.pending_names()

    def _part_names(self, entity_id: str) -> list[str]:
        """Return the names of an entity's pending parts, oldest first."""
        names = (part_name(entity_id, number) for number in count())
        return list(takewhile(self._pending.__contains__, names))

    @cached_property
    def _publications(self) -> Mapping[str, list[tuple[RunFooter, Recorded]]]:
        return self._feed.publications()

    def _previous(
        self,
        entity_id: str,
        file: Mapping[str, Any] | None,
        before: list[tuple[RunFooter, Recorded]],
        ambiguous: Collection[SeriesKey] = (),
    ) -> Snapshot:
        """Return the state of an entity in the feed: from its file if that has it, else
        from the changes.
        """
        if not before:
            return Snapshot.empty()
        last, names = before[-1][1], concat([]).column_names
        # Series that share all but the id are in the feed under the ids that they had
        # when it was written.
        if (
            file is not None
            and str(file["dataset_id"]).lower() == last.dataset_id.lower()
            and not (ambiguous or last.ambiguous)
            and (table := self._feed.entity_table(entity_id)) is not None
        ):
            return Snapshot(table, last.dataset_id)
        footers = {
            footer.run + "".join(footer.parts[:1]): footer for footer, _ in before
        }.values()
        pieces = (
            table.filter(compute.equal(table.column("entity_id"), entity_id))
            for footer in footers
            for table in self._feed.tables(footer, None, entity_id)
        )
        is_ambiguous = any(recorded.ambiguous for _, recorded in before)
        state = folded(
            pieces, [entity_id] if is_ambiguous else [], empty_rows().column_names
        )
        return Snapshot(state.select(names), last.dataset_id, frozenset(last.ambiguous))

    def _known_from(self, last: Recorded | None, created: datetime) -> datetime:
        """Return when a publication became known that was created at a time: never
        later than the run.

        After what is known already: then when the run began, or else just after that.
        """
        moments = min(created, self.run.began), self.run.began
        if last is None:
            return moments[0]
        return next(
            (each for each in moments if each > last.moment), last.moment + _MICROSECOND
        )

    def _write(
        self,
        entity_id: str,
        new: Snapshot,
        rows: Any,
        moment: datetime,
        expects: Expects = "replaced",
        *,
        run: str | None = None,
    ) -> None:
        """Write a part with what leads to a snapshot; `run` is the run that the
        entity's file will name.
        """
        name, ambiguous = (
            part_name(entity_id, len(self._part_names(entity_id))),
            tuple(sorted(new.ambiguous)),
        )
        rows = rows.append_column(KNOWN_FROM, known_from_column(len(rows), moment))
        pruned = expects == "pruned"
        recorded = Recorded(
            entity_id, new.dataset_id, moment.isoformat(), len(rows), ambiguous, pruned
        )
        question = json.loads(self._question.text)
        footer = RunFooter(
            self.run.name,
            self.run.before,
            question,
            (recorded,),
            expects=expects,
            file_run=run,
        )
        self._feed.write_part(name, footer, with_run(rows, self.run.name))
        self._pending.add(name)

    def finish(self, known: Mapping[str, Record], *, begins: bool) -> None:
        """Make one file of the parts of this run, which led to the entities' files as
        they are now.

        With `begins`, the feed's first file is made even without changes.
        """
        parts = self._feed.parts()
        complete_run(self._feed, parts, known)
        if not parts and begins and self.run.before is None:
            self._feed.complete(
                self.run.name, [], None, json.loads(self._question.text)
            )
            self._feed.write_head(self.run.name)

    def prune(self, known: Mapping[str, Record], listed: Collection[str]) -> None:
        """Write the rows of entities that are not listed as vanished."""
        for entity_id in dict.fromkeys([*known, *self._publications]):
            if entity_id in listed:
                continue
            file = self._feed.describe_entity_file(entity_id)
            before = self._before(entity_id, file)
            rows = compare(self._previous(entity_id, file, before), Snapshot.empty())
            if len(rows):
                last = before[-1][1]
                gone = Snapshot.empty(last.dataset_id)
                self._write(
                    entity_id,
                    gone,
                    rows,
                    self._known_from(last, self.run.began),
                    "pruned",
                )

    def adopt(self, entity_ids: Iterable[str]) -> None:
        """Begin the feed of files that were written without one, as of when they were
        published.
        """
        for entity_id in entity_ids:
            file, table = (
                self._feed.describe_entity_file(entity_id),
                self._feed.entity_table(entity_id),
            )
            if (
                entity_id in self._publications
                or file is None
                or table is None
                or not len(table)
            ):
                continue
            self._before(entity_id, file)
            new = Snapshot(table, str(file["dataset_id"]), _ambiguous_in(table))
            created = datetime.fromisoformat(str(file["created_timestamp"]))
            rows = compare(Snapshot.empty(), new)
            self._write(entity_id, new, rows, self._known_from(None, created))


def begin_run(
    feed: Feed, question: SharedQuestion, known: Mapping[str, Record], began: datetime
) -> FeedWriter:
    """Complete a killed run, adopt files that the feed does not have, and begin a run.
    It blocks.
    """
    complete_run(feed, feed.parts(), known)
    if without := [
        each for each, written in known.items() if written.run is None and written.rows
    ]:
        writer = _new_run(feed, question, began)
        writer.adopt(without)
        complete_run(feed, feed.parts(), known)
    return _new_run(feed, question, began)


def _new_run(feed: Feed, question: SharedQuestion, began: datetime) -> FeedWriter:
    head = next(reversed(feed.runs()), None)
    return FeedWriter(feed, question, FeedRun(run_name(began, head), head, began))


def complete_run(
    feed: Feed, parts: list[RunFooter], known: Mapping[str, Record]
) -> None:
    """Make one file of the parts of a run, those that led to the entities' files as
    they are.
    """
    if not parts:
        return
    run = max(part.run for part in parts)
    by_entity: dict[str, list[RunFooter]] = {}
    for part in parts:
        by_entity.setdefault(part.publications[0].entity_id, []).append(part)

    def publication_of(entity_id: str) -> dict[str, Any] | None:
        # Not all that a footer says: ten thousand of them took 60 MB.
        file = feed.describe_entity_file(entity_id)
        return (
            None
            if file is None
            else {name: file.get(name) for name in ("dataset_id", "run")}
        )

    files: dict[str, dict[str, Any] | None] = {}
    waiting = iter(by_entity)
    with ThreadPoolExecutor(_READ_AT_ONCE) as threads:
        # Not all at once: ten thousand futures took 20 MB.
        while some := list(islice(waiting, 16 * _READ_AT_ONCE)):
            files |= zip(some, threads.map(publication_of, some), strict=True)
    kept = []
    for entity_id, mine in sorted(by_entity.items()):
        mine.sort(key=lambda part: part.publications[0].known_from)
        kept += parts_in_effect(mine, files[entity_id])
    runs = feed.runs()
    if run not in runs:
        have = {part.publications[0].entity_id for part in kept}
        for entity_id, written in known.items():
            if written.run == run and entity_id not in have:
                raise ManifestMismatchError(
                    f"{feed}: pending/{part_name(entity_id, 0)} is missing, which has "
                    "the changes of the file"
                    f" of {entity_id}: restore it, or move {feed} and {feed.place} "
                    "away and begin again"
                )
        if kept:
            feed.complete(run, kept, kept[0].previous, kept[0].question)
            runs.append(run)
    if runs:
        # Before the parts are deleted: as long as they exist, the next run makes up for
        # a missing head.
        feed.write_head(max(runs))
    feed.discard(name for part in parts for name in part.parts)


def parts_in_effect(
    parts: list[RunFooter], file: Mapping[str, Any] | None
) -> list[RunFooter]:
    """Return the parts of an entity, oldest first, up to the last one that led to its
    file as it is.
    """

    def took_effect(part: RunFooter) -> bool:
        if file is None or part.expects == "pruned":
            return file is None and part.expects == "pruned"
        dataset_id = part.publications[0].dataset_id
        return (
            str(file["dataset_id"]).lower() == dataset_id.lower()
            and file.get("run") == part.file_run
        )

    last = max((at for at, part in enumerate(parts, 1) if took_effect(part)), default=0)
    return parts[:last]


def _ambiguous_in(table: Any) -> frozenset[SeriesKey]:
    """Return the series that share metric, reporting group and scope path with another
    one in a table.
    """
    by_triple: dict[tuple[str, ...], set[Any]] = {}
    for each in example_rows(table, numbered(table, SERIES), ["series_id", *TRIPLE]):
        by_triple.setdefault(each[1:], set()).add(each)
    return frozenset(
        each for same in by_triple.values() if len(same) > 1 for each in same
    )
