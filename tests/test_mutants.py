"""The program that plants defects: what it finds, and what it does not take for a finding."""

import tomllib
from pathlib import Path

import pytest

from tools.checks.mutants import DEFECTS, PROJECT, Mutant, main

ENTRY = '[[mutant]]\nname = "{name}"\nroom = "room"\nfile = "figures.py"\nold = "{old}"\nnew = "{new}"\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project of one module and one test."""
    room = tmp_path / "project" / "tests" / "room"
    room.mkdir(parents=True)
    (tmp_path / "project" / "figures.py").write_text("one = 1\ntwo = 2\ntwice = 2\n")
    (room / "test_figures.py").write_text(
        "from figures import one\n\n\ndef test_one():\n    assert one == 1\n"
    )
    return tmp_path / "project"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("one = 1", "one = 3", "found: it"),
        ("two = 2", "two = 3", "WRONG: it: no test of tests/room finds it"),
        ("= 2", "= 3", "WRONG: it: its text occurs 2 times in figures.py, not once"),
        ("three", "four", "WRONG: it: its text occurs 0 times in figures.py, not once"),
    ],
)
def test_a_defect_must_apply_once_and_be_found(
    project: Path, old: str, new: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a copy: the project stays as it is."""
    defects = project / "mutants.toml"
    defects.write_text(ENTRY.format(name="it", old=old, new=new))
    before = (project / "figures.py").read_text()
    assert main([], project=project, defects=defects) == said.startswith("WRONG")
    assert said in capsys.readouterr().out
    assert (project / "figures.py").read_text() == before


def test_what_a_test_starts_in_another_folder_runs_the_copy(project: Path) -> None:
    """A defect that only such a process meets is found too: it does not run the installed project."""
    (project / "tests" / "room" / "test_figures.py").write_text(
        "import subprocess\nimport sys\n\n\ndef test_two(tmp_path):\n"
        "    code = 'from figures import two; print(two)'\n"
        "    assert subprocess.check_output([sys.executable, '-c', code], cwd=tmp_path) == b'2\\n'\n"
    )
    defects = project / "mutants.toml"
    for old, new, wrong in [("one = 1", "one = 3", 1), ("two = 2", "two = 3", 0)]:
        defects.write_text(ENTRY.format(name="it", old=old, new=new))
        assert main([], project=project, defects=defects) == wrong


def test_the_file_that_an_entry_names_runs_first_and_the_room_after_it(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """So the others are not run for a defect that it finds, and find what it does not."""
    (project / "tests" / "room" / "test_broken.py").write_text("raise RuntimeError('never collected')\n")
    (project / "tests" / "room" / "test_two.py").write_text(
        "from figures import two\n\n\ndef test_two():\n    assert two == 2\n"
    )
    defects = project / "mutants.toml"
    defects.write_text(ENTRY.format(name="it", old="one = 1", new="one = 3") + 'first = "test_figures.py"\n')
    assert main([], project=project, defects=defects) == 0
    (project / "tests" / "room" / "test_broken.py").unlink()
    defects.write_text(ENTRY.format(name="it", old="one = 1", new="one = 3") + 'first = "test_two.py"\n')
    assert main([], project=project, defects=defects) == 0
    assert "test_figures.py::test_one" in capsys.readouterr().out.splitlines()[-2]


def test_tests_that_do_not_run_find_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A room without tests, or an option that pytest does not have, is not a finding."""
    defects = project / "mutants.toml"
    defects.write_text(ENTRY.format(name="it", old="one = 1", new="one = 3"))
    assert main(["it", "--", "-k", "another"], project=project, defects=defects) == 1
    assert "WRONG: it: pytest ended with status 5" in capsys.readouterr().out


def test_a_name_that_is_not_in_the_list_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is planted."""
    defects = project / "mutants.toml"
    defects.write_text(ENTRY.format(name="it", old="one = 1", new="one = 3"))
    assert main(["other"], project=project, defects=defects) == 1
    assert capsys.readouterr().out == "not in mutants.toml: other\n"


def test_each_listed_defect_has_a_name_a_room_and_a_file() -> None:
    """Whether its text occurs in the file is for the session to say."""
    entries = tomllib.loads(DEFECTS.read_text(encoding="utf-8"))["mutant"]
    assert len({entry["name"] for entry in entries}) == len(entries)
    for mutant in (Mutant(**entry) for entry in entries):
        assert (PROJECT / "tests" / mutant.room).is_dir(), mutant.name
        assert (PROJECT / "tests" / mutant.room / mutant.first).exists(), mutant.name
        assert (PROJECT / mutant.file).is_file(), mutant.name
        assert mutant.old != mutant.new
