"""What is particular to a FileBucket: its file, which can be damaged, full, locked or another's."""

import asyncio
import os
import random
import resource
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from asyncfin import ArgumentError, BucketUnavailableError, FileBucket, local
from tests.shared_buckets import file_bucket, loop_time

pytestmark = pytest.mark.virtual


@contextmanager
def limited(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size: a write is cut short there, or fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [0, 50])
async def test_short_write_is_an_error(size: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of a full disk too; it is logged once, and nothing that was spent is forgotten."""
    async with aclosing(file_bucket(tmp_path / "bucket", 1000, 9, daily_budget=4)) as bucket:
        for _ in range(3):
            await bucket.acquire()
        with limited(size):
            for _ in range(3):
                with pytest.raises(BucketUnavailableError, match=r"can't be used"):
                    await bucket.acquire()
        assert len([each for each in caplog.records if "can't be used" in each.getMessage()]) == 1
        await bucket.acquire()
        assert (await bucket.inspect()).spent_today == 4


async def test_damage_is_survived_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the file contains, a process that used it continues from what it stored."""
    chance, path = random.Random(3), tmp_path / "bucket"
    async with aclosing(file_bucket(path, 1000, 100)) as bucket:
        await bucket.acquire()
        whole = path.read_bytes()
        for number in range(50):
            spoilt = bytearray(whole)
            spoilt[chance.randrange(8, len(spoilt))] ^= 1 << chance.randrange(8)
            path.write_bytes(spoilt[: chance.choice([0, 8, 40])] if number % 3 else spoilt)
            await bucket.acquire()
        assert bucket.stats().spent_today == 51
    assert [record.getMessage().partition(")")[2] for record in caplog.records] == [
        " was damaged: it continues from what this process last stored there"
    ]


@pytest.mark.parametrize(
    "content",
    [bytes(76), b"\0", b"AFB", b"AFBK\x02\0\0\0" + bytes(68)],
    ids=["zeros", "zero", "half a magic", "magic and zeros"],
)
async def test_unfinished_write_is_damage(tmp_path: Path, content: bytes) -> None:
    """Zeros, or the beginning of the file: `inspect` invents no figures, and a request replaces it."""
    path = tmp_path / "bucket"
    path.write_bytes(content)
    path.chmod(0o600)
    async with aclosing(file_bucket(path, 1000, 9)) as bucket:
        with pytest.raises(BucketUnavailableError, match="can't be used: it is damaged"):
            await bucket.inspect()
        assert path.read_bytes() == content
        assert bucket.stats().spent_today is None
        await bucket.acquire()
        assert (await bucket.inspect()).spent_today == 1


@pytest.mark.parametrize("text", ["id,name,aliases\n", "AFTER", "x = 1\n" * 1000], ids=len)
async def test_file_of_something_else_is_kept(tmp_path: Path, text: str) -> None:
    """Such as that of names, where the bucket's was meant."""
    path = tmp_path / "names.csv"
    path.write_text(text)
    with pytest.raises(BucketUnavailableError, match="can't be used: it is not a bucket's file"):
        await FileBucket(path, 5).acquire()
    assert path.read_text() == text


async def test_unusable_file_is_an_error(tmp_path: Path) -> None:
    """No folder, a folder in its place, a link, a file that others may write, or that of another user."""
    open_to_all, another_users = tmp_path / "open", tmp_path / "another"
    open_to_all.touch()
    open_to_all.chmod(0o666)
    (tmp_path / "link").symlink_to(tmp_path / "target")
    unusable = [tmp_path / "no" / "bucket", tmp_path, tmp_path / "link", open_to_all]
    if os.geteuid() == 0:  # only root can give files away
        another_users.touch(0o600)
        os.chown(another_users, 65534, 65534)
        unusable.append(another_users)
    for path in unusable:
        with pytest.raises(BucketUnavailableError, match="can't be used"):
            await FileBucket(path, 5).acquire()
    for wrong in ("", 5, b"bytes", "a\0b"):
        with pytest.raises(ArgumentError, match="path must be"):
            FileBucket(wrong)  # type: ignore[arg-type]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_read_only_folder_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """One clear error for each request, and one warning."""
    with TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        bucket = FileBucket(Path(folder, "bucket"), 5)
        os.seteuid(65534)
        try:
            for _ in range(3):
                with pytest.raises(BucketUnavailableError, match="bucket can't be used: Permission denied"):
                    await bucket.acquire()
        finally:
            os.seteuid(0)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_inspect_creates_no_file(tmp_path: Path) -> None:
    """Nor in a folder that is missing; a foreign file can't be read."""
    async with aclosing(file_bucket(tmp_path / "bucket", 10)) as bucket:
        await bucket.inspect()
        assert not os.listdir(tmp_path)
    async with aclosing(file_bucket(tmp_path / "no" / "folder", 10)) as bucket:
        assert (await bucket.inspect()).spent_today == 0
    (tmp_path / "foreign").write_bytes(b"id,name\n")
    async with aclosing(file_bucket(tmp_path / "foreign", 10)) as bucket:
        with pytest.raises(BucketUnavailableError):
            await bucket.inspect()


async def test_lock_of_stopped_process_fails(tmp_path: Path) -> None:
    """After five seconds; a lock that ends before is waited for."""
    path = tmp_path / "bucket"
    async with aclosing(file_bucket(path, 1000, 9)) as bucket:
        await bucket.acquire()
        descriptor = local.open_private(path)
        assert local.try_lock(descriptor)
        began = loop_time()
        with pytest.raises(BucketUnavailableError, match="locked it for too long"):
            await bucket.acquire()
        assert loop_time() - began == pytest.approx(5, abs=0.1)
        waiting = [asyncio.ensure_future(bucket.acquire()) for _ in range(3)]
        await asyncio.sleep(1)
        os.close(descriptor)
        await asyncio.gather(*waiting)


def test_file_bucket_is_rejected_on_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Windows has no flock."""
    monkeypatch.setattr("asyncfin.local.SUPPORTED", False)
    with pytest.raises(ArgumentError, match="Windows"):
        file_bucket(tmp_path / "bucket")
