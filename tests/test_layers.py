"""Imports run only downwards (see docs/how/internals.md), and each foreign library has its rooms."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import asyncfin

ROOT = Path(asyncfin.__file__).parent
INDEPENDENT = Path(__file__).parent / "services" / "independent.py"
# The tower, lowest first. `telemetry` and `pytest_plugin` are next to `cli`; the sandbox is separate.
TOWER = [
    "clock",
    "errors",
    "html",
    "csv",
    "text",
    "words",
    "suggest",
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
    "cache",
    "plan",
    "read",
    "client",
    "analysis",
    "extraction",
    "conformance",
    "web",
    "mcp",
    "cli",
]
GROUND = [*TOWER[: TOWER.index("model")], "typing"]
PROGRAMS = ("analysis", "extraction", "conformance", "telemetry", "web", "mcp", "cli")
BESIDE_CLI = ["telemetry", "typing", "pytest_plugin", "__init__", "__main__"]
MODULES = sorted(ROOT.rglob("*.py"))
# The module of each public name.
PUBLIC = {name: getattr(asyncfin, name).__module__ for name in asyncfin.__all__}
TYPES = {
    alias.name: node.module or ""
    for node in ast.walk(ast.parse((ROOT / "typing.py").read_text()))
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}


def room(module: str) -> str:
    """Return the room of a dotted module name below the package: its first part."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def dotted(path: Path) -> str:
    parts = ["asyncfin", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports(path: Path, *, public: bool = True) -> tuple[str, ...]:
    """Return every imported module of a file, those inside functions too.

    Of ``from asyncfin import Client``, and of names of `asyncfin.typing`, that is the module of the name;
    without `public` such are left out.
    """
    return tuple(_imports(path, public))


def _imports(path: Path, public: bool) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            modules = [alias.name for alias in node.names if is_module(f"{node.module}.{alias.name}")]
            if node.module == "asyncfin":
                names = {alias.name for alias in node.names}.intersection(asyncfin.__all__)
                yield from (PUBLIC[name] for name in names if public)
            elif node.module == "asyncfin.typing":
                yield from (TYPES[alias.name] for alias in node.names if public)
            else:
                yield node.module or ""
            yield from (f"{node.module}.{name}" for name in modules)


def is_module(name: str) -> bool:
    """Return whether a dotted name is a module of the package."""
    path = ROOT.parent / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def level(module: str) -> int:
    name = room(module)
    return TOWER.index(name) if name in TOWER else len(TOWER)


def test_imports_run_downwards() -> None:
    """From a room to itself and those below; the sandbox and the client do not know each other."""
    faults = [
        f"{importer} imports {name}"
        for path in MODULES
        for importer in [dotted(path)]
        for name in imports(path)
        if name.startswith("asyncfin") and not may_import(room(importer), room(name))
    ]
    assert not faults


def may_import(importer: str, imported: str) -> bool:
    """Return whether a module of one room may import one of the other."""
    if importer == "sandbox":
        return imported == "sandbox"
    if imported == "sandbox":
        return importer in ("cli", "pytest_plugin", "__init__")
    if importer in BESIDE_CLI:
        return True
    return level(imported) <= level(importer) and {importer, imported} != {"cache", "plan"}


def test_programs_import_public_names() -> None:
    """Of asyncfin, `asyncfin.typing`, the ground, and each other (design 2)."""
    faults = [
        f"{dotted(path)} must not import {name}"
        for path in MODULES
        if room(dotted(path)) in PROGRAMS
        for name in imports(path, public=False)
        if name.startswith("asyncfin.") and room(name) not in (*PROGRAMS, *GROUND, "sandbox")
    ]
    assert not faults


def test_imports_have_no_cycle() -> None:
    """The imports between modules, within a room too, have no cycle."""
    modules = {dotted(path): path for path in MODULES}
    edges = {}
    for name, path in modules.items():
        imported = modules.keys() & set(imports(path))
        edges[name] = {other for other in imported if not f"{name}.".startswith(f"{other}.")}
    while leaves := {name for name, imported in edges.items() if not imported}:
        edges = {name: imported - leaves for name, imported in edges.items() if name not in leaves}
    assert not edges, f"cycle among {sorted(edges)}"


ROOMS = {
    "aiohttp": {"wire/transport.py", "sandbox"},
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
    "sqlite3": {"extraction", "sandbox"},
    # SECURITY.md: what is read from a file or a server runs no code.
    **{name: set[str]() for name in ("pickle", "marshal", "shelve")},
}


def test_programs_read_no_private_attribute() -> None:
    """Of the client they use the public methods only."""
    of_client = {
        node.attr
        for node in ast.walk(ast.parse((ROOT / "client.py").read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }
    private = {name for name in of_client if name.startswith("_")}
    assert "_publications" in private
    for path in MODULES:
        if room(here := dotted(path)) not in PROGRAMS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in private:
                own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                assert own, f"{here} reads {node.attr} of {ast.unparse(node.value)}"


def test_libraries_stay_in_their_rooms() -> None:
    """aiohttp is confined to the transport and the sandbox, frame libraries to the tables, and so on."""
    faults = []
    for path in MODULES:
        place = path.relative_to(ROOT)
        for name in imports(path):
            allowed = ROOMS.get(name.split(".")[0], {str(place)})
            if not allowed & {str(place), place.parts[0]}:
                faults.append(f"{place} imports {name}")
    assert not faults


def test_one_module_writes_markup() -> None:
    """It escapes every text; the explorer's markup is in its templates."""
    tag = re.compile(r"<(?:/|(?:a|b|div|p|pre|span|style|table|tbody|td|th|thead|tr)\b)")
    assert [str(path.relative_to(ROOT)) for path in MODULES if tag.search(path.read_text())] == ["html.py"]


def test_independent_service_imports_no_library() -> None:
    """It would share the library's misreadings of the spec."""
    assert "aiohttp" in {name.split(".")[0] for name in imports(INDEPENDENT)}
    assert not [name for name in imports(INDEPENDENT) if name.startswith(("asyncfin", "tests"))]
