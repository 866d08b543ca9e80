"""`asyncfin status`: what processes share, read without changing it."""

import asyncio
import json
import os
import re
import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest

from asyncfin import FileBucket, FileCache, RedisBucket
from asyncfin.extraction.place import Holder
from asyncfin.extraction.places import place_of
from tests.cli.conftest import ENTITY, UNKNOWN_ID, Command


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ASYNCFIN_BUCKET", "ASYNCFIN_CACHE", "ASYNCFIN_ACCOUNT"):
        monkeypatch.delenv(name, raising=False)


def use(bucket: FileBucket | RedisBucket, grants: int, *, pause: float = 0, exhaust: float = 0) -> None:
    """Spend grants of a bucket as another process does."""

    async def spend() -> None:
        sent = [await bucket.acquire() for _ in range(grants)]
        if pause:
            await bucket.refused(sent_at=sent[-1], retry_after=pause)
        if exhaust:
            await bucket.exhaust(exhaust)
        await bucket.aclose()

    asyncio.run(spend())


def test_shared_spending_is_shown(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Allowance, rate and pause of the shared bucket, in lines or as JSON; the state stays as it was."""
    path = tmp_path / "bucket"
    use(FileBucket(path, 50, 9, daily_budget=100), 7, pause=300)
    monkeypatch.setenv("ASYNCFIN_BUCKET", str(path))
    before = path.read_bytes()
    out = command("status").out
    for line in (
        "spent today: 7 of 100",
        "left today: 93",
        "rate: 50 a second, burst 9",
        "paused: for ",
    ):
        assert line in out
    bucket = json.loads(command("status", "--json").out)["bucket"]
    assert (bucket["spent_today"], bucket["left_today"], bucket["daily_budget"]) == (7, 93, 100)
    assert (bucket["rate"], bucket["burst"], bucket["learned"]) == (50, 9, False)
    assert 250 < bucket["paused_seconds"] <= 300
    assert bucket["reason"] is None
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("", "ASYNCFIN_BUCKET is not set"),
        ("missing", "does not exist"),
        ("foreign", "it is not a bucket's file"),
        ("redis://user:secret@127.0.0.1:1/0", "ASYNCFIN_ACCOUNT must be a text"),
    ],
)
def test_unreadable_is_unknown_with_a_reason(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, reason: str
) -> None:
    """Exit code 0, null in JSON, and a password is never shown; nothing is created."""
    (tmp_path / "foreign").write_text("id,name\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASYNCFIN_BUCKET", place)
    monkeypatch.setenv("ASYNCFIN_CACHE", "no cache")
    for arguments in (("status",), ("status", "--json")):
        result = command(*arguments)
        assert result.code == 0
        assert reason in result.out
        assert "no cache is not a folder" in result.out
        assert "secret" not in result.out + result.err
    shown = json.loads(result.out)
    assert shown["bucket"]["rate"] is shown["cache"]["series"] is None
    assert [each.name for each in tmp_path.iterdir()] == ["foreign"]


@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("redis://:hunt@er2@host/0", "redis://host/0"),
        ("redis://:hunt/er2@host/0", "redis://host/0"),
        ("redis://:hunt?er2@host/0", "redis://"),
        ("redis://host/0?password=hunter2", "redis://host/0"),
        ("redis://host/0?password=hunt@er2", "redis://"),
        ("s3://key:hunt/er2@bucket/night", "s3://bucket/night"),
        ("s3://key:hunter2%40bucket/night", "s3://bucket/night"),
        ("s3://key:hunter2@\u2100bucket/night", "s3://\u2100bucket/night"),
    ],
)
def test_no_part_of_passwords_is_shown(
    command: Command, monkeypatch: pytest.MonkeyPatch, place: str, shown: str
) -> None:
    """Also where it makes the URL invalid, and in a query."""
    monkeypatch.setenv("ASYNCFIN_CACHE", place)
    result = command("status", place, "--json")
    status = json.loads(result.out)
    assert status["cache"]["place"] == status["extractions"][0]["place"] == shown
    assert "hunt" not in result.out
    assert "er2" not in result.out


def test_passwords_of_addresses_are_not_shown(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of URLs in the wrong place neither: a Redis server as the cache, credentials in a prefix."""
    monkeypatch.setenv("ASYNCFIN_BUCKET", "rediss:/user:secret@host/0")
    monkeypatch.setenv("ASYNCFIN_CACHE", "redis://user:secret@host/0")
    status = ("status", "s3://key:secret@bucket/night", "file://user:secret@host/night")
    for arguments in (status, (*status, "--json"), ("cache",), ("query", ENTITY)):
        result = command(*arguments)
        assert "secret" not in result.out + result.err


def test_it_shows_a_cache(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Series and bytes of the folder; hits are counted per process."""
    asyncio.run(FileCache(tmp_path / "cache", account="desk").clear())
    monkeypatch.setenv("ASYNCFIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ASYNCFIN_ACCOUNT", "desk")
    shown = json.loads(command("status", "--json").out)["cache"]
    assert (shown["series"], shown["reason"]) == (0, None)
    assert "0 series, 0 bytes" in command("status").out


def test_a_killed_run_is_unfinished(command: Command, tmp_path: Path) -> None:
    """Not "complete", as the run of the night before was; the next run makes it whole."""
    night = str(tmp_path / "data")
    assert command("extract", ENTITY, "--into", night, "--annual").code == 0
    assert "ended without an outcome" not in command("status", night).out
    # As SIGKILL leaves it: the lock ends, and names the run that took it last.
    began = datetime(2026, 11, 28, 5, 9, tzinfo=UTC)
    place_of(night).lock(Holder(began=began, pid=19014)).release()
    lines = command("status", night).out.splitlines()
    assert f"extraction {night}: not running" in lines
    said = (
        f"the run begun 2026-11-28 05:09:00 UTC by {socket.gethostname()} pid 19014 ended without an outcome"
    )
    assert f"  {said}; the same command continues it" in lines
    assert lines[-1].startswith("  the run before it: ended ")
    (shown,) = json.loads(command("status", night, "--json").out)["extractions"]
    assert (shown["running"], shown["unfinished"], shown["pid"]) == (False, True, 19014)
    assert command("extract", ENTITY, "--into", night, "--annual").code == 0
    (shown,) = json.loads(command("status", night, "--json").out)["extractions"]
    assert (shown["unfinished"], shown["pid"], shown["last"]["unchanged"]) == (False, None, 1)


@pytest.mark.parametrize(("options", "feed"), [((), "no feed"), (("--history",), "1 run in the feed")])
def test_query_and_size_are_shown(
    command: Command, tmp_path: Path, options: tuple[str, ...], feed: str
) -> None:
    """As the last run has left them."""
    night = str(tmp_path / "data")
    command("extract", ENTITY, "--into", night, "--annual", "--metric", "Revenue", *options)
    last_run = r"  last run: ended \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, complete"
    (last,) = [shown["last"] for shown in json.loads(command("status", night, "--json").out)["extractions"]]
    lines = command("status", night).out.splitlines()
    assert '  query: {"metric_ids": ["Revenue"]}, all fiscal years, original values' in lines
    size = f"{last['file_rows']:,} rows, {last['file_bytes'] / 1e3:,.1f} kB"
    assert f"  1 file: {size}; {feed}" in lines
    assert re.match(last_run, lines[-1])


def test_the_reasons_of_failures_are_shown(command: Command, tmp_path: Path) -> None:
    """By class, with the first message."""
    night = str(tmp_path / "data")
    command("extract", UNKNOWN_ID, "--into", night, "--annual")
    assert ", failed: 0 unchanged, 0 done, 1 failed" in command("status", night).out
    command("extract", ENTITY, UNKNOWN_ID, "--into", night, "--annual")
    assert ", partial: 0 unchanged, 1 done, 1 failed" in command("status", night).out
    assert re.search(r"^    1 x NotFoundError, first: .*404", command("status", night).out, re.MULTILINE)


def test_lock_holder_is_shown(command: Command, tmp_path: Path) -> None:
    """Machine, process and times."""
    data = str(tmp_path / "data")
    (tmp_path / "data").mkdir()
    lock = place_of(data).lock(Holder())
    shown = command("status", data).out
    (extraction,) = json.loads(command("status", data, "--json").out)["extractions"]
    lock.release()
    said = rf"running, locked by {socket.gethostname()} pid {os.getpid()}, began \S+ \S+ UTC"
    assert re.search(f"{re.escape(data)}: {said}", shown)
    assert (extraction["host"], extraction["pid"]) == (socket.gethostname(), os.getpid())
    assert (extraction["running"], extraction["unfinished"]) == (True, False)
    assert extraction["began"].endswith("Z")
    assert "locked by" not in command("status", data).out


def test_resume_ends_a_pause(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spending, rate and budget stay as the processes have set them."""
    path = tmp_path / "bucket"
    use(FileBucket(path, 50, 9, daily_budget=100), 7, pause=300, exhaust=3_000)
    monkeypatch.setenv("ASYNCFIN_BUCKET", str(path))
    assert "used up until" in command("status").out
    ended = command("status", "--resume")
    assert ended.code == 0
    assert "used up" not in ended.out
    for line in ("spent today: 7 of 100", "rate: 50 a second, burst 9", "paused: no"):
        assert line in ended.out
    assert json.loads(command("status", "--resume", "--json").out)["bucket"]["paused_seconds"] == 0


@pytest.mark.parametrize(("place", "code"), [(None, 2), ("missing", 2), ("foreign", 7)])
def test_resume_without_bucket_is_error(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str | None, code: int
) -> None:
    """It would otherwise look as if something had been resumed."""
    (tmp_path / "foreign").write_text("id,name")
    if place:
        monkeypatch.setenv("ASYNCFIN_BUCKET", str(tmp_path / place))
    assert command("status", "--resume").code == code
