"""Questions of a client with a cache: what was read once is not asked for again, and nothing is mixed."""

import asyncio
import pickle
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from asyncfin import (
    Annual,
    AuthenticationError,
    Catalogue,
    Client,
    Exact,
    FileCache,
    FiscalRange,
    MalformedAnswerError,
    MemoryCache,
    NotFoundError,
    PermissionDeniedError,
    Query,
    Retry,
    Select,
    SelectionError,
    ServerFailureError,
    ServiceError,
    Trailing,
    TransportError,
    read_entity,
)
from asyncfin.plan.fill import for_cache
from asyncfin.plan.plan import without_batches
from asyncfin.plan.question import Question
from asyncfin.sandbox import Dialect, Drop, Fault, Latency, Sandbox, Slow, Status, Switch
from asyncfin.sandbox.dataset import DatasetFile
from tests import examples
from tests.generate import generate
from tests.read.test_answers import DATASETS, DIALECTS, content, expected, period_selections, run, texts
from tests.services.altering import altered

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
async def test_a_smaller_question_after_a_larger_one_sends_nothing_within_max_age() -> None:
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
async def test_without_max_age_one_metadata_request_confirms_what_is_cached() -> None:
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
async def test_a_stream_of_cached_values_is_confirmed_before_its_first_piece() -> None:
    """Everything is cached, but another publication is current: the pieces are of that one."""
    async with service() as sandbox, client(sandbox, MemoryCache()) as cached:
        old = await cached.query(ENTITY, Select(), FiscalRange())
        sandbox.publish(NEW)
        async with cached.stream(ENTITY, Select(), FiscalRange()) as pieces:
            names = {piece.dataset.dataset_id async for piece in pieces}
        assert len(names) == 1
        assert old.dataset.dataset_id not in names


@virtual
async def test_what_lacks_is_asked_for_and_nothing_else() -> None:
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
async def test_thirty_questions_take_at_most_a_third_of_the_requests() -> None:
    """Pages are filled up with neighbours, which the next questions are likely to be about."""
    whole = generate(17, series=1000, publications=1)
    draw = random.Random(5)
    async with service(whole) as sandbox, client(sandbox) as plain, client(sandbox, MemoryCache()) as cached:
        catalogue = await plain.catalogue(whole.entity_id)
        await cached.catalogue(whole.entity_id)
        metrics, paths = sorted(catalogue.by_metric), sorted(catalogue.by_path)
        questions = [
            draw.choice(
                (
                    Select(metric_ids=draw.sample(metrics, 15)),
                    Select(scope_combinations=[draw.choice(paths)]),
                    Select.of(draw.sample(catalogue.series, 60)),
                )
            )
            for _ in range(30)
        ]
        spent = [0, 0]
        for select in questions:
            panels = [await each.query(catalogue, select, Annual()) for each in (plain, cached)]
            assert content(panels[0]) == content(panels[1])
            spent = [count + panel.requests for count, panel in zip(spent, panels, strict=True)]
    assert spent[1] <= 0.35 * spent[0]


@pytest.fixture(scope="module")
def tables() -> dict[str, Any]:
    """The content of each publication, by its id."""

    async def content_of(dataset: DatasetFile) -> tuple[str, Any]:
        async with service(dataset) as sandbox, client(sandbox) as plain:
            panel = await plain.query(ENTITY, Select(), FiscalRange())
            return panel.dataset.dataset_id, content(panel)

    return dict(asyncio.run(content_of(dataset)) for dataset in (OLD, NEW))


