"""An asyncio client for a financial dataset service: any number of a company's series as one exact table."""

import importlib
import typing

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
from asyncfin.wire.retry import Retry, Timeouts
from asyncfin.wire.values import QueryPage

if typing.TYPE_CHECKING:
    from asyncfin.extraction.cost import ExtractCost, extract_cost
    from asyncfin.extraction.entity import EntityAnswer, read_entity
    from asyncfin.extraction.progress import ExtractProgress
    from asyncfin.extraction.report import EntityReport, ExtractReport, UnknownToAllError
    from asyncfin.extraction.run import extract

__all__ = [
    "AllowanceExhaustedError",
    "Annual",
    "ArgumentError",
    "AsyncfinError",
    "AuthenticationError",
    "Bucket",
    "BucketUnavailableError",
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
    "FiscalRange",
    "IncompleteResultError",
    "MalformedAnswerError",
    "ManifestMismatchError",
    "NotFoundError",
    "Panel",
    "Period",
    "PermissionDeniedError",
    "Plan",
    "Quarterly",
    "Query",
    "QueryPage",
    "RateLimitedError",
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

# Extractions are a kind of program of their own: all others import the library without them.
_EXTRACTION = {
    "EntityAnswer": "entity",
    "EntityReport": "report",
    "ExtractCost": "cost",
    "ExtractProgress": "progress",
    "ExtractReport": "report",
    "UnknownToAllError": "report",
    "extract": "run",
    "extract_cost": "cost",
    "read_entity": "entity",
}


def __getattr__(name: str) -> typing.Any:
    if name not in _EXTRACTION:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"asyncfin.extraction.{_EXTRACTION[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
