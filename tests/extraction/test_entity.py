"""`read_entity`: one entity's answer of one publication, and what its catalogue does not have."""

from typing import Any

import pytest

from asyncfin import (
    Annual,
    Client,
    Exact,
    Select,
    read_entity,
)
from asyncfin.sandbox import Sandbox, Switch
from tests.extraction.conftest import COMPANIES, IDS
from tests.nights import Key, publication


async def test_unknown_ids_are_not_a_failure(client: Client) -> None:
    """The answer holds the rest, and names it."""
    known = (await client.catalogue(IDS[0])).series[0].metric_id
    answer = await read_entity(client, IDS[0], Select([known, "Nonsense"], basis="nothing"), Annual())
    assert dict(answer.missing) == {"metric_ids": ("Nonsense",), "basis": ("nothing",)}
    assert len(answer.panel) == 0
    some = await read_entity(client, IDS[0], Select([known, "Nonsense"]), Annual())
    assert {series.metric_id for series in some.panel} == {known}


@pytest.mark.parametrize(
    ("select", "periods", "missing"),
    [
        (Select(), Exact(["FY1901", "FY1902"]), {"periods": ("FY1901", "FY1902")}),
        (Select(), Annual((2901, 12)), {"periods": ("all fiscal years that end in FY2901-12 or later",)}),
        (Select(label="no such label"), Annual(), {"label": ("no such label",)}),
        (Select(where=lambda _: False, name="none"), Annual(), {"where": ("none",)}),
    ],
)
async def test_entity_nothing_question_empty_panel(
    client: Client, sandbox: Sandbox, select: Select, periods: Any, missing: dict[str, Any]
) -> None:
    """`missing` has the reason, and no query is sent."""
    answer = await read_entity(client, IDS[0], select, periods)
    assert answer.panel is not None
    assert (answer.entity_id, len(answer.panel), dict(answer.missing)) == (IDS[0], 0, missing)
    assert [served.operation for served in sandbox.log] == ["catalogue"]


@pytest.mark.parametrize(
    ("periods", "missing"), [(Annual(), {}), (Exact(["FY2020"]), {"periods": ("FY2020",)})]
)
async def test_dataset_without_periods(periods: Any, missing: dict[str, Any]) -> None:
    """It lacks the periods that are named, and has all of any."""
    company = publication({Key("S-1"): {}})
    async with Sandbox(company) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        answer = await read_entity(client, company.entity_id, Select(), periods)
    assert dict(answer.missing) == missing


async def test_cached_catalogue_is_not_read_again(client: Client, sandbox: Sandbox) -> None:
    """The metadata show whether it is the current one; the catalogue of another publication is read."""
    await client.query(IDS[0], Select(), Annual())
    before = len(sandbox.log)
    first = await read_entity(client, IDS[0], Select(), Annual())
    assert [served.operation for served in sandbox.log[before:]] == ["dataset", "query"]
    sandbox.inject(Switch(operation="query", nth=1, publication=COMPANIES[0]))
    before = len(sandbox.log)
    second = await read_entity(client, IDS[0], Select(), Annual())
    assert [(served.operation, served.status) for served in sandbox.log[before:]] == [
        *(("dataset", 200), ("query", 409)),
        *(("dataset", 200), ("catalogue", 200), ("query", 200)),
    ]
    old, new = (each.panel.dataset.dataset_id for each in (first, second))
    assert [old, new] == [each.dataset_id for each in COMPANIES[0].publications]
