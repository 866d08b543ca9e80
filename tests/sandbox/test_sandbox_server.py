"""The running service over HTTP: its address, its store, what a test may do to it, and its end."""

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from asyncfin.sandbox import (
    Account,
    BrokenDatasetError,
    DatasetFile,
    PortInUseError,
    Publication,
    Sandbox,
    SandboxError,
)

from .conftest import ENTITY, FIRST, SECOND, Caller


async def test_sandbox_can_be_started_again(publication: Publication, session: aiohttp.ClientSession) -> None:
    """On this machine, with another port and token; once at a time; stopped, it shows how to start."""
    sandbox = Sandbox(publication)
    uses: list[Callable[[], object]] = [
        lambda: sandbox.base_url,
        lambda: sandbox.token,
        lambda: sandbox.entities,
        lambda: sandbox.publish(publication),
        lambda: sandbox.put_account(Account("other")),
        sandbox.issue_token,
    ]
    tokens = set()
    for _ in range(2):
        for use in uses:
            with pytest.raises(SandboxError, match=r"not running: .*await sandbox\.start"):
                use()
        async with sandbox:
            assert sandbox.base_url.startswith("http://127.0.0.1:")
            assert sandbox.entities == (ENTITY,)
            assert await Caller(session, sandbox).statuses(1) == [200]
            tokens.add(sandbox.token)
            with pytest.raises(SandboxError, match="once"):
                await sandbox.start()
        await sandbox.aclose()
    assert len(tokens) == 2


async def test_log_has_requests_without_token(sandbox: Sandbox, caller: Caller) -> None:
    """In order, with parameters."""
    await caller.get("/dataset/catalogue", limit="2")
    await caller.get("/nothing")
    assert [(operation, status) for operation, status, *_ in sandbox.log] == [("catalogue", 200), (None, 404)]
    assert sandbox.log[0].params == {"limit": "2"}
    assert sandbox.token not in repr(sandbox.log)
    assert sandbox.token not in repr(vars(sandbox._store))


async def test_the_openapi_document_needs_no_token(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """The OpenAPI document needs no token, and names this server and the five operations."""
    async with session.get(f"{sandbox.base_url}/openapi.json") as response:
        document = await response.json()
    assert document["openapi"].startswith("3.1")
    assert document["servers"] == [{"url": sandbox.base_url}]
    operations = {
        method["operationId"]
        for path in document["paths"].values()
        for method in path.values()
        if isinstance(method, dict)
    }
    assert operations == {"dataset", "catalogue", "query", "usage", "limits"}


async def test_publishing_takes_hold_at_once(sandbox: Sandbox, caller: Caller, later: Publication) -> None:
    """A publication, or a dataset file of which the last one counts; the same one again changes nothing."""
    sandbox.publish(DatasetFile(ENTITY, "Sample", (later, later)))
    sandbox.publish(later)
    _, body = await caller.get()
    assert json.loads(body)["dataset_id"] == SECOND
    assert (await caller.get("/dataset/catalogue", expected_dataset_id=FIRST))[0] == 409


async def test_a_file_store_remembers(
    tmp_path: Path, publication: Publication, session: aiohttp.ClientSession
) -> None:
    """Publications, tokens, accounts and counts outlast a restart; the token itself is not in the file."""
    store = tmp_path / "service.db"
    async with Sandbox(publication, store=store) as first:
        first.put_account(Account("other", allowance=2))
        token = first.issue_token("other")
        first.token = token
        assert await Caller(session, first).statuses(1) == [200]
    async with Sandbox(store=store) as second:
        assert second.entities == (ENTITY,)
        second.token = token
        assert await Caller(session, second).statuses(2) == [200, 429]
    files = await asyncio.to_thread(lambda: [file.read_bytes() for file in tmp_path.iterdir()])
    assert files
    assert not any(token.encode() in file for file in files)


async def test_broken_dataset_changes_nothing(tmp_path: Path, publication: Publication) -> None:
    """Of datasets, all are served or none."""
    store = tmp_path / "service.db"
    with pytest.raises(BrokenDatasetError):
        await Sandbox(publication, b"{}", store=store).start()
    async with Sandbox(store=store) as sandbox:
        assert sandbox.entities == ()
        with pytest.raises(BrokenDatasetError):
            sandbox.publish(b"{}")


async def test_port_in_use_is_an_error(sandbox: Sandbox, publication: Publication) -> None:
    """A port in use is one error that names the port and says what to do."""
    port = int(sandbox.base_url.rpartition(":")[2])
    with pytest.raises(PortInUseError, match=f"{port}.*another"):
        await Sandbox(publication, port=port).start()


async def test_locked_store_is_an_error(tmp_path: Path, publication: Publication) -> None:
    """The loop does not wait long for it, and when the lock is gone the sandbox starts."""
    store = tmp_path / "service.db"
    async with Sandbox(store=store) as sandbox:
        assert sandbox._store._db.execute("PRAGMA busy_timeout").fetchone()[0] <= 100
    with closing(sqlite3.connect(store, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SandboxError, match=r"service\.db.*locked"):
            await Sandbox(publication, store=store).start()
        other.execute("ROLLBACK")
    async with Sandbox(publication, store=store) as sandbox:
        assert sandbox.entities == (ENTITY,)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_sandbox_at_all_addresses_is_reached(
    publication: Publication, session: aiohttp.ClientSession, host: str
) -> None:
    """A client cannot connect to `http://0.0.0.0`."""
    try:
        async with Sandbox(publication, host=host) as sandbox:
            assert await Caller(session, sandbox).statuses(1) == [200]
            assert urlsplit(sandbox.base_url).hostname in ("127.0.0.1", "::1")
    except SandboxError as error:
        pytest.skip(f"no such address here: {error}")


async def test_public_url_is_shown_to_clients(
    publication: Publication, session: aiohttp.ClientSession
) -> None:
    """The base URL, the OpenAPI document and full permission identifiers have it."""
    async with Sandbox(publication) as sandbox:
        port = sandbox.base_url.rpartition(":")[2]
    async with Sandbox(publication, port=int(port), public_url="https://service.example/") as sandbox:
        assert sandbox.base_url == "https://service.example"
        async with session.get(f"http://127.0.0.1:{port}/openapi.json") as response:
            assert (await response.json())["servers"] == [{"url": "https://service.example"}]


@pytest.mark.virtual
async def test_rate_goes_by_clock_of_loop(publication: Publication, session: aiohttp.ClientSession) -> None:
    """So it passes in virtual time."""
    async with Sandbox(publication, rate=0.01, burst=2) as sandbox:
        caller = Caller(session, sandbox)
        assert await caller.statuses(3) == [200, 200, 429]
        await asyncio.sleep(101)
        assert await caller.statuses(2) == [200, 429]


async def test_allowance_goes_by_given_clock(
    publication: Publication, session: aiohttp.ClientSession
) -> None:
    """The allowance and the Date header go by the given clock."""
    now = datetime(2026, 5, 4, 23, 59, 50, tzinfo=UTC)
    async with Sandbox(publication, allowance=1, clock=lambda: now) as sandbox:
        url = f"{sandbox.base_url}/v1/entities/{ENTITY}/dataset"
        for status, wait in ((200, None), (429, "10")):
            async with session.get(url, headers={"Authorization": f"Bearer {sandbox.token}"}) as response:
                assert (response.status, response.headers.get("Retry-After")) == (status, wait)
                assert response.headers["Date"] == "Mon, 04 May 2026 23:59:50 GMT"
