"""`Client.query_many`: many entities, each read as `query` reads it, in bounded numbers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from asyncfin import (
    AllowanceExhaustedError,
    Annual,
    ArgumentError,
    AuthenticationError,
    Client,
    EntityAnswer,
    Exact,
    NotFoundError,
    Retry,
    Select,
    SelectionError,
    ServerFailureError,
)
from asyncfin.sandbox import Hang, Latency, Sandbox, Served, Status
from tests.handmade import dataset

pytestmark = pytest.mark.virtual

ALL = [f"O-{number:032d}" for number in range(30)]
SELECT = Select("Revenue")


def company(entity_id: str, *, metrics: int = 1) -> dict[str, Any]:
    names = ["Revenue", *(f"M{number}" for number in range(1, metrics))]
    numbers = {(name, "all"): {"FY2023": 1.0, "FY2024": 2.0} for name in names}
    return dataset(numbers, entity_id=entity_id)


@asynccontextmanager
async def session(
    ids: Iterable[str] = ALL, *, faults: Any = (), allowance: int | None = None, **options: Any
) -> AsyncIterator[tuple[Sandbox, Client]]:
    async with (
        Sandbox(*map(company, ids), faults=faults, allowance=allowance) as sandbox,
        Client(sandbox.base_url, sandbox.token, **options) as client,
    ):
        yield sandbox, client


async def collected(client: Client, ids: Any = ALL, **options: Any) -> list[EntityAnswer]:
    async with client.query_many(ids, SELECT, Annual(), **options) as answers:
        return [answer async for answer in answers]


async def receive(answers: AsyncIterator[EntityAnswer], finished: list[str]) -> None:
    async for answer in answers:
        assert answer.error is None
        finished.append(answer.entity_id)


async def in_async_steps(ids: Iterable[str]) -> AsyncIterator[str]:
    for entity_id in ids:
        await asyncio.sleep(0)
        yield entity_id


@pytest.mark.parametrize(
    "ids", [list, tuple, iter, dict.fromkeys, in_async_steps, lambda ids: (each for each in ids)]
)
async def test_every_entity_has_one_answer(ids: Callable[[Any], Any]) -> None:
    """From any iterable or async iterable; repeated ids count once."""
    async with session() as (_, client):
        answers = await collected(client, ids([*ALL, *ALL[:5]]))
        assert sorted(each.entity_id for each in answers) == ALL
        for each in answers:
            assert each.error is None
            assert each.panel is not None
            assert each.panel.dataset.entity_id == each.entity_id
            assert each.panel.one()["FY2024"].number == 2.0


async def test_query_rejects_unknown_ids_beside_many() -> None:
    """Each gets what it would have got alone."""
    select = Select(["Revenue", "Nonsense"])
    async with session(ALL[:1], faults=[Latency(seconds=1)]) as (_, client):
        async with client.query_many(ALL[:1], select, Annual()) as answers:
            query = asyncio.ensure_future(client.query(ALL[0], select, Annual()))
            (answer,) = [each async for each in answers]
        assert dict(answer.missing) == {"metric_ids": ("Nonsense",)}
        assert answer.panel is not None
        assert len(answer.panel) == 1
        with pytest.raises(SelectionError, match="Nonsense"):
            await query


async def test_failed_entity_is_an_answer() -> None:
    """A malformed id, an unknown entity and a failing one; all the others have panels."""
    bad: list[Any] = ["", "..", "O-" + "f" * 32, None]
    fault = Status(status=500, operation="query", nth=3)
    async with session(faults=[fault], retry=Retry(attempts=1)) as (_, client):
        answers = {each.entity_id: each for each in await collected(client, [*bad, *ALL])}
    assert len(answers) == len(bad) + len(ALL)
    failed = {entity_id: type(each.error) for entity_id, each in answers.items() if each.error}
    assert failed == {
        "": SelectionError,
        "..": SelectionError,
        None: SelectionError,
        bad[2]: NotFoundError,
        ALL[2]: ServerFailureError,
    }
    assert all((each.panel is None) == (each.error is not None) for each in answers.values())


async def test_entity_without_series_is_no_error() -> None:
    """Its panel has no series, and `missing` names what it does not have."""
    async with session(ALL[:2]) as (sandbox, client):
        for select, periods, missing in [
            (Select("Nonsense"), Annual(), {"metric_ids": ("Nonsense",)}),
            (Select(), Exact(["FY1990"]), {"periods": ("FY1990",)}),
            (Select(label="nonsense"), Annual(), {"label": ("nonsense",)}),
        ]:
            async with client.query_many(ALL[:2], select, periods) as answers:
                found = [each async for each in answers]
            assert [(each.panel is not None and len(each.panel), each.error) for each in found] == 2 * [
                (0, None)
            ]
            assert [dict(each.missing) for each in found] == [missing, missing]
        assert "query" not in [served.operation for served in sandbox.log]


@pytest.mark.parametrize(
    ("ids", "options", "error", "said"),
    [
        (ALL[0], {}, ArgumentError, "entity_ids must be an iterable of entity ids"),
        (b"O-", {}, ArgumentError, "entity_ids"),
        (7, {}, ArgumentError, "entity_ids"),
        (ALL, {"ahead": 0}, ArgumentError, "ahead"),
        (ALL, {"ahead": 1.5}, ArgumentError, "ahead"),
        (ALL, {"max_age": -1}, ArgumentError, "max_age"),
        (ALL, {"value_version": "newest"}, SelectionError, "value_version"),
        (ALL, {"select": "Revenue"}, SelectionError, "select must be a Select"),
        (ALL, {"periods": "FY2024"}, SelectionError, "periods"),
    ],
)
async def test_arguments_are_checked_first(
    ids: Any, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    """Each is refused by name."""
    async with session(ALL[:1]) as (sandbox, client):
        given = {"select": SELECT, "periods": Annual()} | options
        with pytest.raises(error, match=said):
            async with client.query_many(ids, **given):
                pass
        assert sandbox.log == []


@pytest.mark.parametrize(("ahead", "begun"), [(None, 3), (1, 1), (5, 5)])
async def test_ids_are_read_as_needed(ahead: int | None, begun: int) -> None:
    """At most `ahead` entities are begun beyond those received; None means `max_in_flight`."""
    taken = 0

    def ids() -> Iterator[str]:
        nonlocal taken
        for entity_id in ALL:
            taken += 1
            yield entity_id

    async with (
        session(max_in_flight=3) as (sandbox, client),
        client.query_many(ids(), SELECT, Annual(), ahead=ahead) as answers,
    ):
        for received in range(4):
            await asyncio.sleep(100)
            assert taken == len({_entity(served) for served in sandbox.log}) == received + begun
            await anext(answers)


async def test_batches_are_bounded_together() -> None:
    """Never more than `max_in_flight` requests at once, with many entities of several batches begun."""
    wide = [company(each, metrics=400) for each in ALL[:6]]
    async with (
        Sandbox(*wide, faults=[Latency(seconds=1)]) as sandbox,
        Client(sandbox.base_url, sandbox.token, max_in_flight=4) as client,
    ):
        most = 0

        def watch(_: object) -> None:
            nonlocal most
            most = max(most, sum(client.bucket.stats().waiting.values()))

        began = asyncio.get_running_loop().time()
        with client.observed(watch):
            async with client.query_many(ALL[:6], Select(), Annual(), ahead=6) as answers:
                found = [each async for each in answers]
        took = asyncio.get_running_loop().time() - began
        assert [each.panel is not None and len(each.panel) for each in found] == [400] * 6
        assert most <= 4
        # As many seconds as requests in each of the four places; batches of one entity use all of them.
        assert took < len(sandbox.log) / 4 + 8


@pytest.mark.parametrize(
    ("fault", "error"),
    [(Status(status=401, code="unauthorized", nth=range(13, 99)), AuthenticationError)],
)
async def test_common_error_ends_the_iteration(fault: Any, error: type[Exception]) -> None:
    """After the answers that are finished; the error is raised as itself, at every further step."""
    async with session(faults=[fault], max_in_flight=2) as (sandbox, client):
        finished: list[str] = []
        async with client.query_many(ALL, SELECT, Annual(), ahead=2) as answers:
            with pytest.raises(error):
                await receive(answers, finished)
            with pytest.raises(error):
                await anext(answers)
        spent = len(sandbox.log)
        await asyncio.sleep(100)
        assert len(sandbox.log) == spent
        assert finished == ALL[: len(finished)] != []
        assert [served.status for served in sandbox.log].count(401) <= 2


async def test_failure_leaves_entities_in_flight() -> None:
    """They are paid for: their answers precede the error, which does not wait for the next id."""
    faults = [
        Status(operation="query", nth=1, status=429, retry_after=5000),
        Latency(operation="query", nth=[2, 3], seconds=5),
    ]

    async def ids() -> AsyncIterator[str]:
        for entity_id in ALL[:3]:
            yield entity_id
        await asyncio.sleep(1_000_000)

    async with session(faults=faults) as (_, client):
        finished: list[str] = []
        async with client.query_many(ids(), SELECT, Annual(), ahead=10**10) as answers:
            with pytest.raises(AllowanceExhaustedError):
                await receive(answers, finished)
            with pytest.raises(AllowanceExhaustedError):
                await anext(answers)
        assert sorted(finished) == ALL[1:3]
        assert asyncio.get_running_loop().time() < 100


async def test_failing_source_ends_iteration() -> None:
    """Its error is raised as itself, after the answers that are finished."""

    async def ids() -> AsyncIterator[str]:
        for entity_id in ALL[:5]:
            yield entity_id
        raise ZeroDivisionError

    async with session() as (_, client):
        finished: list[str] = []
        async with client.query_many(ids(), SELECT, Annual()) as answers:
            with pytest.raises(ZeroDivisionError):
                await receive(answers, finished)
        assert sorted(finished) == ALL[:5]


@pytest.mark.parametrize("leave", ["at once", "break", "error", "cancel", "timeout"])
async def test_leaving_ends_tasks_and_requests(leave: str) -> None:
    """In whatever way the block is left."""
    async with session(faults=[Latency(seconds=0.5)], max_in_flight=3) as (sandbox, client):
        await client.dataset(ALL[0])

        closed = False

        async def ids() -> AsyncIterator[str]:
            nonlocal closed
            try:
                for entity_id in ALL:
                    await asyncio.sleep(0)
                    yield entity_id
            finally:
                closed = True

        async def consume() -> None:
            async with client.query_many(ids(), SELECT, Annual()) as answers:
                if leave == "at once":
                    return
                await anext(answers)
                if leave == "error":
                    raise ZeroDivisionError
                if leave == "cancel":
                    task.cancel()
                    await anext(answers)
                if leave == "timeout":
                    async with asyncio.timeout(0.1):
                        await anext(answers)

        task = asyncio.ensure_future(consume())
        with suppress(ZeroDivisionError, asyncio.CancelledError, TimeoutError):
            await task
        left = {each for each in asyncio.all_tasks() if not _serving(each)}
        assert left == {asyncio.current_task()}
        assert closed or leave == "at once"
        assert sum(client.bucket.stats().waiting.values()) == 0
        spent = len(sandbox.log)
        await asyncio.sleep(100)
        # The sandbox logs a request when it responds; those on their way when the block was left may appear.
        assert len(sandbox.log) <= spent + 3
        spent = len(sandbox.log)
        assert len(await collected(client, ALL[:3])) == 3
        assert len(sandbox.log) <= spent + 9


async def test_cancelled_read_leaves_nothing() -> None:
    """After any number of turns of the loop."""
    ended, turns = False, 0
    async with Sandbox(*map(company, ALL[:3])) as sandbox:
        while not ended:
            turns += 1
            async with Client(sandbox.base_url, sandbox.token, max_in_flight=2) as client:
                task = asyncio.ensure_future(collected(client, in_async_steps(ALL[:3])))
                for _ in range(turns):
                    await asyncio.sleep(0)
                ended = not task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
                left = {each for each in asyncio.all_tasks() if not _serving(each)}
                assert left == {asyncio.current_task()}
    assert turns > 20


async def test_abandoned_wait_loses_no_answer() -> None:
    """The next wait gets it."""
    async with (
        session(faults=[Latency(seconds=1)]) as (_, client),
        client.query_many(ALL, SELECT, Annual()) as answers,
    ):
        found = []
        while True:
            try:
                async with asyncio.timeout(0.3):
                    found.append((await anext(answers)).entity_id)
            except TimeoutError:
                continue
            except StopAsyncIteration:
                break
        assert sorted(found) == ALL


async def test_hanging_entity_stops_no_other() -> None:
    """Answers come as they finish."""
    async with (
        session(faults=[Hang(operation="query", nth=1)]) as (_, client),
        client.query_many(ALL, SELECT, Annual(), ahead=5) as answers,
    ):
        began = asyncio.get_running_loop().time()
        first = [(await anext(answers)).entity_id for _ in range(len(ALL) - 1)]
        assert asyncio.get_running_loop().time() - began < 10
        assert [(await anext(answers)).entity_id] == sorted({*ALL} - {*first})


async def test_errors_hold_no_pages() -> None:
    """An answer's error has no traceback, whose frames would keep catalogues and pages."""
    async with session(ALL[:1]) as (_, client):
        (answer,) = await collected(client, ["O-" + "f" * 32])
    error: BaseException | None = answer.error
    while error is not None:
        assert error.__traceback__ is None
        error = error.__cause__ or error.__context__


