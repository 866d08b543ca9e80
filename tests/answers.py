"""Query answers made by hand, for tests of what becomes of them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from asyncfin.model.catalogue import Catalogue, ReportingGroup, Scope, ScopeGroup
from asyncfin.model.period import Period
from asyncfin.model.query import ValueVersion
from asyncfin.model.scope import ScopeRef
from asyncfin.model.select import Select
from asyncfin.model.selection import Annual, FiscalRange, Resolved, Trailing
from asyncfin.model.series import CatalogueSeries
from asyncfin.plan.plan import Plan
from asyncfin.plan.question import Question
from asyncfin.read.publications import Publication
from asyncfin.read.stitch import Stitch
from asyncfin.table.block import Block
from asyncfin.table.panel import Panel
from asyncfin.wire.values import read_planned_page

ENTITY_ID = "O-" + "0123456789abcdef" * 2
DATASET_ID = "6d1f1f0e-3d0c-4f4c-9a7e-0d5e7d0b1c2d"
CREATED = "2026-02-03T04:05:06Z"
EVER = FiscalRange((1, 1), 9999)

Numbers = Mapping[str, Mapping[Period, Any]]
"""Of each series, by its id, the numbers by period."""


def value(number: Any, period: Period, **changes: Any) -> dict[str, Any]:
    """Return a value object; every field has a value that no other has."""
    return {
        "number": number,
        "text": f"{number:,}",
        "number_format": "0.0" if isinstance(number, float) else "#,##0",
        "fill_type": "derived" if period.duration_months == 3 else "reported",
        "value_version": "original",
        "report_period": {"year": period.year, "end_month": period.end_month, "duration_months": 0},
        "sources": [
            {"item_id": f"item-{period.label}", "row_index": at, "column_index": at + 1}
            for at in range(period.end_month % 3)
        ],
        **changes,
    }


def head(series_id: str) -> dict[str, Any]:
    """Return the head of a series. Ids look like m1.g: the metric, then the reporting group."""
    metric_id, _, group = series_id.partition(".")
    return {
        "series_id": series_id,
        "reporting_group_id": group or "annual",
        "metric_id": metric_id,
        "label": f"Label of {metric_id}",
        "basis": "consolidated",
        "scopes": [{"scope_group_id": "company", "scope_id": "all"}],
        "number_format": "#,##0",
        "period_meaning": "over_period",
    }


def page_json(periods: Sequence[Period], numbers: Numbers, **changes: Any) -> dict[str, Any]:
    """Return a query page with these series, aligned with these periods in this order."""
    return {
        "entity_id": ENTITY_ID,
        "name": "Example Company",
        "dataset_id": DATASET_ID,
        "created_timestamp": CREATED,
        "periods": [
            {"year": each.year, "end_month": each.end_month, "duration_months": each.duration_months}
            for each in periods
        ],
        "series": [
            {
                **head(series_id),
                "values": [value(found[each], each) if each in found else None for each in periods],
            }
            for series_id, found in numbers.items()
        ],
        **changes,
    }


def encoded(body: Any) -> bytes:
    return json.dumps(body).encode()


def catalogue_of(series_ids: Iterable[str], periods: Iterable[Period] = ()) -> Catalogue:
    """Return the catalogue that lists these series, in this order within their groups."""
    groups: dict[str, list[CatalogueSeries]] = {}
    for series_id in series_ids:
        fields = head(series_id)
        scopes = tuple(ScopeRef(**each) for each in fields.pop("scopes"))
        series = CatalogueSeries(**fields, scopes=scopes, description=f"About {series_id}. Unit: USD.")
        groups.setdefault(series.reporting_group_id, []).append(series)
    return Catalogue(
        ENTITY_ID,
        "Example Company",
        DATASET_ID,
        datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC),
        tuple(sorted(periods)),
        (
            ScopeGroup(
                scope_group_id="company",
                name="Company",
                scopes=(Scope("all", "Whole company", "", "company"),),
            ),
        ),
        tuple(
            ReportingGroup(
                reporting_group_id=name,
                name=f"Group {name}",
                basis="consolidated",
                cadence=name,
                series=tuple(series),
            )
            for name, series in groups.items()
        ),
    )


class Stitched:
    """A stitch, and the wanted series received so far."""

    def __init__(
        self,
        catalogue: Catalogue,
        series: tuple[CatalogueSeries, ...],
        periods: Resolved | None,
        value_version: ValueVersion = "original",
    ) -> None:
        question = Question(catalogue, Select(), periods or Annual(), value_version)
        self.stitch = Stitch(Plan(question, catalogue, periods, series, ()), Publication(catalogue))
        self.blocks: list[Block] = []

    async def add(self, body: bytes, *, home: frozenset[str], asked: Resolved) -> None:
        page = await read_planned_page(body, home, self.stitch.plan.question.value_version)
        wanted, _ = await self.stitch.add(page, home=home, request_periods=asked)
        if wanted is not None:
            self.blocks.append(wanted)

    def panel(self, *, requests: int = 0) -> Panel:
        return self.stitch.panel(self.blocks, self.stitch.plan.series, requests=requests)


async def panel_of(
    numbers: Numbers,
    periods: Sequence[Period],
    *,
    asked: Resolved = EVER,
    listed: Iterable[Period] | None = None,
    **changes: Any,
) -> Panel:
    """Return the panel stitched of one page that holds all of these series.

    Args:
        periods: the periods of the page, in its order.
        listed: the periods of the catalogue. None: those of the page.
    """
    catalogue = catalogue_of(numbers, periods if listed is None else listed)
    stitched = Stitched(catalogue, catalogue.series, asked)
    body = encoded(page_json(periods, numbers, **changes))
    # A window is requested as a range over the whole span.
    requested = EVER if isinstance(asked, Trailing) else asked
    await stitched.add(body, home=frozenset(numbers), asked=requested)
    return stitched.panel(requests=1)
