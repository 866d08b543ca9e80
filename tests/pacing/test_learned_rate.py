"""The learned rate against services that keep their limit to themselves, in virtual time.

Where arrivals jitter by more than a service's burst covers, no pace gets through unrefused; the jitter
here stays within it.
"""

import asyncio
import random
from collections.abc import Callable

import pytest

from asyncfin.pacing.bucket import TokenBucket
from tests.services.limits import (
    Broken,
    Changing,
    Client,
    FixedWindow,
    LeakingExcess,
    Refilling,
    Returning,
    Service,
    SlidingWindow,
    simulate,
    use_by_others,
)

SERVICES: dict[str, Callable[[int], Service]] = {
    "token bucket, burst 1": lambda limit: Refilling(limit, 1),
    "token bucket, burst 5": lambda limit: Refilling(limit, 5),
    "token bucket, burst 20": lambda limit: Refilling(limit, 20),
    "fixed window": FixedWindow,
    "sliding window": SlidingWindow,
    "limit_req": lambda limit: LeakingExcess(limit, 0),
    "limit_req, burst 5": lambda limit: LeakingExcess(limit, 5),
}
STRICT = {"token bucket, burst 1", "limit_req"}


@pytest.mark.parametrize("in_flight", [8, 64])
@pytest.mark.parametrize("latency", [0.02, 0.3])
@pytest.mark.parametrize("limit", [1, 20])
@pytest.mark.parametrize("kind", SERVICES)
def test_sole_user_gets_unknown_limit(kind: str, limit: int, latency: float, in_flight: int) -> None:
    """Above 85 % of what is possible, with below 2 % of the requests refused; at first above 60 %."""
    client = Client(SERVICES[kind](limit), in_flight, latency, jitter=0.0 if kind in STRICT else 0.2)
    begin, end = 100 + 300 / limit, 200 + 600 / limit
    simulate(client.run(end))
    outcome, possible = client.record.between(begin, end), min(limit, in_flight / latency)
    assert outcome.rate > 0.85 * possible
    assert outcome.refused < 0.02
    if (limit, latency) == (20, 0.02):
        assert client.record.between(0, 60).rate > 0.6 * possible


@pytest.mark.parametrize("count", [60, 600])
@pytest.mark.parametrize("window", [FixedWindow, SlidingWindow])
def test_limit_per_minute_is_learned(window: Callable[[int, float], Service], count: int) -> None:
    """The same bounds hold where the service counts by the minute and its waits are long."""
    client = Client(window(count, 60.0), 8, 0.1, 0.1)
    simulate(client.run(1500))
    outcome = client.record.between(600, 1500)
    assert outcome.rate > 0.85 * count / 60
    assert outcome.refused < 0.02


@pytest.mark.parametrize("limit", [20, 50])
@pytest.mark.parametrize("kind", sorted(SERVICES.keys() - STRICT))
@pytest.mark.parametrize("steady", [True, False])
def test_other_users_starve_no_client(kind: str, limit: int, steady: bool) -> None:
    """Beside others who take half and heed no refusal: a fair part of the rest, below 5 % refused.

    Steady others leave all the rest; random ones cause a refusal at every cluster.
    """
    service, client_end = SERVICES[kind](limit), 200.0
    client = Client(service, 8, 0.1, 0.1)
    chance = random.Random(1)
    others = use_by_others(
        service, lambda: 2 / limit if steady else chance.expovariate(limit / 2), client_end
    )
    simulate(client.run(client_end), others)
    outcome = client.record.between(100, client_end)
    assert outcome.rate > (0.85 if steady else 0.2) * limit / 2
    assert outcome.refused < 0.05


@pytest.mark.parametrize("kind", sorted(SERVICES.keys() - STRICT))
def test_two_learners_share_a_limit(kind: str) -> None:
    """A latecomer finds its place, together they use the limit, and few requests are refused."""
    service = SERVICES[kind](30)
    clients = [Client(service, 16, 0.1, 0.1), Client(service, 16, 0.1, 0.1, begin=60)]
    simulate(*(client.run(300) for client in clients))
    outcomes = [client.record.between(150, 300) for client in clients]
    assert min(outcome.rate for outcome in outcomes) > 0.1 * 30
    assert sum(outcome.rate for outcome in outcomes) > 0.85 * 30
    assert max(outcome.refused for outcome in outcomes) < 0.05


