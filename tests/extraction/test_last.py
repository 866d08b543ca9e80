"""What a run leaves behind for operators: `last.json`, for each way in which it can end."""

import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from asyncfin import (
    Annual,
    AuthenticationError,
    Client,
    Select,
    extract,
)
from asyncfin.extraction.report import EntityReport, ExtractReport, Failure
from asyncfin.sandbox import Drop, Sandbox, Status
from tests.extraction.conftest import FIRST, IDS, UNKNOWN_ID, clocked

NOW = datetime(2026, 11, 23, 2, 0, tzinfo=UTC)


def place_of_last(folder: Path) -> Path:
    return folder.with_name("_night.journal") / "last.json"


def written(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(place_of_last(folder).read_text())
    return document


async def run(client: Client, folder: Path, ids: Any = IDS, **options: Any) -> Any:
    return await extract(clocked(client, lambda: NOW), ids, Select(), Annual(), to=folder, **options)


async def test_complete_run_next_night(client: Client, folder: Path) -> None:
    """All fields, as operators' tools read them."""
    report = await run(client, folder)
    assert written(folder) == {
        "format": 1,
        "place": str(folder),
        "select": {},
        "periods": "all fiscal years",
        "value_version": "original",
        "unknown": {},
        "files": 6,
        "file_rows": report.rows,
        "file_bytes": report.bytes,
        "began": "2026-11-23T02:00:00Z",
        "ended": "2026-11-23T02:00:00Z",
        "exit": 0,
        "outcome": "complete",
        "entities": 6,
        "done": 6,
        "unchanged": 0,
        "failed": 0,
        "left": 0,
        "requests": report.requests,
        "repeated": {},
        "uncounted": 0,
        "rows": report.rows,
        "bytes": report.bytes,
        "unlisted": 0,
        "seconds": report.seconds,
        "others": 0,
        "stopped": None,
        "resume_at": None,
        "failures": {},
        "version": written(folder)["version"],
    }
    await run(client, folder)
    assert (written(folder)["done"], written(folder)["unchanged"], written(folder)["exit"]) == (0, 6, 0)


async def test_a_partial_run_names_what_failed(client: Client, folder: Path) -> None:
    """By the class of the error, with all ids."""
    report = await run(client, folder, [*IDS, UNKNOWN_ID])
    last = written(folder)
    assert (report.outcome, report.exit_code) == ("partial", 1)
    assert (last["outcome"], last["exit"], last["failed"]) == ("partial", 1, 1)
    failure = last["failures"]["NotFoundError"]
    assert (failure["count"], failure["entity_ids"]) == (1, [UNKNOWN_ID])
    assert failure["message"] == report.failed[0].failure.message


async def test_stopped_run_names_its_error(sandbox: Sandbox, folder: Path) -> None:
    """With what the service's support asks for."""
    async with Client(sandbox.base_url, "wrong") as client:
        report = await run(client, folder)
    last = written(folder)
    assert isinstance(report.stopped, AuthenticationError)
    assert (last["outcome"], last["exit"], last["left"]) == ("stopped", 3, 6)
    assert last["stopped"]["error"] == "AuthenticationError"
    assert (last["stopped"]["status"], last["stopped"]["request_id"]) == (401, report.stopped.request_id)
    assert "wrong" not in json.dumps(last)


@pytest.mark.parametrize(
    ("kinds", "code"),
    [
        (["NotFoundError", "NotFoundError"], 4),
        (["NotFoundError", "PermissionDeniedError"], 1),
        (["ServerFailureError", "RequestTimeoutError"], 6),
        ([None, "NotFoundError"], 1),
    ],
)
def test_common_reason_decides_exit_code(kinds: list[str | None], code: int) -> None:
    """And "partial" otherwise."""
    concerns = {"ServerFailureError": "service", "RequestTimeoutError": "service"}
    entities = tuple(
        EntityReport(str(at), "failed", failure=Failure(kind, "x", concerns.get(kind, "entity")))  # type: ignore[arg-type]
        if kind
        else EntityReport(str(at), "done")
        for at, kind in enumerate(kinds)
    )
    assert ExtractReport(entities, 1.0).exit_code == code


async def test_the_last_thirty_outcomes_are_kept(client: Client, folder: Path) -> None:
    """One line each, the newest last, with the reasons of failures but not their entities."""
    for _ in range(32):
        await run(client, folder, [*IDS[:1], UNKNOWN_ID], refresh=False)
    lines = (folder.with_name("_night.journal") / "runs.jsonl").read_text().splitlines()
    runs = [json.loads(line) for line in lines]
    assert len(runs) == 30
    assert [outcome["unchanged"] for outcome in runs] == [1] * 30
    failure = written(folder)["failures"]["NotFoundError"]
    assert runs[-1]["failures"] == {"NotFoundError": {"count": 1, "message": failure["message"]}}


@pytest.mark.virtual
async def test_repeated_requests_are_counted_by_reason(tmp_path: Path) -> None:
    """In the report, in its text and in the outcome; the sum of requests has them too."""
    async with Sandbox(*FIRST) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        for fault in (Status(operation="query", status=503, nth=1), Drop(operation="catalogue", nth=2)):
            sandbox.inject(fault)
        report = await extract(client, IDS, Select(), Annual(), to=tmp_path / "night")
        assert report.requests == len(sandbox.log)
    assert dict(report.repeated) == {"503": 1, "ConnectionFailedError": 1}
    assert "14 requests, 2 of them repeated: 1 x 503, 1 x ConnectionFailedError" in str(report)
    assert written(tmp_path / "night")["repeated"] == dict(report.repeated)


async def test_run_without_threads_leaves_outcome(
    client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's limit: one error of this machine, exit code 7."""
    start, progress = threading.Thread.start, list[Any]()

    def watch(event: Any) -> None:
        if event.done == 1 and not progress:
            progress.append(event)
            monkeypatch.setattr(threading.Thread, "start", refuse)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with pytest.raises(OSError, match="no thread can be started"):
        await run(client, folder, progress=watch)
    monkeypatch.setattr(threading.Thread, "start", start)
    last = written(folder)
    assert (last["exit"], last["stopped"]["error"]) == (7, "OSError")
    assert (await run(client, folder)).exit_code == 0
