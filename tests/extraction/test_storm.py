"""An object store that refuses requests, loses responses, or resets connections."""

import asyncio
import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import obstore
import pytest

from asyncfin import Annual, ArgumentError, Client, ManifestMismatchError, Select, extract
from asyncfin.extraction import prefix
from asyncfin.sandbox import Sandbox
from tests.extraction.conftest import FIRST, IDS, annual, wait_for
from tests.extraction.s3 import BUCKET, S3, served
from tools.checks.storm import FailingProxy, failing, storm

TO = f"s3://{BUCKET}/night"


@pytest.fixture
def s3() -> Iterator[S3]:
    with served() as running:
        yield running


@pytest.fixture
def proxy(s3: S3) -> Iterator[FailingProxy]:
    with failing(s3) as running:
        yield running


def fail(proxy: FailingProxy, method: str, path: str, *ways: Any) -> None:
    """Fail the first requests of a method whose path contains a text."""
    left = list(ways)

    def choose(sent: str, to: str) -> Any:
        return left.pop(0) if left and sent == method and path in to else None

    proxy.choose = choose  # type: ignore[method-assign]


async def test_a_store_that_fails_half_of_its_requests_ends_in_equal_rows_or_one_error() -> None:
    """In every way: refusals, resets, lost and cut responses. `python -m tools.checks.storm` has ten runs."""
    failed, errors = await storm(1, 3, entities=3)
    assert failed
    assert len(errors) <= 1


@pytest.mark.parametrize("status", [409, 412])
async def test_a_write_without_a_condition_is_repeated_if_it_is_refused_for_one(
    s3: S3, proxy: FailingProxy, client: Client, status: int
) -> None:
    """Each object is written in the end, and no entity is read twice."""
    fail(proxy, "PUT", IDS[0], status, status)
    report = await extract(client, IDS, Select(), Annual(), to=TO)
    assert proxy.failed == {status: 2}
    assert [each.requests for each in report.done] == [2] * len(IDS)
    assert s3.rows("night") == annual(*FIRST)


