"""`asyncfin catalogue`: the series of entities, all, selected, or found by words; and
`asyncfin names`: a file of names for entity ids.
"""

from collections.abc import Iterable, Sequence
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from attrs import asdict, evolve
from cyclopts import Parameter

from asyncfin.checks import check_entity_id
from asyncfin.cli.errors import UsageError, prefix_errors, print_error
from asyncfin.cli.options import (
    Form,
    IdsInput,
    Names,
    Selection,
    Service,
    open_text,
)
from asyncfin.cli.terminal import (
    print_json,
    print_line,
    print_rows,
    print_table,
    print_text,
    replace_file,
)
from asyncfin.clock import utc_text
from asyncfin.csv import csv_text
from asyncfin.errors import SelectionError
from asyncfin.words import counted, entity_names, listed, named_entity, spanned

if TYPE_CHECKING:
    from asyncfin import Catalogue, CatalogueSeries, Dataset, Select
    from asyncfin.typing import Match

# The series of a metric and path, each with the position of its catalogue.
Matches: TypeAlias = "Sequence[tuple[int, Match]]"
# How many rows the table of a search has.
_MOST_MATCHES = 20
_CLOSE = "nothing has all these words; the series are close to them"
# Of a file of names.
_COLUMNS = ["id", "name", "aliases"]
_ADVICE = (
    "give a CSV file that begins with the line id,name,aliases (`asyncfin names` "
    "writes one)"
)


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
    and --scope. With --search it prints a row for each metric and scope path
    that the words mean, best first: words of labels, metrics and scopes, or what
    analysts say, such as sales, R&D, capex. CSV and JSON have the ids, and
    descriptions, which state the unit.

      asyncfin catalogue ENTITY_ID --basis product
      asyncfin catalogue ENTITY_ID ENTITY_ID --basis consolidated
      asyncfin catalogue ENTITY_ID --search "cloud revenue"

    Args:
        entity_ids: The entities, O- and 32 characters each, or their names.
        search: The words to find series by, as one argument.
        publication: Show only the metadata of the current publication. For one entity,
            and one request.
    """
    entities = names.require_ids(entity_ids)
    if publication and len(entities) > 1:
        raise UsageError("--publication is for one entity")
    if search is not None and not search.strip():
        raise UsageError("--search has no words: leave it out to list all series")
    if search is not None and (publication or selection != Selection()):
        raise UsageError(
            "--search finds series by words alone: leave the other selection out"
        )
    select = selection.select()
    service.check()

    from asyncfin.analysis.last_periods import read_last_periods
    from asyncfin.cli.session import check_failed, connect, read_each
    from asyncfin.typing import SearchResult

    async with connect(service, "Reading the catalogue", names) as (client, _):
        if publication:
            dataset = await client.dataset(entities[0])
        else:
            answers, errors = await read_each(client, entities, client.catalogue)
            catalogues = list(answers.values())
            results = []
            for item in catalogues if search is not None else ():
                # Series that have ended come last.
                periods = await read_last_periods(client, item)
                results.append(item.search(search or "", last_periods=periods))
    if publication:
        _print_publication(dataset, form)
        return
    try:
        if catalogues and search is not None:
            _print_matches(SearchResult.group(results), catalogues, search, form)
        elif catalogues:
            _print_series(catalogues, select, form, has_more=len(entities) > 1)
    except SelectionError:
        check_failed(errors, len(entities), names)
        raise
    check_failed(errors, len(entities), names)


def _print_publication(dataset: "Dataset", form: Form) -> None:
    moment = utc_text(dataset.created_timestamp)
    fields = asdict(dataset) | {"created_timestamp": moment}
    if form.json:
        print_json(fields)
    elif form.csv:
        print_rows([fields], as_json=False)
    else:
        print_table(("field", "value"), list(fields.items()))


def _part(catalogue: "Catalogue", series: Iterable["CatalogueSeries"]) -> "Catalogue":
    """Return a catalogue with only these of its series, and the groups that have
    some.
    """
    series_ids = set(map(attrgetter("series_id"), series))
    groups = []
    for group in catalogue.groups:
        part = tuple(item for item in group.series if item.series_id in series_ids)
        if part:
            groups.append(evolve(group, series=part))
    return evolve(catalogue, groups=tuple(groups))


def _print_series(
    catalogues: Sequence["Catalogue"], select: "Select", form: Form, *, has_more: bool
) -> None:
    """Print the selected series of catalogues.

    Args:
        has_more: more entities than one are meant: some need not have any.

    Raises:
        SelectionError: none of them has any.
    """
    parts, documents, rows = [], [], list[dict[str, Any]]()
    for item in catalogues:
        part = _part(item, item.select(select, allow_missing=has_more))
        parts.append(part)
        documents.append(asdict(part, recurse=False))
        rows += part.rows()
    if not any(map(len, parts)) and (full := list(filter(len, catalogues))):
        missing = full[0].missing(select)
        subject = "no entity" if has_more else ""
        raise SelectionError(full[0].explain(missing, subject), missing=missing)
    if form.json:
        print_json(documents if has_more else documents[0])
    elif form.csv:
        # One row a series: a spreadsheet filters by the columns that the options are
        # named after.
        print_rows(rows, as_json=False)
    else:
        for item, part in zip(catalogues, parts, strict=True):
            if part is not parts[0]:
                print_line("")
            _print_catalogue(part, len(item))


def _print_catalogue(part: "Catalogue", total: int) -> None:
    """Print the selected series of a catalogue, which has so many in all."""
    print_line(named_entity(part), "bold")
    for group in part.groups:
        words = f"{group.cadence}, {group.basis}, {len(group.series)} series"
        print_line(f"\n{group.reporting_group_id}: {group.name} ({words})")
        read_cells = attrgetter("metric_id", "label", "scope_path")
        rows = list(map(read_cells, group.series))
        print_table(("metric", "label", "scope path"), rows)
    lines = [
        f"\npublication {part.dataset_id} of "
        f"{part.created_timestamp:%Y-%m-%d %H:%M} UTC",
        f"{len(part):,} of {counted(total, 'series', 'series')}: "
        f"{counted(len(part.by_metric), 'metric')}, "
        f"{counted(len(part.by_path), 'scope path')}, "
        f"{counted(len(part.groups), 'reporting group')}",
        f"{counted(len(part.periods), 'period')}: {spanned(part.periods) or 'none'}",
    ]
    print_line("\n".join(lines), "dim")


def _print_matches(
    groups: Sequence["Matches"],
    catalogues: Sequence["Catalogue"],
    words: str,
    form: Form,
) -> None:
    """Print a row for each metric and path that a search has found.

    Raises:
        SelectionError: it has found none.
    """
    from asyncfin.typing import Rank

    if not groups:
        raise SelectionError(
            f"no series has the words {words!r}, or comes close to them"
        )
    if groups[0][0][1].rank == Rank.CLOSE:
        print_error(f"asyncfin: {_CLOSE}")
    names = entity_names(catalogues)
    rows, cells = [], []
    for matches in groups:
        row = _make_match(matches, catalogues)
        entity_ids = row["entity_ids"]
        rows.append(row)
        index, match = matches[0]
        label = match.note(match.series.label)
        scopes = " / ".join(catalogues[index].scope_names(match.series.scopes))
        entities = "all"
        if len(entity_ids) < len(names):
            entities = listed(list(map(names.__getitem__, entity_ids)))
        cells.append((match.series.metric_id, label, scopes, entities))
    if form.json or form.csv:
        print_rows(rows, as_json=form.json)
        return
    heads = ("metric", "label", "scopes", "entities")
    print_table(heads, cells[:_MOST_MATCHES])
    if (hidden_count := len(cells) - _MOST_MATCHES) > 0:
        print_line(f"and {hidden_count:,} more: --json has all, with ids", "dim")


def _make_match(
    matches: "Matches", catalogues: Sequence["Catalogue"]
) -> dict[str, Any]:
    _, first = matches[0]
    group_ids = dict.fromkeys(match.series.reporting_group_id for _, match in matches)
    return {
        "metric_id": first.series.metric_id,
        "series_label": first.series.label,
        "scope_path": first.series.scope_path,
        "reporting_group_ids": list(group_ids),
        "entity_ids": [catalogues[index].entity_id for index in sorted(dict(matches))],
        "last_value": first.ended and str(first.ended),
    }


async def names(
    *entity_ids: str,
    file: Annotated[Path, Parameter(name="--into")],
    ids: IdsInput = None,
    service: Service = Service(),
) -> None:
    """Write a file of names for entity ids.

    It costs one request for each entity. The file is CSV with the columns id,
    name and aliases: add names of your own as aliases, separated by |. With
    --names FILE, or ASYNCFIN_NAMES, every command then takes names for ids.

      asyncfin names --ids ids.txt --into names.csv
      ASYNCFIN_NAMES=names.csv asyncfin catalogue apple

    Args:
        entity_ids: The entities, O- and 32 characters each.
        file: Add the entities to this file. What it contains stays, and costs no
            request.
        ids: A file of more entity ids, one a line; - for standard input.
    """
    heads, rows = _read_names(file)
    entities = Names().require_ids(entity_ids, ids)
    service.check()

    from asyncfin.cli.session import check_failed, connect, read_each

    listed_ids = set(map(itemgetter("id"), rows))
    missing = [entity_id for entity_id in entities if entity_id not in listed_ids]
    async with connect(service, "Reading") as (client, _):
        answers, errors = await read_each(client, missing, client.dataset)
    for entity_id, dataset in answers.items():
        name = {"id": entity_id, "name": dataset.name}
        rows.append(dict.fromkeys(heads, "") | name)
    additions = len(answers)
    if additions:
        lines = [heads, *map(itemgetter(*heads), rows)]
        replace_file(file, csv_text(lines, raw=True).encode())
    if rows:
        total = counted(len(rows), "entity", "entities")
        print_text(f"{file}: {total}, {additions:,} of them new")
    check_failed(errors, len(entities), Names())


def _read_names(file: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Return the columns and rows of a file of names; those of an empty one if it does
    not exist.
    """
    from asyncfin.names import read_rows

    label = f"--into {file}"
    if not file.exists():
        if not file.parent.is_dir():
            raise UsageError(f"{label} can't be written: {file.parent} is not a folder")
        return _COLUMNS, []
    with open_text(file, label, _ADVICE) as lines:
        try:
            heads, entries = read_rows(lines)
            rows = list(entries)
        except KeyError:
            raise UsageError(
                f"{label} does not have the columns id and name: {_ADVICE}"
            ) from None
    for line, row in enumerate(rows, 2):
        with prefix_errors(f"{label}, line {line}"):
            check_entity_id(row["id"])
    return heads or _COLUMNS, rows
