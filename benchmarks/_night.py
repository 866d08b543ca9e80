"""A service of many companies that costs next to nothing.

``python -m benchmarks._night SERIES KINDS FAIL LATENCY`` starts it. A few generated
companies represent all; each distinct request is answered by the sandbox once, then by
its bytes with the entity's id put in. Every FAIL-th entity is unknown; 0 for none. Each
answer leaves after LATENCY milliseconds. It prints its port, and ends with its standard
input. GET /requests/ENTITY_ID returns what has been asked of a company of that kind.
"""

import asyncio
import json
import sys
from collections.abc import Iterator

import aiohttp

from asyncfin.sandbox import Sandbox
from tests.generate import generate

TOKEN = "night"  # what the sandbox wants is put in where a request is passed on
_MISSING = (
    b'{"error":{"code":"not_found","message":"No such entity.","request_id":"req-0"}}'
)

Key = tuple[str, str, bytes]


def entity_id(number: int) -> str:
    """The id of a company of the night."""
    return f"O-{number:032d}"


class Companies:
    """The answers known so far, by kind of company."""

    def __init__(
        self, sandbox: Sandbox, session: aiohttp.ClientSession, fail: int
    ) -> None:
        self._sandbox, self._session, self._fail = sandbox, session, fail
        self._answers: list[dict[Key, bytes]] = [{} for _ in sandbox.entities]

    async def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if path.startswith("/requests/"):
            return 200, json.dumps(list(self._asked(path.rpartition("/")[2]))).encode()
        entity = path.split("/")[3]
        number = int(entity[2:])
        if self._fail and number % self._fail == 0:
            return 404, _MISSING
        kind = number % len(self._answers)
        kind_entity = self._sandbox.entities[kind]
        key = (method, path.replace(entity, kind_entity), body)
        if key not in self._answers[kind]:
            self._answers[kind][key] = await self._ask(*key)
        return 200, self._answers[kind][key].replace(
            kind_entity.encode(), entity.encode(), 1
        )

    def _asked(self, entity: str) -> Iterator[tuple[str, str, str]]:
        kind = int(entity[2:]) % len(self._answers)
        for method, path, body in self._answers[kind]:
            yield (
                method,
                path.replace(self._sandbox.entities[kind], entity),
                body.decode(),
            )

    async def _ask(self, method: str, path: str, body: bytes) -> bytes:
        headers = {
            "Authorization": f"Bearer {self._sandbox.token}",
            "Content-Type": "application/json",
        }
        url = f"{self._sandbox.base_url}{path}"
        async with self._session.request(
            method, url, data=body or None, headers=headers
        ) as answer:
            answer.raise_for_status()
            return await answer.read()


class Connection(asyncio.Protocol):
    """Requests one after another."""

    def __init__(self, companies: Companies, latency: float) -> None:
        self._companies, self._latency, self._received = companies, latency, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        sizes = [
            int(line[15:])
            for line in lines
            if line.lower().startswith(b"content-length:")
        ]
        if end and len(body) >= sum(sizes):
            self._received = b""
            method, path, _ = lines[0].decode().split(" ")
            self._task = asyncio.ensure_future(self._answer(method, path, body))

    async def _answer(self, method: str, path: str, body: bytes) -> None:
        if self._latency:
            await asyncio.sleep(self._latency)
        status, answer = await self._companies.answer(method, path, body)
        head = (
            f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: "
            f"{len(answer)}\r\n\r\n"
        )
        assert isinstance(self._transport, asyncio.Transport)
        self._transport.write(head.encode() + answer)


async def serve(series: int, kinds: int, fail: int, latency: int) -> None:
    datasets = [generate(seed, series=series, publications=1) for seed in range(kinds)]
    async with Sandbox(*datasets) as sandbox, aiohttp.ClientSession() as session:
        companies = Companies(sandbox, session, fail)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: Connection(companies, latency / 1000), "127.0.0.1", 0
        )
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)
        server.close()


if __name__ == "__main__":
    asyncio.run(serve(*map(int, sys.argv[1:])))
