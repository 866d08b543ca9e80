"""Questions of a client with a cache: what was read once is not asked for again, and nothing is mixed."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from asyncfin import (
    Annual,
    AuthenticationError,
    Client,
    FileCache,
    FiscalRange,
    MemoryCache,
    NotFoundError,
    PermissionDeniedError,
    Retry,
    Select,
    SelectionError,
    ServiceError,
    Trailing,
    TransportError,
    read_entity,
)
from asyncfin.sandbox import Dialect, Drop, Fault, Latency, Sandbox, Slow, Status
from asyncfin.sandbox.dataset import DatasetFile
from tests import examples
from tests.generate import generate
from tests.read.test_answers import DATASETS, DIALECTS, content, expected, period_selections, run, texts

BOTH = generate(7, series=150, publications=2)
OLD, NEW = (DatasetFile(BOTH.entity_id, BOTH.name, (publication,)) for publication in BOTH.publications)
ENTITY = BOTH.entity_id
ONCE = Retry(attempts=1)
virtual = pytest.mark.virtual


@asynccontextmanager
async def service(*datasets: Any, **options: Any) -> AsyncIterator[Sandbox]:
    async with Sandbox(*(datasets or (OLD,)), **options) as sandbox:
        yield sandbox


def client(sandbox: Sandbox, cache: MemoryCache | FileCache | None = None, **options: Any) -> Client:
    return Client(sandbox.base_url, sandbox.token, cache=cache, **options)


def asked(sandbox: Sandbox, since: int = 0) -> list[str | None]:
    return [served.operation for served in list(sandbox.log)[since:]]


@virtual
async def test_smaller_query_sends_nothing() -> None:
    """Any series, any periods; the panel says when its publication was last confirmed."""
    before = datetime.now(UTC)
    async with service() as sandbox, client(sandbox, MemoryCache(), max_age=60) as cached:
        whole = await cached.query(ENTITY, Select(), FiscalRange())
        assert whole.requests == len(sandbox.log)
        assert whole.confirmed_at is not None
        assert before <= whole.confirmed_at <= datetime.now(UTC)
        spent = len(sandbox.log)
        some = Select.of(whole.series[3:9])
        for periods in (FiscalRange(), Annual(last=1), Trailing(12), FiscalRange(2023)):
            plan = await cached.plan(ENTITY, some, periods)
            assert (len(plan.cached), plan.requests, plan.batches, plan.lower_bound) == (6, 0, (), 0)
            assert "6 of them are cached" in str(plan)
            panel = await cached.query(ENTITY, some, periods)
            assert panel.requests == 0
            assert panel.confirmed_at == whole.confirmed_at
            async with client(sandbox) as plain:
                other = await plain.query(whole.catalogue, some, periods)
            assert (panel.periods, content(panel), panel.anchor) == (
                other.periods,
                content(other),
                other.anchor,
            )
            spent += other.requests
        assert len(sandbox.log) == spent


@virtual
async def test_one_metadata_request_confirms_the_cache() -> None:
    """A question whose values are cached costs no more; `max_age` can also be given with the question."""
    async with service() as sandbox, client(sandbox, MemoryCache()) as cached:
        await cached.query(ENTITY, Select(), FiscalRange())
        spent = len(sandbox.log)
        panel = await cached.query(ENTITY, Select(), Annual())
        assert (asked(sandbox, spent), panel.requests) == (["dataset"], 1)
        assert (await cached.query(ENTITY, Select(), Annual(), max_age=60)).requests == 0
        async with cached.stream(ENTITY, Select(), Annual(), max_age=60) as pieces:
            came = [piece async for piece in pieces]
        assert content(panel) == {name: row for piece in came for name, row in content(piece).items()}
        assert len(await cached.catalogue(ENTITY, max_age=60)) == len(panel)
        assert asked(sandbox, spent) == ["dataset"]


@virtual
async def test_cached_stream_is_confirmed_first() -> None:
    """Everything is cached, but another publication is current: the pieces are of that one."""
    async with service() as sandbox, client(sandbox, MemoryCache()) as cached:
        old = await cached.query(ENTITY, Select(), FiscalRange())
        sandbox.publish(NEW)
        async with cached.stream(ENTITY, Select(), FiscalRange()) as pieces:
            names = {piece.dataset.dataset_id async for piece in pieces}
        assert len(names) == 1
        assert old.dataset.dataset_id not in names


@virtual
async def test_only_missing_values_are_requested() -> None:
    """Responses about missing series confirm the publication, so no metadata request is sent."""
    async with service() as sandbox, client(sandbox, MemoryCache()) as cached:
        catalogue = await cached.catalogue(ENTITY)
        few = Select.of(catalogue.series[:2])
        await cached.query(ENTITY, few, Annual())
        spent = len(sandbox.log)
        plan = await cached.plan(ENTITY, Select(), Annual())
        assert {*plan.cached} >= {*catalogue.series[:2]}
        home = {each for batch in plan.batches for each in batch.home}
        assert home == {each.series_id for each in catalogue} - {each.series_id for each in plan.cached}
        panel = await cached.run(plan)
        assert asked(sandbox, spent) == ["query"] * plan.requests
        assert panel.requests == plan.requests
        async with client(sandbox) as plain:
            assert content(panel) == content(await plain.query(ENTITY, Select(), Annual()))


@virtual
async def test_given_catalogue_is_read_from_cache() -> None:
    """A given catalogue that is no longer current is answered from the cache without a request."""
    async with service() as sandbox, client(sandbox, MemoryCache()) as cached:
        whole = await cached.query(ENTITY, Select(), FiscalRange())
        sandbox.publish(NEW)
        spent = len(sandbox.log)
        panel = await cached.query(whole.catalogue, Select(), Annual())
        assert panel.requests == 0
        assert panel.dataset == whole.dataset
        newer = await cached.query(ENTITY, Select(), FiscalRange())
        assert newer.dataset != whole.dataset
        again = await cached.query(whole.catalogue, Select(), Annual())
        assert (again.requests, content(again)) == (0, content(panel))
        assert "dataset" in asked(sandbox, spent)


@virtual
@pytest.mark.parametrize(
    ("status", "error"), [(401, AuthenticationError), (403, PermissionDeniedError), (404, NotFoundError)]
)
async def test_rejected_entity_is_withheld(status: int, error: type[Exception]) -> None:
    """What may not be read any more is withheld at once, in spite of stale_if_error, and within max_age."""
    async with service() as sandbox, client(sandbox, MemoryCache(), stale_if_error=1e9) as cached:
        await cached.query(ENTITY, Select(), FiscalRange())
        sandbox.inject(Status(status=status, code="no"))
        with pytest.raises(error):
            await cached.query(ENTITY, Select(), Annual())
        with pytest.raises(error):
            await cached.query(ENTITY, Select(), Annual(), max_age=1e9)


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
    """A publication may be replaced while the response is on its way, so it is taken before the request."""
    received: list[datetime] = []

    def clock() -> datetime:
        received.append(datetime.now(UTC))
        return received[-1]

    async with service(clock=clock) as sandbox, client(sandbox, MemoryCache()) as cached:
        for periods in (FiscalRange(), Annual()):
            panel = await cached.query(ENTITY, Select(), periods)
            assert panel.confirmed_at is not None
            assert panel.confirmed_at <= received[-1]


UNTOLD = {
    "failure": Status(status=503, operation="dataset"),
    "allowance": Status(status=429, retry_after=80_000, operation="dataset"),
    "no connection": Drop(operation="dataset"),
}
untold = pytest.mark.parametrize("fault", UNTOLD.values(), ids=UNTOLD)


@virtual
@untold
@pytest.mark.parametrize("with_cache", [False, True])
async def test_cached_catalogue_survives_an_outage(fault: Fault, with_cache: bool) -> None:
    """No longer than `stale_if_error` allows; a plan that is made of it needs no request either."""
    cache = MemoryCache() if with_cache else None
    for seconds in (600, 1e-6):
        async with service() as sandbox, client(sandbox, cache, stale_if_error=seconds, retry=ONCE) as asking:
            known = await asking.catalogue(ENTITY)
            sandbox.inject(fault)
            if seconds < 1:
                with pytest.raises((ServiceError, TransportError)):
                    await asking.catalogue(ENTITY)
                continue
            assert await asking.catalogue(ENTITY) is known
            for nothing in (Select(where=lambda series: False), Select("no such metric")):
                with pytest.raises(SelectionError):
                    await asking.plan(ENTITY, nothing, Annual())


@virtual
@untold
async def test_new_client_survives_an_outage(fault: Fault) -> None:
    """The catalogue, a plan, a panel and its pieces; `confirmed_at` says how old they are."""
    cache = MemoryCache()
    async with service() as sandbox:
        async with client(sandbox, cache) as first:
            whole = await first.query(ENTITY, Select(), FiscalRange())
        sandbox.inject(fault)
        async with client(sandbox, cache, stale_if_error=600, retry=ONCE) as asking:
            assert await asking.catalogue(ENTITY) == whole.catalogue
            plan = await asking.plan(ENTITY, Select(), FiscalRange())
            assert len(plan.cached) == len(whole)
            panel = await asking.run(plan)
            assert (panel.confirmed_at, content(panel)) == (whole.confirmed_at, content(whole))
            async with asking.stream(ENTITY, Select(), FiscalRange()) as pieces:
                came = [piece async for piece in pieces]
            assert {piece.confirmed_at for piece in came} == {whole.confirmed_at}
            assert {name: row for piece in came for name, row in content(piece).items()} == content(whole)


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
        for each in (asking, patient):
            await each.query(ENTITY, Select(), FiscalRange())
        sandbox.inject(Status(status=503, operation="dataset"))
        for _ in range(10):
            began_at, spent = loop.time(), len(sandbox.log)
            await asking.catalogue(ENTITY)
            assert loop.time() - began_at <= 2.01
            assert 2 <= len(sandbox.log) - spent <= 4
        assert asking.stats().outage_since is None  # one entity may fail alone
        began_at, spent = loop.time(), len(sandbox.log)
        await patient.catalogue(ENTITY)
        assert len(sandbox.log) == spent + 5
        assert loop.time() > began_at


@virtual
@pytest.mark.parametrize(("retry_after", "statuses"), [(1, [429, 200]), (5, [429])])
async def test_short_429_before_a_stale_result(retry_after: int, statuses: list[int]) -> None:
    """It is waited for within the two seconds."""
    async with service() as sandbox, client(sandbox, None, stale_if_error=600) as asking:
        await asking.catalogue(ENTITY)
        sandbox.inject(Status(status=429, retry_after=retry_after, operation="dataset", nth=1))
        spent = len(sandbox.log)
        await asking.catalogue(ENTITY)
        assert [served.status for served in list(sandbox.log)[spent:]] == statuses


@virtual
async def test_evicted_series_are_requested_again() -> None:
    """The plan named cached series that are gone when it runs."""
    cache = MemoryCache()
    async with service() as sandbox, client(sandbox, cache, max_age=60) as cached:
        whole = await cached.query(ENTITY, Select(), FiscalRange())
        plan = await cached.plan(ENTITY, Select(), FiscalRange())
        assert plan.requests == 0
        await cache.clear()
        panel = await cached.run(plan)
        assert panel.requests > 0
        assert content(panel) == content(whole)


@virtual
@pytest.mark.parametrize("with_cache", [False, True])
async def test_equal_queries_share_their_requests(with_cache: bool) -> None:
    """Shared requests count for the question that came first, and leaving it spoils no other."""
    cache = MemoryCache() if with_cache else None
    slow = Latency(seconds=1)
    async with service(faults=[slow]) as sandbox, client(sandbox, cache) as one:
        cost = (await one.query(ENTITY, Select(), Annual())).requests
        del slow
    async with service(faults=[Latency(seconds=1)]) as sandbox, client(sandbox, cache) as shared:
        reads = [asyncio.ensure_future(shared.query(ENTITY, Select(), Annual())) for _ in range(20)]
        await asyncio.sleep(1.5)
        reads[0].cancel()
        reads[7].cancel()
        panels = [await read for read in reads if read not in (reads[0], reads[7])]
        assert len(sandbox.log) == cost
        assert all(content(panel) == content(panels[0]) for panel in panels)
        assert [panel.requests for panel in panels] == [0] * 18


@virtual
async def test_overlapping_queries_request_series_once() -> None:
    """Each series is under way once; a question waits for those of others and asks for its own."""
    async with service(faults=[Latency(operation="query", seconds=1)]) as sandbox:
        async with client(sandbox, MemoryCache()) as cached:
            catalogue = await cached.catalogue(ENTITY)
            spent = len(sandbox.log)
            selects = [Select.of(catalogue.series[at : at + 60]) for at in (0, 30, 60, 90)]
            jobs = [cached.query(ENTITY, select, FiscalRange()) for select in selects]
            panels = await asyncio.gather(*jobs)
            assert sum(panel.requests for panel in panels) == len(sandbox.log) - spent
            homes = [
                (tuple(served.body["metric_ids"]), str(served.body["scope_combinations"]))
                for served in list(sandbox.log)[spent:]
            ]
        assert len(set(homes)) == len(homes)
        async with client(sandbox) as plain:
            for select, panel in zip(selects, panels, strict=True):
                assert content(panel) == content(await plain.query(catalogue, select, FiscalRange()))


@virtual
async def test_many_small_queries_share_a_page() -> None:
    """Ten panels of a page, queried at once: the first one's request brings the neighbours."""
    async with service() as sandbox, client(sandbox, MemoryCache(), max_age=60) as cached:
        catalogue = await cached.catalogue(ENTITY)
        spent = len(sandbox.log)
        jobs = [cached.query(ENTITY, Select.of(series), FiscalRange()) for series in catalogue.series[:10]]
        await asyncio.gather(*jobs)
        assert asked(sandbox, spent) == ["query"]


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


