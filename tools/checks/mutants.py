"""Plant known defects one at a time: the tests of their room must find each.

    python -m tools.checks.mutants [NAME or ROOM ...] [--changed [BASE]] [--applies]
        [--release] [-- PYTEST OPTIONS]

The defects are in tests/mutants.toml. An entry names a module, a function in it ("" is
the module itself) and what becomes of an expression or of statements there: comments
and layout do not matter, `new = ""` removes the statements, and `old` occurs once in
the function. Or it names a patch, next to the test that finds it. Each defect is
planted in a copy of the project, where `pytest tests/ROOM -x` must fail. The file that
an entry names as `first` runs before the others of its room.

An entry whose code is gone is a warning, and an error with --release. Each room has a
floor: when all its defects are planted, so many must be found. A commit that deletes a
mechanism deletes its entries and states the floor anew. --changed plants only those of
the rooms that differ from BASE, else from where the branch left main. --applies runs no
tests.
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).parents[2]
# No random order: what is found must not depend on it. No cache of results in the copy.
PYTEST = (
    "-m",
    "pytest",
    "-x",
    "-q",
    "--no-header",
    "-p",
    "no:randomly",
    "-p",
    "no:cacheprovider",
)
FOUND, MISSED = 1, 0  # pytest's exit statuses; any other one: the tests did not run
# Tests that need so long never end, which is found too: a loop that does not wait gets
# past pytest's own limit.
SECONDS = 900.0


class Mutant(NamedTuple):
    """A defect that the tests of `room` must find."""

    name: str
    room: str
    first: str = ""
    module: str = ""
    function: str = ""
    old: str = ""
    new: str = ""
    patch: str = ""

    @property
    def path(self) -> str:
        """The module's path in the project; of a patch its own."""
        if self.patch:
            return f"tests/{self.room}/{self.patch}"
        return f"{self.module.replace('.', '/')}.py"


class GoneError(Exception):
    """The code that a defect would change does not exist, or not once."""


def replace_code(source: str, function: str, old: str, new: str) -> str:
    """Return a module's source, normalised, with `new` for the only `old` in a
    function.
    """
    tree = ast.parse(source)
    scope = _find_scope(tree, function)
    if new and (expressions := _parse_expressions(old, new)):
        old_text = ast.unparse(expressions[0])
        nodes = [
            (parent, name, index)
            for parent, name, index, node in _iter_expressions(scope)
            if ast.unparse(node) == old_text
        ]
        _check_once(len(nodes), function)
        parent, name, index = nodes[0]
        if index is None:
            setattr(parent, name, expressions[1])
        else:
            getattr(parent, name)[index] = expressions[1]
        return ast.unparse(tree)
    statements = [ast.unparse(statement) for statement in ast.parse(old).body]
    length = len(statements)
    places = [
        (body, start)
        for body in _iter_bodies(scope)
        for start in range(len(body) - length + 1)
        if [ast.unparse(statement) for statement in body[start : start + length]]
        == statements
    ]
    _check_once(len(places), function)
    body, start = places[0]
    body[start : start + length] = ast.parse(new).body or (
        [] if len(body) > length else [ast.Pass()]
    )
    return ast.unparse(tree)


def _find_scope(tree: ast.Module, qualname: str) -> ast.AST:
    scope: ast.AST = tree
    for name in qualname.split(".") if qualname else ():
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        scopes = [
            node
            for node in ast.walk(scope)
            if isinstance(node, kinds) and node.name == name
        ]
        if not scopes:
            raise GoneError(f"there is no {qualname}")
        scope = scopes[0]
    return scope


def _parse_expressions(old: str, new: str) -> tuple[ast.expr, ast.expr] | None:
    try:
        return ast.parse(old, mode="eval").body, ast.parse(new, mode="eval").body
    except SyntaxError:
        return None


def _iter_expressions(
    scope: ast.AST,
) -> Iterator[tuple[ast.AST, str, int | None, ast.expr]]:
    for parent in ast.walk(scope):
        if isinstance(parent, ast.JoinedStr):
            continue  # its parts are no expressions by themselves
        for name, field in ast.iter_fields(parent):
            if isinstance(field, ast.expr):
                yield parent, name, None, field
            elif isinstance(field, list):
                for index, node in enumerate(field):
                    if isinstance(node, ast.expr):
                        yield parent, name, index, node


def _iter_bodies(scope: ast.AST) -> Iterator[list[ast.stmt]]:
    for parent in ast.walk(scope):
        for _, field in ast.iter_fields(parent):
            if isinstance(field, list) and field and isinstance(field[0], ast.stmt):
                yield field


def _check_once(count: int, function: str) -> None:
    if count != 1:
        raise GoneError(
            f"its code occurs {count} times in {function or 'the module'}, not once"
        )


def plant(project: Path, mutant: Mutant, *, into: Path | None = None) -> None:
    """Plant a defect in a copy of the project, if any, or raise GoneError."""
    file = project / mutant.path
    if not file.is_file():
        raise GoneError(f"{mutant.path} is not a file")
    if mutant.patch:
        command = ["git", "apply", *([] if into else ["--check"]), str(file)]
        process = subprocess.run(
            command, cwd=into or project, capture_output=True, text=True, check=False
        )
        if process.returncode:
            raise GoneError(process.stderr.strip())
        return
    source = file.read_text(encoding="utf-8")
    planted = replace_code(source, mutant.function, mutant.old, mutant.new)
    if into:
        (into / mutant.path).write_text(planted, encoding="utf-8")


