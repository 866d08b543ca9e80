"""A clock, and a Redis of the tests' own."""

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from asyncfin import Cache
from asyncfin.cache.file import FileCache
from asyncfin.cache.memory import MemoryCache
from asyncfin.cache.redis import RedisCache
from tests.cache.dict_store import DictCache
from tests.cache.stored import AT
from tests.shared_buckets import redis_server

MakeCache = Callable[..., Cache]


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


@pytest.fixture(params=["memory", "file", "redis", "dict"])
async def make_cache(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock
) -> AsyncIterator[MakeCache]:
    """What makes a cache of each kind, with the test's clock."""
    made: list[Cache] = []

    def make(**options: Any) -> Cache:
        if request.param == "redis":
            url = request.getfixturevalue("redis_url")
            accounts = {"account": f"{tmp_path} {len(made)}"}
            options.pop("max_bytes", None)
            made.append(RedisCache(url, **{"clock": clock, **accounts, **options}))
        elif request.param == "dict":
            made.append(DictCache(**{"clock": clock, **options}))
        elif request.param == "file":
            made.append(FileCache(tmp_path / f"cache{len(made)}", **{"clock": clock, **options}))
        else:
            made.append(MemoryCache(**{"clock": clock, **options}))
        return made[-1]

    yield make
    for cache in made:
        await cache.aclose()
