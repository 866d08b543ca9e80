"""The running service over HTTP: its address, its store, what a test may do to it, and its end."""

import asyncio
import json
import math
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from attrs import evolve

from asyncfin.sandbox import (
    Account,
    BrokenDatasetError,
    DatasetFile,
    Drop,
    Fault,
    Hang,
    Latency,
    PortInUseError,
    Publication,
    Sandbox,
    SandboxError,
    Slow,
    Status,
    Switch,
    Truncate,
)
from asyncfin.sandbox.generate import generate

from .conftest import COMPANY, ENTITY, FIRST, SECOND


class Caller:
    """Asks a sandbox over HTTP."""

    def __init__(self, session: aiohttp.ClientSession, sandbox: Sandbox) -> None:
        self.session, self.sandbox = session, sandbox

    async def get(self, path: str = "/dataset", **params: str) -> tuple[int, bytes]:
        url = f"{self.sandbox.base_url}/v1/entities/{ENTITY}{path}"
        headers = {"Authorization": f"Bearer {self.sandbox.token}"}
        async with self.session.get(url, params=params, headers=headers) as response:
            return response.status, await response.read()

    async def post(self) -> None:
        """Any POST: aiohttp would send a dropped GET again."""
        async with self.session.post(f"{self.sandbox.base_url}/v1/limits") as response:
            await response.read()

    async def statuses(self, count: int, path: str = "/dataset") -> list[int]:
        return [(await self.get(path))[0] for _ in range(count)]


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout()) as session:
        yield session


@pytest.fixture
async def sandbox(publication: Publication) -> AsyncIterator[Sandbox]:
    async with Sandbox(publication) as sandbox:
        yield sandbox


@pytest.fixture
def caller(session: aiohttp.ClientSession, sandbox: Sandbox) -> Caller:
    return Caller(session, sandbox)


@pytest.mark.parametrize(
    "use",
    [
        lambda sandbox: sandbox.base_url,
        lambda sandbox: sandbox.token,
        lambda sandbox: setattr(sandbox, "token", "another"),
        lambda sandbox: sandbox.entities,
        lambda sandbox: sandbox.publish(generate(1, series=1)),
        lambda sandbox: sandbox.put_account(Account("other")),
        lambda sandbox: sandbox.issue_token(),
    ],
    ids=["base_url", "token", "another token", "entities", "publish", "put_account", "issue_token"],
)
async def test_a_sandbox_that_is_not_running_says_how_to_start_it(use: Callable[[Sandbox], Any]) -> None:
    """There is nothing to connect to yet, or any longer."""
    sandbox = Sandbox()
    for again in (False, True):
        with pytest.raises(SandboxError, match=r"is not running: `async with` it, or `await sandbox.start"):
            use(sandbox)
        if not again:
            async with sandbox:
                assert sandbox.base_url


async def test_a_sandbox_can_be_started_again(
    publication: Publication, session: aiohttp.ClientSession
) -> None:
    """At another port, with another token."""
    sandbox = Sandbox(publication)
    for _ in range(2):
        async with sandbox:
            assert await Caller(session, sandbox).statuses(1) == [200]


async def test_a_sandbox_shows_where_it_listens() -> None:
    """And no token; before and after, that it does not run."""
    sandbox = Sandbox()
    assert repr(sandbox) == "<Sandbox, not running>"
    async with sandbox:
        assert repr(sandbox) == f"<Sandbox at {sandbox.base_url}>"
    assert repr(sandbox) == "<Sandbox, not running>"


async def test_it_serves_at_its_base_url(sandbox: Sandbox, caller: Caller) -> None:
    """On this machine only, with the headers of JSON."""
    assert sandbox.base_url.startswith("http://127.0.0.1:")
    assert sandbox.entities == (ENTITY,)
    status, body = await caller.get()
    assert (status, json.loads(body)["dataset_id"]) == (200, FIRST)


