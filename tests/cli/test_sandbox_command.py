"""`asyncfin sandbox` as a separate process."""

import json
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from asyncfin.client import Client
from asyncfin.sandbox import Sandbox
from tests.cli.conftest import DOCUMENT, ENTITY, Command, finish, start

Served = tuple["subprocess.Popen[str]", str, str]


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    """The name of a dataset file."""
    path = tmp_path / "example.json"
    path.write_text(json.dumps(DOCUMENT))
    return str(path)


@pytest.fixture
def serve(dataset: str) -> Iterator[Callable[..., Served]]:
    """Starts the command on a free port and returns the process, the base URL and the token."""
    processes = []

    def begin(*options: str) -> Served:
        process = start("sandbox", dataset, *options, *(() if "--port" in options else ("--port", "0")))
        processes.append(process)
        line = process.stdout.readline() if process.stdout else ""
        found = re.fullmatch(r"export ASYNCFIN_BASE_URL=(\S+) ASYNCFIN_TOKEN=(\S+)\n", line)
        assert found, f"{line!r}, and {finish(process).err!r}"
        return process, found[1], found[2]

    yield begin
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
async def test_sandbox_serves_until_it_is_ended(serve: Callable[..., Served], ending: signal.Signals) -> None:
    """The printed line is all a client needs; Ctrl-C and a termination signal end the process cleanly."""
    process, base_url, token = serve()
    async with Client(base_url, token) as client:
        assert (await client.dataset(ENTITY)).name == "Example [AG]"
    process.send_signal(ending)
    result = finish(process)
    assert (result.code, result.out) == (0, "")
    assert "Traceback" not in result.err
    assert f"  {ENTITY}  Example [AG]\n" in result.err


async def test_sandbox_has_a_public_url(serve: Callable[..., Served]) -> None:
    """The printed line has the public URL, and the service listens at every address of the machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
    public_url = "http://sandbox.example:8765"
    _, base_url, token = serve("--port", port, "--host", "0.0.0.0", "--public-url", f"{public_url}/")
    assert base_url == public_url
    async with Client(f"http://127.0.0.1:{port}", token) as client:
        assert (await client.dataset(ENTITY)).entity_id == ENTITY


def test_port_in_use_is_one_line(command: Command, service: Sandbox, dataset: str) -> None:
    """The line names the port and says to choose another."""
    port = service.base_url.rpartition(":")[2]
    result = command("sandbox", dataset, "--port", port)
    assert (result.code, result.out) == (2, "")
    assert result.line == f"asyncfin: port {port} of 127.0.0.1 is in use: choose another, or 0 for a free one"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["nowhere.json"], "nowhere.json"),
        (["--port", "70000"], "--port"),
        (["--host", "192.0.2.1"], "192.0.2.1"),
        (["--host", "0.0.0.0"], "--public-url"),
        (["--public-url", "sandbox:8765"], "it must be like http://name:8765"),
        (["--allowance", "-1"], "--allowance"),
    ],
)
def test_wrong_sandbox_options_are_one_line(command: Command, options: list[str], said: str) -> None:
    """Exit code 2, and nothing was served."""
    arguments = options if "--port" in options else [*options, "--port", "0"]
    result = command("sandbox", *arguments)
    assert (result.code, result.out) == (2, "")
    assert said in result.line
    assert "__init__" not in result.line
