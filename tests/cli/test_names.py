"""Names for entity ids: `--names`, ASYNCFIN_NAMES, and `asyncfin names`, which writes such a file."""

import asyncio
import csv
import io
from pathlib import Path

import pytest

from asyncfin.cache.file import FileCache
from asyncfin.client import Client
from asyncfin.model.period import Annual
from asyncfin.model.select import Select
from asyncfin.sandbox import Sandbox
from tests.cli.conftest import ENTITY, NOBODY, RATIOS_ENTITY, Command

FILE = f"""id,name,aliases,note
{ENTITY},Example Company,EXA|the example,mine
{RATIOS_ENTITY},Ratios,,
{NOBODY},Nobody Ltd,EXA,
"""


@pytest.fixture
def names(tmp_path: Path) -> str:
    path = tmp_path / "names.csv"
    path.write_text(FILE, encoding="utf-8-sig")
    return str(path)


@pytest.mark.parametrize("name", ["Example Company", "example  company", "The Example", ENTITY])
def test_a_name_stands_for_an_id(command: Command, names: str, name: str) -> None:
    """A name or an alias, in whatever case; an id stays an id."""
    result = command("dataset", name, "--names", names, "--json")
    assert result.code == 0
    assert ENTITY in result.out


def test_every_command_takes_names_from_the_environment(
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
    assert command("cache").out != f"{folder}: 0 series, 0.0 MB\n"
    assert command("cache", "--clear", "the example").out == f"{folder}: 0 series, 0.0 MB\n"


def test_errors_say_names(command: Command, names: str, tmp_path: Path) -> None:
    """Lines and reports about an entity with a name begin with the name."""
    pytest.importorskip("pyarrow")
    result = command("dataset", "nobody ltd", "--names", names)
    assert (result.code, result.line.startswith("asyncfin: Nobody Ltd: ")) == (4, True)
    night = str(tmp_path / "night")
    report = command("extract", "nobody ltd", "ratios", "--into", night, "--names", names)
    assert report.code == 1
    assert f"Nobody Ltd ({NOBODY})" in report.out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("EXA", f"'EXA' is a name of {ENTITY} and of {NOBODY}: give the id"),
        ("Exampel Company", "(close: example company"),
        ("O-1", "entity_id must be 'O-' followed by 32 characters, not 'O-1'"),
    ],
)
def test_a_name_that_is_none_is_refused_before_a_request(
    command: Command, service: Sandbox, names: str, name: str, said: str
) -> None:
    """The line says what comes close, or which ids it could be."""
    before = len(service.log)
    result = command("dataset", name, "--names", names)
    assert (result.code, len(service.log)) == (2, before)
    assert said in result.line


def test_without_a_file_the_line_says_where_names_come_from(command: Command) -> None:
    """A newcomer types the company's name."""
    assert "names stand in a file: --names FILE or ASYNCFIN_NAMES" in command("dataset", "Apple").line


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("name,aliases\n", "has no columns id and name"),
        ("", "has no columns id and name"),
        (f"id,name\n{ENTITY},One\nO-1,Two\n", ", line 3: entity_id must be 'O-'"),
        ("id,name\n,One\n", ", line 2: entity_id must be 'O-'"),
    ],
)
def test_a_file_that_is_none_is_named_with_its_line(
    command: Command, tmp_path: Path, content: str, said: str
) -> None:
    """Exit code 2 before a request."""
    path = tmp_path / "names.csv"
    path.write_text(content)
    result = command("dataset", ENTITY, "--names", str(path))
    assert result.code == 2
    assert said in result.line
    assert command("dataset", ENTITY, "--names", str(tmp_path / "none")).code == 2


def test_names_writes_a_file_that_it_reads(command: Command, tmp_path: Path) -> None:
    """The file has the service's names and room for aliases, and each entity costs one request."""
    out = command("names", ENTITY, RATIOS_ENTITY, ENTITY).out
    assert [list(row.values()) for row in csv.DictReader(io.StringIO(out))] == [
        [ENTITY, "Example [AG]", ""],
        [RATIOS_ENTITY, "Ratios", ""],
    ]
    path = tmp_path / "names.csv"
    path.write_text(out)
    assert command("dataset", "ratios", "--names", str(path)).code == 0
    assert command("names", "ratios", "--names", str(path)).out.endswith(f"{RATIOS_ENTITY},Ratios,\n")
    assert "no entity is named" in command("names").line


async def test_names_come_from_the_cache_without_a_request(
    command: Command, service: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names come from the cache for the token's own account and every entity whose catalogue was read."""
    folder = tmp_path / "cache"
    async with Client(service.base_url, service.token, cache=FileCache(folder)) as client:
        await client.catalogue(RATIOS_ENTITY)
        await client.query(ENTITY, Select(), Annual())
    monkeypatch.setenv("ASYNCFIN_CACHE", str(folder))
    before = len(service.log)
    out = (await asyncio.to_thread(command, "names", "--from-cache")).out
    assert [row["name"] for row in csv.DictReader(io.StringIO(out))] == ["Example [AG]", "Ratios"]
    assert len(service.log) == before
    monkeypatch.setenv("ASYNCFIN_TOKEN", "of-another-account")
    assert (await asyncio.to_thread(command, "names", "--from-cache")).out == "id,name,aliases\n"


def test_names_from_the_cache_need_one(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """--from-cache needs a cache, and takes no entities beside it."""
    monkeypatch.delenv("ASYNCFIN_CACHE", raising=False)
    assert "set ASYNCFIN_CACHE" in command("names", "--from-cache").line
    assert "name none beside it" in command("names", "--from-cache", ENTITY).line
