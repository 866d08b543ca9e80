"""The file of a FileBucket, whose head is the same in every format; the files here are made by hand."""

import asyncio
import os
import struct
import zlib
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread, get_ident
from typing import Any

import pytest

from asyncfin import AllowanceExhaustedError, BucketUnavailableError, local
from tests.shared_buckets import file_bucket, wall_clock

pytestmark = pytest.mark.virtual


def head(number: int, *, day: int | None = None, spent: float = 0.0, until: float = 0.0) -> bytes:
    """Return the head of a file, field by field."""
    today = wall_clock().toordinal() if day is None else day
    fields = b"AFBK" + number.to_bytes(2, "little") + bytes(2) + today.to_bytes(8, "little", signed=True)
    fields += struct.pack("<d", spent) + struct.pack("<d", until)
    assert len(fields) == 32
    return fields + zlib.crc32(fields).to_bytes(4, "little")


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def as_other_version(path: Path, weight: float) -> None:
    """Spend as a version that writes format 999 does: it keeps the head, and writes a rest of its own."""
    number, day, spent, until = struct.unpack("<4xH2xqdd", path.read_bytes()[:32])
    assert number == 1
    path.write_bytes(head(999, day=day, spent=spent + weight, until=until) + b"something else")


async def test_the_head_says_what_was_spent(tmp_path: Path) -> None:
    """On which day, and until when the allowance is used up."""
    path = tmp_path / "bucket"
    async with aclosing(file_bucket(path, 1000, 9)) as bucket:
        for _ in range(3):
            await bucket.acquire()
        assert path.read_bytes()[:36] == head(1, spent=3)
        until = wall_clock().timestamp() + 3600
        await bucket.exhaust(3600)
        assert path.read_bytes()[:36] == head(1, spent=3, until=until)
        assert datetime.fromtimestamp(until, UTC) == bucket.stats().exhausted_until


async def test_a_lock_that_another_process_keeps_is_waited_for_and_then_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a process that was stopped while it held it; a request that waits goes on when it does."""
    monkeypatch.setattr("asyncfin.pacing.file._LOCK_POLLS", 50)
    path, loop = tmp_path / "bucket", asyncio.get_running_loop()
    async with aclosing(file_bucket(path, 1000, 9)) as bucket:
        await bucket.acquire()
        descriptor = os.open(path, os.O_RDWR)
        assert local.try_lock(descriptor)
        began = loop.time()
        with pytest.raises(BucketUnavailableError, match="locked by another process for too long"):
            await bucket.acquire()
        assert loop.time() - began == pytest.approx(0.05, abs=0.002)
        waiting = asyncio.ensure_future(bucket.acquire())
        await asyncio.sleep(0.02)
        assert not waiting.done()
        os.close(descriptor)
        assert await waiting - began < 0.08


async def test_statistics_in_another_thread_leave_the_file_locked(tmp_path: Path) -> None:
    """As an exporter of metrics reads them: a lock belongs to the open file, whatever thread releases it."""
    path = tmp_path / "bucket"
    own, locked = get_ident(), list[bool]()

    def clock() -> datetime:
        if get_ident() == own and path.exists():  # within an operation, which has the file locked
            thread = Thread(target=bucket.stats)
            thread.start()
            thread.join()
            descriptor = local.open_private(path)
            locked.append(not local.try_lock(descriptor))
            os.close(descriptor)
        return datetime(2026, 1, 1, tzinfo=UTC)

    async with aclosing(file_bucket(path, 1000, clock=clock, monotonic=lambda: 0.0)) as bucket:
        await bucket.acquire()
        await bucket.unspend(sent_at=0.0)
        assert bucket.stats().granted == 1
    assert locked == [True] * 3


async def test_another_format_keeps_its_spending_and_the_pace_begins_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The bucket is empty, and one warning names the file and both formats."""
    path = write(tmp_path / "bucket", head(999, spent=40) + b"what only that version knows")
    async with aclosing(file_bucket(path, 10, 5, daily_budget=42)) as bucket:
        seen = await bucket.inspect()
        assert (seen.spent_today, seen.level) == (40, pytest.approx(0))
        loop = asyncio.get_running_loop()
        began = loop.time()
        await bucket.acquire()
        assert loop.time() - began == pytest.approx(0.1)
        await bucket.acquire()
        with pytest.raises(AllowanceExhaustedError, match="daily budget of 42"):
            await bucket.acquire()
    (record,) = caplog.records
    assert record.getMessage() == (
        f"{path} has format 999, and this version of asyncfin writes format 1: today's spending is kept, and"
        " the pace starts over; use one version"
    )


