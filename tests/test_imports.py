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

# What is optional, and what few programs use, is imported when it is used.
LAZY = {
    *("cyclopts", "matplotlib", "numpy", "opentelemetry", "pandas", "polars", "pyarrow", "redis", "rich"),
    *("asyncfin.sandbox", "asyncfin.cli", "asyncfin.extraction", "asyncfin.telemetry", "cattrs"),
}
STEPS = """
import sys
before = set(sys.modules)
import asyncfin
print(*set(sys.modules) - before)
from asyncfin import Client
print(*sys.modules)
print(asyncfin.errors.SelectionError.__name__, asyncfin.sandbox.Sandbox.__name__)
"""


def test_imports_load_what_is_used() -> None:
    """A bare import costs nothing, a client only what it needs; public modules are attributes."""
    run = subprocess.run([sys.executable, "-W", "error", "-c", STEPS], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    bare, client, names = run.stdout.splitlines()
    assert bare == "asyncfin"
    assert "asyncfin.client" in client.split()
    assert LAZY.isdisjoint(client.split())
    assert names == "SelectionError Sandbox"


def test_misspelt_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'asyncfin' has no attribute 'Cliant'"):
        asyncfin.Cliant  # noqa: B018


def test_installed_command_is_the_module() -> None:
    """`asyncfin`, which the documents use, and `python -m asyncfin`, which tests start."""
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="asyncfin")
    assert script.load() is importlib.import_module("asyncfin.__main__").main


def test_the_package_knows_its_version() -> None:
    """It is that of the installed distribution."""
    assert asyncfin.__version__ == importlib.metadata.version("asyncfin")


def test_public_names_are_sorted_and_complete() -> None:
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


@pytest.mark.parametrize("module", ["asyncfin", "asyncfin.typing", "asyncfin.web"])
def test_type_checked_program_uses_all_names(module: str) -> None:
    """What it does not use, no type checker looks at."""
    program = ast.parse((Path(__file__).parent / "typing" / "program.py").read_text())
    name = {"asyncfin.typing": "types"}.get(module, module)
    used: set[str] = set()
    for node in ast.walk(program):
        if isinstance(node, ast.ImportFrom) and node.module == module:
            used.update(alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == name:
            used.add(node.attr)
    assert used >= set(importlib.import_module(module).__all__)
