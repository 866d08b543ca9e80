"""An equal question that needs no request gets the kept panel, and never one that may not be returned."""

import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from asyncfin import (
    Annual,
    AsyncfinError,
    Client,
    FiscalRange,
    MemoryCache,
    NotFoundError,
    Panel,
    PermissionDeniedError,
    Retry,
    Select,
    TokenBucket,
)
from asyncfin.sandbox import Sandbox, Status
from asyncfin.sandbox.dataset import DatasetFile
from asyncfin.web import reply
from tests.generate import generate

BOTH = generate(7, series=150, publications=2)
OLD, NEW = (DatasetFile(BOTH.entity_id, BOTH.name, (publication,)) for publication in BOTH.publications)
OTHER = generate(8, series=150, publications=1)
ENTITY = BOTH.entity_id
QUESTION: Any = (ENTITY, Select(), Annual(last=2))
pytestmark = pytest.mark.virtual


@asynccontextmanager
async def service(*datasets: Any) -> AsyncIterator[Sandbox]:
    async with Sandbox(*(datasets or (OLD,))) as sandbox:
        yield sandbox


def client(sandbox: Sandbox, cache: Any = None, *, base_url: str = "", **options: Any) -> Client:
    """Return a client for which a publication is current for an hour, and at most 3,600 requests a second."""
    options = {"max_age": 3600, "retry": Retry(attempts=1), "bucket": TokenBucket(3600, 100)} | options
    cache = MemoryCache() if cache is None else cache
    return Client(base_url or sandbox.base_url, sandbox.token, cache=cache, **options)


async def kept(asking: Client, question: Any = QUESTION, **options: Any) -> Panel:
    """Return the panel of a question that the client keeps from now on."""
    await asking.query(*question, **options)  # fills the cache
    panel = await asking.query(*question, **options)
    assert panel.requests == 0
    assert await asking.query(*question, **options) is panel
    return panel


def numbers(panel: Panel) -> list[list[float | None]]:
    return [[value.number if value else None for value in series.values] for series in panel]


def later(asking: Client, monkeypatch: pytest.MonkeyPatch, **how: float) -> None:
    """Let the wall clock of a client and of what it records be so much later."""
    publications = asking._publications
    for clock in ((publications, "clock"), (publications.records._cache, "_clock")):
        monkeypatch.setattr(*clock, lambda: datetime.now(UTC) + timedelta(**how))


async def test_equal_query_returns_same_panel() -> None:
    """Also one of other objects, and a plan of it; the counts are those of any cached one."""
    events: list[Any] = []
    async with service() as sandbox, client(sandbox, cache := MemoryCache()) as asking:
        await asking.query(*QUESTION)
        sent, hits = len(sandbox.log), cache.stats().hits
        with asking.observed(events.append):
            first = await asking.query(*QUESTION)
            again = await asking.query(ENTITY, Select(), Annual(last=2), value_version="original")
            planned = await asking.run(await asking.plan(*QUESTION))
        assert again is first
        assert numbers(planned) == numbers(first)
        assert (first.requests, len(first.unlisted)) == (0, 0)
        assert len(sandbox.log) == sent
        assert cache.stats().hits - hits == 3 * len(first)
        finished = [event for event in events if type(event).__name__ == "QuestionFinished"]
        assert (
            [event.cached for event in finished] == [event.series for event in finished] == 3 * [len(first)]
        )


