"""Visits while the service is silent, slow, or behind something that responds in its place."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from asyncfin import Annual, AsyncfinError, Client, MemoryCache, Panel, Retry, Select, Timeouts, read_entity
from asyncfin.errors import MalformedAnswerError
from asyncfin.events import Event, OutageBegan, QuestionFinished, RequestFinished
from tests.cache.dict_store import DictCache
from tests.client.figures import Figures, entity
from tests.services.raw import Scripted, answer, dropping, hanging, judged, refusal

RULE = Annual(last=2)
Visit = tuple[float, float, Panel | BaseException]  # when it began, how long it took, what it got


async def visit(client: Client, number: int) -> Visit:
    """Ask for a company, for ten seconds at most."""
    time = asyncio.get_running_loop().time
    began_at = time()
    result: Panel | BaseException
    try:
        async with asyncio.timeout(10):
            result = await client.query(entity(number), Select(), RULE)
    except (AsyncfinError, TimeoutError) as error:
        result = error
    return began_at, time() - began_at, result


async def visits(client: Client, count: int, seconds: float, entities: int) -> list[Visit]:
    """Ask at equal intervals, for the companies in turn."""
    tasks = []
    for number in range(count):
        tasks.append(asyncio.ensure_future(visit(client, number % entities)))
        await asyncio.sleep(seconds / count)
    return await asyncio.gather(*tasks)


@asynccontextmanager
async def warm(entities: int, **options: Any) -> AsyncIterator[tuple[Figures, Client, list[Event], Scripted]]:
    """Give a client that has read all companies ten seconds ago."""
    figures, events = Figures(), list[Event]()
    options = {"cache": MemoryCache(), "stale_if_error": 3600.0} | options
    time = asyncio.get_running_loop().time
    async with (
        judged(figures) as server,
        Client(server.base_url, "some-token", observers=[events.append], **options) as client,
    ):
        # The wall time is the loop's.
        clock = lambda: datetime.fromtimestamp(time(), UTC)  # noqa: E731
        client._transport.clock = client._publications.clock = clock
        for number in range(entities):
            await client.query(entity(number), Select(), RULE)
        await asyncio.sleep(10)
        server.requests.clear()
        events.clear()
        yield figures, client, events, server


def failures(results: list[Visit]) -> list[Panel | BaseException]:
    return [result for _, _, result in results if isinstance(result, BaseException)]


# --- a service that accepts and is silent


@pytest.mark.virtual
@pytest.mark.parametrize("rate", [2, 4, 40])
@pytest.mark.parametrize("in_flight", [1, 8])
async def test_silent_service_serves_stale_results(rate: int, in_flight: int) -> None:
    """Every visit is served within three seconds, and the breaker opens within thirty."""
    loop = asyncio.get_running_loop()
    async with warm(20, max_in_flight=in_flight) as (figures, client, _, _):
        figures.step = hanging()
        began_at, opened = loop.time(), list[float]()

        def observe(event: Event) -> None:
            if isinstance(event, OutageBegan):
                opened.append(loop.time() - began_at)

        with client.observed(observe):
            results = await visits(client, 40 * rate, 40, entities=20)
        assert failures(results) == []
        assert max(seconds for _, seconds, _ in results) < 3
        assert opened
        assert opened[0] < 30
        figures.step = None
        await asyncio.sleep(60)
        panel = await client.query(entity(3), Select(), RULE)
        assert client.stats().outage_since is None
        assert panel.confirmed_at is not None


@pytest.mark.virtual
@pytest.mark.parametrize("in_flight", [1, 8])
async def test_burst_waits_once_for_silence(in_flight: int) -> None:
    """Visitors of one moment do not wait for one another's two seconds."""
    async with warm(30, max_in_flight=in_flight) as (figures, client, _, _):
        figures.step = hanging()
        results = await asyncio.gather(*(visit(client, number) for number in range(30)))
        assert failures(results) == []
        assert max(seconds for _, seconds, _ in results) < 3


@pytest.mark.virtual
async def test_silence_during_another_process_claim() -> None:
    """A stale catalogue waits for the metadata alone, not for the claim of another process."""
    cache = DictCache()
    async with warm(1, cache=cache) as (figures, client, _, server):
        figures.step = hanging()
        began_at = asyncio.get_running_loop().time()
        async with cache.partition(server.base_url, "some-token").claim(entity(0)):
            catalogue = await client.catalogue(entity(0))
        assert len(catalogue) == 1
        assert asyncio.get_running_loop().time() - began_at < 3


