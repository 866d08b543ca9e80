"""What an extraction will cost, before it is begun."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from asyncfin import (
    AllowanceExhaustedError,
    Annual,
    Client,
    FileBucket,
    FiscalRange,
    ManifestMismatchError,
    Quarterly,
    Select,
    TokenBucket,
    extract,
    extract_cost,
)
from asyncfin.sandbox import Sandbox, Status, Switch
from tests.extraction.conftest import COMPANIES, FIRST, IDS, UNKNOWN_ID, names
from tests.generate import generate


async def test_new_entities_are_estimated_from_three_catalogues(tmp_path: Path) -> None:
    """The first, the middle and the last one's; the others cost about the same, in the range of the text."""
    companies = [
        generate(seed, series=size, publications=1) for seed, size in enumerate((30, 400, 150, 90, 250))
    ]
    ids = [each.entity_id for each in companies]
    async with Sandbox(*companies) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        cost = await extract_cost(client, ids, Select(), FiscalRange(), to=tmp_path / "night")
        read = [served.operation for served in sandbox.log]
        assert names(tmp_path) == []
        report = await extract(client, ids, Select(), FiscalRange(), to=tmp_path / "night")
    assert {*read} == {"catalogue"}
    taken = [each.requests for each in report.entities[::2]]
    assert (cost.new, cost.guessed, cost.spent) == (5, 2, len(read))
    assert cost.requests == sum(taken) + round(2 * sum(taken) / 3)
    assert (cost.least, cost.most) == (sum(taken) + 2 * min(taken), sum(taken) + 2 * max(taken))
    assert cost.least < report.requests < cost.most
    assert f"about {cost.requests} requests will be sent, {cost.least} to {cost.most}" in str(cost)


async def test_reading_the_catalogues_makes_the_count_exact(client: Client, folder: Path) -> None:
    """The run then takes that many requests."""
    cost = await extract_cost(client, IDS, Select(), Annual(), to=folder, read_catalogues=True)
    report = await extract(client, IDS, Select(), Annual(), to=folder)
    assert (cost.requests, cost.guessed) == (report.requests, 0)


async def test_the_footers_say_what_an_entity_takes(client: Client, sandbox: Sandbox, folder: Path) -> None:
    """A changed one is expected to cost what it did, and its metadata; a new one the mean of the others."""
    first = await extract(client, IDS[:4], Select(), Annual(), to=folder)
    sandbox.publish(COMPANIES[0])
    cost = await extract_cost(client, (*IDS, UNKNOWN_ID), Select(), Annual(), to=folder)
    assert (cost.new, cost.changed, cost.unchanged, cost.guessed) == (3, 1, 3, 3)
    usual = first.requests / 4
    assert cost.requests == 1 + first.entities[0].requests + 3 + round(3 * usual)
    assert cost.spent == 4
    # What was read as a changed one counts like the others.
    second = await extract(client, IDS[:4], Select(), Annual(), to=folder)
    assert second.requests == 1 + first.entities[0].requests + 3
    sandbox.publish(FIRST[0])
    cost = await extract_cost(client, IDS, Select(), Annual(), to=folder)
    assert cost.requests == second.requests + round(2 * usual)


async def test_a_refresh_counts_everything_without_asking(client: Client, folder: Path) -> None:
    """Whether an entity has changed does not matter then."""
    first = await extract(client, IDS, Select(), Annual(), to=folder)
    cost = await extract_cost(client, IDS, Select(), Annual(), to=folder, refresh=True)
    assert (cost.changed, cost.requests, cost.spent) == (len(IDS), first.requests, 0)


async def test_an_entity_that_cannot_be_read_is_named(client: Client, folder: Path) -> None:
    """An entity that cannot be read is named, and counts the one request that the run will spend."""
    cost = await extract_cost(client, [UNKNOWN_ID], Select(), Annual(), to=folder, read_catalogues=True)
    assert [each.entity_id for each in cost.failed] == [UNKNOWN_ID]
    assert UNKNOWN_ID in str(cost)
    assert cost.requests == 1


async def test_time_and_budget_follow_from_the_bucket(sandbox: Sandbox, folder: Path) -> None:
    """Seconds at its rate, and whether what is left of its day suffices."""
    bucket = TokenBucket(2.0, burst=20, daily_budget=20)
    async with Client(sandbox.base_url, sandbox.token, bucket=bucket) as client:
        await extract(client, IDS[:1], Select(), Annual(), to=folder)
        cost = await extract_cost(client, IDS, Select(), Annual(), to=folder)
    assert cost.seconds == cost.requests / 2.0
    assert cost.budget == 20 - 2 - 1
    assert cost.fits == (cost.requests <= 17)
    assert "2 requests a second" in str(cost)


