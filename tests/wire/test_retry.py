"""Whether and when to try again: the decision by itself, and the loop that carries it out."""

import asyncio
import gc
import random
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from attrs import astuple
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
    PermissionDeniedError,
    RateLimitedError,
    RequestTimeoutError,
    SelectionError,
    ServerFailureError,
    ServiceError,
    TransportError,
    TruncatedAnswerError,
    ValidationFailedError,
)
from asyncfin.events import (
    Counts,
    Event,
    RequestAnswered,
    RequestFailed,
    RequestStarted,
    Retrying,
    Stats,
    Waited,
    Waiting,
)
from asyncfin.pacing.bucket import TokenBucket
from asyncfin.wire.protocol import Request, Response, limits_request, read_dataset, usage_request
from asyncfin.wire.retry import Quota, Retry, Timeouts
from asyncfin.wire.sender import Sender
from asyncfin.wire.transport import Transport
from tests.conftest import VirtualTimeLoop
from tests.scripted import (
    Received,
    Scripted,
    answer,
    dropping,
    hanging,
    judged,
    refusal,
    scripted,
    trickling,
)

ENTITY = "O-" + "1" * 32
READ = Request("dataset", "GET", f"/v1/entities/{ENTITY}/dataset", entity_id=ENTITY)
QUERY = Request("query", "POST", f"/v1/entities/{ENTITY}/dataset/query", body=b"{}", entity_id=ENTITY)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


# --- the decision

seconds = st.just(0.0) | st.floats(0.001, 1000)
retries = st.builds(
    Retry,
    attempts=st.integers(1, 10),
    max_elapsed=seconds,
    wait_initial=seconds,
    wait_max=seconds,
    max_retry_after=seconds,
)
PASSING = [
    ConnectionFailedError("x"),
    RequestTimeoutError("x"),
    TruncatedAnswerError("x"),
    *(ServerFailureError(status=status) for status in (500, 502, 503, 504, 506, 520, 522, 524, 529, 599)),
    ServiceError(status=408),
]
LASTING = [
    ValidationFailedError(status=400),
    AuthenticationError(status=401),
    PermissionDeniedError(status=403),
    NotFoundError(status=404),
    DatasetChangedError(status=409, code="dataset_changed"),
    DatasetChangedError(status=503, code="dataset_changed"),
    ServiceError(status=409, code="something_else"),
    ServiceError(status=302),
    ServerFailureError(status=501),
    ServerFailureError(status=505),
    ValidationFailedError(status=408),
    MalformedAnswerError("x"),
    SelectionError("x"),
    ConnectionFailedError("x", retryable=False),
]


@given(retry=retries, attempt=st.integers(1, 500) | st.just(5000), seed=st.integers())
def test_a_wait_of_our_own_is_drawn_from_the_upper_half_of_a_doubling_bound(
    retry: Retry, attempt: int, seed: int
) -> None:
    """However many attempts there were, the bound is never above wait_max."""
    bound = retry.wait_initial
    for _ in range(attempt - 1):
        bound = min(bound * 2, retry.wait_max)
    bound = min(bound, retry.wait_max)
    wait = retry.wait(attempt, None, random.Random(seed))
    assert wait == random.Random(seed).uniform(bound / 2, bound)


@given(retry=retries, seed=st.integers())
def test_waits_lengthen_until_they_are_as_long_as_may_be(retry: Retry, seed: int) -> None:
    """No wait is shorter than the one before (spec 7), as long as their bound doubles."""
    source = random.Random(seed)
    waits = [retry.wait(attempt, None, source) or 0.0 for attempt in range(1, 10)]
    doubling = [
        wait for attempt, wait in enumerate(waits) if retry.wait_initial * 2**attempt <= retry.wait_max
    ]
    assert doubling == sorted(doubling)


def test_waits_of_our_own_fill_their_range() -> None:
    """Waits spread over all of their range, so that many clients do."""
    source = random.Random(7)
    waits = [Retry(wait_initial=1, wait_max=8).wait(9, None, source) or 0 for _ in range(1000)]
    assert all(4 <= wait <= 8 for wait in waits)
    counts = [sum(quarter <= wait < quarter + 1 for wait in waits) for quarter in range(4, 8)]
    assert min(counts) > 200


@given(retry=retries, attempt=st.integers(1, 20), asked=seconds, seed=st.integers())
def test_what_the_service_asks_for_is_only_ever_lengthened(
    retry: Retry, attempt: int, asked: float, seed: int
) -> None:
    """A Retry-After is lengthened by at most wait_initial; above max_retry_after there is no wait."""
    wait = retry.wait(attempt, asked, random.Random(seed))
    if asked > retry.max_retry_after:
        assert wait is None
    else:
        assert wait is not None
        assert asked <= wait <= asked + retry.wait_initial


@pytest.mark.parametrize("error", PASSING, ids=repr)
@given(retry=retries, attempt=st.integers(1, 12), elapsed=seconds, wait=seconds)
def test_what_may_pass_is_tried_again_within_both_bounds(
    error: AsyncfinError, retry: Retry, attempt: int, elapsed: float, wait: float
) -> None:
    """A retryable failure ends the request at the last attempt, or where a wait would pass max_elapsed."""
    expected = attempt >= retry.attempts or elapsed + wait > retry.max_elapsed
    assert retry.gives_up(error, attempt=attempt, elapsed=elapsed, wait=wait) is expected


@given(retry=retries, attempt=st.integers(1, 12), elapsed=seconds, wait=seconds)
def test_the_pause_after_a_429_is_left_out_of_elapsed(
    retry: Retry, attempt: int, elapsed: float, wait: float
) -> None:
    """The pause after a 429 is everybody's, so it does not count for max_elapsed."""
    error = RateLimitedError(status=429)
    expected = attempt >= retry.attempts or elapsed > retry.max_elapsed
    assert retry.gives_up(error, attempt=attempt, elapsed=elapsed, wait=wait) is expected


