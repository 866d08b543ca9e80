"""`asyncfin explore`: the explorer as a page of this machine."""

import re
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from asyncfin.cli.entities import Names
from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import Several, entity_group, require
from asyncfin.cli.service import Service


async def explore(
    *entity_ids: str,
    ids: Annotated[Path | None, Parameter(group=entity_group)] = None,
    port: Annotated[
        int, Parameter(show_default=True, validator=Number(gte=0, lte=65535))
    ] = 8766,
    max_age: Annotated[
        float, Parameter(show_default=True, validator=Number(gte=0))
    ] = 3600.0,
    host: Several = (),
    root_path: str = "",
    names: Names = Names(),
    service: Service = Service(),
) -> None:
    """Show companies and their values on a page of this machine.

    Only this machine can reach it. Where no service is named, the page shows
    the demo companies of a local sandbox. This needs the extra: pip install
    'asyncfin[web]'.

      asyncfin explore
      asyncfin explore apple nvidia --names names.csv

    Args:
        entity_ids: The companies on offer: ids, or names. [else all of --names]
        ids: A file of more companies, one a line.
        port: The port; 0 for a free one.
        max_age: For how many seconds a URL shows what was read, without a request.
        host: A host name under which a proxy reaches this page. [else only this
            machine's]
        root_path: The path under which a proxy passes on to this page, such as
            /explore.
    """
    for package in ("uvicorn", "starlette", "jinja2"):
        require(package, "web", "asyncfin explore")
    # It precedes the path of every link of the page.
    if root_path and not re.fullmatch("(/[^/]+)+", root_path):
        raise UsageError(
            f"--root-path must be a path such as /explore, not {root_path!r}"
        )
    offered = names.offered(entity_ids, ids)
    if offered or service.base_url is not None:
        service.check()

    from asyncfin.cli.explorer import serve

    hosts = ("127.0.0.1", "localhost", *host)
    await serve(
        service,
        offered,
        port,
        max_age=max_age,
        root_path=root_path,
        hosts=hosts,
    )