@virtual
@pytest.mark.parametrize("nth", range(1, 12))
@pytest.mark.parametrize("in_memory", [True, False])
async def test_a_new_publication_is_never_mixed_with_what_is_cached(
    nth: int, in_memory: bool, tmp_path: Path, tables: dict[str, Any]
) -> None:
    """It comes at any request: whatever is given is wholly of the publication that it names.

    Two clients ask in turn, which share a cache in memory, or the folder of two caches, as two processes do.
    """
    shared = MemoryCache()
    caches = [shared, shared] if in_memory else [FileCache(tmp_path / "cache") for _ in range(2)]
    async with service() as sandbox, client(sandbox, caches[0]) as one, client(sandbox, caches[1]) as other:
        catalogue = await one.catalogue(ENTITY)
        sandbox.inject(Switch(nth=nth, publication=NEW))
        for count in (3, 40, 90, 150):
            select = Select.of(catalogue.series[:count])
            for cached in (one, other):
                with suppress(SelectionError):  # the new one may not have some of them
                    panel = await cached.query(ENTITY, select, FiscalRange())
                    table = tables[panel.dataset.dataset_id]
                    assert content(panel) == {each: table[each] for each in panel.series_ids}
        for cached in (one, other):
            panel = await cached.query(ENTITY, Select(), FiscalRange())
            assert content(panel) == tables[panel.dataset.dataset_id]
    for cache in caches:
        await cache.aclose()


@virtual
async def test_a_given_catalogue_is_answered_from_the_cache_though_it_is_no_longer_current() -> None:
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
async def test_what_may_not_be_read_any_more_is_not_given_from_the_cache(
    status: int, error: type[Exception]
) -> None:
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
@pytest.mark.parametrize("refused", [False, True])
async def test_a_token_that_cannot_be_had_withholds_the_cache_only_after_a_401(refused: bool) -> None:
    """The callable's own failure says nothing about what the account may read."""
    cache, tokens = MemoryCache(), list[str]()

    async def token() -> str:
        return tokens.pop()

    async with service() as sandbox, Client(sandbox.base_url, token, cache=cache, max_age=1e9) as cached:
        tokens.append(sandbox.token)
        await cached.query(ENTITY, Select(), FiscalRange())
        async with Client(sandbox.base_url, token, cache=cache, max_age=1e9) as asking:
            if refused:
                tokens.append("refused-token")
            with pytest.raises(AuthenticationError, match="the token callable raised IndexError"):
                await asking.dataset(ENTITY)
            if refused:
                with pytest.raises(AuthenticationError):
                    await asking.query(ENTITY, Select(), Annual())
            else:
                assert (await asking.query(ENTITY, Select(), Annual())).requests == 0


READS: dict[str, Callable[[Client, Catalogue], Awaitable[object]]] = {
    "dataset": lambda client, known: client.dataset(ENTITY),
    "catalogue pages": lambda client, known: anext(client.catalogue_pages(ENTITY)),
    "query pages": lambda client, known: anext(
        client.query_pages(
            ENTITY,
            Query([known.series[0].metric_id], [known.series[0].scopes], periods=FiscalRange(2020, 2025)),
        )
    ),
    "query": lambda client, known: client.query(ENTITY, Select(), Annual(), value_version="latest_restated"),
}


@virtual
@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("status", [403, 404])
async def test_any_read_shows_that_an_entity_may_not_be_read_any_more(
    status: int, read: Callable[[Client, Catalogue], Awaitable[object]]
) -> None:
    """After it nothing is given within max_age, nor for errors' sake, nor to another client of the cache."""
    cache, options = MemoryCache(), {"max_age": 1e9, "stale_if_error": 1e9}
    async with service() as sandbox, client(sandbox, cache, **options) as cached:
        whole = await cached.query(ENTITY, Select(), FiscalRange())
        assert (await cached.query(ENTITY, Select(), Annual())).requests == 0
        sandbox.inject(Status(status=status, code="no"))
        async with client(sandbox, cache, **options) as other:
            await other.catalogue(ENTITY)
            for asking in (cached, other):
                with pytest.raises((NotFoundError, PermissionDeniedError)):
                    await read(asking, whole.catalogue)
                with pytest.raises((NotFoundError, PermissionDeniedError)):
                    await asking.query(ENTITY, Select(), Annual())


