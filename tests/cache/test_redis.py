"""A RedisCache against a real Redis: accounts, claims, damage, faults and secrets."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, ClassVar

import pytest

from asyncfin import Annual, Client, Select
from asyncfin.cache.record import Pointer
from asyncfin.errors import ArgumentError
from asyncfin.sandbox import Sandbox, load
from tests.cache.conftest import Clock
from tests.cache.stored import AT, DATASET, ENTITY, NEXT, OTHER, URL, blocks, catalogue, content, pointer
from tests.handmade import dataset

pytest.importorskip("redis")

from redis.asyncio import Redis

from asyncfin.cache.redis import RedisCache


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """A client of the caller's own, on an empty Redis."""
    client = Redis.from_url(redis_url)
    await client.flushall()
    yield client
    await client.aclose()


async def test_machines_share_what_one_has_read(redis: Redis, redis_url: str) -> None:
    """Machines that share a Redis by URL or client keep each series once, whichever client stored it."""
    one, other = RedisCache(redis_url, account="desk"), RedisCache(redis, account="desk")
    mine, theirs = one.partition(URL, "a-token"), other.partition(URL, "b-token")
    await mine.confirm(ENTITY, Pointer(DATASET, AT))
    await mine.put_catalogue(catalogue())
    await mine.put_blocks(ENTITY, DATASET, "original", blocks(1, 2))
    assert await pointer(theirs, ENTITY) == Pointer(DATASET, AT)
    assert await theirs.catalogue(ENTITY, DATASET) == catalogue()
    await theirs.put_blocks(ENTITY, DATASET, "original", blocks(2, 3))
    for part in (mine, theirs):
        assert content(await part.blocks(ENTITY, DATASET, "original")) == content(blocks(1, 2, 3))
    await theirs.mark_refused(ENTITY)
    assert await pointer(mine, ENTITY) is None
    await one.aclose()
    await other.aclose()
    assert await redis.ping()


async def test_accounts_share_nothing_and_clear_only_their_own(redis: Redis) -> None:
    """Accounts of one Redis share nothing, and each clears only its own data."""
    caches = [RedisCache(redis, account=account) for account in ("desk", "other", "des")]
    for cache in caches:
        part = cache.partition(URL, "t")
        assert await pointer(part, ENTITY) is None
        await part.confirm(ENTITY, Pointer(DATASET, AT))
        await part.put_blocks(ENTITY, DATASET, "original", blocks(1))
        await part.confirm(OTHER, Pointer(DATASET, AT))
    await caches[0].clear(ENTITY)
    assert await pointer(caches[0].partition(URL, "t"), ENTITY) is None
    assert await caches[0].partition(URL, "t").blocks(ENTITY, DATASET, "original") == ()
    assert await pointer(caches[0].partition(URL, "t"), OTHER) is not None
    await caches[0].clear()
    assert await pointer(caches[0].partition(URL, "t"), OTHER) is None
    assert await pointer(caches[1].partition(URL, "t"), ENTITY) is not None


async def test_a_confirmation_moves_forward_whichever_machine_stores_it(redis: Redis, clock: Clock) -> None:
    """Redis compares; one that lies in the future gives way."""
    one, other = (RedisCache(redis, account="desk", clock=clock).partition(URL, "t") for _ in range(2))
    clock.step(100)
    await one.confirm(ENTITY, Pointer(NEXT, AT + timedelta(seconds=50)))
    await other.confirm(ENTITY, Pointer(DATASET, AT))
    assert await pointer(other, ENTITY) == Pointer(NEXT, AT + timedelta(seconds=50))
    clock.step(-86_400)
    await other.confirm(ENTITY, Pointer(DATASET, clock()))
    assert await pointer(one, ENTITY) == Pointer(DATASET, clock())


