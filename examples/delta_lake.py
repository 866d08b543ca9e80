"""Many companies into one Delta Lake table: a commit a company, and only for what has changed.

python examples/delta_lake.py ./figures ids.txt
"""

import asyncio
import sys
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from asyncfin import Annual, Client, Select, read_entity

SELECT = Select(metric_ids=["Revenue", "NetIncome"])


def publications(table: str) -> dict[str, str]:
    """Which publication of each company the table holds."""
    if not DeltaTable.is_deltatable(table):
        return {}
    rows = DeltaTable(table).to_pyarrow_table(columns=["entity_id", "dataset_id"])
    return dict(zip(*(rows.column(name).to_pylist() for name in ("entity_id", "dataset_id")), strict=True))


def plain(table: pa.Table) -> pa.Table:
    """Delta Lake has no dictionaries: their words are written out."""
    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


async def night(table: str, entity_ids: list[str]) -> int:
    """Bring the table up to date, and return how many companies have changed."""
    known, changed = publications(table), 0
    async with Client.from_env() as client:
        for entity_id in entity_ids:
            if known.get(entity_id) == (await client.dataset(entity_id)).dataset_id:
                continue
            answer = await read_entity(client, entity_id, SELECT, Annual())
            write_deltalake(
                table,
                plain(answer.panel.to_arrow()),
                mode="overwrite",
                predicate=f"entity_id = '{entity_id}'" if known else None,
            )
            known[entity_id] = answer.panel.dataset.dataset_id
            changed += 1
    return changed


if __name__ == "__main__":
    print(asyncio.run(night(sys.argv[1], Path(sys.argv[2]).read_text().split())), "companies have changed")
