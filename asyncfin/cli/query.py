"""`asyncfin query`: one question to one entity or several, its result in several forms, or only its plan."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from attrs import evolve
from cyclopts import Parameter

from asyncfin.cli.entities import Names
from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import (
    AsCsv,
    AsJson,
    AsRawCsv,
    Periods,
    Selection,
    Service,
    choose_one,
    period_group,
    require,
)
from asyncfin.cli.output import print_json, print_text, screen
from asyncfin.cli.panel import print_panels, print_panels_csv
from asyncfin.cli.session import Progress, progress
from asyncfin.cli.several import check_all, check_any, check_failed
from asyncfin.cli.streams import print_error
from asyncfin.cli.twelve_months import print_all, print_latest
from asyncfin.client import Client, reads_of
from asyncfin.errors import SelectionError
from asyncfin.model.judge import Missing, named, without_periods
from asyncfin.model.period import intended_period
from asyncfin.model.query import ValueVersion
from asyncfin.model.words import counted
from asyncfin.plan.plan import Plan
from asyncfin.read.several import SeveralQuestion, catalogues_of, compare, plans_of
from asyncfin.table.notes import entity_names
from asyncfin.table.panel import Panel
from asyncfin.table.unit import Unit
from asyncfin.table.why import why_empty as why_no_value

_BATCH_FIELDS = ("metric_ids", "scope_combinations", "reporting_group_ids", "requests")


async def query(
    *entity_ids: str,
    selection: Selection = Selection(),
    periods: Periods = Periods(),
    restated: bool = False,
    all: bool = False,
    unit: Unit | None = None,
    ttm: Annotated[
        bool, Parameter(group=period_group, help="The last twelve months, added up of published values.")
    ] = False,
    explain: bool = False,
    json: AsJson = False,
    csv: AsCsv = False,
    csv_raw: AsRawCsv = False,
    plot: Annotated[
        Path | None, Parameter(help="Draw the series into this file instead: .png, .pdf, .svg")
    ] = None,
    names: Names = Names(),
    service: Service = Service(),
) -> None:
    """Query series and print their values as a table, a row for each series.

    The question is planned, so that it costs few requests. In the table a dot
    marks a period without a value; a reported zero is 0. Where no periods are
    named and there are more than 12, it shows the latest; CSV and JSON have all.

      asyncfin query ENTITY_ID --metric Revenue --annual --last 5
      asyncfin query ENTITY_ID --basis product --quarterly --csv > products.csv
      asyncfin query ENTITY_ID ENTITY_ID --metric EPS --annual --plot two.pdf
      asyncfin query ENTITY_ID ENTITY_ID --metric Revenue --ttm --unit billions

    Args:
        entity_ids: The entities, O- and 32 characters each, or their names. Several are compared.
        all: Show series without a value too, in the table and in CSV.
        unit: Divide the whole numbers of the table.
        restated: The latest restated values instead of the original ones.
        explain: Print only the plan: series, batches, requests. Reads the catalogue, sends no query.
    """
    forms = {"--csv": csv, "--csv-raw": csv_raw, "--explain": explain, "--plot": plot is not None}
    form = choose_one({"--json": json and not explain, **forms})
    if form and unit is not None:
        raise UsageError(f"--unit is for the table, and {form} prints none: leave out one of them")
    # All that can be known before a request is spent is checked first.
    if ttm:
        choose_one({"--ttm": True, "--plot": plot is not None})
        if periods != Periods():
            raise UsageError("--ttm requests all periods: leave out the other options of periods")
        require("pyarrow", "arrow", "--ttm")
    if plot is not None:
        check_picture(plot)
    if not (entities := list(dict.fromkeys(_entity_ids(entity_ids, names)))):
        raise UsageError("no entity is given: give an entity id, or several to compare them")
    version: ValueVersion = "latest_restated" if restated else "original"
    question = SeveralQuestion(entities, selection.select(), periods.selection(), version)
    several = len(entities) > 1
    with progress("Reading") as shown, names.annotate():
        async with service.client(observers=[shown]) as client:
            if explain:
                await _explain(client, question, names, shown, json=json)
                return
            comparison = await compare(reads_of(client), question) if several else None
            panels = [*comparison] if comparison else [await _read(client, question, shown)]
    if comparison:
        check_any(comparison, names)
    if ttm:
        _print_twelve_months(panels, selection, unit, json=json, csv=csv or csv_raw, raw=csv_raw)
    elif json:
        print_text((comparison or panels[0]).to_json(indent=2))
    elif csv or csv_raw:
        print_panels_csv(panels, raw=csv_raw, empty=all, several=several)
    elif plot is not None:
        _plot(panels, plot)
    else:
        print_panels(panels, screen(), latest=periods == Periods(), empty=all, unit=unit)
    # A table says itself why it is empty.
    print_missing(panels, comparison.missing if comparison else {}, why_empty=form is not None)
    if comparison:
        check_all(comparison, names)


def _print_twelve_months(
    panels: Sequence[Panel], selection: Selection, unit: Unit | None, *, json: bool, csv: bool, raw: bool
) -> None:
    from asyncfin.analysis.twelve_months import OVER_PERIOD, last_twelve_months

    table = last_twelve_months(panels, period_meanings=selection.period_meaning or OVER_PERIOD)
    if json or csv:
        print_all(table, json=json, raw=raw)
    else:
        print_latest(table, panels, screen(), unit)


def _entity_ids(texts: Sequence[str], names: Names) -> Iterator[str]:
    names.check_known(texts)
    for place, text in enumerate(texts):
        try:
            yield names.entity_id(text)
            continue
        except UsageError as error:
            complaint = str(error)
        # After an entity, something else is often meant.
        if place and text.isalpha() and not names.is_close(text):
            complaint = f"{text!r} is not an entity; a metric is given as --metric {text}"
        elif intended_period(text):
            complaint = f"{text!r} is not an entity; a period is given as --exact {intended_period(text)}"
        elif text.isdigit():
            complaint = f"{text!r} is not an entity; give the latest years as --annual --last {text}"
        raise UsageError(complaint)


def print_missing(panels: Sequence[Panel], missing: Mapping[str, Missing], *, why_empty: bool) -> None:
    """Print, on standard error, what entities do not have, and why a panel has no value."""
    names = entity_names(panel.catalogue for panel in panels)
    for panel in panels:
        entity_id = panel.dataset.entity_id
        of_one = missing.get(entity_id, {})
        # Where there are series, the table shows which periods have no value.
        if of_one := without_periods(of_one) if len(panel) else of_one:
            print_error(f"asyncfin: {names[entity_id]} has no {named(of_one)}")
        elif why_empty and (why := why_no_value(panel)):
            print_error(f"asyncfin: {names[entity_id]}: {why}")


async def _read(client: Client, question: SeveralQuestion, shown: Progress) -> Panel:
    # Planned first, so that progress can say how many queries there will be. What the entity does not have
    # is an error; of several, each result has what the entity has.
    plan = await _plan(client, question)
    shown.expected = plan.requests
    panel = await client.run(plan)
    # The count includes metadata, catalogue and planning.
    return evolve(panel, requests=shown.by_entity.total())


async def _plan(client: Client, question: SeveralQuestion) -> Plan:
    (entity_id,) = question.entity_ids
    return await client.plan(
        entity_id, question.select, question.periods, value_version=question.value_version
    )


async def _explain(
    client: Client, question: SeveralQuestion, names: Names, shown: Progress, *, json: bool
) -> None:
    """Print the plans, and how many requests planning has spent."""
    entities, several = question.entity_ids, len(question.entity_ids) > 1
    if several:
        reads, version = reads_of(client), question.value_version
        each = await catalogues_of(reads, entities)
        found = each.found.values()
        plans = await plans_of(reads, found, question.select, question.periods, [version]) if found else []
    else:
        plans = [await _plan(client, question)]
    print_plans(plans, json=json, several=several)
    if not json:
        screen().print(f"planning has spent {counted(shown.by_entity.total(), 'request')}", style="dim")
    if several:
        check_failed(each.failed, each.ended, len(entities), names)


def print_plans(plans: Sequence[Plan], *, json: bool, several: bool) -> None:
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

    from asyncfin.table.plot import MOST_LINES, TooManyLinesError, plot

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
