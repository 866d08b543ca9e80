"""Bodies that no service can read, over HTTP: each is refused by the rules, in JSON, and logged."""

import asyncio
import json
from typing import Any

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


async def refused(
    session: aiohttp.ClientSession, sandbox: Sandbox, body: bytes, **headers: str
) -> list[dict[str, Any]]:
    """The issues of a 400 in JSON that is logged, and counted: it was the last request of the day."""
    sandbox.put_account(Account("sandbox", allowance=1))
    sent = {
        "Authorization": f"Bearer {sandbox.token}",
        "Content-Type": "application/json",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    for status, code in ((400, "validation_failed"), (429, "daily_allowance_reached")):
        async with session.post(sandbox.base_url + QUERY, data=body, headers=sent) as response:
            assert (response.status, response.content_type) == (status, "application/json")
            error = json.loads(await response.read())["error"]
        assert error["code"] == code
        assert error["request_id"]
        if status == 400:
            issues: list[dict[str, Any]] = error["issues"]
    assert [(entry.operation, entry.status) for entry in sandbox.log] == [("query", 400), ("query", 429)]
    return issues


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"\ud800": 1}, r"\ud800"),
        ({"periods": {"mode": "trailing", "months": 1, "\udfff": 1}}, r"periods.\udfff"),
        (
            {"scope_combinations": [[{**COMPANY[0], "half \udc00": 1}]]},
            r"scope_combinations[0][0].half \udc00",
        ),
    ],
    ids=["body", "periods", "scope reference"],
)
async def test_a_key_with_half_a_character_is_named_with_it_escaped(
    sandbox: Sandbox, session: aiohttp.ClientSession, fields: dict[str, Any], place: str
) -> None:
    """JSON can spell such a key, UTF-8 cannot, and the answer is UTF-8."""
    issues = await refused(session, sandbox, json.dumps({**SELECTION, **fields}).encode())
    assert [issue["field"] for issue in issues] == [place]


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "zstd", "none"])
async def test_a_content_coding_is_refused_by_its_header(
    sandbox: Sandbox, session: aiohttp.ClientSession, coding: str
) -> None:
    """Bodies are read as they come, whether or not the server could undo the coding."""
    issues = await refused(session, sandbox, json.dumps(SELECTION).encode(), Content_Encoding=coding)
    assert issues == [{"field": "Content-Encoding", "message": f"is {coding!r}; a body is sent without any"}]
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
async def test_a_client_that_waits_for_leave_to_send_its_body_gets_it(sandbox: Sandbox, expect: str) -> None:
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


async def test_no_leave_is_given_over_http_1_0(sandbox: Sandbox) -> None:
    """That version has no interim answers: the first and only one is the final one."""
    host, port = sandbox.base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"POST {QUERY} HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{{}}".encode())
    async with asyncio.timeout(60):
        assert (await reader.read()).startswith(b"HTTP/1.0 401 ")
    writer.close()
    await writer.wait_closed()


async def test_aiohttp_can_wait_for_leave_to_send(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    """A query sent so is answered like any other."""
    headers = {"Authorization": f"Bearer {sandbox.token}"}
    url = sandbox.base_url + QUERY
    async with (
        asyncio.timeout(60),
        session.post(url, json=SELECTION, headers=headers, expect100=True) as response,
    ):
        assert response.status == 200