async def test_kept_panel_hides_no_publication(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `max_age=0` at once, otherwise once `max_age` is over."""
    async with service() as sandbox, client(sandbox) as asking, client(sandbox, max_age=0) as careful:
        old = await kept(asking)
        before = await careful.query(*QUESTION)
        sandbox.publish(NEW)
        assert await asking.query(*QUESTION) is old
        current = await careful.query(*QUESTION)
        assert current.dataset.dataset_id == NEW.publications[0].dataset_id != before.dataset.dataset_id
        later(asking, monkeypatch, seconds=3601)
        panel = await asking.query(*QUESTION)
        assert panel.requests > 0
        assert (panel.dataset, numbers(panel)) == (current.dataset, numbers(current))
        monkeypatch.undo()
        again = await kept(asking)
        assert (again.dataset, numbers(again)) == (current.dataset, numbers(current))


@pytest.mark.parametrize("status", [401, 403, 404])
@pytest.mark.parametrize("own", [True, False])
async def test_refusal_wins_over_kept_panel(status: int, own: bool) -> None:
    """What may not be read any more is withheld, whichever client of the cache has found out."""
    cache = MemoryCache()
    async with service() as sandbox, client(sandbox, cache) as asking, client(sandbox, cache) as other:
        panel = await kept(asking)
        sandbox.inject(Status(status=status, code="no", nth=1))
        if own or status == 401:
            with pytest.raises(AsyncfinError):
                await asking.dataset(ENTITY)
        else:
            with pytest.raises((PermissionDeniedError, NotFoundError)):
                await other.dataset(ENTITY)
        with pytest.raises(AsyncfinError):
            await asking.query(*QUESTION)
        if status != 401:  # a rejected token is not sent again for a while
            again = await asking.query(*QUESTION, max_age=0)  # one request for the metadata lifts it
            assert (again.requests, numbers(again)) == (1, numbers(panel))


async def test_only_the_confirmation_is_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The new panel shares values and bodies, and the old one keeps its moment."""
    async with service() as sandbox, client(sandbox) as asking:
        old = await kept(asking)
        body = (await reply(old, accept=None)).body
        moment = old.confirmed_at
        assert moment is not None
        confirmed = await asking.query(*QUESTION, max_age=0)
        assert confirmed.requests == 1
        again = await asking.query(*QUESTION)
        assert again is not old
        assert again.requests == 0
        assert again.confirmed_at == confirmed.confirmed_at
        assert again.confirmed_at > moment  # type: ignore[operator]
        assert old.confirmed_at == moment
        assert (await reply(again, accept=None)).body is body
        assert b'"requests":1' in (await reply(confirmed, accept=None)).body
        assert await asking.query(*QUESTION) is again


async def test_kept_panel_shows_age_in_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is returned for `stale_if_error`, and announced as stale; after that time it is an error."""
    events: list[Any] = []
    async with service() as sandbox, client(sandbox, stale_if_error=7200) as asking:
        panel = await kept(asking)
        sandbox.inject(Status(status=503))
        later(asking, monkeypatch, seconds=4000)
        with asking.observed(events.append):
            stale = [await asking.query(*QUESTION) for _ in range(12)]
        finished = [each for each in events if type(each).__name__ == "QuestionFinished"]
        assert all(each.stale for each in finished)
        assert {each.confirmed_at for each in stale} == {panel.confirmed_at}
        assert all(numbers(each) == numbers(panel) for each in stale)
        assert [each.requests for each in stale] == [each.requests for each in finished]
        later(asking, monkeypatch, seconds=8000)
        with pytest.raises(AsyncfinError):
            await asking.query(*QUESTION)


async def test_kept_panels_are_bounded() -> None:
    """The least recently used ones are dropped: one that is asked all the time is not."""
    small = generate(9, series=20, publications=1)
    async with service(small) as sandbox, client(sandbox) as asking:
        everything: Any = (small.entity_id, Select(), FiscalRange())
        favourite = await kept(asking, everything)
        alive: weakref.WeakSet[Panel] = weakref.WeakSet()
        for number in range(300):
            alive.add(await asking.query(small.entity_id, Select(name=str(number)), Annual()))
            if number % 10 == 0:
                assert await asking.query(*everything) is favourite
        gc.collect()
        assert 200 < len(alive) <= 256


async def test_cleared_cache_returns_no_panel() -> None:
    """After `clear` everything is read again, although the publication is the same."""
    async with service() as sandbox, client(sandbox, cache := MemoryCache()) as asking:
        panel = await kept(asking)
        await cache.clear(ENTITY)
        await asking.catalogue(ENTITY)
        again = await asking.query(*QUESTION)
        assert again.requests > 0
        assert numbers(again) == numbers(panel)


async def test_large_panels_are_not_kept() -> None:
    """More than 2,000 values, nor pieces, nor the panels of a predicate."""
    large = generate(3, series=150, publications=1, periods=60, fill=0.6)
    async with service(OLD, large) as sandbox, client(sandbox) as asking:
        everything: Any = (large.entity_id, Select(), FiscalRange())
        await asking.query(*everything)
        panels = [await asking.query(*everything) for _ in range(2)]
        assert panels[0].value_count > 2000
        await asking.query(*QUESTION)
        for _ in range(3):
            async with asking.stream(*QUESTION) as pieces:
                panels += [piece async for piece in pieces]
        predicate: Any = (ENTITY, Select(where=lambda series: True), Annual(last=2))
        panels += [await asking.query(*predicate) for _ in range(3)]
        assert len({*map(id, panels)}) == len(panels)


async def test_decoded_series_belong_to_one_panel() -> None:
    """What decoding keeps is that of one kept panel: the pages of 256 could be gigabytes."""
    async with service() as sandbox, client(sandbox) as asking:
        await asking.query(*QUESTION)
        catalogue = await asking.catalogue(ENTITY)
        panels = [
            await kept(asking, (ENTITY, Select.of(catalogue.series[at : at + 40]), Annual(last=2)))
            for at in (0, 40, 80)
        ]
        texts = [numbers(each) for each in panels]
        for panel in panels:
            question: Any = (ENTITY, panel.select, Annual(last=2))
            assert await asking.query(*question) is panel
            assert numbers(panel) in texts
        await asking.query(*QUESTION)
        await asking.query(*QUESTION)
        assert not any(each._grid.store._decode_page.cache_info().currsize for each in panels)
        assert [numbers(each) for each in panels] == texts
