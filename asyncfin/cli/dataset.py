"""`asyncfin dataset` and `asyncfin catalogue`: what there is to ask for."""

from attrs import asdict, evolve
from rich.console import Console

from asyncfin.cli.options import AsJson, Selection, Service
from asyncfin.cli.output import bare_table, print_json, screen
from asyncfin.cli.session import connected
from asyncfin.model.catalogue import Catalogue, ReportingGroup
from asyncfin.model.scope import format_path
from asyncfin.model.words import counted


async def dataset(entity_id: str, /, *, json: AsJson = False, service: Service = Service()) -> None:  # noqa: B008
    """Show the current publication of an entity's dataset.

    It costs one request.

      asyncfin dataset O-be85f4935d7b5a92be2a582583b4d7a4

    Args:
        entity_id: The entity, O- and 32 characters.
    """
    async with connected(service, "Asking") as client:
        current = await client.dataset(entity_id)
    if json:
        print_json(current)
        return
    table = bare_table("field", "value")
    for name, value in asdict(current).items():
        table.add_row(name, str(value))
    screen().print(table)


async def catalogue(
    entity_id: str,
    /,
    *,
    selection: Selection = Selection(),  # noqa: B008  a frozen value
    descriptions: bool = False,
    json: AsJson = False,
    service: Service = Service(),  # noqa: B008  a frozen value
) -> None:
    """List the series that can be asked for: all, or those selected.

    It costs one request, and one for each 100 series of the dataset. The
    reporting groups, metrics and scope paths listed are what `asyncfin query`
    takes as --group, --metric and --scope.

      asyncfin catalogue ENTITY_ID --basis product

    Args:
        entity_id: The entity, O- and 32 characters.
        descriptions: Show the descriptions too, where a unit stands if there is one.
    """
    select = selection.select()
    async with connected(service, "Reading the catalogue") as client:
        whole = await client.catalogue(entity_id)
    chosen = {series.series_id for series in whole.select(select)}
    groups = (
        evolve(group, series=tuple(each for each in group.series if each.series_id in chosen))
        for group in whole.groups
    )
    shown = evolve(whole, groups=tuple(group for group in groups if group.series))
    if json:
        print_json(shown)
    else:
        _print_catalogue(shown, len(whole), descriptions, screen())


def _print_catalogue(shown: Catalogue, of: int, descriptions: bool, console: Console) -> None:
    console.print(f"{shown.name} ({shown.entity_id})", style="bold")
    for group in shown.groups:
        console.print()
        _print_group(group, descriptions, console)
    console.print()
    first, last = (shown.periods[0], shown.periods[-1]) if shown.periods else ("none", "none")
    lines = [
        f"publication {shown.dataset_id} of {shown.created_timestamp:%Y-%m-%d %H:%M} UTC",
        f"{len(shown):,} of {counted(of, 'series', 'series')}: {counted(len(shown.by_metric), 'metric')},"
        f" {counted(len(shown.by_path), 'scope path')}, {counted(len(shown.groups), 'reporting group')}",
        f"{counted(len(shown.periods), 'period')}: {first} to {last}",
    ]
    console.print("\n".join(lines), style="dim")


def _print_group(group: ReportingGroup, descriptions: bool, console: Console) -> None:
    words = f"{group.cadence}, {group.basis}, {len(group.series)} series"
    console.print(f"{group.reporting_group_id}: {group.name} ({words})")
    table = bare_table("metric", "label", "scope path", *(["description"] if descriptions else []))
    for series in group.series:
        described = [series.description] if descriptions else []
        table.add_row(series.metric_id, series.label, format_path(series.scopes), *described)
    console.print(table)
