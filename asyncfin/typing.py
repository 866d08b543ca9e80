"""The types that programs annotate with: of arguments, and of what methods return."""

from importlib import import_module
from typing import TYPE_CHECKING

from asyncfin.client import ClientOptions
from asyncfin.errors import Concern
from asyncfin.events import Observer
from asyncfin.model.judge import Missing
from asyncfin.model.matches import Match, Rank, SearchResult
from asyncfin.model.query import ValueVersion
from asyncfin.model.scope import AnyPath, AnyPaths, ScopePath
from asyncfin.model.select import OneOf, Wanted
from asyncfin.model.selection import (
    RULES,
    Bound,
    Listing,
    PeriodSelection,
    Resolved,
    Rule,
)
from asyncfin.names import Names
from asyncfin.pacing.bucket import Lane
from asyncfin.read.entity import AskedVersion
from asyncfin.read.many import EntityIds
from asyncfin.table.columns import Layout
from asyncfin.table.panel import Cut
from asyncfin.table.rows import Row, Scale
from asyncfin.table.show import Latest, Shown
from asyncfin.wire.protocol import Response
from asyncfin.wire.token import AskToken, TokenSource
from asyncfin.words import Unit

if TYPE_CHECKING:
    from asyncfin.extraction.as_of import Moment
    from asyncfin.extraction.progress import OnProgress
    from asyncfin.extraction.report import EntityState, Outcome
    from asyncfin.extraction.run import OnError
    from asyncfin.extraction.workers import MakeClient, MakeExecutor

# Loaded on first access, so that extraction can import the other names.
_OF_EXTRACTION = {
    "Moment": "as_of",
    "OnProgress": "progress",
    "EntityState": "report",
    "Outcome": "report",
    "OnError": "run",
    "MakeClient": "workers",
    "MakeExecutor": "workers",
}

__all__ = [
    "RULES",
    "AnyPath",
    "AnyPaths",
    "AskToken",
    "AskedVersion",
    "Bound",
    "ClientOptions",
    "Concern",
    "Cut",
    "EntityIds",
    "EntityState",
    "Lane",
    "Latest",
    "Layout",
    "Listing",
    "MakeClient",
    "MakeExecutor",
    "Match",
    "Missing",
    "Moment",
    "Names",
    "Observer",
    "OnError",
    "OnProgress",
    "OneOf",
    "Outcome",
    "PeriodSelection",
    "Rank",
    "Resolved",
    "Response",
    "Row",
    "Rule",
    "Scale",
    "ScopePath",
    "SearchResult",
    "Shown",
    "TokenSource",
    "Unit",
    "ValueVersion",
    "Wanted",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _OF_EXTRACTION:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(f"asyncfin.extraction.{_OF_EXTRACTION[name]}")
        return getattr(module, name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
