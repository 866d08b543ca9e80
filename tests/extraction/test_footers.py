"""The footers are the record of an extraction."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from asyncfin import (
    Annual,
    Client,
    ManifestMismatchError,
    Quarterly,
    Select,
    extract,
    extract_cost,
)
from asyncfin.sandbox import Sandbox
from tests.extraction.conftest import FIRST, IDS, UNKNOWN_ID, annual, rows


def beside(folder: Path) -> Path:
    """The folder of the lock."""
    return folder.parent / "_night.journal"


async def test_a_footer_has_missing_and_no_column_is_added(client: Client, folder: Path) -> None:
    """The footer names publication, question, what is missing and the requests; the table is the panel's."""
    await extract(client, IDS[:1], Select(), Annual(), to=folder)
    table = pq.read_table(folder / f"{IDS[0]}.parquet")
    (about,) = json.loads(table.schema.metadata[b"asyncfin"])["panels"]
    assert about["missing"] == {}
    assert about["dataset_id"] == FIRST[0].publications[0].dataset_id
    panel = await client.query(IDS[0], Select(), Annual())
    assert table.column_names == panel.to_arrow().column_names


async def test_damage_of_a_page_is_repaired_by_a_refresh_only(client: Client, folder: Path) -> None:
    """A file whose footer can be read is unchanged; page checksums show a reader the damage."""
    await extract(client, IDS, Select(), Annual(), to=folder)
    path = folder / f"{IDS[2]}.parquet"
    content = bytearray(path.read_bytes())
    content[60] ^= 0xFF
    path.write_bytes(content)
    report = await extract(client, IDS, Select(), Annual(), to=folder)
    assert len(report.unchanged) == len(IDS)
    with pytest.raises(OSError):
        pq.read_table(path, page_checksum_verification=True)
    await extract(client, IDS, Select(), Annual(), to=folder, refresh=True)
    pq.read_table(path, page_checksum_verification=True)
    assert rows(folder) == annual(*FIRST)


async def test_a_lost_lock_folder_costs_nothing(sandbox: Sandbox, client: Client, folder: Path) -> None:
    """The footers alone mark the extraction, name its question, and show what is unchanged."""
    await extract(client, IDS, Select(), Annual(), to=folder)
    shutil.rmtree(beside(folder))
    since = len(sandbox.log)
    for ask in (extract_cost, extract):
        with pytest.raises(ManifestMismatchError, match=r"another question.*periods.*Annual.*Quarterly"):
            await ask(client, IDS, Select(), Quarterly(), to=folder)
    assert len(sandbox.log) == since
    assert len((await extract(client, IDS, Select(), Annual(), to=folder)).unchanged) == len(IDS)


@pytest.mark.parametrize("stranger", ["other.parquet", "deep/er/other.parquet", f"{UNKNOWN_ID}.parquet"])
async def test_a_copy_of_a_file_under_another_name_is_refused(
    client: Client, folder: Path, stranger: str
) -> None:
    """Readers would take it for part of the table, and find an entity twice."""
    await extract(client, IDS, Select(), Annual(), to=folder)
    (folder / stranger).parent.mkdir(parents=True, exist_ok=True)
    (folder / stranger).write_bytes((folder / f"{IDS[0]}.parquet").read_bytes())
    for ask in (extract, extract_cost):
        with pytest.raises(ManifestMismatchError, match=f"night/{stranger} is not an extraction"):
            await ask(client, IDS, Select(), Annual(), to=folder)


async def test_the_file_of_a_panel_that_a_user_has_saved_is_refused_and_kept(
    client: Client, folder: Path
) -> None:
    """Its metadata has no question, so it is not of an extraction, whatever its name."""
    await extract(client, IDS[1:], Select(), Annual(), to=folder)
    path = folder / f"{IDS[0]}.parquet"
    pq.write_table((await client.query(IDS[0], Select(), Annual())).to_arrow(), path)
    saved = path.read_bytes()
    with pytest.raises(ManifestMismatchError, match=f"night/{path.name}"):
        await extract(client, IDS, Select(), Annual(), to=folder)
    assert path.read_bytes() == saved


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that all users can reach, and a place for temporary files that all can write to."""
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")  # TMPDIR may lie in one user's own folders
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


async def test_a_file_that_may_not_be_read_is_an_error_that_names_it(client: Client, place: Path) -> None:
    """It is not taken for a damaged one, which would be read again."""
    folder = place / "night"
    await extract(client, IDS[:1], Select(), Annual(), to=folder)
    (folder / f"{IDS[0]}.parquet").chmod(0)
    folder.chmod(0o777)
    beside(folder).chmod(0o777)
    (beside(folder) / "lock").chmod(0o666)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        with pytest.raises(PermissionError, match=f"{IDS[0]}.parquet"):
            await extract(client, IDS[:1], Select(), Annual(), to=folder)
    finally:
        if root:
            os.seteuid(0)
