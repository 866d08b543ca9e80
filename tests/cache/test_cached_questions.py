"""Questions of a client with a cache: what was read once is not asked for again, and nothing is mixed."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from asyncfin import Annual, Client, FileCache, FiscalRange, MemoryCache, Retry, Select, Trailing, read_entity
from asyncfin.errors import AuthenticationError, SelectionError, ServiceError, TransportError
from asyncfin.sandbox import Drop, Fault, Latency, Sandbox, Slow, Status
from asyncfin.sandbox.dataset import DatasetFile
from tests.generate import generate
from tests.read.test_answers import content

BOTH = generate(7, series=150, publications=2)
OLD, NEW = (DatasetFile(BOTH.entity_id, BOTH.name, (publication,)) for publication in BOTH.publications)
ENTITY = BOTH.entity_id
ONCE = Retry(attempts=1)
virtual = pytest.mark.virtual


def service(*datasets: Any, **options: Any) -> Sandbox:
    return Sandbox(*(datasets or (OLD,)), **options)


def client(sandbox: Sandbox, cache: MemoryCache | FileCache | None = None, **options: Any) -> Client:
    return Client(sandbox.base_url, sandbox.token, cache=cache, **options)


def operations(sandbox: Sandbox, since: int = 0) -> list[str | None]:
    return [served.operation for served in list(sandbox.log)[since:]]


async def collect(client: Client, *query: Any, **options: Any) -> dict[str, Any]:
    """Return the content of a stream's pieces."""
    rows: dict[str, Any] = {}
    async with client.stream(*query, **options) as pieces:
        async for piece in pieces:
            assert rows.keys().isdisjoint(content(piece))
            rows |= content(piece)
    return rows


@virtual
async def test_smaller_query_sends_nothing() -> None:
    """Any series, any periods; the panel says when its publication was last confirmed."""
    before = datetime.now(UTC)
    async with service() as sandbox, client(sandbox, MemoryCache(), max_age=60) as cached:
        whole = await cached.query(ENTITY, Select(), FiscalRange())
        assert whole.requests == len(sandbox.log)
        assert whole.confirmed_at is not None
        assert before <= whole.confirmed_at <= datetime.now(UTC)
        few = Select.of(whole.series[3:9])
        for periods in (FiscalRange(), Annual(last=1), Trailing(12)):
            plan = await cached.plan(ENTITY, few, periods)
            assert (len(plan.cached), plan.requests, plan.batches, plan.lower_bound) == (6, 0, (), 0)
            assert "6 of them are cached" in str(plan)
            panel = await cached.query(ENTITY, few, periods)
            assert (panel.requests, panel.confirmed_at) == (0, whole.confirmed_at)
        assert len(sandbox.log) == whole.requests


@virtual
@pytest.mark.parametrize("kind", ["memory", "another process"])
async def test_one_metadata_request_confirms_the_cache(kind: str, tmp_path: Path) -> None:
    """A query whose values are cached costs no more; `max_age` can be that of the query.

    A slash at the end of the address changes nothing.
    """
    memory = MemoryCache()
    caches = [memory if kind == "memory" else FileCache(tmp_path / "cache") for _ in range(2)]
    async with service() as sandbox, client(sandbox, caches[0]) as first:
        await first.query(ENTITY, Select(), FiscalRange())
        spent = len(sandbox.log)
        async with Client(sandbox.base_url + "/", sandbox.token, cache=caches[1]) as cached:
            panel = await cached.query(ENTITY, Select(), Annual())
            assert (operations(sandbox, spent), panel.requests) == (["dataset"], 1)
            assert (await cached.query(ENTITY, Select(), Annual(), max_age=60)).requests == 0
            assert content(panel) == await collect(cached, ENTITY, Select(), Annual(), max_age=60)
            assert len(await cached.catalogue(ENTITY, max_age=60)) == len(panel)
        assert operations(sandbox, spent) == ["dataset"]


@virtual
async def test_only_missing_values_are_requested() -> None:
    """Responses about missing series confirm the publication, so no metadata request is sent."""
    async with service() as sandbox, client(sandbox, MemoryCache()) as cached:
        catalogue = await cached.catalogue(ENTITY)
        await cached.query(ENTITY, Select.of(catalogue.series[:2]), Annual())
        spent = len(sandbox.log)
        plan = await cached.plan(ENTITY, Select(), Annual())
        assert {*plan.cached} >= {*catalogue.series[:2]}
        home = {series_id for batch in plan.batches for series_id in batch.home}
        cached_ids = {series.series_id for series in plan.cached}
        assert home == {series.series_id for series in catalogue} - cached_ids
        panel = await cached.run(plan)
        assert operations(sandbox, spent) == ["query"] * plan.requests
        assert panel.requests == plan.requests


