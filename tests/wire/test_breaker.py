"""The breaker: when it opens and closes, who is sent meanwhile, and who waits."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from attrs import Factory, define, evolve
from hypothesis import example, given, strategies as st

from asyncfin.errors import (
    AllowanceExhaustedError,
    AsyncfinError,
    AuthenticationError,
    BucketUnavailableError,
    ConnectionFailedError,
    MalformedAnswerError,
    NotFoundError,
    RequestTimeoutError,
    ServerFailureError,
    ServiceError,
)
from asyncfin.events import Event, OutageBegan, OutageEnded, Waiting
from asyncfin.pacing.bucket import TokenBucket
from asyncfin.wire.breaker import Breaker, Sending, has_responded
from asyncfin.wire.protocol import Request
from asyncfin.wire.retry import Retry, Timeouts
from asyncfin.wire.sender import Sender
from tests.services.raw import Received, Scripted, Step, answer, dropping, hanging, refusal
from tests.wire.sending import NOON, of_kind, sending

DOWN = refusal(503, "unavailable", "down")
ONCE = Retry(attempts=1)


def entity(number: int) -> str:
    return f"O-{number:032}"


def read(number: int) -> Request:
    path = f"/v1/entities/{entity(number)}/dataset"
    return Request("dataset", "GET", path, entity_id=entity(number))


@define
class Service:
    """Responds with `step`, which a test replaces."""

    step: Step | bytes = DOWN

    def __call__(self, request: Received) -> Step | bytes:
        return self.step


@define
class Failing:
    """A sender whose breaker has just opened."""

    server: Scripted
    sender: Sender
    events: list[Event]
    service: Service
    opened_at: float = Factory(lambda: asyncio.get_running_loop().time())
    before: int = 0  # how many requests were sent until then

    @property
    def probes(self) -> list[float]:
        """When the requests since then were received, in seconds after it."""
        return [request.at - self.opened_at for request in self.server.requests[self.before :]]


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
    once = evolve(retry, attempts=1)
    async with sending(judge=service, retry=once, **options) as (server, sender, events):
        sender.lane, lane = "interactive", sender.lane
        await fail(sender, *range(8))
        sender.lane, sender.retry = lane, retry
        assert len(of_kind(events, OutageBegan)) == 1
        yield Failing(server, sender, events, service, before=len(server.requests))


# --- what is a failure, and what a response of the service

OUTCOMES = [
    (None, True),
    (ServerFailureError(status=500), False),
    (ServerFailureError(status=501), None),
    (ServerFailureError(status=505), None),
    (ServerFailureError(status=503, has_error_object=False), False),
    (ServiceError(status=408), True),
    (ServiceError(status=408, has_error_object=False), False),
    (ConnectionFailedError("x", retryable=False), False),
    (RequestTimeoutError("x"), False),
    (NotFoundError(status=404, entity_id="O-1"), True),
    (NotFoundError(status=404, entity_id="O-1", has_error_object=False), None),
    (AuthenticationError(status=401), True),
    (AuthenticationError(status=401, answered=False), None),
    (ServiceError(status=418, entity_id="O-1"), True),
    (ServiceError(status=302, entity_id="O-1", has_error_object=False), False),
    (MalformedAnswerError("x", entity_id="O-1"), None),
    (MalformedAnswerError("x", entity_id="O-1", is_json=False), False),
    (BucketUnavailableError("x"), None),
]


@pytest.mark.parametrize(("error", "expected"), OUTCOMES, ids=lambda value: str(value)[:40])
def test_what_an_outcome_shows(error: AsyncfinError | None, expected: bool | None) -> None:
    """That the service responds, that it fails, or neither."""
    assert has_responded(error) is expected


# --- when it opens and closes: against a plain reading of the rule

# A schedule: what happens next, to which of up to six attempts, of which of up to three entities.
Action = tuple[str, int, int, float]
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from("sssssffffggllrn"),
        st.integers(0, 5),
        st.integers(0, 2),
        st.sampled_from([0.0, 1.0, 2.5]),
    ),
    max_size=80,
)


class Oracle:
    """The rule as it is written, over the whole history each time."""

    def __init__(self) -> None:
        self.history: list[tuple[str, float, int, int]] = []  # kind, when, position of sending, entity
        self.is_open = False

    def add(self, kind: str, now: float, sent: int, entity_id: int) -> None:
        if kind == "response":
            self.is_open = False
        self.history.append((kind, now, sent, entity_id))
        last = max((n for n, row in enumerate(self.history) if row[0] == "response"), default=-1)
        failures = [(n, *row) for n, row in enumerate(self.history) if n > last and row[0] == "failure"]
        if failures:
            first = failures[0][0]
            counted = [row for row in failures if row[0] == first or row[3] > first]
            entities = {row[4] for row in counted}
            self.is_open |= len(counted) >= 8 and len(entities) > 1


@given(actions=ACTIONS)
@example([(kind, 0, turn % 2, 0.0) for turn in range(9) for kind in "slf"])  # left before they fail
def test_breaker_follows_the_rule(actions: list[Action]) -> None:
    """Any schedule of sending, failing, responding and giving up, compared after each step."""
    loop = asyncio.new_event_loop()
    loop.time = lambda: now  # type: ignore[method-assign]
    events: list[Event] = []
    now = 0.0

    async def run() -> None:
        nonlocal now
        breaker = Breaker(events.append, lambda: NOON, loop)  # type: ignore[arg-type]
        oracle = Oracle()
        under_way: dict[int, tuple[Sending, int, int]] = {}
        given_up: set[int] = set()  # those that have counted already
        for kind, key, number, seconds in actions:
            now += seconds
            if kind == "s":
                if key not in under_way:
                    sent = Sending(read(number))
                    sent.sent_at = now
                    breaker.send(sent)
                    oracle.add("sent", now, len(oracle.history), number)
                    under_way[key] = sent, len(oracle.history) - 1, number
                continue
            if key not in under_way:
                continue
            sent, position, number = under_way[key]
            is_counted = key in given_up
            if kind != "l":  # else its caller leaves, and it goes on
                del under_way[key]
                given_up.discard(key)
            if kind == "f":
                breaker.record(sent, ServerFailureError(status=503))
                if not is_counted:
                    oracle.add("failure", now, position, number)
            elif kind == "r":
                breaker.record(sent, None)
                oracle.add("response", now, position, number)
            elif kind == "n":
                breaker.record(sent, BucketUnavailableError("x"))
            else:
                breaker.give_up(sent)
                quiet = all(row[0] != "response" for row in oracle.history[position:])
                if now - sent.sent_at >= 2 and quiet and not is_counted:
                    oracle.add("failure", now, position, number)
                    if kind == "l":
                        given_up.add(key)
            assert (breaker.outage is not None) == oracle.is_open

    loop.run_until_complete(run())
    loop.close()
    began, ended = of_kind(events, OutageBegan), of_kind(events, OutageEnded)
    assert [event.serial for event in ended] == [event.serial for event in began][: len(ended)]
    assert len(began) - len(ended) in (0, 1)


@pytest.mark.virtual
@pytest.mark.parametrize(("seconds", "expected"), [(1.9, 0), (2.1, 1)])
async def test_silent_requests_open_it(seconds: float, expected: int) -> None:
    """Their callers leave after two seconds or more; sooner shows nothing."""
    async with sending(hanging()) as (_, sender, events):
        for number in range(8):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(seconds):
                    await sender.send(read(number))
        assert len(of_kind(events, OutageBegan)) == expected


@pytest.mark.virtual
@pytest.mark.parametrize("status", [400, 403, 404, 409, 418, 429])
async def test_error_objects_start_the_row_over(status: int) -> None:
    """It comes from the service, which therefore responds; what comes from a proxy changes nothing."""
    responses = [DOWN] * 7 + [refusal(status, retry_after="0")] + [DOWN] * 7 + [answer(status)] + [DOWN]
    async with sending(*responses, retry=ONCE) as (_, sender, events):
        await fail(sender, *range(16))
        assert not of_kind(events, OutageBegan)
        await fail(sender, 16)
        assert [event.failures for event in of_kind(events, OutageBegan)] == [8]


# --- who is sent, and when


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("step", "taken"), [(DOWN, 0.0), (dropping(), 0.0), (hanging(), 7.0)], ids=["503", "dropped", "hanging"]
)
async def test_waits_between_probes_grow(step: Any, taken: float) -> None:
    """One at a time, 1, 2, 4, 8, 16, 30, 30 s after the end of the last one."""
    async with failing(step, lane="bulk", timeouts=Timeouts(total=7)) as failed:
        waiting = [asyncio.ensure_future(failed.sender.send(read(n))) for n in range(20)]
        await asyncio.sleep(300)
        ends = [0.0, *(begun + taken for begun in failed.probes)]
        waits = [begun - ended for begun, ended in zip(failed.probes, ends, strict=False)]
        assert len(waits) > 8
        assert waits == pytest.approx([1, 2, 4, 8, 16, *[30] * (len(waits) - 5)], abs=0.01)
        for task in waiting:
            task.cancel()


@pytest.mark.virtual
async def test_probes_alternate_between_entities() -> None:
    """The longest waiting request is next, of another entity than the last one's if one waits."""
    async with failing(lane="bulk") as failed:
        waiting = [asyncio.ensure_future(failed.sender.send(read(n))) for n in (5, 5, 5, 6, 7)]
        await asyncio.sleep(100)
        targets = [request.target for request in failed.server.requests[failed.before :]]
        assert targets[:4] == [read(n).target for n in (5, 6, 5, 7)]
        for task in waiting:
            task.cancel()


