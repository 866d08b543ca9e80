"""Bad input: one clear error that names field, value and what would be right, and no request spent."""

from datetime import date, datetime
from typing import Any

import pytest

from asyncfin import Annual, Client, Select, SelectionError
from asyncfin.sandbox import Sandbox
from tests.contract.conftest import ENTITY

LOCAL = "http://127.0.0.1:1"


@pytest.fixture(autouse=True)
def nothing_spent(sandbox: Sandbox) -> Any:
    """Whatever is refused here was refused before anything was sent."""
    yield
    assert not sandbox.log


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_in_flight": 0}, "max_in_flight must be"),
        ({"max_in_flight": True}, "max_in_flight must be"),
        ({"max_in_flight": 2.0}, r"max_in_flight must be .*, not 2\.0"),
        ({"lane": "slow"}, "lane must be 'interactive' or 'bulk', not 'slow'"),
        ({"lane": ["bulk"]}, "lane must be .*, not \\['bulk'\\]"),
        ({"retry": 5}, "retry must be .*, not 5"),
        ({"retry": None}, "retry must be .*, not None"),
        ({"timeouts": 30}, "timeouts must be .*, not 30"),
        ({"bucket": 5}, "bucket must be .*, not 5"),
        ({"ssl": False}, "ssl must be .*, not False"),
        ({"observers": [5]}, "observer.* 5"),
    ],
)
def test_wrong_client_argument_is_rejected(options: dict[str, Any], message: str) -> None:
    """When it is made, not at its first request."""
    with pytest.raises(SelectionError, match=message):
        Client(LOCAL, "token", **options)


@pytest.mark.parametrize("missing", ["ASYNCFIN_BASE_URL", "ASYNCFIN_TOKEN"])
@pytest.mark.parametrize("empty", [True, False])
def test_a_missing_environment_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, missing: str, empty: bool
) -> None:
    """A missing or empty environment variable is named."""
    monkeypatch.setenv("ASYNCFIN_BASE_URL", LOCAL)
    monkeypatch.setenv("ASYNCFIN_TOKEN", "token")
    assert repr(Client.from_env()) == f"Client({LOCAL!r})"
    monkeypatch.setenv(missing, "") if empty else monkeypatch.delenv(missing)
    with pytest.raises(SelectionError, match=f"^{missing} is not set$"):
        Client.from_env()
    for each in ("ASYNCFIN_BASE_URL", "ASYNCFIN_TOKEN"):
        monkeypatch.delenv(each, raising=False)
    with pytest.raises(SelectionError, match=r"^ASYNCFIN_BASE_URL and ASYNCFIN_TOKEN are not set$"):
        Client.from_env()


WRONG_DAYS = ["", "2024-1-1", "2024-02-30", "2024-01-01T00:00", None, 20240101, datetime(2024, 1, 1)]


@pytest.mark.parametrize("day", WRONG_DAYS, ids=repr)
@pytest.mark.parametrize("field", ["start_date", "end_date"])
async def test_wrong_usage_day_is_rejected(client: Client, field: str, day: Any) -> None:
    """A date, or its text YYYY-MM-DD; a datetime is none."""
    days = {"start_date": "2024-01-01", "end_date": "2024-12-31", field: day}
    with pytest.raises(
        SelectionError, match=f"{field} must be a date, or its text YYYY-MM-DD, not"
    ) as caught:
        await client.usage(**days)
    assert repr(day) in str(caught.value)


async def test_reversed_usage_range_is_rejected(client: Client) -> None:
    """A range that ends before it starts is refused with both days."""
    with pytest.raises(
        SelectionError, match="end_date must not be before start_date: 2024-01-01 is before 2024-01-02"
    ):
        await client.usage(date(2024, 1, 2), "2024-01-01")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((ENTITY, "sales", Annual()), "select must be a Select, not 'sales'"),
        ((ENTITY, None, Annual()), "select must be a Select, not None"),
        ((ENTITY, Select(), "FY2024"), "periods must be a period selection, not 'FY2024'; write Exact"),
        ((ENTITY, Select(), None), "periods must be Exact, .* not None"),
        ((5, Select(), Annual()), "entity_id must be .* not 5"),
        (("..", Select(), Annual()), "entity_id must be .* not '..'"),
    ],
)
async def test_wrong_query_costs_no_request(client: Client, arguments: tuple[Any, ...], message: str) -> None:
    """Query, plan and stream refuse a wrong question before the catalogue is read."""
    for ask in (client.query, client.plan):
        with pytest.raises(SelectionError, match=message):
            await ask(*arguments)
    with pytest.raises(SelectionError, match=message):
        async with client.stream(*arguments):
            pass
