"""Reading answers by asyncfin; some ways return something else than how many values
they read.
"""

from contextlib import aclosing
from typing import Any

from attrs import frozen

from asyncfin.plan.plan import Plan

IN_FLIGHT = 8


@frozen
class Question:
    """What every contender is asked."""

    url: str
    token: str
    plan: Plan
    chains: list[dict[str, Any]]

    @property
    def path(self) -> str:
        return f"{self.url}/v1/entities/{self.plan.catalogue.entity_id}/dataset/query"


Held = Any


async def numbers(question: Question) -> tuple[int, Held]:
    from asyncfin import Client

    async with Client(question.url, question.token, max_in_flight=IN_FLIGHT) as client:
        panel = await client.run(question.plan)
    return panel.value_count, panel


async def arrow(question: Question) -> tuple[int, Held]:
    _, panel = await numbers(question)
    table = panel.to_arrow()
    return table.num_rows, table


async def every_value(question: Question) -> tuple[int, Held]:
    _, panel = await numbers(question)
    return sum(1 for series in panel for _ in series.observations()), panel


async def every_value_kept(question: Question) -> tuple[int, Held]:
    _, panel = await numbers(question)
    values = [value for series in panel for _, value in series.observations()]
    return len(values), values


async def stream(question: Question) -> tuple[int, Held]:
    from asyncfin import Client, Select

    plan, count = question.plan, 0
    async with (
        Client(question.url, question.token, max_in_flight=IN_FLIGHT) as client,
        client.stream(plan.catalogue, Select(), plan.question.periods) as pieces,
    ):
        async for piece in pieces:
            count += piece.value_count
    return count, None


async def prefetched(question: Question) -> tuple[int, Held]:
    """Read the pages of one query, the next one requested while one is read; none is
    kept.
    """
    from asyncfin import Client

    entity_id, (query,) = question.plan.catalogue.entity_id, question.plan.batches
    async with (
        Client(question.url, question.token) as client,
        aclosing(client.query_pages(entity_id, query, prefetch=True)) as pages,
    ):
        return sum([100 async for _ in pages]), None


async def prefetched_values(question: Question) -> tuple[int, Held]:
    """Read the same, and look at every Value, without a wait in between."""
    from asyncfin import Client

    entity_id, (query,), count = (
        question.plan.catalogue.entity_id,
        question.plan.batches,
        0,
    )
    async with (
        Client(question.url, question.token) as client,
        aclosing(client.query_pages(entity_id, query, prefetch=True)) as pages,
    ):
        async for page in pages:
            count += sum(
                value is not None for series in page.series for value in series.values
            )
    return count, None
