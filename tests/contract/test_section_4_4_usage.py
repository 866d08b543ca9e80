"""Section 4.4: read usage."""

from datetime import date, timedelta

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from asyncfin import Client
from asyncfin.sandbox import Sandbox
from tests import examples
from tests.contract.conftest import asking


async def test_request_is_get_of_both_days(client: Client, sandbox: Sandbox) -> None:
    """At /v1/usage, the days written YYYY-MM-DD."""
    await client.usage(date(2024, 1, 5), "2024-02-01")
    (sent,) = sandbox.log
    assert (sent.method, sent.path, sent.body) == ("GET", "/v1/usage", None)
    assert sent.params == {"start_date": "2024-01-05", "end_date": "2024-02-01"}


async def test_permission_by_its_full_identifier(sandbox: Sandbox) -> None:
    """Prefixed with the base URL."""
    token = sandbox.issue_token(permissions=[f"{sandbox.base_url}/usage:read"])
    async with asking(sandbox, token) as client:
        assert len(await client.usage("2024-01-01", "2024-01-02")) == 1


async def test_both_dates_are_included(client: Client) -> None:
    """The body lists each day of the range, as the sandbox words it."""
    (window,) = await client.usage("2024-02-28", date(2024, 3, 1))
    assert (window.start_date, window.end_date) == (date(2024, 2, 28), date(2024, 3, 1))
    assert [day["date"] for day in window.body["days"]] == ["2024-02-28", "2024-02-29", "2024-03-01"]


@pytest.mark.parametrize(
    ("days", "requests"), [(1, 1), (91, 1), (92, 1), (93, 2), (184, 2), (185, 3), (730, 8)]
)
async def test_long_range_is_cut(client: Client, sandbox: Sandbox, days: int, requests: int) -> None:
    """Into as few windows as the cap allows; the service refuses none of them."""
    start = date(2023, 1, 1)
    windows = await client.usage(start, start + timedelta(days=days - 1))
    assert len(windows) == len(sandbox.log) == requests
    assert {sent.status for sent in sandbox.log} == {200}


@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(start=st.dates(date(2000, 1, 1), date(2030, 1, 1)), days=st.integers(0, 500))
async def test_every_day_is_reported_once(client: Client, start: date, days: int) -> None:
    """Every day is reported once and in order, whatever the range and whichever window answers first."""
    windows = await client.usage(start, start + timedelta(days=days))
    listed = [day["date"] for window in windows for day in window.body["days"]]
    assert listed == [str(start + timedelta(days=at)) for at in range(days + 1)]
