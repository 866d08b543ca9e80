"""Mistakes in the use of a client that Python itself would describe: the error says what to write."""

from typing import Any

import pytest
from attrs import evolve

from asyncfin import Annual, ArgumentError, Client, FiscalRange, Select, SelectionError
from asyncfin.sandbox import Sandbox


def test_plain_with_says_what_to_write() -> None:
    """A client is an async context manager only."""
    client: Any = Client("http://127.0.0.1:9", "token")
    with pytest.raises(TypeError, match="write `async with Client"), client:
        pass


def test_single_observer_is_rejected() -> None:
    """Of `observers` by name, as of every other argument."""
    wrong: Any = print
    with pytest.raises(
        ArgumentError, match="observers must be an iterable of functions, such as a list, not <"
    ):
        Client("http://127.0.0.1:9", "token", observers=wrong)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"metric_ids": []}, "metric_ids must have 1 to 50 entries, not 0"),
        ({"periods": Annual(last=1)}, "periods must be Exact, FiscalRange or Trailing"),
        ({"periods": FiscalRange(2020)}, "periods must have a start and an end"),
        ({"value_version": "restated"}, "value_version must be"),
    ],
    ids=str,
)
async def test_changed_batch_is_checked(change: dict[str, Any], said: str) -> None:
    """`query_pages` checks it like a Query; the planner's own keep to the caps."""
    async with Sandbox.demo() as service, Client(service.base_url, service.token) as client:
        plan = await client.plan(service.entities[0], Select("Revenue"), Annual(last=2))
        before = client.stats().requests
        batch = plan.batches[0]
        with pytest.raises(SelectionError, match=said):
            client.query_pages(service.entities[0], evolve(batch, **change))
        metrics = evolve(batch, metric_ids="NetIncome")  # type: ignore[arg-type]
        (page,) = [page async for page in client.query_pages(service.entities[0], metrics)]
        assert {series.metric_id for series in page.series} == {"NetIncome"}
        assert client.stats().requests == before + 1
