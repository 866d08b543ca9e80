"""Where an extraction may be, and how entities' files are named."""

import os
import shutil
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
from attrs import evolve
from hypothesis import given, strategies as st

from asyncfin import (
    Annual,
    Client,
    ManifestMismatchError,
    MemoryCache,
    Select,
    SelectionError,
    extract,
    extract_cost,
)
from asyncfin.extraction.folder import Folder
from asyncfin.sandbox import Sandbox
from tests.extraction.conftest import FIRST, IDS, UNKNOWN_ID, names, rows

# One to twelve bytes each in a file name.
ids = st.text("aA/+%\u00e9\u682a\u682b\U00020bb7", min_size=32, max_size=32).map("O-".__add__)


async def test_an_id_too_long_for_a_file_name_is_extracted_all_the_same(tmp_path: Path) -> None:
    """Spec 2.2 allows any 32 characters; written %XX, these would take 292 bytes."""
    long = "O-" + "\u682a" * 32
    publication = evolve(FIRST[0].publications[0], entity_id=long)
    async with Sandbox(publication) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        await extract(client, [long], Select(), Annual(), to=tmp_path / "night")
        report = await extract(client, [long], Select(), Annual(), to=tmp_path / "night")
    assert len(report.unchanged) == 1
    assert len(names(tmp_path / "night")) == 1
    assert {row[0] for row in rows(tmp_path / "night")} == {long}


