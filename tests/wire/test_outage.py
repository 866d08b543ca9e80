"""An outage of the service as a state of the client: when it begins and ends, who probes, and who waits."""

import asyncio
import logging
import random
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from attrs import Factory, define, evolve
from hypothesis import given, strategies as st

from asyncfin.errors import (
    AllowanceExhaustedError,
    AsyncfinError,
    AuthenticationError,
    BucketUnavailableError,
    ConnectionFailedError,
    DatasetChangedError,
    MalformedAnswerError,
    NotFoundError,
    RequestTimeoutError,
    ServerFailureError,
    ServiceError,
    TransportError,
)
from asyncfin.events import Event, OutageBegan, OutageEnded, RequestStarted, Waiting
from asyncfin.pacing.bucket import TokenBucket
from asyncfin.wire.outage import Outage, is_failure
from asyncfin.wire.protocol import Request, limits_request
from asyncfin.wire.retry import Retry, Timeouts
from asyncfin.wire.sender import Sender
from asyncfin.wire.transport import Transport
from tests.services.raw import Received, Scripted, Step, answer, dropping, hanging, judged, refusal
from tests.wire.sending import NOON, of_kind, sending

DOWN = refusal(503, "unavailable", "down")
ONCE = Retry(attempts=1)


def entity(number: int) -> str:
    return f"O-{number:032}"


def read(number: int) -> Request:
    return Request("dataset", "GET", f"/v1/entities/{entity(number)}/dataset", entity_id=entity(number))


@define
class Service:
    """Responds with `step`, which a test replaces; a function of the request decides for each."""

    step: Step | bytes | Callable[[Received], Step | bytes] = DOWN

    def __call__(self, request: Received) -> Step | bytes:
        if isinstance(self.step, bytes) or not hasattr(self.step, "judges"):
            return self.step  # type: ignore[return-value]
        return self.step(request)  # type: ignore[arg-type,return-value]


@define
class Failing:
    """A sender during an outage, which has begun."""

    server: Scripted
    sender: Sender
    events: list[Event]
    service: Service
    at: float = Factory(lambda: asyncio.get_running_loop().time())  # when it began
    before: int = 0  # how many requests were sent until then

    @property
    def probes(self) -> list[float]:
        """When the requests since the beginning were received, in seconds after it."""
        return [each.at - self.at for each in self.server.requests[self.before :]]


async def fail(sender: Sender, *numbers: int) -> list[BaseException]:
    """Request entities one after the other, and return the errors."""
    errors: list[BaseException] = []
    for number in numbers:
        with pytest.raises(AsyncfinError) as caught:
            await sender.send(read(number))
        errors.append(caught.value)
    return errors


@asynccontextmanager
async def failing(step: Any = DOWN, retry: Retry = ONCE, **options: Any) -> AsyncIterator[Failing]:
    """Give a sender whose service has just failed eight times in a row."""
    service = Service(step)
    async with sending(judge=service, retry=evolve(retry, attempts=1), **options) as (server, sender, events):
        sender.lane, lane = "interactive", sender.lane
        await fail(sender, *range(8))
        sender.lane = lane
        sender._retry = retry
        assert len(of_kind(events, OutageBegan)) == 1
        yield Failing(server, sender, events, service, before=len(server.requests))


# --- what is a failure, and what a success

ERRORS = [
    (None, False),
    (ServerFailureError(status=500), True),
    (ServerFailureError(status=501), True),
    (ServerFailureError(status=503, has_error_object=False), True),
    (ServiceError(status=408), True),
    (ConnectionFailedError("x", retryable=False), True),
    (RequestTimeoutError("x"), True),
    (NotFoundError(status=404, entity_id="O-1"), False),
    (NotFoundError(status=404, entity_id="O-1", has_error_object=False), None),
    (AuthenticationError(status=401), False),
    (AuthenticationError(status=401, answered=False), None),
    (DatasetChangedError(status=409, code="dataset_changed"), False),
    (DatasetChangedError(status=503, code="dataset_changed"), None),
    (ServiceError(status=418, entity_id="O-1"), False),
    (ServiceError(status=302, entity_id="O-1", has_error_object=False), None),
    (MalformedAnswerError("x", entity_id="O-1"), None),
    (BucketUnavailableError("x"), None),
]


