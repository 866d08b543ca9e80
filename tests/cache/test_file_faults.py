"""A FileCache whose folder, file, disk, clock or fellow processes are not as they should be."""

import asyncio
import fcntl
import os
import random
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from asyncfin.cache.availability import CLOSED_SECONDS, seconds_left
from asyncfin.cache.file import FileCache
from asyncfin.cache.record import Pointer
from asyncfin.errors import ArgumentError
from tests.cache.conftest import Clock
from tests.cache.processes import file_of, kill_writers, run, start
from tests.cache.stored import AT, DATASET, ENTITY, OTHER, URL, blocks, catalogue, content, pointer
from tests.cache.worker import NOBODY, TOKEN

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


async def filled(path: Path, account: str | None = None) -> None:
    """Fill a cache with a publication, and close it."""
    cache = FileCache(path, account=account)
    part = cache.partition(URL, TOKEN)
    await part.confirm(ENTITY, Pointer(DATASET, AT))
    await part.put_catalogue(catalogue(40))
    for first in range(0, 40, 10):
        await part.put_blocks(ENTITY, DATASET, "original", blocks(*range(first, first + 10)))
    await cache.aclose()


def _another_users(path: Path) -> None:
    path.mkdir(0o700)
    os.chown(path, NOBODY, NOBODY)


def _open_to_others(path: Path) -> None:
    path.mkdir()
    path.chmod(0o750)


def _symlink(path: Path) -> None:
    (path.parent / "real").mkdir(0o700)
    path.symlink_to(path.parent / "real")


def _symlink_to_file(path: Path) -> None:
    target = path.parent.parent / f"elsewhere-{path.name}"
    target.write_bytes(b"")
    target.chmod(0o600)
    path.symlink_to(target)


