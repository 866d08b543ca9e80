"""Equal questions at the same time share one read, whatever each of them does with what is missing."""

import asyncio
from functools import partial

import pytest

from asyncfin import Client, FiscalRange, Select, SelectionError
from asyncfin.sandbox import Latency, Sandbox
from tests.generate import generate

DATASET = generate(11, series=40)
ENTITY = DATASET.entity_id


async def _first_of_many(client: Client, select: Select) -> object:
    async with client.query_many([ENTITY], select, FiscalRange()) as answers:
        return await anext(answers)


@pytest.mark.virtual
@pytest.mark.parametrize("first", ["query", "query_many"])
async def test_an_equal_question_about_several_entities_changes_no_error(first: str) -> None:
    """One raises for an unknown metric, the other reports it as missing, whichever of them leads."""
    async with (
        Sandbox(DATASET, faults=[Latency(seconds=1)]) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        known = (await client.catalogue(ENTITY)).series[0].metric_id
        select = Select(metric_ids=(known, "Unknown"))
        questions = {
            "query": partial(client.query, ENTITY, select, FiscalRange()),
            "query_many": partial(_first_of_many, client, select),
        }
        leading = asyncio.ensure_future(questions.pop(first)())
        await asyncio.sleep(0.1)  # each of its requests takes a second
        (following,) = questions.values()
        ends = await asyncio.gather(leading, following(), return_exceptions=True)
        error, answer = ends if first == "query" else reversed(ends)
        assert isinstance(error, SelectionError)
        assert "Unknown" in str(error)
        assert answer.missing == {"metric_ids": ("Unknown",)}  # type: ignore[union-attr]
        assert {series.metric_id for series in answer.panel} == {known}  # type: ignore[union-attr]
