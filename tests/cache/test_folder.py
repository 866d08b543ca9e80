"""A FileCache whose folder, disk or fellow processes are not as they should be."""

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from asyncfin.cache.base import Partition
from asyncfin.cache.file import FileCache
from asyncfin.cache.record import EntityRecord
from asyncfin.clock import utc_now
from asyncfin.errors import ArgumentError
from asyncfin.table.block import compress_blocks
from tests.cache.processes import files_of, kill_writers, run, start
from tests.cache.stored import (
    AT,
    DATASET,
    ENTITY,
    NEXT,
    OTHER,
    URL,
    blocks,
    catalogue,
    content,
    current,
)
from tests.cache.worker import NOBODY, TOKEN

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


async def fill(path: Path) -> None:
    """Fill a cache with a publication."""
    cache = FileCache(path)
    part = cache.partition(URL, TOKEN)
    await part.observe(ENTITY, EntityRecord(AT, DATASET))
    await part.put_catalogue(catalogue(40))
    for first in range(0, 40, 10):
        await part.put_blocks(ENTITY, DATASET, "original", blocks(*range(first, first + 10)))
    await cache.aclose()


def list_paths(path: Path) -> list[Path]:
    return sorted(path.rglob("*"))


def give_away(path: Path) -> None:
    path.mkdir(0o700)
    os.chown(path, NOBODY, NOBODY)


def open_to_others(path: Path) -> None:
    path.mkdir()
    path.chmod(0o750)


def link(path: Path) -> None:
    (path.parent / "real").mkdir(0o700)
    path.symlink_to(path.parent / "real")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (open_to_others, "must be closed to other users"),
        (link, "must be a folder, not a symlink"),
        (lambda path: path.symlink_to(path.parent / "nowhere"), "must be a folder, not a symlink"),
        (lambda path: path.write_text("a note"), "must be a folder, not a file"),
        pytest.param(give_away, "must be this user's", marks=as_root),
    ],
)
async def test_folder_of_others_is_rejected(
    spoil: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    """At first use, with an error that says what is wrong; nothing is written."""
    spoil(tmp_path / "cache")
    before = list_paths(tmp_path)
    cache = FileCache(tmp_path / "cache")
    for _ in range(2):
        with pytest.raises(ArgumentError, match=message):
            await cache.partition(URL, TOKEN).record(ENTITY)
    with pytest.raises(ArgumentError, match=message):
        await cache.inspect()
    assert list_paths(tmp_path) == before


@as_root
@pytest.mark.parametrize("spoil", ["link", "owner"])
async def test_part_of_others_is_dropped(spoil: str, tmp_path: Path) -> None:
    """None is followed elsewhere; it is counted, and its series are requested again."""
    await fill(tmp_path / "cache")
    elsewhere = tmp_path / "elsewhere"
    for file in files_of(tmp_path / "cache"):
        if spoil == "owner":
            os.chown(file, NOBODY, NOBODY)
        else:
            elsewhere.write_bytes(file.read_bytes())
            elsewhere.chmod(0o600)
            file.unlink()
            file.symlink_to(elsewhere)
    cache = FileCache(tmp_path / "cache")
    part = cache.partition(URL, TOKEN)
    assert await current(part) is None
    assert await part.catalogue(ENTITY, DATASET) is None
    assert await part.blocks(ENTITY, DATASET, "original") == ()
    assert cache.stats().broken == 6
    await fill(tmp_path / "cache")
    assert await part.catalogue(ENTITY, DATASET) == catalogue(40)


async def test_folder_is_closed_to_others(tmp_path: Path) -> None:
    """All folders and files, whatever the umask allows."""
    before = os.umask(0)
    try:
        await fill(tmp_path / "some" / "cache")
    finally:
        os.umask(before)
    paths = [tmp_path / "some" / "cache", *(tmp_path / "some" / "cache").rglob("*")]
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in paths}
    assert modes == {(True, 0o700), (False, 0o600)}


async def test_nothing_secret_is_in_folder(tmp_path: Path) -> None:
    """Neither the token nor a digest to guess it by: that is salted, and slow to make."""
    cache = FileCache(tmp_path / "cache")
    part = cache.partition(URL, "s3cr3t-t0ken-of-a-user")
    await part.put_blocks(ENTITY, DATASET, "original", blocks(1))
    await part.observe(ENTITY, EntityRecord(AT, DATASET))
    files = [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]
    assert not any(b"s3cr3t" in file.read_bytes() for file in files)
    assert "s3cr3t" not in repr([files, cache, part, vars(cache), vars(part)])
    assert len((tmp_path / "cache" / "salt").read_bytes()) == 32


async def test_token_callable_needs_account(tmp_path: Path) -> None:
    """A callable's tokens may change from call to call, so they can't say whose the data is."""

    async def ask() -> str:
        return TOKEN

    with pytest.raises(ArgumentError, match=r"account must name the account of a token callable"):
        FileCache(tmp_path / "cache").partition(URL, ask)
    FileCache(tmp_path / "cache", account="desk").partition(URL, ask)


