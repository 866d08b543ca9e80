"""What an extraction will cost, before it is begun."""

from pathlib import Path

from asyncfin import (
    Annual,
    Client,
    FiscalRange,
    Select,
    TokenBucket,
    extract,
    extract_cost,
)
from asyncfin.sandbox import Sandbox
from tests.extraction.conftest import IDS, UNKNOWN_ID, names
from tests.generate import generate


async def test_new_entities_cost_what_three_do(tmp_path: Path) -> None:
    """Of the first, the middle and the last one the catalogue is read; nothing is written."""
    companies = [
        generate(seed, series=size, publications=1) for seed, size in enumerate((30, 400, 150, 90, 250))
    ]
    ids = [company.entity_id for company in companies]
    async with Sandbox(*companies) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        cost = await extract_cost(client, ids, Select(), FiscalRange(), to=tmp_path / "night")
        operations = [served.operation for served in sandbox.log]
        assert names(tmp_path) == []
    # Another client: this one has the catalogues.
    async with Sandbox(*companies) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        report = await extract(client, ids, Select(), FiscalRange(), to=tmp_path / "night")
    assert {*operations} == {"catalogue"}
    sample = [entity.requests for entity in report.entities[::2]]
    assert cost.per_entity == sum(sample) / 3
    assert (cost.files, cost.spent) == (0, len(operations))
    assert cost.least == cost.most == round(5 * sum(sample) / 3)
    assert f"about {cost.least} requests will be sent" in str(cost)


async def test_files_tell_what_entities_cost(client: Client, sandbox: Sandbox, folder: Path) -> None:
    """One request each if nothing has changed; no request is sent to estimate it."""
    first = await extract(client, IDS[:4], Select(), Annual(), to=folder)
    since = len(sandbox.log)
    cost = await extract_cost(client, (*IDS, UNKNOWN_ID), Select(), Annual(), to=folder)
    average = first.requests / 4
    assert (cost.files, cost.spent, len(sandbox.log)) == (4, 0, since)
    assert (cost.least, cost.most) == (4 + round(3 * average), 4 + round(7 * average))
    again = await extract_cost(client, IDS[:4], Select(), Annual(), to=folder, refresh=True)
    assert again.least == again.most == first.requests


async def test_unknown_name_is_reported(client: Client, folder: Path) -> None:
    """With what comes close, from the catalogues or from the files' footers."""
    metric_id = (await client.catalogue(IDS[0])).series[0].metric_id
    select = Select(metric_ids=[metric_id, f"{metric_id}x"])
    cost = await extract_cost(client, IDS[:1], select, Annual(), to=folder)
    assert cost.unknown == {"metric_ids": (f"{metric_id}x",)}
    assert f"has no metric '{metric_id}x'" in str(cost)
    assert f"close: {metric_id}" in str(cost)
    await extract(client, IDS[:1], select, Annual(), to=folder, allow_missing=True)
    again = await extract_cost(client, IDS[:1], select, Annual(), to=folder)
    assert (again.unknown, again.spent) == (cost.unknown, 0)


async def test_time_follows_from_bucket(sandbox: Sandbox, folder: Path) -> None:
    """Seconds at its rate."""
    bucket = TokenBucket(2.0, burst=20)
    async with Client(sandbox.base_url, sandbox.token, bucket=bucket) as client:
        await extract(client, IDS[:1], Select(), Annual(), to=folder)
        cost = await extract_cost(client, IDS, Select(), Annual(), to=folder)
    assert cost.rate == 2.0
    assert "2 requests a second" in str(cost)
