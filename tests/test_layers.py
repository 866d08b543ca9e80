"""Imports run only downwards (see CONTRIBUTING.md), and each foreign library has its rooms."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import asyncfin

ROOT = Path(asyncfin.__file__).parent
INDEPENDENT = Path(__file__).parent / "services" / "independent.py"
# The tower, lowest first. `telemetry` and `pytest_plugin` are next to `cli`; the sandbox is separate.
TOWER = [
    "clock",
    "errors",
    "html",
    "deprecation",
    "optional",
    "checks",
    "names",
    "tasks",
    "local",
    "redis",
    "events",
    "model",
    "pacing",
    "wire",
    "table",
    "analysis",
    "cache",
    "plan",
    "read",
    "client",
    "extraction",
    "conformance",
    "web",
    "mcp",
    "cli",
]
BESIDE_CLI = ["telemetry", "typing", "pytest_plugin", "__init__", "__main__"]
MODULES = sorted(ROOT.rglob("*.py"))


def room(module: str) -> str:
    """Return the room of a dotted module name below the package: its first part."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def dotted(path: Path) -> str:
    parts = ["asyncfin", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Return every imported module of a file, those inside functions too."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            modules = [alias.name for alias in node.names if is_module(f"{node.module}.{alias.name}")]
            # `from asyncfin import checks` imports a module of the ground, and nothing of the package's face.
            if node.module != "asyncfin" or len(modules) < len(node.names):
                yield node.module or ""
            yield from (f"{node.module}.{name}" for name in modules)


def is_module(name: str) -> bool:
    """Return whether a dotted name is a module of the package."""
    path = ROOT.parent / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def level(module: str) -> int:
    name = room(module)
    return TOWER.index(name) if name in TOWER else len(TOWER)


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_a_module_imports_only_from_its_own_room_and_those_below(path: Path) -> None:
    """No import runs upwards, and the sandbox and the client do not know each other."""
    here = dotted(path)
    for name in imports(path):
        if not name.startswith("asyncfin"):
            continue
        if room(here) == "sandbox":
            assert room(name) == "sandbox", f"{here} imports {name}"
        elif room(name) == "sandbox" and room(here) != "__init__":
            assert room(here) in ("cli", "pytest_plugin"), f"{here} imports {name}"
        elif room(here) not in BESIDE_CLI:
            assert level(name) <= level(here), f"{here} imports {name}"
            assert {room(here), room(name)} != {"cache", "plan"}, f"{here} imports {name}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """The imports between modules, within a room too, have no cycle."""
    known = {dotted(path): path for path in MODULES}
    edges = {name: {each for each in imports(path) if each in known} - {name} for name, path in known.items()}
    edges = {
        name: {each for each in found if not name.startswith(f"{each}.")} for name, found in edges.items()
    }
    while leaves := {name for name, found in edges.items() if not found}:
        edges = {name: found - leaves for name, found in edges.items() if name not in leaves}
    assert not edges, f"cycle among {sorted(edges)}"


ROOMS = {
    "aiohttp": {"wire/transport.py", "wire/connection.py", "sandbox"},
    "obstore": {"extraction"},
    "pyarrow": {"model/frame.py", "table", "analysis", "extraction", "cli"},
    "pandas": {"model/frame.py", "table", "analysis", "extraction", "cli"},
    "polars": {"model/frame.py", "table", "analysis", "extraction", "cli"},
    "numpy": {"table", "analysis", "extraction", "cli"},
    "matplotlib": {"table", "cli"},
    "rich": {"cli"},
    "cyclopts": {"cli"},
    "pytest": {"pytest_plugin.py"},
    "opentelemetry": {"telemetry.py"},
    "redis": {"redis.py", "cache/redis.py", "pacing/redis.py"},
    "sqlite3": {"cache/database.py", "cache/file.py", "extraction", "sandbox"},
    # SECURITY.md: what is read from a file or a server runs no code.
    **{name: set[str]() for name in ("pickle", "marshal", "shelve")},
}


def test_the_rooms_above_the_client_read_no_private_attribute_of_it() -> None:
    """What they need beyond the public methods is in `reads_of(client)`."""
    of_client = {
        node.attr
        for node in ast.walk(ast.parse((ROOT / "client.py").read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }
    private = {name for name in of_client if name.startswith("_")}
    assert "_reads" in private
    for path in MODULES:
        if room(here := dotted(path)) not in ("extraction", "conformance", "cli", "web", "mcp"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in private:
                own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                assert own, f"{here} reads {node.attr} of {ast.unparse(node.value)}"


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_foreign_libraries_stay_in_their_rooms(path: Path) -> None:
    """aiohttp is confined to the transport and the sandbox, frame libraries to the tables, and so on."""
    place = path.relative_to(ROOT)
    for name in imports(path):
        allowed = ROOMS.get(name.split(".")[0])
        if allowed is not None:
            assert str(place) in allowed or place.parts[0] in allowed, f"{place} imports {name}"


def test_only_one_module_writes_markup() -> None:
    """It escapes every text; the explorer's markup is in its templates."""
    tag = re.compile(r"<(?:/|(?:a|b|div|p|pre|span|style|table|tbody|td|th|thead|tr)\b)")
    assert [str(path.relative_to(ROOT)) for path in MODULES if tag.search(path.read_text())] == ["html.py"]


def test_the_oracle_imports_nothing_of_the_library() -> None:
    """It would share the library's misreadings of the spec."""
    assert "aiohttp" in {name.split(".")[0] for name in imports(INDEPENDENT)}
    assert not [name for name in imports(INDEPENDENT) if name.startswith(("asyncfin", "tests"))]
