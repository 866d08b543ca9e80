"""A small running service, and two ways to call a command: in this process, and as a separate process."""

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from asyncfin.cli.app import run
from asyncfin.sandbox import Sandbox

ENTITY = "O-" + "0" * 31 + "1"
RATIOS_ENTITY = "O-" + "0" * 31 + "2"
LONG_ENTITY = "O-" + "0" * 31 + "3"
UNKNOWN_ID = "O-" + "f" * 32
ODD_PATH = "company=all|product=a%3Db%7Cc"
HUGE = 2**70
COMPANY = {"scope_group_id": "company", "scope_id": "all"}
ODD = {"scope_group_id": "product", "scope_id": "a=b|c"}


def series(series_id: str, metric_id: str, label: str, *path: dict[str, str]) -> dict[str, Any]:
    return {"series_id": series_id, "metric_id": metric_id, "label": label, "scopes": path or (COMPANY,)}


DOCUMENT = {
    "format": "asyncfin-dataset/1",
    "entity_id": ENTITY,
    "name": "Example [AG]",
    "publications": [
        {
            "dataset_id": "00000000-0000-4000-8000-000000000001",
            "created_timestamp": "2025-02-01T06:00:00Z",
            "periods": [[2022, 12, 12], [2023, 12, 12], [2024, 3, 3], [2024, 12, 12]],
            "scope_groups": [
                {"scope_group_id": "company", "scopes": [{"scope_id": "all"}]},
                {"scope_group_id": "product", "scopes": [{"scope_id": "a=b|c", "name": "Odd"}]},
            ],
            "groups": [
                {
                    "reporting_group_id": "years",
                    "basis": "consolidated",
                    "cadence": "annual",
                    "series": [
                        series("S-1", "Revenue", "Sales of all kinds"),
                        series("S-2", "Debt", "Debt"),
                        series("S-3", "Revenue", "Sales of one kind", COMPANY, ODD),
                    ],
                },
                {
                    "reporting_group_id": "quarters",
                    "basis": "product",
                    "cadence": "quarterly",
                    "series": [series("S-4", "Revenue", "Sales in a quarter")],
                },
            ],
            "values": {
                "S-1": [[0, 1200, 1150], [1, 1300], [3, HUGE]],
                "S-2": [[0, 0], [3, 5]],
                "S-3": [[3, 700]],
                "S-4": [[2, 310]],
            },
        }
    ],
}


def small(
    entity_id: str, name: str, years: range, groups: list[dict[str, Any]], values: Any
) -> dict[str, Any]:
    """A dataset of fiscal years, with the scopes and the identity of the first one's publication."""
    (first,) = DOCUMENT["publications"]
    publication = first | {
        "dataset_id": f"00000000-0000-4000-8000-00000000000{entity_id[-1]}",
        "periods": [[year, 12, 12] for year in years],
        "groups": groups,
        "values": values,
    }
    return DOCUMENT | {"entity_id": entity_id, "name": name, "publications": [publication]}


RATIOS = small(
    RATIOS_ENTITY,
    "Ratios",
    range(2023, 2025),
    [
        {
            "reporting_group_id": "years",
            "basis": "consolidated",
            "cadence": "annual",
            "series": [
                series("S-1", "Revenue", "Sales") | {"description": "Goods sold. Unit: USD."},
                series("S-2", "Revenue", "Sales", COMPANY, ODD),
            ],
        },
        {
            "reporting_group_id": "rates",
            "basis": "consolidated",
            "cadence": "annual",
            "series": [
                series("S-3", "Earnings", "Earnings per share") | {"number_format": "0.00"},
                series("S-4", "TaxRate", "Tax rate") | {"number_format": "0.0%"},
            ],
        },
    ],
    {"S-1": [[1, 1200]], "S-3": [[1, 6.13]], "S-4": [[1, 0.245]]},
)

# 15 years, and a series that ended in the first of them.
LONG = small(
    LONG_ENTITY,
    "Long",
    range(2010, 2025),
    [
        {
            "reporting_group_id": "years",
            "basis": "consolidated",
            "cadence": "annual",
            "series": [series("S-1", "Revenue", "Sales"), series("S-2", "Debt", "Debt")],
        }
    ],
    {"S-1": [[index, 1000 + index] for index in range(15)], "S-2": [[0, 7]]},
)