@pytest.mark.parametrize(("error", "expected"), ERRORS, ids=lambda each: str(each)[:40])
def test_failures_concern_the_service_and_successes_are_its_own_responses(
    error: AsyncfinError | None, expected: bool | None
) -> None:
    """A 404 of something in front of the service is neither."""
    assert is_failure(error) is expected


# --- when it begins: against a plain reading of the rule

Steps = list[tuple[str, int, float, float | None]]  # kind, entity, seconds since the last, Retry-After


@st.composite
def steps(draw: st.DrawFn) -> Steps:
    """Attempts of one to three entities, at intervals of up to 2 or 5 seconds, that mostly fail."""
    entities, longest = st.integers(0, draw(st.integers(0, 2))), draw(st.sampled_from([2, 5]))
    waits = st.sampled_from(draw(st.sampled_from([[None], [None, 5.0], [None] * 9 + [5.0]])))
    kinds = st.sampled_from(draw(st.sampled_from(["f", "fn", "ffffffffsn"])))
    return draw(st.lists(st.tuples(kinds, entities, st.floats(0, longest), waits), min_size=8, max_size=20))


def begins(done: Steps) -> bool:
    """Return whether the last step begins an outage, if none was before it."""
    row: Steps = []
    for each in done:
        if each[0] == "s":
            row = []
        elif each[0] == "f":
            row.append(each)
    if done[-1][0] != "f":
        return False
    entities = {number for _, number, _, _ in row}
    advised = {number for _, number, _, retry_after in row if retry_after is not None}
    lasted = row[-1][2] - row[0][2]
    return len(advised) >= 2 or (len(row) >= 8 and (len(entities) >= 2 or lasted >= 30))


@given(steps=steps())
def test_it_begins_after_eight_failures_of_several_entities_or_of_half_a_minute(
    steps: Steps,
) -> None:
    """At once if two entities received a 5xx with Retry-After. A success in between starts over."""
    outage, now = Outage(random.Random(1)), 0.0
    done: Steps = []
    for kind, number, seconds, retry_after in steps:
        now += seconds
        done.append((kind, number, now, retry_after))
        if kind == "s":
            outage.record_success()
        elif kind == "n":
            outage.record_neither(object(), now)
        else:
            error = ServerFailureError(status=503, at=NOON)
            began = outage.record_failure(object(), entity(number), error, retry_after, now)
            assert began == begins(done)
            if began:
                return
        assert not outage.is_on


@pytest.mark.parametrize("error", [ServerFailureError(status=501), ConnectionFailedError("x")])
def test_retry_after_counts_with_a_retryable_5xx_only(error: AsyncfinError) -> None:
    """A 501 is a failure, but its Retry-After begins nothing."""
    outage = Outage(random.Random(1))
    assert not any(outage.record_failure(n, entity(n), error, 5.0, 0.0) for n in range(7))
    assert outage.record_failure(7, entity(7), error, 5.0, 0.0)


@pytest.mark.virtual
async def test_an_entity_that_fails_while_others_succeed_is_no_outage() -> None:
    """Twenty minutes of it: each question of the others is answered, and each of its own is sent."""

    def judge(request: Received) -> bytes:
        return DOWN if entity(1) in request.target else answer()

    async with sending(judge=judge, retry=ONCE) as (server, sender, events):
        for _ in range(40):
            await fail(sender, 1, 1)
            await sender.send(read(2))
            await asyncio.sleep(30)
    assert len(server.requests) == 120
    assert not of_kind(events, OutageBegan)


