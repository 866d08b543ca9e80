"""Parts for web backends: errors as HTTP responses, handling visitors who leave, and
the explorer.

`reply`, `http_error`, `check_offered`, `unless_gone` and `csv_cell` work with any
framework and need no extra. `explorer` is an ASGI app, and needs the extra `web`.
"""

from typing import TYPE_CHECKING, Any

from asyncfin.csv import csv_cell
from asyncfin.web.backend import (
    AsgiRequest,
    ClientGoneError,
    HttpError,
    Offer,
    check_offered,
    http_error,
    unless_gone,
)
from asyncfin.web.response import Reply, reply

if TYPE_CHECKING:
    from asyncfin.web.explore import explorer

__all__ = [
    "AsgiRequest",
    "ClientGoneError",
    "HttpError",
    "Offer",
    "Reply",
    "check_offered",
    "csv_cell",
    "explorer",
    "http_error",
    "reply",
    "unless_gone",
]


def __getattr__(name: str) -> Any:
    # Starlette and Jinja are imported only with the explorer.
    if name == "explorer":
        from asyncfin.web.explore import explorer

        return explorer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
