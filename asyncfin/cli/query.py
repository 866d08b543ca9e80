"""`asyncfin query`: one question to one entity or several, its answer in several forms, or only its plan."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from attrs import evolve
from cyclopts import Parameter

from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import AsJson, Periods, Selection, Service, require
from asyncfin.cli.output import print_json, screen
from asyncfin.cli.panel import Unit, print_panels, print_panels_csv, print_panels_json
from asyncfin.cli.session import progress
from asyncfin.errors import SelectionError
from asyncfin.fanout.plan import Plan
from asyncfin.model.query import ValueVersion
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
        entity_ids: The entities, O- and 32 characters each: they are compared.
        all: Show series without a value in the table too.
        unit: What whole numbers of the table are divided by.
        restated: The latest restated values in place of those first reported.
        explain: Print how the question would be asked, and ask nothing but the catalogue.
        csv: Print comma-separated values instead. A text that a spreadsheet would take for a formula
            begins with an apostrophe.
        csv_raw: The same, with every text as it is.
    """
    others = {
        "--json": json and not explain,
        "--csv": csv,
        "--csv-raw": csv_raw,
        "--explain": explain,
        "--plot": plot is not None,
    }
    _refuse_several([name for name, given in others.items() if given], unit)
    if plot is not None:
        _check_picture(plot)
    entities = list(dict.fromkeys(entity_ids))
    if not entities:
        raise UsageError("no entity is named: give an entity id, or several to compare them")
    question = (selection.select(), periods.selection())
    value_version: ValueVersion = "latest_restated" if restated else "original"
    with progress("Asking") as shown:
        async with service.client(observers=[shown]) as client:
            plans = await asyncio.gather(
                *(client.plan(each, *question, value_version=value_version) for each in entities)
            )
            shown.expected = sum(plan.requests for plan in plans)
            panels = [] if explain else await asyncio.gather(*map(client.run, plans))
    # What planning has spent is a part of the answer's price.
    panels = [evolve(panel, requests=shown.by_entity[panel.dataset.entity_id]) for panel in panels]
    if explain:
        _print_plans(plans, json)
    elif json:
        print_panels_json(panels)
    elif csv or csv_raw:
        print_panels_csv(panels, raw=csv_raw)
    elif plot is not None:
        _plot(panels, plot)
    else:
        print_panels(panels, screen(), latest=periods == Periods(), empty=all, unit=unit)


def _print_plans(plans: Sequence[Plan], json: bool) -> None:
    if not json:
        screen().print("\n\n".join(map(str, plans)))
        return
    documents = [_plan_document(plan) for plan in plans]
    print_json(documents[0] if len(documents) == 1 else documents)


def _plan_document(plan: Plan) -> dict[str, Any]:
    """Return a plan as plain data (docs/cli.md)."""
    return {
        "entity_id": plan.catalogue.entity_id,
        "dataset_id": plan.catalogue.dataset_id,
        "series": [series.series_id for series in plan.series],
        "requests": plan.requests,
        "lower_bound": plan.lower_bound,
        "way": plan.way,
        "batches": [{name: getattr(batch, name) for name in _BATCH_FIELDS} for batch in plan.batches],
    }


def _check_picture(file: Path) -> None:
    """Refuse, before a request is spent, a picture that could not be drawn or written."""
    require("matplotlib", "plot", "--plot")
    from matplotlib.backend_bases import FigureCanvasBase

    known = sorted(FigureCanvasBase.get_supported_filetypes())
    if file.suffix.lower()[1:] not in known:
        raise UsageError(f"--plot {file} must end in one of .{', .'.join(known)}: that says what is drawn")
    if file.is_dir():
        raise UsageError(f"--plot {file} can't be written: it is a folder")
    if not (file.parent.is_dir() and os.access(file.parent, os.W_OK)):
        raise UsageError(f"--plot {file} can't be written: {file.parent} is not a folder to write to")


def _plot(panels: list[Panel], file: Path) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 5.5), layout="constrained")
    try:
        for panel in panels:
            panel.plot(axes)
    except SelectionError as error:
        complaint = str(error).partition(": cut")
    else:
        figure.savefig(file, dpi=150)
        screen().print(f"wrote {file}")
        return
    finally:
        pyplot.close(figure)
    narrower = ": narrow it with --basis, --scope or --last" if complaint[1] else ""
    raise UsageError(complaint[0] + narrower)


def _refuse_several(asked: list[str], unit: Unit | None) -> None:
    if len(asked) > 1:
        raise UsageError(f"{' and '.join(asked)} exclude each other: choose one")
    if asked and unit is not None:
        raise UsageError(f"--unit is for the table, and {asked[0]} prints none: leave out one of them")
