"""What runs leave behind for operators and for the next run, next to the lock.

last.json        the outcome of the last run, however it ended
runs.jsonl       the outcomes of the last thirty, oldest first, without their entities
confirmed.json   when each file was shown to be current
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from asyncfin.clock import utc_text
from asyncfin.errors import (
    ArgumentError,
    AsyncfinError,
    own_version,
    printable,
    shorten,
)
from asyncfin.extraction.exit import Exit
from asyncfin.extraction.place import Folder, Moment, Place
from asyncfin.extraction.places import place_of
from asyncfin.extraction.record import Record
from asyncfin.extraction.report import (
    ExtractReport,
    exit_code_of,
)
from asyncfin.extraction.run import Job

_log = logging.getLogger("asyncfin")

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
    ended: datetime,
    stop: asyncio.Event,
) -> dict[str, Any]:
    """Return the outcome of a run, as plain data.

    Args:
        report: on all entities; of a run that has raised an error, on those that had
            ended.
        failure: the error that the run has raised. None: it returned the report.
        records: the files that are there now.
        stop: the event that ends it early, which may be a `Stop`.
    """
    question = job.question
    stopped, outcome, code = failure or report.stopped, report.outcome, report.exit_code
    if failure is not None:
        concerns = failure.concerns if isinstance(failure, AsyncfinError) else None
        outcome, code = "stopped", exit_code_of(type(failure), concerns)
        if code == Exit.INTERRUPTED:
            outcome, stopped = "interrupted", None
    if outcome == "interrupted":
        code = getattr(stop, "exit_code", Exit.INTERRUPTED)
    return {
        "format": FORMAT,
        "place": str(job.place),
        "question": question.hash,
        "select": str(question.select),
        "periods": str(question.periods),
        "value_version": question.value_version,
        "files": len(records),
        "file_rows": sum(record.rows for record in records.values()),
        "file_bytes": sum(record.bytes for record in records.values()),
        "began": utc_text(began),
        "ended": utc_text(ended),
        "exit": code,
        "outcome": outcome,
        "entities": len(report.entities),
        **report.figures,
        "stopped": None if stopped is None else _describe(stopped),
        "resume_at": None if report.resume_at is None else utc_text(report.resume_at),
        "version": own_version(),
        "host": platform.node(),
        "pid": os.getpid(),
    }


def _describe(error: BaseException) -> dict[str, Any]:
    moment = getattr(error, "at", None)
    names = ("status", "code", "request_id")
    return {
        "error": type(error).__name__,
        "message": printable(shorten(str(error))),
        **{name: getattr(error, name, None) for name in names},
        "at": None if moment is None else utc_text(moment),
    }


def write_run(place: Place, outcome: Mapping[str, Any]) -> None:
    """Write the outcome of a run; a failure is logged. It blocks."""
    content = msgspec.json.format(msgspec.json.encode(outcome), indent=2) + b"\n"
    failures = {
        name: {"count": of_class["count"], "message": of_class["message"]}
        for name, of_class in outcome["failures"].items()
    }
    line = msgspec.json.encode({**outcome, "failures": failures}) + b"\n"
    try:
        _write(place, "last.json", content)
        content = place.read_bytes(_path(place, "runs.jsonl")) or b""
        runs = content.splitlines(keepends=True)[1 - _RUNS :]
        _write(place, "runs.jsonl", b"".join([*runs, line]))
    except OSError as error:
        _log.warning(
            "the outcome of the run in %s can't be written: %s",
            place,
            printable(str(error)),
        )


def read_last(place: Place) -> dict[str, Any] | None:
    """Return the outcome of the last run, or None if there is none of this format. It
    blocks.

    Raises:
        OSError: it can't be read.
    """
    last = _read(place, "last.json", dict[str, Any])
    return last if last is not None and last.get("format") == FORMAT else None


def read_confirmed(place: Place, records: Mapping[str, Record]) -> dict[str, datetime]:
    """Return when each of these files was shown to be current. It blocks."""
    confirmed = _read(place, "confirmed.json", dict[str, tuple[str, Moment]]) or {}
    return {
        entity_id: moment
        for entity_id, (dataset_id, moment) in confirmed.items()
        if entity_id in records and records[entity_id].dataset_id == dataset_id
    }


def write_confirmed(
    place: Place, records: Mapping[str, Record], moments: Mapping[str, datetime]
) -> None:
    """Write when each file was shown to be current, with its publication. It blocks."""
    confirmed = {
        entity_id: (record.dataset_id, moments[entity_id])
        for entity_id, record in list(records.items())
        if entity_id in moments
    }
    try:
        _write(place, "confirmed.json", msgspec.json.encode(confirmed))
    except OSError as error:
        _log.warning(
            "what %s has confirmed can't be written: %s", place, printable(str(error))
        )


def _read(place: Place, name: str, kind: Any) -> Any:
    content = place.read_bytes(_path(place, name))
    try:
        return None if content is None else msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _write(place: Place, name: str, content: bytes) -> None:
    place.write(_path(place, name), lambda file: file.write(content))


def _path(place: Place, name: str) -> str:
    return f"{place.beside('journal')}/{name}"


def read_status(to: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what a place shows of its runs, as plain data. It blocks.

    `running`: whether a run is at work; `unfinished`: whether the last one ended
    without an outcome; then `host`, `pid`, `began` and `renewed` are its. `last`: the
    last outcome. `feed`: the number of runs in the change feed, and the last one.

    Raises:
        ArgumentError: `to` is no place, or no folder.
        OSError: it can't be read.
    """
    place = place_of(to)
    if isinstance(place, Folder) and not os.path.isdir(str(place)):
        raise ArgumentError(f"{place} is not a folder")
    last, holder, is_running = read_last(place), place.read_holder(), place.is_running()
    runs = [
        name.removesuffix(".parquet") for name in place.names(place.beside("changes"))
    ]
    status: dict[str, Any] = {
        "running": is_running,
        "unfinished": False,
        "last": last,
        "feed": {"runs": len(runs), "last": runs[-1]} if runs else None,
    }
    if holder is None:
        return status
    began, renewal = utc_text(holder.began), utc_text(holder.renewed)
    has_ended = last is not None and last["began"] == began
    status["unfinished"] = not is_running and not has_ended
    if is_running or status["unfinished"]:
        status |= {"host": holder.host, "pid": holder.pid}
        status |= {"began": began, "renewed": renewal}
    return status
