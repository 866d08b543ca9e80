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
from tests.extraction.test_feed import COST, REVENUE, Nights, rows
from tests.nights import Cell, changes_in, entity, publication

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
    pq.write_table(table.drop_columns(list(dropped)), path, write_page_checksum=True)


def feed(night: Nights) -> list[Path]:
    return sorted((night.to.parent / "night.changes").glob("*.parquet"))


def make_old(night: Nights) -> None:
    """Turn files and feed into those of a version that did not write some columns."""
    for path in night.to.glob("*.parquet"):
        rewrite(path, *LATER)
    for path in feed(night):
        rewrite(path, *LATER, "before_text", "before_dataset_id")


def test_a_question_does_not_depend_on_the_columns() -> None:
    """A later version with another column continues the folder."""
    assert set(json.loads(SharedQuestion(Select(), Annual()).text)) == {"select", "periods", "value_version"}


async def test_a_folder_of_fewer_columns_is_continued(night: Nights) -> None:
    """An unchanged company keeps its file, for one request; a new publication's file has all columns."""
    content = {REVENUE: {"FY2020": Cell(1), "FY2021": Cell(2)}}
    ids = (entity(1), entity(2))
    for each in ids:
        night.publish(content, of=each)
    await night.run(ids, history=True)
    make_old(night)
    night.publish({REVENUE: {"FY2020": Cell(1), "FY2021": Cell(9)}}, of=entity(1))
    report = await night.run(ids)
    assert [(each.state, each.requests) for each in report.entities] == [("done", 3), ("unchanged", 1)]
    columns = [set(pq.read_schema(night.to / f"{each}.parquet").names) for each in ids]
    assert columns[0] - columns[1] == set(LATER)
    assert changes_in(read_changes(night.to, last=True)) == [("restated", REVENUE.triple, "FY2021", 9, 2)]
    report = await night.run(ids, refresh=True)
    assert set(pq.read_schema(night.to / f"{entity(2)}.parquet").names) == columns[0]
    assert len(read_changes(night.to)) == 5


async def test_columns_that_earlier_rows_do_not_have_are_not_compared(night: Nights) -> None:
    """Row by row: where the state is the feed's, a part of its rows can be of a later version."""
    cells = {f"FY202{at}": Cell(at) for at in range(3)}
    night.publish({REVENUE: cells})
    await night.run(history=True)
    make_old(night)
    night.publish({REVENUE: cells | {"FY2020": Cell(5)}})
    await night.run()
    (night.to / f"{entity(1)}.parquet").unlink()
    night.publish({REVENUE: cells | {"FY2020": Cell(5), "FY2021": Cell(1, label="amended")}})
    await night.run()
    assert [each[:3] for each in changes_in(read_changes(night.to, last=True))] == [
        ("relabelled", REVENUE.triple, "FY2021")
    ]
    assert [each["value_number_format"] for each in as_of(night.to, night.now).to_pylist()] == [
        *("#,##0", "#,##0", None)
    ]


async def test_a_column_that_a_run_does_not_have_is_null_and_an_unknown_one_is_ignored(night: Nights) -> None:
    """What is read is one table, whichever versions have written the runs."""
    for number in (1, 2):
        night.publish({REVENUE: {"FY2020": Cell(number)}, COST: {"FY2020": Cell(7)}})
        await night.run(history=True)
    schema, changes = read_changes(night.to).schema, rows(read_changes(night.to))
    first, second = feed(night)
    rewrite(first, "text", "scopes", added={"later": pa.array([1, 2])})
    table = read_changes(night.to)
    assert table.schema.remove_metadata() == schema.remove_metadata()
    assert table.column("text").to_pylist() == [None, None, "2 filed"]
    assert len(table) == len(changes)
    assert as_of(night.to, night.now, columns="number").column("number").to_pylist() == [7, 2]
    assert second.exists()


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize("way", ["missing", "retyped"])
async def test_a_required_column_that_is_missing_or_of_another_type_is_damage(
    night: Nights, name: str, way: str
) -> None:
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


async def test_a_folder_of_different_columns_is_read_as_one_table(night: Nights) -> None:
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
