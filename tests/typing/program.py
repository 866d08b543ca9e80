"""A user's program that touches every public name, checked by mypy and pyright, and never run.

`assert_type` says what a user's editor must show; a type that becomes wider or unknown is an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, assert_type

import asyncfin
import asyncfin.typing as types
from asyncfin import (
    Annual,
    Batch,
    Bucket,
    Cache,
    CacheStats,
    Catalogue,
    CataloguePage,
    CatalogueSeries,
    CheckReport,
    Client,
    Comparison,
    Dataset,
    EntityAnswer,
    EntityReport,
    Exact,
    ExtractCost,
    ExtractProgress,
    ExtractReport,
    Failure,
    FileBucket,
    FileCache,
    Finding,
    FiscalRange,
    HalfYearly,
    MemoryCache,
    Panel,
    Period,
    Plan,
    Quarterly,
    Query,
    QueryPage,
    RedisBucket,
    RedisCache,
    ReportingGroup,
    Retry,
    Scope,
    ScopeGroup,
    ScopeRef,
    Select,
    Series,
    Source,
    Timeouts,
    TokenBucket,
    Trailing,
    Unchanged,
    UnknownToAllError,
    UsageWindow,
    Value,
    as_of,
    changes,
    check,
    concat,
    events,
    extract,
    extract_cost,
    first_of,
    format_path,
    known_by,
    last_twelve_months,
    parse_path,
    read_changes,
    read_entity,
    read_names,
    token_file,
)
from asyncfin.sandbox import Sandbox
from asyncfin.web import (
    AsgiRequest,
    ClientGoneError,
    HttpError,
    Offer,
    Reply,
    check_offered,
    csv_cell,
    explorer,
    http_error,
    reply,
    unless_gone,
)

if TYPE_CHECKING:
    from starlette.requests import Request

ENTITY = "O-" + "0" * 32


async def token() -> str:
    return "a-token"


def observer(event: events.Event) -> None:
    match event:
        case events.QuestionStarted():
            assert_type(event.lane, str)
        case events.QuestionFinished():
            assert_type(event.series, int | None)
        case events.ExtractStarted():
            assert_type(event.entities, int)
        case events.ExtractFinished():
            assert_type(event.failure, str | None)
        case events.RequestStarted():
            assert_type(event.attempt, int)
        case events.RequestFinished():
            assert_type(event.status, int | None)
            assert_type(event.failure, str | None)
        case events.Retrying():
            assert_type(event.wait, float)
        case events.Restarted():
            assert_type(event.operation, str)
        case events.Waited():
            assert_type(event.seconds, float)
        case events.Waiting():
            assert_type(event.until, datetime | None)


class Counter:
    """An observer that is an object."""

    def __call__(self, event: events.Event, /) -> None:
        print(event.operation, event.entity_id)


def buckets() -> None:
    paced = TokenBucket(2, burst=4, daily_budget=1_000)
    shared: list[Bucket] = [
        paced,
        FileBucket(Path("bucket"), rate=2.0, burst=2, daily_budget=None),
        RedisBucket("redis://localhost", account="one", rate=2, daily_budget=10),
    ]
    for bucket in shared:
        stats = bucket.stats()
        assert_type(stats, events.BucketStats)


async def caches() -> None:
    for cache in (
        MemoryCache(1_000_000),
        FileCache("folder", account="one"),
        RedisCache("redis://", account="one"),
    ):
        assert_type(cache.stats(), CacheStats)
        generic: Cache = cache
        assert_type(generic.stats().series, int)


def clients(source: types.TokenSource, lane: types.Lane, observers: list[types.Observer]) -> Client:
    assert_type(token_file(Path("token")), types.AskToken)
    Client.from_env(bucket=None, max_in_flight=2, lane="bulk", allow_http=True)
    return Client(
        "https://example.com",
        source,
        bucket=TokenBucket(),
        retry=Retry(attempts=3, max_elapsed=60, wait_initial=0.1, wait_max=5, max_retry_after=30),
        timeouts=Timeouts(connect=1, read=2, total=3),
        max_in_flight=4,
        lane=lane,
        cache=MemoryCache(),
        max_age=60,
        stale_if_error=3_600,
        trust_env=True,
        observers=[observer, Counter(), *observers],
    )


def words(
    many: types.AnyPaths,
    ids: types.EntityIds,
    options: types.ClientOptions,
    version: types.AskedVersion,
    cut: types.Cut,
    when: types.Moment,
    make: types.MakeClient,
    workers: types.MakeExecutor,
    listing: types.Listing,
) -> None:
    Select(scope_combinations=many)
    assert_type(Client.from_env(**options), Client)
    assert_type(make(), Client)
    assert_type(Annual().resolve([listing]), Exact)


def picked(select: Select, catalogue: Catalogue) -> None:
    assert_type(select.picked, tuple[types.Wanted, ...] | None)
    assert_type(catalogue.resolve(Annual()), types.Resolved)


def searched(catalogue: Catalogue) -> None:
    found = catalogue.search("revenue")
    assert_type(found, types.SearchResult)
    assert_type(Select.of(found), Select)


async def left(request: AsgiRequest, error: Exception) -> None:
    assert_type(http_error(error), HttpError)


def choices(paths: list[types.AnyPath], ids: types.OneOf, bound: types.Bound) -> None:
    Select("Revenue", "segment=cloud", cadence=["annual"], basis=("segment",), label="sales")
    Select(metric_ids=ids, scope_combinations=[ScopeRef("segment", "cloud")])
    Select(scope_combinations=paths, where=lambda series: "EBIT" in series.label, name="ebit")
    select = Select.from_json(Select(series_ids={"a", "b"}).to_json())
    assert_type(select, Select)
    assert_type(parse_path("segment=cloud"), types.ScopePath)
    assert_type(format_path([("segment", "cloud")]), str)
    selections: list[types.PeriodSelection] = [
        Exact(["FY2023", Period(2024, 12, 12)]),
        FiscalRange(2020, "FY2024-Q3"),
        FiscalRange((2020, 1), bound),
        Trailing(24),
        Annual(last=5),
        Quarterly("FY2020-Q1", last=8),
    ]
    print(selections)
    period = Period.parse("FY2024-Q3")
    assert_type(period.label, str)
    Query(
        metric_ids=["Revenue"],
        scope_combinations=["segment=cloud"],
        periods=Exact("FY2024"),
        reporting_group_ids="annual.segment",
        value_version="latest_restated",
        expected_dataset_id=None,
    )


async def reads(client: Client) -> None:
    dataset = await client.dataset(ENTITY)
    assert_type(dataset, Dataset)
    assert_type(dataset.created_timestamp, datetime)
    assert_type(client.catalogue_pages(ENTITY, page_size=50), AsyncGenerator[CataloguePage, None])
    async for page in client.catalogue_pages(ENTITY):
        assert_type(page.groups, tuple[ReportingGroup, ...])
    catalogue = await client.catalogue(ENTITY, max_age=60)
    assert_type(catalogue, Catalogue)
    for series in catalogue:
        assert_type(series, CatalogueSeries)
        assert_type(series.scopes, tuple[ScopeRef, ...])
    assert_type(catalogue.scope_groups, tuple[ScopeGroup, ...])
    assert_type(catalogue.select(Select(), allow_missing=True), tuple[CatalogueSeries, ...])
    assert_type(catalogue.explain(catalogue.missing(Select("a"))), str)
    groups = types.SearchResult.group([catalogue.search("revenue")])
    assert_type(groups, list[list[tuple[int, types.Match]]])
    assert_type(groups[0][0][1].rank, types.Rank)
    assert_type(catalogue.search("revenue").matches, tuple[types.Match, ...])
    assert_type(types.RULES["annual"](last=1), types.Rule)
    assert_type(catalogue.missing(Select("a")), Mapping[str, tuple[str, ...]])
    print(catalogue.to_arrow(Select("a")).num_rows)
    assert_type(Annual(last=2).resolve(catalogue), Exact)
    rule: types.Rule = HalfYearly(last=2)
    print(rule)
    query = Query(["Revenue"], ["segment=cloud"], Trailing(12))
    async for found in client.query_pages(ENTITY, query, prefetch=True):
        assert_type(found, QueryPage)
        assert_type(found.series, tuple[Series, ...])
    usage = await client.usage(date(2024, 1, 1), "2024-03-31")
    assert_type(usage, tuple[UsageWindow, ...])
    assert_type(await client.request("GET", "/v1/limits"), types.Response)
    stats = client.stats()
    assert_type(stats, events.Stats)
    assert_type(client.bucket, Bucket)
    with client.observed(Counter()):
        pass


async def questions(client: Client, version: types.ValueVersion) -> None:
    plan = await client.plan(ENTITY, Select("Revenue"), Annual(), value_version=version, fill_cache=False)
    assert_type(plan, Plan)
    assert_type(plan.series, tuple[CatalogueSeries, ...])
    assert_type(plan.batches[0], Batch)
    assert_type(await client.run(plan), Panel)
    panel = await client.query(plan.catalogue, Select(), FiscalRange(), max_age=3_600)
    assert_type(panel, Panel)
    async with client.stream(ENTITY, Select(), Annual()) as pieces:
        assert_type(pieces, AsyncIterator[Panel])
        async for piece in pieces:
            assert_type(piece, Panel)


def panels(panel: Panel, layout: types.Layout) -> None:
    for series in panel:
        assert_type(series, Series)
        for value in series.values:
            assert_type(value, Value | None)
        for period, observed in series.observations():
            assert_type(period, Period)
            assert_type(observed, Value)
            assert_type(observed.sources, tuple[Source, ...])
        assert_type(series["FY2024"], Value | None)
        assert_type(series[Period(2024, 12, 12)], Value | None)
    assert_type(panel["a"], Series)
    assert_type(panel.where(lambda series: series.basis == "segment"), Panel)
    assert_type(panel.during(["FY2023", "FY2024"]), Panel)
    assert_type(panel.during(Annual(last=2)), Panel)
    panel.to_pandas(layout).describe()
    panel.to_polars("wide", columns=["year"], labels=True).describe()
    concat([panel, panel])
    concat([panel], "wide", labels=True, columns=["year"])
    print(first_of([panel], ["a"]).num_rows, last_twelve_months(panel, period_meanings="b").num_rows)
    unit: types.Unit = "millions"
    assert_type(panel.show(unit, width=80), types.Shown)
    assert_type(panel.rows(unit), list[types.Row])
    assert_type(panel.rows()[0].scale, types.Scale)
    assert_type(panel.latest(2), types.Latest)
    assert_type(panel.why("a", "FY2024"), str | None)
    "FY2024" in panel.periods  # type: ignore[comparison-overlap]  # noqa: B015  mypy compares the items
    assert_type(panel.periods.index("FY2024"), int)


def named(path: Path) -> None:
    names: types.Names = read_names(path)
    assert_type(names.id("apple"), str)
    assert_type(names.ids(["apple", "nvidia"]), tuple[str, ...])


def failures(error: asyncfin.AsyncfinError) -> str:
    assert_type(error.concerns, types.Concern)
    match error:
        case asyncfin.ArgumentError():
            return str(error)
        case UnknownToAllError():
            assert_type(error.extract_report, ExtractReport)
        case asyncfin.SelectionError():
            assert_type(error.missing, Mapping[str, tuple[str, ...]])
        case (
            asyncfin.RequestTimeoutError()
            | asyncfin.ConnectionFailedError()
            | asyncfin.TruncatedAnswerError()
        ):
            assert_type(error.retryable, bool)
        case asyncfin.TransportError():
            assert_type(error.sent, bool)
        case asyncfin.AllowanceExhaustedError():
            assert_type(error.resume_at, datetime)
        case asyncfin.RateLimitedError():
            assert_type(error.retry_after, float | None)
        case (
            asyncfin.ValidationFailedError()
            | asyncfin.AuthenticationError()
            | asyncfin.PermissionDeniedError()
            | asyncfin.NotFoundError()
            | asyncfin.DatasetChangedError()
            | asyncfin.ServerFailureError()
        ):
            assert_type(error.status, int)
        case asyncfin.ServiceError():
            assert_type(error.code, str | None)
        case asyncfin.MalformedAnswerError():
            assert_type(error.problems, tuple[str, ...])
        case asyncfin.IncompleteResultError():
            assert_type(error.series_ids, tuple[str, ...])
        case (
            asyncfin.BucketUnavailableError()
            | asyncfin.RunInProgressError()
            | asyncfin.ManifestMismatchError()
        ):
            pass
    return "unknown"


async def extractions(client: Client, on_error: types.OnError, callback: types.OnProgress) -> None:
    report = await extract(
        client, [ENTITY], Select("Revenue"), Annual(), to=Path("out"), on_error=on_error, progress=callback
    )
    assert_type(report, ExtractReport)
    assert_type(report.failed, tuple[EntityReport, ...])
    assert_type(report.failed[0].failure, Failure | None)
    assert_type(report.failed[0].state, types.EntityState)
    assert_type(report.outcome, types.Outcome)
    cost = await extract_cost(client, [ENTITY], Select(), Annual(), to="out")
    assert_type(cost, ExtractCost)
    compared = await client.compare(iter([ENTITY]), Select("Revenue"), Annual(), max_age=60)
    assert_type(compared, Comparison)
    assert_type(compared[ENTITY], Panel)
    assert_type(compared.missing[ENTITY], types.Missing)
    async with client.query_many([ENTITY], Select("Revenue"), Annual(), ahead=2) as answers:
        async for each in answers:
            assert_type(each, EntityAnswer)
            assert_type(each.panel, Panel | None)
    answer = await read_entity(client, ENTITY, Select("Revenue"), Annual())
    assert_type(answer, EntityAnswer)
    assert_type(
        await read_entity(client, ENTITY, Select(), Annual(), unless=answer.entity_id),
        EntityAnswer | Unchanged,
    )


def progress(event: ExtractProgress, counts: events.Counts, scopes: tuple[Scope, ...]) -> None:
    print(event.done, counts, scopes)


def history(old: Panel, new: Panel, restated: Panel) -> None:
    changes(old, new)
    known_by(new, restated, "FY2024")
    read_changes("out", since=date(2025, 1, 31))
    as_of(Path("out"), datetime.now(UTC), columns=["number"])


async def backends(request: Request, client: Client, running: Callable[[], Client]) -> None:
    explorer(client, [ENTITY], hosts=["example.com"])
    explorer(running, {ENTITY: "a name"})
    try:
        offer: Offer = frozenset((ENTITY,))
        await check_offered(ENTITY, offer)
        panel = await unless_gone(request, client.query(ENTITY, Select(), Annual()), 30)
        assert_type(panel, Panel)
    except ClientGoneError:
        return
    except asyncfin.AsyncfinError as error:
        print(http_error(error))


async def compare(client: Client, entity_id: str) -> None:
    report = await check(client, entity_id, max_requests=30)
    assert_type(report, CheckReport)
    assert_type(report.findings, tuple[Finding, ...])


async def main() -> None:
    async with (
        Sandbox.demo(rate=10, allowance=None) as sandbox,
        Client(sandbox.base_url, sandbox.token, bucket=TokenBucket(10)) as client,
    ):
        await reads(client)
    panel = await asyncfin.Client("https://example.com", "token").query(ENTITY, Select(), Annual())
    assert_type(await reply(panel, accept="text/csv", if_none_match=None, max_age=60), Reply)
    assert_type(csv_cell("=1"), str)


if __name__ == "__main__":
    asyncio.run(main())
