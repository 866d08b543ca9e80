"""Catalogues, and the series found in them, on standard output: as tables, as JSON, as
CSV (docs/cli.md).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import asdict, evolve
from rich.console import Console

from asyncfin.cli.entities import Names
from asyncfin.cli.form import Form
from asyncfin.cli.output import print_csv, print_json, print_table, screen
from asyncfin.cli.service import Service
from asyncfin.cli.session import connected
from asyncfin.cli.several import check_failed
from asyncfin.cli.streams import print_error
from asyncfin.client import publications_of
from asyncfin.errors import SelectionError, printable
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.scope import format_path
from asyncfin.model.select import Select
from asyncfin.model.series import CatalogueSeries
from asyncfin.read.several import Each, catalogues_of
from asyncfin.text import GAP, table_lines
from asyncfin.typing import Match, Rank, SearchResult
from asyncfin.words import counted, entity_names, listed, named_entity

# How many metrics of several entities are printed.
_MOST_METRICS = 200
_FOUND = (
    "metric_id",
    "series_label",
    "scope_path",
    "reporting_group_ids",
    "entity_ids",
)
# The series of a metric and path, each with the position of its catalogue.
Matches: TypeAlias = Sequence[tuple[int, Match]]
_CLOSE = "nothing has all these words; close to them:"


async def show_publication(
    entity_id: str, form: Form, names: Names, service: Service
) -> None:
    """Print the metadata of the current publication."""
    async with connected(service, "Reading", names) as client:
        current = await client.dataset(entity_id)
    if form.json:
        print_json(current)
        return
    fields = [(name, str(value)) for name, value in asdict(current).items()]
    if form.is_csv:
        print_csv(("field", "value"), fields, raw=form.csv_raw)
    else:
        console = screen()
        print_table(console, table_lines(("field", "value"), fields, console.width))


async def show_series(
    entity_id: str,
    select: Select,
    form: Form,
    names: Names,
    service: Service,
    *,
    descriptions: bool,
) -> None:
    """Print the selected series of an entity."""
    async with connected(service, "Reading the catalogue", names) as client:
        # The whole one: an unknown id is rejected with what comes close, which a part
        # would not know.
        whole = await client.catalogue(entity_id)
    print_selected(whole, select, form, descriptions=descriptions)


async def show_several(
    entity_ids: Sequence[str],
    select: Select,
    form: Form,
    names: Names,
    service: Service,
) -> None:
    """Print what several entities have of a selection."""
    async with connected(service, "Reading catalogues", names) as client:
        read = await catalogues_of(publications_of(client), entity_ids)
    print_selected_of_several(read, select, len(entity_ids), names, form)


async def show_search(
    entity_ids: Sequence[str],
    words: str,
    form: Form,
    names: Names,
    service: Service,
    *,
    ids: bool,
    limit: int,
) -> None:
    """Print the metrics and scope paths of entities that words mean."""
    async with connected(service, "Reading catalogues", names) as client:
        read = await catalogues_of(publications_of(client), entity_ids)
    if len(entity_ids) == 1 and read.failed:
        raise read.failed[entity_ids[0]]
    catalogues = [*read.found.values()]
    groups = SearchResult.group(catalogue.search(words) for catalogue in catalogues)
    if catalogues and not groups:
        check_failed(read.failed, read.ended, len(entity_ids), names)
        raise SelectionError(
            f"no series has the words {words!r}, or comes close to them"
        )
    print_found(groups, catalogues, form, ids=ids, limit=limit)
    check_failed(read.failed, read.ended, len(entity_ids), names)


def print_selected(
    whole: Catalogue, select: Select, form: Form, *, descriptions: bool
) -> None:
    """Print the selected series of a catalogue; an unknown id is an error with what
    comes close.
    """
    shown = _part(whole, whole.select(select))
    if form.json:
        print_json(asdict(shown, recurse=False))
    elif form.is_csv:
        # One row a series: a spreadsheet filters by the columns that the options are
        # named after.
        rows = [*map(_without_lists, shown.rows())]
        heads = list(rows[0]) if rows else []
        print_csv(heads, [list(row.values()) for row in rows], raw=form.csv_raw)
    else:
        _print_catalogue(shown, len(whole), descriptions, screen())


def _without_lists(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the cells of a row that a line of CSV can have."""
    return {
        name: cell for name, cell in row.items() if not isinstance(cell, (list, tuple))
    }


def _part(whole: Catalogue, series: Iterable[CatalogueSeries]) -> Catalogue:
    """Return a catalogue with only these of its series, and the groups that have
    some.
    """
    chosen = {each.series_id for each in series}
    groups = (
        evolve(
            group,
            series=tuple(each for each in group.series if each.series_id in chosen),
        )
        for group in whole.groups
    )
    return evolve(whole, groups=tuple(group for group in groups if group.series))