@pytest.mark.parametrize("error", LASTING, ids=repr)
def test_what_lasts_is_never_tried_again(error: AsyncfinError) -> None:
    """An error that is not retryable ends the request, whatever the bounds allow."""
    assert Retry(attempts=100).gives_up(error, attempt=1, elapsed=0, wait=0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("attempts", value) for value in (0, -1, 1.0, None, True, "5")),
        *(
            (name, value)
            for name in ("max_elapsed", "wait_initial", "wait_max", "max_retry_after")
            for value in (-0.1, float("nan"), float("inf"), None, True, "5")
        ),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    """The error names the setting and the value."""
    with pytest.raises(SelectionError, match=f"{name} .* {value!r}"):
        Retry(**{name: value})


@given(st.lists(st.booleans(), max_size=400))
def test_the_quota_bounds_retries_by_successes(steps: list[bool]) -> None:
    """There are never more retries than the capacity and half of the successes before them."""
    quota, spent, earned = Quota(capacity=10), 0, 0
    for success in steps:
        if success:
            quota.earn()
            earned += 1
        elif quota.spend():
            spent += 1
            assert spent <= 10 + earned * 0.5 + 1e-6
        else:
            assert spent > 10 - 1


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 5))
def test_the_quota_never_holds_more_than_its_capacity(steps: list[bool], capacity: int) -> None:
    """However many requests have succeeded, an outage costs at most `capacity` retries."""
    quota, held = Quota(capacity=capacity), float(capacity)
    for success in steps:
        if success:
            quota.earn()
            held = min(capacity, held + 0.5)
        else:
            assert quota.spend() is (held >= 1)
            held -= held >= 1


# --- the loop


@asynccontextmanager
async def sending(
    *steps: Any,
    judge: Callable[[Received], bytes] | None = None,
    bucket: TokenBucket | None = None,
    retry: Retry | None = None,
    token: Any = "some-token",
    **options: Any,
) -> AsyncIterator[tuple[Scripted, Sender, list[Event]]]:
    """A sender to a scripted server, and the events it announces."""
    events: list[Event] = []
    async with judged(judge) if judge else scripted(*steps) as server:
        transport = Transport(server.base_url, **{"clock": lambda: NOON, **options})
        sender = Sender(
            transport,
            token,
            bucket=bucket or TokenBucket(rate=1e6, burst=1e3, clock=lambda: NOON),
            retry=retry or Retry(),
            observers=[events.append],
            source=random.Random(1),
        )
        try:
            yield server, sender, events
        finally:
            await transport.aclose()


