"""What `import asyncfin` brings in: its sorted names, and none of the optional libraries."""

import ast
import importlib
import importlib.metadata
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import asyncfin
import asyncfin.typing

OPTIONAL = [
    "cyclopts",
    "matplotlib",
    "numpy",
    "opentelemetry",
    "pandas",
    "polars",
    "pyarrow",
    "redis",
    "rich",
]
APART = ["asyncfin.sandbox", "asyncfin.cli", "asyncfin.extraction", "asyncfin.telemetry", "cattrs"]


def child(code: str) -> str:
    """Return what a new interpreter prints."""
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.fixture(scope="module")
def imported() -> set[str]:
    """The modules of a new interpreter that has imported the client."""
    return set(child("import sys; from asyncfin import Client; print(*sys.modules)").split())


@pytest.mark.parametrize("name", [*OPTIONAL, *APART])
def test_importing_the_client_leaves_what_is_optional_alone(imported: set[str], name: str) -> None:
    """What is optional, and what few programs use, is imported when it is used."""
    assert "asyncfin.client" in imported
    assert name not in imported


def test_importing_the_package_imports_nothing_else() -> None:
    """A bare import costs nothing, and a misspelt name is an AttributeError."""
    code = "import sys; known = set(sys.modules); import asyncfin; print(*set(sys.modules) - known)"
    assert child(code).split() == ["asyncfin"]
    with pytest.raises(AttributeError, match="module 'asyncfin' has no attribute 'Cliant'"):
        asyncfin.Cliant  # noqa: B018


def test_public_modules_are_attributes_of_the_package() -> None:
    """Public modules are attributes of the package, without a separate import."""
    assert child("import asyncfin; print(asyncfin.errors.SelectionError.__name__)") == "SelectionError\n"
    assert child("import asyncfin; print(asyncfin.sandbox.Sandbox.__name__)") == "Sandbox\n"


def test_the_installed_command_is_that_of_the_module() -> None:
    """`asyncfin`, which the documents use, and `python -m asyncfin`, which tests start."""
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="asyncfin")
    assert script.load() is importlib.import_module("asyncfin.__main__").main


def test_the_package_knows_its_version() -> None:
    """It is that of the installed distribution."""
    assert asyncfin.__version__ == importlib.metadata.version("asyncfin")


def test_the_public_names_are_sorted_and_complete() -> None:
    """`__all__` is in order, each name can be had, and type checkers see the same ones."""
    assert asyncfin.__all__ == sorted(asyncfin.__all__)
    assert list(asyncfin._MODULES) == asyncfin.__all__
    assert set(asyncfin.__all__) <= set(dir(asyncfin))
    for name in asyncfin.__all__:
        assert getattr(asyncfin, name) is getattr(sys.modules[asyncfin._MODULES[name]], name)
    tree = ast.parse(Path(asyncfin.__file__).read_text())
    static = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("asyncfin")
        for alias in node.names
    }
    assert static == asyncfin._MODULES | dict.fromkeys(asyncfin._PUBLIC_MODULES, "asyncfin")


@pytest.mark.parametrize("module", ["asyncfin", "asyncfin.typing", "asyncfin.events", "asyncfin.errors"])
def test_help_renders(module: str) -> None:
    """help() of the package renders all its public classes, on every Python."""
    text = pydoc.render_doc(importlib.import_module(module), renderer=pydoc.plaintext)
    assert module in text
    for name in getattr(importlib.import_module(module), "__all__", ()):
        assert name in text


def test_types_have_one_public_address() -> None:
    """They have one public address."""
    assert {"PeriodSelection", "ValueVersion", "Lane", "OnProgress", "Layout"} <= set(asyncfin.typing.__all__)


@pytest.mark.parametrize("module", ["asyncfin", "asyncfin.typing", "asyncfin.web"])
def test_the_program_for_type_checkers_uses_every_public_name(module: str) -> None:
    """What it does not import, no type checker looks at."""
    program = ast.parse((Path(__file__).parent / "typing" / "program.py").read_text())
    imported = {
        alias.name
        for node in ast.walk(program)
        if isinstance(node, ast.ImportFrom) and node.module == module
        for alias in node.names
    }
    assert imported == set(importlib.import_module(module).__all__)