@virtual
async def test_a_confirmation_is_as_old_as_its_request() -> None:
    """A publication may be replaced while the response is on its way, so it is taken before the request."""
    sent: list[datetime] = []

    def note(event: object) -> None:
        if type(event).__name__ == "RequestStarted":
            sent.append(datetime.now(UTC))

    async with service() as sandbox, client(sandbox, MemoryCache()) as cached:
        with cached.observed(note):
            for periods in (FiscalRange(), Annual()):
                panel = await cached.query(ENTITY, Select(), periods)
                assert panel.confirmed_at is not None
                assert panel.confirmed_at <= sent[-1]


@virtual
async def test_cached_values_are_given_for_a_while_when_the_metadata_cannot_be_had() -> None:
    """Without the metadata, cached values are given only with `stale_if_error`, if nothing else is needed."""
    cache = MemoryCache()
    async with (
        service() as sandbox,
        client(sandbox, cache, stale_if_error=600, retry=ONCE) as lenient,
        client(sandbox, cache, retry=ONCE) as strict,
    ):
        whole = await strict.query(ENTITY, Select(metric_ids=None, label=""), FiscalRange())
        sandbox.inject(Status(status=503))
        panel = await lenient.query(ENTITY, Select(), Annual())
        assert panel.confirmed_at == whole.confirmed_at
        with pytest.raises(ServerFailureError):
            await strict.query(ENTITY, Select(), Annual())
        with pytest.raises(ServerFailureError):
            await lenient.query(ENTITY, Select(), Annual(), value_version="latest_restated")


UNTOLD = {
    "failure": Status(status=503, operation="dataset"),
    "allowance": Status(status=429, retry_after=80_000, operation="dataset"),
    "no connection": Drop(operation="dataset"),
}
untold = pytest.mark.parametrize("fault", UNTOLD.values(), ids=UNTOLD)


@virtual
@untold
@pytest.mark.parametrize("with_cache", [False, True])
async def test_a_known_catalogue_is_given_for_a_while_when_the_metadata_cannot_be_had(
    fault: Fault, with_cache: bool
) -> None:
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
async def test_a_new_client_gives_what_the_cache_holds_when_the_metadata_cannot_be_had(fault: Fault) -> None:
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


