"""The token is a canary here: whatever is printed, logged, raised, observed or pickled is searched for it."""

import asyncio
import html
import io
import json
import logging
import os
import pickle
import re
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager
from copy import copy
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import quote

import pytest
from rich.console import Console
from rich.traceback import Traceback

from asyncfin import FileBucket, FileCache, FiscalRange, Select, extract
from asyncfin.client import Client
from asyncfin.errors import (
    AsyncfinError,
    AuthenticationError,
    DatasetChangedError,
    ServiceError,
    ValidationFailedError,
)
from asyncfin.events import Event
from asyncfin.pacing.bucket import TokenBucket
from asyncfin.sandbox import Sandbox
from asyncfin.wire.protocol import Request
from asyncfin.wire.retry import Retry
from asyncfin.wire.sender import Sender
from asyncfin.wire.transport import Transport
from tests.generate import generate
from tests.services.raw import (
    Received,
    answer,
    dropping,
    hanging,
    judged,
    refusal,
    resetting,
    scripted,
    trickling,
)

CANARY = 'canary+7f/3a=~b\\c"d'
CAUTIOUS = json.dumps(CANARY)[1:-1].replace("+", "\\u002B").replace("=", "\\u003d").replace("/", "\\/")
FORMS = {
    "as it is": CANARY,
    "in a URL": quote(CANARY, safe=""),
    "in a URL, lower case": quote(CANARY, safe="").replace("%2B", "%2b").replace("%2F", "%2f"),
    "in JSON": json.dumps(CANARY)[1:-1],
    "in cautious JSON": CAUTIOUS,
    "in JSON, letter by letter": "".join(f"\\u{ord(each):04x}" for each in CANARY),
    "in JSON, its letters only": "".join(f"\\u{ord(c):04X}" if c.isalpha() else c for c in "canary")
    + CAUTIOUS[6:],
}
READ = Request("dataset", "GET", "/v1/entities/O-1/dataset", entity_id="O-1")


def leaks(text: str) -> list[str]:
    """Return the forms in which a text may contain the token; its beginning alone is one."""
    return [name for name, form in FORMS.items() if form in text] + ["in part"] * ("canary" in text)


def told_by(error: BaseException) -> Iterator[str]:
    """Yield everything that an error and what hangs on it can be made to print."""
    for each in (error, error.__cause__, error.__context__):
        if each is not None:
            yield from (repr(each), str(each), repr(each.args), repr(vars(each)))
            yield from getattr(each, "__notes__", ())
    if hasattr(error, "report"):
        yield error.report()
    whole = traceback.TracebackException.from_exception(error, capture_locals=True)
    for frame in whole.stack:
        if __file__ not in frame.filename:  # the tests themselves know the canary
            yield f"{frame.filename} {frame.line} {frame.locals}"


def pickled(thing: Any) -> str:
    """Return the pickle of a thing; nothing where it refuses."""
    try:
        return pickle.dumps(thing).decode("latin-1")
    except (TypeError, AttributeError, pickle.PicklingError):
        return ""


@asynccontextmanager
async def sending(judge: Any, token: Any = CANARY) -> AsyncIterator[tuple[Sender, Transport, list[Event]]]:
    events: list[Event] = []
    async with judged(judge) as server:
        transport = Transport(server.base_url)
        sender = Sender(
            transport, token, bucket=TokenBucket(rate=1e6), retry=Retry(attempts=2), observers=[events.append]
        )
        try:
            yield sender, transport, events
        finally:
            await transport.aclose()


def echo(status: int, form: str) -> bytes:
    """Return an answer that repeats the token wherever it can."""
    body = f'{{"error": {{"code": "c {form}", "message": "bad token {form}!", "request_id": "{form}"}}}}'
    shown = FORMS["in a URL"]
    return answer(status, body.encode(), x_request_id=shown, location=f"/?token={shown}", retry_after="1")


JSON_FORMS = [name for name in FORMS if name != "as it is"]


