"""A session of the tools' server in memory, and what its results contain."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import mcp

from asyncfin import Client
from asyncfin.mcp import server
from asyncfin.sandbox import Sandbox

NAMES = ("Apple", "NVIDIA", "Alphabet")
Call = Callable[..., Any]


def text_of(result: Any) -> str:
    (content,) = result.content
    return str(content.text)


def rows_of(result: Any) -> list[dict[str, Any]]:
    return list(result.structured_content["rows"])


@asynccontextmanager
async def assistant(
    sandbox: Sandbox, *, url: str | None = None, offered: Any = None, max_requests: int = 20, **options: Any
) -> AsyncIterator[Call]:
    """Give a function that calls a tool of a server in memory, in one session."""
    names = dict(zip(sandbox.entities, NAMES, strict=False)) if offered is None else offered
    async with (
        Client(url or sandbox.base_url, sandbox.token, **options) as client,
        mcp.Client(server(client, names, max_requests=max_requests)) as session,
    ):

        async def call(tool: str, **arguments: Any) -> Any:
            return await session.call_tool(tool, arguments)

        yield call
