"""Section 9: versions of the interface, of datasets, and of values."""

import pytest

from asyncfin import Client, DatasetChangedError, Select
from asyncfin.sandbox import Sandbox
from tests.contract.conftest import (
    ENTITY,
    EVERYTHING,
    FIRST,
    LATER,
    SECOND,
    cells,
    each_dialect,
    meant,
    numbers,
    query,
)


async def test_rule_1_paths_begin_with_v1(client: Client, sandbox: Sandbox) -> None:
    """Every path begins with /v1, also under a base URL with a trailing slash."""
    await client.query(ENTITY, Select(), EVERYTHING)
    await client.dataset(ENTITY)
    await client.usage("2024-01-01", "2024-01-01")
    await client.limits()
    async with Client(f"{sandbox.base_url}/", sandbox.token) as other:
        await other.limits()
    assert {sent.operation for sent in sandbox.log} == {"dataset", "catalogue", "query", "usage", "limits"}
    assert all(sent.path.startswith("/v1/") for sent in sandbox.log)


async def test_rule_2_pin_ends_with_publication(client: Client, sandbox: Sandbox) -> None:
    """A pinned request is refused after the next publication, which answers under its own id."""
    for current, other in [(FIRST, SECOND), (SECOND, FIRST)]:
        pages = [page async for page in client.query_pages(ENTITY, query(expected_dataset_id=current))]
        assert {page.dataset_id for page in pages} == {current}
        with pytest.raises(DatasetChangedError):
            await anext(client.query_pages(ENTITY, query(expected_dataset_id=other)))
        sandbox.publish(LATER)


@each_dialect
async def test_rule_3_query_selects_one_version(client: Client) -> None:
    """The restated value where there is one."""
    asked = query(value_version="latest_restated")
    found = await cells(client, asked)
    assert await numbers(client, asked) == meant(asked) != meant(query())
    assert found["A-sales", "FY2023"].value_version == "latest_restated"
