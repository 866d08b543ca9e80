"""How commands end: exit codes, one line for a failure, and nothing secret in it."""

import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from asyncfin.cli.app import run
from asyncfin.cli.errors import exit_line
from asyncfin.errors import (
    AllowanceExhaustedError,
    AsyncfinError,
    BucketUnavailableError,
    DatasetChangedError,
    IncompleteResultError,
    MalformedAnswerError,
    ManifestMismatchError,
    RequestTimeoutError,
    RunInProgressError,
    SelectionError,
    ServerFailureError,
    ServiceError,
)
from asyncfin.extraction.exit import Exit
from asyncfin.extraction.report import ExtractReport, UnknownToAllError
from asyncfin.sandbox import Account, Drop, Hang, Sandbox
from tests.cli.conftest import ENTITY, UNKNOWN_ID, Command, Terminal, environment, finish, start


def test_rejected_token_differs_from_missing_permission(
    command: Command, service: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused token and a missing permission both end with 3, with different advice and no token shown."""
    monkeypatch.setenv("ASYNCFIN_TOKEN", "not-a-token-of-this-service")
    refused = command("usage", "--limits")
    monkeypatch.setenv("ASYNCFIN_TOKEN", service.issue_token(permissions=("datasets:read",)))
    missing = command("usage")
    assert (refused.code, missing.code) == (3, 3)
    assert "put a token" in refused.line
    assert "check the token's permissions" in missing.line
    assert "not-a-token" not in refused.err


def test_used_up_allowance_ends_with_5(
    command: Command, service: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait is until midnight UTC, too long to sit out."""
    service.put_account(Account("poor", allowance=0))
    monkeypatch.setenv("ASYNCFIN_TOKEN", service.issue_token("poor"))
    result = command("catalogue", "--publication", ENTITY)
    assert result.code == 5
    assert re.search(r"possible again at \d{4}-\d\d-\d\dT.*; run it again then$", result.line)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SelectionError("x"), 2),
        (ServiceError(status=418), 2),
        (ServiceError(status=418, has_error_object=False), 6),
        (ServiceError(status=418, has_error_object=False, entity_id=ENTITY), 1),
        (DatasetChangedError(status=409), 1),
        (IncompleteResultError("x"), 1),
        (MalformedAnswerError("x", entity_id=ENTITY), 1),
        (MalformedAnswerError("x"), 6),
        (ServerFailureError(status=503), 6),
        (RequestTimeoutError("x"), 6),
        (BucketUnavailableError("x"), 7),
        (PermissionError(13, "x", "/x"), 7),
        (ManifestMismatchError("x"), 2),
        (RunInProgressError("x"), 8),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_each_error_has_documented_exit_code(error: Exception, code: int) -> None:
    """By its class, or by what it concerns."""
    assert exit_line(error)[0] == code


def _leaves(kind: type[AsyncfinError]) -> Iterator[type[AsyncfinError]]:
    """The classes of the error tree below one, itself included."""
    yield kind
    for each in kind.__subclasses__():
        yield from _leaves(each)


@pytest.mark.parametrize("kind", sorted(_leaves(AsyncfinError), key=lambda kind: kind.__name__))
def test_every_error_has_code_and_advice(kind: type[AsyncfinError]) -> None:
    """One line, which ends in what to do, whichever class it is."""
    facts: dict[str, Any] = {"status": 418} if issubclass(kind, ServiceError) else {}
    if issubclass(kind, AllowanceExhaustedError):
        facts["resume_at"] = datetime(2026, 1, 1, tzinfo=UTC)
    if kind is UnknownToAllError:
        facts["report"] = ExtractReport((), seconds=0.0)
    code, line = exit_line(kind(**facts) if facts else kind("first\n second."))
    assert code in Exit
    assert code not in (Exit.OK, Exit.INTERRUPTED, Exit.BROKEN_PIPE)
    # What to do about a wrong argument, or a folder of another question, is said in each such message.
    assert issubclass(kind, (SelectionError, ManifestMismatchError)) or re.fullmatch(
        r"asyncfin: \S.*; \w.*", line
    )


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals on Windows")
def test_terminal_shows_retries(service: Sandbox) -> None:
    """A wait below a second is not 0 s."""
    service.inject(Drop(nth=(1, 2)))
    terminal = Terminal("usage", "--limits", sandbox=service)
    assert terminal.end() == 0
    assert re.search(r"Reading: retrying in (\d{1,3} ms|[1-9] s): ConnectionFailedError", terminal.shown)


@pytest.mark.parametrize("arguments", [("catalogue", "--publication", ENTITY), ("sandbox", "--port", "0")])
def test_full_disk_ends_with_7(service: Sandbox, arguments: tuple[str, ...]) -> None:
    """A full disk is no success."""
    if not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here")
    with open("/dev/full", "w") as full:
        result = finish(start(*arguments, sandbox=service, stdout=full))
    assert result.code == 7
    assert result.line.endswith("No space left on device; check the file and its folder")


