"""`asyncfin explore`: the explorer as a page of this machine."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from cyclopts.validators import Number

from asyncfin.cli.entities import Names
from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import Service, entity_group, require
from asyncfin.cli.output import progress_console, screen
from asyncfin.client import Client
from asyncfin.sandbox import Sandbox
from asyncfin.sandbox.demo import demo_datasets


async def explore(
    *entity_ids: str,
    ids: Annotated[Path | None, Parameter(group=entity_group)] = None,
    port: Annotated[int, Parameter(show_default=True, validator=Number(gte=0, lte=65535))] = 8766,
    names: Names = Names(),  # noqa: B008  a frozen value
    service: Service = Service(),  # noqa: B008  a frozen value
) -> None:
    """Show companies, their series and values on a page of this machine, until Ctrl-C.

    Only this machine can reach it. Where no service is named, the page shows
    the demo companies of a local sandbox. This needs the extra: pip install
    'asyncfin[web]'.

      asyncfin explore
      asyncfin explore apple nvidia --names names.csv

    Args:
        entity_ids: The companies on offer: ids, or names. [else all of --names]
        ids: A file of more companies, one a line.
        port: The port; 0 for a free one.
    """
    for package in ("uvicorn", "starlette", "jinja2"):
        require(package, "web", "asyncfin explore")
    import uvicorn

    from asyncfin.web import explorer

    offered = names.offered(entity_ids, ids)
    with listening(port) as listener:
        async with served(service, offered) as (client, companies):
            server = uvicorn.Server(uvicorn.Config(explorer(client, companies), log_level="warning"))
            announcing = asyncio.ensure_future(announce(server))
            try:
                # At Ctrl-C the server ends first, and then passes the signal on, which cancels this task.
                with suppress(asyncio.CancelledError):
                    await server.serve(sockets=[listener])
                    await asyncio.sleep(0)
            finally:
                announcing.cancel()


def listening(port: int) -> socket.socket:
    """Return a socket that listens on this machine alone: the page can spend the account's allowance."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        reason = os.strerror(error.errno or 0)
    raise UsageError(f"--port {port} can't be used ({reason}): choose another, or 0 for a free one")


@asynccontextmanager
async def served(
    service: Service, offered: Mapping[str, str]
) -> AsyncIterator[tuple[Client, Mapping[str, str]]]:
    """Give a client of the service and the companies on offer, or those of a sandbox."""
    if service.base_url is None and not offered:
        datasets = demo_datasets()
        async with Sandbox(*datasets) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
            yield client, {each.entity_id: each.name for each in datasets}
        return
    if not offered:
        raise UsageError("no company is on offer: give entity ids, --ids FILE or --names FILE")
    async with service.client() as client:
        yield client, offered


async def announce(server: Any) -> None:
    """Print the address once the server listens."""
    while not server.started:  # noqa: ASYNC110  uvicorn has no event for it
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    screen().print(f"http://127.0.0.1:{port}/", soft_wrap=True)
    progress_console().print("Ctrl-C ends the explorer.", style="dim")
