"""What runs leave behind for operators and for the next run, next to the lock.

last.json        the outcome of the last run, however it ended
runs.jsonl       the outcomes of the last thirty, oldest first, without their entities
confirmed.json   when each file was shown to be current
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import PurePath
from typing import Any

import msgspec
from attrs import asdict

from asyncfin.clock import utc_text
from asyncfin.errors import own_version
from asyncfin.extraction.exit import Exit
from asyncfin.extraction.place import Holder, Place, Timestamp
from asyncfin.extraction.places import check_exists, place_of
from asyncfin.extraction.record import Record
from asyncfin.extraction.report import (
    ExtractReport,
    Failure,
    exit_code_of,
)
from asyncfin.extraction.run import Job

FORMAT = 1
_RUNS = 30


class Stop(asyncio.Event):
    """An event that ends a run early; `exit_code` is that of a run that it has
    ended.
    """

    exit_code = Exit.INTERRUPTED


def describe_run(
    report: ExtractReport,
    failure: BaseException | None,
    *,
    job: Job,
    records: Mapping[str, Record],
    began: datetime,
    end: datetime,
    stop: asyncio.Event,
) -> dict[str, Any]:
    """Return the outcome of a run, as plain data.

    Args:
        report: on all entities; of a run that has raised an error, on those that had
            ended.
        failure: the error that the run has raised, or None if it returned the report.
        records: the files that are there now.
        stop: the event that ends it early, which may be a `Stop`.
    """
    question = job.question
    error = failure or report.error
    outcome = report.outcome
    code = report.exit_code
    if failure is not None:
        concerns = getattr(failure, "concerns", None)
        outcome = "stopped"
        code = exit_code_of(type(failure), concerns)
        if code == Exit.INTERRUPTED:
            outcome = "interrupted"
            error = None
    if outcome == "interrupted":
        code = getattr(stop, "exit_code", Exit.INTERRUPTED)
    return {
        "format": FORMAT,
        "place": str(job.place),
        "select": question.document["select"],
        "periods": str(question.periods),
        "value_version": question.value_version,
        "files": len(records),
        "file_rows": sum(record.rows for record in records.values()),
        "file_bytes": sum(record.bytes for record in records.values()),
        "began": utc_text(began),
        "ended": utc_text(end),
        "exit": code,
        "outcome": outcome,
        "entities": len(report.entities),
        **report.figures,
        "stopped": None if error is None else asdict(Failure.of(error)),
        "resume_at": None if report.resume_at is None else utc_text(report.resume_at),
        "version": own_version(),
    }


def write_run(place: Place, outcome: Mapping[str, Any]) -> None:
    """Write the outcome of a run. It blocks."""
    document = msgspec.json.encode(outcome)
    place.write_journal("last.json", msgspec.json.format(document, indent=2))
    failures = {}
    for name, group in outcome["failures"].items():
        failures[name] = {"count": group["count"], "message": group["message"]}
    line = msgspec.json.encode({**outcome, "failures": failures})
    content = place.read_bytes(place.journal_path("runs.jsonl")) or b""
    lines = [*content.splitlines()[1 - _RUNS :], line, b""]
    place.write_journal("runs.jsonl", b"\n".join(lines))


def read_moments(place: Place, records: Mapping[str, Record]) -> dict[str, datetime]:
    """Return when each of these files was shown to be current. It blocks."""
    kind = dict[str, tuple[str, Timestamp]]
    entries = place.read_journal("confirmed.json", kind) or {}
    moments = {}
    for entity_id, (dataset_id, moment) in entries.items():
        if entity_id in records and records[entity_id].dataset_id == dataset_id:
            moments[entity_id] = moment
    return moments


def write_moments(
    place: Place, records: Mapping[str, Record], moments: Mapping[str, datetime]
) -> None:
    """Write when each file was shown to be current, with its publication. It blocks."""
    entries = {}
    for entity_id, record in list(records.items()):
        if entity_id in moments:
            entries[entity_id] = record.dataset_id, moments[entity_id]
    place.write_journal("confirmed.json", msgspec.json.encode(entries))


def read_status(address: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the state of the runs of a place, as plain data. It blocks.

    `running`: whether a run is at work; `unfinished`: whether the last one ended
    without an outcome; then `host`, `pid`, `began` and `renewed` are its. `last`: the
    last outcome. `feed`: the number of runs in the change feed, and the last one.

    Raises:
        ArgumentError: `address` is no place, or a folder that does not exist.
        OSError: it can't be read.
    """
    place = place_of(address)
    check_exists(place)
    last = place.read_journal("last.json", dict[str, Any])
    if last is not None and last.get("format") != FORMAT:
        last = None
    holder = place.read_journal("lock", Holder)
    is_running = place.is_running()
    status: dict[str, Any] = {
        "running": is_running,
        "unfinished": False,
        "last": last,
        "feed": None,
    }
    if paths := place.parquet_paths(place.beside("changes")):
        status["feed"] = {"runs": len(paths), "last": PurePath(paths[-1]).stem}
    if holder is None:
        return status
    began = utc_text(holder.began)
    has_ended = last is not None and last["began"] == began
    status["unfinished"] = not is_running and not has_ended
    if is_running or status["unfinished"]:
        status |= {
            "host": holder.host,
            "pid": holder.pid,
            "began": began,
            "renewed": utc_text(holder.renewed),
        }
    return status
