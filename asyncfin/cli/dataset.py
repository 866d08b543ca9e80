"""`asyncfin dataset` and `asyncfin catalogue`: the current publication, and its series."""

from attrs import asdict, evolve
from rich.console import Console

from asyncfin.cli.entities import Names
from asyncfin.cli.options import AsCsv, AsJson, AsRawCsv, Selection, Service, choose_one
from asyncfin.cli.output import print_csv, print_json, print_table, screen
from asyncfin.cli.session import connected
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.frame import COLUMNS, LISTS
from asyncfin.model.scope import format_path
from asyncfin.model.words import counted
from asyncfin.table.text import columns


async def dataset(
    entity_id: str, /, *, json: AsJson = False, names: Names = Names(), service: Service = Service()
) -> None:
    """Show the current publication of an entity's dataset.

    It costs one request.

      asyncfin dataset O-be85f4935d7b5a92be2a582583b4d7a4

    Args:
        entity_id: The entity, O- and 32 characters, or its name.
    """
    entity_id = names.entity_id(entity_id)
    async with connected(service, "Reading", names) as client:
        current = await client.dataset(entity_id)
    if json:
        print_json(current)
        return
    console = screen()
    fields = [(name, str(value)) for name, value in asdict(current).items()]
    print_table(console, columns(("field", "value"), fields, console.width))


async def catalogue(
    entity_id: str,
    /,
    *,
    selection: Selection = Selection(),
    descriptions: bool = False,
    json: AsJson = False,
    csv: AsCsv = False,
    csv_raw: AsRawCsv = False,
    names: Names = Names(),
    service: Service = Service(),
) -> None:
    """List the series of an entity: all, or those selected.

    It costs one request, and one for each 100 series of the dataset. The
    reporting groups, metrics and scope paths listed are what `asyncfin query`
    takes as --group, --metric and --scope.

      asyncfin catalogue ENTITY_ID --basis product

    Args:
        entity_id: The entity, O- and 32 characters, or its name.
        descriptions: Show the descriptions too, which state the unit.
    """
    choose_one({"--json": json, "--csv": csv, "--csv-raw": csv_raw})
    entity_id, select = names.entity_id(entity_id), selection.select()
    async with connected(service, "Reading the catalogue", names) as client:
        # The whole one: an unknown id is refused with what comes close, which a part would not know.
        whole = await client.catalogue(entity_id)
    chosen = {series.series_id for series in whole.select(select)}
    groups = (
        evolve(group, series=tuple(each for each in group.series if each.series_id in chosen))
        for group in whole.groups
    )
    shown = evolve(whole, groups=tuple(group for group in groups if group.series))
    if json:
        print_json(shown)
    elif csv or csv_raw:
        # One row a series: a spreadsheet filters by the columns that the options are named after.
        in_csv = [at for at, column in enumerate(COLUMNS) if column.type not in LISTS]
        rows = [[row[at] for at in in_csv] for row in shown.rows()]
        print_csv([COLUMNS[at].name for at in in_csv], rows, raw=csv_raw)
    else:
        print_catalogue(shown, len(whole), descriptions, screen())


def print_catalogue(shown: Catalogue, of: int, descriptions: bool, console: Console) -> None:
    console.print(f"{shown.name} ({shown.entity_id})", style="bold")
    for group in shown.groups:
        words = f"{group.cadence}, {group.basis}, {len(group.series)} series"
        console.print(f"\n{group.reporting_group_id}: {group.name} ({words})")
        rows = [
            (
                *(series.metric_id, series.label, format_path(series.scopes)),
                *([series.description] if descriptions else []),
            )
            for series in group.series
        ]
        heads = ("metric", "label", "scope path", *(["description"] if descriptions else []))
        print_table(console, columns(heads, rows, console.width))
    console.print()
    first, last = (shown.periods[0], shown.periods[-1]) if shown.periods else ("none", "none")
    lines = [
        f"publication {shown.dataset_id} of {shown.created_timestamp:%Y-%m-%d %H:%M} UTC",
        f"{len(shown):,} of {counted(of, 'series', 'series')}: {counted(len(shown.by_metric), 'metric')},"
        f" {counted(len(shown.by_path), 'scope path')}, {counted(len(shown.groups), 'reporting group')}",
        f"{counted(len(shown.periods), 'period')}: {first} to {last}",
    ]
    console.print("\n".join(lines), style="dim")
