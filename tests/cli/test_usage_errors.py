"""Wrong usage: one line that names what is wrong and what would be right, and exit code 2."""

import re
import sys
from pathlib import Path

import pytest

from asyncfin.sandbox import Sandbox
from tests.cli.conftest import ENTITY, RATIOS_ENTITY, Command, finish, start


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["query", ENTITY, "--metric", "Revenu"], "--metric: Example [AG] ("),
        (["query", ENTITY, "--basis", "consolidate"], "; `asyncfin catalogue` shows what can be asked for"),
        (
            ["query", ENTITY, RATIOS_ENTITY, "--metric", "Revenu"],
            "--metric: no entity has the metric 'Revenu'",
        ),
    ],
)
def test_unknown_ids_are_one_line(
    command: Command, service: Sandbox, arguments: list[str], said: str
) -> None:
    """Exit code 2, nothing on standard output, and no query was spent."""
    before = len(service.log)
    result = command(*arguments)
    assert (result.code, result.out) == (2, "")
    assert said in result.line
    assert result.line.startswith("asyncfin: ")
    assert "query" not in {served.operation for served in service.log[before:]}


@pytest.mark.parametrize(
    ("arguments", "package", "extra"),
    [
        (("extract", ENTITY, "--into", "night"), "pyarrow", "arrow"),
        (("extract", ENTITY, "--into", "s3://bucket/night"), "obstore", "store"),
        (("mcp", ENTITY), "mcp", "mcp"),
        (("explore", ENTITY), "uvicorn", "web"),
    ],
)
def test_missing_extra_is_named_before_request(
    command: Command,
    service: Sandbox,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    package: str,
    extra: str,
) -> None:
    """The line says what to install."""
    # Other tests of this process have imported it.
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    before = len(service.log)
    result = command(*arguments)
    assert (result.code, len(service.log)) == (2, before)
    assert f"{package} is not installed: pip install 'asyncfin[{extra}]'" in result.line


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (f"# all\n\n{ENTITY}\n..  # a folder\n", ", line 4: no entity has the name '..': give its id"),
        ("# none yet\n\n", " contains no entity ids (one per line)"),
    ],
)
def test_wrong_line_of_ids_is_named(command: Command, tmp_path: Path, content: str, said: str) -> None:
    """Among thousands of lines it would be hard to find."""
    pytest.importorskip("pyarrow")
    ids = tmp_path / "ids.txt"
    ids.write_text(content)
    result = command("extract", "--ids", str(ids), "--into", str(tmp_path / "night"))
    assert result.code == 2
    assert result.line.startswith(f"asyncfin: --ids {ids}{said}")


@pytest.mark.parametrize("missing", ["ASYNCFIN_BASE_URL", "ASYNCFIN_TOKEN"])
def test_a_missing_environment_variable_is_named(
    command: Command, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """The line says which variable to set, and its option."""
    monkeypatch.delenv(missing)
    result = command("usage", "--limits")
    assert result.code == 2
    assert re.search(rf"set {missing} or give --(base-url|token-file)", result.line)


@pytest.mark.skipif(sys.platform == "win32", reason="arguments are text on Windows")
def test_bytes_in_arguments_are_printed(service: Sandbox) -> None:
    """Standard error of a process may have any encoding."""
    result = finish(start(b"\xff", sandbox=service))
    assert (result.code, "arguments must be text in UTF-8" in result.line) == (2, True)


def test_misplaced_token_is_not_printed(command: Command, service: Sandbox) -> None:
    """`--token-file TOKEN` is an easy slip, and terminals and logs keep what is printed."""
    for wrong in (service.token, "x" * 5000, "secret/part"):
        result = command("usage", "--limits", "--token-file", wrong)
        assert result.code == 2
        assert result.line.startswith("asyncfin: --token-file can't be read (")
        assert wrong not in result.err


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("ASYNCFIN_TOKEN", "Bearer abc", "without the word Bearer"),
        ("ASYNCFIN_TOKEN", "abc\n", "without spaces"),
        ("ASYNCFIN_BASE_URL", "abc.example", "ASYNCFIN_BASE_URL must be https://host"),
    ],
)
def test_malformed_variable_costs_no_request(
    command: Command, service: Sandbox, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    """A token in a wrong form would be a 401 that says nothing, so it is rejected first, and not printed."""
    monkeypatch.setenv(variable, value)
    before = len(service.log)
    result = command("usage", "--limits")
    assert (result.code, len(service.log)) == (2, before)
    assert said in result.line
    assert "abc" not in result.err


def test_remote_http_needs_an_option(command: Command, service: Sandbox) -> None:
    """0.0.0.0 is no name of this machine for certain, though it leads there."""
    address = service.base_url.replace("127.0.0.1", "0.0.0.0")
    assert command("catalogue", "--publication", ENTITY, "--base-url", address).code == 2
    result = command("catalogue", "--publication", ENTITY, "--base-url", address, "--allow-http")
    assert (result.code, ENTITY in result.out) == (0, True)
    assert result.line == f"asyncfin: {address} is not encrypted: anyone in between can read the token"