async def test_what_is_not_used_expires(redis: Redis) -> None:
    """Each key has the time that was asked for; reading starts it again."""
    part = RedisCache(redis, account="desk", keep=timedelta(hours=1)).partition(URL, "t")
    await part.confirm(ENTITY, Pointer(DATASET, AT))
    await part.put_catalogue(catalogue())
    await part.put_blocks(ENTITY, DATASET, "original", blocks(1))
    names = await redis.keys("*")
    assert len(names) == 3
    for name in names:
        assert 3_500_000 < await redis.pttl(name) <= 3_600_000
    for name in names:
        await redis.pexpire(name, 5_000)
    fresh = RedisCache(redis, account="desk", keep=timedelta(hours=1)).partition(URL, "t")
    await fresh.blocks(ENTITY, DATASET, "original")
    await fresh.catalogue(ENTITY, DATASET)
    assert sorted([await redis.pttl(name) > 5_000 for name in names]) == [False, True, True]


async def test_a_damaged_row_is_dropped(redis: Redis) -> None:
    """Nothing wrong is read, and it is counted."""
    part = RedisCache(redis, account="desk").partition(URL, "t")
    await part.confirm(ENTITY, Pointer(DATASET, AT))
    await part.put_catalogue(catalogue())
    await part.put_blocks(ENTITY, DATASET, "original", blocks(1))
    for name in await redis.keys("*"):
        for field, row in (await redis.hgetall(name)).items():
            if field != b"confirmed":
                await redis.hset(name, field, row[:-1] + bytes([row[-1] ^ 1]))
    cache = RedisCache(redis, account="desk")
    fresh = cache.partition(URL, "t")
    assert await pointer(fresh, ENTITY) is None
    assert await fresh.catalogue(ENTITY, DATASET) is None
    assert await fresh.blocks(ENTITY, DATASET, "original") == ()
    assert cache.stats().broken == 3
    await fresh.put_blocks(ENTITY, DATASET, "original", blocks(1))
    again = RedisCache(redis, account="desk").partition(URL, "t")
    assert content(await again.blocks(ENTITY, DATASET, "original")) == content(blocks(1))


async def test_a_claim_holds_off_another_machine(redis: Redis) -> None:
    """A claim passes on when it is given up, and no client gives up another's."""
    one, other = (RedisCache(redis, account="desk").partition(URL, "t") for _ in range(2))
    async with one.claim(ENTITY):
        waiting = asyncio.ensure_future(_claimed(other))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 0.2)
        async with other.claim(OTHER):
            pass
    await asyncio.wait_for(waiting, 5)
    assert await redis.keys("*claim*") == []


@pytest.mark.parametrize("off", [timedelta(hours=-1), timedelta(hours=1)])
async def test_refusals_and_confirmations_are_ordered_by_the_clock_of_redis(
    redis: Redis, off: timedelta
) -> None:
    """The clocks of two machines differ by an hour; what each records is still ordered."""

    def other_clock() -> datetime:
        return datetime.now(UTC) + off

    one = RedisCache(redis, account="desk").partition(URL, "t")
    other = RedisCache(redis, account="desk", clock=other_clock).partition(URL, "t")
    sent, known = other_clock(), Pointer(DATASET, datetime.now(UTC))
    await one.confirm(ENTITY, known)
    assert (seen := await pointer(other, ENTITY)) is not None
    assert abs(seen.confirmed - sent) < timedelta(seconds=5), "by the clock of the reader"
    await one.mark_refused(ENTITY)
    await other.confirm(ENTITY, Pointer(NEXT, sent))
    assert await pointer(other, ENTITY) is None
    await other.confirm(ENTITY, Pointer(NEXT, other_clock()))
    assert (lifted := await pointer(one, ENTITY)) is not None
    assert lifted.dataset_id == NEXT


async def _claimed(part: Any) -> None:
    async with part.claim(ENTITY):
        pass


