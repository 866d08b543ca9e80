"""`asyncfin cache`: what a folder holds, and emptying it."""

import asyncio
import json
from pathlib import Path

import pytest

from asyncfin.cache.entries import EntityRecord
from asyncfin.cache.file import FileCache
from asyncfin.sandbox import Sandbox
from tests.cache.stored import AT, DATASET, ENTITY, OTHER, URL, blocks
from tests.cli.conftest import ENTITY as COMPANY, Command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that holds two entities."""

    async def fill() -> None:
        cache = FileCache(tmp_path / "cache", account="desk")
        part = cache.partition(URL, "t")
        for entity_id in (ENTITY, OTHER):
            await part.observe(entity_id, EntityRecord(AT, DATASET))
            await part.put_blocks(entity_id, DATASET, "original", blocks(1, 2))
        await cache.aclose()

    asyncio.run(fill())
    return tmp_path / "cache"


def test_it_shows_how_much_there_is(command: Command, folder: Path) -> None:
    """In a line, or as JSON."""
    assert command("cache", "--cache", str(folder)).out.startswith(f"{folder}: 4 series, ")
    shown = json.loads(command("cache", "--cache", str(folder), "--json").out)
    assert (shown["folder"], shown["series"], shown["broken"]) == (str(folder), 4, 0)
    assert shown["bytes"] > 0


def test_it_empties_the_folder(command: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder may be named by the environment."""
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.setenv("ASYNCFIN_CACHE", f"~/{folder.name}")
    assert command("cache", "--clear").out == f"~/{folder.name}: 0 series, 0 bytes\n"


def test_wrong_use_is_one_line(command: Command, folder: Path, tmp_path: Path) -> None:
    """No folder, or one that others can read."""
    for arguments, said in [
        ([], "no cache is given: set ASYNCFIN_CACHE or give --cache"),
        (["--cache", "s3://bucket/x"], "--cache must be the path of a folder on this machine"),
        (["--cache", str(tmp_path / "mistyped")], "there is no such folder"),
    ]:
        result = command("cache", *arguments)
        assert (result.code, result.out) == (2, "")
        assert said in result.line
    folder.chmod(0o755)
    for arguments in (["--clear"], []):
        result = command("cache", "--cache", str(folder), *arguments)
        assert result.code == 2
        assert "must be closed to other users" in result.line


def test_second_command_only_confirms(
    command: Command, service: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ASYNCFIN_CACHE the second command sends one request."""
    monkeypatch.setenv("ASYNCFIN_CACHE", str(tmp_path / "cache"))
    sent = []
    for _ in range(2):
        before = len(service.log)
        result = command("query", COMPANY, "--annual", "--json")
        assert result.code == 0, result.err
        sent.append(len(service.log) - before)
    assert sent == [2, 1]
