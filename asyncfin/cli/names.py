"""`asyncfin names`: a file of names for entity ids, as the service names them."""

import asyncio
import os
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from asyncfin.cli.entities import COLUMNS, Names, listed
from asyncfin.cli.exits import UsageError, naming
from asyncfin.cli.options import Service, entity_group
from asyncfin.cli.output import print_csv
from asyncfin.cli.session import connected
from asyncfin.model.catalogue import Dataset


async def names(
    *entity_ids: str,
    ids: Annotated[Path | None, Parameter(allow_leading_hyphen=True, group=entity_group)] = None,
    from_cache: bool = False,
    names: Names = Names(),  # noqa: B008  a frozen value
    service: Service = Service(),  # noqa: B008  a frozen value
) -> None:
    """Write a file of names for entity ids, as the service names them.

    It costs one request for each entity. The file is CSV with the columns id,
    name and aliases: add names of your own as aliases, separated by |. With
    --names FILE, or ASYNCFIN_NAMES, every command then takes names for ids.

      asyncfin names --ids ids.txt > names.csv
      ASYNCFIN_NAMES=names.csv asyncfin dataset apple

    Args:
        entity_ids: The entities, O- and 32 characters each, or names that they have already.
        ids: A file of more entity ids, one a line; - for standard input.
        from_cache: All entities whose catalogues are in the cache of ASYNCFIN_CACHE; no request is sent.
    """
    if from_cache:
        if entity_ids or ids:
            raise UsageError("--from-cache takes all entities of the cache: name none beside it")
        _print(await cached(service))
        return
    asked = [names.entity_id(each) for each in entity_ids] + (listed(ids, names) if ids else [])
    if not asked:
        raise UsageError("no entity is named: give entity ids, or a file of them as --ids FILE")
    async with connected(service, "Asking", names) as client:
        # Each id once, in the order given: a file of ids may repeat them.
        found = await asyncio.gather(*map(client.dataset, dict.fromkeys(asked)))
    _print(found)


def cached(service: Service) -> Awaitable[Sequence[Dataset]]:
    """Return what the cache knows of the service, as the account of the token sees it."""
    from asyncfin.cache.file import FileCache

    folder = os.environ.get("ASYNCFIN_CACHE")
    if not folder:
        raise UsageError("no cache is named: set ASYNCFIN_CACHE to its folder")
    with naming("ASYNCFIN_CACHE"):
        cache = FileCache(folder, account=os.environ.get("ASYNCFIN_ACCOUNT") or None)
        return cache.datasets(*service.identity())


def _print(datasets: Sequence[Dataset]) -> None:
    print_csv(COLUMNS, [(each.entity_id, each.name, "") for each in datasets], raw=False)
