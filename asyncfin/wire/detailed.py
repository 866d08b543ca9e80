"""Query answers for the second, slower reading, which names every problem (codec.malformed)."""

from typing import Any

from attrs import frozen

from asyncfin.model.catalogue import Dataset
from asyncfin.model.period import Period
from asyncfin.model.scope import ScopeRef
from asyncfin.model.value import Value


@frozen
class DetailedSeries:
    """A series of a page whose values are anything."""

    series_id: str
    reporting_group_id: str
    metric_id: str
    label: str
    basis: str
    scopes: tuple[ScopeRef, ...]
    number_format: str
    period_meaning: str
    values: Any


@frozen
class DetailedResponse(Dataset):
    """A query response whose values are anything."""

    periods: tuple[Period, ...]
    series: tuple[DetailedSeries, ...]
    next_cursor: str | None = None


@frozen
class DetailedValues:
    """The values of a series, each with all its fields."""

    values: tuple[Value | None, ...]
