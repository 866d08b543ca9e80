"""What a run leaves behind for operators: one small JSON file next to its lock, written however it ended."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from asyncfin.clock import utc_text
from asyncfin.errors import AsyncfinError, own_version, printable, shorten
from asyncfin.extraction.exit import Exit
from asyncfin.extraction.folder import Folder
from asyncfin.extraction.prefix import Prefix
from asyncfin.extraction.report import EntityReport, ExtractReport, Failure, exit_code_of
from asyncfin.extraction.tree import tree_at

_log = logging.getLogger("asyncfin")

FORMAT = 1
_NAME = "last.json"


class Stop(asyncio.Event):
    """An event that ends a run early, with what the command says of it in the outcome of the run.

    Attributes:
        exit_code: that of a run that was ended early.
        of: when the run began whose failed entities this one reads; None: it was given its entities.
    """

    exit_code = Exit.INTERRUPTED
    of: str | None = None


def failures_by_class(failed: Iterable[EntityReport]) -> dict[str, dict[str, Any]]:
    """Return failures by the class of the error: how many, the first message, and all entities."""
    by_class: dict[str, dict[str, Any]] = {}
    for each in failed:
        if each.failure is None:
            continue
        of_class = by_class.setdefault(
            each.failure.error, {"count": 0, "message": each.failure.message, "entity_ids": []}
        )
        of_class["count"] += 1
        of_class["entity_ids"].append(each.entity_id)
    return by_class


def last_run(
    report: ExtractReport,
    failure: BaseException | None,
    *,
    place: Folder | Prefix,
    question: str,
    began: datetime,
    ended: datetime,
    stop: asyncio.Event,
) -> dict[str, Any]:
    """Return what is written of a run, as plain data.

    Args:
        report: on all entities; of a run that has raised an error, on those that had ended.
        failure: the error that the run has raised; None: it returned the report.
        question: the hash of its question.
        stop: the event that ends it early, which may be a `Stop`.
    """
    interrupted, of = getattr(stop, "exit_code", Exit.INTERRUPTED), getattr(stop, "of", None)
    stopped = failure or report.stopped
    if failure is not None:
        concerns = failure.concerns if isinstance(failure, AsyncfinError) else None
        code: int = exit_code_of(type(failure), concerns)
        outcome = "stopped"
        if code == Exit.INTERRUPTED:
            code, outcome, stopped = interrupted, "interrupted", None
    else:
        code, outcome = report.exit_code, report.outcome
        if outcome == "interrupted":
            code = interrupted
    return {
        "format": FORMAT,
        "place": str(tree_at(place)),
        "question": question,
        "began": utc_text(began),
        "ended": utc_text(ended),
        "exit": code,
        "outcome": outcome,
        "entities": len(report.entities),
        **{state: len(getattr(report, state)) for state in ("done", "unchanged", "failed", "left")},
        "requests": report.requests,
        "rows": report.rows,
        "seconds": report.seconds,
        "stopped": None if stopped is None else _stopped(stopped),
        "resume_at": None if report.resume_at is None else utc_text(report.resume_at),
        "failures": failures_by_class(report.failed),
        "version": own_version(),
        "host": platform.node(),
        "pid": os.getpid(),
        **({} if of is None else {"of": of}),
    }


def _stopped(error: BaseException) -> dict[str, Any]:
    kept = Failure.of(error) if isinstance(error, AsyncfinError) else None
    at = getattr(error, "at", None)
    return {
        "error": type(error).__name__,
        "message": kept.message if kept else printable(shorten(str(error))),
        "status": kept and kept.status,
        "code": kept and kept.code,
        "request_id": kept and kept.request_id,
        "at": None if at is None else utc_text(at),
    }


def write_last(place: Folder | Prefix, last: Mapping[str, Any]) -> None:
    """Write the file of the last run, as a whole; a failure is logged. It blocks."""
    content = msgspec.json.format(msgspec.json.encode(last), indent=2) + b"\n"
    tree = tree_at(place)
    try:
        tree.write(_path(tree.name), lambda file: file.write(content))
    except OSError as error:
        _log.warning("the outcome of the run in %s can't be written: %s", tree, printable(str(error)))


def read_last(place: Folder | Prefix) -> dict[str, Any] | None:
    """Return what the last run has written; None: there is none, or it is of another format. It blocks.

    Raises:
        OSError: it can't be read.
    """
    tree = tree_at(place)
    try:
        with tree.open(_path(tree.name)) as file:
            last = msgspec.json.decode(file.read())
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return last if isinstance(last, dict) and last.get("format") == FORMAT else None


def _path(name: str) -> str:
    return f"{name}.journal/{_NAME}"
