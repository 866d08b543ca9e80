"""`asyncfin query`: one question to one entity or several, its answer in several forms, or only its plan."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from attrs import evolve
from cyclopts import Parameter

from asyncfin.cli.entities import Names
from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import AsJson, Periods, Selection, Service, choose_one, require
from asyncfin.cli.output import print_json, screen
from asyncfin.cli.panel import Unit, print_panels, print_panels_csv, print_panels_json
from asyncfin.cli.session import Progress, connected, progress
from asyncfin.cli.streams import print_error
from asyncfin.client import Client
from asyncfin.errors import SelectionError
from asyncfin.extraction.entity import read_entity
from asyncfin.extraction.question import SharedQuestion
from asyncfin.extraction.report import missing_in_all, named
from asyncfin.plan.plan import Plan
from asyncfin.read.entity import EntityAnswer
from asyncfin.table.panel import Panel

_BATCH_FIELDS = ("metric_ids", "scope_combinations", "reporting_group_ids", "requests")


async def query(
    *entity_ids: str,
    selection: Selection = Selection(),  # noqa: B008  a frozen value
    periods: Periods = Periods(),  # noqa: B008  a frozen value
    restated: bool = False,
    all: bool = False,
    unit: Unit | None = None,
    explain: bool = False,
    json: AsJson = False,
    csv: bool = False,
    csv_raw: bool = False,
    plot: Annotated[
        Path | None, Parameter(help="Draw the series into this file instead: .png, .pdf, .svg")
    ] = None,
    names: Names = Names(),  # noqa: B008  a frozen value
    service: Service = Service(),  # noqa: B008  a frozen value
) -> None:
    """Ask for series and print them as a table: a row each, by period.

    The question is planned, so that it costs few requests. In the table a dot
    marks a period without a value; a reported zero is 0. Where no periods are
    named and there are more than 12, it shows the latest; CSV and JSON have all.

      asyncfin query ENTITY_ID --metric Revenue --annual --last 5
      asyncfin query ENTITY_ID --basis product --quarterly --csv > products.csv
      asyncfin query ENTITY_ID ENTITY_ID --metric Revenue --annual --plot two.pdf

    Args:
        entity_ids: The entities, O- and 32 characters each, or their names. Several are compared.
        all: Show series without a value too, in the table and in CSV.
        unit: Divide the whole numbers of the table.
        restated: The latest restated values in place of those first reported.
        explain: Print only the plan: series, batches, requests. Reads the catalogue, sends no query.
        csv: Print a comma-separated line for each series. Texts like formulas get a leading apostrophe.
        csv_raw: The same, with every text as it is.
    """
    form = choose_one(
        {
            "--json": json and not explain,
            "--csv": csv,
            "--csv-raw": csv_raw,
            "--explain": explain,
            "--plot": plot is not None,
        }
    )
    if form and unit is not None:
        raise UsageError(f"--unit is for the table, and {form} prints none: leave out one of them")
    # All that can be known before a request is spent is checked first.
    if plot is not None:
        check_picture(plot)
    entities = list(dict.fromkeys(map(names.entity_id, entity_ids)))
    if not entities:
        raise UsageError("no entity is named: give an entity id, or several to compare them")
    question = SharedQuestion(
        selection.select(), periods.selection(), "latest_restated" if restated else "original"
    )
    if explain:
        async with connected(service, "Asking", names) as client:
            print_plans(await asyncio.gather(*(_plan(client, each, question) for each in entities)), json)
        return
    with progress("Asking") as shown, names.in_errors():
        async with service.client(observers=[shown]) as client:
            answers = await answers_of(client, entities, question, shown)
    # The count includes metadata, catalogue and planning.
    panels = [evolve(each.panel, requests=shown.by_entity[each.entity_id]) for each in answers if each.panel]
    if json:
        print_panels_json(panels)
    elif csv or csv_raw:
        print_panels_csv(panels, raw=csv_raw, empty=all)
    elif plot is not None:
        _plot(panels, plot)
    else:
        print_panels(panels, screen(), latest=periods == Periods(), empty=all, unit=unit)
    # A table says itself why it is empty.
    print_missing(answers, why_empty=form is not None)


def print_missing(answers: Sequence[EntityAnswer], *, why_empty: bool) -> None:
    """Print, on standard error, what entities do not have, and why an answer has no value."""
    for each in answers:
        if each.panel is None:
            continue
        name = each.panel.dataset.name
        if each.missing:
            print_error(f"asyncfin: {name} has no {named(each.missing)}")
        if why_empty and (why := each.panel.why_empty()):
            print_error(f"asyncfin: {name}: {why}")


async def answers_of(
    client: Client, entities: Sequence[str], question: SharedQuestion, shown: Progress
) -> list[EntityAnswer]:
    """Return the answer of each entity.

    Raises:
        SelectionError: ids or words are asked for that no entity has.
    """
    # A single entity is planned first, so that progress can say how many queries there will be, and what
    # it does not have is an error. Of several, each answers with what it has.
    if len(entities) == 1:
        plan = await _plan(client, entities[0], question)
        shown.expected = plan.requests
        return [EntityAnswer(entities[0], await client.run(plan))]
    select, periods, version = question.select, question.periods, question.value_version
    several = [
        read_entity(client, each, select, periods, value_version=version, fill_cache=True)
        for each in entities
    ]
    answers = await asyncio.gather(*several)
    if unknown := missing_in_all([each.missing for each in answers]):
        assert answers[0].panel is not None
        near = answers[0].panel.catalogue.complaint(unknown)
        raise SelectionError(
            f"none of the {len(answers)} entities has {named(unknown)}; {near}", missing=unknown
        )
    return answers


async def _plan(client: Client, entity_id: str, question: SharedQuestion) -> Plan:
    return await client.plan(
        entity_id, question.select, question.periods, value_version=question.value_version
    )


def print_plans(plans: Sequence[Plan], json: bool) -> None:
    """Print plans for people, or as JSON: the document of one, or a list of several."""
    if not json:
        screen().print("\n\n".join(map(str, plans)))
        return
    documents = [plan_document(plan) for plan in plans]
    print_json(documents[0] if len(documents) == 1 else documents)


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return a plan as plain data (docs/cli.md)."""
    return {
        "entity_id": plan.catalogue.entity_id,
        "dataset_id": plan.catalogue.dataset_id,
        "series": [series.series_id for series in plan.series],
        "requests": plan.requests,
        "lower_bound": plan.lower_bound,
        "batches": [{name: getattr(batch, name) for name in _BATCH_FIELDS} for batch in plan.batches],
    }


