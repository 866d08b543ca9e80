"""`asyncfin query`: one question, its answer as a table, JSON, CSV or a picture, or only its plan."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import AsJson, Periods, Selection, Service
from asyncfin.cli.output import print_json, screen
from asyncfin.cli.panel import panel_document, print_panel, print_panel_csv
from asyncfin.cli.session import connected
from asyncfin.table.library import library


async def query(
    entity_id: str,
    /,
    *,
    selection: Selection = Selection(),  # noqa: B008  a frozen value
    periods: Periods = Periods(),  # noqa: B008  a frozen value
    restated: bool = False,
    explain: bool = False,
    json: AsJson = False,
    csv: bool = False,
    plot: Annotated[Path | None, Parameter(help="Draw the series into this PNG file instead.")] = None,
    service: Service = Service(),  # noqa: B008  a frozen value
) -> None:
    """Ask for series and print them as a table: a row each, by period.

    The question is planned, so that it costs few requests. In the table a dot
    marks a period without a value; a reported zero is 0.

      asyncfin query ENTITY_ID --metric Revenue --annual --last 5
      asyncfin query ENTITY_ID --basis product --quarterly --csv > products.csv

    Args:
        entity_id: The entity, O- and 32 characters.
        restated: The latest restated values in place of those first reported.
        explain: Print how the question would be asked, and ask nothing but the catalogue.
        csv: Print comma-separated values instead.
    """
    if plot is not None:
        _require_matplotlib()
    _refuse_several({"--json": json, "--csv": csv, "--explain": explain, "--plot": plot is not None})
    question = (entity_id, selection.select(), periods.selection())
    value_version = "latest_restated" if restated else "original"
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
        panel.plot().figure.savefig(plot, format="png", dpi=150)
    else:
        print_panel(panel, screen())


def _refuse_several(outputs: dict[str, bool]) -> None:
    asked = [name for name, given in outputs.items() if given]
    if len(asked) > 1:
        raise UsageError(f"{' and '.join(asked)} exclude each other: choose one")


def _require_matplotlib() -> None:
    """Refuse before requests are spent on what can't be drawn."""
    try:
        library("matplotlib", "plot")
    except ImportError as error:
        missing = str(error)
    else:
        return
    raise UsageError(f"--plot needs more: {missing}")
