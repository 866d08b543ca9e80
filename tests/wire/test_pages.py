"""Page generators: strictly one after the other, at most one page ahead, and nothing left behind."""

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import pytest

from asyncfin.errors import MalformedAnswerError
from asyncfin.model.query import Query
from asyncfin.model.selection import Trailing
from asyncfin.wire.pages import planned_pages, query_pages
from asyncfin.wire.protocol import Request, Response
from asyncfin.wire.values import QueryPage
from tests.answers import ENTITY_ID, encoded, page_json

pytestmark = pytest.mark.virtual

QUERY = Query("m", "company=all", Trailing(12))


class Service:
    """Answers each request after ten seconds; the last page is number `count`, all but `full` empty."""

    def __init__(
        self,
        count: int,
        failing: int | None = None,
        full: tuple[int, ...] = (),
    ) -> None:
        self.count, self.failing, self.full = count, failing, full
        self.begun = self.ended = 0

    async def send(self, request: Request) -> Response:
        self.begun += 1
        number = self.begun
        try:
            await asyncio.sleep(10)
        finally:
            self.ended += 1
        if number == self.failing:
            raise KeyError(number)
        body = page_json([], {"m.annual": {}} if number in self.full else {})
        body["next_cursor"] = str(number) if number < self.count else None
        now = datetime(2024, 1, 1, tzinfo=UTC)
        return Response(200, {}, encoded(body), now, now)

    def pages(self, *, prefetch: bool) -> Any:
        return query_pages(self.send, ENTITY_ID, QUERY, page_size=100, prefetch=prefetch)


def others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
async def nothing_left() -> Any:
    """Whatever a test does: no task is left, and no exception is lost."""
    lost: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))
    before = others()
    yield
    assert others() <= before
    assert not lost


@pytest.mark.parametrize(("prefetch", "seconds"), [(False, 50), (True, 30)])
async def test_next_page_comes_meanwhile(prefetch: bool, seconds: float) -> None:
    """With prefetch the time of looking is saved, and no request more is sent."""
    service = Service(3)
    async for _ in service.pages(prefetch=prefetch):
        await asyncio.sleep(10 if service.begun < 3 else 0)
    assert service.begun == 3
    assert asyncio.get_running_loop().time() == pytest.approx(seconds, abs=10)


@pytest.mark.parametrize(("prefetch", "begun"), [(False, 1), (True, 2)])
async def test_one_page_is_requested_ahead(prefetch: bool, begun: int) -> None:
    """However long the consumer pauses."""
    service = Service(9)
    async with aclosing(service.pages(prefetch=prefetch)) as pages:
        assert isinstance(await anext(pages), QueryPage)
        await asyncio.sleep(1000)
        assert service.begun == begun


@pytest.mark.parametrize("planned", [False, True])
async def test_series_of_earlier_page_is_rejected(planned: bool) -> None:
    """Each series is on one page of a query (spec 4.3): its values would count twice."""
    service = Service(4, full=(1, 3))
    pages = (
        planned_pages(
            service.send, ENTITY_ID, QUERY, home={"m.annual"}, query_ids={"m.annual"}, wanted_ids={"m.annual"}
        )
        if planned
        else service.pages(prefetch=False)
    )
    async with aclosing(pages):
        await anext(pages)
        await anext(pages)
        with pytest.raises(MalformedAnswerError, match="is repeated"):
            await anext(pages)
    assert service.begun == 3


async def test_prefetch_failure_comes_in_turn() -> None:
    """The page before it is not lost to it."""
    service = Service(3, failing=2)
    pages = service.pages(prefetch=True)
    await anext(pages)
    await asyncio.sleep(100)
    with pytest.raises(KeyError, match="2"):
        await anext(pages)


@pytest.mark.parametrize("moment", [1, 11, 15, 21, 25])
@pytest.mark.parametrize("prefetch", [False, True])
async def test_cancellation_at_any_moment_leaves_nothing(prefetch: bool, moment: float) -> None:
    """Cancellation at any moment, also between two pages, leaves nothing behind."""
    service = Service(9)

    async def consume() -> None:
        async with aclosing(service.pages(prefetch=prefetch)) as pages:
            async for _ in pages:
                await asyncio.sleep(3)

    task = asyncio.ensure_future(consume())
    await asyncio.sleep(moment)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert service.begun == service.ended
