"""Section 8: limits and allowances."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from asyncfin import AllowanceExhaustedError, Client, Query, Retry, SelectionError, Trailing
from asyncfin.sandbox import Account, Sandbox
from tests.contract.conftest import ENTITY, FIRST, PUBLICATION, asking, query

IDS = [f"id{number}" for number in range(51)]
MONDAY = datetime(2024, 5, 6, 23, 59, 30, tzinfo=UTC)


@pytest.mark.parametrize("size", [0, 101, -1, 25.0, "25", None, True])
async def test_row_limit_is_1_to_100(client: Client, sandbox: Sandbox, size: Any) -> None:
    """Refused before a request is spent, for both kinds of pages."""
    for ask in (
        lambda: client.catalogue_pages(ENTITY, page_size=size),
        lambda: client.query_pages(ENTITY, query(), page_size=size),
    ):
        with pytest.raises(SelectionError, match="page_size must be a whole number from 1 to 100"):
            ask()
    assert not sandbox.log


async def test_largest_query_is_accepted(client: Client, sandbox: Sandbox) -> None:
    """50 metrics, 50 paths of up to 20 entries, 50 groups: the service only finds the ids unknown."""
    paths = [[("g", f"{number}-{depth}") for depth in range(20)] for number in range(50)]
    with pytest.raises(Exception, match="400 validation_failed"):
        await anext(client.query_pages(ENTITY, Query(IDS[:50], paths, Trailing(1), IDS[:50])))
    assert len(sandbox.log) == 1


async def test_allowance_2_counts_dataset_reads(sandbox: Sandbox) -> None:
    """Each of the three dataset operations is one data request."""
    sandbox.put_account(Account("small", allowance=3))
    async with asking(sandbox, sandbox.issue_token("small")) as client:
        await client.dataset(ENTITY)
        await anext(client.catalogue_pages(ENTITY))
        await anext(client.query_pages(ENTITY, query()))
        await client.usage("2024-01-01", "2024-01-02")
        await client.limits()
        with pytest.raises(AllowanceExhaustedError):
            await client.dataset(ENTITY)


def running_clock() -> Callable[[], datetime]:
    """Return a wall clock that goes with the loop's."""
    return lambda: MONDAY + timedelta(seconds=asyncio.get_running_loop().time())


@pytest.mark.virtual
async def test_allowance_3_waits_for_midnight() -> None:
    """The daily allowance is reset at midnight UTC; Retry-After says how long that is."""
    async with (
        Sandbox(PUBLICATION, allowance=1, clock=running_clock()) as sandbox,
        asking(sandbox, retry=Retry()) as client,
    ):
        await client.dataset(ENTITY)
        assert (await client.dataset(ENTITY)).dataset_id == FIRST
        assert [sent.status for sent in sandbox.log] == [200, 429, 200]
        assert 30 <= asyncio.get_running_loop().time() <= 33


@pytest.mark.virtual
async def test_allowance_4_long_wait_fails() -> None:
    """A wait that is too long is an error at once, which says when requests are possible again."""
    async with Sandbox(PUBLICATION, allowance=1, clock=running_clock()) as sandbox:
        async with asking(sandbox, retry=Retry(max_retry_after=20)) as client:
            await client.dataset(ENTITY)
            with pytest.raises(AllowanceExhaustedError) as caught:
                await client.dataset(ENTITY)
        assert caught.value.retry_after == pytest.approx(30, abs=1)
        assert caught.value.at
        assert (caught.value.resume_at - caught.value.at).total_seconds() == caught.value.retry_after
        assert asyncio.get_running_loop().time() < 1
