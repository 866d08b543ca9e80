"""`asyncfin cache`: what the folder of a cache holds, and emptying it."""

from contextlib import aclosing
from typing import Annotated

from attrs import asdict
from cyclopts import Parameter

from asyncfin.cli.entities import Names
from asyncfin.cli.exits import UsageError, prefix_errors
from asyncfin.cli.options import AsJson, is_folder
from asyncfin.words import counted


async def cache(
    entity: str | None = None,
    /,
    *,
    folder: Annotated[
        str | None,
        Parameter(name="--cache", help="The cache's folder.", env_var="ASYNCFIN_CACHE"),
    ] = None,
    clear: Annotated[
        bool, Parameter(help="Clear it, for all accounts of the folder.")
    ] = False,
    json: AsJson = False,
    names: Names = Names(),
) -> None:
    """Show the size of the cache in a folder, or clear it.

    It costs no request. Other processes may continue to use the folder.

      asyncfin cache --cache ~/.cache/asyncfin --clear

    Args:
        entity: With --clear: clear only this entity, an id or a name.
    """
    if folder is None:
        raise UsageError("no cache is given: set ASYNCFIN_CACHE or give --cache FOLDER")
    if entity is not None and not clear:
        raise UsageError("an entity goes with --clear: add it, or leave the entity out")

    import asyncio

    from asyncfin.cache.file import FileCache
    from asyncfin.cli.output import print_json, screen

    with prefix_errors("--cache"):
        # No account is needed: `inspect` and `clear` are about the whole folder.
        kept = FileCache(folder)
        # A mistyped path must not look like an empty cache.
        if not await asyncio.to_thread(is_folder, folder):
            raise UsageError(
                f"--cache {folder}: there is no such folder; commands that read make it"
            )
        async with aclosing(kept):
            if clear:
                await kept.clear(None if entity is None else names.entity_id(entity))
            stats = await kept.inspect()
    if json:
        print_json({"folder": folder, **asdict(stats)})
    else:
        screen().print(
            f"{folder}: {counted(stats.series, 'series', 'series')}, "
            f"{stats.bytes / 1e6:,.1f} MB"
        )
