"""Writes the change feed at the end of a run: what the files have that the feed does
not have yet, also those that a killed run has left.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

from attrs import define, evolve, field

from asyncfin import FiscalRange, concat
from asyncfin.analysis.cells import decode_plain
from asyncfin.analysis.changes import (
    KNOWN_FROM,
    RUN,
    Snapshot,
    compare,
    make_known_from,
)
from asyncfin.errors import ArgumentError, ManifestMismatchError
from asyncfin.extraction.as_of import fold_changes
from asyncfin.extraction.feed import (
    Feed,
    Recorded,
    RunFooter,
    check_columns,
    empty_rows,
    parquet_file,
    read_groups,
    run_name,
    write_rows,
)
from asyncfin.extraction.place import Place
from asyncfin.extraction.question import SharedQuestion, differences, write_canonical
from asyncfin.extraction.record import METADATA, Record, open_parquet
from asyncfin.optional import compute, pa
from asyncfin.typing import PeriodSelection, Rule

_MICROSECOND = timedelta(microseconds=1)
# Entities that are compared at once.
_AT_ONCE = 16


def find_feed(place: Place, question: SharedQuestion, history: bool) -> Feed | None:
    """Return the feed that a run continues or begins, or None if it has none.

    Raises:
        ArgumentError: `history` is True, and the periods of the question move.
        ManifestMismatchError: the feed is of another query, or is damaged.
    """
    if history:
        check_periods(question.periods)
    feed = Feed(place)
    runs = feed.runs()
    if not runs:
        return feed if history else None
    text = write_canonical(feed.footer(runs[-1]).question)
    if text != question.text:
        raise ManifestMismatchError(
            f"{feed} belongs to another query, which differs in "
            f"{differences(question.text, text)}: move it away first, or give "
            "another place"
        )
    return feed


def check_periods(periods: PeriodSelection) -> None:
    """Raise ArgumentError for periods that move: rows that only left the window would
    count as vanished.
    """
    if periods.moves:
        alternative: PeriodSelection = FiscalRange()
        if isinstance(periods, Rule):
            alternative = evolve(periods, last=None)
        raise ArgumentError(
            f"history needs periods that stay, not {periods}, which each new one "
            "moves: choose the latest ones when you read",
            instead=alternative,
        )


def record_files(
    feed: Feed,
    question: SharedQuestion,
    began: datetime,
    records: Mapping[str, Record],
    listed_ids: Collection[str],
) -> None:
    """Write what the files have that the feed does not have as one run. It blocks.

    Args:
        began: when the run began.
        records: the files.
        listed_ids: the entities of the run. Others that have no file any more have left
            the extraction: their rows vanish.
    """
    previous = None
    last: dict[str, Recorded] = {}
    changes: dict[str, list[tuple[RunFooter, Recorded]]] = {}
    for footer in feed.chain():
        previous = footer.run
        for entry in footer.publications:
            last[entry.entity_id] = entry
            if entry.rows:
                of_entity = changes.setdefault(entry.entity_id, [])
                of_entity.append((footer, entry))
    entity_ids = set()
    for entity_id, record in records.items():
        if entity_id not in last or not last[entity_id].is_of(record):
            entity_ids.add(entity_id)
    place = feed.place
    paths = set(place.parquet_paths(place.name))
    for entity_id, entry in last.items():
        is_there = entity_id in listed_ids or place.entity_path(entity_id) in paths
        if not (is_there or entry.pruned):
            entity_ids.add(entity_id)
    if not entity_ids and previous is not None:
        feed.write_head(previous)
        return
    run = run_name(began, previous)
    footer = RunFooter(run, previous, question.document, [])
    work = _Changes(feed, began, footer, records, last, changes)
    place.write(
        feed.path(run),
        lambda stream: write_rows(stream, footer, work.tables(sorted(entity_ids))),
    )
    feed.write_head(run)
    # The other entities are recorded.
    for error in work.damages.values():
        raise error


@define
class _Changes:
    """What changed of entities; it adds the publications that it has read to the
    footer.

    Attributes:
        last: the last publication of each entity in the feed.
        changes: the publications that changed something, by entity, with their runs.
        damages: the errors of files that cannot be read, by entity.
    """

    feed: Feed
    began: datetime
    footer: RunFooter
    records: Mapping[str, Record]
    last: Mapping[str, Recorded]
    changes: Mapping[str, list[tuple[RunFooter, Recorded]]]
    damages: dict[str, ManifestMismatchError] = field(factory=dict)

    def tables(self, entity_ids: list[str]) -> Iterator[Any]:
        """Yield the changes of entities, which are sorted."""
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            for start in range(0, len(entity_ids), _AT_ONCE):
                ids = entity_ids[start : start + _AT_ONCE]
                state = self._read_state(ids)
                tables = []
                for entity_id, table in zip(
                    ids, threads.map(self._read_file, ids), strict=True
                ):
                    if entity_id not in self.damages:
                        tables.append(self._compare(state, entity_id, table))
                if not tables:
                    continue
                # Whatever its rows, a table takes 60 kB.
                yield pa.concat_tables(tables).unify_dictionaries().combine_chunks()

    def _read_state(self, entity_ids: list[str]) -> Any:
        """Return the rows of entities as the feed has them."""
        ids = pa.array(entity_ids, pa.string())
        footers = {}
        for entity_id in entity_ids:
            for footer, _ in self.changes.get(entity_id, ()):
                footers[footer.run] = footer
        return fold_changes(
            self.feed,
            [footers[run] for run in sorted(footers)],
            empty_rows().column_names,
            lambda table: compute.is_in(
                decode_plain(table.column("entity_id")), value_set=ids
            ),
            entity_ids,
        )

    def _read_file(self, entity_id: str) -> Any:
        """Return the rows of an entity's file, or None if it has left or is damaged."""
        place = self.feed.place
        long = concat([]).schema
        if entity_id not in self.records:
            return None
        path = place.entity_path(entity_id)
        try:
            with open_parquet(place, path) as stream:
                file = parquet_file(stream)
                check_columns(file.schema_arrow, long)
                return read_groups(file, range(file.num_row_groups), long.names)
        except ValueError as error:
            self.damages[entity_id] = ManifestMismatchError(
                f"{place.url(path)} is damaged ({error}): delete it, and the next run "
                "reads its entity again"
            )
            return None

    def _compare(self, state: Any, entity_id: str, table: Any) -> Any:
        record = self.records.get(entity_id)
        old = Snapshot.empty()
        last = None
        if entity_id in self.changes:
            _, last = self.changes[entity_id][-1]
            is_row = compute.equal(state.column("entity_id"), entity_id)
            rows = state.filter(is_row)
            old = Snapshot(
                rows.select(concat([]).column_names),
                last.dataset_id,
                frozenset(last.ambiguous),
            )
        if record is None:
            entry = evolve(self.last[entity_id], pruned=True, ambiguous=())
            creation = self.began
            snapshot = Snapshot.empty(entry.dataset_id)
        else:
            description = json.loads(table.schema.metadata[METADATA])
            series = description["panels"][0].get("ambiguous", ())
            ambiguous = frozenset(map(tuple, series))
            creation = record.created_timestamp
            entry = Recorded(
                entity_id, record.dataset_id, creation, 0, creation, sorted(ambiguous)
            )
            bare = table.replace_schema_metadata(None)
            snapshot = Snapshot(bare, record.dataset_id, ambiguous)
        rows = compare(old, snapshot)
        moment = self._choose_moment(last, creation)
        entry = evolve(entry, known_from=moment, rows=len(rows))
        self.footer.publications.append(entry)
        rows = rows.append_column(KNOWN_FROM, make_known_from(len(rows), moment))
        runs = pa.repeat(pa.scalar(self.footer.run), len(rows))
        return rows.append_column(RUN, runs.dictionary_encode())

    def _choose_moment(self, last: Recorded | None, creation: datetime) -> datetime:
        """Return when a publication became known that was created at a time: never
        later than the run.

        After the last one of the entity: when the run began, or just after it.
        """
        moment = min(creation, self.began).astimezone(UTC)
        if last is None or moment > last.known_from:
            return moment
        return max(self.began.astimezone(UTC), last.known_from + _MICROSECOND)