def _serving(task: asyncio.Task[Any]) -> bool:
    return any(name in repr(task.get_coro()) for name in ("RequestHandler.start", "_accept_connection"))


def _entity(served: Served) -> str:
    return served.path.split("/")[3]


@pytest.mark.parametrize("lane", ["interactive", "bulk"])
async def test_outage_ends_only_bulk_iteration(lane: Any) -> None:
    """There it has been waited for; on the interactive lane each entity has its error, without a request."""
    loop = asyncio.get_running_loop()
    retry = Retry(max_outage=300)
    async with session(faults=[Status(status=503)], lane=lane, retry=retry, max_in_flight=4) as (
        sandbox,
        client,
    ):
        if lane == "interactive":
            answers = await collected(client)
            assert [type(answer.error) for answer in answers] == [ServerFailureError] * 30
            assert [answer.entity_id for answer in answers if answer.error and answer.error.attempts == 0]
            assert loop.time() == pytest.approx(120, abs=10)  # of those that were sent before
            assert len(sandbox.log) <= 12 + 3 + 120 / 15
        else:
            with pytest.raises(ServerFailureError, match="not sent: the service has failed since") as caught:
                await collected(client)
            assert caught.value.attempts == 0
            assert loop.time() == pytest.approx(300, abs=10)
            assert len(sandbox.log) <= 12 + 3 + 300 / 15
