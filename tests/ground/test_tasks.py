"""Bounded jobs, single-flight calls and resumable iteration: nothing is lost, and no task is left behind."""

import asyncio
import gc
import threading
import traceback
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import given, strategies as st

from asyncfin.client import Client
from asyncfin.errors import NotFoundError
from asyncfin.model.select import Select
from asyncfin.model.selection import Annual
from asyncfin.tasks import SingleFlight, bounded, decoding_lock, in_thread, merged, resumable, wait_for_all
from tests.conftest import VirtualTimeLoop

pytestmark = pytest.mark.virtual


def others() -> set[asyncio.Task[Any]]:
    """Return all tasks but the test's own."""
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


@pytest.fixture
def calls() -> SingleFlight[str, int]:
    return SingleFlight()


@pytest.fixture(autouse=True)
async def nothing_left(calls: SingleFlight[str, int]) -> Any:
    """Whatever a test does: no task is left, no exception is lost, and no call is remembered."""
    lost: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
    before = others()
    yield
    assert others() <= before
    assert not lost
    assert not calls._calls


# Bounded jobs


class Busy:
    """Jobs that wait, and count how many run at once."""

    def __init__(self) -> None:
        self.now = self.most = self.begun = self.ended = 0

    async def job(self, name: int, seconds: float = 1) -> int:
        self.begun += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.now -= 1
            self.ended += 1
        return name

    def jobs(self, count: int) -> list[Callable[[], Coroutine[Any, Any, int]]]:
        return [partial(self.job, name) for name in range(count)]


async def failing(error: BaseException, seconds: float = 0) -> int:
    await asyncio.sleep(seconds)
    raise error


async def taken(jobs: Sequence[Callable[[], Awaitable[int]]], limit: int) -> list[int]:
    async with bounded(jobs, limit) as results:
        return [result async for result in results]


@pytest.mark.parametrize("limit", [1, 3, 100])
@pytest.mark.parametrize("count", [0, 1, 7])
async def test_every_job_gives_one_result(count: int, limit: int) -> None:
    """Each job gives one result, with no jobs at all and with a limit above their number too."""
    assert sorted(await taken(Busy().jobs(count), limit)) == list(range(count))


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_generators_share_limit_item_by_item(limit: int) -> None:
    """A generator of many items does not block the others; an item is begun once there is a place for it."""
    busy = Busy()

    async def chain(first: int) -> AsyncGenerator[int, None]:
        for name in range(first, first + 10):
            yield await busy.job(name)

    came: list[int] = []
    async with merged([partial(chain, 0), partial(chain, 10), partial(chain, 20)], limit) as items:
        async for item in items:
            came.append(item)
            await asyncio.sleep(5)
            assert busy.begun <= len(came) + limit
    assert sorted(came) == list(range(30))
    assert busy.most == min(limit, 3)


async def test_first_failure_comes_as_itself() -> None:
    """The first failure is raised without a group around it, and no job outlives it."""
    error, busy = KeyError("x"), Busy()
    with pytest.raises(KeyError) as caught:
        await taken([*busy.jobs(2), partial(failing, error, 0.5), *busy.jobs(3)], 3)
    assert caught.value is error
    assert caught.value.__cause__ is None
    assert busy.now == 0
    assert busy.begun == 2


@pytest.mark.parametrize("way", ["break", "raise"])
async def test_leaving_early_ends_all_jobs(way: str) -> None:
    """A break ends all jobs, and so does an error of the consumer, which is raised as it was."""
    busy = Busy()
    with pytest.raises(LookupError) if way == "raise" else nullcontext():
        async with bounded(busy.jobs(9), 3) as results:
            async for _ in results:
                if way == "raise":
                    raise LookupError
                break
    assert busy.now == 0
    assert busy.begun == busy.ended < 9


