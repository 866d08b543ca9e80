"""An equal question that needs no request gets the kept panel, and never one that may not be returned."""

import gc
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from asyncfin import (
    Annual,
    AsyncfinError,
    Client,
    FileCache,
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
from tests.cache.dict_store import DictCache
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
    for clock in ((publications, "clock"), (publications.records, "_clock")):
        monkeypatch.setattr(*clock, lambda: datetime.now(UTC) + timedelta(**how))


@pytest.mark.parametrize("kind", ["memory", "file", "dict"])
async def test_equal_query_returns_same_panel(kind: str, tmp_path: Path) -> None:
    """Also one of other objects, and a plan of it; the counts are those of any cached one."""
    caches: dict[str, Callable[[], Any]] = {
        "memory": MemoryCache,
        "file": lambda: FileCache(tmp_path),
        "dict": DictCache,
    }
    events: list[Any] = []
    async with service() as sandbox, client(sandbox, cache := caches[kind]()) as asking:
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
        assert cache.stats().misses == len(first)
        facts = [
            (
                type(each).__name__,
                {k: v for k, v in msgspec.structs.asdict(each).items() if k not in ("serial", "seconds")},
            )
            for each in events
        ]
        assert [name for name, _ in facts] == ["QuestionStarted", "QuestionFinished"] * 3
        assert facts[0:2] == facts[2:4] == facts[4:6]
        assert facts[1][1]["cached"] == facts[1][1]["series"] == len(first)
        assert len({each.serial for each in events}) == 3
        later_panel = await asking.query(*QUESTION)
        assert numbers(later_panel) == numbers(first)
        await cache.aclose()


async def test_kept_panel_hides_no_publication(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `max_age=0` at once, otherwise once `max_age` is over; and then the old panel is released."""
    async with service() as sandbox, client(sandbox) as asking, client(sandbox, max_age=0) as careful:
        old = await kept(asking)
        before = await careful.query(*QUESTION)
        released = weakref.ref(old)
        sandbox.publish(NEW)
        assert await asking.query(*QUESTION) is old
        new = await careful.query(*QUESTION)
        assert new.dataset.dataset_id == NEW.publications[0].dataset_id != before.dataset.dataset_id
        later(asking, monkeypatch, seconds=3601)
        found = await asking.query(*QUESTION)
        assert found.requests > 0
        assert (found.dataset, numbers(found)) == (new.dataset, numbers(new))
        del old
        gc.collect()
        assert released() is None
        monkeypatch.undo()
        again = await kept(asking)
        assert (again.dataset, numbers(again)) == (new.dataset, numbers(new))


async def test_max_age_zero_keeps_no_panel() -> None:
    async with service() as sandbox, client(sandbox, max_age=0) as asking:
        await asking.query(*QUESTION)
        sent = len(sandbox.log)
        panels = [await asking.query(*QUESTION) for _ in range(3)]
        assert [each.requests for each in panels] == [1, 1, 1]
        assert len(sandbox.log) == sent + 3
        assert len({*map(id, panels)}) == 3


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


async def catalogue_evicted(sandbox: Sandbox, cache: MemoryCache, asking: Client) -> None:
    kept_catalogues = asking._publications.kept
    kept_catalogues._bound = 1
    await asking.catalogue(OTHER.entity_id)


async def closed(sandbox: Sandbox, cache: MemoryCache, asking: Client) -> None:
    await asking.aclose()


@pytest.mark.parametrize("end", [catalogue_evicted, closed])
async def test_kept_panel_ends_with_catalogue(end: Any) -> None:
    """No reference is left, though the client and the cache are."""
    cache = MemoryCache()
    async with service(OLD, OTHER) as sandbox, client(sandbox, cache) as asking:
        released = weakref.ref(await kept(asking))
        gc.collect()
        assert released() is not None
        await end(sandbox, cache, asking)
        gc.collect()
        assert released() is None
        if end is not closed:
            assert numbers(await asking.query(*QUESTION)) == numbers(await asking.query(*QUESTION, max_age=0))


async def test_at_most_256_panels_are_kept() -> None:
    """The least recently used ones are dropped: one that is asked all the time is not."""
    small = generate(9, series=20, publications=1)
    async with service(small) as sandbox, client(sandbox) as asking:
        everything: Any = (small.entity_id, Select(), FiscalRange())
        favourite = await kept(asking, everything)
        metrics = sorted(favourite.catalogue.by_metric)
        alive: weakref.WeakSet[Panel] = weakref.WeakSet()
        for number in range(10_000):
            select = Select(metric_ids=metrics[number % len(metrics)], name=str(number))
            alive.add(await asking.query(small.entity_id, select, Annual()))
            if number % 100 == 0:
                assert await asking.query(*everything) is favourite
        gc.collect()
        assert 200 < len(alive) <= 256


async def test_large_panels_are_not_kept() -> None:
    """More than 2,000 values, a Catalogue as the source, several entities, pieces, and unlisted series."""
    large = generate(3, series=150, publications=1, periods=60, fill=0.6)
    async with service(OLD, large) as sandbox, client(sandbox) as asking:
        everything: Any = (large.entity_id, Select(), FiscalRange())
        await asking.query(*everything)
        panels = [await asking.query(*everything) for _ in range(2)]
        assert panels[0].value_count > 2000
        assert panels[0] is not panels[1]
        # The largest that is kept, and one value more.
        row = [len(list(series.observations())) for series in panels[0]]
        most = max(at for at in range(len(row)) if sum(row[:at]) <= 2000)
        for series, is_kept in ((most, True), (most + 1, False)):
            question = (large.entity_id, Select(series_ids=panels[0].series_ids[:series]), FiscalRange())
            found = [await asking.query(*question) for _ in range(2)]
            assert (found[0] is found[1]) == is_kept
        catalogue = await asking.catalogue(ENTITY)
        panels = [await asking.query(catalogue, Select(), Annual(last=2)) for _ in range(3)]
        assert panels[1] is not panels[2]
        for _ in range(3):
            async with asking.query_many([ENTITY], Select(), Annual(last=2)) as answers:
                panels += [answer.panel async for answer in answers if answer.panel]
            async with asking.stream(*QUESTION) as pieces:
                panels += [piece async for piece in pieces]
        predicate: Any = (ENTITY, Select(where=lambda series: True), Annual(last=2))
        panels += [await asking.query(*predicate) for _ in range(3)]
        assert len({*map(id, panels)}) == len(panels)
        first = await asking.query(*QUESTION)
        assert first not in panels
        assert await asking.query(*QUESTION) is first


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
        assert not any(each._grid.store._decoded for each in panels)
        assert [numbers(each) for each in panels] == texts