@pytest.mark.virtual
@pytest.mark.parametrize("lane", ["interactive", "bulk"])
@pytest.mark.parametrize("retry_after", [None, 30, 300])
async def test_probe_outlives_its_caller(lane: Any, retry_after: int | None) -> None:
    """The visitor leaves. Its response closes the breaker; a 429 pauses or ends the allowance."""
    async with failing(lane=lane) as failed:
        await asyncio.sleep(1.2)

        async def late(writer: asyncio.StreamWriter) -> bool:
            await asyncio.sleep(5)
            writer.write(answer() if retry_after is None else refusal(429, retry_after=str(retry_after)))
            return True

        failed.service.step = late
        probe = asyncio.ensure_future(failed.sender.send(read(1)))
        await failed.server.arrived(failed.before + 1)
        probe.cancel()
        await asyncio.sleep(6)
        assert probe.cancelled()
        assert of_kind(failed.events, OutageEnded)[-1].recovered
        failed.service.step = answer()
        if retry_after == 300:
            with pytest.raises(AllowanceExhaustedError):
                await failed.sender.send(read(2))
        else:
            await failed.sender.send(read(2))
            first, second = failed.probes
            assert second - first >= 5 + (retry_after or 0)


@pytest.mark.virtual
async def test_newcomers_probe_is_not_retried() -> None:
    """It raises its own error, whatever `Retry` allows."""
    async with failing(retry=Retry(attempts=5)) as failed:
        await asyncio.sleep(2)
        (error,) = await fail(failed.sender, 1)
        assert isinstance(error, ServerFailureError)
        assert (error.attempts, error.answered) == (1, True)
        assert len(failed.probes) == 1


