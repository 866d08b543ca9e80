"""What the tests of shared buckets share: a real Redis server, clocks, and the measure of a pace."""

import asyncio
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.conftest import VirtualTimeLoop

SERVER = shutil.which("redis-server")
# What may become of a Redis, and the commands that do it.
FAULTS = {
    "killed": "",
    "stopped": "",
    "failed over": "",  # without replication: an empty server is in its place
    "flushed": "FLUSHALL",
    "full": "CONFIG SET maxmemory 1",
    "read-only": "REPLICAOF 127.0.0.1 1",  # as the old primary is after a failover
    "another password": "CONFIG SET requirepass another; CLIENT KILL TYPE normal SKIPME yes",
}


class RedisServer:
    """A server of our own on a socket in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"unix://{folder}/redis.sock"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert SERVER is not None
        place = self.folder / "redis.sock"
        place.unlink(missing_ok=True)
        arguments = ["--port", "0", "--unixsocket", str(place), "--save", "", "--dir", str(self.folder)]
        self.process = subprocess.Popen([SERVER, *arguments], stdout=subprocess.DEVNULL)
        while not _listens(place):
            time.sleep(0.01)

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            self.process = None

    async def suffer(self, fault: str) -> None:
        """Let one of the faults happen to the server."""
        from redis.asyncio import Redis

        if fault == "stopped":
            assert self.process is not None
            self.process.send_signal(signal.SIGSTOP)
        elif fault in ("killed", "failed over"):
            self.stop()
            if fault == "failed over":
                await asyncio.to_thread(self.start)
        else:
            async with Redis.from_url(self.url) as client:
                for command in FAULTS[fault].split(";"):
                    await client.execute_command(*command.split())


class RedisLine:
    """The commands of all Redis clients in a test: the server's response takes no virtual time.

    Attributes:
        url: the server's.
        cut: whether commands get no response.
        loses_reply: whether the server runs commands, and its replies are lost.
        sent: how many commands there were.
    """

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        from redis.asyncio import Redis

        self.url, self.cut, self.sent = url, False, 0
        self.loses_reply = False
        execute = Redis.execute_command

        async def execute_command(client: Any, *args: Any, **options: Any) -> Any:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualTimeLoop)
            self.sent += 1
            assert self.sent < 100_000, "a loop without an end, for which virtual time does not pass"
            if self.cut:
                await loop.create_future()
            loop.threads += 1
            try:
                reply = await execute(client, *args, **options)
            finally:
                loop.threads -= 1
            if self.loses_reply:
                await loop.create_future()
            return reply

        monkeypatch.setattr(Redis, "execute_command", execute_command)

    def bucket(self, account: str, **settings: Any) -> Any:
        """Return a bucket on the server whose clock is the loop's."""
        from asyncfin import RedisBucket

        return RedisBucket(self.url, **{"account": account, "microseconds": microseconds, **settings})


def file_bucket(path: str | Path, *settings: Any, **more: Any) -> Any:
    """Return a bucket whose clocks are the loop's."""
    from asyncfin import FileBucket

    return FileBucket(path, *settings, **{"clock": wall_clock, **more})


def microseconds() -> int:
    """Return the loop's time as that of a server."""
    return 1_700_000_000_000_000 + round(asyncio.get_running_loop().time() * 1e6)


def wall_clock() -> datetime:
    """Return the loop's time as that of a calendar."""
    return datetime.fromtimestamp(microseconds() / 1e6, UTC)


def loop_time() -> float:
    """Return the loop's time as a clock that processes share."""
    return asyncio.get_running_loop().time()


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as caller:
        return caller.connect_ex(str(path)) == 0


@contextmanager
def redis_server() -> Iterator[RedisServer]:
    """Run a Redis server; skip where it or its client is not installed."""
    pytest.importorskip("redis")
    if SERVER is None:
        pytest.skip("redis-server is not installed")
    # The path of a socket has at most 107 characters, which the temporary folders of a test can exceed.
    with TemporaryDirectory(prefix="redis-", dir="/tmp") as folder:
        server = RedisServer(Path(folder))
        try:
            server.start()
            yield server
        finally:
            server.stop()


@asynccontextmanager
async def distant(url: str, delay: float) -> AsyncIterator[str]:
    """Yield the URL of a proxy that delays what is sent to the server; the server takes no virtual time."""
    loop: Any = asyncio.get_running_loop()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop.threads += 1
        from_server, to_server = await asyncio.open_unix_connection(url.removeprefix("unix://"))
        loop.threads -= 1
        replied = asyncio.Event()

        async def reply() -> None:
            while data := await from_server.read(65_536):
                writer.write(data)
                replied.set()

        replying = asyncio.ensure_future(reply())
        try:
            while data := await reader.read(65_536):
                await asyncio.sleep(delay)
                loop.threads += 1
                replied.clear()
                to_server.write(data)
                await replied.wait()
                loop.threads -= 1
                await asyncio.to_thread(time.sleep, 0.002)  # for the reply to a second command
        finally:
            replying.cancel()
            to_server.close()
            writer.close()

    serving: set[asyncio.Task[None]] = set()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.ensure_future(serve(reader, writer)))

    async with await asyncio.start_server(begin, "127.0.0.1", 0) as listening:
        yield f"redis://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


def excess(grants: list[float], rate: float, burst: float) -> float:
    """Return by how much any stretch of time holds more grants than burst and rate allow."""
    times, worst, lowest = sorted(grants), 0.0, float("inf")
    for index, time_granted in enumerate(times):
        lowest = min(lowest, index - rate * time_granted)
        worst = max(worst, index + 1 - rate * time_granted - lowest - burst)
    return worst