@pytest.mark.virtual
async def test_silent_service_delays_comparisons_once() -> None:
    """The catalogues and the values are of one read, which asks for the metadata once."""
    async with warm(3) as (figures, client, events, server):
        figures.step = hanging()
        began_at = asyncio.get_running_loop().time()
        comparison = await client.compare([entity(number) for number in range(3)], Select(), RULE)
        assert asyncio.get_running_loop().time() - began_at < 3
        assert (len(comparison), comparison.failed) == (3, {})
        assert len(server.requests) == 3
        ends = [event.stale for event in events if isinstance(event, QuestionFinished)]
        assert ends == [True, True, True]
        figures.step = None
        events.clear()
        await asyncio.sleep(60)
        await client.compare([entity(number) for number in range(3)], Select(), RULE)
        ends = [event.stale for event in events if isinstance(event, QuestionFinished)]
        assert ends == [False, False, False]


@pytest.mark.virtual
async def test_events_tell_timeouts_from_visitors() -> None:
    """The limit of two seconds is a time-out, a visitor who leaves is a cancellation."""
    async with warm(12) as (figures, client, events, _):
        figures.step = hanging()
        await visits(client, 8, 0.1, entities=8)
        names = [event.failure for event in events if isinstance(event, RequestFinished)]
        assert set(names) == {"RequestTimeoutError"}
        events.clear()
        leaving = asyncio.ensure_future(client.query(entity(9), Select(), RULE))
        await asyncio.sleep(1)
        leaving.cancel()
        await asyncio.wait([leaving])
        names = [event.failure for event in events if isinstance(event, RequestFinished)]
        assert names == ["CancelledError"]


@pytest.mark.virtual
@pytest.mark.parametrize("step", [hanging(), dropping()], ids=["silent", "dropped"])
async def test_extraction_takes_no_stale_result(step: Any) -> None:
    """`read_entity` raises the failure."""
    timeouts, retry = Timeouts(read=5), Retry(attempts=1, max_outage=0)
    async with warm(1, retry=retry, timeouts=timeouts) as (figures, client, _, _):
        figures.step = step
        with pytest.raises(AsyncfinError) as caught:
            await read_entity(client, entity(0), Select(), RULE)
        assert caught.value.concerns == "service"


# --- a service that takes three seconds for each response


@pytest.mark.virtual
@pytest.mark.parametrize("entities", [1, 4])
async def test_slow_service_refreshes_data(entities: int) -> None:
    """What was published at the beginning is shown within thirty seconds."""
    async with warm(entities) as (figures, client, _, _):
        figures.latency, figures.publication = 3.0, 2
        results = await visits(client, 160, 40, entities=entities)
        assert failures(results) == []
        late = [panel for began_at, _, panel in results if began_at - results[0][0] > 30]
        for panel in late:
            assert isinstance(panel, Panel)
            assert panel.dataset.dataset_id.endswith("2")


@pytest.mark.virtual
async def test_left_request_ends_with_client() -> None:
    """What goes on without its caller ends as the client is closed."""
    before = asyncio.all_tasks()
    async with warm(1) as (figures, client, _, _):
        figures.step = hanging()
        await visit(client, 0)
        assert len(asyncio.all_tasks() - before) > 0
        await client.aclose()
        tasks = {task for task in asyncio.all_tasks() - before if "serve" not in repr(task)}
        assert tasks == set()


# --- a gateway that responds in the place of the service

PAGE = b"<!doctype html><title>Maintenance</title>"
GATEWAYS = {
    "redirect": answer(302, b"", location="https://elsewhere.example/login"),
    "page": answer(200, PAGE, content_type="text/html"),
    "text": answer(200, b"upstream is away", content_type="text/plain"),
    "empty": answer(200, b""),
    "503": refusal(503),
}


@pytest.mark.virtual
@pytest.mark.parametrize("kind", GATEWAYS)
async def test_gateway_is_an_outage(kind: str) -> None:
    """Figures in memory are served, and few requests are sent."""
    async with warm(20) as (figures, client, events, server):
        figures.step = GATEWAYS[kind]
        results = await visits(client, 475, 60, entities=20)
        assert failures(results) == []
        assert max(seconds for _, seconds, _ in results) < 3
        assert len(server.requests) <= 40
        assert [type(event) for event in events if isinstance(event, OutageBegan)] == [OutageBegan]
        figures.step = None
        await asyncio.sleep(60)
        await client.query(entity(3), Select(), RULE)
        assert client.stats().outage_since is None


@pytest.mark.virtual
@pytest.mark.parametrize("body", [b'{"entity_id": 1}', b'{"entity_id": ', b"[1, 2"])
async def test_malformed_body_is_the_entitys(body: bytes) -> None:
    """It is that entity's error, without a retry, and concerns no other one."""
    async with warm(4) as (figures, client, events, server):
        figures.judge = lambda request: answer(body=body) if entity(1) in request.target else None
        for number in range(40):
            _, _, result = await visit(client, number % 4)
            if number % 4 == 1:
                assert isinstance(result, MalformedAnswerError)
                assert result.concerns == "entity"
            else:
                assert isinstance(result, Panel)
        assert sum(entity(1) in request.target for request in server.requests) == 10
        assert not [event for event in events if isinstance(event, OutageBegan)]
