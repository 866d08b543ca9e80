"""An asyncio client for a financial dataset service: any number of series of an entity as one exact table."""

TYPE_CHECKING = False  # `typing` is slow to import; type checkers know this name
if TYPE_CHECKING:
    from asyncfin import errors as errors, events as events, sandbox as sandbox, typing as typing, web as web
    from asyncfin.cache.file import FileCache as FileCache
    from asyncfin.cache.memory import MemoryCache as MemoryCache
    from asyncfin.cache.redis import RedisCache as RedisCache
    from asyncfin.cache.store import Cache as Cache, CacheStats as CacheStats
    from asyncfin.client import Client as Client
    from asyncfin.conformance.check import check as check
    from asyncfin.conformance.report import CheckReport as CheckReport, Finding as Finding
    from asyncfin.errors import (
        AllowanceExhaustedError as AllowanceExhaustedError,
        ArgumentError as ArgumentError,
        AsyncfinError as AsyncfinError,
        AuthenticationError as AuthenticationError,
        BucketUnavailableError as BucketUnavailableError,
        ConnectionFailedError as ConnectionFailedError,
        DatasetChangedError as DatasetChangedError,
        IncompleteResultError as IncompleteResultError,
        MalformedAnswerError as MalformedAnswerError,
        ManifestMismatchError as ManifestMismatchError,
        NotFoundError as NotFoundError,
        PermissionDeniedError as PermissionDeniedError,
        RateLimitedError as RateLimitedError,
        RequestTimeoutError as RequestTimeoutError,
        SelectionError as SelectionError,
        ServerFailureError as ServerFailureError,
        ServiceError as ServiceError,
        TransportError as TransportError,
        TruncatedAnswerError as TruncatedAnswerError,
        ValidationFailedError as ValidationFailedError,
    )
    from asyncfin.extraction.as_of import as_of as as_of, read_changes as read_changes
    from asyncfin.extraction.changes import changes as changes
    from asyncfin.extraction.cost import ExtractCost as ExtractCost, extract_cost as extract_cost
    from asyncfin.extraction.entity import Unchanged as Unchanged, read_entity as read_entity
    from asyncfin.extraction.extract import extract as extract
    from asyncfin.extraction.known import known_by as known_by
    from asyncfin.extraction.progress import ExtractProgress as ExtractProgress
    from asyncfin.extraction.report import (
        EntityReport as EntityReport,
        ExtractReport as ExtractReport,
        UnknownToAllError as UnknownToAllError,
    )
    from asyncfin.model.catalogue import (
        Catalogue as Catalogue,
        CataloguePage as CataloguePage,
        Dataset as Dataset,
        ReportingGroup as ReportingGroup,
        Scope as Scope,
        ScopeGroup as ScopeGroup,
    )
    from asyncfin.model.deviation import Deviation as Deviation
    from asyncfin.model.period import (
        Annual as Annual,
        Exact as Exact,
        FiscalRange as FiscalRange,
        Period as Period,
        Quarterly as Quarterly,
        Trailing as Trailing,
    )
    from asyncfin.model.query import Query as Query
    from asyncfin.model.scope import (
        ScopeRef as ScopeRef,
        format_path as format_path,
        parse_path as parse_path,
    )
    from asyncfin.model.select import Select as Select
    from asyncfin.model.series import CatalogueSeries as CatalogueSeries, Series as Series
    from asyncfin.model.usage import UsageWindow as UsageWindow
    from asyncfin.model.value import Source as Source, Value as Value
    from asyncfin.pacing.bucket import Bucket as Bucket, TokenBucket as TokenBucket
    from asyncfin.pacing.file import FileBucket as FileBucket
    from asyncfin.pacing.redis import RedisBucket as RedisBucket
    from asyncfin.plan.plan import Plan as Plan
    from asyncfin.read.entity import EntityAnswer as EntityAnswer
    from asyncfin.table.panel import Panel as Panel, concat as concat
    from asyncfin.wire.retry import Retry as Retry, Timeouts as Timeouts
    from asyncfin.wire.values import QueryPage as QueryPage

    __version__: str