async def test_a_query_goes_through_http(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """Body and content type arrive as they were sent."""
    url = f"{sandbox.base_url}/v1/entities/{ENTITY}/dataset/query"
    query = {
        "metric_ids": ["sales"],
        "scope_combinations": [COMPANY],
        "periods": {"mode": "trailing", "months": 1},
    }
    headers = {"Authorization": f"Bearer {sandbox.token}"}
    async with session.post(url, json=query, headers=headers) as response:
        assert response.content_type == "application/json"
        assert (await response.json())["series"][0]["series_id"] == "A-sales"
    served = sandbox.log[-1]
    assert (served.operation, served.status, served.body, served.account) == ("query", 200, query, "sandbox")


async def test_a_cursor_survives_the_url(sandbox: Sandbox, caller: Caller) -> None:
    """Cursors need percent-encoding, and come out as they went in."""
    firsts = [await caller.get("/dataset/catalogue", limit=limit) for limit in "1234"]
    cursors = [json.loads(body)["next_cursor"] for _, body in firsts]
    assert set("/=") <= set("".join(cursors))
    answers = [await caller.get("/dataset/catalogue", cursor=cursor) for cursor in cursors]
    assert [status for status, _ in answers] == [200] * 4
    assert [entry.params["cursor"] for entry in sandbox.log[4:]] == cursors


async def test_the_log_tells_what_was_asked_and_never_the_token(sandbox: Sandbox, caller: Caller) -> None:
    """In order, with parameters."""
    await caller.get("/dataset/catalogue", limit="2")
    await caller.get("/nothing")
    assert [(operation, status) for operation, status, *_ in sandbox.log] == [("catalogue", 200), (None, 404)]
    assert sandbox.log[0].params == {"limit": "2"}
    assert sandbox.token not in repr(sandbox.log)
    assert sandbox.token not in repr(vars(sandbox._store))


async def test_a_body_that_is_no_json_is_logged_as_it_came(
    sandbox: Sandbox, session: aiohttp.ClientSession
) -> None:
    """The log is of requests, right or wrong."""
    async with session.post(f"{sandbox.base_url}/v1/entities/{ENTITY}/dataset/query", data=b"{"):
        assert sandbox.log[-1].body == b"{"


async def test_a_body_over_a_megabyte_is_refused_in_json(
    sandbox: Sandbox, session: aiohttp.ClientSession
) -> None:
    """With an error object, as everything else."""
    url = f"{sandbox.base_url}/v1/entities/{ENTITY}/dataset/query"
    async with session.post(url, data=BytesIO(b" " * 1_100_000)) as response:
        assert response.status == 413
        assert (await response.json())["error"]["code"] == "request_too_large"


async def test_the_openapi_document_needs_no_token(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """It names this server and the five operations."""
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


async def test_a_broken_dataset_changes_nothing(sandbox: Sandbox, caller: Caller) -> None:
    """It is read and checked before anything is put in its place."""
    with pytest.raises(BrokenDatasetError):
        sandbox.publish(b"{}")
    assert json.loads((await caller.get())[1])["dataset_id"] == FIRST


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


async def test_a_store_of_something_else_is_one_clear_error(tmp_path: Path) -> None:
    """It names the file and says what to do."""
    store = tmp_path / "notes.txt"
    await asyncio.to_thread(store.write_text, "not a database, and longer than the header of one " * 20)
    with pytest.raises(SandboxError, match=r"notes\.txt.*new file"):
        await Sandbox(store=store).start()


async def test_a_port_in_use_is_one_clear_error(sandbox: Sandbox, publication: Publication) -> None:
    """It names the port and says what to do."""
    port = int(sandbox.base_url.rpartition(":")[2])
    with pytest.raises(PortInUseError, match=f"{port}.*another"):
        await Sandbox(publication, port=port).start()


async def test_a_foreign_address_is_one_clear_error() -> None:
    """Nothing of this machine has it."""
    with pytest.raises(SandboxError, match=r"192\.0\.2\.1.*choose"):
        await Sandbox(host="192.0.2.1").start()


@pytest.mark.parametrize("wrong", [{"port": 70_000}, {"port": -1}, {"host": "a" * 70}, {"host": "a..b"}])
async def test_an_address_that_cannot_be_is_one_clear_error(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """And the store is free again for the next try."""
    store = tmp_path / "service.db"
    with pytest.raises(SandboxError, match=f"{next(iter(wrong.values()))}.*choose"):
        await Sandbox(store=store, **wrong).start()
    async with Sandbox(store=store) as sandbox:
        assert sandbox.base_url


async def test_a_store_that_another_program_holds_is_one_clear_error(
    tmp_path: Path, publication: Publication
) -> None:
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


async def test_a_token_needs_an_account(sandbox: Sandbox) -> None:
    """The error names the account."""
    with pytest.raises(SandboxError, match="nobody"):
        sandbox.issue_token("nobody")


async def test_a_single_permission_may_be_given_as_text(sandbox: Sandbox, caller: Caller) -> None:
    """By its short name, or with the base URL before it; other endpoints are closed to such a token."""
    for permission in ("datasets:read", f"{sandbox.base_url}/datasets:read", "usage:read"):
        sandbox.token = sandbox.issue_token(permissions=permission)
        await caller.get()
    assert [entry.status for entry in sandbox.log] == [200, 200, 403]


async def test_starting_twice_is_refused_and_closing_twice_is_not(sandbox: Sandbox) -> None:
    """One sandbox has one socket."""
    with pytest.raises(SandboxError, match="once"):
        await sandbox.start()
    await sandbox.aclose()
    await sandbox.aclose()


async def test_the_allowance_goes_by_the_given_clock(
    publication: Publication, session: aiohttp.ClientSession
) -> None:
    """So does the Date header."""
    now = datetime(2026, 5, 4, 23, 59, 50, tzinfo=UTC)
    async with Sandbox(publication, allowance=1, clock=lambda: now) as sandbox:
        url = f"{sandbox.base_url}/v1/entities/{ENTITY}/dataset"
        for status, wait in ((200, None), (429, "10")):
            async with session.get(url, headers={"Authorization": f"Bearer {sandbox.token}"}) as response:
                assert (response.status, response.headers.get("Retry-After")) == (status, wait)
                assert response.headers["Date"] == "Mon, 04 May 2026 23:59:50 GMT"


@pytest.mark.virtual
async def test_the_rate_goes_by_the_clock_of_the_loop(
    publication: Publication, session: aiohttp.ClientSession
) -> None:
    """So it passes in virtual time."""
    async with Sandbox(publication, rate=0.01, burst=2) as sandbox:
        caller = Caller(session, sandbox)
        assert await caller.statuses(3) == [200, 200, 429]
        await asyncio.sleep(101)
        assert await caller.statuses(2) == [200, 429]


@pytest.mark.virtual
async def test_latency_and_slow_bodies_take_virtual_time(sandbox: Sandbox, caller: Caller) -> None:
    """The answer is right all the same."""
    started = asyncio.get_running_loop().time()
    sandbox.inject(Latency(seconds=1000), Slow(seconds=500))
    assert (await caller.get())[0] == 200
    assert 1500 <= asyncio.get_running_loop().time() - started < 1501


async def test_a_status_replaces_the_nth_answer(sandbox: Sandbox, caller: Caller) -> None:
    """Counted by operation, or over all; it does not count against the allowance."""
    sandbox.inject(Status(status=503, operation="catalogue", nth=2), Status(status=500, nth=[5, 6]))
    assert await caller.statuses(1) == [200]
    assert await caller.statuses(3, "/dataset/catalogue") == [200, 503, 200]
    assert await caller.statuses(3) == [500, 500, 200]
    assert sum(entry.status == 200 for entry in sandbox.log) == 4
    assert sandbox._store.requests("sandbox", datetime.now(UTC).date()) == 4


async def test_a_429_can_be_had_with_any_retry_after(sandbox: Sandbox, caller: Caller) -> None:
    """Seconds or a date, and a code."""
    sandbox.inject(Status(status=429, retry_after=7, code="busy"))
    headers = {"Authorization": f"Bearer {sandbox.token}"}
    async with caller.session.get(f"{sandbox.base_url}/v1/limits", headers=headers) as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "7")
        assert (await response.json())["error"]["code"] == "busy"
    sandbox.clear_faults()
    assert await caller.statuses(1) == [200]


@pytest.mark.parametrize("limited", [True, False])
async def test_a_status_brings_nothing_of_the_answer_it_replaces(
    sandbox: Sandbox, session: aiohttp.ClientSession, limited: bool
) -> None:
    """No wait of a 429 and no challenge of a 401: a client would go by them."""
    sandbox.put_account(Account("sandbox", allowance=0))
    sandbox.inject(Status(status=503))
    url = f"{sandbox.base_url}/v1/entities/{ENTITY}/dataset"
    headers = {"Authorization": f"Bearer {sandbox.token if limited else 'wrong'}"}
    async with session.get(url, headers=headers) as response:
        assert (response.status, response.content_type) == (503, "application/json")
        assert set(response.headers) == {"Content-Type", "Content-Length", "Date", "Server"}


async def test_a_body_can_be_anything(sandbox: Sandbox, caller: Caller) -> None:
    """As from a proxy in between."""
    sandbox.inject(Status(status=200, body=b"<html>"))
    assert await caller.get() == (200, b"<html>")


async def test_a_share_of_all_requests_meets_a_fault_by_its_seed(sandbox: Sandbox, caller: Caller) -> None:
    """The same requests for the same seed."""
    runs = []
    for seed in (1, 1, 2):
        sandbox.clear_faults()
        sandbox.inject(Status(status=500, share=0.5, seed=seed))
        runs.append(await caller.statuses(40))
    assert runs[0] == runs[1] != runs[2]
    assert 10 < runs[0].count(500) < 30


async def test_a_publication_can_be_switched_at_a_request(
    sandbox: Sandbox, caller: Caller, later: Publication
) -> None:
    """The nth request is the first to see it."""
    sandbox.inject(Switch(publication=later, operation="catalogue", nth=2))
    got = [json.loads((await caller.get("/dataset/catalogue"))[1])["dataset_id"] for _ in range(3)]
    assert got == [FIRST, SECOND, SECOND]


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Drop(), aiohttp.ServerDisconnectedError),
        (Drop(after=0), aiohttp.ClientError),
        (Drop(after=0.5), aiohttp.ClientError),
        (Truncate(after=0.5), aiohttp.ClientPayloadError),
    ],
)
async def test_a_connection_can_end_before_or_within_the_body(
    sandbox: Sandbox, caller: Caller, fault: Fault, error: type[Exception]
) -> None:
    """The request was answered all the same, and stands in the log."""
    sandbox.inject(evolve(fault, nth=1))
    with pytest.raises(error):
        await caller.post()
    assert [(entry.status, entry.faults) for entry in sandbox.log] == [(405, (type(fault).__name__,))]
    assert await caller.statuses(1) == [200]


