"""The example backend, each of whose responses says which worker gave it."""

import os
from typing import Any

from examples.fastapi_app import app as example


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Pass everything on as it is, but for a header of the response."""

    async def named(message: Any) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], (b"worker", str(os.getpid()).encode())]
        await send(message)

    await example(scope, receive, named)
