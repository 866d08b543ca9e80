"""A clock, and a Redis of the tests' own."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from attrs import frozen

from tests.cache.stored import AT
from tests.shared_buckets import redis_server


@frozen
class Clock:
    """A wall clock that a test sets."""

    times: list[datetime]

    def __call__(self) -> datetime:
        return self.times[-1]

    def step(self, seconds: float) -> None:
        self.times.append(self.times[-1] + timedelta(seconds=seconds))


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """The address of a real Redis of the tests' own."""
    with redis_server() as server:
        yield server.url


@pytest.fixture
def clock() -> Clock:
    return Clock([AT])
