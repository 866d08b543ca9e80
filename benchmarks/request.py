"""What one request costs, beside the same by aiohttp alone: `client.dataset` against a
server of bytes.
"""

import asyncio
import json
import multiprocessing
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from statistics import median
from time import process_time

import aiohttp

from asyncfin import Client, TokenBucket
from benchmarks.bucket import PLENTY

ENTITY = "O-" + "1" * 32
ROUNDS, REQUESTS = 60, 100
_BODY = json.dumps(
    {
        "entity_id": ENTITY,
        "name": "Example",
        "dataset_id": "11111111-1111-4111-8111-111111111111",
        "created_timestamp": "2026-01-02T03:04:05Z",
    }
).encode()


class _Answers(asyncio.Protocol):
    """Sends the same bytes for each request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport, self._left = transport, b""

    def data_received(self, data: bytes) -> None:
        *requests, self._left = (self._left + data).split(b"\r\n\r\n")
        head = (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
            b"%d\r\n\r\n" % len(_BODY)
        )
        self._transport.write((head + _BODY) * len(requests))  # type: ignore[attr-defined]


def _serve(port: Connection) -> None:
    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(
            _Answers, "127.0.0.1", 0
        )
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


@asynccontextmanager
async def _service() -> AsyncIterator[str]:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    # In another process, whose time does not count.
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(sender,), daemon=True
    )
    process.start()
    try:
        yield f"http://127.0.0.1:{await asyncio.to_thread(receiver.recv)}"
    finally:
        process.terminate()


async def request() -> float:
    """Return the CPU time of `client.dataset` as a multiple of aiohttp's: the median of
    rounds in turn.
    """
    headers = {"Authorization": "Bearer some-token"}
    async with (
        _service() as url,
        Client(url, "some-token", bucket=TokenBucket(PLENTY, PLENTY)) as client,
        aiohttp.ClientSession(headers=headers) as session,
    ):

        async def ours() -> None:
            await client.dataset(ENTITY)

        async def by_hand() -> None:
            async with session.get(f"{url}/v1/entities/{ENTITY}/dataset") as response:
                json.loads(await response.read())

        ratios = [await _seconds(ours) / await _seconds(by_hand) for _ in range(ROUNDS)]
    return median(ratios)


async def _seconds(send: Callable[[], Awaitable[None]]) -> float:
    began = process_time()
    for _ in range(REQUESTS):
        await send()
    return process_time() - began


def run() -> str:
    """Return a sentence with the ratio."""
    return f"`client.dataset`: {asyncio.run(request()):.2f} of aiohttp's CPU time."