@given(st.integers(1, 6), st.integers(1, 4), st.floats(0, 4))
def test_cancellation_at_any_moment_leaves_nothing(count: int, limit: int, moment: float) -> None:
    """When a consumer cancelled at any moment has ended, all jobs have ended."""

    async def consume(busy: Busy) -> None:
        async with bounded(busy.jobs(count), limit) as results:
            async for _ in results:
                await asyncio.sleep(0.3)

    async def cancelled() -> None:
        busy = Busy()
        task = asyncio.ensure_future(consume(busy))
        await asyncio.wait([task], timeout=moment)
        task.cancel()
        await asyncio.wait([task])
        assert busy.now == 0
        assert not others()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(cancelled())


async def test_self_cancelled_job_is_an_error() -> None:
    """A job that raises CancelledError by itself is raised at the consumer, never left out of the results."""

    async def cancels() -> int:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await taken([cancels, *Busy().jobs(2)], 2)


@pytest.mark.parametrize("count", [0, 1])
async def test_left_block_has_no_items(count: int) -> None:
    """A step after the block is an error, and does not pass for a cancellation."""

    async def endless() -> AsyncGenerator[int, None]:
        while True:
            await asyncio.sleep(1)
            yield 1

    async with merged([endless], 2) as items:
        for _ in range(count):
            assert await anext(items) == 1
    with pytest.raises(RuntimeError):
        await asyncio.wait_for(anext(items), 60)


# Resumable iteration


class Counting:
    """A generator of numbers, one a second, that knows whether it was closed."""

    def __init__(self, count: int) -> None:
        self.closed = False
        self.numbers = self._numbers(count)

    async def _numbers(self, count: int) -> AsyncGenerator[int, None]:
        try:
            for number in range(count):
                await asyncio.sleep(1)
                yield number
        finally:
            await asyncio.sleep(1)
            self.closed = True


@pytest.mark.parametrize("turns", range(8))
async def test_item_of_cancelled_step_is_returned(turns: int) -> None:
    """An item is kept in whichever turn of the loop its arrival meets the cancellation."""

    async def three() -> AsyncGenerator[int, None]:
        for number in range(3):
            await asyncio.sleep(0)
            yield number

    async with resumable(three()) as items:
        waiting = asyncio.ensure_future(anext(items))
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        came = [] if waiting.cancelled() else [waiting.result()]
        assert [*came, *[number async for number in items]] == [0, 1, 2]


@pytest.mark.parametrize("moment", [0.5, 1.5, 9])
async def test_leaving_closes_the_generator(moment: float) -> None:
    """Leaving the block closes the generator, also when the consumer is cancelled while it leaves."""
    before, counting = others(), Counting(3)

    async def consume() -> None:
        async with resumable(counting.numbers) as items:
            async for _ in items:
                pass
            await asyncio.sleep(100)

    task = asyncio.ensure_future(consume())
    await asyncio.sleep(moment)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert counting.closed
    assert others() <= before


async def test_an_error_comes_out_as_itself() -> None:
    """The generator's error is raised once, as itself; then the iteration has ended."""

    async def failing() -> AsyncGenerator[int, None]:
        yield 1
        raise LookupError

    async with resumable(failing()) as items:
        assert await anext(items) == 1
        with pytest.raises(LookupError):
            await anext(items)
        with pytest.raises(StopAsyncIteration):
            await anext(items)


# Single-flight calls


