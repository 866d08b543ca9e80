"""A dlt resource of the change feed: incremental, deletions included, into whatever
destination dlt has.

python examples/dlt_resource.py ./night ids.txt
"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dlt
import pyarrow as pa
import pyarrow.compute as compute

from asyncfin import Client, FiscalRange, Select, as_of, extract, read_changes

SELECT = Select(metric_ids=["Revenue", "NetIncome"])
COLUMNS = [
    "entity_id",
    "entity_name",
    "metric_id",
    "reporting_group_id",
    "scope_path",
    "series_id",
]
COLUMNS += ["period_label", "number"]


def companies(table: pa.Table) -> pa.ChunkedArray:
    """Return the company of each row."""
    return table.column("entity_id").cast(pa.string())


@dlt.resource(
    name="figures",
    write_disposition="merge",
    merge_key="entity_id",
    columns={"deleted": {"data_type": "bool", "hard_delete": True}},
)
def figures(night: str) -> Iterator[Any]:
    """Replace the rows of the companies that have changed since the run that was loaded
    last.
    """
    state = dlt.current.resource_state()
    changes = read_changes(night, since=state.get("run"))
    if not len(changes):
        return
    rows = as_of(night, "9999-12-31", columns=COLUMNS)
    rows = rows.filter(compute.is_in(companies(rows), companies(changes)))
    yield rows.append_column("deleted", pa.repeat(pa.scalar(False), len(rows)))
    # A company that has lost all its rows is named by one that vanished, which is not
    # inserted again.
    gone = changes.filter(
        compute.invert(compute.is_in(companies(changes), companies(rows)))
    ).select(COLUMNS)
    yield gone.append_column("deleted", pa.repeat(pa.scalar(True), len(gone)))
    state["run"] = max(changes.column("run").unique().to_pylist())


async def update(night: str, entity_ids: list[str]) -> None:
    """Bring the extraction up to date; companies that left the list are removed."""
    async with Client.from_env(lane="bulk") as client:
        await extract(
            client,
            entity_ids,
            SELECT,
            FiscalRange(),
            to=night,
            history=True,
            prune=True,
        )


if __name__ == "__main__":
    night, ids = sys.argv[1:]
    asyncio.run(update(night, Path(ids).read_text().split()))
    pipeline = dlt.pipeline(
        "companies", destination="duckdb", dataset_name="figures_of"
    )
    print(pipeline.run(figures(night)))
