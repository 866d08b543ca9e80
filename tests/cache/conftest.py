"""A clock, a Redis of the tests' own, and caches of each kind."""

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

MakeCache = Callable[..., Any]


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


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let stores take a minute, in forked processes too: what is slow on a busy machine is no subject."""
    for module in ("base", "redis"):
        monkeypatch.setattr(f"asyncfin.cache.{module}.STORE_SECONDS", 60.0)
    monkeypatch.setattr("asyncfin.cache.file.EVICTION_SECONDS", 50.0)


@pytest.fixture(params=["memory", "file", "redis", "dict"])
async def make_cache(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock, patient: None
) -> AsyncIterator[MakeCache]:
    """What makes caches of each kind, with the test's clock; those with a store share it."""
    caches: list[Cache] = []
    rows: dict[str, bytes] = {}

    def make(**options: Any) -> Cache:
        options = {"clock": clock, **options}
        cache: Cache
        match request.param:
            case "redis":
                account = f"{tmp_path} {options.pop('account', '')}"
                cache = RedisCache(request.getfixturevalue("redis_url"), account=account, **options)
            case "dict":
                cache = DictCache(rows, **options)
            case "file":
                cache = FileCache(tmp_path / "cache", **options)
            case _:
                cache = MemoryCache(**options)
        caches.append(cache)
        return cache

    yield make
    for cache in caches:
        await cache.aclose()
