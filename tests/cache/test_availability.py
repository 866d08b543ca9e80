"""A store that is slow or away: how long a question waits for it, what is counted, and what is logged."""

import asyncio
import logging

import pytest
from attrs import evolve

from asyncfin.cache.record import Pointer
from tests.cache.dict_cache import DictCache
from tests.cache.stored import AT, DATASET, ENTITY, URL, blocks, catalogue, content

pytestmark = pytest.mark.virtual


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_question_waits_two_seconds_in_all_and_the_next_one_begins_anew() -> None:
    """Reading, storing and confirming together; what is not read counts as not cached."""
    cache = DictCache(account="desk")
    part = cache.partition(URL, "t")
    await part.put_blocks(ENTITY, DATASET, "original", blocks(1))
    other = DictCache(cache.rows, account="desk")
    other.seconds = 0.9
    for _ in range(2):
        question, began = other.partition(URL, "t").of_question(), now()
        await question.record(ENTITY)
        await question.blocks(ENTITY, DATASET, "original", ["S-1"])
        await question.put_catalogue(catalogue())
        await question.confirm(ENTITY, Pointer(DATASET, AT))
        assert 1.8 < now() - began < 2.001
        assert not other._availability.is_closed(now()), "no operation took more than a second"
        await asyncio.sleep(60)
    other.seconds = 0.0
    found = await other.partition(URL, "t").of_question().blocks(ENTITY, DATASET, "original", ["S-1"])
    assert content(found) == content(blocks(1))


async def test_operations_at_the_same_time_count_once() -> None:
    """Ten of 0.9 s take 0.9 s of the question, and an eleventh is not given up."""
    cache = DictCache(account="desk")
    cache.seconds = 0.9
    question = cache.partition(URL, "t").of_question()
    await asyncio.gather(*(question.record(f"O-{number:032x}") for number in range(10)))
    before = cache.done
    cache.seconds = 0.0
    assert await question.record(ENTITY) is not None
    assert cache.done > before


@pytest.mark.parametrize(("seconds", "closed"), [(0.9, False), (1.1, True), (30.0, True)])
async def test_an_operation_of_more_than_a_second_closes_the_store_for_five(
    seconds: float, closed: bool
) -> None:
    """To all questions of the process: otherwise each would wait for it."""
    cache = DictCache(account="desk")
    cache.seconds = seconds
    part = cache.partition(URL, "t")
    await part._version(ENTITY)
    cache.seconds, before = 0.0, cache.done
    assert (await part.record(ENTITY) is None) is closed
    assert (cache.done == before) is closed
    await asyncio.sleep(4.9)
    assert (await part.record(ENTITY) is None) is closed
    await asyncio.sleep(0.2)
    assert await part.record(ENTITY) is not None
    assert cache.stats().broken == closed


async def test_a_claim_is_not_counted_as_waiting_for_the_store() -> None:
    """It waits for another process: for ten seconds, after which the question still reads the store."""
    one, other = DictCache(account="desk"), DictCache(account="desk")
    other.rows = one.rows
    async with one.partition(URL, "t").claim(ENTITY):
        question, began = other.partition(URL, "t").of_question(), now()
        async with question.claim(ENTITY):
            assert 10 <= now() - began < 10.1
            assert await question.record(ENTITY) is not None
    assert not any("claim" in key for key in one.rows)


async def test_an_outage_is_counted_once_and_logged_with_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """However many questions meet it."""
    cache = DictCache(account="desk")
    part = cache.partition(URL, "t")
    cache.fails = True
    for _ in range(20):
        await part.record(ENTITY)
        await asyncio.sleep(1)
    cache.fails = False
    await asyncio.sleep(5)
    for _ in range(3):
        assert await part.record(ENTITY) is not None
    assert cache.stats().broken == 1
    assert [(each.levelno, each.getMessage()) for each in caplog.records] == [
        (
            logging.WARNING,
            "the cache in a dict can't be used at the moment: ConnectionError; it is skipped",
        ),
        (logging.WARNING, "the cache in a dict can be used again after 25.0 s"),
    ]


async def test_at_most_one_outage_a_minute_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """One that is not logged at first is, once the minute is over, and then its end too."""
    cache = DictCache(account="desk")
    part = cache.partition(URL, "t")

    async def outage(seconds: float) -> None:
        cache.fails = True
        end = now() + seconds
        while now() < end:
            await part.record(ENTITY)
            await asyncio.sleep(1)
        cache.fails = False
        await asyncio.sleep(5)
        assert await part.record(ENTITY) is not None

    for _ in range(4):
        await outage(1)
    assert (len(caplog.records), cache.stats().broken) == (2, 4)
    await outage(100)
    assert (len(caplog.records), cache.stats().broken) == (4, 5)
    assert caplog.records[-1].getMessage().endswith("after 105.0 s")


async def test_what_cannot_be_encoded_is_counted_and_closes_nothing() -> None:
    """It is the fault of what is to be stored, and not of the store."""
    cache = DictCache(account="desk")
    part = cache.partition(URL, "t")
    await part.put_catalogue(evolve(catalogue(), name="\ud800"))
    assert cache.stats().broken == 1
    assert await part.record(ENTITY) is not None


async def test_a_busy_event_loop_is_not_a_slow_store() -> None:
    """What the loop itself has delayed neither ends an operation nor closes the store."""
    cache = DictCache(account="desk")
    part = cache.partition(URL, "t")
    loop = asyncio.get_running_loop()

    async def block() -> None:
        await asyncio.sleep(0.1)
        loop.now += 1.8  # type: ignore[attr-defined]

    cache.seconds = 0.3
    blocking = asyncio.ensure_future(block())
    assert await part._version(ENTITY) is not None
    await blocking
    assert cache.stats().broken == 0
