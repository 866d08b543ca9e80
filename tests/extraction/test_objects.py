"""Extractions into an object store: moto's server replaces S3."""

import asyncio
import json
import logging
import os
import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore
import pytest

from asyncfin import (
    Annual,
    ArgumentError,
    Client,
    ManifestMismatchError,
    Quarterly,
    RunInProgressError,
    Select,
    extract,
    extract_cost,
)
from asyncfin.extraction import prefix
from asyncfin.sandbox import Hang, Latency, Sandbox
from tests.extraction.conftest import FIRST, IDS, UNKNOWN_ID, annual, names, rows, wait_for
from tests.extraction.s3 import BUCKET, S3, served

TO = f"s3://{BUCKET}/night"
# What every run leaves behind that has held the lock.
JOURNAL = [f"_night.journal/{name}" for name in ("confirmed.json", "last.json", "runs.jsonl")]


def set_seconds(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    """Set how often a lock is renewed, and when it is stale."""
    for name, value in seconds.items():
        for module in (prefix, sys.modules["asyncfin.extraction.extract"]):
            monkeypatch.setattr(module, name, value)


@pytest.fixture
def s3() -> Iterator[S3]:
    with served() as running:
        yield running


async def test_objects_equal_files_of_folder(s3: S3, client: Client, folder: Path) -> None:
    """Under the same names, with the same rows, and nothing else is left in the bucket."""
    local = await extract(client, IDS, Select(), Annual(), to=folder)
    report = await extract(client, IDS, Select(), Annual(), to=TO)
    assert s3.rows("night") == rows(folder) == annual(*FIRST)
    assert s3.names() == [*JOURNAL, *(f"night/{name}" for name in names(folder))]
    assert (report.rows, report.bytes) == (local.rows, local.bytes)


@pytest.mark.parametrize("key", ["night/mine.parquet", f"night/deep/{IDS[0]}.parquet"])
async def test_key_not_ours_refused(s3: S3, client: Client, sandbox: Sandbox, key: str) -> None:
    """Readers would take it for part of the table; a file of another kind does not matter."""
    obstore.put(s3.store, "night/_SUCCESS", b"")
    obstore.put(s3.store, key, b"PAR1")
    for ask in (extract, extract_cost):
        with pytest.raises(ManifestMismatchError, match=f"{key} is not an extraction's file.*remove it"):
            await ask(client, IDS, Select(), Annual(), to=TO)
    obstore.delete(s3.store, key)
    assert sandbox.log == []
    assert len((await extract(client, IDS, Select(), Annual(), to=TO)).done) == len(IDS)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks are renewed at once; on a busy machine too, none becomes stale between two renewals."""
    set_seconds(monkeypatch, RENEW_SECONDS=0.05, STALE_SECONDS=10.0)


async def test_second_driver_refused_while_first_work(
    s3: S3, client: Client, sandbox: Sandbox, quick: None
) -> None:
    """A second driver sees the lock renewed and is refused; after the first has ended it is let in."""
    sandbox.inject(Hang(operation="query", nth=1))
    first = asyncio.ensure_future(extract(client, IDS, Select(), Annual(), to=TO))
    await wait_for(lambda: "query" in {served.operation for served in sandbox.log})
    held = json.loads(bytes(obstore.get(s3.store, "_night.journal/lock").bytes()))
    assert held.keys() >= {"owner", "host", "pid", "began", "renewed"}
    assert held["pid"] == os.getpid()
    with pytest.raises(RunInProgressError, match="another run is at work on s3://figures/night"):
        await extract(client, IDS, Select(), Annual(), to=TO)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert "_night.journal/lock" not in s3.names()
    await extract(client, IDS, Select(), Annual(), to=TO)
    assert s3.rows("night") == annual(*FIRST)


async def test_lock_not_renewed_taken_over(
    s3: S3, client: Client, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock of a killed driver is taken over without comparing the clocks of two machines."""
    # Two seconds of real time: the server of the objects runs in another thread, so the clock is real.
    set_seconds(monkeypatch, STALE_SECONDS=2.0)
    obstore.put(s3.store, "_night.journal/lock", b"of a driver that was killed")
    await extract(client, IDS, Select(), Annual(), to=TO)
    assert s3.rows("night") == annual(*FIRST)


async def test_stop_ends_wait_for_lock(
    s3: S3, client: Client, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    """All entities are left, nothing is deleted, and the lock stays whose it is."""
    await extract(client, IDS[:1], Select(), Quarterly(), to=TO)
    obstore.put(s3.store, "_night.journal/lock", b"of a driver that was killed")
    before, spent, stop = s3.everything(), len(sandbox.log), asyncio.Event()
    asked: dict[str, Any] = {"to": TO, "replace": True, "stop": stop}
    running = asyncio.ensure_future(extract(client, IDS, Select(), Annual(), **asked))
    await wait_for(lambda: "waiting for the lock of s3://figures/night, at most 5 min 0 s" in caplog.text)
    stop.set()
    report = await asyncio.wait_for(running, 30)
    assert (len(report.left), report.stopped) == (len(IDS), None)
    assert (s3.everything(), len(sandbox.log)) == (before, spent)


async def test_driver_without_lock_deletes_nothing(
    s3: S3, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects of another question would be those of the run that has taken over."""
    await extract(client, IDS, Select(), Quarterly(), to=TO)
    before = s3.everything()
    set_seconds(monkeypatch, STALE_SECONDS=prefix.RENEW_SECONDS)
    with pytest.raises(RunInProgressError, match="may have"):
        await extract(client, IDS, Select(), Annual(), to=TO, replace=True)
    assert s3.everything() == before


async def test_driver_lost_lock_writes_nothing_more(
    s3: S3, client: Client, sandbox: Sandbox, quick: None
) -> None:
    """Another one wrote the lock while this one hung; that is seen at the next renewal."""
    # Two seconds of real time: the server of the objects runs in another thread, so the clock is real.
    sandbox.inject(Latency(operation="query", nth=1, seconds=2))
    running = asyncio.ensure_future(extract(client, IDS[:1], Select(), Annual(), to=TO))
    await wait_for(lambda: "catalogue" in {served.operation for served in sandbox.log})
    obstore.put(s3.store, "_night.journal/lock", b"another's")
    await wait_for(lambda: bytes(obstore.get(s3.store, "_night.journal/lock").bytes()) == b"another's")
    with pytest.raises(RunInProgressError, match="another run has taken over s3://figures/night"):
        await running
    assert f"night/{IDS[0]}.parquet" not in s3.names()


async def test_lock_another_run_left_alone(s3: S3, client: Client, sandbox: Sandbox) -> None:
    """Another run has replaced the lock since it was last renewed, and this one ends."""
    sandbox.inject(Hang(operation="query", nth=1))
    running = asyncio.ensure_future(extract(client, IDS[:1], Select(), Annual(), to=TO))
    await wait_for(lambda: "catalogue" in {served.operation for served in sandbox.log})
    obstore.put(s3.store, "_night.journal/lock", b"another's")
    running.cancel()
    await asyncio.wait([running])
    assert bytes(obstore.get(s3.store, "_night.journal/lock").bytes()) == b"another's"


async def test_cancelled_run_takes_lock_away(s3: S3, client: Client, sandbox: Sandbox) -> None:
    """However often it is cancelled: the next one need not wait for minutes."""
    sandbox.inject(Hang(operation="query", nth=1))
    running = asyncio.ensure_future(extract(client, IDS[:1], Select(), Annual(), to=TO))
    await wait_for(lambda: "catalogue" in {served.operation for served in sandbox.log})
    assert s3.names() == ["_night.journal/lock"]
    while not running.done():
        running.cancel()
        await asyncio.sleep(0)
    assert s3.names() == JOURNAL


async def test_store_without_conditional_writes_needs_leave(
    s3: S3, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing could keep two drivers apart there: lock=False says that there is one."""
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    with pytest.raises(ArgumentError, match=r"no conditional writes.*lock=False"):
        await extract(client, IDS, Select(), Annual(), to=TO)
    await extract(client, IDS, Select(), Annual(), to=TO, lock=False)
    assert s3.rows("night") == annual(*FIRST)


async def test_missing_bucket_clear_error(s3: S3, client: Client, sandbox: Sandbox) -> None:
    """Before a request is sent."""
    for ask in (extract, extract_cost):
        with pytest.raises(FileNotFoundError, match=r"no such bucket.*s3://elsewhere/night"):
            await ask(client, IDS, Select(), Annual(), to="s3://elsewhere/night")
    assert sandbox.log == []


async def test_store_away_clear_error(
    s3: S3, client: Client, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is away is one error that names the place and says why in one line."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setitem(prefix._RETRY, "max_retries", 1)
    with pytest.raises(OSError, match=r"the store failed.*s3://figures/night") as raised:
        await extract(client, IDS, Select(), Annual(), to=TO)
    assert "\n" not in str(raised.value)
    assert sandbox.log == []


async def test_wrong_credentials_are_one_clear_error(
    s3: S3, client: Client, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them is shown."""
    from moto.core import models

    monkeypatch.setattr(models, "INITIAL_NO_AUTH_ACTION_COUNT", 0, raising=False)
    from moto import settings

    monkeypatch.setattr(settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0.0)
    from moto.core.responses import ActionAuthenticatorMixin

    monkeypatch.setattr(ActionAuthenticatorMixin, "request_count", 0)
    with pytest.raises(PermissionError, match=r"rejects these credentials.*s3://figures/night") as raised:
        await extract(client, IDS, Select(), Annual(), to=TO)
    assert "test-secret" not in str(raised.value)
    assert sandbox.log == []


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("s3://figures", "not a prefix of a bucket"),
        ("s3://figures/a//b", "not a prefix of a bucket"),
        ("s3://figures/a/../b", "not a prefix of a bucket"),
        ("s3://key:hunter2@figures/night", "must not hold a user, a password"),
        ("s3://key:hunter2@\u2100figures/night", "must not hold a user, a password"),
        ("s3://figures/night?signature=hunter2", "must not hold a user, a password"),
        ("gs:/figures/night", "is not an address"),
    ],
)
async def test_wrong_address_refused_shows_no_secret(
    client: Client, sandbox: Sandbox, to: str, said: str
) -> None:
    """Before anything is asked."""
    for ask in (extract, extract_cost):
        with pytest.raises(ArgumentError, match=f"to: .*{said}") as raised:
            await ask(client, IDS, Select(), Annual(), to=to)
        assert "hunter2" not in str(raised.value)
    assert sandbox.log == []


async def test_token_no_object_no_log(
    s3: S3, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the token nor the store's secret is in a key, in metadata, in a file or in a log."""
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("ASYNCFIN_BASE_URL", sandbox.base_url)
    monkeypatch.setenv("ASYNCFIN_TOKEN", sandbox.token)
    with ThreadPoolExecutor(2) as executor:
        asked: dict[str, Any] = {"to": TO, "executor": executor, "chunk": 2}
        report = await extract(Client.from_env, (*IDS, UNKNOWN_ID), Select(), Annual(), **asked)
    found = s3.everything() + caplog.text.encode() + repr(report).encode() + pickle.dumps(report)
    for secret in (sandbox.token, "test-secret"):
        assert secret.encode() not in found
    assert found.count(IDS[0].encode()) > 2


async def test_address_is_taken_literally(s3: S3, client: Client, sandbox: Sandbox) -> None:
    """A key with %20 in it is not one with a space."""
    await extract(client, IDS[:1], Select(), Annual(), to=f"s3://{BUCKET}/a%20b")
    assert f"a%20b/{IDS[0]}.parquet" in s3.names()
    assert "_a%20b.journal/last.json" in s3.names()
    report = await extract(client, IDS[:1], Select(), Annual(), to=f"s3://{BUCKET}/a%20b")
    assert len(report.unchanged) == 1
