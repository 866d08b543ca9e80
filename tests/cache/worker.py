"""What other processes do with a FileCache: `python -m tests.cache.worker COMMAND FOLDER ...`."""

import asyncio
import os
import resource
import signal
import sys
import warnings

from asyncfin.cache import base
from asyncfin.cache.file import FileCache
from asyncfin.cache.record import EntityRecord
from tests.cache.stored import AT, DATASET, ENTITY, NEXT, OTHER, URL, blocks, catalogue, content, current

TOKEN = "a-token"
NOBODY = 65534


async def fill(folder: str, first: str, count: str) -> None:
    """Store everything of a publication, its series one by one."""
    cache = FileCache(folder)
    part = cache.partition(URL, TOKEN)
    await part.observe(ENTITY, EntityRecord(AT, DATASET))
    await part.put_catalogue(catalogue(100))
    await put_each(cache, int(first), int(count))
    print(cache.stats().broken)


async def fill_for_ever(folder: str) -> None:
    """Store publications, one after the other, until killed; say so before each put."""
    part = FileCache(folder, max_bytes=200_000).partition(URL, TOKEN)
    number = 0
    while True:
        dataset_id = DATASET if number % 2 else NEXT
        print(number, flush=True)
        await part.put_blocks(ENTITY, dataset_id, "original", blocks(*range(number, number + 50)))
        await part.put_catalogue(catalogue(50, dataset_id=dataset_id))
        await part.observe(ENTITY, EntityRecord(AT, dataset_id))
        number += 1


async def claim(folder: str) -> None:
    """Hold the claim on the entity until standard input ends."""
    async with FileCache(folder).partition(URL, TOKEN).claim(ENTITY):
        print("claimed", flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def use(folder: str, times: str = "1") -> None:
    """Store and read, whatever the folder is like, and print what was found and what was counted."""
    for _ in range(int(times)):
        cache = FileCache(folder)
        part = cache.partition(URL, TOKEN)
        await part.observe(ENTITY, EntityRecord(AT, DATASET))
        await part.put_catalogue(catalogue())
        await part.put_blocks(ENTITY, DATASET, "original", blocks(1, 2))
        kept = content(await part.blocks(ENTITY, DATASET, "original"))
        assert kept == content(blocks(1, 2))
        assert await part.catalogue(ENTITY, DATASET) == catalogue()
        assert await current(part) == DATASET
        print(len(kept), cache.stats().broken)


async def look(folder: str) -> None:
    """Read everything, and print how much is right, wrong and broken; store something, and find it."""
    cache = FileCache(folder)
    part = cache.partition(URL, TOKEN)
    right = wrong = 0
    for dataset_id in (DATASET, NEXT):
        rows = content(await part.blocks(ENTITY, dataset_id, "original"))
        for series_id, values in rows.items():
            is_right = content(blocks(int(series_id.removeprefix("S-")))) == {series_id: values}
            right, wrong = right + is_right, wrong + (not is_right)
        wrong += await part.catalogue(ENTITY, dataset_id) not in (None, catalogue(50, dataset_id=dataset_id))
    await part.put_blocks(OTHER, DATASET, "original", blocks(1))
    assert content(await part.blocks(OTHER, DATASET, "original")) == content(blocks(1))
    print(right, wrong, cache.stats().broken)


async def use_on_a_full_disk(folder: str) -> None:
    """No file may grow."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    sys.dont_write_bytecode = True  # Python would keep a file of which the disk took a part
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ["LIMIT"]), resource.RLIM_INFINITY))
    await use(folder)


async def use_as_nobody(folder: str) -> None:
    """As a user who may read the folder, and not write to it."""
    import asyncfin.wire.values  # noqa: F401  what is imported later can't be read by that user

    await use(f"{folder}-warm")  # imports what is imported at first use
    os.seteuid(NOBODY)
    await use(folder)


async def use_after_a_fork(folder: str) -> None:
    """Parent and child go on with the one cache, which the parent had open."""
    warnings.simplefilter("ignore")
    cache = FileCache(folder)
    await put_each(cache, 0, 1)
    if (child := os.fork()) == 0:
        code = 1
        try:
            asyncio._set_running_loop(None)  # the loop is the parent's
            found = asyncio.run(put_each(cache, 200, 30))
            code = 0 if {"S-0", "S-200", "S-229"} <= found and cache.stats().broken == 0 else 3
        finally:
            os._exit(code)
    await put_each(cache, 100, 30)
    status = await asyncio.to_thread(os.waitpid, child, 0)
    print(os.waitstatus_to_exitcode(status[1]), len(await put_each(cache, 0, 1)), cache.stats().broken)


async def put_each(cache: FileCache, first: int, count: int) -> set[str]:
    """Store series one by one, and return the ids of all that are stored."""
    part = cache.partition(URL, TOKEN)
    for number in range(first, first + count):
        await part.put_blocks(ENTITY, DATASET, "original", blocks(number))
    return set(content(await part.blocks(ENTITY, DATASET, "original")))


if __name__ == "__main__":
    # Several of them write at once, on a machine that may be busy: what is slow is not the subject here.
    base.STORE_SECONDS = 60.0
    asyncio.run(globals()[sys.argv[1]](*sys.argv[2:]))
