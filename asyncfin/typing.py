"""The types that programs annotate with: what the arguments of the library may be."""

from asyncfin.errors import Concern
from asyncfin.events import Observer
from asyncfin.extraction.progress import OnProgress
from asyncfin.extraction.run import OnError
from asyncfin.model.period import Bound, PeriodSelection
from asyncfin.model.query import Lane, ValueVersion
from asyncfin.model.scope import AnyPath, ScopePath
from asyncfin.model.select import OneOf
from asyncfin.table.frames import Layout
from asyncfin.wire.token import TokenSource

__all__ = [
    "AnyPath",
    "Bound",
    "Concern",
    "Lane",
    "Layout",
    "Observer",
    "OnError",
    "OnProgress",
    "OneOf",
    "PeriodSelection",
    "ScopePath",
    "TokenSource",
    "ValueVersion",
]
