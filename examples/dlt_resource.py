"""A dlt resource of the change feed: incremental, deletions included, into whatever destination dlt has.

python examples/dlt_resource.py ./night ids.txt
"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dlt
import pyarrow.compute as compute

from asyncfin import Client, FiscalRange, Select, extract, read_changes

SELECT = Select(metric_ids=["Revenue", "NetIncome"])
# Of a cell; where several series share metric, group and scope path, add series_id.
KEY = ["entity_id", "metric_id", "reporting_group_id", "scope_path", "year", "end_month", "duration_months"]
COLUMNS = [*KEY, "entity_name", "series_id", "period_label", "number", "change", "run"]


@dlt.resource(
    name="figures",
    write_disposition="merge",
    primary_key=KEY,
    columns={"vanished": {"hard_delete": True}, "run": {"dedup_sort": "desc"}},
)
def figures(night: str) -> Iterator[Any]:
    """Yield the changes since the run that was loaded last."""
    state = dlt.current.resource_state()
    changes = read_changes(night, since=state.get("run")).select(COLUMNS)
    if len(changes):
        yield changes.append_column("vanished", compute.equal(changes.column("change"), "vanished"))
        state["run"] = max(compute.unique(changes.column("run")).to_pylist())


async def update(night: str, entity_ids: list[str]) -> None:
    """Bring the extraction up to date; companies that left the list are removed."""
    async with Client.from_env() as client:
        await extract(client, entity_ids, SELECT, FiscalRange(), to=night, history=True, prune=True)


if __name__ == "__main__":
    night, ids = sys.argv[1:]
    asyncio.run(update(night, Path(ids).read_text().split()))
    pipeline = dlt.pipeline("companies", destination="duckdb", dataset_name="figures_of")
    print(pipeline.run(figures(night)))
