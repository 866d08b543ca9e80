"""Many companies into one Delta Lake table by the change feed: one commit per run that changed something.

python examples/delta_lake.py ./figures ./night ids.txt
"""

import asyncio
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as compute
from deltalake import CommitProperties, DeltaTable, write_deltalake

from asyncfin import Client, FiscalRange, Select, extract, read_changes

SELECT = Select(metric_ids=["Revenue", "NetIncome"])
# Of a cell; where several series share metric, group and scope path, add series_id.
KEY = ("entity_id", "metric_id", "reporting_group_id", "scope_path", "year", "end_month", "duration_months")


def plain(table: pa.Table) -> pa.Table:
    """Return a table without dictionaries, which Delta Lake does not have."""
    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields)).replace_schema_metadata(None)


def last_run(table: str) -> str | None:
    """Return the run of the feed that the table has, from the metadata of its last commit."""
    return DeltaTable(table).history(1)[0].get("run") if DeltaTable.is_deltatable(table) else None


def load(table: str, night: str) -> list[str]:
    """Apply the runs of the feed that the table does not have, deletions included, and return them."""
    changes = read_changes(night, since=last_run(table))
    runs = sorted(compute.unique(changes.column("run")).to_pylist())
    for run in runs:
        rows = plain(changes.filter(compute.equal(changes.column("run"), run)))
        commit = CommitProperties(custom_metadata={"run": run})
        if not DeltaTable.is_deltatable(table):
            write_deltalake(table, rows.slice(0, 0))
        merge = DeltaTable(table).merge(
            rows,
            " AND ".join(f"old.{name} = new.{name}" for name in KEY),
            source_alias="new",
            target_alias="old",
            commit_properties=commit,
        )
        merge = merge.when_matched_delete("new.change = 'vanished'").when_matched_update_all()
        merge.when_not_matched_insert_all("new.change != 'vanished'").execute()
    return runs


async def update(table: str, night: str, entity_ids: list[str]) -> list[str]:
    """Bring the extraction and the table up to date; companies that left the list are removed."""
    async with Client.from_env() as client:
        await extract(client, entity_ids, SELECT, FiscalRange(), to=night, history=True, prune=True)
    return await asyncio.to_thread(load, table, night)


if __name__ == "__main__":
    table, night, ids = sys.argv[1:]
    print(asyncio.run(update(table, night, Path(ids).read_text().split())) or "nothing has changed")
