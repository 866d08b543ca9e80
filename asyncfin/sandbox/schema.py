"""The shapes of the service description (spec 2, 4, 7) as Structs.

Requests are read into them, and the OpenAPI document follows from them. What the spec
leaves open is in docs/sandbox.md.
"""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

MAX_YEAR = 9999
# Long enough for anything: a period that a dataset file lists can be asked for.
MAX_DURATION = 1_000_000
MAX_DAYS = 92
DEFAULT_LIMIT = 25

_UUID_FORM = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"

Uuid = Annotated[
    # The length is bounded too: in Python `$` also matches before a line break at the
    # end.
    str,
    Meta(
        pattern=f"^{_UUID_FORM}$",
        max_length=36,
        description="a UUID",
        extra_json_schema={"format": "uuid"},
    ),
]
EntityId = Annotated[
    str,
    Meta(
        pattern=r"^O-[\s\S]{32}$",
        max_length=34,
        description="an entity id: O- and 32 characters",
    ),
]
Limit = Annotated[int, Meta(ge=1, le=100)]
Day = Annotated[date, Meta(description="a date written YYYY-MM-DD")]
Year = Annotated[int, Meta(ge=1, le=MAX_YEAR)]
Month = Annotated[int, Meta(ge=1, le=12)]


# Responses are open: a later version of the service may add members. Requests are
# closed.
class Period(Struct, frozen=True):
    """A period (spec 2.1)."""

    year: Year
    end_month: Month
    duration_months: Annotated[int, Meta(ge=0, le=MAX_DURATION)]


class Dataset(Struct, frozen=True):
    """The metadata of a publication (spec 2.2)."""

    entity_id: EntityId
    name: str
    dataset_id: Uuid
    created_timestamp: Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class ScopeRef(Struct, frozen=True):
    """An entry of a scope path (spec 2.3)."""

    scope_group_id: str
    scope_id: str


class Scope(Struct, frozen=True):
    """A company scope (spec 2.3)."""

    scope_id: str
    name: str
    description: str
    role: str
    aliases: list[str]
    active_start: Period | UnsetType = UNSET
    active_end: Period | UnsetType = UNSET


class ScopeGroup(Struct, frozen=True):
    """A group of scopes (spec 2.3)."""

    scope_group_id: str
    name: str
    description: str
    scopes: list[Scope]


class _Series(Struct, frozen=True):
    series_id: str
    reporting_group_id: str
    metric_id: str
    label: str
    basis: str
    scopes: list[ScopeRef]
    number_format: str
    period_meaning: str


class CatalogueSeries(_Series, frozen=True):
    """A series of the catalogue (spec 2.3)."""

    description: str


class ReportingGroup(Struct, frozen=True):
    """A reporting group with its series (spec 2.3)."""

    reporting_group_id: str
    name: str
    description: str
    basis: str
    cadence: str
    series: list[CatalogueSeries]


class Catalogue(Dataset, frozen=True, kw_only=True):
    """A page of the catalogue (spec 2.3)."""

    periods: list[Period]
    scope_groups: list[ScopeGroup]
    groups: list[ReportingGroup]
    next_cursor: str | UnsetType | None = UNSET


class Source(Struct, frozen=True):
    """The origin of a value (spec 2.4)."""

    item_id: str
    row_index: int
    column_index: int


ValueVersion = Literal["original", "latest_restated"]


class Value(Struct, frozen=True):
    """An observation (spec 2.4)."""

    number: float
    text: str
    number_format: str
    fill_type: str
    value_version: ValueVersion
    report_period: Period
    sources: list[Source]


class QuerySeries(_Series, frozen=True):
    """A series with its values (spec 2.4)."""

    values: list[Value | None]


class QueryResult(Dataset, frozen=True, kw_only=True):
    """A page of values (spec 2.4)."""

    periods: list[Period]
    series: list[QuerySeries]
    next_cursor: str | UnsetType | None = UNSET


