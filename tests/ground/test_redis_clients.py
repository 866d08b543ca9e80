"""Redis clients and the time that a server may take, against real servers and on virtual time."""

import asyncio

import pytest

from asyncfin import ArgumentError
from asyncfin.redis import RedisClients
from asyncfin.tasks import unless_silent
from tests.conftest import VirtualTimeLoop
from tests.shared_buckets import redis_server


@pytest.mark.virtual
async def test_silent_server_is_detected() -> None:
    """Half a second of silence on an idle loop is half a second, and the error says how long it was."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(TimeoutError, match=r"no response within 0\.5 s$"):
        async with unless_silent(0.5):
            await asyncio.sleep(60)
    assert loop.time() - began == pytest.approx(0.5, abs=1e-3)


@pytest.mark.virtual
@pytest.mark.parametrize(("blocks", "passes"), [(1, True), (3, True), (9, False)])
async def test_blocked_loop_is_no_silence(blocks: int, passes: bool) -> None:
    """A response that follows up to three blocked waits is received; then the error names the busy loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)

    async def respond() -> str:
        for _ in range(blocks):
            loop.now += 0.7  # what a computation on the loop does to its clock
            await asyncio.sleep(0)
        await asyncio.sleep(0.1)
        return "response"

    if passes:
        async with unless_silent(0.5):
            assert await respond() == "response"
    else:
        with pytest.raises(TimeoutError, match="the event loop was busy"):
            async with unless_silent(0.5):
                await respond()


@pytest.mark.virtual
async def test_cancellation_of_caller_is_not_timeout() -> None:
    """A task that is cancelled in the block ends as cancelled."""

    async def wait() -> None:
        async with unless_silent(0.5):
            await asyncio.sleep(60)

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


def test_each_loop_has_one_client() -> None:
    """Two loops in turn have a client each, and the first one's connections are closed."""
    with redis_server() as server:
        clients = RedisClients(server.url)

        async def use() -> object:
            first, second = await asyncio.gather(clients.get(), clients.get())
            assert first is second
            assert await first.ping()
            return first

        one, other = asyncio.run(use()), asyncio.run(use())
        assert one is not other

        async def count() -> int:
            return int((await (await clients.get()).info("clients"))["connected_clients"])

        assert asyncio.run(count()) == 1


@pytest.mark.parametrize(
    "redis", [5, None, "user:secret@host", "http://user:secret@host", "redis://host/0?pasword=secret"]
)
def test_other_server_is_rejected(redis: object) -> None:
    """A URL may contain a password, so an error never repeats it."""
    pytest.importorskip("redis")
    with pytest.raises(ArgumentError, match="redis must be a URL") as caught:
        RedisClients(redis)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://user:secret@127.0.0.1:1/0?password=secret", "redis://127.0.0.1:1/0"),
        ("redis://user:12345?secret@127.0.0.1:1/0", "redis://"),
    ],
)
def test_an_address_shows_no_password(url: str, address: str) -> None:
    """Neither one in front of the host, whatever it contains, nor one among the parameters."""
    pytest.importorskip("redis")
    assert RedisClients(url).address == address