@virtual
async def test_replaced_publication_is_its_catalogue_s() -> None:
    """It is no answer of the entity, nor a piece of a stream, but of its catalogue, without a request."""
    async with service() as sandbox, client(sandbox, MemoryCache()) as cached:
        old = await cached.query(ENTITY, Select(), FiscalRange())
        sandbox.publish(NEW)
        async with cached.stream(ENTITY, Select(), FiscalRange()) as pieces:
            (name,) = {piece.dataset.dataset_id async for piece in pieces}
        new = await cached.query(ENTITY, Select(), FiscalRange())
        assert old.dataset.dataset_id != name == new.dataset.dataset_id
        panel = await cached.query(old.catalogue, Select(), FiscalRange())
        assert (panel.requests, panel.dataset, content(panel)) == (0, old.dataset, content(old))


@virtual
async def test_late_response_lifts_no_401() -> None:
    """A late 200 says what held when it was sent: what is cached stays withheld."""
    async with service() as sandbox, client(sandbox, MemoryCache(), max_age=1e9) as cached:
        await cached.query(ENTITY, Select(), FiscalRange())
        sandbox.inject(
            Slow(seconds=1.0, nth=1, operation="dataset"), Status(status=401, nth=2, operation="dataset")
        )
        async with asyncio.TaskGroup() as tasks:
            late = tasks.create_task(cached.dataset(ENTITY))
            await asyncio.sleep(0.5)
            with pytest.raises(AuthenticationError):
                await cached.dataset(ENTITY)
            assert not late.done()
        sandbox.inject(Status(status=401))
        with pytest.raises(AuthenticationError):
            await cached.query(ENTITY, Select(), Annual())


@virtual
async def test_confirmation_dates_from_its_request() -> None:
    """A publication may be replaced while the response is on its way."""
    times: list[datetime] = []

    def clock() -> datetime:
        times.append(datetime.now(UTC))
        return times[-1]

    async with service(clock=clock) as sandbox, client(sandbox, MemoryCache()) as cached:
        for periods in (FiscalRange(), Annual()):
            panel = await cached.query(ENTITY, Select(), periods)
            assert panel.confirmed_at is not None
            assert panel.confirmed_at <= times[-1]


@virtual
@pytest.mark.parametrize("fault", [Status(status=503), Status(status=429, retry_after=80_000), Drop()])
@pytest.mark.parametrize("with_cache", [False, True])
async def test_outage_is_survived(fault: Fault, with_cache: bool) -> None:
    """With a cache by a new client. No longer than `stale_if_error` allows."""
    cache = MemoryCache() if with_cache else None
    async with service() as sandbox, client(sandbox, cache, stale_if_error=600, retry=ONCE) as first:
        whole = await first.query(ENTITY, Select(), FiscalRange())
        sandbox.inject(evolve(fault, operation="dataset"))
        asking = client(sandbox, cache, stale_if_error=600, retry=ONCE) if cache else first
        async with asking, client(sandbox, cache, stale_if_error=1e-6, retry=ONCE) as strict:
            assert await asking.catalogue(ENTITY) == whole.catalogue
            with pytest.raises(SelectionError):
                await asking.plan(ENTITY, Select("no such metric"), Annual())
            if cache:
                with pytest.raises((ServiceError, TransportError)):
                    await strict.catalogue(ENTITY)
                plan = await asking.plan(ENTITY, Select(), FiscalRange())
                panel = await asking.run(plan)
                assert (panel.confirmed_at, content(panel)) == (whole.confirmed_at, content(whole))
                assert await collect(asking, ENTITY, Select(), FiscalRange()) == content(whole)