class Call:
    """A function that takes ten seconds, counts its runs, and raises `error` at the end if there is one."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.begun = self.ended = 0
        self.error = error

    async def __call__(self) -> int:
        self.begun += 1
        run = self.begun
        try:
            await asyncio.sleep(10)
            if self.error is not None:
                raise self.error
        finally:
            self.ended += 1
        return run


def start(awaitable: Awaitable[int]) -> asyncio.Future[int]:
    return asyncio.ensure_future(awaitable)


async def test_failure_reaches_all_as_itself(calls: SingleFlight[str, int]) -> None:
    """All callers get a foreign error itself, and the next one starts the function again."""
    error = KeyError("x")
    outcomes = await asyncio.gather(
        *(calls.share("a", Call(error)) for _ in range(3)), return_exceptions=True
    )
    assert all(outcome is error for outcome in outcomes)
    assert await calls.share("a", Call()) == 1


async def test_sharers_get_an_error_each(calls: SingleFlight[str, int]) -> None:
    """Of the library's: with its traceback, cause and notes, and the caller's own context."""

    async def fail() -> int:
        error = NotFoundError(status=404)
        error.add_note("of the call")
        try:
            raise OSError("of the disk")
        except OSError as cause:
            raise error from cause

    async def call(number: int) -> NotFoundError:
        try:
            raise LookupError(number)
        except LookupError:
            with pytest.raises(NotFoundError) as caught:
                await calls.share("a", fail)
        caught.value.add_note(f"of caller {number}")
        return caught.value

    outcomes = await asyncio.gather(*map(call, range(3)))
    for number, error in enumerate(outcomes):
        assert error.__notes__ == ["of the call", f"of caller {number}"]
        assert isinstance(error.__cause__, OSError)
        names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        assert names[-1] == "fail"
        assert names.count("share") == 1


async def test_sharers_keep_their_context(calls: SingleFlight[str, int]) -> None:
    """What a caller was handling is shown with the error."""

    async def fail() -> int:
        raise NotFoundError(status=404)

    async def call() -> None:
        try:
            raise LookupError
        except LookupError:
            await calls.share("a", fail)

    with pytest.raises(NotFoundError) as caught:
        await call()
    assert isinstance(caught.value.__context__, LookupError)
    assert not caught.value.__suppress_context__


def test_call_of_ended_loop_is_dropped() -> None:
    """It would never be done: the next loop starts a new call."""
    calls: SingleFlight[str, int] = SingleFlight()

    async def never() -> int:
        await asyncio.Event().wait()
        raise AssertionError

    async def second() -> int:
        return 2

    async def share() -> int:
        async with asyncio.timeout(5):
            return await calls.share("key", second)

    loop = asyncio.new_event_loop()
    try:
        left = loop.create_task(calls.share("key", never))
        loop.run_until_complete(asyncio.sleep(0.01))
        assert asyncio.run(share()) == 2  # the first loop does not run, as if it had ended
        left.cancel()
        loop.run_until_complete(asyncio.wait([left]))
    finally:
        loop.close()


async def test_abandoned_call_is_not_shared(
    calls: SingleFlight[str, int],
) -> None:
    """The result of a cancelled call reaches no caller."""

    async def slow_to_end() -> int:
        try:
            await asyncio.sleep(10)
        finally:
            await asyncio.sleep(10)
        return 0

    abandoned = start(calls.share("a", slow_to_end))
    await asyncio.sleep(5)
    abandoned.cancel()
    await asyncio.sleep(1)
    assert not abandoned.done()
    assert await calls.share("a", Call()) == 1
    await asyncio.wait([abandoned])


@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), min_size=1, max_size=6))
def test_random_callers_share_one_call(visits: list[tuple[int, int]]) -> None:
    """A caller that stays ten seconds gets a result; two calls never run at once, nor without a caller."""

    async def visit(calls: SingleFlight[str, int], call: Call, come: int, stay: int) -> bool:
        await asyncio.sleep(come)
        try:
            async with asyncio.timeout(stay + 0.5):
                await calls.share("a", call)
        except TimeoutError:
            return False
        return True

    async def scene() -> None:
        calls: SingleFlight[str, int] = SingleFlight()
        call = Call()
        visitors = [start(visit(calls, call, *each)) for each in visits]
        await asyncio.sleep(0.1)  # to look between the comings and goings
        while not all(visitor.done() for visitor in visitors):
            await asyncio.sleep(0.25)
            assert call.begun - call.ended == min(1, sum(each.callers for each in calls._calls.values()))
        served = [await visitor for visitor in visitors]
        assert all(got for got, (_, stay) in zip(served, visits, strict=True) if stay >= 10)
        assert not calls._calls
        assert not others()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(scene())


# Without an asyncio loop


def _step(awaitable: Any) -> None:
    """Run a coroutine up to its first wait in no asyncio loop, as trio does."""
    awaitable.send(None)


ENTITY_ID = "O-" + "1" * 32


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "use",
    [
        lambda client: client.dataset(ENTITY_ID),
        lambda client: client.catalogue(ENTITY_ID),
        lambda client: client.query(ENTITY_ID, Select(), Annual()),
        lambda client: client.usage("2024-01-01", "2024-12-31"),
        lambda client: client.limits(),
        lambda client: client.catalogue_pages(ENTITY_ID).__anext__(),
        lambda client: client.stream(ENTITY_ID, Select(), Annual()).__aenter__(),
        lambda client: client.query_many([ENTITY_ID], Select(), Annual()).__aenter__(),
    ],
    ids=["dataset", "catalogue", "query", "usage", "limits", "pages", "stream", "query_many"],
)
def test_client_needs_an_asyncio_loop(use: Callable[[Client], Any]) -> None:
    """As under trio: one clear line, and no warning about a coroutine that was never awaited."""
    client = Client("https://example.com", "a-token")
    with pytest.raises(RuntimeError, match="asyncfin runs on asyncio only"):
        _step(use(client))
    with suppress(StopIteration):
        _step(client.aclose())
    gc.collect()


def test_each_loop_has_a_lock() -> None:
    """A loop gets the same lock each time; a closed loop's is dropped when the next one asks."""

    async def asked() -> "list[weakref.ref[asyncio.Lock]]":
        return [weakref.ref(decoding_lock()) for _ in range(2)]

    first, again = asyncio.run(asked())
    assert first() is not None
    assert first() is again()
    second, _ = asyncio.run(asked())
    assert second() is not None
    assert first() is None


