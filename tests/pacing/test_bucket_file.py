"""What is particular to a FileBucket: its file, which can be damaged, full, locked or another's."""

import asyncio
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from asyncfin import ArgumentError, BucketUnavailableError, FileBucket, local
from tests.shared_buckets import file_bucket, loop_time

pytestmark = pytest.mark.virtual


@contextmanager
def limit_files(size: int) -> Iterator[None]:
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
        with limit_files(size):
            for _ in range(3):
                with pytest.raises(BucketUnavailableError, match="can't be used"):
                    await bucket.acquire()
        assert caplog.text.count("can't be used") == 1
        await bucket.acquire()
        assert (await bucket.inspect()).spent_today == 4


async def test_damage_is_survived_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """`inspect` invents no figures; a request continues from what its process stored, or begins anew."""
    path = tmp_path / "bucket"
    async with aclosing(file_bucket(path, 1000, 99)) as bucket:
        await bucket.acquire()
        whole = path.read_bytes()
        contents = [bytes(len(whole)), b"\0", whole[:3], whole[:8] + bytes(68), whole[:40]]
        for index in range(8, len(whole)):
            contents.append(whole[:index] + bytes([whole[index] ^ 4]) + whole[index + 1 :])
        for content in contents:
            path.write_bytes(content)
            with pytest.raises(BucketUnavailableError, match="can't be used: it is damaged"):
                await bucket.inspect()
            assert path.read_bytes() == content
            await bucket.acquire()
        path.unlink()
        await bucket.acquire()
        assert (await bucket.inspect()).spent_today == len(contents) + 2
        assert caplog.text.count("was damaged") == 1
        path.write_bytes(contents[0])
    async with aclosing(file_bucket(path, 1000, 99)) as bucket:
        await bucket.acquire()
        assert (await bucket.inspect()).spent_today == 1


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user can reach."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as name:
        os.chmod(name, 0o755)
        yield Path(name)
        if os.getuid() == 0:
            os.seteuid(0)


def forbid_writing(folder: Path) -> None:
    os.chmod(folder, 0o555)
    if os.geteuid() == 0:
        os.seteuid(65534)  # root may write in it all the same


def give_away(path: Path) -> None:
    path.touch(0o600)
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(path, 65534, 65534)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda path: path.parent.rmdir(), id="no folder"),
        pytest.param(lambda path: path.symlink_to("target"), id="a link"),
        pytest.param(lambda path: path.touch() or path.chmod(0o666), id="others may write it"),
        pytest.param(give_away, id="another user's"),
        pytest.param(lambda path: forbid_writing(path.parent), id="a read-only folder"),
        pytest.param(lambda path: path.write_text("AFTER"), id="a short text"),
        pytest.param(lambda path: path.write_text("x = 1\n" * 1000), id="a long text"),
    ],
)
async def test_unusable_file_is_an_error(
    spoil: Callable[[Path], object], folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At each request, with one warning; a file of something else stays as it is."""
    path = folder / "bucket"
    spoil(path)
    content = path.read_bytes() if path.is_file() else None
    async with aclosing(file_bucket(path, 5)) as bucket:
        for _ in range(3):
            with pytest.raises(BucketUnavailableError, match="bucket can't be used: "):
                await bucket.acquire()
        if content is not None:
            with pytest.raises(BucketUnavailableError):
                await bucket.inspect()
    assert content is None or path.read_bytes() == content
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_inspect_creates_no_file(tmp_path: Path) -> None:
    """Nor in a folder that is missing."""
    for path in (tmp_path / "bucket", tmp_path / "no" / "folder"):
        async with aclosing(file_bucket(path, 10)) as bucket:
            assert (await bucket.inspect()).spent_today == 0
    assert not os.listdir(tmp_path)


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


def test_windows_has_no_file_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no flock."""
    monkeypatch.setattr("asyncfin.local.SUPPORTED", False)
    with pytest.raises(ArgumentError, match="Windows"):
        FileBucket("bucket")