@pytest.mark.parametrize("kind", SERVICES)
def test_tenfold_rise_is_followed(kind: str) -> None:
    """From 2 to 20 requests a second: half of it by then."""
    client = Client(Changing(SERVICES[kind](2), SERVICES[kind](20), 333), 8, 0.1)
    simulate(client.run(333 + 130))
    assert max(client.record.between(333 + at, 333 + at + 10).rate for at in range(0, 110, 5)) > 10


@pytest.mark.parametrize("limit", [10, 50])
def test_outage_of_rejections_is_left_behind(limit: int) -> None:
    """Ten minutes of nothing but rejections cost a few requests a second, and are forgotten within four."""
    client = Client(Broken(Refilling(limit, 5), 100, 700), 8, 0.05, 0.1)
    simulate(client.run(1200))
    assert len([time for time, _ in client.record.arrivals if 200 <= time < 700]) < 1500
    assert client.record.between(940, 1200).rate > 0.85 * limit


@pytest.mark.parametrize("wait", [5, 40, 60])
@pytest.mark.parametrize("served", [0, 1])
@pytest.mark.parametrize("in_flight", [1, 8])
def test_unmeasured_refusal_is_forgotten(in_flight: int, served: int, wait: int) -> None:
    """After a 429 before two requests were served, the speed is 95 % of an unpaced one within 2 seconds."""
    client = Client(Returning(served, wait), in_flight, 0.1)
    simulate(client.run(wait + 12))
    assert client.record.between(wait + 2, wait + 12).rate > 0.95 * in_flight / 0.1
    assert client.bucket.stats().rate is None


@pytest.mark.virtual
async def test_event_lowers_rate_once() -> None:
    """The first sets it: three of ten were served, and the service asks for two seconds.

    Neither a further refusal of what was sent before, nor that of the first request after a pause lowers it.
    """
    bucket = TokenBucket()
    sent = [await bucket.acquire() for _ in range(10)]
    await asyncio.sleep(0.5)
    for sent_at in sent[3:]:
        await bucket.refused(sent_at=sent_at, retry_after=2)
    before = bucket.stats().rate
    assert bucket.stats().learned
    assert before == pytest.approx(3 / 2.5, rel=1e-3)
    await bucket.refused(sent_at=await bucket.acquire(), retry_after=1)
    await bucket.acquire()
    await bucket.refused(sent_at=sent[-2], retry_after=1)
    assert bucket.stats().rate == before
    await bucket.acquire()
    sent = [await bucket.acquire() for _ in range(4)]
    before = bucket.stats().rate
    for sent_at in sent:
        await bucket.refused(sent_at=sent_at, retry_after=5)
    after = bucket.stats().rate
    assert before is not None
    assert after is not None
    assert 0.8 * before - 1e-9 <= after < before
    assert bucket.stats().refused == 13


@pytest.mark.virtual
async def test_rate_does_not_climb_unused() -> None:
    """Only a grant that was waited for raises the rate, so an idle hour leads to no herd."""
    bucket = TokenBucket()
    sent = [await bucket.acquire() for _ in range(3)]
    await bucket.refused(sent_at=sent[-1], retry_after=1)
    rate = bucket.stats().rate
    assert rate is not None
    for _ in range(20):
        await asyncio.sleep(60)
        await bucket.acquire()
    assert bucket.stats().rate == rate


@pytest.mark.virtual
@pytest.mark.parametrize("reason", ["returned", "unsent", "long ago"])
async def test_unserved_requests_measure_nothing(reason: str) -> None:
    """Eight of ten were given back or never reached the service, or were served an hour before."""
    bucket = TokenBucket()
    sent = [await bucket.acquire() for _ in range(10)]
    for sent_at in sent[2:]:
        if reason == "returned":
            await bucket.give_back()
        elif reason == "unsent":
            await bucket.unspend(sent_at=sent_at)
    if reason == "long ago":
        await asyncio.sleep(3600)
        sent = [await bucket.acquire() for _ in range(2)]
    await bucket.refused(sent_at=sent[0], retry_after=1)
    assert bucket.stats().rate is None
