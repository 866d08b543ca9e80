"""A real Redis server for all tests of the room; their states there differ by account."""

from collections.abc import Iterator

import pytest

from tests.shared_buckets import RedisLine, RedisServer, redis_server


@pytest.fixture(scope="session")
def server() -> Iterator[RedisServer]:
    with redis_server() as running:
        yield running


@pytest.fixture
def line(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> RedisLine:
    """Give the connection of a test to the server, which it can cut."""
    return RedisLine(server.url, monkeypatch)
