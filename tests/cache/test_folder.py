"""A FileCache whose folder, disk or fellow processes are not as they should be."""

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable
from hashlib import scrypt
from pathlib import Path

import pytest

from asyncfin.cache.base import Partition, hash_text
from asyncfin.cache.file import FileCache
from asyncfin.cache.record import EntityRecord
from asyncfin.clock import utc_now
from asyncfin.errors import ArgumentError
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


async def test_clients_of_token_share_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is slow to make: clients that begin together or later make it once."""
    made_keys = []

    def count(*arguments: bytes, **options: int) -> bytes:
        made_keys.append(options)
        return scrypt(*arguments, **options)

    monkeypatch.setattr("asyncfin.cache.file.scrypt", count)
    cache = FileCache(tmp_path)
    clients = [cache.partition(URL, TOKEN) for _ in range(20)]
    await asyncio.gather(*(client.record(ENTITY) for client in clients))
    await cache.partition(URL, TOKEN).record(ENTITY)
    assert len(made_keys) == 1
    await cache.partition(URL, "another-token").record(ENTITY)
    assert len(made_keys) == 2
    assert cache.stats().broken == 0


@pytest.mark.parametrize("damage", ["flipped", "cut", "emptied", "another's"])
async def test_damaged_files_give_no_wrong_values(damage: str, tmp_path: Path) -> None:
    """What is read is right, and the others are dropped."""
    right = content(blocks(*range(40)))
    source = random.Random(damage)
    lost = 0
    for number in range(5):
        path = tmp_path / str(number)
        await fill(path)
        files = files_of(path)
        for file in source.sample(files, 3):
            body = bytearray(file.read_bytes())
            match damage:
                case "flipped":
                    body[source.randrange(len(body))] ^= 1 << source.randrange(8)
                case "cut":
                    del body[source.randrange(len(body)) :]
                case "emptied":
                    body.clear()
                case "another's":
                    body = bytearray(source.choice(files).read_bytes())
            file.write_bytes(body)
        part = FileCache(path).partition(URL, TOKEN)
        rows = content(await part.blocks(ENTITY, DATASET, "original"))
        assert rows.items() <= right.items()
        lost += rows != right
        assert await part.catalogue(ENTITY, DATASET) in (None, catalogue(40))
        assert await current(part) in (None, DATASET)
        await fill(path)
        cache = FileCache(path)
        part = cache.partition(URL, TOKEN)
        assert content(await part.blocks(ENTITY, DATASET, "original")) == right
        assert await current(part) == DATASET
        assert cache.stats().broken == 0
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
    mine, theirs = (FileCache(tmp_path / "cache").partition(URL, TOKEN) for _ in range(2))
    await current(mine)
    await current(theirs)
    loop = asyncio.get_running_loop()
    async with mine.claim(ENTITY):
        began = loop.time()
        async with theirs.claim(OTHER):
            assert loop.time() - began < 1
        async with theirs.claim(ENTITY):
            assert 10 <= loop.time() - began < 10.1


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
