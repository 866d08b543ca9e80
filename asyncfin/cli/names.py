"""`asyncfin names`: a file of names for entity ids, as the service names them."""

import csv
import io
import sys
from collections.abc import Mapping, Sequence
from operator import methodcaller
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from asyncfin.cli.entities import COLUMNS, OptionalNames, read_table
from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import entity_group
from asyncfin.cli.service import Service
from asyncfin.words import counted


async def names(
    *entity_ids: str,
    ids: Annotated[
        Path | None, Parameter(allow_leading_hyphen=True, group=entity_group)
    ] = None,
    into: Path | None = None,
    from_cache: bool = False,
    names: OptionalNames = OptionalNames(),
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
        from_cache: All entities of which the cache of ASYNCFIN_CACHE has a catalogue;
            no request is sent.
    """
    if from_cache and (entity_ids or ids):
        raise UsageError(
            "--from-cache takes all entities of the cache: give no entities with it"
        )
    heads, rows = ([*COLUMNS], []) if into is None else _existing(into)
    known = {row["id"] for row in rows}
    # Each id once, in the order given: a file of ids may repeat them.
    given = [] if from_cache else list(dict.fromkeys(names.given(entity_ids, ids)))
    service.check()

    from asyncfin.cache.file import datasets
    from asyncfin.cli.environment import cached
    from asyncfin.cli.output import print_csv, print_text, replace_file
    from asyncfin.cli.session import connected
    from asyncfin.cli.several import check_failed
    from asyncfin.client import publications_of
    from asyncfin.read.several import Each, datasets_of
    from asyncfin.wire.address import checked_base_url

    if from_cache:
        if (cache := cached()) is None:
            raise UsageError("no cache is given: set ASYNCFIN_CACHE to its folder")
        # As the account of the token sees it.
        address = checked_base_url(service.address(), allow_http=service.allow_http)
        found = await datasets(cache, address, service.token())
        each = Each({dataset.entity_id: dataset for dataset in found}, {})
    else:
        new = [entity_id for entity_id in given if entity_id not in known]
        async with connected(service, "Reading", names) as client:
            each = await datasets_of(publications_of(client), new)
    added = [
        {"id": entity_id, "name": dataset.name}
        for entity_id, dataset in each.found.items()
        if entity_id not in known
    ]
    if into is None:
        # As they are, so that --names reads the same names; a terminal gets them
        # escaped.
        rows_added = [(row["id"], row["name"], "") for row in added]
        print_csv(COLUMNS, rows_added, raw=not sys.stdout.isatty())
    elif added or not rows:
        replace_file(into, methodcaller("write", _csv(heads, [*rows, *added])))
    if into is not None:
        print_text(
            f"{into}: {counted(len(rows) + len(added), 'entity', 'entities')}, "
            f"{len(added):,} of them new"
        )
    check_failed(each.failed, each.ended, len(given), names)


def _existing(file: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Return the columns and rows of a file of names; those of an empty one if it does
    not exist.
    """
    if not file.exists():
        if not file.parent.is_dir():
            raise UsageError(
                f"--into {file} can't be written: {file.parent} is not a folder"
            )
        return [*COLUMNS], []
    heads, rows = read_table(file, f"--into {file}")
    return heads or [*COLUMNS], rows


def _csv(heads: Sequence[str], rows: Sequence[Mapping[str, str]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, heads, restval="")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
