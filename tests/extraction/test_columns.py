"""Files that an earlier or later version of the library wrote: their columns are read by name."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from asyncfin import Annual, Client, ManifestMismatchError, Select, as_of, read_changes
from asyncfin.extraction.question import SharedQuestion
from asyncfin.sandbox import Sandbox
from tests.extraction.test_feed import REVENUE, Nights
from tests.nights import Cell, entity, publication

# Columns that a version might not have written yet: one that is compared, and one that is not.
LATER = ("value_number_format", "series_label")
REQUIRED = (
    *("entity_id", "asked_version", "series_id", "metric_id", "reporting_group_id", "scope_path", "year"),
    *("end_month", "duration_months", "number", "change", "before", "known_from", "run"),
)


@pytest.fixture
async def night(tmp_path: Path) -> AsyncIterator[Nights]:
    async with (
        Sandbox(publication({}, number=999)) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        yield Nights(sandbox, client, tmp_path / "night")


def rewrite(path: Path, *dropped: str, added: dict[str, Any] | None = None) -> None:
    """Write a file again without some columns, or with others."""
    table = pq.read_table(path)
    for name, column in (added or {}).items():
        if name in table.column_names:
            table = table.set_column(table.column_names.index(name), name, column)
        else:
            table = table.append_column(name, column)
    metadata = {b"asyncfin": pq.read_metadata(path).metadata[b"asyncfin"]}
    table = table.drop_columns(list(dropped)).replace_schema_metadata(metadata)
    pq.write_table(table, path, write_page_checksum=True)


def feed(night: Nights) -> list[Path]:
    return sorted((night.to.parent / "_night.changes").glob("*.parquet"))


def test_question_does_not_depend_on_columns() -> None:
    """A later version with another column continues the folder."""
    assert set(json.loads(SharedQuestion(Select(), Annual()).text)) == {"select", "periods", "value_version"}


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize("way", ["missing", "retyped"])
async def test_required_column_missing_or_another_type(night: Nights, name: str, way: str) -> None:
    """The error names the file."""
    night.publish({REVENUE: {"FY2020": Cell(1)}})
    await night.run(history=True)
    (path,) = feed(night)
    if way == "missing":
        rewrite(path, name)
    else:
        rewrite(path, added={name: pa.array([True])})
    for read in (read_changes, lambda to: as_of(to, night.now)):
        with pytest.raises(ManifestMismatchError, match=rf"{path.name} is damaged .*{name}"):
            read(night.to)


async def test_folder_different_columns_read_table(night: Nights) -> None:
    """With the options that docs/extraction.md names."""
    ids = (entity(1), entity(2))
    for each in ids:
        night.publish({REVENUE: {"FY2020": Cell(1)}}, of=each)
    await night.run(ids)
    rewrite(night.to / f"{ids[0]}.parquet", *LATER)
    newest = pq.read_schema(night.to / f"{ids[1]}.parquet")
    with duckdb.connect() as connection:
        found = connection.execute(
            f"SELECT series_label FROM read_parquet('{night.to}/*.parquet', union_by_name=true)"
            " ORDER BY entity_id"
        ).fetchall()
    expected = [None, "Revenue as S-1"]
    assert [label for (label,) in found] == expected
    assert ds.dataset(night.to, schema=newest).to_table()["series_label"].to_pylist() == expected
    new = pl.scan_parquet(night.to / f"{ids[1]}.parquet").collect_schema()
    frame = pl.scan_parquet(night.to, schema=new, missing_columns="insert").collect()
    assert frame["series_label"].to_list() == expected