async def test_a_run_uses_the_cache_of_its_client_and_does_not_fill_it(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    """A night's run would evict what visitors use."""
    cache = MemoryCache()
    async with Client(sandbox.base_url, sandbox.token, cache=cache) as client:
        await extract(client, IDS[:1], Select(), Annual(), to=tmp_path / "first")
        assert cache.stats().bytes == 0
        await client.query(IDS[0], Select(), Annual())
        held, spent = cache.stats().bytes, len(sandbox.log)
        await extract(client, IDS[:1], Select(), Annual(), to=tmp_path / "second")
        assert [served.operation for served in sandbox.log[spent:]] == ["dataset"]
        assert cache.stats().bytes == held
    assert rows(tmp_path / "first") == rows(tmp_path / "second")


async def test_what_is_no_folder_is_refused_before_anything_happens(
    sandbox: Sandbox, client: Client, tmp_path: Path
) -> None:
    """The run and the estimate refuse a plain file, and a link to itself, before anything else."""
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("file", "loop"):
        for ask in (extract, extract_cost):
            with pytest.raises(SelectionError, match=rf"to: .*{name} is not a folder"):
                await ask(client, IDS, Select(), Annual(), to=tmp_path / name)
    assert (sandbox.log, names(tmp_path)) == ([], ["file", "loop"])


async def test_a_folder_within_another_extraction_is_refused(
    sandbox: Sandbox, client: Client, tmp_path: Path
) -> None:
    """Readers of the outer one would meet its files, and unfinished ones."""
    await extract(client, IDS[:1], Select(), Annual(), to=tmp_path / "night")
    before, spent = names(tmp_path), len(sandbox.log)
    for within, named in (
        ("night/more", "is in another extraction"),
        ("night/more/and/more", "is in another extraction"),
        ("night.journal/more", "is the lock folder of"),
        ("night.journal", "is the lock folder of"),
    ):
        for ask in (extract, extract_cost):
            with pytest.raises(SelectionError, match=rf"to: .*{within} {named}"):
                await ask(client, IDS, Select(), Annual(), to=tmp_path / within)
    assert (names(tmp_path), len(sandbox.log)) == (before, spent)


async def test_a_lock_is_put_into_no_other_extraction_s_folder(client: Client, tmp_path: Path) -> None:
    """A lock is put into no other extraction's folder, whatever that one is called."""
    await extract(client, IDS[:1], Select(), Annual(), to=tmp_path / "night.journal")
    with pytest.raises(SelectionError, match=r"to: .*night\.journal is where the lock would be"):
        await extract(client, IDS[:1], Select(), Annual(), to=tmp_path / "night")
    assert [path.name for path in (tmp_path / "night.journal").iterdir()] == [f"{IDS[0]}.parquet"]


@pytest.mark.parametrize(("inner", "outer"), [("a.journal/sub", "a"), ("a/in", "a")])
async def test_an_extraction_around_another_is_refused(
    sandbox: Sandbox, client: Client, tmp_path: Path, inner: str, outer: str
) -> None:
    """Before a request is sent. Though no file is in the inner one yet, it is not locked out."""
    await extract(client, [UNKNOWN_ID], Select(), Annual(), to=tmp_path / inner)
    spent = len(sandbox.log)
    for ask in (extract, extract_cost):
        with pytest.raises(ManifestMismatchError, match="contains another extraction"):
            await ask(client, IDS[:1], Select(), Annual(), to=tmp_path / outer)
    assert len(sandbox.log) == spent
    assert len((await extract(client, IDS[:1], Select(), Annual(), to=tmp_path / inner)).done) == 1


@pytest.mark.parametrize("name", ["lock", "O-1.parquet"])
async def test_a_file_in_a_folder_above_that_is_not_of_an_extraction_is_ignored(
    client: Client, tmp_path: Path, name: str
) -> None:
    """Neither a lock next to a folder nor a footer marks that folder as an extraction."""
    (tmp_path / name).write_bytes(b"")
    assert len((await extract(client, IDS[:1], Select(), Annual(), to=tmp_path / "a" / "night")).done) == 1


async def test_a_footer_marks_an_extraction_whose_lock_is_lost(client: Client, tmp_path: Path) -> None:
    """A folder within it, and the folder that its lock will be in again, are refused."""
    await extract(client, IDS[:1], Select(), Annual(), to=tmp_path / "night")
    shutil.rmtree(tmp_path / "night.journal")
    for within in ("night/more", "night.journal", "night.journal/more"):
        for ask in (extract, extract_cost):
            with pytest.raises(SelectionError, match=f"to: .*{within}"):
                await ask(client, IDS, Select(), Annual(), to=tmp_path / within)


@given(st.lists(ids, unique=True, min_size=2))
def test_no_two_entities_share_a_file(several: list[str]) -> None:
    """Each name fits a file system, and those that are not shortened say the id."""
    folder = Folder.at("night")
    files = {entity_id: folder.file(entity_id).name for entity_id in several}
    assert len(set(files.values())) == len(several)
    for entity_id, name in files.items():
        assert len(name.encode()) <= 255
        assert "+" in name or unquote(name) == f"{entity_id}.parquet"


def test_long_ids_that_begin_alike_have_names_of_their_own() -> None:
    """A long name is cut, so a hash of the whole id distinguishes it."""
    folder, alike = Folder.at("night"), "O-" + "\u682a" * 31
    assert folder.file(f"{alike}\u682a") != folder.file(f"{alike}\u682b")


@pytest.mark.parametrize("name", [".journal", ".changes"])
def test_a_folder_may_be_named_as_the_end_of_a_lock_folder(tmp_path: Path, name: str) -> None:
    """It is the lock folder of nothing: no folder has the empty name."""
    assert Folder.at(tmp_path / name).data == tmp_path / name


async def test_ids_that_differ_only_in_case_are_refused(
    sandbox: Sandbox, client: Client, tmp_path: Path
) -> None:
    """Many file systems would give them one file; in different runs they may be in different folders."""
    with pytest.raises(SelectionError, match=f"'{IDS[0]}' and '{IDS[0].upper()}' differ only in case"):
        await extract(client, [*IDS, IDS[0].upper()], Select(), Annual(), to=tmp_path / "night")
    assert (sandbox.log, names(tmp_path)) == ([], [])


async def test_no_id_is_refused_as_by_other_questions_to_several_entities(
    sandbox: Sandbox, client: Client, tmp_path: Path
) -> None:
    """The class is that of a wrong question, not of a wrong setting."""
    for ask in (
        client.compare([], Select(), Annual()),
        extract(client, [], Select(), Annual(), to=tmp_path / "night"),
    ):
        with pytest.raises(SelectionError, match="entity_ids must name at least one entity") as caught:
            await ask
        assert type(caught.value) is SelectionError
    assert (sandbox.log, names(tmp_path)) == ([], [])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no directories that can be flushed")
async def test_what_is_put_in_place_is_on_the_disk(
    client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content of a file is flushed before its name, and each before the run goes on."""
    flushed: list[int] = []
    flush = os.fsync

    def recorded(descriptor: int) -> None:
        flushed.append(os.fstat(descriptor).st_ino)
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    await extract(client, IDS, Select(), Annual(), to=folder)
    for name in names(folder):
        file, directory = ((folder / each).stat().st_ino for each in (name, "."))
        assert directory in flushed[flushed.index(file) :]
