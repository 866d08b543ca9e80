"""What is in the folder, and who can read it."""

import json
import os
import re
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from attrs import evolve

from asyncfin import Annual, Client, Select, extract
from asyncfin.extraction import record
from asyncfin.sandbox import Sandbox
from asyncfin.table.columns import COLUMNS
from tests.extraction.conftest import FIRST, IDS, annual, names, query, rows, stamps


async def test_files_equal_publications(client: Client, folder: Path) -> None:
    """Row for row, against a plain reading of the datasets, and the report counts them."""
    report = await extract(client, IDS, Select(), Annual(), to=folder)
    assert rows(folder) == annual(*FIRST)
    assert report.rows == len(rows(folder))
    assert [each.state for each in report.entities] == ["done"] * len(IDS)
    assert report.bytes == sum(size for size, _ in stamps(folder).values())


async def test_four_readers_take_folder_for_table(client: Client, folder: Path) -> None:
    """DuckDB, Polars, pandas and pyarrow need no more than its name, and agree on rows and columns."""
    await extract(client, IDS, Select(), Annual(), to=folder)
    shape = (len(annual(*FIRST)), len(COLUMNS))
    described = query(f"DESCRIBE SELECT * FROM '{folder}/*.parquet'")
    assert (query(f"SELECT count(*) FROM '{folder}/*.parquet'"), len(described)) == ([(shape[0],)], shape[1])
    assert pl.read_parquet(folder).shape == shape
    assert pd.read_parquet(folder).shape == shape
    assert pyarrow.dataset.dataset(folder).to_table().shape == shape
    assert pq.read_table(folder).shape == shape


def modes(folder: Path) -> dict[Path, int]:
    """Return the rights of what is below a folder, by its path."""
    return {path: path.stat().st_mode & 0o777 for path in folder.rglob("*")}


@pytest.mark.skipif(os.name != "posix", reason="Windows has no modes")
async def test_files_have_rights_umask_gives(client: Client, folder: Path) -> None:
    """SECURITY.md: they are for readers. So are the folder, and what is next to it."""
    before = os.umask(0o027)
    try:
        await extract(client, IDS[:1], Select(), Annual(), to=folder, history=True)
    finally:
        os.umask(before)
    found = modes(folder.parent)
    assert {path.name for path in found} >= {
        "night",
        f"{IDS[0]}.parquet",
        "_night.changes",
        "lock",
        "last.json",
    }
    assert set(found.values()) == {0o640, 0o750}


async def test_a_file_says_what_it_is(client: Client, folder: Path) -> None:
    """The metadata name the publication, the question and the version; the columns are compressed by zstd."""
    await extract(client, IDS[:1], Select(), Annual(last=3), to=folder)
    footer = pq.read_metadata(folder / f"{IDS[0]}.parquet")
    (about,) = json.loads(footer.metadata[b"asyncfin"])["panels"]
    assert about["dataset_id"] == FIRST[0].publications[0].dataset_id
    assert about["question"]["periods"] == {"Annual": {"last": 3}}
    assert about["version"]
    group = footer.row_group(0)
    assert {group.column(at).compression for at in range(group.num_columns)} == {"ZSTD"}


async def test_row_groups_have_bounded_number_rows(
    client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as the documents say; fewer here, since no entity of the tests has so many."""
    monkeypatch.setattr(record, "ROWS_A_GROUP", 5)
    await extract(client, IDS[:1], Select(), Annual(), to=folder)
    footer = pq.read_metadata(folder / f"{IDS[0]}.parquet")
    sizes = [footer.row_group(at).num_rows for at in range(footer.num_row_groups)]
    assert sum(sizes) == len(annual(FIRST[0])) > 5
    assert max(sizes) == 5


async def test_documented_query_reads_metadata_files(
    client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of docs/extraction.md, with DuckDB."""
    await extract(client, IDS, Select(), Annual(), to=folder)
    text = (Path(__file__).parents[2] / "docs" / "extraction.md").read_text()
    (sql,) = re.findall(r"^    (SELECT file_name, .*\n    FROM .*)", text, re.MULTILINE)
    monkeypatch.chdir(folder.parent)
    assert sorted(query(sql)) == sorted(
        (f"night/{each.entity_id}.parquet", each.publications[0].dataset_id, '{"Annual":{}}')
        for each in FIRST
    )


async def test_id_no_file_name_can_hold(tmp_path: Path) -> None:
    """Spec 2.2 allows any 32 characters; the table has the id as it is."""
    odd = "O-../" + "é" * 29
    publication = evolve(FIRST[0].publications[0], entity_id=odd)
    async with Sandbox(publication) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        await extract(client, [odd], Select(), Annual(), to=tmp_path / "night")
    (name,) = names(tmp_path / "night")
    assert name.startswith("O-..%2F")
    assert {row[0] for row in rows(tmp_path / "night")} == {odd}


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