# The module of each public name. It is imported on first access: no program uses them all.
_MODULES = {
    "AllowanceExhaustedError": "asyncfin.errors",
    "Annual": "asyncfin.model.period",
    "ArgumentError": "asyncfin.errors",
    "AsyncfinError": "asyncfin.errors",
    "AuthenticationError": "asyncfin.errors",
    "Bucket": "asyncfin.pacing.bucket",
    "BucketUnavailableError": "asyncfin.errors",
    "Cache": "asyncfin.cache.store",
    "CacheStats": "asyncfin.cache.store",
    "Catalogue": "asyncfin.model.catalogue",
    "CataloguePage": "asyncfin.model.catalogue",
    "CatalogueSeries": "asyncfin.model.series",
    "CheckReport": "asyncfin.conformance.report",
    "Client": "asyncfin.client",
    "ConnectionFailedError": "asyncfin.errors",
    "Dataset": "asyncfin.model.catalogue",
    "DatasetChangedError": "asyncfin.errors",
    "Deviation": "asyncfin.model.deviation",
    "EntityAnswer": "asyncfin.read.entity",
    "EntityReport": "asyncfin.extraction.report",
    "Exact": "asyncfin.model.period",
    "ExtractCost": "asyncfin.extraction.cost",
    "ExtractProgress": "asyncfin.extraction.progress",
    "ExtractReport": "asyncfin.extraction.report",
    "FileBucket": "asyncfin.pacing.file",
    "FileCache": "asyncfin.cache.file",
    "Finding": "asyncfin.conformance.report",
    "FiscalRange": "asyncfin.model.period",
    "IncompleteResultError": "asyncfin.errors",
    "MalformedAnswerError": "asyncfin.errors",
    "ManifestMismatchError": "asyncfin.errors",
    "MemoryCache": "asyncfin.cache.memory",
    "NotFoundError": "asyncfin.errors",
    "Panel": "asyncfin.table.panel",
    "Period": "asyncfin.model.period",
    "PermissionDeniedError": "asyncfin.errors",
    "Plan": "asyncfin.plan.plan",
    "Quarterly": "asyncfin.model.period",
    "Query": "asyncfin.model.query",
    "QueryPage": "asyncfin.wire.values",
    "RateLimitedError": "asyncfin.errors",
    "RedisBucket": "asyncfin.pacing.redis",
    "RedisCache": "asyncfin.cache.redis",
    "ReportingGroup": "asyncfin.model.catalogue",
    "RequestTimeoutError": "asyncfin.errors",
    "Retry": "asyncfin.wire.retry",
    "Scope": "asyncfin.model.catalogue",
    "ScopeGroup": "asyncfin.model.catalogue",
    "ScopeRef": "asyncfin.model.scope",
    "Select": "asyncfin.model.select",
    "SelectionError": "asyncfin.errors",
    "Series": "asyncfin.model.series",
    "ServerFailureError": "asyncfin.errors",
    "ServiceError": "asyncfin.errors",
    "Source": "asyncfin.model.value",
    "Timeouts": "asyncfin.wire.retry",
    "TokenBucket": "asyncfin.pacing.bucket",
    "Trailing": "asyncfin.model.period",
    "TransportError": "asyncfin.errors",
    "TruncatedAnswerError": "asyncfin.errors",
    "Unchanged": "asyncfin.extraction.entity",
    "UnknownToAllError": "asyncfin.extraction.report",
    "UsageWindow": "asyncfin.model.usage",
    "ValidationFailedError": "asyncfin.errors",
    "Value": "asyncfin.model.value",
    "as_of": "asyncfin.extraction.as_of",
    "changes": "asyncfin.extraction.changes",
    "check": "asyncfin.conformance.check",
    "concat": "asyncfin.table.panel",
    "extract": "asyncfin.extraction.extract",
    "extract_cost": "asyncfin.extraction.cost",
    "format_path": "asyncfin.model.scope",
    "known_by": "asyncfin.extraction.known",
    "parse_path": "asyncfin.model.scope",
    "read_changes": "asyncfin.extraction.as_of",
    "read_entity": "asyncfin.extraction.entity",
}
_PUBLIC_MODULES = ("errors", "events", "sandbox", "typing", "web")

__all__ = list(_MODULES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    if name in _PUBLIC_MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PUBLIC_MODULES})
