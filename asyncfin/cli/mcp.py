"""`asyncfin mcp`: the assistants' tools over standard input and output, or over HTTP on
this machine.
"""

import os
import re
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from asyncfin.cli.entities import Names
from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import entity_group, require
from asyncfin.cli.service import Service
from asyncfin.cli.streams import print_error

_TOKEN = "ASYNCFIN_MCP_TOKEN"  # noqa: S105  the name of a variable
_LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\]):(\d{1,5})", re.ASCII)
_Seconds = Annotated[float, Parameter(validator=Number(gte=0), show_default=True)]


async def mcp(
    *entity_ids: str,
    ids: Annotated[Path | None, Parameter(group=entity_group)] = None,
    max_requests: Annotated[
        int, Parameter(validator=Number(gte=1), show_default=True)
    ] = 20,
    max_age: _Seconds = 60.0,
    stale_if_error: _Seconds = 0.0,
    http: str | None = None,
    names: Names = Names(),
    service: Service = Service(),
) -> None:
    """Serve tools for an assistant (MCP).

    The assistant's host starts this command, with the service and the token in
    its environment. The tools list companies, find series, estimate what a
    question costs, and read the values. With --http the tools are served at
    /mcp of a port of this machine, to requests that have the bearer token in
    ASYNCFIN_MCP_TOKEN. It needs the extra: pip install 'asyncfin[mcp]'.

      asyncfin mcp --names names.csv
      asyncfin mcp --names names.csv --http 127.0.0.1:8767

    Args:
        entity_ids: The companies on offer: ids, or names. [else all of --names]
        ids: A file of more companies, one a line.
        max_requests: The most requests that one call may spend.
        max_age: For how many seconds a publication counts as the current one.
        stale_if_error: For how many more seconds, if the service fails.
        http: Serve over HTTP on this address, such as 127.0.0.1:8767.
    """
    require("mcp", "mcp", "asyncfin mcp")
    if not (offered := names.offered(entity_ids, ids)):
        raise UsageError(
            "no company is on offer: give entity ids, --ids FILE or --names FILE"
        )
    token = None if http is None else _token()
    service.check()

    from asyncfin.cache.memory import MemoryCache
    from asyncfin.cli.listening import listening
    from asyncfin.cli.session import client_of
    from asyncfin.mcp import http_app, server

    options = {"max_age": max_age, "stale_if_error": stale_if_error}
    async with client_of(service, otherwise=MemoryCache(), **options) as client:
        tools = server(client, offered, max_requests=max_requests)
        if http is None or token is None:
            await tools.run_stdio_async()
            return
        import uvicorn  # not for standard input and output

        with listening(f"--http {http}", *_loopback(http)) as listener:
            port = listener.getsockname()[1]
            # Standard error, where hosts and people look for it.
            print_error(f"http://{http.rpartition(':')[0]}:{port}/mcp")
            app = http_app(tools, token)
            config = uvicorn.Config(app, log_level="error", server_header=False)
            await uvicorn.Server(config).serve(sockets=[listener])


def _token() -> str:
    if not (token := os.environ.get(_TOKEN, "").strip()):
        raise UsageError(
            f"--http needs a bearer token in {_TOKEN}: set it to a long random text, "
            "also for the host"
        )
    return token


def _loopback(address: str) -> tuple[str, int]:
    """Return the host and the port of an address of this machine."""
    if (found := _LOOPBACK.fullmatch(address)) is None or int(found[2]) > 65_535:
        raise UsageError(
            "--http must be a loopback address and a port, such as 127.0.0.1:8767, not "
            f"{address!r}"
        )
    return found[1].strip("[]"), int(found[2])
