"""What every cache keeps, for whom, and what it lets go first."""

import asyncio
import sys
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from asyncfin.cache.entries import LeastRecentlyUsed
from asyncfin.cache.file import FileCache
from asyncfin.cache.memory import MemoryCache
from asyncfin.cache.record import EntityRecord
from asyncfin.cache.redis import RedisCache
from asyncfin.errors import ArgumentError, SelectionError
from asyncfin.table.block import compress_blocks
from tests.cache.conftest import Clock, MakeCache
from tests.cache.stored import AT, DATASET, ENTITY, NEXT, OTHER, URL, blocks, catalogue, content, current

# Redis goes by named accounts only, evicts by itself, and goes by its own clock.
no_redis = pytest.mark.parametrize("make_cache", ["memory", "file"], indirect=True)


async def test_a_publication_is_found_again(make_cache: MakeCache) -> None:
    """Pointer, catalogue and values; what was not stored is not there."""
    part = make_cache().partition(URL, "a-token")
    assert await current(part, ENTITY) is None
    assert await part.catalogue(ENTITY, DATASET) is None
    assert await part.blocks(ENTITY, DATASET, "original") == ()
    await part.observe(ENTITY, EntityRecord(AT, DATASET))
    await part.put_catalogue(catalogue())
    await part.put_blocks(ENTITY, DATASET, "original", blocks(1, 2, 3))
    assert await current(part, ENTITY) == DATASET
    assert await part.catalogue(ENTITY, DATASET.upper()) == catalogue()
    kept = await part.blocks(ENTITY, DATASET.upper(), "original")
    assert content(kept) == content(blocks(1, 2, 3))
    for missing in [(OTHER, DATASET, "original"), (ENTITY, NEXT, "original"), (ENTITY, DATASET, "restated")]:
        assert await part.blocks(*missing) == ()
    assert await part.catalogue(ENTITY, NEXT) is None


async def test_store_is_asked_after_memory(tmp_path: Path) -> None:
    """Of two caches of one folder, each finds what the other has stored as soon as it wants it."""
    one, other = (FileCache(tmp_path / "cache", account="desk") for _ in range(2))
    mine, theirs = one.partition(URL, "t"), other.partition(URL, "t")
    await mine.put_blocks(ENTITY, DATASET, "original", blocks(1))
    await theirs.put_blocks(ENTITY, DATASET, "original", blocks(2))
    assert content(await mine.blocks(ENTITY, DATASET, "original", ["S-1"])) == content(blocks(1))
    assert content(await mine.blocks(ENTITY, DATASET, "original", ["S-1", "S-2"])) == content(blocks(1, 2))
    await mine.put_blocks(ENTITY, DATASET, "original", blocks(3))
    assert content(await theirs.blocks(ENTITY, DATASET, "original")) == content(blocks(1, 2, 3))
    await one.aclose()
    await other.aclose()


async def ask_token() -> str:
    return "c-token"


class Account:
    """A token callable. All are equal, and have no hash."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Account)

    async def token(self) -> str:
        return "token"

    async def __call__(self) -> str:
        return "token"


FIRST, SECOND = Account(), Account()


@pytest.mark.parametrize(
    ("make_cache", "account", "token", "others"),
    [
        ("memory", None, "a-token", ["b-token", ask_token]),
        ("file", None, "a-token", ["b-token"]),
        ("memory", None, ask_token, ["c-token", FIRST, FIRST.token]),
        ("memory", None, FIRST, [SECOND, FIRST.token]),
        ("memory", None, FIRST.token, [SECOND.token]),
        *((kind, "desk", "a-token", []) for kind in ("memory", "file", "redis")),
    ],
    indirect=["make_cache"],
)
async def test_account_is_its_token_or_name(
    make_cache: MakeCache, account: str | None, token: Any, others: list[Any]
) -> None:
    """Nobody else sees its data. Two callables may be two accounts; a method is its object's."""
    cache = make_cache(**{"account": account} if account else {})
    part = cache.partition(URL, token)
    await part.observe(ENTITY, EntityRecord(AT, DATASET))
    await part.put_catalogue(catalogue())
    await part.put_blocks(ENTITY, DATASET, "original", blocks(1))
    theirs = [cache.partition(URL, other) for other in others]
    for other in (cache.partition(URL + "/x", token), *theirs):
        assert await current(other) is None
        assert await other.catalogue(ENTITY, DATASET) is None
        assert await other.blocks(ENTITY, DATASET, "original") == ()
    shared = [FIRST.token if token == FIRST.token else token, *([ask_token, "b-token"] if account else [])]
    for same in shared:
        assert await current(cache.partition(URL, same)) == DATASET
    assert "a-token" not in repr([vars(cache), vars(part)])


