"""Many companies into one Delta Lake table by the change feed: one commit for what has
changed.

python examples/delta_lake.py ./figures ./night ids.txt
"""

import asyncio
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as compute
from deltalake import CommitProperties, DeltaTable, write_deltalake

from asyncfin import Client, FiscalRange, Select, as_of, extract, read_changes

SELECT = Select(metric_ids=["Revenue", "NetIncome"])
RUN = "asyncfin_run"


def plain(table: pa.Table) -> pa.Table:
    """Return a table without dictionaries, which Delta Lake does not have."""
    fields = [
        field.with_type(field.type.value_type)
        if pa.types.is_dictionary(field.type)
        else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields)).replace_schema_metadata(None)


def last_run(table: str) -> str | None:
    """Return the run of the feed that the table has, from the metadata of its
    commits.
    """
    commits = DeltaTable(table).history() if DeltaTable.is_deltatable(table) else []
    return next((commit[RUN] for commit in commits if RUN in commit), None)


def load(table: str, night: str) -> list[str]:
    """Replace the rows of companies that have changed; return the runs that the table
    did not have.
    """
    since = last_run(table)
    changes = plain(read_changes(night, since=since))
    if not len(changes):
        return []
    changed, runs = (
        changes.column("entity_id").unique(),
        sorted(changes.column("run").unique().to_pylist()),
    )
    # All that is known; nothing of a company that has lost all its rows, whose old ones
    # are deleted too.
    state = plain(as_of(night, "9999-12-31"))
    write_deltalake(
        table,
        state.filter(compute.is_in(state.column("entity_id"), changed)),
        mode="overwrite",
        predicate=f"entity_id IN ({str(changed.to_pylist())[1:-1]})" if since else None,
        commit_properties=CommitProperties(custom_metadata={RUN: runs[-1]}),
    )
    return runs


async def update(table: str, night: str, entity_ids: list[str]) -> list[str]:
    """Bring the extraction and the table up to date; companies that left the list are
    removed.
    """
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
    return await asyncio.to_thread(load, table, night)


if __name__ == "__main__":
    table, night, ids = sys.argv[1:]
    print(
        asyncio.run(update(table, night, Path(ids).read_text().split()))
        or "nothing has changed"
    )
