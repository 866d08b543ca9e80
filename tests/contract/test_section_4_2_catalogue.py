"""Section 4.2: read the catalogue."""

import pytest

from asyncfin import Client, Select
from asyncfin.sandbox import Sandbox, Switch
from tests.contract.conftest import (
    EMEA,
    ENTITY,
    FIRST,
    LATER,
    SECOND,
    SERIES,
    each_dialect,
    numbers,
    query,
)


async def pages_of(client: Client, **options: object) -> list[list[str]]:
    """Return the series ids of each page of the catalogue."""
    return [
        [series.series_id for group in page.groups for series in group.series]
        async for page in client.catalogue_pages(ENTITY, **options)  # type: ignore[arg-type]
    ]


async def test_request_is_get_without_body(client: Client, sandbox: Sandbox) -> None:
    """At /v1/entities/{entity_id}/dataset/catalogue."""
    await pages_of(client)
    (sent,) = sandbox.log
    assert (sent.method, sent.path, sent.body) == ("GET", f"/v1/entities/{ENTITY}/dataset/catalogue", None)


async def test_parameter_limit_is_100_unless_given(client: Client, sandbox: Sandbox) -> None:
    """The service's default of 25 would cost four times the allowance."""
    await pages_of(client)
    await client.catalogue(ENTITY)
    assert {sent.params["limit"] for sent in sandbox.log if sent.operation == "catalogue"} == {"100"}


async def test_cursor_is_that_of_last_page(client: Client, sandbox: Sandbox) -> None:
    """The cursor is sent as it came; the first page has none."""
    given = [page.next_cursor async for page in client.catalogue_pages(ENTITY, page_size=3)]
    assert [sent.params.get("cursor") for sent in sandbox.log] == [None, *given[:-1]]


@each_dialect
@pytest.mark.parametrize("size", [1, 2, 100])
async def test_rule_1_pages_split_groups(client: Client, size: int) -> None:
    """A group goes on where the page before ended; no series is lost or doubled."""
    pages = await pages_of(client, page_size=size)
    assert [series_id for page in pages for series_id in page] == list(SERIES)
    assert max(map(len, pages)) <= size


@each_dialect
async def test_rule_2_pin_lasts(client: Client, sandbox: Sandbox) -> None:
    """Nothing is asked after the last page."""
    await pages_of(client, expected_dataset_id=FIRST, page_size=2)
    assert {sent.params["expected_dataset_id"] for sent in sandbox.log} == {FIRST}
    assert {sent.params["limit"] for sent in sandbox.log} == {"2"}
    assert {sent.status for sent in sandbox.log} == {200}


async def test_rule_2_pins_after_metadata(client: Client, sandbox: Sandbox) -> None:
    """The first read is not: its pages say which publication they are of, and rule 2 adds no pin."""
    await client.catalogue(ENTITY)
    sandbox.publish(LATER)
    later = await client.catalogue(ENTITY)
    assert [(sent.operation, sent.params.get("expected_dataset_id")) for sent in sandbox.log] == [
        ("catalogue", None),
        ("dataset", None),
        ("catalogue", later.dataset_id),
    ]


async def test_rule_3_whole_read_starts_over(client: Client, sandbox: Sandbox) -> None:
    """A restarted read has nothing left of the publication before."""
    sandbox.inject(Switch(operation="catalogue", nth=1, publication=LATER))
    assert (await client.catalogue(ENTITY)).dataset_id == SECOND


@each_dialect
async def test_rule_4_series_is_found_again(client: Client) -> None:
    """Metric, reporting group and complete scope path make up the query of one series."""
    catalogue = await client.catalogue(ENTITY)
    for series in catalogue.select(Select(scope_combinations=EMEA)):
        asked = query(
            metric_ids=series.metric_id,
            scope_combinations=series.scopes,
            reporting_group_ids=series.reporting_group_id,
        )
        assert await numbers(client, asked) == {("Q-emea", "FY2023-Q1"): 1}
