"""What every cache stores, for whom, and what it lets go first; those over a store share it."""

import asyncio
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from threading import Barrier
from typing import Any

import pytest

from asyncfin.cache.entries import EntityRecord
from asyncfin.cache.file import FileCache
from asyncfin.cache.memory import MemoryCache
from asyncfin.cache.redis import RedisCache
from asyncfin.errors import ArgumentError, SelectionError
from asyncfin.table.block import compress_blocks
from tests.cache.conftest import Clock, MakeCache
from tests.cache.stored import (
    AT,
    DATASET,
    ENTITY,
    NEXT,
    OTHER,
    TOKEN,
    URL,
    blocks,
    check_missing,
    check_whole,
    content,
    current,
    fill,
)


def kinds(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("make_cache", names, indirect=True)


def at(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


async def test_records_of_caches_follow_the_rule(make_cache: MakeCache, clock: Clock) -> None:
    """The later request wins, and of the same moment the last record, whenever they are written.

    What is more than a minute ahead, as clocks of machines may not be, is unknown.
    """
    part = make_cache().partition(URL, "a-token")
    assert await part.record(ENTITY) is None
    await part.observe(ENTITY, EntityRecord(at(61), NEXT))
    assert await part.record(ENTITY) is None
    await part.observe(ENTITY, EntityRecord(at(59), NEXT))
    for record, is_latest in [
        (EntityRecord(at(50), DATASET), False),
        (EntityRecord(at(58), status=404), False),
        (EntityRecord(at(59), DATASET), True),
        (EntityRecord(at(60), status=404), True),
        (EntityRecord(at(59), DATASET), False),
        (EntityRecord(at(60), DATASET), True),
    ]:
        await part.observe(ENTITY, record)
        assert (await part.record(ENTITY) == record) == is_latest
    clock.step(2)
    forbidden = EntityRecord(at(61), status=403)
    await part.observe(ENTITY, forbidden, "a digest")
    assert await part.record(ENTITY, "a digest") == forbidden
    assert await part.record(ENTITY, "another") == await part.record(ENTITY) == EntityRecord(at(60), DATASET)
    clock.step(-86_400)
    assert await part.record(ENTITY) is None
    await part.observe(ENTITY, EntityRecord(clock(), NEXT))
    assert await part.record(ENTITY) == EntityRecord(clock(), NEXT)


async def test_publication_is_found_again(make_cache: MakeCache) -> None:
    """Record, catalogue and values; what was not stored is not there."""
    await check_missing(make_cache().partition(URL, TOKEN))
    part = await fill(make_cache())
    await check_whole(part)
    await check_missing(part, OTHER)
    for missing in [(ENTITY, NEXT, "original"), (ENTITY, DATASET, "restated")]:
        assert await part.blocks(*missing) == ()
    assert await part.catalogue(ENTITY, NEXT) is None


@kinds("file", "redis", "dict")
async def test_processes_share_what_one_has_read(make_cache: MakeCache) -> None:
    """As soon as another wants it; each series is there once, whichever stored it."""
    mine = await fill(make_cache())
    theirs = make_cache().partition(URL, TOKEN)
    await theirs.put_blocks(ENTITY, DATASET, "original", blocks(39, 40))
    both = content(blocks(*range(41)))
    assert content(await mine.blocks(ENTITY, DATASET, "original", both)) == both
    await mine.put_blocks(ENTITY, DATASET, "original", blocks(41))
    for part in (mine, theirs, make_cache().partition(URL, TOKEN)):
        assert content(await part.blocks(ENTITY, DATASET, "original")) == content(blocks(*range(42)))
    await theirs.observe(ENTITY, EntityRecord(AT, status=404))
    assert await current(mine) is None


@kinds("file", "redis", "dict")
@pytest.mark.parametrize("damage", ["flipped", "cut", "emptied", "another's"])
async def test_damage_gives_no_wrong_values(damage: str, make_cache: MakeCache) -> None:
    """What is read is right; damaged parts are counted, dropped, and stored again."""
    right, source = content(blocks(*range(40))), random.Random(damage)
    for _ in range(5):
        await fill(make_cache())
        store = make_cache()._store
        names = sorted(name for name in await store.names("") if "/" in name)
        rows = [row for name in names for row in await store.get([name])]
        for index in source.sample(range(len(names)), 3):
            body = bytearray(rows[index])
            match damage:
                case "flipped":
                    body[source.randrange(len(body))] ^= 1 << source.randrange(8)
                case "cut":
                    del body[source.randrange(len(body)) :]
                case "emptied":
                    body.clear()
                case "another's":
                    body = rows[index - 1]
            await store.put(names[index], bytes(body))
        cache = make_cache()
        part = cache.partition(URL, TOKEN)
        values = content(await part.blocks(ENTITY, DATASET, "original"))
        assert values.items() <= right.items()
        catalogue = await part.catalogue(ENTITY, DATASET)
        record = await part.record(ENTITY)
        assert len(values) < 40 or catalogue is None or record is None
        assert cache.stats().broken == 3
        await fill(make_cache())
        again = make_cache()
        await check_whole(again.partition(URL, TOKEN))
        assert again.stats().broken == 0
        await again.clear()


@kinds("file", "redis")
async def test_claim_holds_off_other_processes(make_cache: MakeCache) -> None:
    """Until its block is left or cancelled; other entities wait for nothing."""
    mine, theirs = (make_cache().partition(URL, TOKEN) for _ in range(2))
    claimed = asyncio.Event()

    async def claim(seconds: float = 0) -> None:
        async with theirs.claim(ENTITY):
            claimed.set()
            await asyncio.sleep(seconds)

    async with mine.claim(ENTITY):
        waiting = asyncio.ensure_future(claim())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 0.2)
        async with theirs.claim(OTHER):
            pass
    await asyncio.wait_for(waiting, 5)
    claimed.clear()
    cancelled = asyncio.ensure_future(claim(1_000))
    await claimed.wait()
    cancelled.cancel()
    await asyncio.wait([cancelled])
    async with asyncio.timeout(5), mine.claim(ENTITY):
        pass


@pytest.mark.virtual
@kinds("file", "dict")
async def test_claim_waits_ten_seconds_at_most(make_cache: MakeCache) -> None:
    """Then both processes send their requests."""
    mine, theirs = (make_cache().partition(URL, TOKEN) for _ in range(2))
    async with mine.claim(ENTITY):
        began = asyncio.get_running_loop().time()
        async with theirs.claim(ENTITY):
            assert 10 <= asyncio.get_running_loop().time() - began < 10.1


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
        ("memory", None, TOKEN, ["b-token", ask_token]),
        ("file", None, TOKEN, ["b-token"]),
        ("memory", None, ask_token, ["c-token", FIRST, FIRST.token]),
        ("memory", None, FIRST, [SECOND, FIRST.token]),
        ("memory", None, FIRST.token, [SECOND.token]),
        *((kind, "desk", TOKEN, []) for kind in ("memory", "file", "redis")),
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
    await part.put_blocks(ENTITY, DATASET, "original", blocks(1))
    for other in (cache.partition(URL + "/x", token), *(cache.partition(URL, other) for other in others)):
        await check_missing(other)
    equal_tokens = [FIRST.token if token == FIRST.token else token]
    if account:
        equal_tokens += [ask_token, "b-token"]
    for equal_token in equal_tokens:
        assert await current(cache.partition(URL, equal_token)) == DATASET
    assert TOKEN not in repr([vars(cache), vars(part)])


async def test_clearing_deletes_one_entity_or_all(make_cache: MakeCache) -> None:
    """`inspect` counts what is left, and what all partitions have counted."""
    cache = make_cache(account="desk")
    for entity_id in (ENTITY, OTHER):
        (await fill(cache, entity_id)).count(hits=3, misses=1)
    stats = await cache.inspect()
    assert (stats.series, stats.hits, stats.misses, stats.broken) == (80, 6, 2, 0)
    assert 0 < stats.bytes <= cache.stats().bytes
    await cache.clear(ENTITY)
    assert (await cache.inspect()).series == cache.stats().series == 40
    await check_missing(cache.partition(URL, TOKEN))
    await check_whole(cache.partition(URL, TOKEN), OTHER)
    await cache.clear()
    for stats in (cache.stats(), await cache.inspect()):
        assert (stats.series, stats.bytes) == (0, 0)
    await check_missing(cache.partition(URL, TOKEN), OTHER)


async def test_clearing_deletes_no_other_entity(make_cache: MakeCache) -> None:
    """Ids of any form are ids, never patterns of Redis. What is none is an error."""
    cache = make_cache(account="desk")
    part = await fill(cache)
    for name in ("*", "O-*", "?" * len(ENTITY), "[O]" + ENTITY[1:], "Apple"):
        await part.observe(name, EntityRecord(AT, DATASET))
        await cache.clear(name)
        assert await current(part, name) is None
    for wrong_name in ("", "..", 5):
        with pytest.raises(SelectionError, match="entity_id must be an id such as 'O-' followed by 32"):
            await cache.clear(wrong_name)
    await check_whole(part)


async def test_superseded_publications_are_evicted_first(clock: Clock) -> None:
    """Superseded publications go first even if used last; then the least recently used."""
    probe, page = MemoryCache(), compress_blocks(blocks(*range(60)))
    await probe.partition(URL, TOKEN).put_blocks(OTHER, DATASET, "original", page)
    size = probe.stats().bytes
    cache = MemoryCache(max_bytes=round(size * 2.8), clock=clock)
    part = cache.partition(URL, TOKEN)
    await part.put_blocks(OTHER, DATASET, "original", page)
    await part.put_blocks(ENTITY, DATASET, "original", page)
    for dataset_id in (DATASET, NEXT):
        await part.observe(ENTITY, EntityRecord(AT, dataset_id))
    await part.put_blocks(ENTITY, NEXT, "original", page)
    assert await part.blocks(ENTITY, DATASET, "original") == ()
    assert len(content(await part.blocks(OTHER, DATASET, "original"))) == 60
    assert len(content(await part.blocks(ENTITY, NEXT, "original"))) == 60
    await part.put_blocks(OTHER, NEXT, "original", page)
    assert await part.blocks(OTHER, DATASET, "original") == ()
    assert cache.stats().bytes <= size * 2.8


@kinds("memory", "file")
async def test_oversized_publication_is_not_cached(make_cache: MakeCache) -> None:
    """What is larger than the cache is not stored, and pushes nothing else out."""
    cache = make_cache(max_bytes=10_000)
    part = cache.partition(URL, TOKEN)
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
        *((FileCache, {"folder": path}, "^folder must be") for path in ("", None, "s3://b/x", b"a", "a\0b")),
        (RedisCache, {"redis": "http://x"}, "redis must be a URL that begins with"),
        (RedisCache, {"redis": "redis://user:secret@h:port"}, "redis must be a URL that begins with"),
        (RedisCache, {"redis": "redis://h?decode_responses=True"}, "must not decode responses"),
        (RedisCache, {"redis": 5}, "redis must be a URL or a redis.asyncio.Redis, not int"),
        (RedisCache, {"account": None}, "account must be"),
        *((RedisCache, {"keep": time}, "keep must be a timedelta") for time in (30, timedelta(0))),
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


def test_threads_share_a_memory() -> None:
    """What one of them has added stays when another one adds, and counting sees nothing half done."""
    cache, interval, barrier = MemoryCache(), sys.getswitchinterval(), Barrier(4)
    pages = [blocks(number) for number in range(80)]

    async def put(first: int) -> None:
        part = cache.partition(URL, TOKEN)
        barrier.wait()
        for number in range(50):
            for page in pages[first::4]:
                await part.put_blocks(f"O-{number:032x}", DATASET, "original", page)
                cache.stats()

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(asyncio.run, map(put, range(4))))
    finally:
        sys.setswitchinterval(interval)
    assert cache.stats().series == 50 * 80
