"""The sandbox as an HTTP server: request targets and malformed messages (RFC 9110, 9112), byte by byte."""

import asyncio
import json
from typing import Any

import pytest

from asyncfin.sandbox import Sandbox

from .conftest import ENTITY, FIRST

DATASET = f"/v1/entities/{ENTITY}/dataset"


async def sent(sandbox: Sandbox, message: str, *, headers: str = "") -> tuple[int, dict[str, str], Any]:
    """Send a message unchanged, and return the status, the headers and the JSON of the response."""
    host, port = sandbox.base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    start, _, rest = message.partition("\r\n")
    head = f"{start}\r\nHost: {host}\r\nAuthorization: Bearer {sandbox.token}\r\n{headers}{rest}"
    writer.write(head.encode("latin-1"))
    try:
        async with asyncio.timeout(60):
            status, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await reader.readexactly(int(fields["content-length"]))
    finally:
        writer.close()
        await writer.wait_closed()
    return int(status.split()[1]), fields, json.loads(body)


@pytest.mark.parametrize("authority", ["127.0.0.1", "service.example:80", "user@service.example"])
@pytest.mark.parametrize("scheme", ["http", "https", "HTTP"])
async def test_target_may_be_in_absolute_form(sandbox: Sandbox, scheme: str, authority: str) -> None:
    """RFC 9112, section 3.2.2: a server must accept it, though only proxies are sent it."""
    status, _, body = await sent(sandbox, f"GET {scheme}://{authority}{DATASET} HTTP/1.1\r\n\r\n")
    assert (status, body["dataset_id"]) == (200, FIRST)
    status, _, body = await sent(
        sandbox, f"GET {scheme}://{authority}{DATASET}/catalogue?limit=1 HTTP/1.1\r\n\r\n"
    )
    assert (status, len(body["groups"])) == (200, 1)
    assert [(served.path, served.params) for served in sandbox.log] == [
        (DATASET, {}),
        (f"{DATASET}/catalogue", {"limit": "1"}),
    ]


MALFORMED = {
    "method": "G@T {path} HTTP/1.1\r\n\r\n",
    "version": "GET {path} HTTP/9.9\r\n\r\n",
    "target": "GET relative HTTP/1.1\r\n\r\n",
    "byte": "GET {path}\x00 HTTP/1.1\r\n\r\n",
    "header name": "GET {path} HTTP/1.1\r\nX y: z\r\n\r\n",
    "header without colon": "GET {path} HTTP/1.1\r\nnothing\r\n\r\n",
    "two hosts": "GET {path} HTTP/1.1\r\nHost: other\r\n\r\n",
    "header too long": "GET {path} HTTP/1.1\r\nX: " + "a" * 20_000 + "\r\n\r\n",
    "target too long": "GET {path}?cursor=" + "a" * 20_000 + " HTTP/1.1\r\n\r\n",
    "length": "POST {path}/query HTTP/1.1\r\nContent-Length: two\r\n\r\n{{}}",
    "two lengths": "POST {path}/query HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{{}}",
    "length and chunks": (
        "POST {path}/query HTTP/1.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "chunk": "POST {path}/query HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{{}}\r\n0\r\n\r\n",
    "later chunk": "POST {path}/query HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\nzz\r\n\r\n",
    "transfer coding": "POST {path}/query HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n{{}}",
}


@pytest.mark.parametrize("kind", MALFORMED)
async def test_malformed_message_gets_error_object(
    sandbox: Sandbox, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Spec 7: an error response contains an error object, whatever was wrong; and the token is not in it."""
    message = MALFORMED[kind].format(path=DATASET)
    status, headers, body = await sent(sandbox, message)
    assert status == 400
    assert headers["content-type"] == "application/json"
    assert set(body["error"]) == {"code", "message", "request_id"}
    assert body["error"]["code"] == "bad_request"
    assert all(body["error"].values())
    assert sandbox.token not in json.dumps(body)
    assert (await sent(sandbox, f"GET {DATASET} HTTP/1.1\r\n\r\n"))[0] == 200


async def test_own_failure_is_an_error_object(sandbox: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    """Spec 7: a fault in the program is a 500 in JSON as well; the log has its traceback."""
    sandbox._store.close()
    status, headers, body = await sent(sandbox, f"GET {DATASET} HTTP/1.1\r\n\r\n")
    assert (status, headers["content-type"]) == (500, "application/json")
    assert body["error"]["code"] == "sandbox_error"
    assert "ProgrammingError" in caplog.text
