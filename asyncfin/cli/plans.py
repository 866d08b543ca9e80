"""Plans of a question: reading by one, and showing them instead of reading."""

from collections.abc import Sequence
from typing import Any

from attrs import evolve

from asyncfin import Panel
from asyncfin.cli.entities import Names
from asyncfin.cli.output import print_json, screen
from asyncfin.cli.session import Progress
from asyncfin.cli.several import check_failed
from asyncfin.client import Client, publications_of
from asyncfin.plan.plan import Plan
from asyncfin.read.several import SeveralQuestion, catalogues_of, plans_of
from asyncfin.words import counted

_BATCH_FIELDS = ("metric_ids", "scope_combinations", "reporting_group_ids", "requests")


async def read(client: Client, question: SeveralQuestion, shown: Progress) -> Panel:
    """Return the result of a question to one entity."""
    # Planned first, so that progress can say how many queries there will be. What the
    # entity does not have is an error; of several, each result has what the entity has.
    plan = await _plan(client, question)
    shown.expected = plan.requests
    panel = await client.run(plan)
    # The count includes metadata, catalogue and planning.
    return evolve(panel, requests=shown.requests)


async def _plan(client: Client, question: SeveralQuestion) -> Plan:
    (entity_id,) = question.entity_ids
    return await client.plan(
        entity_id,
        question.select,
        question.periods,
        value_version=question.value_version,
    )


async def explain(
    client: Client,
    question: SeveralQuestion,
    names: Names,
    shown: Progress,
    *,
    json: bool,
) -> None:
    """Print the plans, and how many requests planning has spent."""
    entities, several = question.entity_ids, len(question.entity_ids) > 1
    if several:
        publications, version = publications_of(client), question.value_version
        each = await catalogues_of(publications, entities)
        found = each.found.values()
        plans = (
            await plans_of(
                publications, found, question.select, question.periods, [version]
            )
            if found
            else []
        )
    else:
        plans = [await _plan(client, question)]
    _print_plans(plans, json=json, several=several)
    if not json:
        screen().print(
            f"planning has spent {counted(shown.requests, 'request')}", style="dim"
        )
    if several:
        check_failed(each.failed, each.ended, len(entities), names)


def _print_plans(plans: Sequence[Plan], *, json: bool, several: bool) -> None:
    """Print plans for people, or as JSON: the document of one, or a list of several."""
    if not json:
        screen().print("\n\n".join(map(str, plans)))
        return
    documents = [plan_document(plan) for plan in plans]
    print_json(documents if several else documents[0])


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return a plan as plain data (docs/cli.md)."""
    return {
        "entity_id": plan.catalogue.entity_id,
        "dataset_id": plan.catalogue.dataset_id,
        "series": [series.series_id for series in plan.series],
        "requests": plan.requests,
        "lower_bound": plan.lower_bound,
        "batches": [
            {name: getattr(batch, name) for name in _BATCH_FIELDS}
            for batch in plan.batches
        ],
    }