@pytest.mark.virtual
@pytest.mark.parametrize("status", [400, 403, 404, 409, 418, 429])
async def test_a_response_with_an_error_object_starts_the_row_over(status: int) -> None:
    """It comes from the service, which therefore responds; what comes from a proxy changes nothing."""
    responses = [DOWN] * 7 + [refusal(status, retry_after="0")] + [DOWN] * 7 + [answer(status)] + [DOWN]
    async with sending(*responses, retry=ONCE) as (_, sender, events):
        await fail(sender, *range(16))
        assert not of_kind(events, OutageBegan)
        await fail(sender, 16)
        assert [each.failures for each in of_kind(events, OutageBegan)] == [8]


# --- who probes, and when


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("step", "taken"), [(DOWN, 0.0), (dropping(), 0.0), (hanging(), 7.0)], ids=["503", "dropped", "hanging"]
)
async def test_probes_are_sent_one_at_a_time_after_growing_waits(step: Any, taken: float) -> None:
    """After 1, 2, 4, 8, 16, 30, 30 s from the end of the last one, and up to a tenth more."""
    async with failing(step, lane="bulk", timeouts=Timeouts(total=7)) as failed:
        waiting = [asyncio.ensure_future(failed.sender.send(read(n))) for n in range(20)]
        await asyncio.sleep(300)
        ends = [0.0, *(each + taken for each in failed.probes)]
        waits = [begun - ended for begun, ended in zip(failed.probes, ends, strict=False)]
        expected = [1, 2, 4, 8, 16, *[30] * (len(waits) - 5)]
        assert len(waits) > 8
        assert all(seconds <= wait <= 1.11 * seconds for wait, seconds in zip(waits, expected, strict=True))
        assert any(wait > 1.001 * seconds for wait, seconds in zip(waits, expected, strict=True))
        for each in waiting:
            each.cancel()


@pytest.mark.virtual
@pytest.mark.parametrize(("retry_after", "expected"), [("100", 100), ("7200", 600), ("0", 30)])
async def test_a_retry_after_of_the_last_5xx_is_obeyed_for_ten_minutes_at_most(
    retry_after: str, expected: float
) -> None:
    """If it is longer than the wait would be."""
    down = refusal(503, retry_after=retry_after)
    async with failing(lane="bulk", retry=Retry(max_outage=9e9)) as failed:
        waiting = [asyncio.ensure_future(failed.sender.send(read(n))) for n in range(3)]
        await asyncio.sleep(100)
        failed.service.step = down
        await asyncio.sleep(4000)
        waits = [later - earlier for earlier, later in pairwise(failed.probes)][-3:]
        assert all(expected <= wait <= 1.11 * expected for wait in waits)
        # A failure that is no 5xx asks for nothing: the wait of the 5xx before it stays.
        for each in waiting:
            each.cancel()


@pytest.mark.virtual
async def test_the_first_request_that_arrives_when_a_probe_is_due_is_sent() -> None:
    """Nothing is sent by itself; all others fail at once, and a second one while the probe is in flight."""
    async with failing() as failed:
        await fail(failed.sender, *range(30))
        await asyncio.sleep(50)
        assert failed.probes == []
        failed.service.step = hanging()
        probe = asyncio.ensure_future(failed.sender.send(read(3)))
        await failed.server.arrived(failed.before + 1)
        began = asyncio.get_running_loop().time()
        await fail(failed.sender, *range(30))
        assert asyncio.get_running_loop().time() - began < 0.001
        assert [each.target for each in failed.server.requests[failed.before :]] == [read(3).path]
        probe.cancel()


@pytest.mark.virtual
async def test_the_longest_waiting_request_of_another_entity_is_the_next_probe() -> None:
    """The last probe's entity waits until no other one does."""
    async with failing(lane="bulk") as failed:
        waiting = [asyncio.ensure_future(failed.sender.send(read(n))) for n in (5, 5, 5, 6, 7)]
        await asyncio.sleep(100)
        targets = [each.target for each in failed.server.requests[failed.before :]]
        assert targets[:4] == [read(n).path for n in (5, 6, 5, 7)]
        for each in waiting:
            each.cancel()


