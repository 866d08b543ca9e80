"""The documents say what is true: their Python and console blocks run and print what they say."""

import doctest
import importlib
import pkgutil
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest

import asyncfin
from asyncfin.cli.app import run
from asyncfin.sandbox import Sandbox
from tests.cli.conftest import set_environment

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(code, output, id=f"{path.name}-{number}")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for number, (code, output) in enumerate(BLOCK.findall(path.read_text()), 1)
]
CONSOLE = re.compile(r"^```console\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
SESSIONS = [
    pytest.param(text, id=f"{path.name}-{number}")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for number, text in enumerate(CONSOLE.findall(path.read_text()), 1)
    if "$ asyncfin sandbox" not in text  # it runs until it is interrupted
]
# Some pages of docs/ only include one of the other files.
PAGES = [
    *("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "benchmarks/RESULTS.md"),
    *(
        str(path.relative_to(ROOT))
        for folder in ("", "how", "reference")
        for path in sorted((ROOT / "docs" / folder).glob("*.md"))
        if path.name != "index.md" and "```{include}" not in path.read_text()
    ),
]
# Importing these needs an extra, or starts a program.
APART = ("asyncfin.__main__",)
MODULES = [name for _, name, _ in pkgutil.walk_packages(asyncfin.__path__, "asyncfin.") if name not in APART]


def _execute(code: str) -> None:
    """Run a program in this process: a child would import the library and a frame library again."""
    exec(compile(code, "a block of the documents", "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize(("code", "output"), BLOCKS)
def test_a_python_block_runs_and_prints_the_text_below_it(
    code: str,
    output: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every block is a separate program, and its output is the text block that follows it."""
    monkeypatch.chdir(tmp_path)
    set_environment(monkeypatch)
    if "to_excel" in code:
        pytest.importorskip("openpyxl")
    _execute(code)
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
    if output:
        assert capsys.readouterr().out == output


@pytest.mark.parametrize("text", SESSIONS)
def test_a_console_block_prints_what_it_shows(
    text: str,
    asyncfin_sandbox: Sandbox,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its commands are run one after another against the sandbox; `...` matches any output.

    They run in this process: a shell would import the library again for every command.
    """
    monkeypatch.chdir(tmp_path)
    set_environment(monkeypatch, asyncfin_sandbox)
    lines = text.splitlines()
    shown = "\n".join(line for line in lines if not line.startswith("$ "))
    for line in lines:
        if line.startswith("$ "):
            program, *arguments = shlex.split(line.removeprefix("$ "))
            if program == "export":
                monkeypatch.setenv(*arguments[0].split("=", 1))
            else:
                assert program == "asyncfin", line
                assert run(arguments) == 0, capsys.readouterr().err
    printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS), printed


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_run(name: str) -> None:
    """What a docstring shows is what happens."""
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_the_readme_s_extraction_runs_again_and_with_another_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second time nothing has changed; another `last` takes the folder over."""
    monkeypatch.chdir(tmp_path)
    set_environment(monkeypatch)
    text = (ROOT / "README.md").read_text()
    code = next(
        code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if 'to="revenue"' in code
    )
    said = []
    for each in (code, code, code.replace("last=3", "last=2")):
        _execute(each)
        said.append(capsys.readouterr().out.splitlines()[0])
    assert said == ["3 entities, 10 requests", "3 entities, 3 requests", "3 entities, 10 requests"]


def test_the_readme_names_each_extra_and_all_has_all_but_mcp() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    (every,) = extras.pop("all")
    assert set(every.removeprefix("asyncfin[").removesuffix("]").split(",")) == extras.keys() - {"mcp"}
    said = (ROOT / "README.md").read_text().partition("Extras add the rest")[2].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", said)) == {*extras, "all"}
    assert "`all` for all of these but `mcp`" in said


@pytest.mark.parametrize("page", PAGES)
def test_a_page_says_in_its_first_two_lines_whom_it_is_for(page: str) -> None:
    """A reader decides there whether to read on."""
    first = (ROOT / page).read_text().split("\n\n")[1].splitlines()[:2]
    assert re.search(r"\bFor (\w+ )*\w+", " ".join(first)), first


def test_the_picture_of_a_query_names_what_is_there() -> None:
    """Every call that CONTRIBUTING draws is a function or class of the module that it names."""
    drawn = (ROOT / "CONTRIBUTING.md").read_text().partition("## How a query runs")[2].partition("\n## ")[0]
    calls, module = [], ""
    for line in re.findall(r"^    (.*)", drawn, re.MULTILINE):
        name, *rest = line.split()
        # A line without a module is of the one before it.
        if (match := re.fullmatch(r"([\w/]+)\.py", rest[0])) is not None:
            module = match[1].replace("/", ".")
        calls.append((module, name))
    assert len(calls) > 20
    for module, name in calls:
        found = importlib.import_module(f"asyncfin.{module}")
        for part in name.split("."):
            found = getattr(found, part)


def test_every_room_has_its_folder_of_tests() -> None:
    """CONTRIBUTING names those of ground, client and sandbox; every other room has the one of its name."""
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## Tests")[2].partition("## Conventions")[0]
    named = set(re.findall(r"`(tests/[a-z]+)`", table))
    rooms = {f"tests/{path.parent.name}" for path in (ROOT / "asyncfin").glob("*/__init__.py")}
    assert len(named) > 6
    assert len(rooms) > 12
    assert not [room for room in named | rooms if not list((ROOT / room).glob("test_*.py"))]
