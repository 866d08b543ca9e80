"""`asyncfin query`: one question, its answer as a table, JSON, CSV or a picture, or only its plan."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import AsJson, Periods, Selection, Service, require
from asyncfin.cli.output import print_json, screen
from asyncfin.cli.panel import Unit, panel_document, print_panel, print_panel_csv
from asyncfin.cli.session import connected
from asyncfin.errors import SelectionError
from asyncfin.model.query import ValueVersion
from asyncfin.table.panel import Panel


async def query(
    entity_id: str,
    /,
    *,
    selection: Selection = Selection(),  # noqa: B008  a frozen value
    periods: Periods = Periods(),  # noqa: B008  a frozen value
    restated: bool = False,
    all: bool = False,
    unit: Unit | None = None,
    explain: bool = False,
    json: AsJson = False,
    csv: bool = False,
    plot: Annotated[Path | None, Parameter(help="Draw the series into this PNG file instead.")] = None,
    service: Service = Service(),  # noqa: B008  a frozen value
) -> None:
    """Ask for series and print them as a table: a row each, by period.

    The question is planned, so that it costs few requests. In the table a dot
    marks a period without a value; a reported zero is 0. Where no periods are
    named and there are more than 12, it shows the latest; CSV and JSON have all.

      asyncfin query ENTITY_ID --metric Revenue --annual --last 5
      asyncfin query ENTITY_ID --basis product --quarterly --csv > products.csv

    Args:
        entity_id: The entity, O- and 32 characters.
        all: Show series without a value in the table too.
        unit: What whole numbers of the table are divided by.
        restated: The latest restated values in place of those first reported.
        explain: Print how the question would be asked, and ask nothing but the catalogue.
        csv: Print comma-separated values instead.
    """
    if plot is not None:
        require("matplotlib", "plot", "--plot")
    others = {"--json": json, "--csv": csv, "--explain": explain, "--plot": plot is not None}
    _refuse_several([name for name, given in others.items() if given], unit)
    question = (entity_id, selection.select(), periods.selection())
    value_version: ValueVersion = "latest_restated" if restated else "original"
    async with connected(service, "Asking") as client:
        if explain:
            plan = await client.plan(*question, value_version=value_version)
        else:
            panel = await client.query(*question, value_version=value_version)
    if explain:
        screen().print(str(plan))
    elif json:
        print_json(panel_document(panel))
    elif csv:
        print_panel_csv(panel)
    elif plot is not None:
        _plot(panel, plot)
    else:
        print_panel(panel, screen(), latest=periods == Periods(), empty=all, unit=unit)


def _plot(panel: Panel, file: Path) -> None:
    try:
        axes = panel.plot()
    except SelectionError as error:
        too_many = str(error).partition(":")[0]
    else:
        axes.figure.savefig(file, format="png", dpi=150)
        screen().print(f"wrote {file}")
        return
    raise UsageError(f"{too_many}: narrow it with --basis, --scope or --last")


def _refuse_several(asked: list[str], unit: Unit | None) -> None:
    if len(asked) > 1:
        raise UsageError(f"{' and '.join(asked)} exclude each other: choose one")
    if asked and unit is not None:
        raise UsageError(f"--unit is for the table, and {asked[0]} prints none: leave out one of them")