# Waiting for all


@pytest.mark.parametrize("times", [1, 3])
async def test_wait_for_all_passes_cancellation_on(times: int) -> None:
    """However often the caller is cancelled, it waits to the end, and is then cancelled."""
    ended = asyncio.Event()

    async def work() -> None:
        await asyncio.sleep(5)
        ended.set()

    inner = asyncio.ensure_future(work())
    caller = asyncio.ensure_future(wait_for_all([inner]))
    for _ in range(times):
        await asyncio.sleep(1)
        caller.cancel()
    await asyncio.wait([caller])
    assert ended.is_set()
    assert caller.cancelled()


# Calls in threads


def test_call_in_thread_has_ended() -> None:
    """The caller may be cancelled by `asyncio.run`, which at its end cancels all tasks."""
    entered, free = threading.Event(), threading.Event()
    ended: list[bool] = []

    def call() -> None:
        entered.set()
        free.wait(60)

    async def caller() -> None:
        try:
            await in_thread(call)
        finally:
            ended.append(free.is_set())

    async def main() -> "asyncio.Task[None]":
        task = asyncio.create_task(caller())
        await asyncio.to_thread(entered.wait, 60)
        asyncio.get_running_loop().call_later(0.1, free.set)
        return task

    assert asyncio.run(main()).cancelled()
    assert ended == [True]


async def test_ready_items_precede_a_failure() -> None:
    """What has been made when a generator fails reaches the consumer first."""

    async def count_then_fail() -> AsyncGenerator[int, None]:
        yield 1
        yield 2
        raise ZeroDivisionError

    async with merged([count_then_fail], 5) as items:
        await asyncio.sleep(0.01)
        assert [await anext(items), await anext(items)] == [1, 2]
        with pytest.raises(ZeroDivisionError):
            await anext(items)