async def test_a_write_that_is_always_refused_is_one_error_that_names_the_prefix(
    s3: S3, proxy: FailingProxy, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An OSError after a minute, which is shortened here; the next run continues."""
    monkeypatch.setattr(prefix, "RETRY_SECONDS", 0.3)
    fail(proxy, "PUT", ".parquet", *[409] * 100)
    with pytest.raises(OSError, match=r"409 Conflict.*s3://figures/night"):
        await extract(client, IDS, Select(), Annual(), to=TO)
    proxy.choose = lambda *_: None  # type: ignore[method-assign]
    await extract(client, IDS, Select(), Annual(), to=TO)
    assert s3.rows("night") == annual(*FIRST)


async def test_retries_are_bounded_by_their_time_alone(
    s3: S3, proxy: FailingProxy, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that fails thirty times in a row, which is less than a minute, fails no entity."""
    shortest = timedelta(seconds=0.01)
    monkeypatch.setitem(
        prefix.RETRY, "backoff", {"init_backoff": shortest, "max_backoff": shortest, "base": 2}
    )
    fail(proxy, "PUT", IDS[0], *[503] * 30)
    report = await extract(client, IDS[:1], Select(), Annual(), to=TO)
    assert proxy.failed == {503: 30}
    assert [each.requests for each in report.done] == [2]


@pytest.mark.parametrize("seed", range(20))
def test_refused_requests_are_repeated_for_a_minute(seed: int) -> None:
    """Whatever the waits are; each is at most five seconds."""
    random.seed(seed)
    waits = list[float]()
    for seconds in prefix.Retries().waits(lambda: sum(waits)):
        waits.append(seconds)
    assert sum(waits) == pytest.approx(60)
    assert max(waits) <= 5


async def test_a_store_that_fails_for_longer_than_its_own_client_retries_fails_no_entity(
    s3: S3, proxy: FailingProxy, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client of the store gives up early, and then the call is repeated."""
    monkeypatch.setitem(prefix.RETRY, "max_retries", 1)
    fail(proxy, "PUT", IDS[0], *[503, "reset", 500] * 2)
    report = await extract(client, IDS[:1], Select(), Annual(), to=TO)
    assert proxy.failed == {503: 2, "reset": 2, 500: 2}
    assert [each.requests for each in report.done] == [2]


@pytest.mark.parametrize("way", ["drop", "cancel"])
async def test_retries_end_soon_after_what_is_in_progress_is_dropped(
    s3: S3, proxy: FailingProxy, client: Client, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Those of all calls together: of files, of the outcome and of the lock, which becomes stale."""
    monkeypatch.setattr(prefix, "LAST_SECONDS", 0.2)
    monkeypatch.setitem(prefix.RETRY, "retry_timeout", timedelta(seconds=0.2))
    drop, is_away = asyncio.Event(), False

    def choose(_: str, path: str) -> int | None:
        return 503 if is_away or ".parquet" in path else None

    proxy.choose = choose  # type: ignore[method-assign]
    running = asyncio.ensure_future(extract(client, IDS, Select(), Annual(), to=TO, drop=drop))
    await wait_for(lambda: proxy.failed[503])
    is_away = True
    _ = drop.set() if way == "drop" else running.cancel()
    async with asyncio.timeout(30):
        await asyncio.wait([running])
    assert running.cancelled() if way == "cancel" else len(running.result().left) == len(IDS)
    proxy.choose = lambda *_: None  # type: ignore[method-assign]
    assert s3.names() == ["night.journal/lock"]


async def test_a_store_that_refuses_conditions_as_not_implemented_is_refused_at_once(
    proxy: FailingProxy, client: Client, sandbox: Sandbox
) -> None:
    """Without a retry: the next attempt would be refused too."""
    fail(proxy, "PUT", "lock", *[501] * 100)
    with pytest.raises(ArgumentError, match=r"no conditional writes.*lock=False \(--no-lock\)"):
        await extract(client, IDS, Select(), Annual(), to=TO)
    assert (proxy.failed, sandbox.log) == ({501: 1}, [])


@pytest.mark.parametrize(
    "ways", [("lost",), (409,), (412, "reset"), ("lost", "lost", 503), (500, 503, 502)], ids=str
)
async def test_a_lock_whose_response_is_lost_is_held(
    s3: S3, proxy: FailingProxy, client: Client, caplog: pytest.LogCaptureFixture, ways: Any
) -> None:
    """The object has this run's name, so the run does not wait five minutes for itself."""
    fail(proxy, "PUT", "lock", *ways)
    async with asyncio.timeout(60):
        await extract(client, IDS, Select(), Annual(), to=TO)
    assert "waiting for the lock" not in caplog.text
    assert s3.rows("night") == annual(*FIRST)
    assert "night.journal/lock" not in s3.names()


@pytest.mark.parametrize("content", [b"", b"PAR1", b"x" * 100_000])
async def test_an_object_that_is_not_an_extraction_s_file_is_named(
    s3: S3, client: Client, sandbox: Sandbox, content: bytes
) -> None:
    """Also an empty one; no request is spent."""
    obstore.put(s3.store, f"night/{IDS[0]}.parquet", content)
    with pytest.raises(ManifestMismatchError, match=rf"night/{IDS[0]}\.parquet is not an extraction's file"):
        await extract(client, IDS, Select(), Annual(), to=TO)
    assert sandbox.log == []


async def test_no_call_of_the_store_is_pending_when_a_run_has_ended(
    proxy: FailingProxy, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could still write. Nor is a call a coroutine: its thread may abort a process that ends."""
    fail(proxy, "PUT", ".parquet", *["slow"] * 6)
    begun, ended = list[str](), list[str]()
    for name in ("put", "get", "delete", "get_range"):
        call = getattr(obstore, name)

        def watched(*args: Any, call: Any = call, name: str = name, **options: Any) -> Any:
            begun.append(name)
            try:
                return call(*args, **options)
            finally:
                ended.append(name)

        monkeypatch.setattr(obstore, name, watched)
        monkeypatch.delattr(obstore, f"{name}_async")
    running = asyncio.ensure_future(extract(client, IDS, Select(), Annual(), to=TO))
    await wait_for(lambda: proxy.failed["slow"])
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sorted(begun) == sorted(ended) != []
