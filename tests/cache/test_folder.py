"""A FileCache whose folder, disk or fellow processes are not as they should be."""

import asyncio
import os
import random
import resource
import signal
import threading
import time
from collections.abc import Callable, Sequence
from hashlib import scrypt
from pathlib import Path
from typing import Any

import pytest

from asyncfin.cache.base import Partition, hash_text
from asyncfin.cache.entries import EntityRecord
from asyncfin.cache.file import FileCache
from asyncfin.clock import utc_now
from asyncfin.errors import ArgumentError
from tests.cache.processes import CONTEXT, check_ends, files_of, forks, put_each, run, start
from tests.cache.stored import (
    AT,
    DATASET,
    ENTITY,
    NEXT,
    OTHER,
    TOKEN,
    URL,
    blocks,
    catalogue,
    check_missing,
    check_whole,
    content,
    current,
    fill,
)

# ASYNCFIN_KILLS=200 takes a minute.
KILLS = int(os.environ.get("ASYNCFIN_KILLS", "3"))
NOBODY = 65534
pytestmark = pytest.mark.usefixtures("patient")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


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
    await fill(FileCache(tmp_path / "cache"))
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
    await check_missing(cache.partition(URL, TOKEN))
    assert cache.stats().broken == 6
    await fill(FileCache(tmp_path / "cache"))
    await check_whole(FileCache(tmp_path / "cache").partition(URL, TOKEN))


async def test_folder_is_closed_to_others(tmp_path: Path) -> None:
    """All folders and files, whatever the umask allows. None contains the token."""
    cache, before = FileCache(tmp_path / "some" / "cache"), os.umask(0)
    try:
        part = await fill(cache)
    finally:
        os.umask(before)
    paths = [tmp_path / "some" / "cache", *(tmp_path / "some" / "cache").rglob("*")]
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in paths}
    assert modes == {(True, 0o700), (False, 0o600)}
    assert not any(TOKEN.encode() in path.read_bytes() for path in paths if path.is_file())
    assert TOKEN not in repr([paths, cache, part, vars(cache), vars(part)])
    assert len((tmp_path / "some" / "cache" / "salt").read_bytes()) == 32