class CatalogueParameters(Struct, frozen=True):
    """The query string of spec 4.2."""

    expected_dataset_id: Uuid | UnsetType = UNSET
    limit: Limit = DEFAULT_LIMIT
    cursor: str | UnsetType = UNSET


# A subclass, since the periods of responses are open and those of requests closed.
class SelectedPeriod(Period, frozen=True, forbid_unknown_fields=True):
    """A period of a query (spec 4.3)."""


class RangeEnd(Struct, frozen=True, forbid_unknown_fields=True):
    """An end of a fiscal range (spec 4.3)."""

    year: Year
    end_month: Month
    duration_months: Literal[0]


class Exact(
    Struct, frozen=True, tag_field="mode", tag="exact", forbid_unknown_fields=True
):
    """Exactly these periods (spec 4.3)."""

    exact: Annotated[list[SelectedPeriod], Meta(min_length=1, max_length=10_000)]


class FiscalRange(
    Struct,
    frozen=True,
    tag_field="mode",
    tag="fiscal_range",
    rename={"start": "from", "end": "to"},
    forbid_unknown_fields=True,
):
    """Fiscal ends from one to the other, both included (spec 4.3)."""

    start: RangeEnd
    end: RangeEnd


class Trailing(
    Struct, frozen=True, tag_field="mode", tag="trailing", forbid_unknown_fields=True
):
    """The last months up to the latest populated period (spec 4.3)."""

    months: Annotated[int, Meta(ge=1, le=120_000)]


class SelectedScope(Struct, frozen=True, forbid_unknown_fields=True):
    """An entry of a scope path of a query (spec 4.3)."""

    scope_group_id: str
    scope_id: str


Path = Annotated[list[SelectedScope], Meta(max_length=20)]


class Query(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a query (spec 4.3), with the bounds of spec 8."""

    metric_ids: Annotated[
        list[str],
        Meta(min_length=1, max_length=50, extra_json_schema={"uniqueItems": True}),
    ]
    scope_combinations: Annotated[list[Path], Meta(min_length=1, max_length=50)]
    periods: Exact | FiscalRange | Trailing
    reporting_group_ids: Annotated[list[str], Meta(max_length=50)] | UnsetType = UNSET
    expected_dataset_id: Uuid | UnsetType = UNSET
    value_version: ValueVersion = "original"
    limit: Limit = DEFAULT_LIMIT
    cursor: str | UnsetType = UNSET


class UsageParameters(Struct, frozen=True):
    """The query string of spec 4.4."""

    start_date: Day | UnsetType = UNSET
    end_date: Day | UnsetType = UNSET


class UsageDay(Struct, frozen=True):
    """The data requests of a day; not shown in spec 4.4."""

    date: date
    data_requests: int
    operations: dict[str, int]


class Usage(Struct, frozen=True):
    """The usage of a range of days; not shown in spec 4.4."""

    start_date: date
    end_date: date
    days: list[UsageDay]


class Credits(Struct, frozen=True):
    """The credits of an account; not shown in spec 4.5."""

    granted: int
    used: int
    remaining: int


class ResearchRuns(Struct, frozen=True):
    """The research runs of an account; not shown in spec 4.5."""

    limit: int
    used: int
    remaining: int
    period: str


class Limits(Struct, frozen=True):
    """The limits of an account; not shown in spec 4.5."""

    account: str
    credits: Credits
    research_runs: ResearchRuns


class Issue(Struct, frozen=True):
    """A wrong field of a request; not shown in spec 7."""

    field: str
    message: str


class ErrorObject(Struct, frozen=True, omit_defaults=True):
    """What is wrong with a request (spec 7)."""

    code: str
    message: str
    request_id: str
    issues: list[Issue] = []


class Error(Struct, frozen=True):
    """The body of an error response (spec 7)."""

    error: ErrorObject