def _dangling(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


def _file(path: Path) -> None:
    path.write_text("a note")


def _listed(path: Path) -> list[Path]:
    return sorted(path.rglob("*"))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        pytest.param(_another_users, "this user's, not that of user 65534", marks=as_root),
        (_open_to_others, "closed to other users .* not of mode 750"),
        (_symlink, "must be a folder, not a symlink"),
        (_dangling, "must be a folder, not a symlink"),
        (_file, "must be a folder, not a file"),
    ],
)
async def test_a_folder_that_is_not_ours_alone_is_refused_and_left_alone(
    made: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    """At first use, with an error that says what is wrong; nothing is written."""
    made(tmp_path / "cache")
    before = _listed(tmp_path)
    cache = FileCache(tmp_path / "cache")
    for _ in range(2):
        with pytest.raises(ArgumentError, match=message):
            await pointer(cache.partition(URL, TOKEN), ENTITY)
    assert _listed(tmp_path) == before
    await cache.aclose()


async def test_a_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    """The cache's folder is refused where a part of its path is a file."""
    (tmp_path / "note").write_text("")
    with pytest.raises(ArgumentError, match="a part of the path is a file"):
        await pointer(FileCache(tmp_path / "note" / "cache").partition(URL, TOKEN), ENTITY)


@pytest.mark.parametrize("pattern", ["*.sqlite", "*.lock", "salt"])
@pytest.mark.parametrize(
    "made", [_open_to_others, _symlink, _symlink_to_file, "mode", pytest.param("owner", marks=as_root)]
)
async def test_a_file_of_the_folder_that_is_not_ours_alone_is_refused(
    pattern: str, made: Callable[[Path], None] | str, tmp_path: Path
) -> None:
    """Each of its files is looked at, and none followed elsewhere."""
    await filled(tmp_path / "cache")
    (file,) = (tmp_path / "cache").glob(pattern)
    match made:
        case "mode":
            file.chmod(0o604)
        case "owner":
            os.chown(file, NOBODY, NOBODY)
        case _:
            file.unlink()
            assert callable(made)
            made(file)
    cache = FileCache(tmp_path / "cache")
    with pytest.raises(ArgumentError, match=r"the cache's .* must be"):
        await pointer(cache.partition(URL, TOKEN), ENTITY)
    await cache.aclose()


async def test_folder_and_files_are_closed_to_other_users(tmp_path: Path) -> None:
    """The folder and its files are private whatever the umask allows, the write-ahead log included."""
    before = os.umask(0)
    try:
        cache = FileCache(tmp_path / "some" / "cache")
        part = cache.partition(URL, TOKEN)
        await part.put_blocks(ENTITY, DATASET, "original", blocks(1))
        async with part.claim(ENTITY):
            modes = {each.name: each.stat().st_mode & 0o777 for each in (tmp_path / "some/cache").iterdir()}
    finally:
        os.umask(before)
    assert (tmp_path / "some" / "cache").stat().st_mode & 0o777 == 0o700
    assert set(modes.values()) == {0o600}
    assert len([name for name in modes if name.endswith("-wal")]) == 1
    await cache.aclose()


async def test_nothing_secret_is_in_the_folder(tmp_path: Path) -> None:
    """The folder holds neither the token nor a digest to guess it by: that is salted, and slow to make."""
    cache = FileCache(tmp_path / "cache")
    part = cache.partition(URL, "s3cr3t-t0ken-of-a-user")
    await part.put_blocks(ENTITY, DATASET, "original", blocks(1))
    await pointer(part, ENTITY)
    await cache.aclose()
    stored = b"".join(each.read_bytes() for each in (tmp_path / "cache").iterdir())
    shown = repr([cache, part, vars(cache), vars(part)])
    assert b"s3cr3t" not in stored
    assert "s3cr3t" not in shown
    assert len((tmp_path / "cache" / "salt").read_bytes()) == 32


async def test_another_token_is_another_account_also_later(tmp_path: Path) -> None:
    """A new process finds what was stored with its token, and nothing else."""
    await filled(tmp_path / "cache")
    cache = FileCache(tmp_path / "cache")
    assert await pointer(cache.partition(URL, TOKEN), ENTITY) == Pointer(DATASET, AT)
    assert await pointer(cache.partition(URL, "b-token"), ENTITY) is None
    await cache.aclose()
    named = FileCache(tmp_path / "cache", account=TOKEN)
    assert await pointer(named.partition(URL, TOKEN), ENTITY) is None
    await named.aclose()


async def test_a_token_callable_needs_a_named_account(tmp_path: Path) -> None:
    """A callable's tokens may change from call to call, so they can't say whose the data is."""

    async def ask() -> str:
        return TOKEN

    with pytest.raises(ArgumentError, match=r"account must name the account of a token callable"):
        FileCache(tmp_path / "cache").partition(URL, ask)
    FileCache(tmp_path / "cache", account="desk").partition(URL, ask)


@pytest.mark.parametrize("path", ["", 5, None, "s3://bucket/x", b"bytes", "a\0b"])
def test_what_is_no_path_is_refused(path: object) -> None:
    """When the cache is made."""
    with pytest.raises(ArgumentError, match=r"^folder must be"):
        FileCache(path)


def test_a_system_without_locks_is_told_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Windows has none, and importing is no error there."""
    monkeypatch.setattr("asyncfin.cache.file.SUPPORTED", False)
    with pytest.raises(ArgumentError, match="use MemoryCache"):
        FileCache(tmp_path)


def _garbage(file: Path) -> None:
    file.write_bytes(random.Random(1).randbytes(50_000))


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _header(file: Path) -> None:
    file.write_bytes(b"\0" * 100 + file.read_bytes()[100:])


def _half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _of_another_format(file: Path) -> None:
    file.unlink()
    other = sqlite3.connect(file)
    other.execute("CREATE TABLE part (something TEXT)")
    other.close()
    file.chmod(0o600)


@pytest.mark.parametrize("spoil", [_garbage, _empty, _header, _half, _of_another_format])
async def test_a_spoilt_file_is_begun_anew(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    """Nothing wrong is read from it, and what is stored next is found again."""
    await filled(tmp_path / "cache")
    spoil(file_of(tmp_path / "cache"))
    right = content(blocks(*range(40)))
    for _ in range(3):
        cache = FileCache(tmp_path / "cache")
        part = cache.partition(URL, TOKEN)
        found = content(await part.blocks(ENTITY, DATASET, "original"))
        assert found.items() <= right.items()
        assert await part.catalogue(ENTITY, DATASET) in (None, catalogue(40))
        assert await pointer(part, ENTITY) in (None, Pointer(DATASET, AT))
        await part.confirm(ENTITY, Pointer(DATASET, AT))
        await part.put_catalogue(catalogue(40))
        await part.put_blocks(ENTITY, DATASET, "original", blocks(*range(40)))
        assert content(await part.blocks(ENTITY, DATASET, "original")) == right
        await cache.aclose()
    assert found == right


@pytest.mark.virtual
async def test_a_spoilt_file_that_others_have_open_is_not_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Closing it they would delete the new one's log; so this one goes on without, and says so once."""
    await filled(tmp_path / "cache")
    with start("hold", tmp_path / "cache") as holder:
        assert holder.stdout.readline() == "True\n"
        _garbage(file_of(tmp_path / "cache"))
        for each in (tmp_path / "cache").glob("*.sqlite-*"):
            each.unlink()
        inode = file_of(tmp_path / "cache").stat().st_ino
        cache = FileCache(tmp_path / "cache")
        part = cache.partition(URL, TOKEN)
        await part.put_blocks(ENTITY, DATASET, "original", blocks(1))
        assert content(await part.blocks(ENTITY, DATASET, "original")) == content(blocks(1))
        assert file_of(tmp_path / "cache").stat().st_ino == inode
        assert len(caplog.records) == 1
        assert "is skipped" in caplog.text
        assert cache.stats().broken == 1
        holder.communicate(timeout=60)
    await asyncio.sleep(CLOSED_SECONDS)
    await part.put_blocks(ENTITY, DATASET, "original", blocks(2))
    await cache.aclose()
    again = FileCache(tmp_path / "cache")
    kept = content(await again.partition(URL, TOKEN).blocks(ENTITY, DATASET, "original"))
    assert kept == content(blocks(2))
    await again.aclose()


async def test_a_file_of_another_format_is_left_alone(tmp_path: Path) -> None:
    """The format's number is in the file's name: an older or newer release has its own."""
    await filled(tmp_path / "cache")
    newer = tmp_path / "cache" / "publications-99l.sqlite"
    newer.write_bytes(b"of a newer release")
    cache = FileCache(tmp_path / "cache")
    assert len(await cache.partition(URL, TOKEN).blocks(ENTITY, DATASET, "original")) == 4
    await cache.aclose()
    assert newer.read_bytes() == b"of a newer release"


async def test_files_of_other_formats_are_deleted_after_a_week_and_with_everything(tmp_path: Path) -> None:
    """Unless a process has them open; `clear` of everything leaves no readable data behind."""
    await filled(tmp_path / "cache")
    week = 7 * 86_400
    new, old, open_one = (tmp_path / "cache" / f"publications-9{n}l.sqlite" for n in range(3))
    for each, age in ((new, 0), (old, week + 60), (open_one, week + 60)):
        each.write_bytes(b"of another release")
        each.with_suffix(".sqlite-wal").write_bytes(b"its log")
        for file in (each, each.with_suffix(".sqlite-wal")):
            os.utime(file, (time.time() - age,) * 2)
    with open_one.with_suffix(".lock").open("w") as lock:
        open_one.with_suffix(".lock").chmod(0o600)
        fcntl.flock(lock, fcntl.LOCK_SH)
        cache = FileCache(tmp_path / "cache")
        assert len(await cache.partition(URL, TOKEN).blocks(ENTITY, DATASET, "original")) == 4
        assert [each.exists() for each in (new, old, open_one)] == [True, False, True]
        await cache.clear()
        assert [each.exists() for each in (new, old, open_one)] == [False, False, True]
        assert not new.with_suffix(".sqlite-wal").exists()
    assert cache.stats().series == 0
    await cache.aclose()


async def test_the_limit_is_that_of_the_folder(tmp_path: Path) -> None:
    """The files of other formats count too."""
    cache = FileCache(tmp_path / "cache", max_bytes=100_000)
    await cache.partition(URL, TOKEN).put_blocks(ENTITY, DATASET, "original", blocks(*range(60)))
    size = cache.stats().bytes
    await cache.aclose()
    (tmp_path / "cache" / "publications-99l.sqlite").write_bytes(bytes(100_000 - size // 2))
    again = FileCache(tmp_path / "cache", max_bytes=100_000)
    await again.partition(URL, TOKEN).put_blocks(OTHER, DATASET, "original", blocks(*range(10)))
    assert again.stats().bytes <= size // 2
    await again.aclose()


async def test_a_damaged_schema_page_heals(tmp_path: Path) -> None:
    """At 80 places: a few uses later everything is stored and found again, and nothing is raised."""
    # Seconds of real time: 80 copies of the file are opened, and most are written to the disk again.
    await filled(tmp_path / "good", "desk")
    whole, source = file_of(tmp_path / "good").read_bytes(), random.Random(6)
    written = [at for at in range(100, 4096) if whole[at]]
    for place in sorted(source.sample(written, 80)):
        shutil.rmtree(tmp_path / "bad", ignore_errors=True)
        shutil.copytree(tmp_path / "good", tmp_path / "bad")
        with file_of(tmp_path / "bad").open("r+b") as file:
            file.seek(place)
            file.write(bytes([whole[place] ^ source.randrange(1, 256)]))
        cache = FileCache(tmp_path / "bad", account="desk")
        cache.stats()
        part = cache.partition(URL, TOKEN)
        for number in range(100, 103):
            await part.put_blocks(ENTITY, DATASET, "original", blocks(number))
            await part.confirm(ENTITY, Pointer(DATASET, AT))
        await cache.aclose()
        other = FileCache(tmp_path / "bad", account="desk")
        found = content(await other.partition(URL, TOKEN).blocks(ENTITY, DATASET, "original"))
        assert "S-102" in found, place
        assert await pointer(other.partition(URL, TOKEN), ENTITY) == Pointer(DATASET, AT), place
        await other.clear()
        assert other.stats().series == 0
        await other.aclose()


async def test_flipped_bytes_never_make_a_wrong_number(tmp_path: Path) -> None:
    """At 200 places: what is read is right or not there, nothing is raised, and it can be stored again."""
    await filled(tmp_path / "good", "desk")
    right, whole = content(blocks(*range(40))), file_of(tmp_path / "good").read_bytes()
    source = random.Random(20)
    lost = 0
    for place in sorted(source.sample(range(len(whole)), 200)):
        shutil.rmtree(tmp_path / "bad", ignore_errors=True)
        shutil.copytree(tmp_path / "good", tmp_path / "bad")
        with file_of(tmp_path / "bad").open("r+b") as file:
            file.seek(place)
            file.write(bytes([whole[place] ^ source.randrange(1, 256)]))
        cache = FileCache(tmp_path / "bad", account="desk")
        part = cache.partition(URL, TOKEN)
        found = content(await part.blocks(ENTITY, DATASET, "original"))
        assert found.items() <= right.items()
        assert await part.catalogue(ENTITY, DATASET) in (None, catalogue(40))
        assert await pointer(part, ENTITY) in (None, Pointer(DATASET, AT))
        lost += found != right
        await part.put_blocks(ENTITY, DATASET, "original", blocks(*range(41)))
        assert content(await part.blocks(ENTITY, DATASET, "original")) == content(blocks(*range(41)))
        await cache.aclose()
    assert lost > 10, "the bytes that were flipped did not matter"


async def test_the_file_is_believed_only_for_what_it_was_stored_for(tmp_path: Path) -> None:
    """A row that has come under another key is dropped: its checksum is over its key too."""
    await filled(tmp_path / "cache")
    raw = sqlite3.connect(file_of(tmp_path / "cache"))
    with raw:
        raw.execute("UPDATE part SET entity = ?", (OTHER,))
        raw.execute("UPDATE record SET entity = ?", (OTHER,))
    raw.close()
    cache = FileCache(tmp_path / "cache")
    part = cache.partition(URL, TOKEN)
    assert await part.blocks(OTHER, DATASET, "original") == ()
    assert await part.catalogue(OTHER, DATASET) is None
    assert await pointer(part, OTHER) is None
    assert cache.stats().broken == 6
    await cache.aclose()


@as_root
def test_a_folder_that_cannot_be_written_is_passed_over(tmp_path: Path) -> None:
    """Every question is answered, from memory too."""
    for each in [tmp_path, *tmp_path.parents]:
        if each.stat().st_uid == 0 and each != Path("/") and "pytest" in str(each):
            each.chmod(0o755)
    (tmp_path / "cache").mkdir(0o700)
    os.chown(tmp_path / "cache", NOBODY, NOBODY)
    (tmp_path / "cache").chmod(0o500)
    found, broken = map(int, run("use_as_nobody", tmp_path / "cache").splitlines()[-1].split())
    assert found == 2
    assert broken > 0
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("limit", [0, 4_096, 20_000, 60_000, 100_000])
async def test_a_full_disk_loses_no_answer(limit: int, tmp_path: Path) -> None:
    """Wherever it comes to its end; with room again the cache goes on."""
    found, _ = map(int, run("use_on_a_full_disk", tmp_path / "cache", LIMIT=str(limit)).split())
    assert found == 2
    assert run("use", tmp_path / "cache", 2) == "2 0\n2 0"


def test_eight_processes_fill_one_folder_at_once(tmp_path: Path) -> None:
    """From the first moment on: all that they store is found, and no file grows without end."""
    # Seconds of real time: eight interpreters start, and write to one file in turn.
    workers = [start("fill", tmp_path / "cache", first, 40) for first in range(0, 320, 40)]
    for worker in workers:
        out, err = worker.communicate(timeout=100)
        assert (worker.returncode, out.strip()) == (0, "0"), err

    async def found() -> object:
        cache = FileCache(tmp_path / "cache")
        part = cache.partition(URL, TOKEN)
        assert await part.catalogue(ENTITY, DATASET) == catalogue(100)
        kept = content(await part.blocks(ENTITY, DATASET, "original"))
        await cache.aclose()
        return kept

    assert asyncio.run(found()) == content(blocks(*range(320)))


def test_a_process_killed_within_a_put_harms_no_other(tmp_path: Path) -> None:
    """After a kill within a put what is in the file is right, and the next process goes on with it."""
    # Seconds of real time: interpreters start, and are killed while they write.
    kill_writers(tmp_path / "cache", 3)


def test_a_fork_shares_neither_connection_nor_lock(tmp_path: Path) -> None:
    """Parent and child go on storing, and each finds what the other has stored."""
    assert run("use_after_a_fork", tmp_path / "cache") == "0 61 0"


async def test_a_locked_file_is_read_and_not_waited_for_for_ever(
    tmp_path: Path,
) -> None:
    """Readers do not wait for a writer; what can't be stored in time stays in memory."""
    # Two seconds of real time: SQLite waits for a lock in its own thread, by its own clock.
    await filled(tmp_path / "cache")
    locking = sqlite3.connect(file_of(tmp_path / "cache"), isolation_level=None)
    locking.execute("BEGIN IMMEDIATE")
    cache = FileCache(tmp_path / "cache")
    part = cache.partition(URL, TOKEN)
    assert len(await part.blocks(ENTITY, DATASET, "original")) == 4
    await part.put_blocks(ENTITY, DATASET, "original", blocks(77))
    assert "S-77" in content(await part.blocks(ENTITY, DATASET, "original"))
    assert cache.stats().broken > 0
    locking.execute("ROLLBACK")
    locking.close()
    await cache.aclose()


async def test_clearing_that_fails_is_an_error_and_deletes_nothing(
    tmp_path: Path,
) -> None:
    """Clearing raises OSError, and deletes nothing, while another program holds the file for writing."""
    # Of real time: SQLite waits for a lock in its own thread, by its own clock.
    await filled(tmp_path / "cache")
    cache = FileCache(tmp_path / "cache")
    held = cache.stats().bytes
    waits = seconds_left.set(0.1)
    with closing(sqlite3.connect(file_of(tmp_path / "cache"), isolation_level=None)) as locking:
        locking.execute("BEGIN IMMEDIATE")
        for entity_id in (None, ENTITY):
            with pytest.raises(OSError, match="can't be written, and was not cleared"):
                await cache.clear(entity_id)
    seconds_left.reset(waits)
    assert cache.stats().bytes == held
    await cache.clear()
    assert cache.stats().bytes == 0
    await cache.aclose()


@pytest.mark.virtual
async def test_a_claim_holds_off_another_process_for_ten_seconds_at_most(tmp_path: Path) -> None:
    """A claim saves requests and is no lock: after ten seconds both processes ask."""
    one, other = (FileCache(tmp_path / "cache").partition(URL, TOKEN) for _ in range(2))
    await pointer(one, ENTITY)
    loop = asyncio.get_running_loop()
    async with one.claim(ENTITY):
        began = loop.time()
        async with other.claim(ENTITY):
            assert 10 <= loop.time() - began < 10.1
        async with other.claim(OTHER):
            assert loop.time() - began < 10.2


@pytest.mark.virtual
async def test_claims_on_many_entities_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """Claims on different entities wait for each other neither within a cache nor between two of them."""
    one, other = (FileCache(tmp_path / "cache").partition(URL, TOKEN) for _ in range(2))
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with AsyncExitStack() as stack:
        for number in range(32):
            await stack.enter_async_context((one, other)[number % 2].claim(f"O-{number:032x}"))
    assert loop.time() - began < 1


@pytest.mark.virtual
async def test_a_catalogue_that_could_not_be_stored_is_stored_when_its_series_are_used(
    tmp_path: Path,
) -> None:
    """A client keeps the catalogue itself, and does not read it from the cache again."""
    # Two seconds of real time: SQLite waits for a lock in its own thread, by its own clock.
    cache, other = FileCache(tmp_path / "cache"), FileCache(tmp_path / "cache")
    part = cache.partition(URL, TOKEN)
    await part.confirm(ENTITY, Pointer(DATASET, AT))
    with closing(sqlite3.connect(file_of(tmp_path / "cache"), isolation_level=None)) as locking:
        locking.execute("BEGIN IMMEDIATE")
        await part.put_catalogue(catalogue())
        await part.put_blocks(ENTITY, DATASET, "original", blocks(1))
    await asyncio.sleep(CLOSED_SECONDS)
    await part.blocks(ENTITY, DATASET, "original")
    found = other.partition(URL, TOKEN)
    assert await found.catalogue(ENTITY, DATASET) == catalogue()
    assert content(await found.blocks(ENTITY, DATASET, "original")) == content(blocks(1))
    for each in (cache, other):
        await each.aclose()


@pytest.mark.virtual
async def test_a_refusal_that_could_not_be_stored_applies_and_is_stored_later(
    tmp_path: Path,
) -> None:
    """In this process at once; in others as soon as the disk can be written."""
    # Two seconds of real time: SQLite waits for a lock in its own thread, by its own clock.
    await filled(tmp_path / "cache")
    cache = FileCache(tmp_path / "cache")
    part = cache.partition(URL, TOKEN)
    assert await pointer(part, ENTITY) is not None
    with closing(sqlite3.connect(file_of(tmp_path / "cache"), isolation_level=None)) as locking:
        locking.execute("BEGIN IMMEDIATE")
        await part.mark_refused(ENTITY)
        assert (record := await part.record(ENTITY)) is None or record.current is None
        other = FileCache(tmp_path / "cache")
        assert await pointer(other.partition(URL, TOKEN), ENTITY) is not None
    await asyncio.sleep(CLOSED_SECONDS)
    assert (record := await part.record(ENTITY)) is not None
    assert record.refused is not None
    assert await pointer(other.partition(URL, TOKEN), ENTITY) is None, "stored when it was used next"
    for each in (cache, other):
        await each.aclose()


async def test_pointers_without_parts_are_evicted_after_months(tmp_path: Path, clock: Clock) -> None:
    """Old pointers go with the evicted parts: otherwise each entity and token would leave a row behind."""
    path = tmp_path / "cache"
    cache = FileCache(path, max_bytes=2_000, account="desk", clock=clock)
    part = cache.partition(URL, TOKEN)
    await part.confirm(OTHER, Pointer(DATASET, AT))
    clock.step(86_400 * 80)
    await part.confirm(ENTITY, Pointer(DATASET, clock()))
    for days, left in [(0, [OTHER, ENTITY]), (20, [ENTITY])]:
        clock.step(86_400 * days)
        for number in range(20):
            await part.put_blocks(ENTITY, DATASET, "original", blocks(100 * days + number))
        found = [each for each in (OTHER, ENTITY) if await pointer(part, each) is not None]
        assert found == left
    await cache.aclose()


async def test_a_claim_passes_to_the_next_when_it_is_given_up(tmp_path: Path) -> None:
    """A claim is given up by leaving the block, by cancellation, and by the end of the process."""
    part = FileCache(tmp_path / "cache").partition(URL, TOKEN)
    await pointer(part, ENTITY)
    with start("claim", tmp_path / "cache") as holder:
        assert holder.stdout.readline() == "claimed\n"
        waiting = asyncio.ensure_future(_claim_once(part))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 0.1)
        holder.send_signal(signal.SIGKILL)
        await waiting
        holder.communicate()
    cancelled = asyncio.ensure_future(_claim_for_ever(part))
    await asyncio.sleep(0.05)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    await _claim_once(part)


async def _claim_once(part: object) -> None:
    async with part.claim(ENTITY):
        pass


async def _claim_for_ever(part: object) -> None:
    async with part.claim(ENTITY):
        await asyncio.get_running_loop().create_future()


async def test_a_closed_cache_opens_again_in_any_loop(tmp_path: Path) -> None:
    """A cache is bound to no event loop, and closing it twice does no harm."""
    await filled(tmp_path / "cache")
    cache = FileCache(tmp_path / "cache")

    async def found() -> int:
        return len(await cache.partition(URL, TOKEN).blocks(ENTITY, DATASET, "original"))

    assert await found() == 4
    assert await asyncio.to_thread(asyncio.run, found()) == 4
    await cache.aclose()
    await cache.aclose()
    assert await found() == 4
    await cache.aclose()
