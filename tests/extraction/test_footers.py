"""The footers are the record of an extraction."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from asyncfin import (
    Annual,
    Client,
    Select,
    extract,
)
from tests.extraction.conftest import FIRST, IDS, annual, rows


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
