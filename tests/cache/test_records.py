"""Which of two records of an entity counts, whoever has stored them and in whatever order."""

from datetime import datetime, timedelta

import pytest

from asyncfin.cache.record import EntityRecord, later
from tests.cache.conftest import Clock, MakeCache
from tests.cache.stored import AT, DATASET, ENTITY, NEXT, URL

GONE = EntityRecord(AT + timedelta(seconds=1), status=404)


def at(seconds: float) -> datetime:
    return AT + timedelta(seconds=seconds)


def test_later_request_wins_whichever_arrives_first() -> None:
    """Of the same moment the record that was made last."""
    old, new = EntityRecord(at(0), DATASET), EntityRecord(at(1), NEXT)
    for record, other in ((old, new), (new, old)):
        assert later(record, other, at(2)) is new
    for record, other in ((new, GONE), (GONE, new)):
        assert later(record, other, at(2)) is other
    assert later(None, old, at(2)) is old
    assert later(old, None, at(2)) is old
    assert later(None, None, at(2)) is None


@pytest.mark.parametrize(("ahead", "counts"), [(59, True), (61, False)])
def test_record_of_the_future_is_unknown(ahead: float, counts: bool) -> None:
    """Above a minute, which clocks of machines may differ, any new observation wins."""
    future, new = EntityRecord(at(ahead), DATASET), EntityRecord(at(0), NEXT)
    assert later(None, future, at(0)) is (future if counts else None)
    assert later(future, new, at(0)) is (future if counts else new)


async def test_records_of_caches_follow_the_rule(make_cache: MakeCache, clock: Clock) -> None:
    """In memory, in a folder, in Redis and in a dict: by the time of the requests, never of the writes."""
    part = make_cache().partition(URL, "a-token")
    assert await part.record(ENTITY) is None
    clock.step(100)
    for record, expected in [
        (EntityRecord(at(50), NEXT), EntityRecord(at(50), NEXT)),
        (EntityRecord(at(0), DATASET), EntityRecord(at(50), NEXT)),
        (EntityRecord(at(49), status=404), EntityRecord(at(50), NEXT)),
        (EntityRecord(at(60), DATASET), EntityRecord(at(60), DATASET)),
    ]:
        await part.observe(ENTITY, record)
        assert await part.record(ENTITY) == expected
    forbidden = EntityRecord(at(61), status=403)
    await part.observe(ENTITY, forbidden, "a digest")
    assert await part.record(ENTITY, "a digest") == forbidden
    assert await part.record(ENTITY, "another") == await part.record(ENTITY) == EntityRecord(at(60), DATASET)
    clock.step(-86_400)
    assert await part.record(ENTITY) is None
    await part.observe(ENTITY, EntityRecord(clock(), NEXT))
    assert await part.record(ENTITY) == EntityRecord(clock(), NEXT)
