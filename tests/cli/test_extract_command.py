"""`asyncfin extract`: its report, its exit codes, its interruption, and what a terminal shows."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest
from attrs import evolve

from asyncfin.cli.extract import _show_progress
from asyncfin.extraction.progress import ExtractProgress
from asyncfin.sandbox import Hang, Sandbox, Slow, Status
from tests.cli.conftest import (
    ENTITY,
    LONG_ENTITY,
    UNKNOWN_ID,
    Command,
    Terminal,
    finish,
    serving,
    set_environment,
    start,
)
from tests.handmade import dataset


@pytest.fixture
def night(tmp_path: Path) -> str:
    return str(tmp_path / "night")


def count(folder: str) -> int:
    with duckdb.connect() as connection:
        return connection.execute(f"SELECT count(*) FROM '{folder}/*.parquet'").fetchall()[0][0]


def test_an_extraction_says_what_it_did(command: Command, night: str) -> None:
    """Exit code 0 and a few lines; the second time nothing has changed."""
    first = command("extract", ENTITY, "--into", night, "--annual")
    assert (first.code, len(first.err.splitlines())) == (0, 1)
    assert first.err.endswith("Z begins: 1 entity, 0 with a file\n")
    assert first.out.startswith("entities: 1 done, 0 unchanged, 0 failed, 0 left\n2 requests")
    assert count(night) == 6
    assert "1 unchanged" in command("extract", ENTITY, "--into", night, "--annual").out


def test_the_report_as_json(command: Command, night: str) -> None:
    """One document, whose counts and entities agree."""
    document = json.loads(command("extract", ENTITY, UNKNOWN_ID, "--into", night, "--annual", "--json").out)
    assert (document["done"], document["failed"], document["requests"]) == (1, 1, 3)
    assert [each["state"] for each in document["entities"]] == ["done", "failed"]
    assert document["entities"][1]["failure"]["status"] == 404


def test_missing_names_decide_exit_code(
    command: Command, night: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where an entity failed: the same code as in the outcome on disk."""
    ids = [f"O-{number:032d}" for number in range(25)]
    companies = [dataset({("Revenue", "all"): {"FY2024": 1}}, entity_id=entity_id) for entity_id in ids]
    with serving(*companies) as sandbox:
        set_environment(monkeypatch, sandbox)
        result = command("extract", UNKNOWN_ID, *ids, "--into", night, "--annual", "--metric", "Revenu")
    outcome = json.loads(Path(night).with_name("_night.journal").joinpath("last.json").read_text())
    assert (outcome["failed"], outcome["exit"], result.code) == (1, 2, 2)
    assert "'Revenu'" in result.err


def test_ids_come_from_a_file(command: Command, night: str, tmp_path: Path, service: Sandbox) -> None:
    """One a line; empty lines, what follows a # and a byte order mark are skipped."""
    ids = tmp_path / "ids.txt"
    ids.write_text(f"{ENTITY}  # the only one\n\n# all\n", encoding="utf-8-sig")
    assert "1 done" in command("extract", "--ids", str(ids), "--into", night, "--annual").out
    reading, writing = os.pipe()
    os.write(writing, f"# all\n{ENTITY}\n".encode("utf-8-sig"))
    os.close(writing)
    result = finish(
        start("extract", "--ids", "-", "--into", night, "--annual", sandbox=service, stdin=reading)
    )
    os.close(reading)
    assert "1 unchanged" in result.out


