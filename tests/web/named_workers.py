"""The example backend, each of whose responses says which worker gave it."""

import os
from collections.abc import Awaitable, Callable

from fastapi import Request, Response

from examples.fastapi_app import app

__all__ = ["app"]


@app.middleware("http")
async def named(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await call_next(request)
    response.headers["worker"] = str(os.getpid())
    return response


@app.get("/ready")
async def ready() -> str:
    return "yes"
