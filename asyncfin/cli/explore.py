"""`asyncfin explore` and `asyncfin mcp`: a page of this machine for people, and tools
for assistants.
"""

import os
import re
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from asyncfin.cli.errors import UsageError, print_error
from asyncfin.cli.options import (
    IdsFile,
    Names,
    Service,
    require,
)
from asyncfin.cli.terminal import progress_console, screen

if TYPE_CHECKING:
    from asyncfin import Client

_TOKEN = "ASYNCFIN_MCP_TOKEN"  # noqa: S105  the name of a variable
_LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\]):(\d{1,5})", re.ASCII)
_Seconds = Annotated[float, Parameter(validator=Number(gte=0), show_default=True)]


async def explore(
    *entity_ids: str,
    ids: IdsFile = None,
    port: Annotated[
        int, Parameter(show_default=True, validator=Number(gte=0, lte=65535))
    ] = 8766,
    max_age: _Seconds = 3600.0,
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
    """
    for package in ("uvicorn", "starlette", "jinja2"):
        require(package, "web", "asyncfin explore")
    # Without a service, the demo companies are shown.
    companies_by_id = names.offer(entity_ids, ids, may_be_none=not service.base_url)
    if companies_by_id:
        service.check()

    import asyncio

    import uvicorn

    from asyncfin.web import explorer

    with _bind(f"--port {port}", "127.0.0.1", port) as listener:
        async with _open_companies(service, companies_by_id, max_age) as (
            client,
            companies,
        ):
            app = explorer(client, companies)
            server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
            address = f"http://127.0.0.1:{listener.getsockname()[1]}/"
            screen().print(address, soft_wrap=True)
            progress_console().print("Ctrl-C ends the explorer.", style="dim")
            # At Ctrl-C the server ends first, and then passes the signal on, which
            # cancels this task.
            with suppress(asyncio.CancelledError):
                await server.serve(sockets=[listener])
                await asyncio.sleep(0)


@asynccontextmanager
async def _open_companies(
    service: Service, companies_by_id: Mapping[str, str], max_age: float
) -> "AsyncIterator[tuple[Client, Mapping[str, str]]]":
    """Yield a client of the service and the companies offered, or of a sandbox."""
    from asyncfin import Client, MemoryCache
    from asyncfin.cli.session import open_client
    from asyncfin.sandbox import Sandbox

    async with aclosing(MemoryCache()) as memory:
        if companies_by_id:
            async with open_client(service, max_age=max_age, memory=memory) as client:
                yield client, companies_by_id
            return
        async with Sandbox.demo() as sandbox:
            address, token = sandbox.base_url, sandbox.token
            async with Client(address, token, cache=memory, max_age=86_400) as client:
                yield client, sandbox.names


def _bind(label: str, host: str, port: int) -> socket.socket:
    """Return a socket that only this machine reaches: its users spend requests. Errors
    begin with the label.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
    raise UsageError(
        f"{label} can't be used ({reason}): choose another port, or 0 for a free one"
    )


async def mcp(
    *entity_ids: str,
    ids: IdsFile = None,
    max_requests: Annotated[
        int, Parameter(validator=Number(gte=1), show_default=True)
    ] = 20,
    max_age: _Seconds = 60.0,
    http: str | None = None,
    names: Names = Names(),
    service: Service = Service(),
) -> None:
    """Serve tools for an assistant (MCP).

    The assistant's host starts this command, with the service and the token in
    its environment. The tools list companies, find series, estimate what a
    query costs, and read the values. With --http the tools are served at
    /mcp of a port of this machine, to requests that have the bearer token in
    ASYNCFIN_MCP_TOKEN. It needs the extra: pip install 'asyncfin[mcp]'.

      asyncfin mcp --names names.csv
      asyncfin mcp --names names.csv --http 127.0.0.1:8767

    Args:
        entity_ids: The companies on offer: ids, or names. [else all of --names]
        ids: A file of more companies, one a line.
        max_requests: The most requests that one call may spend.
        max_age: For how many seconds a publication counts as the current one.
        http: Serve over HTTP on this address, such as 127.0.0.1:8767.
    """
    require("mcp", "mcp", "asyncfin mcp")
    companies = names.offer(entity_ids, ids)
    token = os.environ.get(_TOKEN, "").strip()
    if http is not None and not token:
        raise UsageError(
            f"--http needs a bearer token in {_TOKEN}: set it to a long random text, "
            "also for the host"
        )
    service.check()

    from asyncfin import MemoryCache
    from asyncfin.cli.session import open_client
    from asyncfin.mcp import http_app, server

    async with open_client(service, memory=MemoryCache(), max_age=max_age) as client:
        tools = server(client, companies, max_requests=max_requests)
        if http is None:
            await tools.run_stdio_async()
            return
        import uvicorn  # not for standard input and output

        with _bind(f"--http {http}", *_parse_loopback(http)) as listener:
            port = listener.getsockname()[1]
            # Standard error, where hosts and people look for it.
            print_error(f"http://{http.rpartition(':')[0]}:{port}/mcp")
            app = http_app(tools, token)
            config = uvicorn.Config(app, log_level="error", server_header=False)
            await uvicorn.Server(config).serve(sockets=[listener])


def _parse_loopback(address: str) -> tuple[str, int]:
    """Return the host and the port of an address of this machine."""
    match = _LOOPBACK.fullmatch(address)
    if match is None or int(match[2]) > 65_535:
        raise UsageError(
            "--http must be a loopback address and a port, such as 127.0.0.1:8767, not "
            f"{address!r}"
        )
    return match[1].strip("[]"), int(match[2])