@pytest.mark.virtual
async def test_while_one_entity_has_failed_alone_the_first_request_of_another_one_is_sent_at_once() -> None:
    """If it succeeds, there is no outage any more; if it fails, all wait for the next probe."""
    for other, expected in ((answer(), 1), (DOWN, 0)):
        service = Service()
        async with sending(judge=service, retry=ONCE) as (server, sender, events):
            for _ in range(8):
                await fail(sender, 1)
                await asyncio.sleep(5)
            assert len(of_kind(events, OutageBegan)) == 1
            await fail(sender, 1)
            sent = len(server.requests)
            service.step = other
            await asyncio.gather(*(sender.send(read(n)) for n in (2, 3)), return_exceptions=True)
            assert len(server.requests) <= sent + 2
            assert server.requests[sent].target == read(2).path
            assert len(of_kind(events, OutageEnded)) == expected
            await asyncio.gather(sender.send(read(4)), return_exceptions=True)
            assert len(server.requests) == sent + (1 if other == DOWN else 2)


@pytest.mark.virtual
@pytest.mark.parametrize("lane", ["interactive", "bulk"])
async def test_after_a_cancelled_probe_the_next_request_probes_at_once(lane: Any) -> None:
    """It has no outcome, so the wait before it is not repeated."""
    async with failing(lane=lane) as failed:
        await asyncio.sleep(1.2)
        failed.service.step = hanging()
        probe = asyncio.ensure_future(failed.sender.send(read(1)))
        await failed.server.arrived(failed.before + 1)
        other = asyncio.ensure_future(failed.sender.send(read(2))) if lane == "bulk" else None
        await asyncio.sleep(1)
        probe.cancel()
        await asyncio.sleep(0)
        failed.service.step = answer()
        await (other or failed.sender.send(read(2)))
        assert failed.probes[-1] < 2.4
        assert of_kind(failed.events, OutageEnded)[-1].recovered


@pytest.mark.virtual
async def test_a_probe_that_the_bucket_refuses_has_no_outcome_and_the_next_request_probes() -> None:
    """The used-up allowance is its error, and nothing is sent."""
    bucket = TokenBucket(rate=1e6, burst=1e3, clock=lambda: NOON)
    async with failing(bucket=bucket) as failed:
        await bucket.exhaust(50)
        await asyncio.sleep(2)
        for _ in range(3):
            with pytest.raises(AllowanceExhaustedError):
                await failed.sender.send(read(1))
    assert failed.probes == []


@pytest.mark.virtual
async def test_a_failed_probe_of_the_interactive_lane_is_not_retried() -> None:
    """It raises its own error, whatever `Retry` allows."""
    async with failing(retry=Retry(attempts=5)) as failed:
        await asyncio.sleep(2)
        (error,) = await fail(failed.sender, 1)
        assert isinstance(error, ServerFailureError)
        assert (error.attempts, error.answered) == (1, True)
        assert len(failed.probes) == 1


@pytest.mark.virtual
async def test_a_probe_that_a_proxy_refuses_is_not_repeated_at_once() -> None:
    """A 404 without an error object is neither failure nor success: the next probe is due after its wait."""
    async with failing() as failed:
        failed.service.step = answer(404)
        await asyncio.sleep(1.2)
        first, *others = await fail(failed.sender, *range(10))
        assert isinstance(first, NotFoundError)
        assert all(isinstance(each, ServerFailureError) for each in others)
        assert len(failed.probes) == 1


@pytest.mark.virtual
async def test_a_probe_with_a_refused_token_is_sent_again_with_another_one() -> None:
    """The 401 comes from the service, so the outage is over."""
    tokens = iter(["old-token", "new-token"])

    async def token() -> str:
        return next(tokens)

    async with failing(token=token) as failed:
        await asyncio.sleep(2)

        def judge(request: Received) -> bytes:
            return answer() if request.token == "new-token" else answer(401)

        judge.judges = True  # type: ignore[attr-defined]
        failed.service.step = judge
        await failed.sender.send(read(1))
        assert len(failed.probes) == 2