async def test_clients_of_token_share_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is slow to make: clients that begin together or later make it once."""
    salts = []

    def count(*arguments: bytes, **options: Any) -> bytes:
        salts.append(options["salt"])
        return scrypt(*arguments, **options)

    monkeypatch.setattr("asyncfin.cache.file.scrypt", count)
    cache = FileCache(tmp_path)
    clients = [cache.partition(URL, TOKEN) for _ in range(20)]
    await asyncio.gather(*(client.record(ENTITY) for client in clients))
    await cache.partition(URL, TOKEN).record(ENTITY)
    assert len(salts) == 1
    await cache.partition(URL, "another-token").record(ENTITY)
    assert len(salts) == 2
    assert cache.stats().broken == 0


async def use(path: Path, is_usable: bool) -> None:
    """Store and read, whatever the folder is like."""
    cache = FileCache(path)
    await check_whole(await fill(cache))
    assert (cache.stats().broken == 0) == is_usable


@forks
@as_root
def test_unwritable_folder_is_skipped(tmp_path: Path) -> None:
    """Every question is answered, from memory too."""

    async def use_as_nobody() -> None:
        os.seteuid(NOBODY)
        await use(tmp_path / "cache", is_usable=False)

    for parent in [tmp_path, *tmp_path.parents]:
        if parent.stat().st_uid == 0 and "pytest" in str(parent):
            parent.chmod(0o755)
    (tmp_path / "cache").mkdir(0o700)
    os.chown(tmp_path / "cache", NOBODY, NOBODY)
    (tmp_path / "cache").chmod(0o500)
    run(use_as_nobody)
    assert list((tmp_path / "cache").iterdir()) == []


@forks
@pytest.mark.parametrize("limit", [0, 100, 300, 500, 4_096])
def test_full_disk_loses_no_result(limit: int, tmp_path: Path) -> None:
    """Wherever a file is cut off, nothing of it is left; with room again the cache goes on."""

    async def use_on_a_full_disk() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        await use(tmp_path / "cache", is_usable=limit > 4_000)

    run(use_on_a_full_disk)
    assert not list((tmp_path / "cache").rglob(".*"))
    for _ in range(2):
        run(use, tmp_path / "cache", True)


@forks
def test_eight_processes_fill_one_folder(tmp_path: Path) -> None:
    """From the first moment on: all that they store is found."""

    async def fill_part(first: int) -> None:
        cache = FileCache(tmp_path / "cache")
        await cache.partition(URL, TOKEN).put_catalogue(catalogue(100))
        await put_each(cache, range(first, first + 40))
        assert cache.stats().broken == 0

    async def read() -> object:
        part = FileCache(tmp_path / "cache").partition(URL, TOKEN)
        assert await part.catalogue(ENTITY, DATASET) == catalogue(100)
        return content(await part.blocks(ENTITY, DATASET, "original"))

    check_ends([start(fill_part, first) for first in range(0, 320, 40)])
    assert asyncio.run(read()) == content(blocks(*range(320)))


@forks
def test_killed_writer_harms_no_other(tmp_path: Path) -> None:
    """What it leaves at any moment of its puts is right, and the next process goes on with it."""
    chance, (reader, writer) = random.Random(KILLS), os.pipe()

    async def fill_for_ever() -> None:
        part, number = FileCache(tmp_path / "cache", max_bytes=200_000).partition(URL, TOKEN), 0
        while True:
            dataset_id = (DATASET, NEXT)[number % 2]
            os.write(writer, b".")
            page = blocks(*range(number, number + 50))
            await part.put_blocks(ENTITY, dataset_id, "original", page)
            await part.put_catalogue(catalogue(50, dataset_id=dataset_id))
            await part.observe(ENTITY, EntityRecord(AT, dataset_id))
            number += 1

    async def read() -> int:
        cache = FileCache(tmp_path / "cache")
        part, count = cache.partition(URL, TOKEN), 0
        for dataset_id in (DATASET, NEXT):
            rows = content(await part.blocks(ENTITY, dataset_id, "original"))
            assert rows == content(blocks(*(int(series_id.removeprefix("S-")) for series_id in rows)))
            assert await part.catalogue(ENTITY, dataset_id) in (None, catalogue(50, dataset_id=dataset_id))
            count += len(rows)
        await part.put_blocks(OTHER, DATASET, "original", blocks(1))
        assert content(await part.blocks(OTHER, DATASET, "original")) == content(blocks(1))
        assert cache.stats().broken == 0
        return count

    counts = []
    for _ in range(KILLS):
        process = start(fill_for_ever)
        for _ in range(chance.randrange(1, 6)):
            os.read(reader, 1)
        time.sleep(chance.random() * 0.01)
        process.kill()
        process.join()
        counts.append(asyncio.run(read()))
    assert sum(counts) > KILLS


@forks
def test_claim_ends_with_its_process(tmp_path: Path) -> None:
    """Which is killed while another one waits."""
    reader, writer = os.pipe()

    async def claim_for_ever() -> None:
        async with FileCache(tmp_path / "cache").partition(URL, TOKEN).claim(ENTITY):
            os.write(writer, b".")
            await asyncio.sleep(1_000)

    async def wait() -> None:
        part = FileCache(tmp_path / "cache").partition(URL, TOKEN)
        asyncio.get_running_loop().call_later(0.2, process.kill)
        async with asyncio.timeout(5), part.claim(ENTITY):
            process.join(5)  # the lock ends a moment before the process
            assert process.exitcode == -signal.SIGKILL

    process = start(claim_for_ever)
    os.read(reader, 1)
    asyncio.run(wait())


@forks
async def test_fork_shares_neither_threads_nor_locks(tmp_path: Path) -> None:
    """Parent and child go on storing, and each finds what the other has stored; a claim is the parent's."""
    cache, is_free = FileCache(tmp_path / "cache"), CONTEXT.Event()
    part = cache.partition(URL, TOKEN)

    async def put_when_free(numbers: Sequence[int]) -> None:
        assert is_free.wait(100)
        assert {"S-0", "S-200", "S-229"} <= await put_each(cache, numbers)

    await put_each(cache, range(1))
    async with part.claim(ENTITY):
        child = start(put_when_free, range(200, 230))
    async with asyncio.timeout(5), part.claim(ENTITY):
        is_free.set()
    await put_each(cache, range(100, 130))
    await asyncio.to_thread(check_ends, [child])
    assert len(await put_each(cache, [])) == 61
    assert cache.stats().broken == 0


async def put_parts(part: Partition, publication: tuple[str, str], count: int, *, age: float = 0) -> None:
    """Store parts of one size that were last used some seconds ago."""
    folder = Path(part._store._folder)  # type: ignore[attr-defined]
    before = set(files_of(folder))
    for _ in range(count):
        part._memory.clear(None)
        await part.put_blocks(*publication, "original", blocks(*range(400)))
    for file in set(files_of(folder)) - before:
        os.utime(file, (time.time() - age,) * 2)


