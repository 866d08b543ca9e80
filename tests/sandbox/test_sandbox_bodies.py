"""Bodies that no service can read, over HTTP: each is refused by the rules, in JSON, and logged."""

import asyncio
import json

import aiohttp
import pytest

from asyncfin.sandbox import Account, Sandbox

from .conftest import COMPANY, ENTITY

QUERY = f"/v1/entities/{ENTITY}/dataset/query"
SELECTION = {
    "metric_ids": ["sales"],
    "scope_combinations": [COMPANY],
    "periods": {"mode": "trailing", "months": 1},
}


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "zstd", "none"])
async def test_content_coding_is_rejected_by_header(
    sandbox: Sandbox, session: aiohttp.ClientSession, coding: str
) -> None:
    """Bodies are read as they come. The rejection is logged, and is the last request of the day."""
    sandbox.put_account(Account("sandbox", allowance=1))
    headers = {"Authorization": f"Bearer {sandbox.token}", "Content-Encoding": coding}
    errors = []
    for status in (400, 429):
        async with session.post(sandbox.base_url + QUERY, json=SELECTION, headers=headers) as response:
            assert (response.status, response.content_type) == (status, "application/json")
            errors.append((await response.json())["error"])
    assert [error["code"] for error in errors] == ["validation_failed", "daily_allowance_reached"]
    assert errors[0]["issues"] == [
        {"field": "Content-Encoding", "message": f"is {coding!r}; a body is sent without any"}
    ]
    assert [(entry.operation, entry.status) for entry in sandbox.log] == [("query", 400), ("query", 429)]
    assert sandbox.log[0].body == SELECTION


async def test_nesting_of_any_depth_is_refused(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """Some depth the parser just gets through, and a message that shows the value does not."""
    headers = {"Authorization": f"Bearer {sandbox.token}", "Content-Type": "application/json"}
    for depth in range(900, 1000):
        deep = b"[" * depth + b"]" * depth
        body = b'{"scope_combinations":[[{"scope_group_id":%b,"scope_id":"all"}]]}' % deep
        async with session.post(sandbox.base_url + QUERY, data=body, headers=headers) as response:
            assert (response.status, response.content_type) == (400, "application/json"), depth


@pytest.mark.parametrize("expect", ["100-continue", "100-Continue"])
async def test_expect_continue_is_answered(sandbox: Sandbox, expect: str) -> None:
    """The interim answer comes before the body does, the final one after it, on one connection."""
    host, port = sandbox.base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps(SELECTION).encode()
    head = (
        f"POST {QUERY} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {sandbox.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nExpect: {expect}\r\n\r\n"
    )
    async with asyncio.timeout(60):
        for _ in range(2):
            writer.write(head.encode())
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(body)
            final = await reader.readuntil(b"\r\n\r\n")
            assert final.startswith(b"HTTP/1.1 200 OK\r\n")
            length = final.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
            assert json.loads(await reader.readexactly(int(length)))["series"]
    writer.close()
    await writer.wait_closed()