@pytest.mark.parametrize(
    "arguments", [("catalogue", ENTITY, "--json"), ("catalogue", ENTITY), ("sandbox", "--port", "0")]
)
def test_reader_that_leaves_ends_in_silence(service: Sandbox, arguments: tuple[str, ...]) -> None:
    """Exit code 141 and not a word, as with other tools."""
    reader, writer = os.pipe()
    os.close(reader)
    process = start(*arguments, sandbox=service, stdout=writer)
    os.close(writer)
    result = finish(process)
    assert (result.code, result.err) == (141, "")


def test_ctrl_c_ends_with_130(service: Sandbox) -> None:
    """A request in flight is dropped."""
    service.inject(Hang(operation="limits"))
    before = len(service.log)
    process = start("usage", "--limits", sandbox=service)
    while len(service.log) == before:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    result = finish(process)
    assert (result.code, result.out, result.err) == (130, "", "")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell that closes streams")
@pytest.mark.parametrize(("closing", "entity", "code"), [(">&-", ENTITY, 0), ("2>&-", UNKNOWN_ID, 4)])
def test_closed_streams_lose_their_text(service: Sandbox, closing: str, entity: str, code: int) -> None:
    """The exit code says the rest."""
    command = f'exec "$0" -m asyncfin catalogue --publication {entity} {closing}'
    done = subprocess.run(
        ["/bin/sh", "-c", command, sys.executable], capture_output=True, text=True, env=environment(service)
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_pipe_gets_utf_8_without_colours(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the locale and the width of the terminal are."""
    monkeypatch.setenv("COLUMNS", "20")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    printed = command("query", ENTITY).out
    pipe = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe, encoding="ascii", newline="\n"))
    assert run(["query", ENTITY]) == 0
    out = pipe.getvalue().decode()
    assert "─" in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) > 60
    assert out == printed


@pytest.mark.parametrize(
    ("name", "way"),
    [
        ("cyclopts", "import asyncfin.cli"),
        ("rich", "import runpy; runpy.run_module('asyncfin', run_name='__main__')"),
    ],
)
def test_a_bare_install_names_the_extra(name: str, way: str) -> None:
    """Without the libraries of the extra, one line says what to install; exit code 2."""
    code = f"import sys; sys.modules[{name!r}] = None; {way}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert 'pip install "asyncfin[cli]"' in done.stderr


def test_token_file_may_be_standard_input(service: Sandbox) -> None:
    """`--token-file -` reads the first line of standard input, as it would of a file."""
    process = start(
        "usage", "--limits", "--base-url", service.base_url, "--token-file", "-", stdin=subprocess.PIPE
    )
    out, err = process.communicate(f"\ufeff{service.token}\n", timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "credits" in out


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGINT to send on Windows")
@pytest.mark.parametrize(
    "arguments",
    [("usage", "--limits", "--token-file", "-"), ("extract", "--into", "night", "--ids", "-")],
    ids=["token", "ids"],
)
def test_ctrl_c_ends_reading_standard_input(service: Sandbox, arguments: tuple[str, ...]) -> None:
    """The first one, with exit code 130 and not a word."""
    if "extract" in arguments:
        pytest.importorskip("pyarrow")
    reading, writing = os.pipe()
    process = start(*arguments, sandbox=service, stdin=reading)
    os.write(writing, b"what is read first")
    while _unread(reading):
        assert process.poll() is None
        time.sleep(0.01)
    os.close(reading)
    process.send_signal(signal.SIGINT)
    try:
        assert finish(process) == (130, "", "")
    finally:
        process.kill()
        os.close(writing)


def _unread(pipe: int) -> int:
    """Return how many bytes of a pipe are unread."""
    import fcntl
    import termios

    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.mark.parametrize(
    ("renews", "cache", "account", "code"),
    [
        (True, "", "", 0),
        (False, "", "", 3),
        (True, "cache", "", 3),
        (True, "cache", "desk", 0),
    ],
)
def test_rejected_token_file_is_read_again(
    renews: bool,
    cache: str,
    account: str,
    code: int,
    command: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A token that was renewed during the command is used; if it is the same, the command ends with 3.

    A cache without an account belongs to the token that it is given, which stays.
    """
    monkeypatch.setenv("ASYNCFIN_CACHE", str(tmp_path / cache) if cache else "")
    monkeypatch.setenv("ASYNCFIN_ACCOUNT", account)
    path, tokens, agents = tmp_path / "token", list[str](), list[str]()
    path.write_text("old-token")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            token = self.headers["Authorization"].removeprefix("Bearer ")
            tokens.append(token)
            agents.append(self.headers["User-Agent"])
            if renews:
                path.write_text("new-token")
            self.send_response(200 if token == "new-token" else 401)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: Any) -> None:
            pass

    monkeypatch.setenv("ASYNCFIN_USER_AGENT", "acme/1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert command("usage", "--limits", "--base-url", url, "--token-file", str(path)).code == code
        server.shutdown()
    assert tokens[0] == "old-token"
    assert ("new-token" in tokens) == (code == 0)
    assert len(tokens) <= 2
    assert all(each.startswith("acme/1 asyncfin/") for each in agents)
