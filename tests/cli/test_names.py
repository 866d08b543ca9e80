"""Names for entity ids: `--names`, ASYNCFIN_NAMES, and `asyncfin names`, which writes such a file."""

from pathlib import Path

import pytest

from asyncfin.sandbox import Sandbox
from tests.cli.conftest import ENTITY, RATIOS_ENTITY, UNKNOWN_ID, Command

FILE = f"""id,name,aliases,note
{ENTITY},Example Company,EXA|the example,mine
{RATIOS_ENTITY},Ratios,,
{UNKNOWN_ID},Nobody Ltd,EXA,
"""


@pytest.fixture
def names(tmp_path: Path) -> str:
    path = tmp_path / "names.csv"
    path.write_text(FILE, encoding="utf-8-sig")
    return str(path)


@pytest.mark.parametrize("name", ["Example Company", "example  company", "The Example", ENTITY])
def test_a_name_stands_for_an_id(command: Command, names: str, name: str) -> None:
    """A name or an alias, in whatever case; an id stays an id."""
    result = command("catalogue", "--publication", name, "--names", names, "--json")
    assert result.code == 0
    assert ENTITY in result.out


def test_every_command_takes_names_from_environment(
    command: Command, names: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In arguments and in files of ids."""
    pytest.importorskip("pyarrow")
    monkeypatch.setenv("ASYNCFIN_NAMES", names)
    ids = tmp_path / "ids.txt"
    ids.write_text("the example  # by name\n")
    assert command("catalogue", "ratios").code == 0
    assert command("query", "ratios", "the example", "--metric", "Revenue").code == 0
    report = command("extract", "ratios", "--ids", str(ids), "--into", str(tmp_path / "night"))
    assert report.out.startswith("entities: 2 done")
    folder = tmp_path / "cache"
    monkeypatch.setenv("ASYNCFIN_CACHE", str(folder))
    assert command("query", "the example", "--metric", "Revenue").code == 0
    assert command("cache").out != f"{folder}: 0 series, 0 bytes\n"


def test_errors_say_names(command: Command, names: str, tmp_path: Path) -> None:
    """Lines and reports about an entity with a name begin with the name."""
    pytest.importorskip("pyarrow")
    result = command("catalogue", "--publication", "nobody ltd", "--names", names)
    assert (result.code, result.line.startswith("asyncfin: Nobody Ltd: ")) == (4, True)
    night = str(tmp_path / "night")
    report = command("extract", "nobody ltd", "ratios", "--into", night, "--names", names)
    assert report.code == 1
    assert f"Nobody Ltd ({UNKNOWN_ID})" in report.out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("EXA", f"'EXA' means Example Company ({ENTITY}), Nobody Ltd ({UNKNOWN_ID}): give the id"),
        ("Exampel Company", "(close: Example Company"),
    ],
)
def test_unknown_name_costs_no_request(
    command: Command, service: Sandbox, names: str, name: str, said: str
) -> None:
    """The line says what comes close, or which ids it could be."""
    before = len(service.log)
    result = command("catalogue", "--publication", name, "--names", names)
    assert (result.code, len(service.log)) == (2, before)
    assert said in result.line


def test_names_writes_file_that_it_reads(command: Command, tmp_path: Path) -> None:
    """The file has the service's names and room for aliases."""
    path = tmp_path / "names.csv"
    assert command("names", ENTITY, RATIOS_ENTITY, ENTITY, "--into", str(path)).code == 0
    assert path.read_text() == f"id,name,aliases\n{ENTITY},Example [AG],\n{RATIOS_ENTITY},Ratios,\n"
    assert command("catalogue", "--publication", "ratios", "--names", str(path)).code == 0
    assert "no entity is given" in command("names", "--into", str(path)).line


def test_names_are_merged_into_a_file(command: Command, service: Sandbox, tmp_path: Path) -> None:
    """Edited names, aliases and further columns stay, and cost no request; only new ids are read."""
    path = tmp_path / "names.csv"
    path.write_text(f"id,name,aliases,note\n{ENTITY},My Example,EXA|mine,keep\n")
    before = len(service.log)
    result = command("names", ENTITY, RATIOS_ENTITY, "--into", str(path))
    assert (result.code, result.out) == (0, f"{path}: 2 entities, 1 of them new\n")
    assert len(service.log) - before == 1
    assert path.read_text() == (
        f"id,name,aliases,note\n{ENTITY},My Example,EXA|mine,keep\n{RATIOS_ENTITY},Ratios,,\n"
    )
    assert [each.name for each in tmp_path.iterdir()] == ["names.csv"]


def test_failed_names_keep_the_others(command: Command, tmp_path: Path) -> None:
    """The others are written, and the exit code is 1; it is that of the reason if all failed."""
    path = tmp_path / "names.csv"
    result = command("names", UNKNOWN_ID, ENTITY, "--into", str(path))
    assert result.code == 1
    assert path.read_text() == f"id,name,aliases\n{ENTITY},Example [AG],\n"
    lines = result.err.splitlines()
    assert lines[0].startswith(f"asyncfin: {UNKNOWN_ID}: ")
    assert lines[1].startswith("asyncfin: 1 of 2 entities failed")


def test_failed_names_write_no_file(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no entity could be read, no empty file shows success."""
    path = tmp_path / "names.csv"
    result = command("names", UNKNOWN_ID, "--into", str(path))
    assert (result.code, result.out, path.exists()) == (4, "", False)
    monkeypatch.setenv("ASYNCFIN_BASE_URL", "http://127.0.0.1:1")
    result = command("names", ENTITY, "--into", str(path))
    assert (result.code, result.out, path.exists()) == (6, "", False)


def test_names_needs_no_file_of_names(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that the environment names may not exist yet."""
    path = tmp_path / "names.csv"
    monkeypatch.setenv("ASYNCFIN_NAMES", str(path))
    assert command("names", ENTITY, "--into", str(path)).code == 0
    assert command("catalogue", "--publication", "example [ag]").code == 0


def test_an_empty_variable_counts_as_unset(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that the command line reads."""
    for name in ("NAMES", "CACHE", "BUCKET", "ACCOUNT"):
        monkeypatch.setenv(f"ASYNCFIN_{name}", "")
    assert command("catalogue", "--publication", ENTITY).code == 0
    assert command("query", ENTITY, "--metric", "Debt").code == 0


def test_word_needs_prefix_as_id(command: Command, service: Sandbox, tmp_path: Path) -> None:
    """`id:WORD`, or a line of a file of ids; a mistyped name costs no request."""
    before = len(service.log)
    assert command("catalogue", "--publication", "Aple").code == 2
    assert len(service.log) == before
    ids = tmp_path / "ids.txt"
    for entity_id in (UNKNOWN_ID, ENTITY):
        assert command("catalogue", "--publication", f"id:{entity_id}").code == (
            0 if entity_id == ENTITY else 4
        )
        ids.write_text(entity_id)
    assert command("names", "--ids", str(ids), "--into", str(tmp_path / "names.csv")).code == 0