def judge(
    project: Path, mutant: Mutant, options: Sequence[str], *, only_plant: bool = False
) -> str:
    """Return "found", "gone: ..." or "missed: ..." of a defect."""
    try:
        plant(project, mutant)
    except GoneError as error:
        return f"gone: {error}"
    if only_plant:
        return "found"
    with tempfile.TemporaryDirectory(prefix="asyncfin-mutant-") as folder:
        copy = Path(folder) / project.name
        # With its bytecode, which is valid for the files that stay as they are.
        shutil.copytree(project, copy, ignore=shutil.ignore_patterns(".*", "_build"))
        # Tests read the real figures next to the project, where these exist.
        if (shared := project.parent / "shared").exists():
            (copy.parent / "shared").symlink_to(shared.resolve())
        plant(project, mutant, into=copy)
        # The copy comes before the installed project, also for what the tests start in
        # another folder.
        environment = os.environ | {"PYTHONPATH": str(copy)}
        for tests in dict.fromkeys((mutant.first, "")):
            command = [
                sys.executable,
                *PYTEST,
                *options,
                f"tests/{mutant.room}/{tests}",
            ]
            try:
                process = subprocess.run(
                    command,
                    cwd=copy,
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=SECONDS,
                )
            except subprocess.TimeoutExpired:
                return "found"
            if process.returncode != MISSED:
                break
    if process.returncode == FOUND:
        return "found"
    if process.returncode == MISSED:
        return f"missed: no test of tests/{mutant.room} finds it"
    return (
        f"missed: pytest ended with {process.returncode}: "
        f"{process.stdout[-500:]}{process.stderr[-500:]}"
    )


def find_touched(project: Path, base: str) -> set[str]:
    """Return the rooms of asyncfin/ and tests/ in which files differ from a commit."""

    def git(*arguments: str) -> str:
        command = ["git", *arguments]
        return subprocess.run(
            command, cwd=project, capture_output=True, text=True, check=True
        ).stdout

    if not base:
        base = git("merge-base", "HEAD", "main").strip()
    changed = git("diff", "--name-only", base).split()
    changed += git("ls-files", "--others", "--exclude-standard").split()
    parts = [Path(path).with_suffix("").parts for path in changed]
    return {
        path[1] for path in parts if path[0] in ("asyncfin", "tests") and len(path) > 1
    }


def main(arguments: Sequence[str], *, project: Path = PROJECT) -> int:
    """Judge the chosen defects; return 1 if some are missed or a room is below its
    floor.
    """
    words = list(arguments)
    end = words.index("--") if "--" in words else len(words)
    options = words[end + 1 :]
    parser = argparse.ArgumentParser(prog="mutants", usage=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--changed", nargs="?", const="")
    parser.add_argument("--applies", action="store_true")
    parser.add_argument("--release", action="store_true")
    chosen = parser.parse_args(words[:end])
    with (project / "tests" / "mutants.toml").open("rb") as file:
        content = tomllib.load(file)
    mutants = [Mutant(**entry) for entry in content["mutant"]]
    names = {*chosen.names}
    if unknown := names - {
        name for mutant in mutants for name in (mutant.name, mutant.room)
    }:
        parser.exit(2, f"not in mutants.toml: {', '.join(sorted(unknown))}\n")
    if names:
        mutants = [mutant for mutant in mutants if names & {mutant.name, mutant.room}]
    if chosen.changed is not None:
        touched = find_touched(project, chosen.changed)
        modules = {mutant: mutant.module.split(".")[1:2] for mutant in mutants}
        mutants = [
            mutant for mutant in mutants if touched & {mutant.room, *modules[mutant]}
        ]
    with ThreadPoolExecutor(os.cpu_count()) as processes:
        verdicts = processes.map(
            lambda mutant: judge(project, mutant, options, only_plant=chosen.applies),
            mutants,
        )
        outcomes = []
        for mutant, verdict in zip(mutants, verdicts, strict=True):
            outcomes.append(verdict)
            if verdict != "found":
                print(f"{mutant.name}: {verdict}", flush=True)
    problems = [verdict for verdict in outcomes if verdict.startswith("missed")]
    if chosen.release:
        problems += [verdict for verdict in outcomes if verdict.startswith("gone")]
    pairs = zip(mutants, outcomes, strict=True)
    counts = Counter(mutant.room for mutant, verdict in pairs if verdict == "found")
    everything = Counter(entry["room"] for entry in content["mutant"])
    for room, number in Counter(mutant.room for mutant in mutants).items():
        floor = content["floors"][room]
        if number == everything[room] and counts[room] < floor:
            problems.append(
                f"tests/{room} is below its floor: {counts[room]} of {floor}"
            )
            print(problems[-1])
    print(
        f"{len(outcomes)} defects, {counts.total()} "
        f"{'apply' if chosen.applies else 'found'}"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