@pytest.mark.parametrize("path", ["", 5, None, "s3://bucket/x", b"bytes", "a\0b"])
def test_wrong_path_is_rejected(path: object) -> None:
    """When the cache is made."""
    with pytest.raises(ArgumentError, match=r"^folder must be"):
        FileCache(path)  # type: ignore[arg-type]


def test_system_without_locks_is_rejected(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Windows has none, and importing is no error there."""
    monkeypatch.setattr("asyncfin.local.SUPPORTED", False)
    with pytest.raises(ArgumentError, match="use MemoryCache"):
        FileCache(tmp_path)


async def test_damaged_files_never_give_wrong_values(tmp_path: Path) -> None:
    """Flipped, cut, emptied or of another key: what is read is right, and the others are dropped."""
    right = content(blocks(*range(40)))
    source = random.Random(5)
    lost = 0
    for number in range(20):
        path = tmp_path / str(number)
        await fill(path)
        files = files_of(path)
        for file in source.sample(files, 3):
            body = bytearray(file.read_bytes())
            match number % 4:
                case 0:
                    body[source.randrange(len(body))] ^= 1 << source.randrange(8)
                case 1:
                    del body[source.randrange(len(body)) :]
                case 2:
                    body.clear()
                case 3:
                    body = bytearray(source.choice(files).read_bytes())
            file.write_bytes(body)
        cache = FileCache(path)
        part = cache.partition(URL, TOKEN)
        found = content(await part.blocks(ENTITY, DATASET, "original"))
        assert found.items() <= right.items()
        lost += found != right
        assert await part.catalogue(ENTITY, DATASET) in (None, catalogue(40))
        assert await current(part) in (None, DATASET)
        await fill(path)
        again = FileCache(path)
        assert content(await again.partition(URL, TOKEN).blocks(ENTITY, DATASET, "original")) == right
        assert await current(again.partition(URL, TOKEN)) == DATASET
        assert again.stats().broken == 0
    assert lost


@as_root
def test_unwritable_folder_is_skipped(tmp_path: Path) -> None:
    """Every question is answered, from memory too."""
    for parent in [tmp_path, *tmp_path.parents]:
        if parent.stat().st_uid == 0 and parent != Path("/") and "pytest" in str(parent):
            parent.chmod(0o755)
    (tmp_path / "cache").mkdir(0o700)
    os.chown(tmp_path / "cache", NOBODY, NOBODY)
    (tmp_path / "cache").chmod(0o500)
    series, broken = map(int, run("use_as_nobody", tmp_path / "cache").splitlines()[-1].split())
    assert series == 2
    assert broken > 0
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("limit", [0, 100, 300, 500, 4_096])
def test_full_disk_loses_no_result(limit: int, tmp_path: Path) -> None:
    """Wherever a file is cut off, nothing of it is left; with room again the cache goes on."""
    series, _ = map(int, run("use_on_a_full_disk", tmp_path / "cache", LIMIT=str(limit)).split())
    assert series == 2
    assert not list((tmp_path / "cache").rglob(".*"))
    assert run("use", tmp_path / "cache", 2) == "2 0\n2 0"


def test_eight_processes_fill_one_folder(tmp_path: Path) -> None:
    """From the first moment on: all that they store is found."""
    # Seconds of real time: eight interpreters start.
    workers = [start("fill", tmp_path / "cache", first, 40) for first in range(0, 320, 40)]
    for worker in workers:
        out, err = worker.communicate(timeout=100)
        assert (worker.returncode, out.strip()) == (0, "0"), err

    async def read() -> object:
        part = FileCache(tmp_path / "cache").partition(URL, TOKEN)
        assert await part.catalogue(ENTITY, DATASET) == catalogue(100)
        return content(await part.blocks(ENTITY, DATASET, "original"))

    assert asyncio.run(read()) == content(blocks(*range(320)))


def test_killed_writer_harms_no_other(tmp_path: Path) -> None:
    """What it leaves is right, and the next process goes on with it."""
    # Seconds of real time: interpreters start, and are killed while they write.
    kill_writers(tmp_path / "cache", 3)


def test_fork_shares_neither_threads_nor_locks(tmp_path: Path) -> None:
    """Parent and child go on storing, and each finds what the other has stored."""
    assert run("use_after_a_fork", tmp_path / "cache") == "0 61 0"


async def test_full_folder_drops_replaced_publications_first(tmp_path: Path) -> None:
    """Even if they were used last; then the files used least recently."""
    page = compress_blocks(blocks(*range(400)))
    probe = FileCache(tmp_path / "probe", account="desk")
    await probe.partition(URL, TOKEN).put_blocks(ENTITY, DATASET, "original", page)
    (file,) = files_of(tmp_path / "probe")
    limit = 8 * file.stat().st_size
    part = FileCache(tmp_path / "cache", account="desk", max_bytes=limit).partition(URL, TOKEN)
    await part.observe(ENTITY, EntityRecord(utc_now(), NEXT))
    await put_parts(part, ENTITY, NEXT, page, 4, age=7_200)
    await put_parts(part, OTHER, DATASET, page, 2, age=10_000)
    await put_parts(part, ENTITY, DATASET, page, 2)
    assert await count_parts(tmp_path, ENTITY, DATASET) < 2
    assert await count_parts(tmp_path, ENTITY, NEXT) == 4
    assert await count_parts(tmp_path, OTHER, DATASET) == 2
    await put_parts(part, ENTITY, NEXT, page, 3)
    assert await count_parts(tmp_path, ENTITY, DATASET) == 0
    assert await count_parts(tmp_path, OTHER, DATASET) < 2
    assert await count_parts(tmp_path, ENTITY, NEXT) == 7
    assert sum(file.stat().st_size for file in files_of(tmp_path / "cache")) <= limit


async def test_eviction_uses_no_record(tmp_path: Path) -> None:
    """Looking for what to evict leaves the time of the last use; reading a record does not."""
    cache = FileCache(tmp_path / "cache", account="desk", max_bytes=40_000)
    part = cache.partition(URL, TOKEN)
    await part.observe(OTHER, EntityRecord(AT, DATASET))
    (record,) = files_of(tmp_path / "cache")
    os.utime(record, (time.time() - 7_200,) * 2)
    part._store._evict()  # type: ignore[attr-defined]
    assert time.time() - record.stat().st_mtime > 3_600
    assert await current(part, OTHER) == DATASET
    assert time.time() - record.stat().st_mtime < 3_600


async def put_parts(
    part: Partition, entity_id: str, dataset_id: str, page: tuple, count: int, *, age: float = 0
) -> None:
    """Store parts that were last used some seconds ago."""
    folder = Path(part._store._folder)  # type: ignore[attr-defined]
    before = set(files_of(folder))
    for _ in range(count):
        part._memory.clear(None)  # type: ignore[attr-defined]
        await part.put_blocks(entity_id, dataset_id, "original", page)
    for file in set(files_of(folder)) - before:
        os.utime(file, (time.time() - age,) * 2)


async def count_parts(path: Path, entity_id: str, dataset_id: str) -> int:
    """Return how many parts of a publication are in the folder."""
    part = FileCache(path / "cache", account="desk").partition(URL, TOKEN)
    key = part._make_key(entity_id, dataset_id, "original")  # type: ignore[attr-defined]
    return len(list((path / "cache" / await part._make_group(key)).glob("*")))  # type: ignore[attr-defined]


async def test_clearing_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the disk; memory is cleared all the same."""
    await fill(tmp_path / "cache")
    cache = FileCache(tmp_path / "cache")
    part = cache.partition(URL, TOKEN)
    assert await part.catalogue(ENTITY, DATASET) is not None

    def fail(self: Path) -> None:
        raise PermissionError(1, "not permitted", str(self))

    with monkeypatch.context() as failing:
        failing.setattr(Path, "unlink", fail)
        for entity_id in (None, ENTITY):
            with pytest.raises(OSError, match="not permitted"):
                await cache.clear(entity_id)
    assert cache.stats().series == 0
    await cache.clear()
    assert files_of(tmp_path / "cache") == []
    assert list((tmp_path / "cache").glob("*/*")) == []


@pytest.mark.virtual
async def test_claim_waits_ten_seconds_at_most(tmp_path: Path) -> None:
    """Then both processes send their requests. Other entities wait for nothing."""
    one, other = (FileCache(tmp_path / "cache").partition(URL, TOKEN) for _ in range(2))
    await current(one)
    await current(other)
    loop = asyncio.get_running_loop()
    async with one.claim(ENTITY):
        began = loop.time()
        async with other.claim(ENTITY):
            assert 10 <= loop.time() - began < 10.1
    async with AsyncExitStack() as stack:
        began = loop.time()
        for number in range(32):
            await stack.enter_async_context((one, other)[number % 2].claim(f"O-{number:032x}"))
        assert loop.time() - began < 1


async def test_claim_ends_with_its_process(tmp_path: Path) -> None:
    """Also by leaving the block and by cancellation."""
    part = FileCache(tmp_path / "cache").partition(URL, TOKEN)
    await current(part)

    async def claim(seconds: float = 0) -> None:
        async with part.claim(ENTITY):
            await asyncio.sleep(seconds)

    with start("claim", tmp_path / "cache") as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "claimed\n"
        waiting = asyncio.ensure_future(claim())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 0.1)
        holder.send_signal(signal.SIGKILL)
        await waiting
        holder.communicate()
    cancelled = asyncio.ensure_future(claim(1_000))
    await asyncio.sleep(0.05)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    async with asyncio.timeout(5):
        await claim()