async def test_an_estimate_spends_nothing_of_a_budget_that_cannot_suffice(
    sandbox: Sandbox, client: Client, folder: Path
) -> None:
    """Each entity takes a request at least; what the last run took is a guess then."""
    first = await extract(client, IDS, Select(), Annual(), to=folder)
    bucket = TokenBucket(daily_budget=len(IDS) - 1)
    async with Client(sandbox.base_url, sandbox.token, bucket=bucket) as small:
        cost = await extract_cost(small, IDS, Select(), Annual(), to=folder)
    assert (cost.fits, cost.spent, cost.budget) == (False, 0, len(IDS) - 1)
    assert (cost.requests, cost.changed, cost.guessed) == (first.requests + len(IDS), len(IDS), len(IDS))


async def test_an_estimate_knows_what_other_processes_have_spent(
    sandbox: Sandbox, folder: Path, tmp_path: Path
) -> None:
    """A fresh bucket on a shared file says what is left of the budget, without a request."""
    async with aclosing(FileBucket(tmp_path / "bucket", daily_budget=9)) as other:
        for _ in range(7):
            await other.acquire()
    async with (
        aclosing(FileBucket(tmp_path / "bucket", daily_budget=9)) as bucket,
        Client(sandbox.base_url, sandbox.token, bucket=bucket) as client,
    ):
        cost = await extract_cost(client, IDS, Select(), Annual(), to=folder)
    assert (cost.budget, cost.spent) == (2, 0)


async def test_an_estimate_that_uses_up_the_budget_says_that_the_run_does_not_fit(
    sandbox: Sandbox, folder: Path
) -> None:
    """Entities that could not be asked any more are a guess."""
    bucket = TokenBucket(daily_budget=len(IDS))
    async with Client(sandbox.base_url, sandbox.token, bucket=bucket) as client:
        cost = await extract_cost(client, IDS, Select(), Annual(), to=folder, read_catalogues=True)
    assert (cost.fits, cost.spent, cost.budget) == (False, len(IDS), 0)


async def test_an_estimate_that_the_service_refuses_is_its_error(
    sandbox: Sandbox, client: Client, folder: Path
) -> None:
    """A refusal of the service is the estimate's error: only the service knows how long it lasts."""
    sandbox.inject(Status(operation="catalogue", status=429, retry_after=5000))
    with pytest.raises(AllowanceExhaustedError):
        await extract_cost(client, IDS, Select(), Annual(), to=folder, read_catalogues=True)


async def test_an_estimate_counts_its_own_requests(client: Client, folder: Path) -> None:
    """An estimate counts its own requests, and not what others send over the client at the same time."""
    cost, _ = await asyncio.gather(
        extract_cost(client, IDS, Select(), Annual(), to=folder, read_catalogues=True),
        extract(client, IDS, Select(), Annual(), to=folder.parent / "other"),
    )
    assert cost.spent == len(IDS)


async def test_an_estimate_refuses_and_spares_the_folder_of_another_question(
    client: Client, folder: Path
) -> None:
    """Asked to replace it, it counts all entities as new, and deletes nothing."""
    await extract(client, IDS, Select(), Annual(), to=folder)
    with pytest.raises(ManifestMismatchError):
        await extract_cost(client, IDS, Select(), Quarterly(), to=folder)
    cost = await extract_cost(client, IDS, Select(), Quarterly(), to=folder, replace=True)
    assert cost.new == len(IDS)
    assert len(names(folder)) == len(IDS)


async def test_an_estimate_does_not_guess_from_another_question(client: Client, folder: Path) -> None:
    """What entities took for a question that is to be replaced says nothing of the new one."""
    unknown = await extract_cost(client, IDS, Select(), Quarterly(), to=folder)
    await extract(client, IDS, Select(), Annual(), to=folder)
    cost = await extract_cost(client, IDS, Select(), Quarterly(), to=folder, replace=True)
    assert cost.requests == unknown.requests


async def test_a_publication_that_changes_during_an_estimate_is_counted_anew(
    sandbox: Sandbox, client: Client, folder: Path
) -> None:
    """The run reads it again, so it is not a failure."""
    sandbox.inject(Switch(operation="catalogue", nth=1, publication=COMPANIES[0]))
    cost = await extract_cost(client, IDS[:1], Select(), Annual(), to=folder, read_catalogues=True)
    report = await extract(client, IDS[:1], Select(), Annual(), to=folder)
    assert (cost.failed, cost.new, cost.requests) == ((), 1, report.requests)
