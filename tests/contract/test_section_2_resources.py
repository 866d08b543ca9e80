"""Section 2: every field of every resource is in the model as the service sent it."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from asyncfin import Catalogue, Client, Period, Value
from tests.contract.conftest import (
    ENTITY,
    FIRST,
    PERIODS,
    PUBLICATION,
    SERIES,
    cells,
    each_dialect,
    query,
    references,
    value,
)

METADATA = {
    "entity_id": ENTITY,
    "name": "Ünited Sample",
    "dataset_id": FIRST,
    "created_timestamp": datetime(2025, 2, 1, 6, tzinfo=UTC),
}


def plain(model: Any) -> Any:
    """Return a model value as the JSON it came from, so that fields can be compared by name."""
    return json.loads(msgspec.json.encode(model), object_hook=_with_its_moment)


def _with_its_moment(found: dict[str, Any]) -> dict[str, Any]:
    if "created_timestamp" in found:
        found["created_timestamp"] = datetime.fromisoformat(found["created_timestamp"])
    return found


@pytest.fixture
async def catalogue(client: Client) -> Catalogue:
    return await client.catalogue(ENTITY)


@pytest.fixture
async def observed(client: Client) -> Value:
    return (await cells(client, query()))["A-profit", "FY2023"]


async def test_2_1_bounds_have_no_duration(catalogue: Catalogue, observed: Value) -> None:
    """Points in time have no duration."""
    scope = catalogue.scope_groups[0].scopes[0]
    assert (scope.active_start, scope.active_end) == (Period(2023, 3, 0), Period(2024, 12, 0))
    assert observed.report_period == Period(2023, 12, 0)


@pytest.mark.parametrize(("field", "expected"), METADATA.items())
async def test_2_2_metadata(client: Client, field: str, expected: object) -> None:
    """The dataset endpoint, and the head of every catalogue and query page, carry it."""
    heads = [await client.dataset(ENTITY), await client.catalogue(ENTITY)]
    heads += [page async for page in client.catalogue_pages(ENTITY, page_size=3)]
    heads += [page async for page in client.query_pages(ENTITY, query(), page_size=3)]
    assert {getattr(head, field) for head in heads} == {expected}


@each_dialect
async def test_2_3_catalogue_periods(catalogue: Catalogue) -> None:
    """All periods of the dataset, oldest first, in whatever order the service lists them."""
    assert catalogue.periods == tuple(sorted(PERIODS))


@each_dialect
async def test_2_3_scope_group_scopes(client: Client) -> None:
    """All groups used are complete, also when pages list them by parts or once."""
    pages = [page async for page in client.catalogue_pages(ENTITY, page_size=2)]
    listed = {group.scope_group_id for page in pages for group in page.scope_groups}
    catalogue = await client.catalogue(ENTITY)
    assert (
        {group.scope_group_id for group in catalogue.scope_groups}
        == listed
        == {"company", "segment", "region"}
    )
    assert all(len(group.scopes) == 1 for group in catalogue.scope_groups)


@each_dialect
async def test_2_3_reporting_group_series(catalogue: Catalogue) -> None:
    """Each group has all its series, in the service's order."""
    found = {
        group.reporting_group_id: [each.series_id for each in group.series] for group in catalogue.groups
    }
    assert found == {
        "annual": ["A-sales", "A-profit", "A-staff"],
        "quarterly": ["Q-sales", "Q-profit", "Q-cloud", "Q-emea"],
    }


async def test_2_3_catalogue_fields(catalogue: Catalogue) -> None:
    """Scopes, groups and series have every field as it was sent; a path keeps its order."""
    assert plain(catalogue.scope_groups) == list(PUBLICATION.scope_groups)
    for group, sent in zip(catalogue.groups, PUBLICATION.groups, strict=True):
        for field in ("reporting_group_id", "name", "description", "basis", "cadence"):
            assert getattr(group, field) == sent[field]
        assert plain(group.series) == sent["series"]


async def test_2_4_query_series_fields(client: Client) -> None:
    """Those of the catalogue without the description, and of each value."""
    asked = query(metric_ids="profit", reporting_group_ids="annual")
    (series,) = [each async for page in client.query_pages(ENTITY, asked) for each in page.series]
    sent = dict(PUBLICATION.groups[0]["series"][1])
    assert not hasattr(series, "description")
    assert references(series.scopes) == sent["scopes"]
    for field in ("series_id", "reporting_group_id", "metric_id", "label", "basis", "number_format"):
        assert getattr(series, field) == sent[field]
    (observed,) = [each for each in series.values if each is not None]
    assert plain(observed) == value(0, "FY2023") | {"value_version": "original"}


@each_dialect
async def test_2_4_values_align_with_periods(client: Client) -> None:
    """One entry a period, None where there is no observation, whatever each page lists in what order."""
    async for page in client.query_pages(ENTITY, query(), page_size=2):
        for series in page.series:
            assert series.periods == page.periods
            originals = {label: first for label, (first, _) in SERIES[series.series_id][3].items()}
            found = [each and each.number for each in series.values]
            assert found == [originals.get(period.label) for period in page.periods]


@each_dialect
async def test_2_4_last_page_without_cursor(client: Client) -> None:
    """Absent or null, both mean the end; a page before it always has one."""
    for pages in (
        [page.next_cursor async for page in client.catalogue_pages(ENTITY, page_size=3)],
        [page.next_cursor async for page in client.query_pages(ENTITY, query(), page_size=3)],
    ):
        assert pages[-1] is None
        assert None not in pages[:-1]