def count_parts(path: Path, publication: tuple[str, str]) -> int:
    """Return how many parts of a publication are in the folder."""
    entity, dataset = map(hash_text, publication)
    return len(list(path.glob(f"*/{entity}-*/{dataset}.original/*")))


async def test_full_folder_drops_replaced_publications_first(tmp_path: Path) -> None:
    """Even if they were used last; then the files used least recently. Looking for them is no use."""
    await put_parts(FileCache(tmp_path / "probe").partition(URL, TOKEN), (ENTITY, DATASET), 1)
    limit = 8 * max(file.stat().st_size for file in files_of(tmp_path / "probe"))
    part = FileCache(tmp_path / "cache", max_bytes=limit).partition(URL, TOKEN)
    await part.observe(ENTITY, EntityRecord(utc_now(), NEXT))
    (record,) = files_of(tmp_path / "cache")
    os.utime(record, (time.time() - 7_200,) * 2)
    replaced, latest, unused = (ENTITY, DATASET), (ENTITY, NEXT), (OTHER, DATASET)

    def counts() -> list[int]:
        return [count_parts(tmp_path / "cache", publication) for publication in (replaced, latest, unused)]

    await put_parts(part, latest, 4, age=7_200)
    await put_parts(part, unused, 2, age=10_000)
    await put_parts(part, replaced, 2)
    assert counts()[0] < 2
    assert counts()[1:] == [4, 2]
    await put_parts(part, latest, 3)
    assert counts()[:2] == [0, 7]
    assert counts()[2] < 2
    assert sum(file.stat().st_size for file in files_of(tmp_path / "cache")) <= limit
    assert time.time() - record.stat().st_mtime > 3_600
    assert await current(part) == NEXT
    assert time.time() - record.stat().st_mtime < 3_600


async def test_put_waits_for_no_long_eviction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One goes on in its thread; once that has ended, puts keep the folder within its limit."""
    monkeypatch.setattr("asyncfin.cache.file.EVICTION_SECONDS", 0.01)
    monkeypatch.setattr("asyncfin.cache.base.STORE_SECONDS", 5.0)
    has_room, unlink = threading.Event(), Path.unlink

    def wait_and_unlink(self: Path) -> None:
        has_room.wait(50)
        unlink(self)

    monkeypatch.setattr(Path, "unlink", wait_and_unlink)
    cache = FileCache(tmp_path / "cache", max_bytes=40_000)
    part = cache.partition(URL, TOKEN)
    try:
        await put_parts(part, (ENTITY, DATASET), 12)
        assert cache.stats().broken == 0
        assert count_parts(tmp_path / "cache", (ENTITY, DATASET)) == 12
    finally:
        has_room.set()
    monkeypatch.setattr("asyncfin.cache.file.EVICTION_SECONDS", 50.0)
    for _ in range(50):
        await put_parts(part, (ENTITY, DATASET), 1)
        if sum(file.stat().st_size for file in files_of(tmp_path / "cache")) <= 40_000:
            break
    else:
        pytest.fail("the folder stays above its limit")


async def test_cancelled_puts_keep_the_limit(tmp_path: Path) -> None:
    """What their threads have written counts, and evicts."""
    part = FileCache(tmp_path / "cache", max_bytes=200_000).partition(URL, TOKEN)
    await part.put_catalogue(catalogue(1))
    (name,) = (str(file.relative_to(tmp_path / "cache")) for file in files_of(tmp_path / "cache"))
    for number in range(60):
        key = f"{name.rpartition('/')[0]}/{number:016x}-1-10000"
        put = asyncio.ensure_future(part._store.put(key, bytes(20_000)))
        await asyncio.sleep(0)
        put.cancel()
        await asyncio.wait([put])
    await asyncio.get_running_loop().shutdown_default_executor()
    part._store._eviction.join()  # type: ignore[attr-defined]
    assert sum(file.stat().st_size for file in files_of(tmp_path / "cache")) < 250_000


async def test_clearing_that_fails_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the disk; memory is cleared all the same."""
    cache = FileCache(tmp_path / "cache")
    await fill(cache)

    def fail(self: Path) -> None:
        raise PermissionError(1, "not permitted", str(self))

    with monkeypatch.context() as failing:
        failing.setattr(Path, "unlink", fail)
        for entity_id in (None, ENTITY):
            with pytest.raises(OSError, match="not permitted"):
                await cache.clear(entity_id)
    assert cache.stats().series == 0
    await cache.clear()
    assert list((tmp_path / "cache").glob("*/*")) == []
