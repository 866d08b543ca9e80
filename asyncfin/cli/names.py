"""`asyncfin names`: a file of names for entity ids, as the service names them."""

import sys
from operator import methodcaller
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from asyncfin.checks import check_entity_id
from asyncfin.cli.errors import UsageError, prefix_errors
from asyncfin.cli.options import Names, Service, entity_group, has_path, opened
from asyncfin.csv import csv_text
from asyncfin.names import read_rows
from asyncfin.words import counted

_COLUMNS = ["id", "name", "aliases"]
_ADVICE = (
    "give a CSV file that begins with the line id,name,aliases (`asyncfin names` "
    "writes one)"
)


async def names(
    *entity_ids: str,
    ids: Annotated[
        Path | None, Parameter(allow_leading_hyphen=True, group=entity_group)
    ] = None,
    into: Path | None = None,
    names: Names = Names(),
    service: Service = Service(),
) -> None:
    """Write a file of names for entity ids.

    It costs one request for each entity. The file is CSV with the columns id,
    name and aliases: add names of your own as aliases, separated by |. With
    --names FILE, or ASYNCFIN_NAMES, every command then takes names for ids.

      asyncfin names --ids ids.txt --into names.csv
      ASYNCFIN_NAMES=names.csv asyncfin catalogue apple

    Args:
        entity_ids: The entities, O- and 32 characters each, or names of the file of
            --names.
        ids: A file of more entity ids, one a line; - for standard input.
        into: Add the entities to this file. What it contains stays, and costs no
            request.
    """
    # The file of ASYNCFIN_NAMES may be the one that is to be written.
    if names.names is not None and not has_path(str(names.names), folder=False):
        names = Names(names=Path())
    heads, rows = (_COLUMNS, []) if into is None else _read_file(into)
    written = {row["id"] for row in rows}
    entities = names.required(entity_ids, ids)
    service.check()

    from asyncfin.cli.session import check_failed, connect, read_each
    from asyncfin.cli.terminal import print_csv, print_text, replace_file

    missing = [entity_id for entity_id in entities if entity_id not in written]
    async with connect(service, "Reading", names) as (client, _):
        answers = await read_each(client, missing, client.dataset)
    added = [
        {"id": entity_id, "name": dataset.name}
        for entity_id, dataset in answers.found.items()
    ]
    cells = ([row.get(head, "") for head in heads] for row in [*rows, *added])
    lines = [heads, *cells]
    if into is None:
        # As they are, so that --names reads the same names; a terminal gets them
        # escaped.
        is_raw = not sys.stdout.isatty()
        print_csv(csv_text(lines, raw=is_raw), raw=is_raw)
    else:
        if added or not rows:
            content = csv_text(lines, raw=True).encode()
            replace_file(into, methodcaller("write", content))
        total = counted(len(rows) + len(added), "entity", "entities")
        print_text(f"{into}: {total}, {len(added):,} of them new")
    check_failed(answers.failed, answers.ended, len(entities), names)


def _read_file(file: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Return the columns and rows of a file of names; those of an empty one if it does
    not exist.
    """
    if not file.exists():
        if not file.parent.is_dir():
            raise UsageError(
                f"--into {file} can't be written: {file.parent} is not a folder"
            )
        return _COLUMNS, []
    what = f"--into {file}"
    with opened(file, what, _ADVICE) as lines:
        try:
            heads, entries = read_rows(lines)
            rows = list(entries)
        except KeyError:
            raise UsageError(
                f"{what} does not have the columns id and name: {_ADVICE}"
            ) from None
    for line, row in enumerate(rows, 2):
        with prefix_errors(f"{what}, line {line}"):
            check_entity_id(row["id"])
    return heads or _COLUMNS, rows
