"""`asyncfin dataset` and `asyncfin catalogue`: the current publication, and its series."""

from collections.abc import Iterable, Sequence

from attrs import asdict, evolve
from rich.console import Console

from asyncfin.cli.entities import Names
from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import AsCsv, AsJson, AsRawCsv, Selection, Service, choose_one
from asyncfin.cli.output import print_csv, print_json, print_table, print_text, screen
from asyncfin.cli.session import connected
from asyncfin.cli.several import check_failed
from asyncfin.client import reads_of
from asyncfin.errors import SelectionError
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.frame import COLUMNS, LISTS
from asyncfin.model.judge import complaint, judge, named, unknown_names
from asyncfin.model.scope import format_path
from asyncfin.model.select import Select
from asyncfin.model.series import CatalogueSeries
from asyncfin.model.words import counted
from asyncfin.read.several import Each, catalogues_of
from asyncfin.table.document import to_json
from asyncfin.table.notes import GAP, entity_names
from asyncfin.table.text import columns

# How many metrics of several entities are printed.
_MOST_METRICS = 200


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
    *entity_ids: str,
    selection: Selection = Selection(),
    descriptions: bool = False,
    json: AsJson = False,
    csv: AsCsv = False,
    csv_raw: AsRawCsv = False,
    names: Names = Names(),
    service: Service = Service(),
) -> None:
    """List the series of an entity, or compare those of several: all, or those selected.

    It costs one request for each 100 series of an entity's dataset, at least
    one; one if a cache has its current catalogue. The reporting groups, metrics
    and scope paths listed are what `asyncfin query` takes as --group, --metric
    and --scope. Of several entities it prints a table of metrics: how many
    series of each an entity has.

      asyncfin catalogue ENTITY_ID --basis product
      asyncfin catalogue ENTITY_ID ENTITY_ID --basis consolidated

    Args:
        entity_ids: The entities, O- and 32 characters each, or their names.
        descriptions: Show the descriptions too, which state the unit. For one entity.
    """
    choose_one({"--json": json, "--csv": csv, "--csv-raw": csv_raw})
    entities = list(dict.fromkeys(map(names.entity_id, entity_ids)))
    if not entities:
        raise UsageError("no entity is given: give an entity id, or several to compare them")
    select, several = selection.select(), len(entities) > 1
    if several and descriptions:
        raise UsageError("--descriptions is for one entity: of several, the table has their metrics")
    async with connected(service, "Reading the catalogue", names) as client:
        if several:
            each = await catalogues_of(reads_of(client), entities)
        else:
            # The whole one: an unknown id is refused with what comes close, which a part would not know.
            whole = await client.catalogue(entities[0])
    if several:
        _print_several(each, select, len(entities), names, json=json, csv=csv or csv_raw, raw=csv_raw)
        return
    shown = _part(whole, whole.select(select))
    if json:
        print_json(shown)
    elif csv or csv_raw:
        # One row a series: a spreadsheet filters by the columns that the options are named after.
        in_csv = [at for at, column in enumerate(COLUMNS) if column.type not in LISTS]
        rows = [[row[at] for at in in_csv] for row in shown.rows()]
        print_csv([COLUMNS[at].name for at in in_csv], rows, raw=csv_raw)
    else:
        print_catalogue(shown, len(whole), descriptions, screen())


def _part(whole: Catalogue, series: Iterable[CatalogueSeries]) -> Catalogue:
    """Return a catalogue with only these of its series, and the groups that have some."""
    chosen = {each.series_id for each in series}
    groups = (
        evolve(group, series=tuple(each for each in group.series if each.series_id in chosen))
        for group in whole.groups
    )
    return evolve(whole, groups=tuple(group for group in groups if group.series))


def _print_several(
    each: Each[Catalogue], select: Select, count: int, names: Names, *, json: bool, csv: bool, raw: bool
) -> None:
    """Print what several entities have of a selection; one that some have is not an error."""
    judged = {entity_id: judge(whole, select) for entity_id, whole in each.found.items()}
    parts = [_part(whole, judged[entity_id].series) for entity_id, whole in each.found.items()]
    missing = unknown_names(select, [of_one.missing for of_one in judged.values()])
    if judged and not any(map(len, parts)) and any(map(len, each.found.values())):
        check_failed(each.failed, each.ended, count, names)
        near = complaint(next(iter(each.found.values())), missing) if missing else ""
        of_all = f"none of the {len(parts)} entities has {named(missing) or 'anything of the selection'}"
        raise SelectionError("; ".join(filter(None, [of_all, near])), missing=missing)
    rows = _metrics(parts)
    if json:
        print_text(f"[{','.join(to_json(part, indent=2) for part in parts)}]")
    elif csv:
        heads = ("metric_id", "series_label", *each.found)
        print_csv(heads, [(metric, label, *counts) for metric, label, counts in rows], raw=raw)
    elif parts:
        console = screen()
        texts = [
            (metric, label, *(f"{number:,}" if number else GAP for number in counts))
            for metric, label, counts in rows[:_MOST_METRICS]
        ]
        heads = ("metric", "label", *entity_names(parts).values())
        print_table(console, columns(heads, texts, console.width))
        if (more := len(rows) - _MOST_METRICS) > 0:
            console.print(f"and {counted(more, 'more metric')}", style="dim")
    check_failed(each.failed, each.ended, count, names)


def _metrics(parts: Sequence[Catalogue]) -> list[tuple[str, str, list[int]]]:
    """Return the metrics with a label and the number of series of each entity, those that most have first."""
    labels: dict[str, str] = {}
    for part in parts:
        for metric_id, series in part.by_metric.items():
            labels.setdefault(metric_id, series[0].label)
    rows = [
        (metric_id, label, [len(part.by_metric.get(metric_id, ())) for part in parts])
        for metric_id, label in labels.items()
    ]
    return sorted(rows, key=lambda row: row[2].count(0))


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
