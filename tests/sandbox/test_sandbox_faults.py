"""Faults on demand: what goes wrong, at which requests, and which faults are refused."""

import asyncio
import json
import math
from datetime import UTC, datetime
from typing import Any

import aiohttp
import pytest
from attrs import evolve

from asyncfin.sandbox import Drop, Fault, Hang, Latency, Publication, Sandbox, Slow, Status, Switch, Truncate

from .conftest import FIRST, SECOND, Caller


@pytest.mark.virtual
async def test_latency_takes_virtual_time(sandbox: Sandbox, caller: Caller) -> None:
    """The answer is still right."""
    started = asyncio.get_running_loop().time()
    sandbox.inject(Latency(seconds=1000), Slow(seconds=500))
    assert (await caller.get())[0] == 200
    assert 1500 <= asyncio.get_running_loop().time() - started < 1501


async def test_a_status_replaces_the_nth_answer(sandbox: Sandbox, caller: Caller) -> None:
    """Counted by operation, or over all; it does not count against the allowance."""
    sandbox.inject(
        Status(status=503, operation="catalogue", nth=2),
        Status(status=500, nth=[5, 6]),
        Status(status=429, nth=8, retry_after=7, code="busy"),
    )
    assert await caller.statuses(1) == [200]
    assert await caller.statuses(3, "/dataset/catalogue") == [200, 503, 200]
    assert await caller.statuses(3) == [500, 500, 200]
    headers = {"Authorization": f"Bearer {sandbox.token}"}
    async with caller.session.get(f"{sandbox.base_url}/v1/limits", headers=headers) as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "7")
        assert (await response.json())["error"]["code"] == "busy"
    assert sum(entry.status == 200 for entry in sandbox.log) == 4
    today = datetime.now(UTC).date()
    assert sum(count for *_, count in sandbox._store.list_counts("sandbox", today, today)) == 4


async def test_seed_decides_share_of_faults(sandbox: Sandbox, caller: Caller) -> None:
    """The same requests for the same seed."""
    runs = []
    for seed in (1, 1, 2):
        sandbox.clear_faults()
        sandbox.inject(Status(status=500, share=0.5, seed=seed))
        runs.append(await caller.statuses(40))
    assert runs[0] == runs[1] != runs[2]
    assert 10 < runs[0].count(500) < 30


async def test_publication_can_be_switched_at_request(
    sandbox: Sandbox, caller: Caller, later: Publication
) -> None:
    """The nth request is the first to see it."""
    sandbox.inject(Switch(publication=later, operation="catalogue", nth=2))
    got = [json.loads((await caller.get("/dataset/catalogue"))[1])["dataset_id"] for _ in range(3)]
    assert got == [FIRST, SECOND, SECOND]


async def test_switch_to_other_content_is_500(
    sandbox: Sandbox, caller: Caller, publication: Publication, caplog: pytest.LogCaptureFixture
) -> None:
    """Other content under a known id is logged and refused, and what was served before is served on."""
    sandbox.inject(Switch(publication=evolve(publication, name="Other"), nth=1))
    status, body = await caller.get()
    error = json.loads(body)["error"]
    assert (status, error["code"]) == (500, "sandbox_error")
    assert "already identifies other content: give it a new dataset_id" in error["message"]
    assert [(each.operation, each.status, each.faults) for each in sandbox.log] == [
        ("dataset", 500, ("Switch",))
    ]
    assert json.loads((await caller.get())[1])["name"] == publication.name
    assert caplog.records == []


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Drop(), aiohttp.ServerDisconnectedError),
        (Drop(after=0), aiohttp.ClientError),
        (Drop(after=0.5), aiohttp.ClientError),
        (Truncate(after=0.5), aiohttp.ClientPayloadError),
    ],
)
async def test_connection_ends_before_body(
    sandbox: Sandbox, caller: Caller, fault: Fault, error: type[Exception]
) -> None:
    """The request was answered, and is in the log."""
    sandbox.inject(evolve(fault, nth=1))
    with pytest.raises(error):
        await caller.post()
    assert [(entry.status, entry.faults) for entry in sandbox.log] == [(405, (type(fault).__name__,))]
    assert await caller.statuses(1) == [200]


@pytest.mark.parametrize("fault", [Hang(), Latency(seconds=1e6), Slow(seconds=1e6)])
async def test_closing_cuts_off_whoever_waits(
    publication: Publication, session: aiohttp.ClientSession, fault: Fault
) -> None:
    """Closing cuts off whoever waits, and leaves no task behind."""
    before = asyncio.all_tasks()
    sandbox = Sandbox(publication, faults=[fault])
    await sandbox.start()
    waiting = asyncio.create_task(Caller(session, sandbox).get())
    while not sandbox._armed[0]._requests:  # noqa: ASYNC110
        await asyncio.sleep(0)
    async with asyncio.timeout(60):
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
def test_wrong_fault_is_rejected(kind: type[Fault], wrong: dict[str, Any]) -> None:
    """A wrong fault is refused by field, value and what would be right, rather than meet nothing."""
    ((name, value),) = wrong.items()
    with pytest.raises((ValueError, TypeError)) as caught:
        kind(**wrong)
    said = str(caught.value.args[0])
    assert name in said
    assert repr(value) in said
    assert "must be" in said
