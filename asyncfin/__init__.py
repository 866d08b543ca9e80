"""An asyncio client for a financial dataset service: any number of series of an entity
as one exact table.
"""

TYPE_CHECKING = False  # `typing` is slow to import; type checkers know this name
if TYPE_CHECKING:
    from asyncfin import (
        errors as errors,
        events as events,
        sandbox as sandbox,
        typing as typing,
        web as web,
    )
    from asyncfin.analysis.changes import changes as changes
    from asyncfin.analysis.first import first_of as first_of
    from asyncfin.analysis.known import known_by as known_by
    from asyncfin.analysis.twelve_months import last_twelve_months as last_twelve_months
    from asyncfin.cache.base import Cache as Cache, CacheStats as CacheStats
    from asyncfin.cache.file import FileCache as FileCache
    from asyncfin.cache.memory import MemoryCache as MemoryCache
    from asyncfin.cache.redis import RedisCache as RedisCache
    from asyncfin.client import Client as Client, read_entity as read_entity
    from asyncfin.conformance.check import check as check
    from asyncfin.conformance.report import (
        CheckReport as CheckReport,
        Finding as Finding,
    )
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
        RunInProgressError as RunInProgressError,
        SelectionError as SelectionError,
        ServerFailureError as ServerFailureError,
        ServiceError as ServiceError,
        TransportError as TransportError,
        TruncatedAnswerError as TruncatedAnswerError,
        ValidationFailedError as ValidationFailedError,
    )
    from asyncfin.extraction.as_of import as_of as as_of, read_changes as read_changes
    from asyncfin.extraction.cost import (
        ExtractCost as ExtractCost,
        extract_cost as extract_cost,
    )
    from asyncfin.extraction.extract import extract as extract
    from asyncfin.extraction.progress import ExtractProgress as ExtractProgress
    from asyncfin.extraction.report import (
        EntityReport as EntityReport,
        ExtractReport as ExtractReport,
        Failure as Failure,
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
    from asyncfin.model.period import Period as Period
    from asyncfin.model.query import Query as Query
    from asyncfin.model.scope import (
        ScopeRef as ScopeRef,
        format_path as format_path,
        parse_path as parse_path,
    )
    from asyncfin.model.select import Select as Select
    from asyncfin.model.selection import (
        Annual as Annual,
        Exact as Exact,
        FiscalRange as FiscalRange,
        HalfYearly as HalfYearly,
        Quarterly as Quarterly,
        Trailing as Trailing,
    )
    from asyncfin.model.series import (
        CatalogueSeries as CatalogueSeries,
        Series as Series,
        Source as Source,
        Value as Value,
    )
    from asyncfin.model.usage import UsageWindow as UsageWindow
    from asyncfin.names import read_names as read_names
    from asyncfin.pacing.bucket import Bucket as Bucket, TokenBucket as TokenBucket
    from asyncfin.pacing.file import FileBucket as FileBucket
    from asyncfin.pacing.redis import RedisBucket as RedisBucket
    from asyncfin.plan.plan import Batch as Batch, Plan as Plan
    from asyncfin.read.entity import (
        EntityAnswer as EntityAnswer,
        Unchanged as Unchanged,
    )
    from asyncfin.table.comparison import Comparison as Comparison
    from asyncfin.table.panel import Panel as Panel, concat as concat
    from asyncfin.wire.retry import Retry as Retry, Timeouts as Timeouts
    from asyncfin.wire.token import token_file as token_file
    from asyncfin.wire.values import QueryPage as QueryPage

    __version__: str

# The public names by module. A module is imported at the first use of a name: no
# program uses them all.
_NAMES = {
    "analysis.changes": "changes",
    "analysis.first": "first_of",
    "analysis.known": "known_by",
    "analysis.twelve_months": "last_twelve_months",
    "cache.file": "FileCache",
    "cache.memory": "MemoryCache",
    "cache.redis": "RedisCache",
    "cache.base": "Cache CacheStats",
    "client": "Client read_entity",
    "conformance.check": "check",
    "conformance.report": "CheckReport Finding",
    "errors": (
        "AllowanceExhaustedError ArgumentError AsyncfinError AuthenticationError "
        "BucketUnavailableError ConnectionFailedError DatasetChangedError "
        "IncompleteResultError "
        "MalformedAnswerError ManifestMismatchError NotFoundError "
        "PermissionDeniedError "
        "RateLimitedError RequestTimeoutError RunInProgressError SelectionError "
        "ServerFailureError "
        "ServiceError TransportError TruncatedAnswerError ValidationFailedError"
    ),
    "extraction.as_of": "as_of read_changes",
    "extraction.cost": "ExtractCost extract_cost",
    "extraction.extract": "extract",
    "extraction.progress": "ExtractProgress",
    "extraction.report": "EntityReport ExtractReport Failure UnknownToAllError",
    "model.catalogue": "Catalogue CataloguePage Dataset ReportingGroup Scope "
    "ScopeGroup",
    "model.period": "Period",
    "model.query": "Query",
    "model.scope": "ScopeRef format_path parse_path",
    "model.select": "Select",
    "model.selection": "Annual Exact FiscalRange HalfYearly Quarterly Trailing",
    "model.series": "CatalogueSeries Series Source Value",
    "model.usage": "UsageWindow",
    "names": "read_names",
    "pacing.bucket": "Bucket TokenBucket",
    "pacing.file": "FileBucket",
    "pacing.redis": "RedisBucket",
    "plan.plan": "Batch Plan",
    "read.entity": "EntityAnswer Unchanged",
    "table.comparison": "Comparison",
    "table.panel": "Panel concat",
    "wire.retry": "Retry Timeouts",
    "wire.token": "token_file",
    "wire.values": "QueryPage",
}
_MODULES = dict(
    sorted(
        (name, f"{__name__}.{module}")
        for module, names in _NAMES.items()
        for name in names.split()
    )
)
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
