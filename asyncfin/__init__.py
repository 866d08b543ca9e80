"""An asyncio client for a financial dataset service: any number of a company's series as one exact table."""

TYPE_CHECKING = False  # `typing` is slow to import; type checkers take this name for its own
if TYPE_CHECKING:
    from asyncfin import errors as errors
    from asyncfin import events as events
    from asyncfin import sandbox as sandbox
    from asyncfin import typing as typing
    from asyncfin import web as web
    from asyncfin.cache.file import FileCache
    from asyncfin.cache.memory import MemoryCache
    from asyncfin.cache.redis import RedisCache
    from asyncfin.cache.store import Cache, CacheStats
    from asyncfin.client import Client
    from asyncfin.errors import (
        AllowanceExhaustedError,
        ArgumentError,
        AsyncfinError,
        AuthenticationError,
        BucketUnavailableError,
        ConnectionFailedError,
        DatasetChangedError,
        IncompleteResultError,
        MalformedAnswerError,
        ManifestMismatchError,
        NotFoundError,
        PermissionDeniedError,
        RateLimitedError,
        RequestTimeoutError,
        SelectionError,
        ServerFailureError,
        ServiceError,
        TransportError,
        TruncatedAnswerError,
        ValidationFailedError,
    )
    from asyncfin.extraction.cost import ExtractCost, extract_cost
    from asyncfin.extraction.entity import EntityAnswer, read_entity
    from asyncfin.extraction.extract import extract
    from asyncfin.extraction.progress import ExtractProgress
    from asyncfin.extraction.report import EntityReport, ExtractReport, UnknownToAllError
    from asyncfin.fanout.plan import Plan
    from asyncfin.model.catalogue import Catalogue, CataloguePage, Dataset, ReportingGroup, Scope, ScopeGroup
    from asyncfin.model.period import Annual, Exact, FiscalRange, Period, Quarterly, Trailing
    from asyncfin.model.query import Query
    from asyncfin.model.scope import ScopeRef, format_path, parse_path
    from asyncfin.model.select import Select
    from asyncfin.model.series import CatalogueSeries, Series
    from asyncfin.model.usage import UsageWindow
    from asyncfin.model.value import Source, Value
    from asyncfin.table.panel import Panel, concat
    from asyncfin.wire.bucket import Bucket, TokenBucket
    from asyncfin.wire.file_bucket import FileBucket
    from asyncfin.wire.redis_bucket import RedisBucket
    from asyncfin.wire.retry import Retry, Timeouts
    from asyncfin.wire.values import QueryPage

    __version__: str

__all__ = [
    "AllowanceExhaustedError",
    "Annual",
    "ArgumentError",
    "AsyncfinError",
    "AuthenticationError",
    "Bucket",
    "BucketUnavailableError",
    "Cache",
    "CacheStats",
    "Catalogue",
    "CataloguePage",
    "CatalogueSeries",
    "Client",
    "ConnectionFailedError",
    "Dataset",
    "DatasetChangedError",
    "EntityAnswer",
    "EntityReport",
    "Exact",
    "ExtractCost",
    "ExtractProgress",
    "ExtractReport",
    "FileBucket",
    "FileCache",
    "FiscalRange",
    "IncompleteResultError",
    "MalformedAnswerError",
    "ManifestMismatchError",
    "MemoryCache",
    "NotFoundError",
    "Panel",
    "Period",
    "PermissionDeniedError",
    "Plan",
    "Quarterly",
    "Query",
    "QueryPage",
    "RateLimitedError",
    "RedisBucket",
    "RedisCache",
    "ReportingGroup",
    "RequestTimeoutError",
    "Retry",
    "Scope",
    "ScopeGroup",
    "ScopeRef",
    "Select",
    "SelectionError",
    "Series",
    "ServerFailureError",
    "ServiceError",
    "Source",
    "Timeouts",
    "TokenBucket",
    "Trailing",
    "TransportError",
    "TruncatedAnswerError",
    "UnknownToAllError",
    "UsageWindow",
    "ValidationFailedError",
    "Value",
    "concat",
    "extract",
    "extract_cost",
    "format_path",
    "parse_path",
    "read_entity",
]

# Where each name is imported from when it is first asked for: no program uses them all.
_MODULES = {
    "AllowanceExhaustedError": "asyncfin.errors",
    "Annual": "asyncfin.model.period",
    "ArgumentError": "asyncfin.errors",
    "AsyncfinError": "asyncfin.errors",
    "AuthenticationError": "asyncfin.errors",
    "Bucket": "asyncfin.wire.bucket",
    "BucketUnavailableError": "asyncfin.errors",
    "Cache": "asyncfin.cache.store",
    "CacheStats": "asyncfin.cache.store",
    "Catalogue": "asyncfin.model.catalogue",
    "CataloguePage": "asyncfin.model.catalogue",
    "CatalogueSeries": "asyncfin.model.series",
    "Client": "asyncfin.client",
    "ConnectionFailedError": "asyncfin.errors",
    "Dataset": "asyncfin.model.catalogue",
    "DatasetChangedError": "asyncfin.errors",
    "EntityAnswer": "asyncfin.extraction.entity",
    "EntityReport": "asyncfin.extraction.report",
    "Exact": "asyncfin.model.period",
    "ExtractCost": "asyncfin.extraction.cost",
    "ExtractProgress": "asyncfin.extraction.progress",
    "ExtractReport": "asyncfin.extraction.report",
    "FileBucket": "asyncfin.wire.file_bucket",
    "FileCache": "asyncfin.cache.file",
    "FiscalRange": "asyncfin.model.period",
    "IncompleteResultError": "asyncfin.errors",
    "MalformedAnswerError": "asyncfin.errors",
    "ManifestMismatchError": "asyncfin.errors",
    "MemoryCache": "asyncfin.cache.memory",
    "NotFoundError": "asyncfin.errors",
    "Panel": "asyncfin.table.panel",
    "Period": "asyncfin.model.period",
    "PermissionDeniedError": "asyncfin.errors",
    "Plan": "asyncfin.fanout.plan",
    "Quarterly": "asyncfin.model.period",
    "Query": "asyncfin.model.query",
    "QueryPage": "asyncfin.wire.values",
    "RateLimitedError": "asyncfin.errors",
    "RedisBucket": "asyncfin.wire.redis_bucket",
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
    "TokenBucket": "asyncfin.wire.bucket",
    "Trailing": "asyncfin.model.period",
    "TransportError": "asyncfin.errors",
    "TruncatedAnswerError": "asyncfin.errors",
    "UnknownToAllError": "asyncfin.extraction.report",
    "UsageWindow": "asyncfin.model.usage",
    "ValidationFailedError": "asyncfin.errors",
    "Value": "asyncfin.model.value",
    "concat": "asyncfin.table.panel",
    "extract": "asyncfin.extraction.extract",
    "extract_cost": "asyncfin.extraction.cost",
    "format_path": "asyncfin.model.scope",
    "parse_path": "asyncfin.model.scope",
    "read_entity": "asyncfin.extraction.entity",
}
_PUBLIC_MODULES = ("errors", "events", "sandbox", "typing", "web")


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
