"""`asyncfin catalogue`: the series of entities, all, selected, or found by words."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import asdict, evolve

from asyncfin.cli.errors import UsageError, print_error
from asyncfin.cli.options import Form, Names, Selection, Service
from asyncfin.csv import csv_text
from asyncfin.errors import SelectionError, printable
from asyncfin.words import counted, entity_names, listed, named_entity

if TYPE_CHECKING:
    from asyncfin import Catalogue, CatalogueSeries
    from asyncfin.typing import Match

# The series of a metric and path, each with the position of its catalogue.
Matches: TypeAlias = "Sequence[tuple[int, Match]]"
# How many metrics of several entities, and rows of a search, a table has.
_MOST_METRICS = 200
_MOST_FOUND = 20
_CLOSE = "nothing has all these words; close to them:"


async def catalogue(
    *entity_ids: str,
    search: str | None = None,
    publication: bool = False,
    selection: Selection = Selection(),
    form: Form = Form(),
    names: Names = Names(),
    service: Service = Service(),
) -> None:
    """List the series of entities, or search them by words.

    It costs one request for each 100 series of an entity's dataset, at least
    one; one if a cache has its current catalogue. The reporting groups, metrics
    and scope paths listed are what `asyncfin query` takes as --group, --metric
    and --scope. Of several entities it prints a table of metrics: how many
    series of each an entity has. With --search it prints a row for each metric
    and scope path that the words mean, best first: words of labels, metrics and
    scopes, or what analysts say, such as sales, R&D, capex. CSV and JSON have
    the ids, and descriptions, which state the unit.

      asyncfin catalogue ENTITY_ID --basis product
      asyncfin catalogue ENTITY_ID ENTITY_ID --basis consolidated
      asyncfin catalogue ENTITY_ID --search "cloud revenue"

    Args:
        entity_ids: The entities, O- and 32 characters each, or their names.
        search: The words to find series by, as one argument.
        publication: Show only the metadata of the current publication. For one entity,
            and one request.
    """
    try:
        entities = names.entity_ids(entity_ids)
    except UsageError as error:
        # Without quotes, further words of a search are taken for entities.
        hint = "" if search is None else f'; words are one argument: --search "{search}'
        raise UsageError(f'{error}{hint} ..."' if hint else str(error)) from None
    if not entities:
        raise UsageError(
            "no entity is given: give an entity id, or several to compare them"
        )
    if publication and len(entities) > 1:
        raise UsageError("--publication is for one entity")
    if search is not None and (publication or selection != Selection()):
        raise UsageError(
            "--search finds series by words alone: leave the other selection out"
        )
    if search is not None and not search.strip():
        raise UsageError("--search has no words: leave it out to list all series")
    select = selection.select()
    service.check()

    from asyncfin.cli.session import check_failed, connect, read_each

    async with connect(service, "Reading the catalogue", names) as (client, _):
        if publication:
            _print_publication(asdict(await client.dataset(entities[0])), form)
            return
        answers = await read_each(client, entities, client.catalogue)
        catalogues = list(answers.found.values())
        if search is not None and catalogues:
            from asyncfin.typing import SearchResult
            from asyncfin.web.last_periods import read_last_periods

            results = []
            for item in catalogues:
                ends = await read_last_periods(client, item)
                results.append(item.search(search, last_periods=ends))
            groups = SearchResult.group(results)
    complaint: SelectionError | None = None
    if search is not None and catalogues:
        if groups:
            _print_found(groups, catalogues, form)
        else:
            complaint = SelectionError(
                f"no series has the words {search!r}, or comes close to them"
            )
    elif len(entities) == 1 and catalogues:
        (whole,) = catalogues
        _print_series(_part(whole, whole.select(select)), len(whole), form)
    elif catalogues:
        parts = [
            _part(item, item.select(select, allow_missing=True)) for item in catalogues
        ]
        if any(map(len, parts)) or not any(map(len, catalogues)):
            _print_metrics(parts, form)
        else:
            whole = next(filter(len, catalogues))
            missing = whole.missing(select)
            complaint = SelectionError(
                f"none of the {len(parts)} entities has anything of the selection; "
                f"{whole.explain(missing)}",
                missing=missing,
            )
    check_failed(answers.failed, answers.ended, len(entities), names)
    if complaint is not None:
        raise complaint


def _print_publication(fields: Mapping[str, Any], form: Form) -> None:
    from asyncfin.cli.terminal import print_csv, print_json, print_table, screen

    if form.json:
        print_json(fields)
        return
    rows = [(name, str(value)) for name, value in fields.items()]
    if form.csv:
        print_csv(csv_text([("field", "value"), *rows]))
    else:
        print_table(screen(), ("field", "value"), rows)


def _part(whole: "Catalogue", series: Iterable["CatalogueSeries"]) -> "Catalogue":
    """Return a catalogue with only these of its series, and the groups that have
    some.
    """
    chosen = {item.series_id for item in series}
    groups = []
    for group in whole.groups:
        part = tuple(item for item in group.series if item.series_id in chosen)
        if part:
            groups.append(evolve(group, series=part))
    return evolve(whole, groups=tuple(groups))


def _print_series(shown: "Catalogue", total: int, form: Form) -> None:
    """Print the selected series of a catalogue, of which there are so many in all."""
    from asyncfin.cli.terminal import print_json, print_rows, print_table, screen

    if form.json:
        print_json(asdict(shown, recurse=False))
        return
    if form.csv:
        # One row a series: a spreadsheet filters by the columns that the options are
        # named after.
        print_rows(list(shown.rows()), as_json=False)
        return
    console = screen()
    console.print(named_entity(shown), style="bold")
    for group in shown.groups:
        words = f"{group.cadence}, {group.basis}, {len(group.series)} series"
        title = f"{group.reporting_group_id}: {group.name} ({words})"
        console.print(f"\n{printable(title)}")
        rows = [
            (series.metric_id, series.label, series.scope_path)
            for series in group.series
        ]
        print_table(console, ("metric", "label", "scope path"), rows)
    first, last = (
        (shown.periods[0], shown.periods[-1]) if shown.periods else ("none", "none")
    )
    lines = [
        f"publication {shown.dataset_id} of {shown.created_timestamp:%Y-%m-%d %H:%M} "
        "UTC",
        f"{len(shown):,} of {counted(total, 'series', 'series')}: "
        f"{counted(len(shown.by_metric), 'metric')}, "
        f"{counted(len(shown.by_path), 'scope path')}, "
        f"{counted(len(shown.groups), 'reporting group')}",
        f"{counted(len(shown.periods), 'period')}: {first} to {last}",
    ]
    console.print("\n".join(["", *map(printable, lines)]), style="dim")


def _print_metrics(parts: Sequence["Catalogue"], form: Form) -> None:
    """Print how many series of each metric the entities have."""
    from asyncfin.cli.terminal import print_csv, print_json, print_table, screen
    from asyncfin.text import GAP

    if form.json:
        print_json([asdict(part, recurse=False) for part in parts])
        return
    labels: dict[str, str] = {}
    for part in parts:
        for metric_id, series in part.by_metric.items():
            labels.setdefault(metric_id, series[0].label)
    counts = {
        metric_id: [len(part.by_metric.get(metric_id, ())) for part in parts]
        for metric_id in labels
    }
    # Those that most entities have come first.
    ordered = sorted(labels, key=lambda metric_id: counts[metric_id].count(0))
    if form.csv:
        heads = ["metric_id", "series_label", *(part.entity_id for part in parts)]
        rows = [[name, labels[name], *counts[name]] for name in ordered]
        print_csv(csv_text([heads, *rows]))
        return
    console = screen()
    texts = []
    for metric_id in ordered[:_MOST_METRICS]:
        cells = [f"{number:,}" if number else GAP for number in counts[metric_id]]
        texts.append([metric_id, labels[metric_id], *cells])
    print_table(console, ["metric", "label", *entity_names(parts).values()], texts)
    if (more := len(ordered) - _MOST_METRICS) > 0:
        console.print(f"and {counted(more, 'more metric')}", style="dim")


def _print_found(
    groups: Sequence["Matches"], catalogues: Sequence["Catalogue"], form: Form
) -> None:
    """Print a row for each metric and path that a search has found."""
    from asyncfin.cli.terminal import print_csv, print_json, print_table, screen
    from asyncfin.typing import Rank

    is_close = groups[0][0][1].rank == Rank.CLOSE
    rows = [_found_row(matches, catalogues) for matches in groups]
    if (form.json or form.csv) and is_close:
        print_error(f"asyncfin: {_CLOSE}")
    if form.json:
        print_json(rows)
        return
    if form.csv:
        lines = [list(rows[0])]
        for row in rows:
            cells = row.values()
            lines.append(
                [";".join(cell) if isinstance(cell, list) else cell for cell in cells]
            )
        print_csv(csv_text(lines))
        return
    console = screen()
    if is_close:
        console.print(_CLOSE)
    names = entity_names(catalogues)
    texts = []
    for matches, row in list(zip(groups, rows, strict=True))[:_MOST_FOUND]:
        index, match = matches[0]
        label = match.note(match.series.label)
        scopes = " / ".join(catalogues[index].scope_names(match.series.scopes))
        entities = "all"
        if len(row["entity_ids"]) < len(names):
            entities = listed([names[entity_id] for entity_id in row["entity_ids"]])
        texts.append((match.series.metric_id, label, scopes, entities))
    print_table(console, ("metric", "label", "scopes", "entities"), texts)
    if (more := len(groups) - _MOST_FOUND) > 0:
        console.print(f"and {more:,} more: --csv has all, with ids", style="dim")


def _found_row(matches: "Matches", catalogues: Sequence["Catalogue"]) -> dict[str, Any]:
    _, first = matches[0]
    group_ids = dict.fromkeys(match.series.reporting_group_id for _, match in matches)
    return {
        "metric_id": first.series.metric_id,
        "series_label": first.series.label,
        "scope_path": first.series.scope_path,
        "reporting_group_ids": list(group_ids),
        "entity_ids": [catalogues[index].entity_id for index in sorted(dict(matches))],
        "last_value": str(first.ended) if first.ended else None,
    }
