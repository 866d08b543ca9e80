"""`asyncfin names`: a file of names for entity ids, as the service names them."""

import asyncio
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from asyncfin.cli.entities import COLUMNS, Names, listed
from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import Service, entity_group
from asyncfin.cli.output import print_csv
from asyncfin.cli.session import connected


async def names(
    *entity_ids: str,
    ids: Annotated[Path | None, Parameter(allow_leading_hyphen=True, group=entity_group)] = None,
    service: Service = Service(),  # noqa: B008  a frozen value
) -> None:
    """Write a file of names for entity ids, as the service names them.

    It costs one request for each entity. The file is CSV with the columns id,
    name and aliases: add names of your own as aliases, separated by |. With
    --names FILE, or ASYNCFIN_NAMES, every command then takes names for ids.

      asyncfin names --ids ids.txt > names.csv
      ASYNCFIN_NAMES=names.csv asyncfin dataset apple

    Args:
        entity_ids: The entities, O- and 32 characters each.
        ids: A file of more entity ids, one a line; - for standard input.
    """
    nobody = Names(names=None)
    asked = [nobody.entity_id(each) for each in entity_ids] + (listed(ids, nobody) if ids else [])
    if not asked:
        raise UsageError("no entity is named: give entity ids, or a file of them as --ids FILE")
    async with connected(service, "Asking") as client:
        found = await asyncio.gather(*map(client.dataset, dict.fromkeys(asked)))
    print_csv(COLUMNS, [(each.entity_id, each.name, "") for each in found], raw=False)