async def test_a_redis_that_is_not_there_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    """Said once, with no password in it, and what was read stays in memory."""
    cache = RedisCache("redis://user:s3cr3t@127.0.0.1:1/0", account="desk")
    part = cache.partition(URL, "t")
    await part.confirm(ENTITY, Pointer(DATASET, AT))
    await part.put_catalogue(catalogue())
    await part.put_blocks(ENTITY, DATASET, "original", blocks(1))
    assert await part.record(ENTITY) is None, "what memory has counts as unconfirmed"
    assert await part.catalogue(ENTITY, DATASET) == catalogue()
    assert content(await part.blocks(ENTITY, DATASET, "original")) == content(blocks(1))
    async with part.claim(ENTITY):
        pass
    with pytest.raises(OSError, match=r"redis://127\.0\.0\.1:1/0 was not cleared"):
        await cache.clear()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "redis://127.0.0.1:1/0" in caplog.text
    assert cache.stats().broken >= 1
    for shown in (caplog.text, repr(cache), str(cache.stats())):
        assert "s3cr3t" not in shown
    await cache.aclose()


@pytest.mark.virtual
async def test_clearing_takes_as_long_as_it_takes() -> None:
    """Clearing ends early only at a command that is not answered, whatever has failed before."""
    server = SlowRedis(5_500, seconds=1.5)
    cache = RedisCache(server, account="desk")
    server.fails = True
    assert await pointer(cache.partition(URL, "t"), ENTITY) is None
    server.fails = False
    await cache.clear()
    assert server.names == []


@pytest.mark.virtual
async def test_clearing_that_fails_halfway_is_an_error() -> None:
    """Something is still there; the text of the server is not shown."""
    server = SlowRedis(3_000, seconds=1.5)
    cache = RedisCache(server, account="desk")
    clearing = asyncio.ensure_future(cache.clear())
    await asyncio.sleep(4)
    server.seconds = 60
    with pytest.raises(OSError, match="not wholly: TimeoutError"):
        await clearing
    assert 0 < len(server.names) < 3_000


async def test_many_parts_of_a_publication_are_read_a_few_at_a_time(redis: Redis) -> None:
    """The time a command may take bounds each few, so that a slow line does not lose all of them."""
    part = RedisCache(redis, account="desk").partition(URL, "t")
    for number in range(1, 31):
        await part.put_blocks(ENTITY, DATASET, "original", blocks(number))

    class Counting(Redis):
        read: ClassVar[list[int]] = []

        async def hmget(self, name: str, keys: list[str], *rest: str) -> Any:
            self.read.append(len(keys))
            return await super().hmget(name, keys, *rest)

    counting = Counting(connection_pool=redis.connection_pool)
    fresh = RedisCache(counting, account="desk").partition(URL, "t")
    assert content(await fresh.blocks(ENTITY, DATASET, "original")) == content(blocks(*range(1, 31)))
    assert (max(counting.read), sum(counting.read)) == (8, 30)


class SlowRedis(Redis):
    """Keys of a server that takes `seconds` for a command."""

    def __init__(self, names: int, *, seconds: float) -> None:
        super().__init__()
        self.names = [f"name {number}".encode() for number in range(names)]
        self.seconds = seconds
        self.fails = False

    async def execute_command(self, command: str, *arguments: Any, **options: Any) -> Any:
        if self.fails:
            raise ConnectionError("s3cr3t")
        await asyncio.sleep(self.seconds)
        if command == "SCAN":
            begin = int(arguments[0])
            end = begin + 1_000
            some = self.names_at_first[begin:end]
            return end if end < len(self.names_at_first) else 0, some
        assert command == "UNLINK"
        self.names = [name for name in self.names if name not in set(arguments)]
        return len(arguments)

    @cached_property
    def names_at_first(self) -> list[bytes]:
        return list(self.names)