# --- who is not sent: the interactive lane


@pytest.mark.virtual
async def test_a_request_that_is_not_sent_raises_the_last_failure_and_says_since_when() -> None:
    """Of the same class, status, code, message and request id; with the entity that was not asked."""
    moments = iter([NOON + timedelta(seconds=12 + n, microseconds=5) for n in range(1000)])
    async with failing(clock=lambda: next(moments)) as failed:
        (error,) = await fail(failed.sender, 77)
    began = of_kind(failed.events, OutageBegan)[0]
    assert began.since == NOON + timedelta(seconds=13, microseconds=5)  # the end of the first attempt
    assert isinstance(error, ServerFailureError)
    assert (error.status, error.code, error.message, error.request_id) == (503, "unavailable", "down", "r-1")
    assert (error.operation, error.entity_id) == ("dataset", entity(77))
    assert (error.attempts, error.answered, error.at) == (0, False, began.since)
    assert error.__cause__ is None
    assert error.concerns == "service"
    ending = began.since.replace(microsecond=0).isoformat().replace("+00:00", "Z")
    assert str(error).endswith(f"; not sent: the service has failed since {ending}")
    assert str(error).count("not sent") == 1


@pytest.mark.virtual
async def test_a_connection_that_failed_is_the_error_of_those_not_sent_too() -> None:
    """With `sent` False, whether or not that request had been sent."""
    async with failing(dropping()) as failed:
        (error,) = await fail(failed.sender, 77)
    assert isinstance(error, TransportError)
    assert (error.attempts, error.sent, error.entity_id) == (0, False, entity(77))
    assert "; not sent: the service has failed since 2026-03-01T12:00:00Z" in str(error)


@pytest.mark.virtual
async def test_a_request_that_waits_to_be_retried_ends_when_the_outage_begins() -> None:
    """In the interactive lane, with its own error; nothing more is sent of it."""
    async with sending(DOWN, retry=Retry(attempts=5, wait_initial=20, wait_max=20)) as (server, sender, _):
        began = asyncio.get_running_loop().time()
        ends = await asyncio.gather(*(sender.send(read(n)) for n in range(8)), return_exceptions=True)
        assert asyncio.get_running_loop().time() - began < 1
    assert len(server.requests) == 8
    assert all(isinstance(end, ServerFailureError) and end.attempts == 1 for end in ends)


@pytest.mark.virtual
@pytest.mark.parametrize("rate", [1e6, 1.0], ids=["connection", "bucket"])
async def test_during_an_outage_no_grant_is_spent_but_for_probes(rate: float) -> None:
    """Requests that wait for a connection or for the bucket as it begins give their grants back."""
    bucket = TokenBucket(rate=rate, burst=1, clock=lambda: NOON)
    async with sending(DOWN, retry=ONCE, bucket=bucket, max_in_flight=50 if rate == 1 else 2) as (
        server,
        sender,
        _,
    ):
        ends = await asyncio.gather(*(sender.send(read(n)) for n in range(40)), return_exceptions=True)
        spent = bucket.stats().spent_today
    assert all(isinstance(end, ServerFailureError) for end in ends)
    assert len(server.requests) <= 10
    assert spent == len(server.requests)


@pytest.mark.virtual
async def test_usage_and_limits_are_sent_as_ever_and_change_nothing() -> None:
    """They have no entity: neither their failures nor their successes count, and they do not probe."""
    async with failing() as failed:
        failed.service.step = answer()
        for _ in range(3):
            await failed.sender.send(limits_request())
        assert len(failed.probes) == 3
        (error,) = await fail(failed.sender, 1)
        assert isinstance(error, AsyncfinError)
        assert error.attempts == 0
    async with sending(DOWN, retry=Retry(attempts=3)) as (server, sender, events):
        for _ in range(5):
            with pytest.raises(ServerFailureError):
                await sender.send(limits_request())
        assert len(server.requests) == 15
        assert not of_kind(events, OutageBegan)


# --- who waits: the bulk lane