@virtual
@pytest.mark.parametrize("with_cache", [False, True])
async def test_stale_result_after_two_seconds(with_cache: bool) -> None:
    """Retries included; the bulk lane retries as `Retry` says."""
    loop = asyncio.get_running_loop()
    cache = MemoryCache() if with_cache else None
    async with (
        service() as sandbox,
        client(sandbox, cache, stale_if_error=600) as asking,
        client(sandbox, cache, stale_if_error=600, lane="bulk") as patient,
    ):
        await asking.query(ENTITY, Select(), FiscalRange())
        await patient.query(ENTITY, Select(), FiscalRange())
        sandbox.inject(Status(status=503, operation="dataset"))
        for _ in range(10):
            began_at, spent = loop.time(), len(sandbox.log)
            await asking.catalogue(ENTITY)
            assert loop.time() - began_at <= 2.01
            assert 2 <= len(sandbox.log) - spent <= 4
        assert asking.stats().outage_since is None  # one entity may fail alone
        spent = len(sandbox.log)
        await patient.catalogue(ENTITY)
        assert len(sandbox.log) == spent + 5


@virtual
@pytest.mark.parametrize("with_cache", [False, True])
async def test_equal_queries_share_their_requests(with_cache: bool) -> None:
    """The requests count for the query that came first, and leaving it spoils no other."""
    cache = MemoryCache() if with_cache else None
    async with service(faults=[Latency(seconds=1)]) as sandbox, client(sandbox) as plain:
        cost = (await plain.query(ENTITY, Select(), Annual())).requests
        async with client(sandbox, cache) as shared:
            reads = [asyncio.ensure_future(shared.query(ENTITY, Select(), Annual())) for _ in range(20)]
            await asyncio.sleep(1.5)
            reads.pop(0).cancel()
            reads.pop(6).cancel()
            panels = await asyncio.gather(*reads)
        assert len(sandbox.log) == 2 * cost
    assert all(content(panel) == content(panels[0]) for panel in panels)
    assert [panel.requests for panel in panels] == [0] * 18


@virtual
async def test_many_small_queries_share_a_page() -> None:
    """Ten panels of a page, queried at once: the first one's request brings the neighbours."""
    async with service() as sandbox, client(sandbox, MemoryCache(), max_age=60) as cached:
        catalogue = await cached.catalogue(ENTITY)
        spent = len(sandbox.log)
        jobs = [cached.query(ENTITY, Select.of(series), FiscalRange()) for series in catalogue.series[:10]]
        await asyncio.gather(*jobs)
        assert operations(sandbox, spent) == ["query"]


@virtual
async def test_series_may_be_evicted_meanwhile() -> None:
    """A query took some from the cache, and waits for another one before it requests the others."""
    cache = MemoryCache()
    faults = [Latency(operation="query", seconds=1)]
    whole = generate(17, series=1000, publications=1)
    async with service(whole, faults=faults) as sandbox, client(sandbox, cache, max_age=60) as cached:
        catalogue = await cached.catalogue(whole.entity_id)
        await cached.query(whole.entity_id, Select.of(catalogue.series[0]), FiscalRange())
        plan = await cached.plan(whole.entity_id, Select(), FiscalRange())
        other, *_, missing = [series for series in plan.series if series not in plan.cached]
        first = asyncio.create_task(cached.query(whole.entity_id, Select.of(other), FiscalRange()))
        await asyncio.sleep(0.3)
        both = Select.of([catalogue.series[0], missing])
        second = asyncio.create_task(cached.query(whole.entity_id, both, FiscalRange()))
        await asyncio.sleep(0.3)
        await cache.clear()
        await first
        assert len(await second) == 2


@virtual
@pytest.mark.parametrize("periods", [Annual(), Trailing(12), FiscalRange()])
async def test_query_without_fill_uses_the_cache(periods: Any) -> None:
    """It requests what is missing, and leaves the cache as it was; `read_entity` does so too."""
    cache = MemoryCache()
    async with service() as sandbox, client(sandbox, cache) as cached, client(sandbox) as plain:
        catalogue = await cached.catalogue(ENTITY)
        await cached.query(ENTITY, Select.of(catalogue.series[:20]), FiscalRange())
        before = cache.stats()
        panel = await cached.query(ENTITY, Select(), periods, fill_cache=False)
        right = await plain.query(ENTITY, Select(), periods)
        assert (content(panel), panel.periods, panel.anchor) == (content(right), right.periods, right.anchor)
        assert await collect(cached, ENTITY, Select(), periods, fill_cache=False) == content(right)
        await read_entity(cached, ENTITY, Select(), periods)
        after = cache.stats()
        assert (after.series, after.bytes) == (before.series, before.bytes)
        assert before.series < len(panel)
        await cached.query(ENTITY, Select(), FiscalRange())
        spent = len(sandbox.log)
        await read_entity(cached, ENTITY, Select(), periods)
        assert operations(sandbox, spent) == ["dataset"]
