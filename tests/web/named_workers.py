"""The example backend, each of whose responses says which worker gave it."""

import os
import socket
from typing import Any

import uvicorn

from examples import fastapi_app


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Pass everything on as it is, but for a header of the response."""

    async def named(message: Any) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"worker", str(os.getpid()).encode())]
        await send(message)

    await fastapi_app.app(scope, receive, named)


def work(listening: socket.socket, environment: dict[str, str]) -> None:
    """Serve as a worker of uvicorn does."""
    os.environ.clear()
    os.environ.update(environment)
    fastapi_app.OFFER = set(environment["ASYNCFIN_ENTITIES"].split())  # imported before
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