def check_picture(file: Path) -> None:
    """Refuse, before a request is spent, a file that could not be written."""
    require("matplotlib", "plot", "--plot")
    from matplotlib.backend_bases import FigureCanvasBase

    known = sorted(FigureCanvasBase.get_supported_filetypes())
    if file.suffix.lower()[1:] not in known:
        raise UsageError(
            f"--plot {file} must end in one of .{', .'.join(known)}: the suffix chooses the format"
        )
    if file.is_dir():
        raise UsageError(f"--plot {file} can't be written: it is a folder")
    if not (file.parent.is_dir() and os.access(file.parent, os.W_OK)):
        raise UsageError(f"--plot {file} can't be written: {file.parent} is not a folder to write to")


def _plot(panels: list[Panel], file: Path) -> None:
    from matplotlib import pyplot

    from asyncfin.table.comparison import plot
    from asyncfin.table.plot import MOST_LINES, TooManyLinesError

    try:
        figure: Any = plot(panels).figure
    except TooManyLinesError as error:
        raise UsageError(
            f"a plot must have at most {MOST_LINES} lines, one for each series and duration, not"
            f" {error.lines}: narrow it with --metric, --basis, --scope or --cadence"
        ) from None
    except SelectionError as error:
        raise UsageError(str(error)) from None
    try:
        figure.savefig(file, dpi=150)
    finally:
        pyplot.close(figure)
    screen().print(f"wrote {file}")
