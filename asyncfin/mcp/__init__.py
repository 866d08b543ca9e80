"""Tools for assistants (MCP): find series of companies, learn what a query costs,
and read the values.

The service's own MCP tools count toward the same allowance (spec 8). What this local
server adds are plans, costs known beforehand, and results that fit into an assistant's
context. It needs the extra `mcp`.
"""

from asyncfin.optional import library

# Before the imports below, so that a missing extra is named in words.
library("mcp", "mcp")

from asyncfin.mcp.http import http_app  # noqa: E402
from asyncfin.mcp.results import MAX_CHARACTERS  # noqa: E402
from asyncfin.mcp.tools import MAX_ENTITIES, MAX_REQUESTS, server  # noqa: E402

__all__ = ["MAX_CHARACTERS", "MAX_ENTITIES", "MAX_REQUESTS", "http_app", "server"]
