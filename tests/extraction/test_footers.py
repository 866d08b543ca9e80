"""The footers are the record of an extraction."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from asyncfin import (
    Annual,
    Client,
    ManifestMismatchError,
    Select,
    extract,
    extract_cost,
)
from tests.extraction.conftest import FIRST, IDS, UNKNOWN_ID, annual, rows


def beside(folder: Path) -> Path:
    """The folder of the lock."""
    return folder.parent / "_night.journal"


async def test_footer_missing_no_column_added(client: Client, folder: Path) -> None:
    """The footer names publication, question, what is missing and the requests; the table is the panel's."""
    await extract(client, IDS[:1], Select(), Annual(), to=folder)
    table = pq.read_table(folder / f"{IDS[0]}.parquet")
    (about,) = json.loads(table.schema.metadata[b"asyncfin"])["panels"]
    assert about["missing"] == {}
    assert about["dataset_id"] == FIRST[0].publications[0].dataset_id
    panel = await client.query(IDS[0], Select(), Annual())
    assert table.column_names == panel.to_arrow().column_names


async def test_damage_page_repaired_refresh(client: Client, folder: Path) -> None:
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


@pytest.mark.parametrize("stranger", ["other.parquet", "deep/er/other.parquet", f"{UNKNOWN_ID}.parquet"])
async def test_copy_file_under_another_name_refused(client: Client, folder: Path, stranger: str) -> None:
    """Readers would take it for part of the table, and find an entity twice."""
    await extract(client, IDS, Select(), Annual(), to=folder)
    (folder / stranger).parent.mkdir(parents=True, exist_ok=True)
    (folder / stranger).write_bytes((folder / f"{IDS[0]}.parquet").read_bytes())
    for ask in (extract, extract_cost):
        with pytest.raises(ManifestMismatchError, match=f"night/{stranger} is not an extraction"):
            await ask(client, IDS, Select(), Annual(), to=folder)


async def test_file_panel_user_saved_refused_kept(client: Client, folder: Path) -> None:
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
