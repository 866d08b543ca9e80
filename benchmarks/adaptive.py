"""The learned rate in virtual time: what it gets out of each kind of service, and how
often it is refused.

`python -m benchmarks.adaptive` prints the table of docs/pacing.md. A row is one
simulation: which service, who uses it, what share of the possible was served, what
share of the requests was refused.
"""

import random
from collections.abc import Iterator

from asyncfin.pacing.bucket import TokenBucket
from tests.services.limits import (
    Changing,
    Client,
    FixedWindow,
    LeakingExcess,
    Refilling,
    Returning,
    SlidingWindow,
    Unlimited,
    simulate,
)


def sole() -> Iterator[tuple[str, float, float]]:
    """Yield a sole user's steady state and first minute, at 10 requests a second."""
    services = {
        "token bucket, burst 1": Refilling(10, 1),
        "token bucket, burst 20": Refilling(10, 20),
        "fixed window": FixedWindow(10),
        "sliding window": SlidingWindow(10),
        "nginx limit_req, burst 5": LeakingExcess(10, 5),
    }
    for name, service in services.items():
        client = Client(service, 8, 0.1, 0.0)
        simulate(client.run(350))
        minute, steady = client.record.between(0, 60), client.record.between(130, 350)
        yield f"sole user, {name}: first minute", minute.rate / 10, minute.refused
        yield f"sole user, {name}: steady", steady.rate / 10, steady.refused


def two() -> Iterator[tuple[str, float, float]]:
    """Yield two learners at a limit without a burst."""
    for limit in (10, 1):
        service = Refilling(limit, 1)
        clients = [Client(service, 8, 0.1, 0.1, begin=begin) for begin in (0.0, 3.3)]
        simulate(*(client.run(1100) for client in clients))
        arrivals = [
            served
            for client in clients
            for at, served in client.record.arrivals
            if at >= 100
        ]
        refused = arrivals.count(False) / len(arrivals)
        yield (
            f"two learners, token bucket of {limit}/s, burst 1",
            sum(arrivals) / limit / 1000,
            refused,
        )


def shares() -> str:
    """Return what the weaker one of two learners gets at a limit of 10/s without a
    burst, in 20 minutes.
    """
    found, chance = [], random.Random(1)
    for _ in range(16):
        service, begin = (
            Refilling(10, 1),
            chance.choice([0, 1, 3, 20]) + chance.random(),
        )
        clients = [Client(service, 8, 0.1, 0.1, begin=at) for at in (0.0, begin)]
        simulate(*(client.run(1200) for client in clients))
        rates = [client.record.between(100, 1200).rate for client in clients]
        found.append(min(rates) / sum(rates))
    low, median = sorted(found)[4], sorted(found)[8]
    return (
        f"The weaker one of two learners, 16 pairs: {median:.0%} of the responses; a "
        f"quarter below {low:.0%}."
    )


def random_refusals() -> Iterator[tuple[str, float, float]]:
    """Yield 3 % random refusals on an unlimited service, beside a bucket that only
    pauses.
    """
    plain = Client(
        Unlimited(0.03, random.Random(1)), 8, 0.1, 0.1, bucket=TokenBucket(1e6, 1e5)
    )
    client = Client(Unlimited(0.03, random.Random(1)), 8, 0.1, 0.1)
    for each in (plain, client):
        simulate(each.run(420))
    outcome = client.record.between(300, 420)
    yield (
        "3 % refused at random",
        outcome.rate / plain.record.between(300, 420).rate,
        outcome.refused,
    )


def rise() -> Iterator[tuple[str, float, float]]:
    """Yield the second minute after a limit has risen tenfold."""
    client = Client(Changing(Refilling(2, 5), Refilling(20, 5), 333), 8, 0.1)
    simulate(client.run(460))
    outcome = client.record.between(393, 453)
    yield "2/s becomes 20/s: the second minute", outcome.rate / 20, outcome.refused


def forgotten() -> Iterator[tuple[str, float, float]]:
    """Yield the seconds from the third on after a 429 that has measured nothing, on an
    unlimited service.
    """
    for served in (0, 1):
        for wait in (5, 40, 60):
            client = Client(Returning(served, wait), 8, 0.1)
            simulate(client.run(wait + 12))
            outcome = client.record.between(wait + 2, wait + 12)
            yield (
                f"{served} served, a 429 of {wait} s, then no limit: after 2 s",
                outcome.rate / 80,
                0.0,
            )


def run() -> str:
    lines = ["| user and service | used | refused |", "| --- | --- | --- |"]
    for part in (sole, two, random_refusals, rise, forgotten):
        lines += [
            f"| {name} | {used:.0%} | {refused:.1%} |" for name, used, refused in part()
        ]
    return "\n".join([*lines, "", shares()])


if __name__ == "__main__":
    print(run())