@pytest.mark.virtual
async def test_bulk_requests_wait_until_the_service_responds_and_all_go_on() -> None:
    """Their waits and probes count neither for the attempts nor for the time that `Retry` allows."""
    retry = Retry(attempts=2, max_elapsed=3)
    async with failing(retry=retry, lane="bulk", max_in_flight=4) as failed:
        waiting = [asyncio.ensure_future(failed.sender.send(read(n))) for n in range(20)]
        await asyncio.sleep(500)
        assert not any(each.done() for each in waiting)
        sent = len(failed.probes)
        failed.service.step = answer()
        responses = await asyncio.gather(*waiting)
        assert asyncio.get_running_loop().time() - failed.at < 540
        assert len(failed.probes) == sent + 20
        assert sum(each.attempts - 1 for each in responses) == sent
    waits = of_kind(failed.events, Waiting)
    assert {each.reason for each in waits} == {"outage"}
    assert all(each.until is None or each.until >= NOON for each in waits)
    assert any(each.until is not None and each.until > NOON for each in waits)
    (ended,) = of_kind(failed.events, OutageEnded)
    assert ended.probes == sent + 1


@pytest.mark.virtual
async def test_the_first_success_ends_it_also_of_a_request_sent_before() -> None:
    """No probe is needed then."""
    release = asyncio.Event()

    async def late(writer: asyncio.StreamWriter) -> bool:
        await release.wait()
        writer.write(answer())
        return True

    def judge(request: Received) -> Step | bytes:
        return late if entity(99) in request.target else DOWN

    async with sending(judge=judge, retry=ONCE, lane="bulk") as (server, sender, events):
        early = asyncio.ensure_future(sender.send(read(99)))
        await server.arrived(1)
        waiting = [asyncio.ensure_future(sender.send(read(n))) for n in range(8)]
        await server.arrived(9)
        await asyncio.sleep(0.5)
        assert len(of_kind(events, OutageBegan)) == 1
        release.set()
        await early
        assert [each.recovered for each in of_kind(events, OutageEnded)] == [True]
        assert sender.stats().outage_since is None
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.virtual
async def test_the_retry_quota_is_full_again_when_an_outage_ends() -> None:
    """What its failures have spent is not missing afterwards."""
    async with failing(retry=Retry(attempts=5, wait_initial=0.01)) as failed:
        while failed.sender._quota.spend():
            pass
        await asyncio.sleep(2)
        failed.service.step = answer()
        await failed.sender.send(read(1))
        assert sum(1 for _ in range(300) if failed.sender._quota.spend()) == 200


@pytest.mark.virtual
@pytest.mark.parametrize("max_outage", [0.0, 50.0])
async def test_bulk_requests_wait_for_max_outage_and_then_raise_at_once(max_outage: float) -> None:
    """Counted from the first failure. What arrives later waits no more, but probes when one is due."""
    async with failing(retry=Retry(max_outage=max_outage), lane="bulk") as failed:
        waiting = [failed.sender.send(read(n)) for n in range(10)]
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert asyncio.get_running_loop().time() == pytest.approx(failed.at + max_outage, abs=0.1)
        for end in ends:
            assert isinstance(end, ServerFailureError)
            assert end.attempts == 0
        await asyncio.sleep(100)
        failed.service.step = answer()
        await failed.sender.send(read(1))


@pytest.mark.virtual
async def test_requests_of_an_extraction_wait_in_the_interactive_lane_too() -> None:
    """For as long as the run says; others of the same client fail at once."""
    async with failing() as failed:
        waiting = asyncio.ensure_future(failed.sender.send(read(1), max_outage=1000))
        await asyncio.sleep(0.5)
        await fail(failed.sender, 2)
        await asyncio.sleep(400)
        assert not waiting.done()
        failed.service.step = answer()
        await waiting


# --- what is announced