@pytest.mark.parametrize("into", ["ftp://bucket/night", "s3:/bucket/night", "gs://bucket"])
def test_an_address_is_no_local_folder(
    command: Command, service: Sandbox, into: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address without its extra, or of an unknown kind, is refused before anything is written or sent."""
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.chdir(tmp_path)
    before = len(service.log)
    result = command("extract", ENTITY, "--into", into)
    assert result.code == 2
    assert (len(service.log), list(tmp_path.iterdir())) == (before, [])


def test_another_query_must_replace(command: Command, night: str) -> None:
    """Exit code 2, and the line says what to do."""
    command("extract", ENTITY, "--into", night, "--annual")
    refused = command("extract", ENTITY, "--into", night, "--quarterly")
    assert refused.code == 2
    assert "another query" in refused.line
    assert "periods (Annual, now Quarterly)" in refused.line
    assert "--replace" in refused.line
    assert command("extract", ENTITY, "--into", night, "--quarterly", "--replace").code == 0
    assert count(night) == 1


def test_a_dry_run_writes_nothing(command: Command, night: str, service: Sandbox) -> None:
    """It reads three catalogues, or none where files show what entities cost."""
    before = len(service.log)
    arguments = ("extract", ENTITY, "--into", night, "--annual", "--dry-run")
    result = command(*arguments, "--rate", "2")
    assert result.code == 0
    assert [served.operation for served in service.log[before:]] == ["catalogue"]
    assert "about 2 requests will be sent" in result.out
    assert "at least 1 s at 2 requests a second" in result.out
    assert not list(Path(night).parent.iterdir())
    assert command("extract", ENTITY, "--into", night, "--annual").code == 0
    again = json.loads(command(*arguments, "--json").out)
    assert (again["files"], again["least"], again["most"], again["spent"]) == (1, 1, 3, 0)


def test_dry_run_names_options(command: Command, night: str) -> None:
    """What no entity has is named as on the command line."""
    arguments = ("extract", ENTITY, "--into", night, "--metric", "Nonsense", "--annual")
    result = command(*arguments, "--dry-run")
    assert "Nonsense" in result.out
    assert "metric_ids" not in result.out


def test_dry_run_keeps_shared_budget(
    command: Command, night: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The budget of a shared bucket binds all processes: an estimate must not lift it for those at work."""
    monkeypatch.setenv("ASYNCFIN_BUCKET", str(tmp_path / "bucket"))
    budget = ("--daily-budget", "2")
    assert command("extract", ENTITY, "--into", night, "--annual", *budget).code == 0
    result = command("extract", ENTITY, "--into", f"{night}2", "--annual", "--dry-run", *budget)
    assert (result.code, "daily budget of 2" in result.err) == (5, True)


def test_fresh_files_cost_no_request(command: Command, night: str, service: Sandbox) -> None:
    """With --fresh-for; a longer age is asked for again."""
    arguments = ("extract", ENTITY, "--into", night, "--annual")
    command(*arguments)
    before = len(service.log)
    result = command(*arguments, "--fresh-for", "20h")
    assert "1 unchanged" in result.out
    assert len(service.log) == before
    command(*arguments, "--fresh-for", "0s")
    assert len(service.log) == before + 1


def test_rare_names_are_accepted_if_asked(command: Command, night: str) -> None:
    """Otherwise a name that no entity has is wrong usage."""
    arguments = ("extract", ENTITY, "--into", night, "--annual", "--metric", "Revenu")
    assert command(*arguments).code == 2
    assert command(*arguments, "--allow-missing").code == 0


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send on Windows")
def test_second_ctrl_c_ends_at_once(service: Sandbox, night: str) -> None:
    """Exit code 130 both times; after the first one the entity in progress is done, after two nothing is."""
    service.inject(Hang(operation="query"))
    twice = start("extract", ENTITY, "--into", night, "--annual", sandbox=service)
    _await_query(service, twice)
    twice.send_signal(signal.SIGINT)
    assert twice.stderr is not None
    assert "begins: 1 entity, 0 with a file" in twice.stderr.readline()
    assert "Ctrl-C again" in twice.stderr.readline()
    twice.send_signal(signal.SIGINT)
    assert finish(twice) == (130, "", "")
    service.clear_faults()
    service.inject(Slow(operation="query", seconds=1))
    arguments = (ENTITY, UNKNOWN_ID, "--into", night, "--annual", "--max-in-flight", "1")
    once = start("extract", *arguments, sandbox=service)
    _await_query(service, once)
    once.send_signal(signal.SIGINT)
    result = finish(once)
    assert result.code == 130
    assert "1 done, 0 unchanged, 0 failed, 1 left" in result.out
    # On a slow machine there is a line of progress between this one and the first.
    assert result.err.splitlines()[-1] == "asyncfin: ended by Ctrl-C; the same command goes on from there"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGTERM to send on Windows")
def test_sigterm_cancels_what_is_in_progress(
    command: Command, night: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of the last run stay whole, and the lock is gone."""
    ids = [f"O-{number:032d}" for number in range(1, 21)]
    listed = tmp_path / "ids.txt"
    listed.write_text("\n".join(ids))
    arguments = ("extract", "--ids", str(listed), "--into", night, "--annual", "--max-in-flight", "20")
    numbers = {("Revenue", "all"): {"FY2024": 1.0}}
    with serving(*(dataset(numbers, entity_id=each) for each in ids)) as service:
        monkeypatch.setenv("ASYNCFIN_BASE_URL", service.base_url)
        monkeypatch.setenv("ASYNCFIN_TOKEN", service.token)
        assert command(*arguments).code == 0
        known = len(service.log)
        service.inject(Hang())
        process = start(*arguments, sandbox=service)
        while sum(each.operation == "dataset" for each in service.log[known:]) < 2:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        assert finish(process).code == 143
        assert count(night) == 20
        last = json.loads((Path(night).with_name("_night.journal") / "last.json").read_text())
        assert (last["outcome"], last["left"], last["failed"]) == ("interrupted", 20, 0)
        service.clear_faults()
        again = command(*arguments)
        assert (again.code, "20 unchanged" in again.out) == (0, True)


def test_run_outlives_reader_of_its_progress(service: Sandbox, night: str) -> None:
    """Lines without a reader are lost; files and report are not."""
    reading, writing = os.pipe()
    arguments = ("extract", UNKNOWN_ID, ENTITY, LONG_ENTITY, "--into", night, "--annual")
    process = start(*arguments, sandbox=service, stderr=writing)
    os.close(reading)
    os.close(writing)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "2 done, 0 unchanged, 1 failed, 0 left" in out


def _await_query(service: Sandbox, process: "subprocess.Popen[str]") -> None:
    """Return when the process has sent a query."""
    known = len(service.log)
    while "query" not in {served.operation for served in service.log[known:]}:
        assert process.poll() is None
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals on Windows")
def test_terminal_of_80_columns_shows_progress(service: Sandbox, night: str) -> None:
    """No line is wider, and the line that changes is gone at the end."""
    terminal = Terminal("extract", UNKNOWN_ID, LONG_ENTITY, "--into", night, "--annual", sandbox=service)
    assert terminal.end() == 1
    assert re.search(r"\d of 2 entities, \d requests?, \S+ a second", terminal.shown)
    *lines, last = terminal.shown.splitlines()
    assert [line for line in lines if len(line.rpartition("\r")[2]) > 80] == []
    assert last.startswith("asyncfin: 1 of 2 entities failed; ")
    assert terminal.shown.count("NotFoundError") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals on Windows")
def test_wait_outlasts_a_used_up_allowance(service: Sandbox, night: str) -> None:
    """The terminal says until when, in whole; Ctrl-C ends the wait, and the next run does what is left."""
    service.inject(Status(operation="catalogue", status=429, retry_after=5000))
    terminal = Terminal("extract", ENTITY, "--into", night, "--annual", "--wait", sandbox=service)
    terminal.read_until("waiting: the allowance is used up")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert re.search(r"waiting: the allowance is used up until \S+ \S+ UTC", terminal.shown, re.MULTILINE)
    assert "1 left" in terminal.shown


def test_progress_lines_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """However much happens in between."""
    course: list[dict[str, Any]] = [
        {"seconds": 0.0},
        {"seconds": 9.9, "done": 1},
        {"seconds": 9.95, "failed": 1},
        {"seconds": 10.0, "requests": 20},
        {"seconds": 19.9, "done": 2},
        {"seconds": 20.5, "done": 1000, "requests": 1, "unchanged": 1, "waiting": "a reason"},
    ]
    none = ExtractProgress(2000, 7, done=0, unchanged=0, failed=0, requests=0, seconds=0.0)
    with _show_progress(quiet=False) as tell:
        assert tell is not None
        for facts in course:
            tell(evolve(none, **facts))
    lines = capsys.readouterr().err.splitlines()
    for line in lines:
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", line)
    assert [line[21:] for line in lines] == [
        "begins: 2,000 entities, 7 with a file",
        "0 of 2,000 entities, 20 requests, 2.0 a second",
        "1,001 of 2,000 entities, 1 request, 0.0 a second, 1 unchanged, waiting: a reason",
    ]
