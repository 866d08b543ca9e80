"""`asyncfin status`: what processes share, read without changing it."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from asyncfin import FileBucket, FileCache, RedisBucket
from asyncfin.extraction.folder import Folder
from asyncfin.local import open_private, try_lock
from tests.cli.conftest import Command
from tests.shared_buckets import redis_server

if TYPE_CHECKING:
    from tests.extraction.s3 import S3


@pytest.fixture
def s3() -> "Iterator[S3]":
    pytest.importorskip("moto")
    from tests.extraction.s3 import served

    with served() as running:
        yield running


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


def test_it_shows_what_other_processes_have_spent(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert bucket["waiting"] is None
    assert bucket["reasons"] == {"waiting": "counted per process"}
    assert path.read_bytes() == before


def test_a_used_up_allowance_leaves_nothing(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service's own allowance counts, also without a daily budget."""
    use(FileBucket(tmp_path / "bucket", 50), 1, exhaust=3600)
    monkeypatch.setenv("ASYNCFIN_BUCKET", str(tmp_path / "bucket"))
    bucket = json.loads(command("status", "--json").out)["bucket"]
    assert bucket["left_today"] == 0
    assert bucket["exhausted_until"].endswith("Z")
    assert "left today: 0, used up until" in command("status").out


def test_it_reads_a_bucket_in_redis(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a learned rate; a server that is away is unknown, and the exit code is 0."""
    with redis_server() as server:
        use(RedisBucket(server.url, account="us"), 4, pause=1)
        monkeypatch.setenv("ASYNCFIN_BUCKET", server.url)
        monkeypatch.setenv("ASYNCFIN_ACCOUNT", "us")
        bucket = json.loads(command("status", "--json").out)["bucket"]
        assert (bucket["spent_today"], bucket["learned"]) == (4, True)
        assert bucket["rate"] > 0
        assert "responses do not state" in bucket["reasons"]["left_today"]
    result = command("status", "--json")
    assert result.code == 0
    bucket = json.loads(result.out)["bucket"]
    assert bucket["spent_today"] is None
    assert "can't be reached" in bucket["reasons"]["spent_today"]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("", "ASYNCFIN_BUCKET is not set"),
        ("missing", "does not exist"),
        ("foreign", "it is not a bucket's file"),
        ("redis://user:secret@127.0.0.1:1/0", "name the account by ASYNCFIN_ACCOUNT"),
    ],
)
def test_what_cannot_be_read_is_unknown_with_a_reason(
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


def test_it_shows_a_cache(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Series and bytes of the folder; hits are counted per process."""
    asyncio.run(FileCache(tmp_path / "cache", account="desk").clear())
    monkeypatch.setenv("ASYNCFIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ASYNCFIN_ACCOUNT", "desk")
    shown = json.loads(command("status", "--json").out)["cache"]
    assert (shown["series"], shown["hits"]) == (0, None)
    assert shown["reasons"] == {"hits": "counted per process"}
    assert "0 series, 0.0 MB" in command("status").out


def test_it_shows_whether_a_run_holds_the_lock_of_a_folder(command: Command, tmp_path: Path) -> None:
    """Looking at the lock does not take it; what is not a folder is unknown."""
    folder = Folder.at(tmp_path / "data")
    folder.data.mkdir()
    folder.beside.mkdir()
    data = str(folder.data)
    descriptor = open_private(folder.lock)
    assert f"extraction {data}: not running" in command("status", data).out
    assert try_lock(descriptor)
    shown = json.loads(command("status", data, str(tmp_path / "other"), "--json").out)["extractions"]
    assert shown[0] == {"place": data, "running": True, "reason": None}
    assert shown[1]["running"] is None
    assert "is not a folder" in shown[1]["reason"]


def test_it_shows_whether_a_run_holds_the_lock_of_a_prefix(command: Command, s3: "S3") -> None:
    """A lock that was renewed lately is a run's; without a lock there is no run."""
    import obstore

    assert "s3://figures/prices: not running" in command("status", "s3://figures/prices").out
    obstore.put(s3.store, "prices.journal/lock", b"owner 1")
    assert "s3://figures/prices: running" in command("status", "s3://figures/prices").out