async def test_another_format_keeps_a_used_up_allowance_and_yesterday_counts_no_more(tmp_path: Path) -> None:
    """As the head says it, without knowing the rest."""
    until = wall_clock().timestamp() + 60
    path = write(tmp_path / "used", head(7, spent=1, until=until))
    async with aclosing(file_bucket(path, 10)) as bucket:
        with pytest.raises(AllowanceExhaustedError) as caught:
            await bucket.acquire()
        assert caught.value.resume_at == datetime.fromtimestamp(until, UTC)
        await asyncio.sleep(61)
        await bucket.acquire()
    path = write(tmp_path / "yesterday", head(7, day=wall_clock().toordinal() - 1, spent=50))
    async with aclosing(file_bucket(path, 10, daily_budget=50)) as bucket:
        await bucket.acquire()
        assert bucket.stats().spent_today == 1


async def test_a_learned_rate_begins_anew_with_another_format(tmp_path: Path) -> None:
    """Nothing but the head is read of it."""
    path = write(tmp_path / "bucket", head(999, spent=1) + bytes(500))
    async with aclosing(file_bucket(path)) as bucket:
        await bucket.acquire()
        stats = bucket.stats()
        assert (stats.rate, stats.learned, stats.spent_today) == (None, True, 2)


async def test_two_versions_in_turn_keep_a_budget(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of 50 over two formats 50 are granted, and the warning is given once."""
    path = tmp_path / "bucket"
    async with aclosing(file_bucket(path, 1000, daily_budget=50)) as bucket:
        for _ in range(25):
            await bucket.acquire()
            as_other_version(path, 1)
        with pytest.raises(AllowanceExhaustedError, match="daily budget of 50"):
            await bucket.acquire()
    assert len(caplog.records) == 1


@pytest.mark.parametrize("magic", [b"AFB1", b"AFB2"])
@pytest.mark.parametrize("use", ["acquire", "inspect"])
async def test_a_file_of_before_the_first_release_is_refused(
    tmp_path: Path, magic: bytes, use: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not damaged, and stays as it is."""
    path = write(tmp_path / "bucket", magic + os.urandom(60))
    before = path.read_bytes()
    async with aclosing(file_bucket(path, 10)) as bucket:
        with pytest.raises(BucketUnavailableError, match=str(path)):
            await getattr(bucket, use)()
    assert path.read_bytes() == before
    assert not caplog.records


def _wrong_crc(whole: bytes) -> bytes:
    return whole[:32] + bytes([whole[32] ^ 1]) + whole[33:]


def _short_head(whole: bytes) -> bytes:
    return whole[:35]


def _nothing(whole: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("damage", [_wrong_crc, _short_head, _nothing])
async def test_a_wrong_checksum_or_length_of_the_head_is_damage(
    tmp_path: Path, damage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The bucket starts over: what was spent is unknown."""
    path = tmp_path / "bucket"
    async with aclosing(file_bucket(path, 1000, 9)) as bucket:
        await bucket.acquire()
        path.write_bytes(damage(path.read_bytes()))
        await bucket.acquire()
        assert bucket.stats().spent_today == 1
    (record,) = caplog.records
    assert record.getMessage() == f"{path} was damaged: state reset; today's spending is unknown"


async def test_a_new_file_of_0_bytes_is_a_new_bucket(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path / "bucket", b"")
    async with aclosing(file_bucket(path, 10)) as bucket:
        await bucket.acquire()
    assert not caplog.records


@pytest.mark.parametrize("cut", [36, 41, -1])
async def test_a_damaged_state_below_a_right_head_keeps_the_spending(
    tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Only the pace starts over."""
    path = tmp_path / "bucket"
    async with aclosing(file_bucket(path, 1000, 9)) as bucket:
        await bucket.acquire()
        path.write_bytes(path.read_bytes()[:cut])
        await bucket.acquire()
        assert bucket.stats().spent_today == 2
    assert [each.getMessage() for each in caplog.records] == [
        f"{path} was damaged: the pace starts over; today's spending is kept"
    ]
