"""The documents are true: their Python and console blocks run and print what they show."""

import doctest
import importlib
import itertools
import pkgutil
import re
import shlex
import sys
import tomllib
import traceback
from pathlib import Path

import pytest

import asyncfin
from asyncfin.cli.app import run
from asyncfin.sandbox import Sandbox
from tests.cli.conftest import set_environment
from tests.conftest import MORE, reset_process

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
CONSOLE = re.compile(r"^```console\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


# Each page imports and starts what a reader of it would.
@pytest.mark.timeout(600)
def test_python_blocks_print_what_they_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every block is a separate program; the text block that follows it is its output."""
    set_environment(monkeypatch)
    faults = []
    for page in PAGES:
        for number, (code, output) in enumerate(BLOCK.findall(page.read_text()), 1):
            folder = tmp_path / f"{page.name}-{number}"
            folder.mkdir()
            reset_process()
            with monkeypatch.context() as patch:
                patch.chdir(folder)
                try:
                    exec(compile(code, folder.name, "exec"), {"__name__": "__main__"})
                except Exception:
                    faults.append(f"{folder.name}: {traceback.format_exc()}")
            printed = capsys.readouterr().out
            if output and printed != output:
                faults.append(f"{folder.name} prints:\n{printed}")
            if "matplotlib.pyplot" in sys.modules:
                sys.modules["matplotlib.pyplot"].close("all")
    assert not faults, "\n\n".join(faults)


def test_console_blocks_print_what_they_show(
    asyncfin_sandbox: Sandbox,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Their commands run one after another against the sandbox; `...` matches any output.

    They run in this process: a shell would import the library again for every command.
    """
    faults = []
    for page in PAGES:
        for number, text in enumerate(CONSOLE.findall(page.read_text()), 1):
            if "$ asyncfin sandbox" in text:
                continue  # it runs until it is interrupted
            folder = tmp_path / f"{page.name}-{number}"
            folder.mkdir()
            with monkeypatch.context() as patch:
                patch.chdir(folder)
                set_environment(patch, asyncfin_sandbox)
                statuses = run_commands(text, patch)
            shown = "\n".join(line for line in text.splitlines() if not line.startswith("$ "))
            outputs = capsys.readouterr()
            printed = "\n".join(line.rstrip() for line in outputs.out.splitlines())
            if any(statuses) or not doctest.OutputChecker().check_output(shown, printed, doctest.ELLIPSIS):
                faults.append(f"{folder.name} prints:\n{printed}\n{outputs.err}")
    assert not faults, "\n\n".join(faults)


def run_commands(text: str, patch: pytest.MonkeyPatch) -> list[int]:
    """Run the lines of a console block that begin with a prompt, and return their statuses."""
    statuses = []
    for line in text.splitlines():
        if line.startswith("$ "):
            program, *arguments = shlex.split(line.removeprefix("$ "))
            if program == "export":
                patch.setenv(*arguments[0].split("=", 1))
            else:
                assert program == "asyncfin", line
                statuses.append(run(arguments))
    return statuses


def test_examples_in_docstrings_run() -> None:
    """What a docstring shows is what happens."""
    modules = {module.name for module in pkgutil.walk_packages(asyncfin.__path__, "asyncfin.")}
    modules.discard("asyncfin.__main__")  # it is a program
    faults = [name for name in sorted(modules) if doctest.testmod(importlib.import_module(name)).failed]
    assert not faults


def test_readme_names_each_extra() -> None:
    """`all` has all but `mcp`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    (every,) = extras.pop("all")
    assert set(every.removeprefix("asyncfin[").removesuffix("]").split(",")) == extras.keys() - {"mcp"}
    readme = (ROOT / "README.md").read_text()
    assert not [name for name in (*extras, "all") if f"`{name}`" not in readme]


def test_picture_of_a_query_names_functions() -> None:
    """Every call that internals.md draws is a function or class of the module that it names."""
    drawing = (
        (ROOT / "docs" / "how" / "internals.md")
        .read_text()
        .partition("## How a query runs")[2]
        .partition("\n## ")[0]
    )
    module, faults = "", []
    for line in re.findall(r"^    (.*)", drawing, re.MULTILINE):
        name, *words = line.split()
        # A line without a module is of the one before it.
        if match := re.fullmatch(r"([\w/]+)\.py", words[0]):
            module = match[1].replace("/", ".")
        try:
            part: object = importlib.import_module(f"asyncfin.{module}")
            for attribute in name.split("."):
                part = getattr(part, attribute)
        except (ImportError, AttributeError) as error:
            faults.append(f"{module}: {error}")
    assert not faults


def test_sessions_name_files_that_exist() -> None:
    """Of noxfile.py: paths, and modules that are run with `-m`."""
    text = (ROOT / "noxfile.py").read_text()
    paths = re.findall(r'"((?:tests|tools|docs|examples)/[\w./]+)"', text)
    modules = re.findall(r'"((?:tests|tools|benchmarks)\.[\w.]+)"', text)
    paths += [f"{name.replace('.', '/')}.py" for name in modules]
    assert len(paths) > 15
    assert not [path for path in paths if "_build" not in path and not (ROOT / path).exists()]


def test_tests_that_are_left_out_exist() -> None:
    """What `nox -s tests` leaves out by paths, parts of names and fixtures."""
    tests = ROOT / "tests"
    names = [name for path in tests.rglob("*.py") for name in re.findall(r"\bdef (\w+)", path.read_text())]
    for part in itertools.chain.from_iterable(MORE.values()):
        assert (tests / part).exists() or any(part in name for name in names), part


def test_rooms_have_their_folder_of_tests() -> None:
    rooms = {path.parent.name for path in (ROOT / "asyncfin").glob("*/__init__.py")} | {"ground", "client"}
    assert not [room for room in sorted(rooms) if not list((ROOT / "tests" / room).glob("test_*.py"))]