@no_redis
async def test_clearing_deletes_one_entity_or_all(make_cache: MakeCache) -> None:
    """Clearing deletes one entity or everything, of every account."""
    cache = make_cache()
    for token in ("a-token", "b-token"):
        part = cache.partition(URL, token)
        for entity_id in (ENTITY, OTHER):
            await part.observe(entity_id, EntityRecord(AT, DATASET))
            await part.put_catalogue(catalogue(entity_id=entity_id))
            await part.put_blocks(entity_id, DATASET, "original", blocks(1, 2))
    assert cache.stats().series == 8
    await cache.clear(ENTITY)
    assert cache.stats().series == 4
    assert await current(part, ENTITY) is None
    assert await part.blocks(ENTITY, DATASET, "original") == ()
    assert await current(part, OTHER) is not None
    await cache.clear()
    stats = cache.stats()
    assert (stats.series, stats.bytes) == (0, 0)
    assert await part.catalogue(OTHER, DATASET) is None


@pytest.mark.parametrize("name", ["", "..", 5])
async def test_clearing_a_wrong_id_is_rejected(make_cache: MakeCache, name: Any) -> None:
    """It would otherwise look as if something had been deleted."""
    cache = make_cache(account="desk")
    part = cache.partition(URL, "a-token")
    await part.observe(ENTITY, EntityRecord(AT, DATASET))
    with pytest.raises(SelectionError, match="entity_id must be an id such as 'O-' followed by 32"):
        await cache.clear(name)
    assert await current(part, ENTITY) is not None


@pytest.mark.parametrize("name", ["*", "O-*", "?" * len(ENTITY), "[O]" + ENTITY[1:], "Apple"])
async def test_clearing_another_entity_deletes_nothing(make_cache: MakeCache, name: str) -> None:
    """Ids of any form are ids, never patterns of Redis."""
    cache = make_cache(account="desk")
    part = cache.partition(URL, "a-token")
    await part.observe(ENTITY, EntityRecord(AT, DATASET))
    await cache.clear(name)
    assert await current(part, ENTITY) is not None
    await part.observe(name, EntityRecord(AT, DATASET))
    await cache.clear(name)
    assert await current(part, name) is None


async def test_superseded_publications_are_evicted_first(clock: Clock) -> None:
    """Superseded publications go first even if used last; then the least recently used."""
    make_cache = partial(MemoryCache, clock=clock)
    probe, page = make_cache(), compress_blocks(blocks(*range(60)))
    await probe.partition(URL, "a-token").put_blocks(OTHER, DATASET, "original", page)
    size = probe.stats().bytes
    cache = make_cache(max_bytes=round(size * 2.8))
    part = cache.partition(URL, "a-token")
    await part.put_blocks(OTHER, DATASET, "original", page)
    clock.step(1)
    await part.put_blocks(ENTITY, DATASET, "original", page)
    for dataset_id in (DATASET, NEXT):
        await part.observe(ENTITY, EntityRecord(AT, dataset_id))
    clock.step(1)
    await part.put_blocks(ENTITY, NEXT, "original", page)
    assert await part.blocks(ENTITY, DATASET, "original") == ()
    assert len(content(await part.blocks(OTHER, DATASET, "original"))) == 60
    assert len(content(await part.blocks(ENTITY, NEXT, "original"))) == 60
    clock.step(1)
    await part.put_blocks(OTHER, NEXT, "original", page)
    assert await part.blocks(OTHER, DATASET, "original") == ()
    assert cache.stats().bytes <= size * 2.8


@no_redis
async def test_oversized_publication_is_not_cached(make_cache: MakeCache) -> None:
    """What is larger than the cache is not kept, and pushes nothing else out."""
    cache = make_cache(max_bytes=10_000)
    part = cache.partition(URL, "a-token")
    await part.put_blocks(OTHER, DATASET, "original", blocks(1))
    await part.put_blocks(ENTITY, DATASET, "original", blocks(*range(2_000)))
    assert await part.blocks(ENTITY, DATASET, "original") == ()
    assert content(await part.blocks(OTHER, DATASET, "original")) == content(blocks(1))
    for stats in (cache.stats(), await cache.inspect()):
        assert (stats.series, stats.broken) == (1, 0)


