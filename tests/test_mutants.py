"""The program that plants defects: what it plants, finds, misses and warns of."""

import tomllib
from pathlib import Path

import pytest

from tools.checks.mutants import PROJECT, GoneError, main, replace_code

SOURCE = '''
one = 1  # a comment


class Figures:
    def total(self, values):
        """The total."""
        if values and (
            len(values) > 1
        ):
            return sum( values )
        return 0
'''
ENTRY = '[[mutant]]\nname = "it"\nroom = "room"\nmodule = "figures"\nfunction = ""\nold = "{}"\nnew = "{}"\n'


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of one module and one test, for pytest without plugins."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    room = tmp_path / "project" / "tests" / "room"
    room.mkdir(parents=True)
    (tmp_path / "project" / "figures.py").write_text("one = 1\ntwo = 2\n")
    (room / "test_one.py").write_text("from figures import one\n\n\ndef test_one():\n    assert one == 1\n")
    return tmp_path / "project"


def plant(project: Path, old: str, new: str, *arguments: str, floor: int = 0) -> int:
    defects = f"[floors]\nroom = {floor}\n" + ENTRY.format(old, new)
    (project / "tests" / "mutants.toml").write_text(defects)
    return main(arguments, project=project)


@pytest.mark.parametrize(
    ("function", "old", "new", "planted"),
    [
        ("Figures.total", "len(values) > 1", "True", "if values and True:"),
        ("Figures.total", "return sum(values)", "return 1", "return 1\n        return 0"),
        ("Figures.total", "return 0", "", "return sum(values)"),
        ("", "one = 1", "one = 2", "one = 2"),
    ],
)
def test_code_is_found_by_syntax(function: str, old: str, new: str, planted: str) -> None:
    """Layout and comments do not matter."""
    assert planted in replace_code(SOURCE, function, old, new)


@pytest.mark.parametrize(
    ("function", "old"), [("Figures.mean", "values"), ("Figures.total", "values"), ("", "len(other)")]
)
def test_absent_or_repeated_code_is_gone(function: str, old: str) -> None:
    with pytest.raises(GoneError):
        replace_code(SOURCE, function, old, "None")


def test_found_missed_and_gone(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A defect that is gone fails only a release, or a room that falls below its floor."""
    assert plant(project, "one = 1", "one = 3", floor=1) == 0
    assert plant(project, "two = 2", "two = 3") == 1
    assert plant(project, "three", "four") == 0
    assert plant(project, "three", "four", "--release") == 1
    assert plant(project, "three", "four", floor=1) == 1
    assert plant(project, "one = 1", "one = 3", "--", "-k", "another") == 1  # no test ran
    lines = [line.split(":")[1] for line in capsys.readouterr().out.splitlines() if line.startswith("it:")]
    assert lines == [" missed", " gone", " gone", " gone", " missed"]
    assert (project / "figures.py").read_text() == "one = 1\ntwo = 2\n"


def test_endless_tests_find_a_defect(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted loop can get past pytest's own limit."""
    monkeypatch.setattr("tools.checks.mutants.SECONDS", 3.0)
    assert plant(project, "one = 1", "while True: pass", floor=1) == 0


def test_patch_is_planted_from_its_room(project: Path) -> None:
    """Here of a file that is not Python."""
    (project / "page.html").write_text("one\n")
    (project / "tests" / "room" / "test_one.py").write_text(
        "def test_one():\n    assert open('page.html').read() == 'one\\n'\n"
    )
    (project / "tests" / "room" / "it.patch").write_text(
        "--- a/page.html\n+++ b/page.html\n@@ -1 +1 @@\n-one\n+two\n"
    )
    (project / "tests" / "mutants.toml").write_text(
        '[floors]\nroom = 1\n[[mutant]]\nname = "it"\nroom = "room"\npatch = "it.patch"\n'
    )
    assert main([], project=project) == 0


def test_listed_defects_are_well_formed() -> None:
    """Whether their code exists is for the session to say."""
    content = tomllib.loads((PROJECT / "tests" / "mutants.toml").read_text(encoding="utf-8"))
    names = [entry["name"] for entry in content["mutant"]]
    assert len({*names}) == len(names)
    rooms = [entry["room"] for entry in content["mutant"]]
    problems = [
        entry["name"]
        for entry in content["mutant"]
        if not (PROJECT / "tests" / entry["room"] / entry.get("first", "")).exists()
    ]
    problems += [room for room, floor in content["floors"].items() if rooms.count(room) < floor]
    assert not problems
