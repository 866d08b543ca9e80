"""A server in a separate process, so that it is not measured: ``python -m
benchmarks._replay FILE``.

It replays prepared answers, each 20 ms after its query came. It prints its address and
a token, and ends with its standard input.
"""

import asyncio
import json
import pickle
import sys
from pathlib import Path

from benchmarks._shapes import key

LATENCY = 0.02
TOKEN = "not-checked-but-as-long-as-access-tokens-are"


class Replay(asyncio.Protocol):
    """One connection: requests one after another, each answered after the latency."""

    def __init__(self, answers: dict[str, bytes]) -> None:
        self._answers = answers
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        lengths = [
            line
            for line in head.split(b"\r\n")
            if line.lower().startswith(b"content-length:")
        ]
        if len(body) >= int(lengths[0].split(b":")[1]):
            self._received = b""
            asyncio.get_running_loop().call_later(LATENCY, self._answer, body)

    def _answer(self, body: bytes) -> None:
        answer = self._answers[key(json.loads(body))]
        head = (
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
            f"content-length: {len(answer)}\r\nconnection: keep-alive\r\n\r\n"
        )
        assert isinstance(self._transport, asyncio.Transport)
        self._transport.write(head.encode())
        self._transport.write(answer)


async def serve(answers: dict[str, bytes]) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Replay(answers), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{port}", TOKEN, flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(pickle.loads(Path(sys.argv[1]).read_bytes())))