# --- who is not sent: the interactive lane


@pytest.mark.virtual
async def test_rejected_request_names_the_failure() -> None:
    """Of the same class, status, code, message and request id; with the entity that was not asked."""
    moments = iter([NOON + timedelta(seconds=n, microseconds=5) for n in range(1000)])
    async with failing(clock=lambda: next(moments)) as failed:
        (error,) = await fail(failed.sender, 77)
    began = of_kind(failed.events, OutageBegan)[0]
    assert isinstance(error, ServerFailureError)
    assert (error.status, error.code, error.message) == (503, "unavailable", "down")
    assert error.request_id == "r-1"
    assert (error.operation, error.entity_id) == ("dataset", entity(77))
    assert (error.attempts, error.answered, error.at) == (0, False, began.since)
    assert error.__cause__ is None
    assert error.concerns == "service"
    ending = began.since.replace(microsecond=0).isoformat().replace("+00:00", "Z")
    assert str(error).endswith(f"; not sent: the service has failed since {ending}")
    assert str(error).count("not sent") == 1


@pytest.mark.virtual
@pytest.mark.parametrize("rate", [1e6, 1.0], ids=["connection", "bucket"])
async def test_only_probes_spend_grants(rate: float) -> None:
    """Requests that wait for a connection or for the bucket as it opens give their grants back."""
    bucket = TokenBucket(rate=rate, burst=1, clock=lambda: NOON)
    in_flight = 50 if rate == 1 else 2
    async with sending(DOWN, retry=ONCE, bucket=bucket, max_in_flight=in_flight) as (server, sender, _):
        sender.retry = Retry(attempts=1, max_elapsed=0)
        ends = await asyncio.gather(*(sender.send(read(n)) for n in range(40)), return_exceptions=True)
        spent = bucket.stats().spent_today
    assert all(isinstance(end, ServerFailureError) for end in ends)
    assert len(server.requests) <= 10
    assert spent == len(server.requests)