@pytest.mark.parametrize(
    ("cache", "options", "message"),
    [
        (MemoryCache, {"max_bytes": 0}, "^max_bytes must be"),
        (MemoryCache, {"account": ""}, "^account must be"),
        (FileCache, {"max_bytes": 1.5}, "^max_bytes must be"),
        (FileCache, {"account": 5}, "^account must be"),
        *(
            (FileCache, {"folder": path}, "^folder must be")
            for path in ("", None, "s3://bucket/x", b"a", "a\0b")
        ),
        (RedisCache, {"redis": "http://x"}, "redis must be a URL that begins with"),
        (RedisCache, {"redis": "redis://user:secret@h:port"}, "redis must be a URL that begins with"),
        (RedisCache, {"redis": "redis://h?decode_responses=True"}, "must not decode responses"),
        (RedisCache, {"redis": 5}, "redis must be a URL or a redis.asyncio.Redis, not int"),
        (RedisCache, {"account": None}, "account must be"),
        (RedisCache, {"keep": 30}, "keep must be a timedelta"),
        (RedisCache, {"keep": timedelta(0)}, "keep must be a timedelta"),
    ],
)
def test_wrong_setting_is_rejected(cache: Any, options: dict[str, Any], message: str) -> None:
    """By name, when the cache is made, and without a URL, which may hold a password."""
    defaults = {
        MemoryCache: {},
        FileCache: {"folder": "cache"},
        RedisCache: {"redis": "redis://localhost", "account": "desk"},
    }
    if cache is RedisCache:
        pytest.importorskip("redis")
    with pytest.raises(ArgumentError, match=message) as raised:
        cache(**{**defaults[cache], **options})
    assert "secret" not in str(raised.value)


def test_folder_needs_an_account_and_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A callable's tokens may change, so they do not show whose the data is. Windows has no locks."""
    with pytest.raises(ArgumentError, match="account must name the account of a token callable"):
        FileCache("cache").partition(URL, ask_token)
    monkeypatch.setattr("asyncfin.local.SUPPORTED", False)
    with pytest.raises(ArgumentError, match="use MemoryCache"):
        FileCache("cache")


@no_redis
async def test_inspecting_reads_what_the_cache_has(make_cache: MakeCache) -> None:
    """What was counted by all partitions is added up."""
    cache = make_cache()
    part = cache.partition(URL, "a-token")
    await part.put_blocks(ENTITY, DATASET, "original", blocks(1, 2))
    part.count(hits=3, misses=1)
    cache.partition(URL, "b-token").count(hits=2, misses=1)
    stats = await cache.inspect()
    assert (stats.series, stats.hits, stats.misses, stats.broken) == (2, 5, 2, 0)
    assert 0 < stats.bytes <= cache.stats().bytes


def test_memory_is_counted_while_threads_read() -> None:
    """Reading an entry moves it, which nothing that goes through all entries may see half done."""
    memory: LeastRecentlyUsed[int, int] = LeastRecentlyUsed(1_000)
    for number in range(300):
        memory.put(number, number)
    interval, ended = sys.getswitchinterval(), Event()

    def read() -> None:
        while not ended.is_set():
            for number in range(300):
                memory.get(number)

    thread = Thread(target=read)
    sys.setswitchinterval(1e-5)
    try:
        thread.start()
        counts = {len(memory.list_items()) for _ in range(2_000)}
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert counts == {300}


def test_threads_add_to_one_publication() -> None:
    """What one of them has added stays when another one adds."""
    cache, interval = MemoryCache(), sys.getswitchinterval()
    numbers = range(80)

    def put(numbers: Sequence[int]) -> None:
        async def put_all() -> None:
            part = cache.partition(URL, "a-token")
            for number in numbers:
                await part.put_blocks(ENTITY, DATASET, "original", blocks_by_number[number])

        asyncio.run(put_all())

    blocks_by_number = {number: blocks(number) for number in numbers}
    threads = [Thread(target=put, args=(numbers[start::4],)) for start in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert cache.stats().series == len(numbers)
