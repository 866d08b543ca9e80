"""The tools' server over stdio and over HTTP."""

import asyncio
import json
import os
import sys
from typing import Any

import pytest

from asyncfin.sandbox import Hang, Sandbox
from tests.mcp.assistant import mcp, rows_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
httpx = pytest.importorskip("httpx2")
TOKEN = "a-token-of-the-assistant"


def environment(sandbox: Sandbox, **more: str) -> dict[str, str]:
    return {**os.environ, "ASYNCFIN_BASE_URL": sandbox.base_url, "ASYNCFIN_TOKEN": sandbox.token, **more}


BROKEN = [
    b"\n", b"{", b"[]", b'"text"', b"\xff\xfe\x00", b"[" * 100_000, b'{"jsonrpc":"2.0","id":{},"method":1}',
    b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":[]}', b'{"jsonrpc":"2.0","method":"\\ud800"}',
    b'{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"query","arguments":{"entities":"\\ud800"}}}',
]  # fmt: skip


async def test_broken_input_over_stdio() -> None:
    """What can't be parsed is passed over; closing standard input ends the process, within a call too."""
    async with Sandbox.demo(faults=[Hang(operation="catalogue")]) as sandbox:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "asyncfin", "mcp", *sandbox.entities),
            env=environment(sandbox),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        info = {"name": "host", "version": "1"}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}

        def send(number: int | None, method: str, params: dict[str, Any]) -> None:
            assert process.stdin is not None
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            process.stdin.write(
                json.dumps({k: v for k, v in message.items() if v is not None}).encode() + b"\n"
            )

        send(1, "initialize", hello)
        send(None, "notifications/initialized", {})
        for line in BROKEN:
            process.stdin.write(line + b"\n")
        send(2, "tools/call", {"name": "list_entities", "arguments": {}})
        while (answer := json.loads(await process.stdout.readline())).get("id") != 2:
            pass
        assert sandbox.entities[0] in json.dumps(answer)
        send(3, "tools/call", {"name": "find_series", "arguments": {"entities": sandbox.entities}})
        while not any(served.operation == "catalogue" for served in sandbox.log):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        process.stdin.close()
        async with asyncio.timeout(28):  # before the request that hangs would have timed out
            _, complaint = await process.communicate()
    assert b"Traceback" not in complaint
    assert process.returncode == 0


async def test_over_http_with_the_token_only(sandbox: Sandbox) -> None:
    """Another Host, Origin or token is rejected."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "asyncfin", "mcp", *sandbox.entities, "--http", "127.0.0.1:0"),
        env=environment(sandbox, ASYNCFIN_MCP_TOKEN=TOKEN),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        url = (await process.stderr.readline()).decode().split()[-1]
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        host = url.split("/")[2]
        wrong = [
            ({}, 401),
            ({"Authorization": "Bearer other"}, 401),
            ({**bearer, "Host": "evil.example"}, 421),
            ({**bearer, "Host": host.replace("127.0.0.1", "127.0.0.1.evil.example")}, 421),
            ({**bearer, "Origin": "http://evil.example"}, 403),
            ({**bearer, "Origin": "http://127.0.0.1.evil.example"}, 403),
            ({**bearer, "Origin": "null"}, 403),
        ]
        async with httpx.AsyncClient() as browser:
            # Schemes have no case.
            lower = {"Authorization": f"bearer {TOKEN}"}
            assert (await browser.post(url, json={}, headers=lower)).status_code not in (401, 403, 421)
            for headers, status in wrong:
                for method in ("POST", "GET", "DELETE"):
                    answer = await browser.request(method, url, json={}, headers=headers)
                    assert answer.status_code == status, (method, headers)
                    assert TOKEN not in answer.text
        from mcp.client.streamable_http import streamable_http_client

        async with (
            httpx.AsyncClient(headers=bearer) as allowed,
            mcp.Client(streamable_http_client(url, http_client=allowed)) as session,
        ):
            query = {"entities": sandbox.entities[:1], "series": ["EPS"]}
            answer = await session.call_tool("query", query)
            assert rows_of(answer)[0]["metric"] == "EPS"
    finally:
        process.terminate()
        complaint = await process.stderr.read()
        await process.wait()
    assert b"Traceback" not in complaint
    assert TOKEN.encode() not in complaint


@pytest.mark.parametrize(
    ("address", "token", "said"),
    [
        ("127.0.0.1:0", "", "ASYNCFIN_MCP_TOKEN"),
        ("0.0.0.0:8767", TOKEN, "loopback"),
        ("127.0.0.1", TOKEN, "loopback"),
        ("127.0.0.1:99999", TOKEN, "loopback"),
    ],
)
async def test_http_needs_a_token_and_loopback(
    address: str, token: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tools can spend the account's allowance."""
    from asyncfin.cli.errors import UsageError
    from asyncfin.cli.explore import mcp as command
    from asyncfin.cli.options import Service

    monkeypatch.setenv("ASYNCFIN_MCP_TOKEN", token)
    monkeypatch.setenv("ASYNCFIN_TOKEN", "t")
    with pytest.raises(UsageError, match=said):
        await command("O-" + "1" * 32, http=address, service=Service(base_url="http://127.0.0.1:9"))