async def test_event_loops_of_threads_share_a_cache_without_connecting_again(redis_url: str) -> None:
    """Each has separate connections, which are closed with it."""
    cache = RedisCache(redis_url, account="threads")
    part = cache.partition(URL, "t")
    counter = Redis.from_url(redis_url)

    async def connected() -> int:
        return int((await counter.info("stats"))["total_connections_received"])

    def ask(times: int, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(times):
            asyncio.run_coroutine_threadsafe(pointer(part, ENTITY), loop).result()

    await pointer(part, ENTITY)
    before = await connected()
    here = asyncio.get_running_loop()

    async def there() -> None:
        for _ in range(5):
            await pointer(part, ENTITY)
            await asyncio.to_thread(ask, 1, here)

    await asyncio.to_thread(asyncio.run, there())
    assert await connected() - before == 1
    assert int((await counter.info("clients"))["connected_clients"]) == 2, "one of them and the counter"
    await cache.aclose()
    await counter.aclose()


async def test_a_question_has_one_connection_at_a_time(redis: Redis, redis_url: str) -> None:
    """Ten questions at the same moment have ten at most."""
    made = [dataset({("Sales", "all"): {"FY2024": 1}}, entity_id=f"O-{number:032}") for number in range(10)]
    async with (
        Sandbox(*map(load, made)) as sandbox,
        Client(sandbox.base_url, sandbox.token, cache=RedisCache(redis_url, account="desk")) as client,
    ):
        before = int((await redis.info("stats"))["total_connections_received"])
        for number in (1, 10):
            ids = sandbox.entities[:number]
            await asyncio.gather(*(client.query(each, Select(), Annual(), max_age=60) for each in ids))
            after = int((await redis.info("stats"))["total_connections_received"])
            assert 1 <= after - before <= number


async def test_it_can_be_used_from_one_event_loop_after_another(redis_url: str) -> None:
    """A cache that makes its own connections can be used in one event loop after another."""
    cache = RedisCache(redis_url, account="loops")

    async def stored() -> bool:
        part = cache.partition(URL, "t")
        await part.confirm(ENTITY, Pointer(DATASET, AT))
        found = await pointer(part, ENTITY)
        await cache.aclose()
        return found == Pointer(DATASET, AT)

    assert await stored()
    assert await asyncio.to_thread(asyncio.run, stored())
    assert cache.stats().broken == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"redis": "http://x"}, "redis must be a URL that begins with"),
        ({"redis": "redis://user:secret@h:port"}, "redis must be a URL that begins with"),
        ({"redis": "redis://h?decode_responses=True"}, "must not decode responses"),
        ({"redis": 5}, "redis must be a URL or a redis.asyncio.Redis, not int"),
        ({"account": ""}, "account must be"),
        ({"account": None}, "account must be"),
        ({"keep": 30}, "keep must be a timedelta"),
        ({"keep": timedelta(0)}, "keep must be a timedelta"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(options: dict[str, Any], message: str) -> None:
    """When the cache is made, and without the URL, which may hold a password."""
    with pytest.raises(ArgumentError, match=message) as caught:
        RedisCache(**{"redis": "redis://localhost", "account": "desk", **options})
    assert "secret" not in str(caught.value)


async def test_a_client_that_decodes_responses_is_refused(redis_url: str) -> None:
    """A client that decodes responses is refused, since what is kept is bytes."""
    client = Redis.from_url(redis_url, decode_responses=True)
    with pytest.raises(ArgumentError, match="must not decode responses"):
        RedisCache(client, account="desk")
    await client.aclose()


async def test_fields_of_others_are_ignored_and_corrupt_parts_are_deleted_together(redis: Redis) -> None:
    """A foreign field fails no question, and one command deletes all corrupt parts."""
    cache = RedisCache(redis, account="desk")
    part = cache.partition(URL, "t")
    await part.put_blocks(ENTITY, DATASET, "original", blocks(1))
    (name,) = [each async for each in redis.scan_iter(f"*{ENTITY}*")]
    corrupt = {f"{number}-1-3": b"bad" for number in range(20)}
    await redis.hset(name, mapping={"note": b"of others", **corrupt})  # type: ignore[misc]
    await redis.config_resetstat()
    other = RedisCache(redis, account="desk")
    assert content(await other.partition(URL, "t").blocks(ENTITY, DATASET, "original")) == content(blocks(1))
    assert other.stats().broken == 20
    assert len(await redis.hkeys(name)) == 2  # type: ignore[misc]
    assert (await redis.info("commandstats"))["cmdstat_hdel"]["calls"] == 1


async def test_a_question_spends_a_bounded_time_on_a_hash_that_others_have_filled(redis: Redis) -> None:
    """What is not read within that time counts as not cached."""
    part = RedisCache(redis, account="desk").partition(URL, "t")
    await part.put_blocks(ENTITY, DATASET, "original", blocks(1))
    (name,) = [each async for each in redis.scan_iter(f"*{ENTITY}*")]
    await redis.hset(name, mapping={f"{number}-1-3": b"bad" for number in range(100_000)})  # type: ignore[misc]
    loop = asyncio.get_running_loop()
    began = loop.time()
    other = RedisCache(redis, account="desk").partition(URL, "t").of_question()
    await other.blocks(ENTITY, DATASET, "original")
    assert loop.time() - began < 10, "all of them take half a minute"


@pytest.mark.parametrize("damage", [{"row": b"short"}, {"row": b"x" * 60}, {"version": b"\xff", "row": b""}])
async def test_a_corrupt_record_counts_as_none_and_is_replaced(
    redis: Redis, damage: dict[str, bytes]
) -> None:
    """The next confirmation stores a new one."""
    part = RedisCache(redis, account="desk").partition(URL, "t")
    await part.confirm(ENTITY, Pointer(DATASET, AT))
    (name,) = [each async for each in redis.scan_iter("*record*")]
    await redis.hset(name, mapping={"version": b"other", **damage})  # type: ignore[misc]
    assert await pointer(part, ENTITY) is None
    later = Pointer(NEXT, AT + timedelta(seconds=1))
    await part.confirm(ENTITY, later)
    assert await pointer(RedisCache(redis, account="desk").partition(URL, "t"), ENTITY) == later


async def test_clearing_an_entity_clears_no_other_one(redis: Redis) -> None:
    """An entity id is not a pattern, whatever characters it has."""
    cache = RedisCache(redis, account="desk")
    part = cache.partition(URL, "t")
    ids = ["O-" + "*" * 32, "O-" + "?" * 32, "O-[ab]" + "c" * 28, "O-\\" + "d" * 31, "O-a" + "c" * 31]
    for entity_id in ids:
        await part.confirm(entity_id, Pointer(DATASET, AT))
    for at, entity_id in enumerate(ids):
        await cache.clear(entity_id)
        fresh = RedisCache(redis, account="desk").partition(URL, "t")
        assert [await pointer(fresh, each) is None for each in ids] == [n <= at for n in range(len(ids))]


async def test_inspecting_reads_what_redis_has(redis: Redis) -> None:
    """Of the account, whichever process has stored it; nothing is changed."""
    first = RedisCache(redis, account="desk")
    part = first.partition(URL, "t")
    await part.confirm(ENTITY, Pointer(DATASET, AT))
    await part.put_catalogue(catalogue())
    await part.put_blocks(ENTITY, DATASET, "original", blocks(1, 2))
    await part.put_blocks(OTHER, DATASET, "original", blocks(1))
    await (
        RedisCache(redis, account="other")
        .partition(URL, "t")
        .put_blocks(OTHER, DATASET, "original", blocks(1))
    )
    other = RedisCache(redis, account="desk")
    seen = await other.inspect()
    assert (seen.series, seen.hits, seen.misses, seen.broken) == (3, 0, 0, 0)
    assert seen.bytes > 500
    assert other.stats().series == 0
    await first.clear()
    assert (await other.inspect()).bytes == 0
    with pytest.raises(OSError, match="could not be read"):
        await RedisCache("redis://user:s3cr3t@127.0.0.1:1/0", account="desk").inspect()
