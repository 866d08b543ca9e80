"""Fail half of an object store's requests in every way, and compare with an extraction
that none disturbed.

``python -m tools.checks.storm [runs] [seed]``: a proxy in front of moto's server
refuses requests (5xx, 409, 412, 429), resets connections, cuts responses, and loses
responses after the write. Each run extracts into another prefix. If it ends in an
error, which must name the prefix, a run without failures completes it.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import random
import socket
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from asyncfin import Annual, AsyncfinError, Client, Select, extract
from asyncfin.sandbox import Sandbox
from tests.extraction.conftest import Rows, rows
from tests.extraction.s3 import BUCKET, S3, served
from tests.generate import generate

STATUSES = (409, 412, 429, 500, 502, 503)
WAYS = (*STATUSES, "reset", "lost", "cut")


class FailingProxy(ThreadingHTTPServer):
    """Forwards requests to another server; fails a share of them."""

    daemon_threads = True

    def __init__(self, url: str, share: float, seed: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = urlsplit(url).netloc
        self.share, self.source, self.lock = (
            share,
            random.Random(seed),
            threading.Lock(),
        )
        self.failed: Counter[Any] = Counter()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def way(self, method: str, path: str) -> Any:
        """Return how the next request fails; None: it does not."""
        with self.lock:
            way = self.choose(method, path)
            if way is not None:
                self.failed[way] += 1
            return way

    def choose(self, method: str, path: str) -> Any:
        """Return a random way for a share of the requests; tests replace it."""
        return self.source.choice(WAYS) if self.source.random() < self.share else None

    def handle_error(self, *_: Any) -> None:
        """A client that has gone away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = (
        True  # the headers are sent alone: a body would wait 40 ms for the ACK
    )
    server: FailingProxy

    def _serve(self) -> None:
        body = self._body()
        way = self.server.way(self.command, self.path)
        if isinstance(way, int):
            self._respond(
                way,
                {"Content-Type": "application/xml"},
                b"<Error><Code>Failed</Code></Error>",
            )
        elif way == "reset":
            self._reset()
        else:
            if way == "slow":
                time.sleep(1)
            status, headers, content = self._forward(body)
            if way == "lost":
                self._reset()
            else:
                self._respond(status, headers, content, cut=way == "cut")

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _serve

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            content = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return content
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _forward(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.server.target, timeout=30)
        try:
            headers = {
                name: value
                for name, value in self.headers.items()
                if name != "Transfer-Encoding"
            }
            connection.request(
                self.command,
                self.path,
                body or None,
                headers | {"Content-Length": str(len(body))},
            )
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def _respond(
        self, status: int, headers: dict[str, str], content: bytes, *, cut: bool = False
    ) -> None:
        dropped = {"transfer-encoding", "connection", "date", "server"}
        self.send_response(status)
        names = {name.lower() for name in headers}
        for name, value in headers.items():
            if name.lower() not in dropped:
                self.send_header(name, value)
        if "content-length" not in names:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if cut else content)
        if cut:
            self._reset()

    def _reset(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        self.connection.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        with suppress(OSError):
            self.connection.close()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def failing(s3: S3, share: float = 0.0, seed: int = 0) -> Iterator[FailingProxy]:
    """Put a failing proxy in front of a store while the block lasts."""
    proxy = FailingProxy(s3.url, share, seed)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    os.environ["AWS_ENDPOINT_URL"] = proxy.url
    try:
        yield proxy
    finally:
        os.environ["AWS_ENDPOINT_URL"] = s3.url
        proxy.shutdown()
        thread.join()
        proxy.server_close()


async def storm(
    runs: int, seed: int, *, entities: int = 6
) -> tuple[Counter[Any], list[str]]:
    """Extract so often into a failing store; return how requests failed, and the errors
    of runs.
    """
    companies = [
        generate(number, series=15, publications=1) for number in range(entities)
    ]
    errors: list[str] = []
    failed: Counter[Any] = Counter()
    async with (
        Sandbox(*companies) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        with TemporaryDirectory() as folder, served() as s3:
            await extract(
                client, sandbox.entities, Select(), Annual(), to=f"{folder}/calm"
            )
            expected = await asyncio.to_thread(_rows, f"{folder}/calm")
            for number in range(runs):
                to = f"s3://{BUCKET}/night{number}"
                with failing(s3, 0.5, seed + number) as proxy:
                    try:
                        report = await extract(
                            client, sandbox.entities, Select(), Annual(), to=to
                        )
                        assert not report.failed, str(report)
                    except (AsyncfinError, OSError) as error:
                        errors.append(f"{type(error).__name__}: {error}")
                    failed += proxy.failed
                assert all("s3://" in error for error in errors), (
                    f"the prefix is not named: {errors}"
                )
                # Without the lock, which a failed run may not have deleted.
                await extract(
                    client, sandbox.entities, Select(), Annual(), to=to, lock=False
                )
                assert await asyncio.to_thread(s3.rows, f"night{number}") == expected
    return failed, errors


def _rows(folder: str) -> Rows:
    return rows(Path(folder))


def main(runs: str = "10", seed: str = "0") -> None:
    failed, errors = asyncio.run(storm(int(runs), int(seed)))
    print(f"{runs} runs; requests that failed: {dict(failed)}")
    print(f"runs that ended in an error: {len(errors)}", *errors, sep="\n")
    print("rows equal after each, and after its resume")


if __name__ == "__main__":
    main(*sys.argv[1:])
