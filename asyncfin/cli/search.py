"""`asyncfin search`: the metrics and scope paths of entities that words mean."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated

from cyclopts import Parameter

from asyncfin.cli.entities import Names
from asyncfin.cli.exits import UsageError
from asyncfin.cli.mistakes import whole
from asyncfin.cli.options import AsCsv, AsJson, AsRawCsv, Service, choose_one
from asyncfin.cli.output import print_csv, print_json, print_table, screen
from asyncfin.cli.session import connected
from asyncfin.cli.several import check_failed
from asyncfin.cli.streams import print_error
from asyncfin.client import reads_of
from asyncfin.errors import SelectionError
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.scope import format_path
from asyncfin.model.search import Found, search as found_in
from asyncfin.model.words import listed
from asyncfin.read.several import catalogues_of
from asyncfin.table.notes import entity_names
from asyncfin.table.text import columns

_COLUMNS = ("metric_id", "series_label", "scope_path", "reporting_group_ids", "entity_ids")
_CLOSE = "nothing has all these words; close to them:"


async def search(
    words: str,
    /,
    *entity_ids: str,
    limit: Annotated[int, Parameter(converter=whole)] = 20,
    json: AsJson = False,
    csv: AsCsv = False,
    csv_raw: AsRawCsv = False,
    names: Names = Names(),
    service: Service = Service(),
) -> None:
    """Find series of entities by words, best first: a row for each metric and scope path.

    Words are those of labels, metrics and scopes, or what analysts say: sales,
    R&D, capex. It costs the catalogues: one request for each 100 series of an
    entity, at least one; one if a cache has the current one.

      asyncfin search "net profit" ENTITY_ID ENTITY_ID
      asyncfin search "cloud revenue" ENTITY_ID --json

    Args:
        words: The words, as one argument.
        entity_ids: The entities, O- and 32 characters each, or their names.
        limit: How many rows to print.
    """
    choose_one({"--json": json, "--csv": csv, "--csv-raw": csv_raw})
    if limit < 1:
        raise UsageError(f"--limit must be at least 1, not {limit}")
    if not words.strip():
        raise UsageError("no words are given: asyncfin catalogue lists all series")
    entities = list(dict.fromkeys(_entity_ids(words, entity_ids, names)))
    async with connected(service, "Reading catalogues", names) as client:
        each = await catalogues_of(reads_of(client), entities)
    if len(entities) == 1 and each.failed:
        raise each.failed[entities[0]]
    catalogues = [*each.found.values()]
    matches = found_in(catalogues, words)
    shown, more = matches.by_meaning(limit)
    if catalogues and not shown:
        check_failed(each.failed, each.ended, len(entities), names)
        raise SelectionError(f"no series has the words {words!r}, or comes close to them")
    if json or csv or csv_raw:
        if matches.close:
            print_error(f"asyncfin: {_CLOSE}")
        rows = [_row(one, catalogues) for one in shown]
        if json:
            print_json([dict(zip(_COLUMNS, row, strict=True)) for row in rows])
        else:
            print_csv(_COLUMNS, [[*row[:3], *map(";".join, row[3:])] for row in rows], raw=csv_raw)
        if more:
            print_error(f"asyncfin: and {more:,} more: --limit {limit + more} prints all")
    elif shown:
        console = screen()
        if matches.close:
            console.print(_CLOSE)
        called = entity_names(catalogues)
        texts = [_texts(_row(one, catalogues), called) for one in shown]
        heads = ("metric", "label", "scope path", "groups", "entities")
        print_table(console, columns(heads, texts, console.width))
        if more:
            console.print(f"and {more:,} more", style="dim")
    check_failed(each.failed, each.ended, len(entities), names)


def _entity_ids(words: str, texts: Sequence[str], names: Names) -> Iterator[str]:
    if not texts:
        raise UsageError(f'no entity is given: search "{words}" ENTITY')
    for at, text in enumerate(texts):
        try:
            yield names.entity_id(text)
        except UsageError:
            # Without quotes, further words are taken for entities.
            if at or text.startswith("O-") or names.is_close(text):
                raise
            raise UsageError(
                f'{text!r} is not an entity; words are one argument: search "{words} {text}" ENTITY'
            ) from None


def _row(found: Found, catalogues: Sequence[Catalogue]) -> tuple[str, str, str, list[str], list[str]]:
    _, first = found.series[0]
    groups = dict.fromkeys(series.reporting_group_id for _, series in found.series)
    having = sorted({place for place, _ in found.series})
    ids = [catalogues[place].entity_id for place in having]
    return found.metric_id, first.label, format_path(found.scopes), list(groups), ids


def _texts(
    row: tuple[str, str, str, Collection[str], Sequence[str]], called: Mapping[str, str]
) -> tuple[str, ...]:
    metric_id, label, path, groups, ids = row
    entities = "all" if len(ids) == len(called) else listed([called[each] for each in ids])
    return metric_id, label, path, ", ".join(groups), entities
