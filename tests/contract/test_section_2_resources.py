"""Section 2: every field of every resource is in the model as the service sent it."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from asyncfin import Catalogue, Client, MalformedAnswerError, Period, Series, Value
from tests.contract.conftest import (
    CLOUD,
    ENTITY,
    FIRST,
    PERIODS,
    PUBLICATION,
    SERIES,
    cells,
    each_dialect,
    metadata,
    query,
    query_body,
    query_series,
    references,
    value,
    wrong_service,
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
async def series(client: Client) -> Series:
    asked = query(metric_ids="sales", scope_combinations=CLOUD)
    (found,) = [each async for page in client.query_pages(ENTITY, asked) for each in page.series]
    return found


@pytest.fixture
async def observed(client: Client) -> Value:
    return (await cells(client, query()))["A-profit", "FY2023"]


@pytest.mark.parametrize(("field", "expected"), [("year", 2023), ("end_month", 6), ("duration_months", 3)])
async def test_2_1_period(catalogue: Catalogue, field: str, expected: int) -> None:
    """A period's fields are whole numbers."""
    (found,) = [each for each in catalogue.periods if each.label == "FY2023-Q2"]
    assert getattr(found, field) == expected


async def test_2_1_duration_is_0_in_bounds_and_report_periods(catalogue: Catalogue, observed: Value) -> None:
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


@pytest.mark.parametrize("field", ["scope_group_id", "name", "description"])
async def test_2_3_scope_group(catalogue: Catalogue, field: str) -> None:
    """The fields of a scope group."""
    found = [getattr(group, field) for group in catalogue.scope_groups]
    assert found == [group[field] for group in PUBLICATION.scope_groups]


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


@pytest.mark.parametrize(
    "field", ["scope_id", "name", "description", "role", "aliases", "active_start", "active_end"]
)
async def test_2_3_scope(catalogue: Catalogue, field: str) -> None:
    """The fields of a scope."""
    found = [plain(group.scopes[0])[field] for group in catalogue.scope_groups]
    assert found == [group["scopes"][0][field] for group in PUBLICATION.scope_groups]


@pytest.mark.parametrize("field", ["reporting_group_id", "name", "description", "basis", "cadence"])
async def test_2_3_reporting_group(catalogue: Catalogue, field: str) -> None:
    """The fields of a reporting group."""
    assert [getattr(group, field) for group in catalogue.groups] == [
        group[field] for group in PUBLICATION.groups
    ]


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


@pytest.mark.parametrize(
    "field",
    [
        "series_id",
        "reporting_group_id",
        "metric_id",
        "label",
        "description",
        "basis",
        "scopes",
        "number_format",
        "period_meaning",
    ],
)
async def test_2_3_catalogue_series(catalogue: Catalogue, field: str) -> None:
    """The fields of a catalogue series."""
    sent = [series for group in PUBLICATION.groups for series in group["series"]]
    assert [plain(series)[field] for series in catalogue] == [series[field] for series in sent]


async def test_2_3_scope_reference_keeps_the_order_of_the_path(catalogue: Catalogue) -> None:
    """A path is ordered, and its ids come as they are, whatever characters they hold."""
    assert references(catalogue["Q-emea"].scopes) == references(SERIES["Q-emea"][2])


@pytest.mark.parametrize(
    "field",
    ["series_id", "reporting_group_id", "metric_id", "label", "basis", "number_format", "period_meaning"],
)
async def test_2_4_query_series(series: Series, field: str) -> None:
    """The fields of a query series are those of the catalogue's, without the description."""
    (sent,) = [each for each in PUBLICATION.groups[1]["series"] if each["series_id"] == "Q-cloud"]
    assert getattr(series, field) == sent[field]
    assert not hasattr(series, "description")


async def test_2_4_query_series_scopes(series: Series) -> None:
    """The complete path."""
    assert series.scopes == CLOUD


@each_dialect
async def test_2_4_values_are_aligned_with_the_periods_of_their_page(client: Client) -> None:
    """One entry a period, None where there is no observation, whatever each page lists in what order."""
    async for page in client.query_pages(ENTITY, query(), page_size=2):
        for series in page.series:
            assert series.periods == page.periods
            originals = {label: first for label, (first, _) in SERIES[series.series_id][3].items()}
            found = [each and each.number for each in series.values]
            assert found == [originals.get(period.label) for period in page.periods]


async def test_2_4_a_reported_zero_is_a_value(observed: Value) -> None:
    """A reported zero is a value with the number 0, and not None."""
    assert observed.number == 0


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("number", 0),
        ("text", "0"),
        ("number_format", "#,##0.0"),
        ("fill_type", "reported"),
        ("value_version", "original"),
        ("report_period", {"year": 2023, "end_month": 12, "duration_months": 0}),
        ("sources", [{"item_id": "item FY2023", "row_index": 3, "column_index": 4}]),
    ],
)
async def test_2_4_value(observed: Value, field: str, expected: object) -> None:
    """The fields of a value object, and of its sources."""
    assert plain(observed)[field] == expected


@each_dialect
async def test_2_4_next_cursor_is_none_on_the_last_page_alone(client: Client) -> None:
    """Absent or null, both mean the end; a page before it always has one."""
    for pages in (
        [page.next_cursor async for page in client.catalogue_pages(ENTITY, page_size=3)],
        [page.next_cursor async for page in client.query_pages(ENTITY, query(), page_size=3)],
    ):
        assert pages[-1] is None
        assert None not in pages[:-1]


@pytest.mark.parametrize("field", [*sorted(set(METADATA) - {"name"}), "periods", "series"])
async def test_2_all_fields_of_a_page_but_the_name_are_required(field: str) -> None:
    """A page without one is malformed, and the error names its path. A name is a text and is repaired."""
    body = query_body()
    del body[field]
    async with wrong_service(body) as (client, _):
        with pytest.raises(MalformedAnswerError, match=rf"required field is missing @ \$\.{field}"):
            await anext(client.query_pages(ENTITY, query()))


@pytest.mark.parametrize("number", [True, "5", None, [1]])
async def test_2_4_a_number_that_is_none_is_malformed_once_looked_at(number: object) -> None:
    """Nothing is coerced; the page itself comes, since values are decoded on demand."""
    wrong = value(1, "FY2023") | {"number": number, "value_version": "original"}
    async with wrong_service(query_body(query_series("A-sales", [wrong]))) as (client, _):
        page = await anext(client.query_pages(ENTITY, query()))
        with pytest.raises(MalformedAnswerError, match=r"@ \$\.series\[0\] \(A-sales\)\.values\[0\]\.number"):
            _ = page.series[0].values


async def test_2_2_metadata_of_an_unpublished_field_pass(client: Client) -> None:
    """Unknown fields are ignored."""
    async with wrong_service(metadata(owner={"x": 1})) as (other, _):
        assert (await other.dataset(ENTITY)).dataset_id == (await client.dataset(ENTITY)).dataset_id


async def test_series_are_equal_with_equal_values_only(client: Client) -> None:
    """Else a restatement would not be seen; the pages they come on can be keys of a dict."""
    found = [
        [page async for page in client.query_pages(ENTITY, query(value_version=version))]
        for version in ("original", "original", "latest_restated")
    ]
    first, again, restated = ({each.series_id: each for each in page.series} for (page,) in found)
    assert first == again
    assert first["A-sales"] != restated["A-sales"]
    assert len({first["A-sales"], again["A-sales"]}) == 1
    assert len({page for (page,) in found}) == 3
