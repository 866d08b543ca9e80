"""A server of raw bytes, in the test's own loop: it can break HTTP in ways that no HTTP server would."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

from attrs import define, field

Step: TypeAlias = Callable[[asyncio.StreamWriter], Awaitable[bool]]


def answer(status: int = 200, body: bytes = b"{}", **headers: str) -> bytes:
    """Return an HTTP answer; ``retry_after="5"`` becomes the header Retry-After."""
    headers = {"content_length": str(len(body)), **headers}
    lines = "".join(f"{name.replace('_', '-').title()}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} Whatever\r\n{lines}\r\n".encode() + body


def refusal(status: int, code: str = "some_code", message: str = "no", **headers: str) -> bytes:
    """Return an answer with an error object (spec 7)."""
    text = f'{{"error": {{"code": "{code}", "message": "{message}", "request_id": "r-1"}}}}'
    return answer(status, text.encode(), **headers)


def writing(raw: bytes, *, then_close: bool = False) -> Step:
    """Write these bytes, and then keep the connection or close it."""

    async def step(writer: asyncio.StreamWriter) -> bool:
        writer.write(raw)
        await writer.drain()
        return not then_close

    return step


def delayed(seconds: float, raw: bytes) -> Step:
    """Write these bytes after some seconds."""

    async def step(writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(seconds)
        return await writing(raw)(writer)

    return step


def dropping(raw: bytes = b"") -> Step:
    """Write these bytes, and close the connection."""
    return writing(raw, then_close=True)


def resetting(raw: bytes) -> Step:
    """Write these bytes, and reset the connection once they were read; for tests in virtual time."""

    async def step(writer: asyncio.StreamWriter) -> bool:
        writer.write(raw)
        await asyncio.sleep(1)
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
        return False

    return step


def hanging(raw: bytes = b"") -> Step:
    """Write these bytes, and nothing more."""

    async def step(writer: asyncio.StreamWriter) -> bool:
        writer.write(raw)
        await asyncio.get_running_loop().create_future()
        return False

    return step


def trickling(raw: bytes, seconds: float) -> Step:
    """Write one byte after the other, each some seconds after the last."""

    async def step(writer: asyncio.StreamWriter) -> bool:
        for at in range(len(raw)):
            await asyncio.sleep(seconds)
            writer.write(raw[at : at + 1])
        return True

    return step


@define
class Received:
    """One request as it came, its header names in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def token(self) -> str:
        return self.headers["authorization"].removeprefix("Bearer ")


@define(eq=False)
class Scripted:
    """A server: what it was sent, and what it does about it."""

    judge: Callable[[Received], Step]
    base_url: str = ""
    requests: list[Received] = field(factory=list)
    connections: set["asyncio.Task[None]"] = field(factory=set)
    opened: int = 0
    news: asyncio.Event = field(factory=asyncio.Event)

    async def arrived(self, count: int) -> None:
        """Wait until that number of requests has come."""
        while len(self.requests) < count:
            self.news.clear()
            await self.news.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self.connections.add(task)
        self.opened += 1
        with suppress(asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            while await self._exchange(reader, writer):
                pass
        self.connections.discard(task)
        writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = {name.lower(): text for name, text in (line.split(": ", 1) for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        now = asyncio.get_running_loop().time()
        self.requests.append(Received(method, target, headers, body, now))
        self.news.set()
        return await self.judge(self.requests[-1])(writer)


@asynccontextmanager
async def judged(
    judge: Callable[[Received], Step | bytes], *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Scripted]:
    """Serve on a free port of this machine; each request is answered as `judge` says."""

    def judgement(request: Received) -> Step:
        step = judge(request)
        return writing(step) if isinstance(step, bytes) else step

    script = Scripted(judgement)
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0, ssl=tls)
    script.base_url = f"http{'s' if tls else ''}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield script
    finally:
        server.close()
        for task in tuple(script.connections):
            task.cancel()
        await asyncio.gather(*script.connections, return_exceptions=True)


@asynccontextmanager
async def scripted(*steps: Step | bytes) -> AsyncIterator[Scripted]:
    """Serve these steps, one a request, the last one again and again."""
    left = list(steps)
    async with judged(lambda _: left.pop(0) if len(left) > 1 else left[0]) as server:
        yield server
