"""What observers and logs receive of attempts and waits."""

import asyncio
from datetime import datetime, timedelta

import pytest
from msgspec.structs import astuple

from asyncfin.errors import SelectionError
from asyncfin.events import (
    Event,
    RequestFinished,
    RequestStarted,
    Retrying,
    Stats,
    Waited,
    Waiting,
)
from asyncfin.pacing.bucket import TokenBucket
from asyncfin.tasks import TIME_IS_UP, cancel_and_wait
from asyncfin.wire.sender import Sender
from asyncfin.wire.transport import Transport
from tests.services.raw import answer, dropping, hanging, refusal
from tests.wire.sending import ENTITY, NOON, QUERY, READ, of_kind, sending


@pytest.mark.virtual
async def test_attempts_begin_and_end_once() -> None:
    """Each attempt has one beginning and one end, and the figures of all operations make the total."""
    steps = [answer(body=b"12345"), refusal(429, retry_after="1"), dropping(), hanging(), refusal(404)]
    async with sending(*steps * 4) as (server, sender, events):
        ends = [
            *await asyncio.gather(*(sender.send(READ) for _ in range(5)), return_exceptions=True),
            *await asyncio.gather(*(sender.send(QUERY) for _ in range(5)), return_exceptions=True),
        ]
        stats = sender.stats()
    assert len(ends) == 10
    started = [event.serial for event in of_kind(events, RequestStarted)]
    ended = [event.serial for event in events if isinstance(event, RequestFinished)]
    assert sorted(started) == sorted(ended)
    assert len(set(started)) == len(started) == len(server.requests) == stats.requests
    both = stats.by_operation["dataset"] + stats.by_operation["query"]
    assert stats == Stats(*astuple(both), by_operation=stats.by_operation)
    assert stats.refused == sum(event.status == 429 for event in of_kind(events, RequestFinished))
    assert stats.received == sum(event.received for event in of_kind(events, RequestFinished))
    assert stats.retries == len(of_kind(events, Retrying))


@pytest.mark.virtual
async def test_the_log_tells_facts_as_extras(caplog: pytest.LogCaptureFixture) -> None:
    """Records of the logger carry operation, entity, attempt, wait and the service's request id as extras."""
    caplog.set_level("DEBUG", logger="asyncfin")
    async with sending(refusal(503), answer()) as (_, sender, _events):
        await sender.send(READ)
    records = [record for record in caplog.records if record.name == "asyncfin"]
    (retrying,) = [record.__dict__ for record in records if record.levelname == "INFO"]
    assert retrying["operation"] == "dataset"
    assert retrying["entity_id"] == ENTITY
    assert retrying["attempt"] == 1
    assert retrying["wait"] >= 0
    assert retrying["request_id"] == "r-1"
    assert [record.getMessage().split()[0] for record in records] == [
        "RequestStarted",
        "RequestFinished",
        "Retrying",
        "Waited",
        "RequestStarted",
        "RequestFinished",
    ]


@pytest.mark.virtual
async def test_long_pause_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """After 1, 2, 4, ... seconds each waiting request says that it waits for the pause, and until when."""
    loop, bucket = asyncio.get_running_loop(), TokenBucket(clock=lambda: NOON)
    caplog.set_level("INFO", logger="asyncfin")

    def clock() -> datetime:
        return NOON + timedelta(seconds=loop.time())

    async with sending(answer(), bucket=bucket, clock=clock) as (_, sender, events):
        began = loop.time()
        await bucket.refused(sent_at=began, retry_after=20)
        await sender.send(READ)
        await sender.send(READ)
    waits = of_kind(events, Waiting)
    assert [(each.operation, each.entity_id, each.reason) for each in waits] == [
        ("dataset", ENTITY, "pause")
    ] * 5
    assert [round(each.seconds) for each in waits] == [1, 2, 4, 8, 16]
    ends = [(each.until - NOON).total_seconds() - began for each in waits]
    assert ends == pytest.approx([20] * 5, abs=0.01)
    (first, *_) = [record for record in caplog.records if record.message.startswith("Waiting")]
    assert (first.levelname, first.__dict__["reason"], first.__dict__["until"]) == (
        "INFO",
        "pause",
        waits[0].until,
    )


@pytest.mark.virtual
async def test_a_long_wait_says_what_for() -> None:
    """A long wait says that it is for the token, a connection, the bucket or the next attempt."""

    async def slow() -> str:
        await asyncio.sleep(3)
        return "token"

    steps = [refusal(503, retry_after="10"), answer()]
    bucket = TokenBucket(rate=0.1, clock=lambda: NOON)
    async with sending(*steps, token=slow, bucket=bucket, max_in_flight=1) as (_, sender, events):
        await asyncio.gather(*(sender.send(READ) for _ in range(3)))
    waits = of_kind(events, Waiting)
    assert {each.reason for each in waits} == {"token", "connection", "bucket", "retry"}
    assert {each.reason for each in waits if each.until is not None} == {"retry"}
    assert waits[0].reason == "token"
    assert sum(each.seconds for each in of_kind(events, Waited) if each.reason == "retry") == pytest.approx(
        10, abs=1
    )


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("reason", "failure"), [(None, "CancelledError"), (TIME_IS_UP, "RequestTimeoutError")]
)
async def test_time_limit_is_no_departure(reason: str | None, failure: str) -> None:
    """Observers tell a request whose time was up from one whose caller has left."""
    async with sending(hanging()) as (server, sender, events):
        task = asyncio.ensure_future(sender.send(READ))
        await server.arrived(1)
        await cancel_and_wait([task], reason)
    assert [event.failure for event in of_kind(events, RequestFinished)] == [failure]


@pytest.mark.virtual
async def test_ended_observer_is_removed() -> None:
    """Blocks of two tasks can overlap: the first to end removes its own observer."""
    first: list[Event] = []
    second: list[Event] = []
    async with sending(answer()) as (_, sender, _events):
        one, two = sender.announce.also(first.append), sender.announce.also(second.append)
        one.__enter__()
        two.__enter__()
        one.__exit__(None, None, None)
        await sender.send(READ)
        two.__exit__(None, None, None)
        await sender.send(READ)
    assert (len(first), len(second)) == (0, 2)


class Awaited:
    async def __call__(self, event: Event) -> None:
        """Never awaited, were it taken."""


def test_wrong_observer_or_retry_is_rejected() -> None:
    """What is no observer or no Retry is refused by name at construction."""
    transport = Transport("https://example.com")
    with pytest.raises(SelectionError, match="observers"):
        Sender(transport, "t", bucket=TokenBucket(), observers=[5])  # type: ignore[list-item]
    with pytest.raises(SelectionError, match="observers must be a function that is not async"):
        Sender(transport, "t", bucket=TokenBucket(), observers=[Awaited()])  # type: ignore[list-item]
    with pytest.raises(SelectionError, match="retry"):
        Sender(transport, "t", bucket=TokenBucket(), retry=5)  # type: ignore[arg-type]