@pytest.mark.virtual
async def test_begun_requests_wait_within_max_elapsed() -> None:
    """What was sent before it opened is repeated one at a time, and then raises its own failure."""
    retry = Retry(attempts=5, max_elapsed=20)
    loop = asyncio.get_running_loop()
    async with sending(DOWN, retry=retry) as (server, sender, events):
        ends = await asyncio.gather(*(sender.send(read(n)) for n in range(12)), return_exceptions=True)
        assert all(isinstance(end, ServerFailureError) and end.attempts for end in ends)
        assert 19 < loop.time() < 22
        assert len(of_kind(events, OutageBegan)) == 1
        opened = len([request for request in server.requests if request.at < 1])
        assert len(server.requests) - opened <= 5


# --- who waits: the bulk lane


@pytest.mark.virtual
async def test_bulk_waits_for_the_service() -> None:
    """Their waits and probes count neither for the attempts nor for the time that `Retry` allows."""
    retry = Retry(attempts=2, max_elapsed=3)
    async with failing(retry=retry, lane="bulk", max_in_flight=4) as failed:
        waiting = [asyncio.ensure_future(failed.sender.send(read(n))) for n in range(20)]
        await asyncio.sleep(500)
        assert not any(task.done() for task in waiting)
        sent = len(failed.probes)
        failed.service.step = answer()
        responses = await asyncio.gather(*waiting)
        assert asyncio.get_running_loop().time() - failed.opened_at < 540
        assert len(failed.probes) == sent + 20
        assert sum(response.attempts - 1 for response in responses) == sent
    waits = of_kind(failed.events, Waiting)
    assert {event.reason for event in waits} == {"outage"}
    assert all(event.until is None or event.until >= NOON for event in waits)
    assert any(event.until is not None and event.until > NOON for event in waits)
    (ended,) = of_kind(failed.events, OutageEnded)
    assert ended.probes == sent + 1


@pytest.mark.virtual
@pytest.mark.parametrize("max_outage", [0.0, 50.0])
async def test_bulk_waits_for_max_outage(max_outage: float) -> None:
    """Counted from the first failure. What arrives later waits no more, but probes when one is due."""
    async with failing(retry=Retry(max_outage=max_outage), lane="bulk") as failed:
        waiting = [failed.sender.send(read(n)) for n in range(10)]
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        now = asyncio.get_running_loop().time()
        assert now == pytest.approx(failed.opened_at + max_outage, abs=0.1)
        for end in ends:
            assert isinstance(end, ServerFailureError)
            assert end.attempts == 0
        await asyncio.sleep(100)
        failed.service.step = answer()
        await failed.sender.send(read(1))


# --- what is announced