@pytest.mark.virtual
async def test_an_outage_is_announced_logged_and_counted_once(caplog: pytest.LogCaptureFixture) -> None:
    """Events with one serial, two warnings, and `Stats.outage_since` in between."""
    caplog.set_level(logging.WARNING, "asyncfin")
    async with failing(lane="bulk") as failed:
        assert failed.sender.stats().outage_since == NOON
        waiting = asyncio.ensure_future(failed.sender.send(read(1)))
        await asyncio.sleep(20)
        failed.service.step = answer()
        await waiting
        assert failed.sender.stats().outage_since is None
        await failed.sender.aclose()
    (began,) = of_kind(failed.events, OutageBegan)
    (ended,) = of_kind(failed.events, OutageEnded)
    assert began == OutageBegan("dataset", entity(7), began.serial, "ServerFailureError", 8, NOON)
    assert (ended.serial, ended.since, ended.recovered) == (began.serial, NOON, True)
    assert ended.probes == len(failed.probes) == 5
    assert ended.seconds == pytest.approx(failed.probes[-1], abs=0.1)
    assert caplog.messages == [
        "the service fails since 2026-03-01T12:00:00Z: ServerFailureError, 8 failures in a row;"
        " one request at a time is sent until it responds",
        f"the service responds again after {round(ended.seconds)} s; 5 requests were sent in that time",
    ]


@pytest.mark.virtual
async def test_an_outage_ends_without_recovery_when_the_client_is_closed() -> None:
    """Once, and what waits ends at once."""
    async with failing(lane="bulk") as failed:
        waiting = [asyncio.ensure_future(failed.sender.send(read(n))) for n in range(3)]
        await asyncio.sleep(0.5)
        await failed.sender.aclose()
        await failed.sender.aclose()
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [str(end) for end in ends] == ["the client is closed"] * 3
    assert [each.recovered for each in of_kind(failed.events, OutageEnded)] == [False]
    assert failed.sender.stats().outage_since is None


# --- a storm


def closed_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


@pytest.mark.virtual
@pytest.mark.parametrize("kind", ["503", "dropped", "hanging", "closed"])
async def test_forty_clients_send_few_requests_in_ten_minutes_of_an_outage(kind: str) -> None:
    """At most 8 + max_in_flight as it begins, and then 3 + elapsed / 15 of each client."""
    step = {"503": DOWN, "dropped": dropping(), "hanging": hanging(), "closed": DOWN}[kind]
    loop = asyncio.get_running_loop()
    async with judged(lambda _: step) as server:
        base_url = f"http://127.0.0.1:{closed_port()}" if kind == "closed" else server.base_url
        clients = [storming(base_url, "bulk" if n % 4 == 0 else "interactive", n) for n in range(40)]
        sent = await asyncio.gather(*clients)
    for began, moments in sent:
        before = sum(moment <= began for moment in moments)
        assert before <= 8 + 4
        for count, moment in enumerate((each - began for each in moments if each > began), 1):
            assert count <= 3 + moment / 15
    assert loop.time() > 600


async def storming(base_url: str, lane: Any, seed: int) -> tuple[float, list[float]]:
    """Return when a client's outage began, and when it sent requests, for ten minutes after that."""
    loop, sent, source = asyncio.get_running_loop(), list[float](), random.Random(seed)
    began = 1e9

    def observe(event: Event) -> None:
        nonlocal began
        if isinstance(event, RequestStarted):
            sent.append(loop.time())
        elif isinstance(event, OutageBegan):
            began = loop.time()

    transport = Transport(base_url, max_in_flight=4, timeouts=Timeouts(total=9))
    bucket = TokenBucket(rate=1e6, burst=1e3)
    sender = Sender(transport, "some-token", bucket=bucket, lane=lane, observers=[observe], source=source)

    async def ask() -> None:
        while loop.time() < began + 600:
            try:
                await sender.send(read(source.randrange(20)))
            except AsyncfinError:
                await asyncio.sleep(source.uniform(0, 20))

    try:
        async with asyncio.timeout(700):
            await asyncio.gather(*(ask() for _ in range(6)))
    except TimeoutError:
        pass
    await sender.aclose()
    return began, sent