@pytest.mark.parametrize("fault", [Hang(), Latency(seconds=1e6), Slow(seconds=1e6)])
async def test_closing_cuts_off_whoever_waits(
    publication: Publication, session: aiohttp.ClientSession, fault: Fault
) -> None:
    """And leaves nothing of it."""
    before = asyncio.all_tasks()
    sandbox = Sandbox(publication, faults=[fault])
    await sandbox.start()
    waiting = asyncio.create_task(Caller(session, sandbox).get())
    while not sandbox._armed[0]._seen:  # noqa: ASYNC110
        await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await sandbox.aclose()
        await asyncio.wait([waiting])
    assert isinstance(waiting.exception(), aiohttp.ClientError)
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (Hang, {"operation": "querys"}),
        *((Hang, {"share": share}) for share in (2, -0.1, math.nan, None, "0.5", True)),
        *((Hang, {"nth": nth}) for nth in (0, -1, [], [1, 0], "12", 1.5, [1.5], True, {"first"})),
        *((Drop, {"after": after}) for after in (1.1, -1, "0.5")),
        *((Truncate, {"after": after}) for after in (None, 2, "0.5")),
        *((Status, {"status": status}) for status in (0, 99, 199, 600, None, "503", 503.0, True)),
        *((Latency, {"seconds": seconds}) for seconds in (-1, None, math.nan)),
        *((Slow, {"seconds": seconds}) for seconds in (0, None)),
    ],
)
def test_a_wrong_fault_is_refused_when_it_is_made(kind: type[Fault], wrong: dict[str, Any]) -> None:
    """By field, value and what would be right: one that meets nothing would make a test pass for nothing."""
    ((name, value),) = wrong.items()
    with pytest.raises((ValueError, TypeError)) as caught:
        kind(**wrong)
    said = str(caught.value.args[0])
    assert name in said
    assert repr(value) in said
    assert "must be" in said


def test_the_requests_that_a_fault_meets_may_be_one_or_several() -> None:
    """In any collection, in any order."""
    faults = [Hang(nth=nth) for nth in (2, [2], (2, 2), {2}, range(2, 3), iter([2]))]
    assert all(fault == faults[0] for fault in faults)
    assert Hang(nth=[3, 1]) == Hang(nth=(1, 3))


async def test_the_demo_has_entities_and_figures(session: aiohttp.ClientSession) -> None:
    """Every entity answers."""
    async with Sandbox.demo() as sandbox:
        assert sandbox.entities
        for entity_id in sandbox.entities:
            url = f"{sandbox.base_url}/v1/entities/{entity_id}/dataset/catalogue"
            async with session.get(url, headers={"Authorization": f"Bearer {sandbox.token}"}) as response:
                assert len((await response.json())["groups"][0]["series"]) == 25