@st.composite
def conversations(draw: st.DrawFn) -> tuple[DatasetFile, list[tuple[set[str], Any, str, bool]]]:
    """Draw a dataset, and a few questions about it: series, periods, version, and whether it is streamed."""
    dataset = DATASETS[draw(st.integers(0, 3))]
    ids = [each["series_id"] for group in dataset.publications[-1].groups for each in group["series"]]
    questions = []
    for _ in range(draw(st.integers(1, 3))):
        share = draw(st.sampled_from([1.0, 0.3, 0.05]))
        wanted = {*random.Random(draw(st.integers(0, 99))).sample(ids, max(1, int(share * len(ids))))}
        version = draw(st.sampled_from(["original", "latest_restated"]))
        questions.append((wanted, draw(period_selections(dataset)), version, draw(st.booleans())))
    return dataset, questions


@settings(max_examples=examples(25))
@given(conversations(), DIALECTS, st.booleans(), st.booleans())
def test_a_cache_changes_no_answer(
    conversation: tuple[DatasetFile, list[tuple[set[str], Any, Any, bool]]],
    dialect: Dialect,
    believing: bool,
    in_memory: bool,
) -> None:
    """Any selections, periods, versions and dialects, cold and warm, whole or in pieces.

    By two clients in turn, which share a cache in memory, or the folder of two caches, as two processes do.
    """
    dataset, questions = conversation

    async def ask(folder: str) -> None:
        shared = MemoryCache()
        caches = [shared, shared] if in_memory else [FileCache(folder, account="desk") for _ in range(2)]
        async with (
            Sandbox(dataset, dialect=dialect) as sandbox,
            client(sandbox, caches[0], max_age=60 * believing) as first,
            client(sandbox, caches[1], max_age=60 * believing) as second,
        ):
            for nth, (wanted, periods, version, streamed) in enumerate(questions):
                shown, values = expected(dataset.publications[-1], wanted, periods, version)
                select = Select(where=lambda series, wanted=wanted: series.series_id in wanted)
                asking, question = (first, second)[nth % 2], (dataset.entity_id, select, periods)
                if streamed:
                    async with asking.stream(*question, value_version=version) as pieces:
                        panels = [piece async for piece in pieces]
                else:
                    panels = [await asking.query(*question, value_version=version)]
                    assert list(panels[0].periods) == shown
                assert {k: v for panel in panels for k, v in content(panel).items()} == texts(values)
                assert sum(len(panel) for panel in panels) == len(wanted)
                assert sum(panel.value_count for panel in panels) == sum(map(len, values.values()))
        for cache in caches:
            assert cache.stats().broken == 0
            await cache.aclose()

    with TemporaryDirectory() as parent:
        run(partial(ask, f"{parent}/cache"))