@pytest.mark.virtual
@pytest.mark.parametrize("form", JSON_FORMS)
@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 409, 418, 429, 500])
async def test_echoing_errors_hide_the_token(
    status: int, form: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No text, code, id, pickle or traceback of an error shows the token, and no event or log."""
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    raw = echo(status, FORMS[form])
    async with sending(lambda _: raw) as (sender, _, events):
        with pytest.raises(ServiceError) as caught:
            await sender.send(READ)
    error = caught.value
    assert "(secret)" in error.message
    if status == 401:  # rich takes a while
        assert error.__traceback__ is not None
        beyond_test = error.__traceback__.tb_next  # whose locals hold what is echoed
        assert not leaks(shown_by_rich(copy(error).with_traceback(beyond_test)))
    for text in (*told_by(error), pickled(error), pickled(events), repr(events), caplog.text):
        assert not leaks(text)
    assert not leaks("".join(repr(vars(record)) for record in caplog.records))


def escape_html(text: str) -> str:
    """Return a text as OWASP's encoders write it."""
    return "".join(letter if letter.isalnum() else f"&#x{ord(letter):X};" for letter in text)


MIXED = {
    "in HTML": html.escape(CANARY),
    "in cautious HTML": escape_html(CANARY),
    "in HTML, letter by letter": "".join(f"&#{ord(letter):03d};" for letter in CANARY),
    "in HTML twice": html.escape(escape_html(CANARY)),
    "in HTML of JSON": html.escape(FORMS["in JSON"]),
    "in JSON of a URL": "".join(f"\\u0025{ord(letter):02X}" for letter in CANARY),
    "in a URL of JSON": "".join(f"%5cu00{ord(letter):02X}" for letter in CANARY),
    "in HTML of a URL": "".join(f"&#37;{ord(letter):02x}" for letter in CANARY),
}


@pytest.mark.virtual
@pytest.mark.parametrize("status", [200, 401, 502])
@pytest.mark.parametrize("form", MIXED)
async def test_error_pages_hide_mixed_escapes(form: str, status: int) -> None:
    """A page of a proxy that shows the token in escapes of HTML, or in nested ones, is not shown."""
    raw = answer(status, f"<p>denied: {MIXED[form]}</p>".encode(), x_request_id=MIXED[form])
    async with sending(lambda _: raw) as (sender, _, events):
        with pytest.raises(AsyncfinError) as caught:
            await sender.send(READ)
    assert "(secret)" in str(caught.value)
    for text in (*told_by(caught.value), repr(events)):
        assert MIXED[form] not in text
        assert "denied" not in text


@pytest.mark.virtual
@pytest.mark.parametrize("status", [200, 502])
@pytest.mark.parametrize("form", [*FORMS, *MIXED])
async def test_long_error_bodies_are_dropped(form: str, status: int) -> None:
    """A token that ends at 64 KiB is hidden. Nothing is shown of a body that is longer."""
    echoed = {**FORMS, **MIXED}[form].encode()
    for beyond, shown in ((0, "(secret)"), (len(echoed) - 6, "more than 64 KiB")):
        raw = answer(status, echoed.rjust(64 * 1024 + beyond))
        async with sending(lambda _, raw=raw: raw) as (sender, _, _events):
            with pytest.raises(AsyncfinError) as caught:
                await sender.send(READ)
        assert shown in str(caught.value)
        for text in told_by(caught.value):
            assert echoed[:6].decode() not in text


@pytest.mark.virtual
@pytest.mark.parametrize("form", JSON_FORMS)
async def test_long_error_objects_are_redacted(form: str) -> None:
    """An error object of more than 64 KiB keeps its facts, without the token. No text is cut within it."""
    echoed = FORMS[form]
    cut = "x" * 1_990 + echoed
    issues = ", ".join(f'{{"field": "scope[{number}]", "issue": "{echoed}"}}' for number in range(1_500))
    texts = '"code": "validation_failed", "message": "bad fields", "request_id": "r-1"'
    raw = answer(422, f'{{"error": {{{texts}, "at": "{cut}", "issues": [{issues}]}}}}'.encode())
    async with sending(lambda _: raw) as (sender, _, _events):
        with pytest.raises(ValidationFailedError) as caught:
            await sender.send(READ)
    error = caught.value
    assert (error.code, error.message, error.request_id) == ("validation_failed", "bad fields", "r-1")
    assert error.details["issues"][0] == {"field": "scope[0]", "issue": "(secret)"}
    for text in (*told_by(error), pickled(error)):
        assert not leaks(text)


@pytest.mark.virtual
async def test_long_error_object_keeps_its_code() -> None:
    """A changed dataset is one also in a long body, and the details are bounded."""
    details = "".join(f', "{number}": "{"~" * 1_990}"' for number in range(190))
    raw = answer(409, f'{{"error": {{"code": "dataset_changed"{details}}}}}'.encode())
    async with sending(lambda _: raw) as (sender, _, _events):
        with pytest.raises(DatasetChangedError) as caught:
            await sender.send(READ)
    assert len(caught.value.details) == 100


SPLIT = {
    "UTF-16": f"<p>{CANARY}".encode("utf-16-le"),
    "UTF-16, the other end first": CANARY.encode("utf-16-be"),
    "soft hyphen": f"{CANARY[:4]}\u00ad{CANARY[4:]}".encode(),
    "no space": f"{CANARY[:4]}\u200b{CANARY[4:]}".encode(),
    "tag": f"<p>{CANARY[:4]}<wbr>{CANARY[4:]}".encode(),
    "line": f"{CANARY[:4]}\r\n {CANARY[4:]}".encode(),
}


@pytest.mark.virtual
@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("form", SPLIT)
async def test_error_pages_hide_split_tokens(form: str, status: int) -> None:
    """A page in another encoding, or with the token in pieces, is not shown."""
    raw = answer(status, SPLIT[form])
    async with sending(lambda _: raw) as (sender, _, _events):
        with pytest.raises(AsyncfinError) as caught:
            await sender.send(READ)
    for text in told_by(caught.value):
        assert CANARY[4:8] not in text.replace("\\x00", "").replace("\0", "")


@pytest.mark.virtual
async def test_token_of_escapes_hides_nothing_else() -> None:
    """A token that is nothing without its escapes is not found in every page."""
    async with sending(lambda _: refusal(400, "validation_failed"), "\\" * 8) as (sender, _, _events):
        with pytest.raises(ServiceError) as caught:
            await sender.send(READ)
    assert caught.value.code == "validation_failed"


@pytest.mark.virtual
async def test_former_tokens_are_hidden_too(caplog: pytest.LogCaptureFixture) -> None:
    """Tokens that were replaced are struck out of a service's complaint too."""
    caplog.set_level(logging.DEBUG)
    issued = [f"canary-{number}-of-many" for number in range(4)]
    left = iter(issued)

    async def token() -> str:
        return next(left)

    def judge(request: Received) -> bytes:
        text = f'{{"error": {{"code": "old", "message": "{" ".join(issued)}", "request_id": "r"}}}}'
        return answer() if request.token == issued[1] else answer(401, text.encode())

    async with sending(judge, token) as (sender, _, _events):
        await sender.send(READ)
        now = asyncio.get_running_loop().time()
        rejection = AuthenticationError(status=401)
        (await sender.tokens.current()).record(rejection, now, now)
        with pytest.raises(AuthenticationError) as caught:
            await sender.send(READ)
    assert caught.value.message == "(secret) (secret) (secret) (secret)"
    for text in (*told_by(caught.value), caplog.text):
        assert not leaks(text)


BROKEN = {
    "dropped": dropping(),
    "dropped in its head": dropping(f"HTTP/1.1 200 OK\r\nX-Token: {CANARY}\r\n".encode()),
    "reset": resetting(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1"),
    "cut": dropping(f"HTTP/1.1 200 OK\r\nX-Token: {CANARY}\r\nContent-Length: 999\r\n\r\n{CANARY}".encode()),
    "no HTTP": dropping(f"{CANARY}\r\n\r\n".encode()),
    "no HTTP in its head": dropping(f"HTTP/1.1 200 OK\r\n{CANARY}\r\n\r\n".encode()),
    "no HTTP in its reason": dropping(f"HTTP/1.1 {CANARY}\r\n\r\n".encode()),
    "no gzip": answer(body=CANARY.encode(), content_encoding="gzip"),
    "an unknown coding": answer(content_encoding=FORMS["in a URL"]),
    "hanging": hanging(f"HTTP/1.1 200 OK\r\nX-Token: {CANARY}\r\n".encode()),
    "trickling": trickling(answer(body=CANARY.encode() * 9), 5),
}


@pytest.mark.virtual
@pytest.mark.parametrize("step", BROKEN.values(), ids=BROKEN)
async def test_transport_failures_hide_the_request(step: Any, caplog: pytest.LogCaptureFixture) -> None:
    """Exceptions of the library below hold the headers in their repr; none of them is left visible."""
    caplog.set_level(logging.DEBUG)
    asyncio.get_running_loop().set_debug(True)
    async with sending(lambda _: step) as (sender, _, events):
        with pytest.raises(Exception) as caught:
            await sender.send(READ)
    for text in (*told_by(caught.value), pickled(caught.value), repr(events), caplog.text):
        assert not leaks(text)


@pytest.mark.virtual
async def test_holders_of_the_token_hide_it() -> None:
    """Nothing that holds the token shows or pickles it, down to aiohttp's session."""
    async with sending(lambda _: answer()) as (sender, transport, events):
        client = Client(transport.base_url, CANARY)
        await sender.send(READ)
        got = await sender.send(READ)
        opened = transport._open
        assert opened is not None
        things = [client, sender, transport, sender.tokens, events, sender.stats(), got, opened]
        things += [opened.session, vars(opened.session), vars(transport), vars(sender.tokens)]
        for thing in things:
            assert not leaks(f"{thing!r} {thing!s} {pickled(thing)}")
        await client.aclose()


async def test_files_never_contain_the_token(tmp_path: Path) -> None:
    """SECURITY.md: not those of a cache, a bucket or an extraction; the first two are closed to others."""
    pytest.importorskip("pyarrow")
    bucket = FileBucket(tmp_path / "account.bucket", rate=1e6)
    cache = FileCache(tmp_path / "cache")
    async with Sandbox(generate(1, series=3, publications=1)) as sandbox:
        source = sandbox.issue_token()
        async with Client(sandbox.base_url, source, bucket=bucket, cache=cache) as client:
            await client.query(sandbox.entities[0], Select(), FiscalRange())
            folder = tmp_path / "night"
            await extract(client, sandbox.entities, Select(), FiscalRange(), to=folder, history=True)
        await bucket.aclose()
        await cache.aclose()
    files = [Path(folder, name) for folder, _, names in os.walk(tmp_path) for name in names]
    assert {path.suffix for path in files} >= {".bucket", ".parquet", ".json"}
    assert not [path for path in files if source.encode() in path.read_bytes()]
    closed = [path for path in files if path.suffix == ".bucket" or "cache" in path.parts]
    assert len(closed) > 3
    assert {path.stat().st_mode & 0o777 for path in closed} == {0o600}


@pytest.mark.virtual
@pytest.mark.parametrize("token", ["canary-of-twenty-chars", "canary/8", "a/canary/of+slashes=="])
async def test_data_is_redacted(token: str) -> None:
    """A token in a response's data is struck out before it gets into tables and files."""
    escaped = token.replace("/", r"\/")
    raw = answer(body=f'{{"name": "x{token}y", "id": "{escaped}"}}'.encode(), x_request_id=f"r-{token}")
    async with sending(lambda _: raw, token) as (sender, _, _events):
        got = await sender.send(READ)
    assert got.body == b'{"name": "x(secret)y", "id": "(secret)"}'
    assert got.headers["x-request-id"] == "r-(secret)"


@pytest.mark.virtual
@pytest.mark.parametrize("token", [CANARY, "-c+a/n=a.r~y", "+/=-._~+/=", "\\\\+\\\\/==ab"])
async def test_escaped_tokens_are_redacted(token: str) -> None:
    """The token is struck out in every escaped form, escaped twice too: in a body and in a header."""
    once = json.dumps(token)[1:-1]
    forms = [once, quote(token, safe=""), quote(quote(token, safe=""), safe=""), json.dumps(once)[1:-1]]
    forms.append("".join(each if each.isalnum() else f"\\u00{ord(each):02X}" for each in token))
    forms.append(once.replace("/", "\\/"))
    forms.append("".join(f"%{ord(letter):02x}" for letter in token))
    forms.append("".join(f"\\u00{ord(letter):02x}" for letter in token))
    forms.append(re.sub("[A-Za-z0-9]+", lambda run: f"%{ord(run[0][0]):02x}{run[0][1:]}", token))
    # Each alone: one that is recognized would betray the others.
    answers = [answer(body=f"[{form}".encode()) for form in forms]
    answers += [answer(body=b"[(secret)", x_request_id=form) for form in forms]
    async with sending(lambda _: answers.pop(0), token) as (sender, _, _events):
        responses = [await sender.send(READ) for _ in range(len(answers))]
    assert {response.body for response in responses} == {b"[(secret)"}
    headers = [response.headers["x-request-id"] for response in responses[len(forms) :]]
    assert headers == ["(secret)"] * len(forms)


@pytest.mark.virtual
async def test_body_of_backslashes_is_searched_once() -> None:
    """Each run of them, not each of them to its end: for this body that would take hours."""
    body = b'{"name": "%' + 2_000_000 * b"\\" + b'"}'
    async with sending(lambda _: answer(body=body), CANARY) as (sender, _, _events):
        got = await sender.send(READ)
    assert got.body == body


@pytest.mark.virtual
async def test_former_tokens_are_redacted() -> None:
    """Former tokens are struck out too, and one that begins with another as a whole."""
    issued = ["canary-number-1", "canary-number-11"]
    left = iter(issued)

    async def token() -> str:
        return next(left)

    def judge(request: Received) -> bytes:
        text = json.dumps({"name": " ".join(issued)}).encode()
        return answer(body=text, x_request_id=issued[0]) if request.token == issued[1] else answer(401)

    async with sending(judge, token) as (sender, _, _events):
        got = await sender.send(READ)
    assert got.body == b'{"name": "(secret) (secret)"}'
    assert got.headers["x-request-id"] == "(secret)"


# --- frames that wait

E_ID = "O-" + "1" * 32
READS: dict[str, Callable[[Client], Coroutine[Any, Any, Any]]] = {
    "dataset": lambda client: client.dataset(E_ID),
    "limits": lambda client: client.limits(),
    "page": lambda client: _first(client.catalogue_pages(E_ID)),
}
WAITS = {
    "no response": hanging(),
    "within the head": hanging(b"HTTP/1.1 200 OK\r\nX-Y: z\r\n"),
    "within the body": hanging(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1"),
    "before a retry": refusal(503, retry_after="50"),
    "in a pause": refusal(429, retry_after="50"),
}


async def _first(pages: AsyncIterator[Any]) -> Any:
    return await anext(pages)


async def _timed_out(read: Coroutine[Any, Any, Any]) -> None:
    async with asyncio.timeout(5):
        await read


async def _waited_for(read: Coroutine[Any, Any, Any]) -> None:
    await asyncio.wait_for(read, 5)


async def _cancelled(read: Coroutine[Any, Any, Any]) -> None:
    task = asyncio.ensure_future(read)
    asyncio.get_running_loop().call_later(5, task.cancel)
    await task


async def ended(base_url: str, read: Any, ending: Any) -> BaseException:
    """Return the error of a read that its caller ends; no frame of it is one of the test or its server."""
    async with Client(base_url, CANARY) as client:
        try:
            await ending(read(client))
        except (TimeoutError, asyncio.CancelledError) as error:
            return error
    raise AssertionError


def frames_of(error: BaseException | None) -> Iterator[FrameType]:
    """Yield the frames of an error's traceback, and of those that led to it."""
    while error is not None:
        yield from (frame for frame, _ in traceback.walk_tb(error.__traceback__))
        error = error.__cause__ or error.__context__


def strings_in(thing: Any, depth: int = 5) -> Iterator[str]:
    """Yield the texts in a thing, in what it contains, and in the attributes of aiohttp's objects."""
    if isinstance(thing, bytes | bytearray):
        yield bytes(thing).decode("latin-1")
    elif isinstance(thing, str):
        yield str.__str__(thing)
    elif depth and isinstance(thing, Mapping):
        for key, value in thing.items():
            yield from (*strings_in(key, depth - 1), *strings_in(value, depth - 1))
    elif depth and isinstance(thing, list | tuple | set | frozenset | deque):
        for each in thing:
            yield from strings_in(each, depth - 1)
    elif depth and type(thing).__module__.startswith("aiohttp"):
        yield from strings_in(list(getattr(thing, "__dict__", {}).values()), depth - 1)


class Plain(Traceback):
    """What rich prints, without the colours of the source: finding them takes nine tenths of the time."""

    LEXERS = {".py": "text"}  # noqa: RUF012  as the base class declares it


def shown_by_rich(error: BaseException) -> str:
    """Return what rich prints of an error, with the locals of its frames."""
    console = Console(file=io.StringIO(), width=400)
    whole = {"show_locals": True, "locals_max_string": None, "locals_max_length": None}
    console.print(Plain.from_exception(type(error), error, error.__traceback__, **whole))  # type: ignore[arg-type]
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.virtual
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("ending", [_timed_out, _waited_for, _cancelled])
@pytest.mark.parametrize("read", READS)
async def test_frames_of_ended_reads_hide_token(read: str, ending: Any, wait: str) -> None:
    """Neither rich nor the standard library shows it with the frames' locals, and no local holds it."""
    async with scripted(WAITS[wait]) as server:
        error = await ended(server.base_url, READS[read], ending)
    frames = list(frames_of(error))
    assert any("asyncfin" in frame.f_code.co_filename for frame in frames)
    for frame in frames:
        for name, value in frame.f_locals.items():
            assert not any(map(leaks, strings_in(value))), f"{name} of {frame.f_code.co_qualname}"
    whole = traceback.TracebackException.from_exception(error, capture_locals=True)
    assert not leaks("".join(whole.format()))
    if ending is _timed_out:  # rich takes a while, and prints the same frames however a read is ended
        assert not leaks(shown_by_rich(error))


@pytest.mark.virtual
async def test_frames_of_waiting_reads_hide_token() -> None:
    """While a read waits, no frame from the caller down to the connection holds the token."""
    async with scripted(hanging()) as server, Client(server.base_url, CANARY) as client:
        task = asyncio.ensure_future(client.dataset(E_ID))
        await server.arrived(1)
        awaited: Any = task.get_coro()
        frames = []
        while (frame := getattr(awaited, "cr_frame", None)) is not None:
            frames.append(frame)
            awaited = awaited.cr_await
        names = {frame.f_code.co_qualname for frame in frames}
        assert names >= {"Client.dataset", "Sender.send", "Transport.send"}
        for frame in frames:
            assert not any(map(leaks, strings_in(frame.f_locals)))
        task.cancel()
        await asyncio.wait([task])