@pytest.mark.virtual
async def test_outage_is_announced_once(caplog: pytest.LogCaptureFixture) -> None:
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


# --- many at once


@pytest.mark.virtual
@pytest.mark.parametrize("count", [8, 16])
@pytest.mark.parametrize("kind", ["reset", "cut", "502", "503", "advised"])
@pytest.mark.parametrize("in_flight", [8, 16])
async def test_simultaneous_failures_are_retried(count: int, kind: str, in_flight: int) -> None:
    """Connections reset, bodies cut, 502 and 503 at one moment, then a healthy service."""
    step: Step | bytes = {
        "reset": dropping(),
        "cut": dropping(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"),
        "502": answer(502),
        "503": DOWN,
        "advised": refusal(503, retry_after="1"),
    }[kind]
    steps = iter([step] * count)

    def judge(request: Received) -> Step | bytes:
        return next(steps, answer())

    async with sending(judge=judge, max_in_flight=in_flight) as (server, sender, _):
        responses = await asyncio.gather(*(sender.send(read(n)) for n in range(20)))
        assert max(response.attempts for response in responses) == 2
        assert len(server.requests) == 20 + count
        began_at = asyncio.get_running_loop().time()
        for number in range(43):
            await sender.send(read(number))
        assert asyncio.get_running_loop().time() - began_at < 0.1


@pytest.mark.virtual
async def test_two_advised_entities_are_retried() -> None:
    """Two 503 with Retry-After for two of four entities: all answered, two requests each at most."""
    seen: set[str] = set()

    def judge(request: Received) -> bytes:
        is_first = request.target not in seen
        seen.add(request.target)
        fails = is_first and request.target in (read(1).target, read(2).target)
        return refusal(503, retry_after="1") if fails else answer()

    async with sending(judge=judge) as (server, sender, _):
        responses = await asyncio.gather(*(sender.send(read(n)) for n in range(4)))
    assert [response.attempts for response in responses] == [1, 2, 2, 1]
    assert len(server.requests) == 6


@pytest.mark.virtual
@pytest.mark.parametrize("latency", [0.0, 0.2])
@pytest.mark.parametrize("kind", ["503", "dropped"])
async def test_visitors_send_few_requests(kind: str, latency: float) -> None:
    """An outage of 60 s with 40 visitors a second to 20 companies, default Retry: 30 requests."""
    loop = asyncio.get_running_loop()
    raw, then_close = (DOWN, False) if kind == "503" else (b"", True)

    async def down(writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(latency)
        writer.write(raw)
        return not then_close

    async with sending(judge=lambda _: down) as (server, sender, _):
        visits = []
        for number in range(2400):
            visits.append(asyncio.ensure_future(sender.send(read(number % 20))))
            await asyncio.sleep(1 / 40)
        assert loop.time() == pytest.approx(60, abs=1)
        assert len(server.requests) <= 30
        for visit in visits:
            visit.cancel()
        await asyncio.gather(*visits, return_exceptions=True)


def test_closed_loop_is_not_woken() -> None:
    """A client is used in another loop after one that was closed while requests waited."""
    loop = asyncio.new_event_loop()
    breakers: list[Breaker] = []

    async def wait_in_outage() -> None:
        breaker = Breaker([].append, lambda: NOON, loop)  # type: ignore[arg-type]
        breakers.append(breaker)
        for turn in range(9):
            sent = Sending(read(turn % 2))
            breaker.send(sent)
            breaker.record(sent, ServerFailureError(status=503))
        waiting = Sending(read(1))
        loop.call_soon(loop.stop)
        await breaker.wait(waiting, float("inf"))

    task = loop.create_task(wait_in_outage())
    loop.run_forever()
    loop.close()
    breakers[0].close(has_recovered=False)
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_repr_shows_no_other_request() -> None:
    """A traceback with the values of variables is of one visitor's query."""
    sent = Sending(Request("query", "POST", "/query", b"a body", entity(1)))
    assert repr(sent) == f"<Sending of query {entity(1)}>"