@virtual
@pytest.mark.parametrize("periods", [Annual(), Trailing(12), FiscalRange()])
async def test_query_without_fill_uses_the_cache(periods: Any) -> None:
    """A question that may not fill the cache asks only for what is missing, and leaves it as it was."""
    cache = MemoryCache()
    async with service() as sandbox, client(sandbox, cache) as cached, client(sandbox) as plain:
        catalogue = await cached.catalogue(ENTITY)
        await cached.query(ENTITY, Select.of(catalogue.series[:20]), FiscalRange())
        before = cache.stats()
        panel = await cached.query(ENTITY, Select(), periods, fill_cache=False)
        after = cache.stats()
        assert (before.series, before.bytes) == (after.series, after.bytes)
        assert before.series < len(panel)
        other = await plain.query(ENTITY, Select(), periods)
        assert (content(panel), panel.periods, panel.anchor) == (content(other), other.periods, other.anchor)
        async with cached.stream(ENTITY, Select(), periods, fill_cache=False) as pieces:
            came = {
                name: row for piece in [each async for each in pieces] for name, row in content(piece).items()
            }
        assert came == content(other)
        assert cache.stats().series == before.series


@virtual
async def test_read_entity_uses_the_cache() -> None:
    """A night's run would evict what visitors use."""
    cache = MemoryCache()
    async with service() as sandbox, client(sandbox, cache) as cached:
        await read_entity(cached, ENTITY, Select(), Annual())
        assert cache.stats().series == 0
        await cached.query(ENTITY, Select(), FiscalRange())
        spent = len(sandbox.log)
        await read_entity(cached, ENTITY, Select(), Annual())
        assert asked(sandbox, spent) == ["dataset"]