async def test_filling_up_from_a_large_catalogue_does_not_hold_the_loop_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The whole catalogue is looked at for one missing series, and the loop continues during that."""
    threads = []

    def watched(*arguments: Any, **options: Any) -> Any:
        threads.append(threading.current_thread())
        return for_cache(*arguments, **options)

    monkeypatch.setattr("asyncfin.read.query.for_cache", watched)
    large = generate(7, series=1_100)
    async with service(large) as sandbox, client(sandbox, MemoryCache()) as cached:
        catalogue = await cached.catalogue(large.entity_id)
        assert len(catalogue) > 1_000
        await cached.query(catalogue, Select.of(catalogue.series[:1]), Annual())
    assert threads
    assert threading.main_thread() not in threads


@virtual
async def test_a_plan_says_that_the_queries_ask_for_more_periods_because_a_cache_keeps_them() -> None:
    """A cache keeps series with all of their periods, whatever was asked."""
    async with service() as sandbox, client(sandbox, MemoryCache()) as cached, client(sandbox) as asking:
        line = "periods: the last 1 fiscal year"
        kept = str(await cached.plan(ENTITY, Select(), Annual(last=1)))
        assert f"{line}; all periods are requested, for the cache\n" in kept
        assert f"{line}\n" in str(await asking.plan(ENTITY, Select(), Annual(last=1)))


@virtual
async def test_run_asks_again_for_what_was_evicted_since_it_was_planned() -> None:
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
async def test_equal_questions_at_the_same_time_share_their_requests(with_cache: bool) -> None:
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
@pytest.mark.parametrize("periods", [Trailing(6), Annual(last=1), FiscalRange()])
async def test_a_plan_made_without_a_cache_fills_one_with_all_periods(periods: Any) -> None:
    """A plan made without a cache fills one with all periods, which answer other questions."""
    cache = MemoryCache()
    async with service() as sandbox, client(sandbox) as plain, client(sandbox, cache, max_age=60) as cached:
        await cached.catalogue(ENTITY)
        plan = await plain.plan(ENTITY, Select(), periods)
        assert content(await cached.run(plan)) == content(await plain.run(plan))
        for others in (FiscalRange(), Annual(), Trailing(12)):
            panel = await cached.query(ENTITY, Select(), others)
            assert panel.requests == 0
            assert content(panel) == content(await plain.query(ENTITY, Select(), others))


@virtual
async def test_overlapping_questions_at_the_same_time_ask_for_no_series_twice() -> None:
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
async def test_the_first_questions_of_a_process_ask_for_no_series_twice(tmp_path: Path) -> None:
    """Each of them reads the catalogue from the cache; one requests the series, longer than a claim lasts."""
    async with service(faults=[Latency(operation="query", seconds=20)]) as sandbox:
        async with client(sandbox, FileCache(tmp_path)) as earlier:
            catalogue = await earlier.catalogue(ENTITY)
        spent = len(sandbox.log)
        async with client(sandbox, FileCache(tmp_path), max_age=3600) as later:
            some, several = Select.of(catalogue.series[:40]), (FiscalRange(), Annual(), Trailing(12))
            await asyncio.gather(*(later.query(ENTITY, some, each) for each in several))
        assert asked(sandbox, spent) == ["query"]


@virtual
async def test_questions_about_a_catalogue_of_the_caller_ask_for_no_series_twice() -> None:
    """The client does not keep this object, and its questions at one time share what is pending."""
    async with service(faults=[Latency(operation="query", seconds=1)]) as sandbox:
        async with client(sandbox, MemoryCache()) as cached:
            own = pickle.loads(pickle.dumps(await cached.catalogue(ENTITY)))
            spent = len(sandbox.log)
            some, several = Select.of(own.series[:40]), (FiscalRange(), Annual(), Trailing(12))
            await asyncio.gather(*(cached.query(own, some, each) for each in several))
        assert asked(sandbox, spent) == ["query"]


@virtual
async def test_a_broken_neighbour_fails_no_question_and_is_not_kept() -> None:
    """A series that came along has values that do not decode: it is asked for when it is wanted."""
    spoilt: set[str] = set()

    def spoil(name: str, sent: dict[str, Any], answer: dict[str, Any]) -> None:
        for series in answer["series"] if name == "query" else ():
            if series["series_id"] in spoilt:
                series["values"] = ["nonsense"] * len(answer["periods"])

    async with (
        service() as sandbox,
        altered(sandbox, spoil) as base_url,
        Client(base_url, sandbox.token, cache=MemoryCache(), max_age=60) as cached,
    ):
        catalogue = await cached.catalogue(ENTITY)
        plan = await cached.plan(ENTITY, Select.of(catalogue.series[0]), Annual())
        neighbours = sorted({each for batch in plan.batches for each in batch.matched - batch.home})
        spoilt.add(neighbours[0])
        assert len(await cached.run(plan)) == 1
        others = [catalogue[each] for each in neighbours[1:]]
        assert (await cached.query(ENTITY, Select.of(others), Annual())).requests == 0
        with pytest.raises(MalformedAnswerError, match=neighbours[0]):
            await cached.query(ENTITY, Select.of(catalogue[neighbours[0]]), Annual())


@virtual
async def test_a_neighbour_with_values_that_were_not_requested_is_not_kept() -> None:
    """A value in a period outside of the request: the series is requested again when it is wanted."""
    late: set[str] = set()

    def add(name: str, sent: dict[str, Any], answer: dict[str, Any]) -> None:
        if name == "query" and late:
            answer["periods"].append({"year": 2199, "end_month": 12, "duration_months": 12})
            for series in answer["series"]:
                value = next(filter(None, series["values"]), None)
                series["values"].append(value if series["series_id"] in late else None)

    async with (
        service() as sandbox,
        altered(sandbox, add) as base_url,
        Client(base_url, sandbox.token, cache=MemoryCache(), max_age=60) as cached,
        client(sandbox) as plain,
    ):
        whole = await plain.query(ENTITY, Select(), FiscalRange())
        valued = {series.series_id for series in whole if any(series.values)}
        first = next(each for each in whole.catalogue.series if each.series_id in valued)
        plan = await cached.plan(ENTITY, Select.of(first), Annual())
        late.add(min(valued & {each for batch in plan.batches for each in batch.matched - batch.home}))
        assert len(await cached.run(plan)) == 1
        neighbour = Select.of(whole.catalogue[late.pop()])
        panel = await cached.query(ENTITY, neighbour, FiscalRange())
        assert panel.requests == 1
        assert content(panel) == content(await plain.query(ENTITY, neighbour, FiscalRange()))


def test_batches_are_filled_up_within_the_caps_and_always_alike() -> None:
    """At most 100 series, 50 metrics and 50 paths; what is already cached does not count."""
    from tests.plan.test_plan import catalogue as catalogue_of

    triples = [(f"M{m}", f"p{p}", f"g{g}") for m in range(60) for p in range(4) for g in range(2)]
    known = catalogue_of(*triples)
    wanted = Select(metric_ids=["M0", "M1"], scope_combinations="company=p0", reporting_group_ids="g0")
    base = without_batches(Question(known, wanted, Annual()), known)
    plan = for_cache(base, set(), set())
    (batch,) = plan.batches
    assert (len(batch.metric_ids), len(batch.matched), batch.reporting_group_ids) == (50, 100, None)
    assert plan.requests == plan.lower_bound == 1
    assert for_cache(base, set(), set()).batches == plan.batches
    others = {each.series_id for each in known if each.metric_id not in ("M0", "M1", "M55", "M56")}
    (batch,) = for_cache(base, others, set()).batches
    assert batch.metric_ids == ("M0", "M1", "M55", "M56")
    assert len(batch.scope_combinations) == 4


def test_metrics_that_lack_all_their_series_fill_a_page_first() -> None:
    """Those of which a part is missing come after them, although the catalogue lists them first."""
    from tests.plan.test_plan import catalogue as catalogue_of

    metrics = [f"M{at}" for at in range(120)]
    known = catalogue_of(*((metric, "p", group) for metric in metrics for group in ("g0", "g1")))
    base = without_batches(Question(known, Select(metric_ids="M0"), Annual()), known)
    halves = {
        each.series_id
        for each in known
        if each.metric_id in metrics[1:60] and each.reporting_group_id == "g0"
    }
    (batch,) = for_cache(base, halves, set()).batches
    assert batch.metric_ids == ("M0", *metrics[60:109])


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
async def test_a_question_that_may_not_fill_the_cache_uses_it(periods: Any) -> None:
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
async def test_an_entity_read_for_an_extraction_uses_the_cache_and_does_not_fill_it() -> None:
    """A night's run would evict what visitors use."""
    cache = MemoryCache()
    async with service() as sandbox, client(sandbox, cache) as cached:
        await read_entity(cached, ENTITY, Select(), Annual())
        assert cache.stats().series == 0
        await cached.query(ENTITY, Select(), FiscalRange())
        spent = len(sandbox.log)
        await read_entity(cached, ENTITY, Select(), Annual())
        assert asked(sandbox, spent) == ["dataset"]


@virtual
async def test_a_question_about_exact_periods_is_cut_from_what_is_cached() -> None:
    """A requested period without any value is in the panel too."""
    async with service() as sandbox, client(sandbox, MemoryCache(), max_age=60) as cached:
        whole = await cached.query(ENTITY, Select(), FiscalRange())
        known = whole.periods[-1]
        panel = await cached.query(ENTITY, Select(), Exact(["FY1950", known]))
        assert [str(each) for each in panel.periods] == ["FY1950", str(known)]
        assert panel.requests == 0