class Result(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The only line on standard error, without the progress of an extraction."""
        progress = re.compile(r"\d{4}-\d\d-\d\dT[\d:]+Z ")
        (line,) = (line for line in self.err.splitlines() if not progress.match(line))
        return line


Command = Callable[..., Result]


@contextmanager
def serving(*sources: Any) -> Iterator[Sandbox]:
    """Run a sandbox on a separate loop: commands have their own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    sandbox = Sandbox(*sources)
    asyncio.run_coroutine_threadsafe(sandbox.start(), loop).result()
    try:
        yield sandbox
    finally:
        asyncio.run_coroutine_threadsafe(sandbox.aclose(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="session")
def running() -> Iterator[Sandbox]:
    """A sandbox of the small dataset."""
    with serving(DOCUMENT, RATIOS, LONG) as sandbox:
        yield sandbox


@pytest.fixture
def service(running: Sandbox) -> Iterator[Sandbox]:
    """The running sandbox, left without faults."""
    yield running
    running.clear_faults()


def set_environment(monkeypatch: pytest.MonkeyPatch, sandbox: Sandbox | None = None) -> None:
    """Set the environment of this process for commands, with the service in it and nothing else of ours."""
    for name in [name for name in os.environ if name.startswith("ASYNCFIN_")]:
        monkeypatch.delenv(name)
    if sandbox is not None:
        monkeypatch.setenv("ASYNCFIN_BASE_URL", sandbox.base_url)
        monkeypatch.setenv("ASYNCFIN_TOKEN", sandbox.token)


@pytest.fixture
def command(service: Sandbox, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command in this process; the environment names the service."""
    set_environment(monkeypatch, service)

    def call(*arguments: str) -> Result:
        code = run(arguments)
        return Result(code, *capsys.readouterr())

    return call


def environment(sandbox: Sandbox | None = None) -> dict[str, str]:
    """The environment for a process, with the service in it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ASYNCFIN", "COLUMNS"))}
    if sandbox is not None:
        kept |= {"ASYNCFIN_BASE_URL": sandbox.base_url, "ASYNCFIN_TOKEN": sandbox.token}
    return kept


def start(*arguments: str | bytes, sandbox: Sandbox | None = None, **options: Any) -> "subprocess.Popen[str]":
    """Start a command as a process, with pipes for its output."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen(
        [sys.executable, "-m", "asyncfin", *arguments], env=environment(sandbox), encoding="utf-8", **pipes
    )


def finish(process: "subprocess.Popen[str]") -> Result:
    """Wait for a process's end."""
    out, err = process.communicate(timeout=60)
    return Result(process.returncode, out, err)


class Terminal:
    """A command in a pseudo-terminal of 80 columns, or a program given as `-c` and its text."""

    def __init__(self, *arguments: str, sandbox: Sandbox | None = None) -> None:
        import fcntl
        import pty
        import struct
        import termios

        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 80, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, *(("-m", "asyncfin") if arguments[0] != "-c" else ()), *arguments],
            env=environment(sandbox) | {"TERM": "xterm"},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        self.written = b""

    @property
    def shown(self) -> str:
        """All that was written so far, without colours and movements of the cursor."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.written.decode(errors="replace")).replace(
            "\r\n", "\n"
        )

    @property
    def width(self) -> int:
        """The length of the longest line so far, where what was written over counts by itself."""
        return max(len(line.rpartition("\r")[2]) for line in self.shown.splitlines())

    def read_until(self, text: str) -> None:
        """Return when a text was written."""
        while text not in self.shown:
            assert self._read(), self.shown

    def end(self) -> int:
        """Read all that is still written, and return the exit code."""
        while self._read():
            pass
        os.close(self._ours)
        return self.process.wait(timeout=60)

    def _read(self) -> bool:
        try:
            part = os.read(self._ours, 65536)
        except OSError:  # what Linux says at the end of a pseudo-terminal
            return False
        self.written += part
        return bool(part)