def of_kind(events: list[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


FAILING = {
    "500": refusal(500),
    "502": refusal(502),
    "503": refusal(503),
    "504": refusal(504),
    "408": refusal(408),
    "408 without a body": answer(408, b""),
    "522": answer(522, b"error code: 522"),
    "529": refusal(529),
    "429": refusal(429, retry_after="3"),
    "429 without a time": refusal(429),
    "dropped": dropping(),
    "cut": dropping(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345"),
    "hanging": hanging(),
    "page of a proxy": answer(502, b"<html>bad gateway</html>"),
}


@pytest.mark.virtual
@pytest.mark.parametrize("request_", [READ, QUERY], ids=["GET", "POST"])
@pytest.mark.parametrize("step", FAILING.values(), ids=FAILING)
async def test_what_passes_is_sent_again_until_it_is_answered(step: Any, request_: Request) -> None:
    """After three failures of a kind comes the answer, for GET and for the query's POST."""
    async with sending(step, step, step, answer(body=b"at last")) as (server, sender, events):
        got = await sender.send(request_)
        counts = sender.stats()
    assert got.body == b"at last"
    assert len(server.requests) == 4
    assert (counts.requests, counts.retries) == (4, 3)
    assert [event.attempt for event in of_kind(events, Retrying)] == [1, 2, 3]


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (refusal(500), ServerFailureError),
        (refusal(429), RateLimitedError),
        (dropping(), ConnectionFailedError),
        (hanging(), RequestTimeoutError),
        (dropping(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345"), TruncatedAnswerError),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
async def test_what_does_not_pass_is_raised_after_the_last_attempt(
    step: Any, kind: type[ServiceError | TransportError]
) -> None:
    """The last failure is raised as itself, with operation, time and number of attempts."""
    async with sending(step, retry=Retry(attempts=3)) as (server, sender, _):
        with pytest.raises(kind) as caught:
            await sender.send(READ)
    error = caught.value
    assert len(server.requests) == 3
    assert (error.operation, error.at, error.attempts) == ("dataset", NOON, 3)
    assert "attempts: 3" in error.report()
    assert error.__context__ is None


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (refusal(400, "validation_failed"), ValidationFailedError),
        (refusal(401), AuthenticationError),
        (refusal(403), PermissionDeniedError),
        (refusal(404), NotFoundError),
        (refusal(409, "dataset_changed"), DatasetChangedError),
        (refusal(409, "locked"), ServiceError),
        (refusal(302, location="https://elsewhere.example"), ServiceError),
        (refusal(501), ServerFailureError),
        (refusal(505), ServerFailureError),
        (answer(content_encoding="br"), MalformedAnswerError),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
async def test_what_would_fail_again_is_raised_at_once(raw: bytes, kind: type[AsyncfinError]) -> None:
    """An error that would come again is raised after one attempt, without a wait."""
    async with sending(raw) as (server, sender, events):
        with pytest.raises(kind) as caught:
            await sender.send(READ)
    assert type(caught.value) is kind
    assert len(server.requests) == 1
    assert of_kind(events, Retrying) == []


@pytest.mark.virtual
async def test_a_redirect_is_an_error_that_says_so() -> None:
    """A redirect comes without a text, so the error says that redirects are not followed."""
    async with sending(answer(307, b"", location="https://elsewhere.example")) as (_, sender, _events):
        with pytest.raises(ServiceError, match=r"307 in dataset of O-1+: redirects are not followed"):
            await sender.send(READ)


@pytest.mark.virtual
async def test_a_retry_after_counts_for_its_own_attempt_only() -> None:
    """The drop after a 503 with Retry-After is waited for as any other drop."""
    steps = [refusal(503, retry_after="50"), dropping(), answer()]
    async with sending(*steps) as (server, sender, _):
        await sender.send(READ)
    first, second, third = (each.at for each in server.requests)
    assert second - first >= 50
    assert third - second <= 2


@pytest.mark.virtual
@pytest.mark.parametrize("status", [200, 202, 206, 299])
async def test_every_2xx_is_an_answer(status: int) -> None:
    """Every 2xx is returned; what it holds is judged elsewhere."""
    async with sending(answer(status)) as (_, sender, _events):
        assert (await sender.send(READ)).status == status


@pytest.mark.virtual
async def test_each_attempt_has_its_own_timeouts_and_the_waits_are_in_none() -> None:
    """Four attempts time out one by one, though their sum is far above the total timeout."""
    loop = asyncio.get_running_loop()
    async with sending(hanging(), hanging(), hanging(), answer(), timeouts=Timeouts(read=9, total=10)) as (
        server,
        sender,
        _,
    ):
        await sender.send(READ)
        times = [each.at for each in server.requests]
    assert len(times) == 4
    assert all(later - earlier >= 9 for earlier, later in pairwise(times))
    assert loop.time() > 27


@pytest.mark.virtual
async def test_the_elapsed_time_bounds_the_attempts() -> None:
    """Attempts of 30 seconds each: within 100 seconds there is room for three of them."""
    retry = Retry(attempts=50, max_elapsed=100)
    async with sending(hanging(), retry=retry) as (server, sender, _):
        with pytest.raises(RequestTimeoutError):
            await sender.send(READ)
    assert len(server.requests) in (3, 4)


@pytest.mark.virtual
async def test_waits_count_for_the_elapsed_time() -> None:
    """Attempts that take no time, 30 seconds apart: the fifth would come after 100 seconds."""
    retry = Retry(attempts=50, max_elapsed=100)
    async with sending(refusal(503, retry_after="30"), retry=retry) as (server, sender, _):
        with pytest.raises(ServerFailureError):
            await sender.send(READ)
    assert len(server.requests) == 4


@pytest.mark.virtual
async def test_a_response_is_dated_by_its_end() -> None:
    """The head comes at once, the last byte of the body ten seconds later."""
    raw, loop = answer(body=b"x" * 10), asyncio.get_running_loop()

    async def slow(writer: asyncio.StreamWriter) -> bool:
        writer.write(raw[:-10])
        return await trickling(raw[-10:], 1)(writer)

    async with scripted(slow) as server:
        transport = Transport(server.base_url, clock=lambda: NOON + timedelta(seconds=loop.time()))
        sender = Sender(transport, "some-token", bucket=TokenBucket())
        got = await sender.send(READ)
        await transport.aclose()
    assert (got.at - NOON).total_seconds() == pytest.approx(10, abs=0.1)


@pytest.mark.virtual
@pytest.mark.parametrize(
    "headers",
    [
        {"retry_after": "7"},
        {"date": "Sun, 01 Mar 2026 00:00:00 GMT", "retry_after": "Sun, 01 Mar 2026 00:00:07 GMT"},
    ],
    ids=["seconds", "date"],
)
@pytest.mark.parametrize("status", [429, 500, 503])
async def test_the_service_s_own_wait_is_kept_to(status: int, headers: dict[str, str]) -> None:
    """Seconds or a date measured against the answer's own Date; not a moment less, a little more."""
    async with sending(refusal(status, **headers), answer()) as (server, sender, _):
        await sender.send(READ)
    first, second = server.requests
    assert 7 <= second.at - first.at <= 7.6


@pytest.mark.virtual
async def test_a_429_holds_back_every_request_of_the_bucket() -> None:
    """Another client on the same bucket sends nothing until the pause is over."""
    bucket = TokenBucket(clock=lambda: NOON)
    async with (
        sending(refusal(429, retry_after="20"), answer(), bucket=bucket) as (server, sender, _),
        sending(answer(), bucket=bucket) as (other, neighbour, _events),
    ):
        first = asyncio.ensure_future(sender.send(READ))
        await server.arrived(1)
        await asyncio.sleep(0.01)
        assert bucket.stats().refused == 1
        await neighbour.send(READ)
        await first
    assert other.requests[0].at >= server.requests[0].at + 20


@pytest.mark.virtual
async def test_a_429_spends_an_attempt_but_no_time_and_no_quota() -> None:
    """Pauses of 50 seconds each, though max_elapsed is 60; and more of them than the quota holds."""
    retry = Retry(attempts=150, max_elapsed=60)
    steps = [refusal(429, retry_after="50")] * 149
    async with sending(*steps, answer(), retry=retry) as (server, sender, _):
        await sender.send(READ)
        counts = sender.stats()
    assert len(server.requests) == 150
    assert counts.refused == 149
    assert counts.waits >= 149 * 50


@pytest.mark.virtual
async def test_a_wait_too_long_is_the_end_for_all_who_wait() -> None:
    """AllowanceExhaustedError says when to come back; no time passes, nothing more is sent."""
    loop = asyncio.get_running_loop()
    raw = refusal(429, "daily_limit", retry_after="7200")
    async with sending(raw, max_in_flight=2) as (server, sender, _):
        ends = await asyncio.gather(*(sender.send(READ) for _ in range(20)), return_exceptions=True)
    assert loop.time() < 1
    assert len(server.requests) <= 2
    for end in ends:
        assert isinstance(end, AllowanceExhaustedError)
        assert end.resume_at == NOON + timedelta(hours=2)
        assert end.operation == "dataset"
    first = next(end for end in ends if isinstance(end, AllowanceExhaustedError) and end.attempts)
    assert (first.code, first.request_id, first.retry_after) == ("daily_limit", "r-1", 7200)


@pytest.mark.virtual
async def test_a_used_up_allowance_ends_the_waits_of_those_who_back_off() -> None:
    """A used-up allowance ends the waits of those who back off, not only at their end."""
    loop = asyncio.get_running_loop()
    steps = [refusal(503, retry_after="50"), refusal(429, retry_after="7200")]
    async with sending(*steps) as (server, sender, _):
        resting = asyncio.ensure_future(sender.send(READ))
        await server.arrived(1)
        await asyncio.sleep(1)
        with pytest.raises(AllowanceExhaustedError):
            await sender.send(READ)
        with pytest.raises(AllowanceExhaustedError) as caught:
            await resting
    assert loop.time() < 2
    assert isinstance(caught.value.__cause__, ServerFailureError)


@pytest.mark.virtual
async def test_usage_and_limits_are_sent_though_the_allowance_is_used_up() -> None:
    """The calls that explain a used-up allowance spend none of it (spec 8)."""
    bucket = TokenBucket(daily_budget=1, clock=lambda: NOON)
    steps = [refusal(429, retry_after="7200"), answer()]
    async with sending(*steps, bucket=bucket) as (server, sender, _):
        with pytest.raises(AllowanceExhaustedError):
            await sender.send(READ)
        await sender.send(limits_request())
        await sender.send(usage_request(NOON.date(), NOON.date()))
        assert bucket.stats().spent_today == 1
        with pytest.raises(AllowanceExhaustedError):
            await sender.send(READ)
    assert len(server.requests) == 3


@pytest.mark.virtual
async def test_a_long_429_to_usage_is_raised_and_uses_up_nothing() -> None:
    """A long 429 to usage or limits is raised, and other requests go on."""
    async with sending(refusal(429, retry_after="7200"), answer()) as (server, sender, _):
        with pytest.raises(AllowanceExhaustedError) as caught:
            await sender.send(limits_request())
        assert caught.value.resume_at == NOON + timedelta(hours=2)
        await sender.send(READ)
    assert len(server.requests) == 2


@pytest.mark.virtual
async def test_a_wait_beyond_the_calendar_is_no_crash() -> None:
    """A Retry-After of thirty thousand years is as good as never."""
    async with sending(refusal(429, retry_after="999999999999")) as (_, sender, _events):
        with pytest.raises(AllowanceExhaustedError) as caught:
            await sender.send(READ)
    assert caught.value.resume_at.year == 9999


@pytest.mark.virtual
async def test_a_5xx_that_asks_for_too_long_a_wait_is_raised_at_once() -> None:
    """A 5xx that asks for more than max_retry_after is raised at once."""
    async with sending(refusal(503, retry_after="3600")) as (server, sender, _):
        with pytest.raises(ServerFailureError):
            await sender.send(READ)
    assert len(server.requests) == 1


@pytest.mark.virtual
async def test_an_outage_does_not_multiply_traffic() -> None:
    """A thousand requests to a service that is down: the quota's two hundred retries, not four thousand."""
    async with sending(refusal(503)) as (server, sender, _):
        ends = await asyncio.gather(*(sender.send(READ) for _ in range(1000)), return_exceptions=True)
        assert len(server.requests) == 1200
    assert all(isinstance(end, ServerFailureError) for end in ends)
    spent = [end for end in ends if isinstance(end, ServerFailureError) and hasattr(end, "__notes__")]
    assert len(spent) >= 800


@pytest.mark.virtual
async def test_a_short_fault_of_many_requests_is_outlived() -> None:
    """One in ten attempts fails, thousands of times: every request is answered."""
    steps = [answer()] * 9 + [refusal(503)]
    async with sending(*steps * 300, answer()) as (_, sender, _events):
        got = await asyncio.gather(*(sender.send(READ) for _ in range(2000)))
    assert all(isinstance(each, Response) for each in got)


@pytest.mark.virtual
async def test_a_cancelled_request_leaves_nothing_behind_wherever_it_stood() -> None:
    """A cancelled request frees slots and bucket, from an attempt, the bucket or a wait between attempts."""
    bucket = TokenBucket(rate=1, clock=lambda: NOON)
    before = asyncio.all_tasks()
    steps = [hanging(), refusal(503), answer()]
    retry = Retry(wait_initial=1000, wait_max=1000, max_elapsed=2000)
    async with sending(*steps, bucket=bucket, retry=retry, max_in_flight=1) as (_, sender, events):
        for reached in (RequestStarted, Retrying):
            leaving = asyncio.ensure_future(sender.send(READ))
            queued = asyncio.ensure_future(sender.send(READ))
            await asyncio.sleep(5)
            assert of_kind(events, reached)
            for task in (leaving, queued):
                task.cancel()
            await asyncio.gather(leaving, queued, return_exceptions=True)
        await sender.send(READ)
        assert of_kind(events, RequestFailed)[0].failure == "CancelledError"
        assert bucket.stats().waiting == {"interactive": 0, "bulk": 0}
    assert asyncio.all_tasks() == before


@pytest.mark.virtual
async def test_every_attempt_s_beginning_has_one_end_and_the_figures_add_up() -> None:
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
    ended = [event.serial for event in events if isinstance(event, RequestAnswered | RequestFailed)]
    assert sorted(started) == sorted(ended)
    assert len(set(started)) == len(started) == len(server.requests) == stats.requests
    both = stats.by_operation["dataset"] + stats.by_operation["query"]
    assert stats == Stats(*astuple(both), by_operation=stats.by_operation)
    assert stats.refused == sum(event.status == 429 for event in of_kind(events, RequestAnswered))
    assert stats.received == sum(event.received for event in of_kind(events, RequestAnswered))
    assert stats.retries == len(of_kind(events, Retrying))


def test_the_counts_can_be_told_in_a_line() -> None:
    """Stats print as one line: requests by operation, retries, and bytes received."""
    dataset, query = Counts(requests=1, received=1000), Counts(requests=2, retries=1, received=294_600)
    stats = Stats(*astuple(dataset + query), by_operation={"dataset": dataset, "query": query})
    assert str(stats) == "3 requests (1 dataset, 2 query), 1 retry, 296 kB"
    assert str(Stats(by_operation={})) == "0 requests, 0 retries, 0 kB"


@pytest.mark.virtual
async def test_an_observer_that_raises_disturbs_no_request(caplog: pytest.LogCaptureFixture) -> None:
    """An observer's error is logged; the request goes on, and the next observer is called."""
    received: list[Event] = []

    def broken(event: Event) -> None:
        raise ValueError("an observer's mistake")

    async with scripted(answer()) as server:
        transport = Transport(server.base_url)
        sender = Sender(transport, "t", bucket=TokenBucket(), observers=[broken, received.append])
        assert (await sender.send(READ)).status == 200
        await transport.aclose()
    assert len(received) == 2
    assert "an observer failed on RequestStarted" in caplog.text
    assert "an observer's mistake" in caplog.text


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
        "RequestAnswered",
        "Retrying",
        "Waited",
        "RequestStarted",
        "RequestAnswered",
    ]


@pytest.mark.virtual
async def test_a_long_pause_is_heard_of_with_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """After 1, 2, 4, ... seconds each waiting request says that it waits for the pause, and until when."""
    loop, bucket = asyncio.get_running_loop(), TokenBucket(clock=lambda: NOON)
    caplog.set_level("INFO", logger="asyncfin")

    def clock() -> datetime:
        return NOON + timedelta(seconds=loop.time())

    async with sending(answer(), bucket=bucket, clock=clock) as (_, sender, events):
        began = loop.time()
        bucket.pause_until(began + 20)
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
async def test_a_short_wait_is_not_heard_of_while_it_lasts() -> None:
    """Neither a short wait is announced, nor one whose request has been cancelled."""
    async with sending(refusal(503), answer(), hanging()) as (_, sender, events):
        await sender.send(READ)
        leaving = asyncio.ensure_future(sender.send(READ))
        await asyncio.sleep(0.5)
        leaving.cancel()
        await asyncio.sleep(100)
    assert of_kind(events, Waiting) == []


class Listening:
    """An observer that equals every other of its kind."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Listening)

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.virtual
async def test_of_two_equal_observers_the_one_whose_block_ends_is_removed() -> None:
    """Observers are distinguished by identity; one that is given twice is called twice."""
    outer, inner = Listening(), Listening()
    async with sending(answer()) as (_, sender, _events):
        with sender.announce.also(outer):
            with sender.announce.also(inner), sender.announce.also(outer):
                await sender.send(READ)
            await sender.send(READ)
        await sender.send(READ)
    assert (len(outer.events), len(inner.events)) == (2 * 2 + 2, 2)


@pytest.mark.virtual
async def test_the_observer_whose_block_ends_first_is_removed_wherever_it_stands() -> None:
    """Blocks of two tasks can overlap: the first to end removes its own observer, not the last equal one."""
    first, second = Listening(), Listening()
    async with sending(answer()) as (_, sender, _events):
        one, two = sender.announce.also(first), sender.announce.also(second)
        one.__enter__()
        two.__enter__()
        one.__exit__(None, None, None)
        await sender.send(READ)
        two.__exit__(None, None, None)
        await sender.send(READ)
    assert (len(first.events), len(second.events)) == (0, 2)


class Awaited:
    async def __call__(self, event: Event) -> None:
        """Never awaited, were it taken."""


def test_what_is_no_observer_or_no_retry_is_refused() -> None:
    """What is no observer or no Retry is refused by name at construction."""
    transport = Transport("https://example.com")
    with pytest.raises(SelectionError, match="observers"):
        Sender(transport, "t", bucket=TokenBucket(), observers=[5])  # type: ignore[list-item]
    with pytest.raises(SelectionError, match="observers must be a function that is not async"):
        Sender(transport, "t", bucket=TokenBucket(), observers=[Awaited()])  # type: ignore[list-item]
    with pytest.raises(SelectionError, match="retry"):
        Sender(transport, "t", bucket=TokenBucket(), retry=5)  # type: ignore[arg-type]


@pytest.mark.virtual
async def test_an_exhausted_allowance_is_told_at_once_to_those_who_wait_by_themselves() -> None:
    """The first waits out its 503 when the second learns of it; neither waits any longer."""
    loop = asyncio.get_running_loop()
    steps = [refusal(503, retry_after="30"), refusal(429, retry_after="3600")]
    async with sending(*steps) as (server, sender, _):
        first = asyncio.ensure_future(sender.send(READ))
        await server.arrived(1)
        await asyncio.sleep(1)
        began = loop.time()
        ends = await asyncio.gather(first, sender.send(READ), return_exceptions=True)
        assert loop.time() - began < 0.01
    assert [type(end) for end in ends] == [AllowanceExhaustedError] * 2
    assert [getattr(end, "attempts", 0) for end in ends] == [1, 1]
    assert len(server.requests) == 2


@pytest.mark.virtual
async def test_waiting_for_a_slot_is_in_no_timeout() -> None:
    """With one connection, ten answers of 9 seconds each come within a total timeout of 10."""
    loop, raw = asyncio.get_running_loop(), answer()
    timeouts = Timeouts(connect=1, read=10, total=10)
    async with sending(trickling(raw, 9 / len(raw)), timeouts=timeouts, max_in_flight=1) as (
        server,
        sender,
        _,
    ):
        got = await asyncio.gather(*(sender.send(READ) for _ in range(10)))
    assert [each.status for each in got] == [200] * 10
    assert [each.attempts for each in got] == [1] * 10
    assert loop.time() == pytest.approx(90, abs=1)
    assert server.opened == 1


# --- the token and the bucket


def renewed_after(seconds: float, renewals: list[str]) -> Any:
    """Return a token callable that takes `seconds` from its second call on."""

    async def ask() -> str:
        if renewals:
            await asyncio.sleep(seconds)
        renewals.append(f"token-{len(renewals)}")
        return renewals[-1]

    return ask


def refusing_the_first(received: Received) -> bytes:
    return refusal(401) if received.token == "token-0" else answer()


@pytest.mark.virtual
async def test_what_was_granted_while_a_token_is_renewed_is_not_sent_in_one_rush() -> None:
    """While a token is renewed nothing is granted ahead: the pace holds for what is sent."""
    bucket = TokenBucket(rate=4, clock=lambda: NOON)
    renewals: list[str] = []
    async with sending(judge=refusing_the_first, bucket=bucket, token=renewed_after(2.5, renewals)) as (
        server,
        sender,
        _,
    ):
        await asyncio.gather(*(sender.send(READ) for _ in range(8)))
    sent = [received.at for received in server.requests]
    assert len(renewals) == 2
    assert all(later - earlier > 0.24 for earlier, later in pairwise(sent))
    assert bucket.stats().granted == sender.stats().requests == len(sent)


@pytest.mark.virtual
async def test_nothing_is_sent_in_a_pause_that_began_while_a_token_was_renewed() -> None:
    """A pause that begins while a token is renewed holds back those who were granted before it too."""
    loop, bucket = asyncio.get_running_loop(), TokenBucket(rate=4, clock=lambda: NOON)
    async with sending(judge=refusing_the_first, bucket=bucket, token=renewed_after(2, [])) as (
        server,
        sender,
        _,
    ):
        waiting = [asyncio.ensure_future(sender.send(READ)) for _ in range(4)]
        await server.arrived(1)
        await asyncio.sleep(1)
        paused_until = loop.time() + 5
        bucket.pause_until(paused_until)
        await asyncio.gather(*waiting)
    assert all(received.at >= paused_until - 0.001 for received in server.requests[1:])


@pytest.mark.virtual
async def test_however_many_wait_for_a_token_it_is_asked_for_once() -> None:
    """Twenty requests share one call for a token, also those without a connection, when the first leaves."""
    asked = 0

    async def ask() -> str:
        nonlocal asked
        asked += 1
        await asyncio.sleep(1)
        raise OSError

    async with sending(answer(), token=ask, max_in_flight=2) as (server, sender, _):
        waiting = [asyncio.ensure_future(sender.send(READ)) for _ in range(20)]
        await asyncio.sleep(0.5)
        waiting[0].cancel()
        ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert (asked, len(server.requests)) == (1, 0)
    assert [type(end) for end in ends[1:]] == [AuthenticationError] * 19


@pytest.mark.virtual
async def test_who_leaves_while_a_token_is_renewed_has_spent_nothing() -> None:
    """A request cancelled while a token is renewed has spent nothing of the bucket or the day."""
    bucket = TokenBucket(rate=4, burst=4, daily_budget=100, clock=lambda: NOON)
    async with sending(judge=refusing_the_first, bucket=bucket, token=renewed_after(50, [])) as (
        server,
        sender,
        _,
    ):
        waiting = [asyncio.ensure_future(sender.send(READ)) for _ in range(8)]
        await asyncio.sleep(10)
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    stats = bucket.stats()
    assert stats.granted == stats.spent_today == sender.stats().requests == len(server.requests)


@pytest.mark.virtual
async def test_a_usage_request_s_unsent_grants_are_not_given_back_to_the_day() -> None:
    """A grant whose token was refused before it was sent counts for nothing, so the day's spending stays."""
    bucket = TokenBucket(rate=4, burst=1, daily_budget=100, clock=lambda: NOON)
    for _ in range(3):
        await bucket.acquire()
    async with sending(judge=refusing_the_first, bucket=bucket, token=renewed_after(2.5, [])) as (
        _,
        sender,
        _,
    ):
        await asyncio.gather(*(sender.send(limits_request()) for _ in range(8)))
    assert bucket.stats().spent_today == 3


async def test_what_never_reached_the_service_is_not_of_the_day_s_spending() -> None:
    """Five attempts at a closed port spend nothing of the day, and their places in the pace."""
    bucket = TokenBucket(rate=1e6, burst=1e3, daily_budget=3, clock=lambda: NOON)
    transport = Transport("http://127.0.0.1:1")
    sender = Sender(transport, "some-token", bucket=bucket, retry=Retry(wait_initial=0))
    with pytest.raises(ConnectionFailedError, match="no connection to") as caught:
        await sender.send(READ)
    await transport.aclose()
    assert (caught.value.attempts, caught.value.sent) == (5, False)
    assert (bucket.stats().granted, bucket.stats().spent_today) == (5, 0)


async def test_limits_that_never_reached_the_service_take_nothing_off_the_day_s_spending() -> None:
    """Limits are not counted for the day, so a failed connection takes nothing back."""
    bucket = TokenBucket(rate=1e6, burst=1e3, daily_budget=3, clock=lambda: NOON)
    async with sending(answer(), bucket=bucket) as (_, sender, _events):
        await sender.send(READ)
    transport = Transport("http://127.0.0.1:1")
    with pytest.raises(ConnectionFailedError):
        await Sender(transport, "t", bucket=bucket, retry=Retry(attempts=1)).send(limits_request())
    await transport.aclose()
    assert bucket.stats().spent_today == 1


@pytest.mark.virtual
async def test_what_may_have_reached_the_service_is_of_the_day_s_spending() -> None:
    """An attempt whose connection was dropped may have reached the service, and is spent."""
    bucket = TokenBucket(rate=1e6, burst=1e3, daily_budget=100, clock=lambda: NOON)
    async with sending(dropping(), bucket=bucket) as (server, sender, _):
        with pytest.raises(ConnectionFailedError):
            await sender.send(READ)
    assert bucket.stats().spent_today == len(server.requests) == 5


@pytest.mark.virtual
async def test_a_bucket_s_own_refusal_after_a_failure_says_so_and_names_the_failure() -> None:
    """The bucket's own refusal is not answered by the service, and names the failure before it."""
    bucket = TokenBucket(rate=1e6, daily_budget=1, clock=lambda: NOON)
    async with sending(refusal(503), bucket=bucket) as (_, sender, _events):
        with pytest.raises(
            AllowanceExhaustedError, match=r"^the bucket's daily budget of 1 is used up"
        ) as caught:
            await sender.send(READ)
    error = caught.value
    failed = error.__cause__
    assert isinstance(failed, ServerFailureError)
    assert (error.answered, error.attempts, failed.operation, failed.attempts) == (False, 1, "dataset", 1)
    assert "message: the bucket's daily budget" in error.report()
    assert "status" not in error.report()


@pytest.mark.virtual
@pytest.mark.parametrize("headers", [{"content_encoding": "br"}, {"content_encoding": "gzip"}])
@pytest.mark.parametrize("size", [10, 5000])
async def test_an_error_whose_body_cannot_be_read_is_gone_by_its_status(
    headers: dict[str, str], size: int
) -> None:
    """A 429 pauses and a 503 is tried again, though their bodies can't be read."""
    steps = [
        answer(429, b"x" * size, retry_after="30", **headers),
        answer(503, b"x" * size, **headers),
        answer(),
    ]
    async with sending(*steps, max_body_bytes=1000) as (server, sender, events):
        assert (await sender.send(READ)).attempts == 3
    assert server.requests[1].at - server.requests[0].at >= 30
    assert [each.status for each in of_kind(events, RequestAnswered)] == [429, 503, 200]


@pytest.mark.virtual
@pytest.mark.parametrize("status", [429, 500, 503, 404, 409])
@pytest.mark.parametrize("way", [dropping, hanging, partial(trickling, seconds=1)])
async def test_an_error_that_breaks_off_within_its_body_is_asked_for_again(way: Any, status: int) -> None:
    """A 429 pauses nevertheless; of other errors the code decides, which was not received (spec 7)."""
    head = f"HTTP/1.1 {status} X\r\nRetry-After: 30\r\nContent-Length: 100\r\n\r\n12345".encode()
    timeouts = Timeouts(read=5, total=len(head) + 10)
    async with sending(way(head), answer(), timeouts=timeouts) as (server, sender, events):
        await sender.send(READ)
    failed = [each.failure for each in of_kind(events, Retrying)]
    if status in (429, 500, 503):
        assert failed == ["RateLimitedError" if status == 429 else "ServerFailureError"]
        assert server.requests[1].at - server.requests[0].at >= 30
    else:
        assert failed[0] in ("TruncatedAnswerError", "RequestTimeoutError")


UNTIL_CLOSED = b"HTTP/1.1 200 OK\r\nX-Y: z\r\n\r\n"


@pytest.mark.virtual
@pytest.mark.parametrize("body", [b"", b"{", b'{"a": 1', b'{"a": "x', b"\xef\xbb\xbf[1, 2", b'[{"a": tru'])
async def test_an_answer_without_a_length_that_ends_within_its_json_is_asked_for_again(body: bytes) -> None:
    """A response without a length ends with its connection, so only its JSON shows that it was cut."""
    steps = [dropping(UNTIL_CLOSED + body), dropping(UNTIL_CLOSED + b'{"a": 1}')]
    async with sending(*steps) as (_, sender, events):
        got = await sender.send(READ)
    assert (got.body, got.attempts) == (b'{"a": 1}', 2)
    assert [each.failure for each in of_kind(events, RequestFailed)] == ["TruncatedAnswerError"]


@pytest.mark.virtual
async def test_a_204_is_whole_without_a_body_and_is_not_asked_for_again() -> None:
    """A 204 has neither a length nor JSON that could be cut (RFC 9110, section 15.3.5)."""
    async with sending(dropping(b"HTTP/1.1 204 No Content\r\n\r\n")) as (_, sender, _):
        got = await sender.send(READ)
    assert (got.status, got.body, got.attempts) == (204, b"", 1)


@pytest.mark.virtual
@pytest.mark.parametrize(
    "raw",
    [
        UNTIL_CLOSED + b"<html>",
        UNTIL_CLOSED + b'{"a": 1}x',
        UNTIL_CLOSED + b'{"a": "\xff"}',
        UNTIL_CLOSED + b"[" * 100_000,
        UNTIL_CLOSED.replace(b"200", b"404") + b"{",
        answer(body=b"{"),
    ],
    ids=["no JSON", "more than JSON", "no UTF-8", "too deep", "an error", "with a length"],
)
async def test_an_answer_that_is_whole_and_wrong_is_not_asked_for_again(raw: bytes) -> None:
    """A response that is whole is not asked for again, whatever is wrong with it."""
    async with sending(dropping(raw)) as (server, sender, _):
        with suppress(NotFoundError):
            await sender.send(READ)
    assert len(server.requests) == 1


@pytest.mark.virtual
async def test_an_answer_that_breaks_the_spec_tells_how_often_it_was_asked_for() -> None:
    """The error of a caller that reads a response says how often it was requested."""
    async with sending(answer(503), answer(body=b"[]")) as (_, sender, _events):
        got = await sender.send(READ)
    with pytest.raises(MalformedAnswerError) as caught:
        read_dataset(READ, got)
    assert caught.value.attempts == 2


async def test_a_request_id_in_a_header_is_told_where_the_body_names_none() -> None:
    """A request id comes from a header where the body names none."""
    steps = [answer(502, b"<html>", x_request_id="req-77"), refusal(404, x_request_id="req-78")]
    async with sending(*steps, retry=Retry(attempts=1)) as (_, sender, _events):
        with pytest.raises(ServerFailureError, match="req-77") as first:
            await sender.send(READ)
        with pytest.raises(NotFoundError) as second:
            await sender.send(READ)
    assert "request id: req-77" in first.value.report()
    assert second.value.request_id == "r-1"


class Unreachable(TokenBucket):
    """A bucket that grants, and to which no failure can be reported."""

    async def refused(self, *, sent_at: float, retry_after: float) -> None:
        raise BucketUnavailableError("the bucket's server is gone")

    async def unspend(self, *, sent_at: float) -> None:
        raise BucketUnavailableError("the bucket's server is gone")


async def test_the_error_of_a_bucket_that_is_out_of_reach_says_of_which_request_it_is() -> None:
    """The error of a bucket that can't record a 429 names the request and the attempt."""
    async with sending(refusal(429, retry_after="1"), bucket=Unreachable()) as (_, sender, _events):
        with pytest.raises(BucketUnavailableError) as caught:
            await sender.send(READ)
    error = caught.value
    assert (error.operation, error.entity_id, error.attempts, error.at) == ("dataset", ENTITY, 1, NOON)
    assert isinstance(error.__cause__, RateLimitedError)


async def test_a_bucket_that_is_out_of_reach_does_not_hide_that_the_service_is_too() -> None:
    """The cause of the bucket's error is the failed connection that it could not record."""
    transport = Transport("http://127.0.0.1:1")
    with pytest.raises(BucketUnavailableError) as caught:
        await Sender(transport, "some-token", bucket=Unreachable()).send(READ)
    await transport.aclose()
    cause = caught.value.__cause__
    assert isinstance(cause, ConnectionFailedError)
    assert (caught.value.attempts, cause.attempts, cause.sent) == (1, 1, False)


# --- closing


async def turned_away(transport: Transport, waiting: list[asyncio.Task[Response]]) -> list[str]:
    """Close, and return the errors of those who waited, which come at once and without context."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await transport.aclose()
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert loop.time() - began < 0.01
    closed = [end for end in ends if isinstance(end, RuntimeError)]
    assert all(end.__context__ is None for end in closed)
    return [str(end) for end in closed]


@pytest.mark.virtual
async def test_closing_turns_away_who_waits_for_the_bucket_without_a_grant() -> None:
    """Of ten requests one was granted, three waited for a grant, the rest for a slot; others go on."""
    bucket = TokenBucket(rate=0.1, clock=lambda: NOON)
    async with (
        sending(answer(), bucket=bucket, max_in_flight=3) as (server, sender, _),
        sending(answer(), bucket=bucket) as (_other, neighbour, _events),
    ):
        waiting = [asyncio.ensure_future(sender.send(READ)) for _ in range(10)]
        await asyncio.sleep(1)
        assert await turned_away(sender._transport, waiting) == ["the client is closed"] * 9
        assert sum(bucket.stats().waiting.values()) == 0
        await neighbour.send(READ)
        assert bucket.stats().granted == 2
        assert asyncio.get_running_loop().time() == pytest.approx(10, abs=0.1)
    assert len(server.requests) == 1


@pytest.mark.virtual
@pytest.mark.parametrize("step", [refusal(503, retry_after="50"), refusal(429, retry_after="50"), hanging()])
async def test_closing_turns_away_who_waits_to_try_again_and_who_is_under_way(step: Any) -> None:
    """Closing ends requests that wait for a retry, for a pause, and for a response."""
    before = asyncio.all_tasks()
    async with sending(step, retry=Retry(attempts=3)) as (server, sender, _):
        waiting = [asyncio.ensure_future(sender.send(READ)) for _ in range(4)]
        await server.arrived(4)
        await asyncio.sleep(1)
        assert await turned_away(sender._transport, waiting) == ["the client is closed"] * 4
    assert len(server.requests) == 4
    assert asyncio.all_tasks() == before


@pytest.mark.virtual
async def test_closing_turns_away_who_waits_for_a_slot() -> None:
    """With one connection in use, two more requests wait for it; they send nothing."""
    async with sending(hanging(), max_in_flight=1) as (server, sender, _):
        waiting = [asyncio.ensure_future(sender.send(READ)) for _ in range(3)]
        await server.arrived(1)
        assert await turned_away(sender._transport, waiting) == ["the client is closed"] * 3
    assert len(server.requests) == 1


@pytest.mark.virtual
async def test_closing_turns_away_who_waits_for_a_token_and_ends_the_asking() -> None:
    """Closing ends the call for a token and all who wait for it; no task is left."""
    before = asyncio.all_tasks()

    async def token() -> str:
        await asyncio.sleep(100)
        return "late"

    transport = Transport("http://127.0.0.1:1")
    sender = Sender(transport, token, bucket=TokenBucket())
    waiting = [asyncio.ensure_future(sender.send(READ)) for _ in range(4)]
    await asyncio.sleep(1)
    assert await turned_away(transport, waiting) == ["the client is closed"] * 4
    assert asyncio.all_tasks() == before


# --- the next loop


def test_a_client_that_had_to_wait_in_one_loop_waits_in_the_next() -> None:
    """Its slots and its waits before a retry belong to one loop, and are made again in another."""
    transport = Transport("http://127.0.0.1:1", max_in_flight=1)
    sender = Sender(transport, "t", bucket=TokenBucket(rate=1e6, burst=9), retry=Retry(wait_initial=1))

    async def twice() -> list[int]:
        async with scripted(refusal(503), answer()) as server:
            transport.base_url = server.base_url
            return [each.status for each in await asyncio.gather(sender.send(READ), sender.send(READ))]

    for _ in range(2):
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            assert runner.run(twice()) == [200, 200]


async def test_an_answered_request_is_freed_without_the_garbage_collector() -> None:
    """Nothing that is made for a request refers to itself, so bodies do not wait for a collection."""
    async with sending(answer()) as (_, sender, _events):
        request = limits_request()
        sent = weakref.ref(request)
        gc.disable()
        try:
            await sender.send(request)
            del request
            assert sent() is None
        finally:
            gc.enable()
