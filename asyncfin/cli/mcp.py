"""`asyncfin mcp`: the assistants' tools over standard input and output."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from asyncfin.cli.entities import Names
from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import Service, entity_group, require


async def mcp(
    *entity_ids: str,
    ids: Annotated[Path | None, Parameter(group=entity_group)] = None,
    max_requests: Annotated[int, Parameter(validator=Number(gte=1), show_default=True)] = 20,
    names: Names = Names(),  # noqa: B008  a frozen value
    service: Service = Service(),  # noqa: B008  a frozen value
) -> None:
    """Serve tools for an assistant (MCP) on standard input and output, until it closes them.

    The assistant's host starts this command, with the service and the token in
    its environment. The tools list companies, find series, estimate what a
    question costs, and ask it. It needs the extra: pip install 'asyncfin[mcp]'.

      asyncfin mcp --names names.csv

    Args:
        entity_ids: The companies on offer: ids, or names. [else all of --names]
        ids: A file of more companies, one a line.
        max_requests: The most requests that one call may spend.
    """
    require("mcp", "mcp", "asyncfin mcp")
    # After `require`, which says in one line what to install.
    from asyncfin.mcp import server

    if not (offered := names.offered(entity_ids, ids)):
        raise UsageError("no company is on offer: give entity ids, --ids FILE or --names FILE")
    async with service.client() as client:
        await server(client, offered, max_requests=max_requests).run_stdio_async()
