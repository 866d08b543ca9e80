"""Many companies into a table of DuckDB. Run it again: only companies that have changed
are requested.

ASYNCFIN_BASE_URL=... ASYNCFIN_TOKEN=... python examples/duckdb_table.py figures.duckdb
./night ids.txt
"""

import asyncio
import sys
from pathlib import Path

import duckdb

from asyncfin import Client, ExtractReport, FiscalRange, Select, extract

SELECT = Select(metric_ids=["Revenue", "NetIncome"])


async def read(night: str, entity_ids: list[str]) -> ExtractReport:
    """Read into a folder; an unchanged company costs one request, one that left the
    list is deleted.
    """
    async with Client.from_env(lane="bulk") as client:
        return await extract(
            client, entity_ids, SELECT, FiscalRange(), to=night, prune=True
        )


def load(database: str, night: str) -> int:
    """Replace the table by what the folder has, in one transaction; return its number
    of rows.
    """
    sql = (
        "CREATE OR REPLACE TABLE figures AS FROM read_parquet(?, union_by_name = true)"
    )
    with duckdb.connect(database) as connection:
        connection.execute(sql, [f"{night}/*.parquet"])
        return connection.table("figures").shape[0]


if __name__ == "__main__":
    database, night, ids = sys.argv[1:]
    print(asyncio.run(read(night, Path(ids).read_text().split())))
    print(load(database, night), "rows")
