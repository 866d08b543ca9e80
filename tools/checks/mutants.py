"""Plant known defects one at a time: the tests of their room must fail. `nox -s mutants [NAME ...]`.

The defects are in mutants.toml. Each is planted in a copy of the project, where `pytest tests/ROOM -x` must
find it. The file that an entry names as `first` runs before the others of its room. A defect whose text does
not occur exactly once in its file fails the run too: it tests nothing. What follows `--` goes to pytest.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).parents[2]
DEFECTS = PROJECT / "tests" / "mutants.toml"
# No random order: what is found must not depend on it. No cache of results in the copy.
PYTEST = ("-m", "pytest", "-x", "-q", "--no-header", "-p", "no:randomly", "-p", "no:cacheprovider")
FOUND, MISSED = 1, 0  # pytest's exit statuses; any other one says that the tests did not run


class Mutant(NamedTuple):
    """A defect: in `file`, the text `old` becomes `new`, which the tests of `room` must find."""

    name: str
    room: str
    file: str
    old: str
    new: str
    first: str = ""


def planted(project: Path, mutant: Mutant) -> str | None:
    """Plant a defect in a copy of the project. Return why that is not possible, or None."""
    if not (project / "tests" / mutant.room).is_dir():
        return f"tests/{mutant.room} is not a folder"
    file = project / mutant.file
    if not file.is_file():
        return f"{mutant.file} is not a file"
    text = file.read_text(encoding="utf-8")
    if (count := text.count(mutant.old)) != 1:
        return f"its text occurs {count} times in {mutant.file}, not once"
    file.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    return None


def judged(project: Path, mutant: Mutant, options: Sequence[str] = ()) -> str | None:
    """Return what is wrong with a defect: it cannot be planted, or no test finds it. None: a test does."""
    with tempfile.TemporaryDirectory(prefix="asyncfin-mutant-") as place:
        copy = Path(place) / project.name
        # With its bytecode, which is valid for the files that stay as they are.
        shutil.copytree(project, copy, ignore=shutil.ignore_patterns(".*", "_build"))
        # Tests read the real figures next to the project, where they are there.
        if (shared := project.parent / "shared").exists():
            (copy.parent / "shared").symlink_to(shared.resolve())
        if problem := planted(copy, mutant):
            return problem
        # The copy comes before the installed project, also for what the tests start in another folder.
        environment = os.environ | {"PYTHONPATH": str(copy)}
        for tests in dict.fromkeys((mutant.first, "")):
            command = [sys.executable, *PYTEST, *options, f"tests/{mutant.room}/{tests}"]
            ended = subprocess.run(
                command, cwd=copy, env=environment, capture_output=True, text=True, check=False
            )
            if ended.returncode != MISSED:
                break
    if ended.returncode == FOUND:
        last = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
        print(f"found: {mutant.name}: {last[-1][:160] if last else ''}", flush=True)
        return None
    if ended.returncode == MISSED:
        return f"no test of tests/{mutant.room} finds it"
    return f"pytest ended with status {ended.returncode}: {ended.stdout[-500:]}{ended.stderr[-500:]}"


def main(arguments: Sequence[str], *, project: Path = PROJECT, defects: Path = DEFECTS) -> int:
    """Judge all defects, or the named ones; return how many are wrong."""
    names = list(arguments)
    options: list[str] = []
    if "--" in names:
        at = names.index("--")
        names, options = names[:at], names[at + 1 :]
    entries = tomllib.loads(defects.read_text(encoding="utf-8")).get("mutant", [])
    mutants = {entry["name"]: Mutant(**entry) for entry in entries}
    assert len(mutants) == len(entries), "two defects have one name"
    if unknown := [name for name in names if name not in mutants]:
        print(f"not in {defects.name}: {', '.join(unknown)}")
        return len(unknown)
    chosen = [mutants[name] for name in names or mutants]
    wrong = 0
    with ThreadPoolExecutor(os.cpu_count()) as processes:
        found = processes.map(lambda mutant: judged(project, mutant, options), chosen)
        for mutant, problem in zip(chosen, found, strict=True):
            if problem:
                wrong += 1
                print(f"WRONG: {mutant.name}: {problem}", flush=True)
    print(f"{len(chosen)} defects, {wrong} wrong")
    return wrong


if __name__ == "__main__":
    raise SystemExit(min(1, main(sys.argv[1:])))
