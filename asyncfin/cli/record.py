"""`asyncfin record`: entities' datasets as files that the sandbox serves."""

import sys
from operator import methodcaller
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from asyncfin.checks import expand_user
from asyncfin.cli.entities import Names
from asyncfin.cli.exits import UsageError
from asyncfin.cli.service import Service
from asyncfin.words import counted


async def record(
    *entity_ids: str,
    into: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    names: Names = Names(),
    service: Service = Service(),
) -> None:
    """Write an entity's dataset to a file for the sandbox.

    The file contains the catalogue and all values of both versions, with their
    sources: `Sandbox("acme.json.gz")` and `asyncfin sandbox acme.json.gz` serve
    it. It costs one request for each 100 series, and two for each 100 series of
    which values are read.

      asyncfin record ENTITY_ID > acme.json.gz
      asyncfin record ENTITY_ID ENTITY_ID --into FOLDER

    Args:
        entity_ids: The entities, O- and 32 characters each, or their names.
        into: A folder for a file of each entity, ID.json.gz. Files are replaced as a
            whole.
    """
    entities = list(dict.fromkeys(names.entity_id(each) for each in entity_ids))
    if not entities:
        raise UsageError("no entity is given: give entity ids")
    if into is None and len(entities) > 1:
        raise UsageError(
            "several entities need several files: give a folder for them, --into FOLDER"
        )
    if into is None and sys.stdout.isatty():
        raise UsageError(
            "the file is compressed, not text: write > FILE.json.gz, or --into FOLDER"
        )
    into = None if into is None else Path(expand_user(str(into)))
    if into is not None and into.exists() and not into.is_dir():
        raise UsageError(f"--into {into} is not a folder: give a folder or a new path")
    service.check()

    from asyncfin.cli.output import replace_file, screen
    from asyncfin.cli.recorded import recorded, written
    from asyncfin.cli.session import connected
    from asyncfin.extraction.place import file_name

    if into is not None:
        into.mkdir(parents=True, exist_ok=True)
    async with connected(service, "Recording", names) as client:
        for entity_id in entities:
            content = written(await recorded(client, entity_id))
            if into is None:
                sys.stdout.buffer.write(content)
            else:
                replace_file(
                    into / f"{file_name(entity_id)}.json.gz",
                    methodcaller("write", content),
                )
    if into is not None:
        screen().print(f"{into}: {counted(len(entities), 'file')}")