def _print_catalogue(
    shown: Catalogue, of: int, descriptions: bool, console: Console
) -> None:
    console.print(named_entity(shown), style="bold")
    for group in shown.groups:
        words = f"{group.cadence}, {group.basis}, {len(group.series)} series"
        console.print()
        console.print(printable(f"{group.reporting_group_id}: {group.name} ({words})"))
        rows = [
            (
                *(series.metric_id, series.label, format_path(series.scopes)),
                *([series.description] if descriptions else []),
            )
            for series in group.series
        ]
        heads = (
            "metric",
            "label",
            "scope path",
            *(["description"] if descriptions else []),
        )
        print_table(console, table_lines(heads, rows, console.width))
    console.print()
    first, last = (
        (shown.periods[0], shown.periods[-1]) if shown.periods else ("none", "none")
    )
    lines = [
        f"publication {shown.dataset_id} of {shown.created_timestamp:%Y-%m-%d %H:%M} "
        "UTC",
        f"{len(shown):,} of {counted(of, 'series', 'series')}: "
        f"{counted(len(shown.by_metric), 'metric')},"
        f" {counted(len(shown.by_path), 'scope path')}, "
        f"{counted(len(shown.groups), 'reporting group')}",
        f"{counted(len(shown.periods), 'period')}: {first} to {last}",
    ]
    console.print("\n".join(map(printable, lines)), style="dim")


def print_selected_of_several(
    each: Each[Catalogue], select: Select, count: int, names: Names, form: Form
) -> None:
    """Print what several entities have of a selection; one that some have is not an
    error.
    """
    parts = [
        _part(whole, whole.select(select, allow_missing=True))
        for whole in each.found.values()
    ]
    if not any(map(len, parts)) and any(map(len, each.found.values())):
        check_failed(each.failed, each.ended, count, names)
        whole = next(filter(len, each.found.values()))
        missing = whole.missing(select)
        raise SelectionError(
            f"none of the {len(parts)} entities has anything of the selection; "
            f"{whole.explain(missing)}",
            missing=missing,
        )
    rows = _metrics(parts)
    if form.json:
        print_json([asdict(part, recurse=False) for part in parts])
    elif form.is_csv:
        heads = ("metric_id", "series_label", *each.found)
        print_csv(
            heads,
            [(metric, label, *counts) for metric, label, counts in rows],
            raw=form.csv_raw,
        )
    elif parts:
        console = screen()
        texts = [
            (metric, label, *(f"{number:,}" if number else GAP for number in counts))
            for metric, label, counts in rows[:_MOST_METRICS]
        ]
        heads = ("metric", "label", *entity_names(parts).values())
        print_table(console, table_lines(heads, texts, console.width))
        if (more := len(rows) - _MOST_METRICS) > 0:
            console.print(f"and {counted(more, 'more metric')}", style="dim")
    check_failed(each.failed, each.ended, count, names)


def _metrics(parts: Sequence[Catalogue]) -> list[tuple[str, str, list[int]]]:
    """Return the metrics with a label and the number of series of each entity, those
    that most have first.
    """
    labels: dict[str, str] = {}
    for part in parts:
        for metric_id, series in part.by_metric.items():
            labels.setdefault(metric_id, series[0].label)
    rows = [
        (metric_id, label, [len(part.by_metric.get(metric_id, ())) for part in parts])
        for metric_id, label in labels.items()
    ]
    return sorted(rows, key=lambda row: row[2].count(0))


def print_found(
    groups: Sequence[Matches],
    catalogues: Sequence[Catalogue],
    form: Form,
    *,
    ids: bool,
    limit: int,
) -> None:
    """Print a row for each metric and path that a search has found, and how many more
    there are.

    Args:
        ids: whether a table has scope paths and reporting groups in place of names of
            scopes.
        limit: how many rows to print.
    """
    more = len(groups) - limit
    close = bool(groups) and groups[0][0][1].rank == Rank.CLOSE
    shown = groups[:limit]
    if form.json or form.is_csv:
        rows = [_row(group, catalogues) for group in shown]
        if close:
            print_error(f"asyncfin: {_CLOSE}")
        if form.json:
            print_json([dict(zip(_FOUND, row, strict=True)) for row in rows])
        else:
            print_csv(
                _FOUND,
                [[*row[:3], *map(";".join, row[3:])] for row in rows],
                raw=form.csv_raw,
            )
        if more > 0:
            print_error(
                f"asyncfin: and {more:,} more: --limit {len(groups)} prints all"
            )
    elif groups:
        console = screen()
        if close:
            console.print(_CLOSE)
        called = entity_names(catalogues)
        heads = (
            "metric",
            "label",
            *(("scope path", "groups") if ids else ("scopes",)),
            "entities",
        )
        texts = [_texts(group, catalogues, called, ids=ids) for group in shown]
        print_table(console, table_lines(heads, texts, console.width))
        if more > 0:
            console.print(f"and {more:,} more", style="dim")


def _row(
    matches: Matches, catalogues: Sequence[Catalogue]
) -> tuple[str, str, str, list[str], list[str]]:
    first = matches[0][1].series
    groups = dict.fromkeys(match.series.reporting_group_id for _, match in matches)
    ids = [catalogues[index].entity_id for index in sorted(dict(matches))]
    return first.metric_id, first.label, first.scope_path, list(groups), ids


def _texts(
    matches: Matches,
    catalogues: Sequence[Catalogue],
    called: Mapping[str, str],
    *,
    ids: bool,
) -> tuple[str, ...]:
    metric_id, label, path, groups, entity_ids = _row(matches, catalogues)
    index, first = matches[0]
    scopes = (
        (path, ", ".join(groups))
        if ids
        else (" / ".join(catalogues[index].scope_names(first.series.scopes)),)
    )
    entities = (
        "all"
        if len(entity_ids) == len(called)
        else listed([called[one] for one in entity_ids])
    )
    return metric_id, label, *scopes, entities
