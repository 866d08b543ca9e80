"""`asyncfin changes` and `asyncfin as-of`: what a change feed holds, in each form."""

import csv
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import ENTITY, LONG_ENTITY, Command


@pytest.fixture
def night(command: Command, tmp_path: Path) -> str:
    """An extraction of two companies, of which one was pruned by the second run."""
    into = str(tmp_path / "night")
    asked = ("--into", into, "--metric", "Revenue", "--annual", "--quiet")
    assert command("extract", ENTITY, LONG_ENTITY, *asked, "--history").code == 0
    assert "files of entities that were not given: 1" in command("extract", ENTITY, *asked).out
    assert command("extract", ENTITY, *asked, "--prune").code == 0
    return into


def test_changes_are_shown_as_a_table(command: Command, night: str) -> None:
    """The first ones, with how many there are of each kind."""
    result = command("changes", night)
    lines = result.out.splitlines()
    assert lines[0].split() == [
        *("known", "from", "change", "entity", "series", "scope", "path", "reporting", "group", "period"),
        *("before", "now"),
    ]
    assert lines[-1] == "34 changes in 2 runs: 19 appeared, 0 restated, 0 relabelled, 15 vanished"
    assert sum("vanished" in line for line in lines[1:-1]) == 15
    assert result.err == ""


def test_changes_since_a_run(command: Command, night: str) -> None:
    """A run is exclusive, a date inclusive."""
    runs = sorted({row["run"] for row in json.loads(command("changes", night, "--json").out)})
    rows = json.loads(command("changes", night, "--since", runs[0], "--json").out)
    assert {row["change"] for row in rows} == {"vanished"}
    assert len(json.loads(command("changes", night, "--since", "2025-01-01", "--json").out)) == 34
    assert "0 changes in 0 runs" in command("changes", night, "--since", "2999-01-01").out


def test_changes_as_lines_of_values(command: Command, night: str) -> None:
    """One line for each change; lists are left out."""
    rows = list(csv.DictReader(io.StringIO(command("changes", night, "--csv").out)))
    assert len(rows) == 34
    assert rows[0].keys() >= {
        "entity_id",
        "number",
        "change",
        "before",
        "before_dataset_id",
        "known_from",
        "run",
    }
    assert not rows[0].keys() & {"sources", "scopes", "scope_names"}
    assert {row["before"] for row in rows if row["change"] == "appeared"} == {""}


def test_the_state_at_a_time(command: Command, night: str) -> None:
    """Nothing before the publications, both companies after, and the one that is left at last."""
    assert command("as-of", night, "2025-02-01").out == "0 rows of 0 entities\n"
    shown = command("as-of", night, "2025-02-01T06:00:00Z").out
    assert "19 rows of 2 entities" in shown
    assert "Sales of all kinds" in shown
    assert "4 rows of 1 entity" in command("as-of", night, "2999-01-01").out


def test_the_state_is_written_to_a_file(command: Command, night: str, tmp_path: Path) -> None:
    """With the schema of the long table."""
    file = tmp_path / "then.parquet"
    assert command("as-of", night, "2025-03-01", "--to", str(file)).out == f"{file}: 19 rows\n"
    table = pq.read_table(file)
    assert len(table) == 19
    assert len(table.column_names) == 30
    with file.open("rb") as before:
        assert command("changes", night, "--to", str(file)).out == f"{file}: 34 rows\n"
        # The file was replaced, not written over: who was reading it reads on.
        assert len(pq.read_table(before)) == 19
    assert len(pq.read_table(file)) == 34
    loop = tmp_path / "loop.parquet"
    loop.symlink_to(loop.name)
    result = command("changes", night, "--to", str(loop))
    assert (result.code, result.out) == (1, "")
    assert "Too many levels of symbolic links" in result.line
    assert not list(tmp_path.glob(".*"))  # no unfinished file stays


def test_rows_of_both_versions_are_distinguished(command: Command, tmp_path: Path) -> None:
    """A column says which version was requested: two rows of one cell can differ."""
    into = str(tmp_path / "both")
    asked = ("--metric", "Revenue", "--annual", "--quiet", "--both", "--history")
    assert command("extract", ENTITY, "--into", into, *asked).code == 0
    for shown in (command("changes", into), command("as-of", into, "2999-01-01")):
        lines = [line.split() for line in shown.out.splitlines()]
        assert lines[0][-3:] in (["version", "before", "now"], ["asked", "version", "value"])
        assert {word for line in lines[2:] for word in line if word in ("original", "latest_restated")} == {
            "original",
            "latest_restated",
        }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("as-of", "NIGHT", "noon"), "when must be a date or datetime"),
        (("changes", "NIGHT", "--since", "noon"), "since must be a date or datetime"),
        (("changes", "NIGHT", "--csv", "--json"), "exclude each other"),
        (("changes", "NIGHT", "--to", "x.csv"), "--to must be the path of a .parquet file, not x.csv"),
        (("changes", "NIGHT", "--to", "s3://b/x.parquet"), "--to must be the path of a file on this machine"),
        (
            ("changes", "NIGHT", "--to", "no/x.parquet"),
            "--to no/x.parquet can't be written: no is not a folder",
        ),
        (("changes", "NIGHT2"), "has no change feed"),
        (("as-of", "NIGHT2", "2025-01-01"), "has no change feed"),
    ],
)
def test_wrong_usage_is_one_line(command: Command, night: str, arguments: tuple[str, ...], said: str) -> None:
    """It says what to write."""
    result = command(*(each.replace("NIGHT", night) for each in arguments))
    assert result.code == 2
    assert said in result.line
