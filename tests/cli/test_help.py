"""Every command explains itself, and docs/cli.md keeps up with them."""

import re
import subprocess
import sys
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from pkgutil import resolve_name

import pytest

from asyncfin.cli.app import COMMANDS, NAMES as BY_COMMAND
from asyncfin.extraction.exit import Exit
from tests.cli.conftest import ENTITY, Command, environment

NAMES = list(BY_COMMAND.values())
COMMAND_PATHS = {name: path for path, name in BY_COMMAND.items()}


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 80 columns cyclopts cuts long names of options."""
    monkeypatch.setenv("COLUMNS", "200")


def test_help_of_each_command(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has an example that can be typed, and names no file of the documentation.

    A terminal that is wide enough shows the description of each option in one line.
    """
    faults = []
    monkeypatch.setenv("COLUMNS", "400")
    for name in NAMES:
        result = command(name, "--help")
        if result.code or not re.search(rf"^  asyncfin {name}\b", result.out, re.MULTILINE):
            faults.append(f"{name} has no example")
        if "docs/" in result.out:
            faults.append(f"{name} names the documentation, which is no part of the package")
        if re.findall(r"^│ {12,}\S.*", result.out, re.MULTILINE):
            faults.append(f"{name} breaks a line")
    assert not faults


def test_help_may_follow_other_words(command: Command) -> None:
    """As at the end of a long line; the word that is wrong before it does not matter."""
    assert command("query", "apple", "--annual", "-h").out == command("query", "--help").out


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_commands_are_listed(command: Command, arguments: tuple[str, ...]) -> None:
    """Without a command the list of commands is shown, with a line for each, and the exit codes."""
    result = command(*arguments)
    assert result.code == 0
    for name in NAMES:
        assert re.search(rf"│ {name} +\w+", result.out)
    for code in Exit:
        assert re.search(rf"\b{code}  \w", result.out)


@pytest.mark.parametrize(
    ("command", "line"), [entry for group in COMMANDS.values() for entry in group.items()]
)
def test_list_repeats_first_lines_of_help(command: str, line: str) -> None:
    """The line that the list repeats is the one that the command's own help starts with."""
    module, _, name = command.partition(":")
    documented = getattr(import_module(f"asyncfin.cli.{module}"), name).__doc__
    assert line == documented.partition("\n")[0]


def test_the_help_fits_eighty_columns(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is wrapped: the text before the list of commands is as it was written."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = command("--help").out.splitlines()
    text = [line for line in lines if line[:1] not in ("│", "╭", "╰")]
    monkeypatch.setenv("COLUMNS", "200")
    assert text == [line for line in command("--help").out.splitlines() if line[:1] not in ("│", "╭", "╰")]
    assert not [line for line in lines if re.match(r"│ {12,}\S", line)]
    for name in NAMES:
        doc = resolve_name(f"asyncfin.cli.{COMMAND_PATHS[name]}").__doc__
        text = cleandoc(doc).partition("\nArgs:")[0]
        assert max(map(len, text.splitlines())) < 80, name


def test_list_of_commands_imports_none() -> None:
    """It is printed at once: neither the client nor HTTP nor the sandbox is imported."""
    code = """
import sys
from asyncfin.cli.app import run

for line in ([], ["--help"], ["-h"], ["--version"]):
    run(line)
print(*sys.modules)
"""
    loaded = set(subprocess.check_output([sys.executable, "-c", code], text=True).split())
    assert "asyncfin.cli.app" in loaded
    assert not loaded & {"aiohttp", "msgspec", "asyncfin.client", "asyncfin.sandbox"}
    assert not loaded & {f"asyncfin.cli.{command.partition(':')[0]}" for command in BY_COMMAND}


def test_version_is_that_of_package(command: Command) -> None:
    """`asyncfin --version` prints it and nothing else."""
    assert re.fullmatch(r"\S+\n", command("--version").out)


HELP = ["--help", "--version", *(f"{name} --help" for name in NAMES)]
# Each is wrong by itself, without a look at the service.
WRONG_USAGE = [
    "queri",
    "query apple",
    f"query {ENTITY} --last 5",
    f"query {ENTITY}",
    f"catalogue --search words {ENTITY}",
    f"extract {ENTITY} --into here",
    f"record {ENTITY} --into here",
    "usage --limits",
    f"names {ENTITY} --into no/such/names.csv",
    f"mcp {ENTITY}",
    f"explore {ENTITY}",
    "changes folder --last --since 2026-01-01",
]


def test_help_and_mistakes_import_no_client(tmp_path: Path) -> None:
    """Help does without tables and event loops too: they would take as long as the help itself."""
    code = """
import sys
from asyncfin.cli.app import run

libraries = {"aiohttp", "asyncfin.client", "asyncio", "pyarrow", "asyncfin.table.panel"}
for line in sys.argv[1:]:
    code = run(line.split())
    imported = libraries & {*sys.modules}
    print(line, code, *sorted(imported), sep="|")
    libraries -= {"asyncio", "pyarrow", "asyncfin.table.panel"} if line == "queri" else set()
"""
    lines = [*HELP, *WRONG_USAGE]
    child = subprocess.run(
        [sys.executable, "-c", code, *lines], env=environment(), capture_output=True, text=True, cwd=tmp_path
    )
    assert child.returncode == 0, child.stderr
    ended = [line for line in child.stdout.splitlines() if line.partition("|")[0] in lines]
    assert ended == [f"{line}|{0 if line in HELP else 2}" for line in lines]
    assert not [*tmp_path.iterdir()]
