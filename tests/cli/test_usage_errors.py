"""Wrong usage: one line that names what is wrong and what would be right, and exit code 2."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from asyncfin.sandbox import Sandbox
from tests.cli.conftest import ENTITY, RATIOS_ENTITY, Command, finish, start


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["query", ENTITY, "--scope", "company=all|b"], "such as product=iPhone, and 'b' is not"),
        (["catalogue", "--publication", ENTITY, "--nonsense"], "--nonsense"),
        (["query", ENTITY, "--metric", "Revenu"], "--metric: Example [AG] ("),
        (["query", ENTITY, RATIOS_ENTITY, "--metric", "Revenu"], "has --metric 'Revenu'; --metric: Example"),
        (["query", ENTITY, "--trailing", "12", "--from", "2023"], "--from"),
        (["query", ENTITY, "--trailing", "0"], "--trailing must be"),
        (
            ["query", ENTITY, "--metric", "Revenue,Debt"],
            "--metric is repeated: --metric Revenue --metric Debt",
        ),
        (["usage", "--limits", "--base-url", "127.0.0.1:8765"], "http://127.0.0.1 for this machine"),
        (["query", ENTITY, "--from", "0000"], "--from: year must be"),
        (["query", ENTITY, "--to", "2024-Q5"], "--to must be a year, a month such as"),
        (
            ["query", ENTITY, "--from", "FY2024-Q4", "--to", "FY2024-Q3"],
            "--to must not be before --from: FY2024-Q3 is",
        ),
        (["query", ENTITY, "--exact", "FY2024", "--exact", "FY2024"], "--exact: periods must be distinct"),
    ],
)
def test_wrong_usage_is_one_line_that_names_it_before_any_query(
    command: Command, service: Sandbox, arguments: list[str], said: str
) -> None:
    """Exit code 2, nothing on standard output, and no query was spent."""
    before = len(service.log)
    result = command(*arguments)
    assert (result.code, result.out) == (2, "")
    assert said in result.line
    assert result.line.startswith("asyncfin: ")
    assert "query" not in {served.operation for served in service.log[before:]}


SEE_CATALOGUE = "; `asyncfin catalogue` shows what can be asked for"


@pytest.mark.parametrize(
    ("arguments", "unknown"),
    [
        (["query", ENTITY, "--metric", "Revenu"], True),
        (["query", ENTITY, "--basis", "consolidate"], True),
        (["catalogue", ENTITY, "--scope", "company=none"], True),
        (["extract", "O-1", "--into", "night"], False),
        (["query", ENTITY, "--trailing", "0"], False),
        (["usage", "--limits", "--base-url", "http://example.org"], False),
    ],
)
def test_only_unknown_ids_and_words_are_referred_to_the_catalogue(
    command: Command, arguments: list[str], unknown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every other wrong selection says itself what would be right."""
    monkeypatch.chdir(tmp_path)
    result = command(*arguments)
    assert result.code == 2
    assert result.line.endswith(SEE_CATALOGUE) == unknown


@pytest.mark.parametrize(
    ("arguments", "package", "extra"),
    [
        (("query", ENTITY, "--plot", "figure.png"), "matplotlib", "plot"),
        (("extract", ENTITY, "--into", "night"), "pyarrow", "arrow"),
        (("extract", ENTITY, "--into", "s3://bucket/night"), "obstore", "store"),
        (("mcp", ENTITY), "mcp", "mcp"),
        (("explore", ENTITY), "uvicorn", "web"),
    ],
)
def test_a_missing_extra_is_named_before_a_request(
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


def test_standard_input_that_is_no_text_is_refused_as_a_file_of_it_is(service: Sandbox) -> None:
    """Standard input that is not text is refused like such a file, whatever the locale."""
    process = start("usage", "--limits", "--token-file", "-", sandbox=service, stdin=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.buffer.write(b"\xff\n")
    result = finish(process)
    assert result.code == 2
    assert "--token-file - can't be read (it is not text)" in result.line


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (f"# all\n\n{ENTITY}\n..  # a folder\n", ", line 4: entity_id must be an id"),
        ("# none yet\n\n", " contains no entity ids (one per line)"),
    ],
)
def test_a_wrong_file_of_ids_is_named_with_its_wrong_line(
    command: Command, tmp_path: Path, content: str, said: str
) -> None:
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
def test_bytes_that_are_not_text_are_printed_whatever_standard_error_is(service: Sandbox) -> None:
    """Standard error of a process may have any encoding."""
    result = finish(start(b"\xff", sandbox=service))
    assert (result.code, "arguments must be text in UTF-8" in result.line) == (2, True)


def test_a_token_in_the_place_of_its_file_is_not_printed(command: Command, service: Sandbox) -> None:
    """`--token-file TOKEN` is an easy slip, and terminals and logs keep what is printed."""
    for wrong in (service.token, "x" * 5000, "secret/part"):
        result = command("usage", "--limits", "--token-file", wrong)
        assert result.code == 2
        assert result.line.startswith("asyncfin: --token-file can't be read (")
        assert wrong not in result.err


@pytest.mark.parametrize(
    ("token", "said"),
    [("Bearer abc", "without the word Bearer"), ("abc\n", "no blank or line end"), (" abc", "no blank")],
)
def test_a_token_in_a_wrong_form_is_refused_before_a_request(
    command: Command, service: Sandbox, monkeypatch: pytest.MonkeyPatch, token: str, said: str
) -> None:
    """A token in a wrong form would be a 401 that says nothing, so it is refused first, and not printed."""
    monkeypatch.setenv("ASYNCFIN_TOKEN", token)
    before = len(service.log)
    result = command("usage", "--limits")
    assert (result.code, len(service.log)) == (2, before)
    assert said in result.line
    assert "abc" not in result.err


def test_http_to_another_machine_needs_an_option_and_is_warned_of(command: Command, service: Sandbox) -> None:
    """0.0.0.0 is no name of this machine for certain, though it leads there."""
    address = service.base_url.replace("127.0.0.1", "0.0.0.0")
    assert command("catalogue", "--publication", ENTITY, "--base-url", address).code == 2
    result = command("catalogue", "--publication", ENTITY, "--base-url", address, "--allow-http")
    assert (result.code, ENTITY in result.out) == (0, True)
    assert result.line == f"asyncfin: {address} is not encrypted: anyone in between can read the token"
