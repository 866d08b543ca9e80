"""Many companies as Ray tasks, each of which returns the Arrow table of one.

python examples/ray_tasks.py ids.txt
"""

import asyncio
import sys
from pathlib import Path

import pyarrow as pa
import ray

from asyncfin import Annual, Client, Select, concat, read_entity

SELECT = Select(metric_ids=["Revenue", "NetIncome"])


@ray.remote(max_retries=3)
def figures(entity_ids: list[str]) -> pa.Table:
    """The figures of some companies, read with one client: the worker's environment has
    the token.
    """

    async def read() -> pa.Table:
        async with Client.from_env() as client:
            answers = [
                await read_entity(client, entity_id, SELECT, Annual())
                for entity_id in entity_ids
            ]
        return concat([answer.panel for answer in answers])

    return asyncio.run(read())


def night(entity_ids: list[str], chunk: int = 25) -> pa.Table:
    chunks = [
        entity_ids[start : start + chunk] for start in range(0, len(entity_ids), chunk)
    ]
    return pa.concat_tables(
        ray.get([figures.remote(part) for part in chunks]), promote_options="default"
    )


if __name__ == "__main__":
    print(night(Path(sys.argv[1]).read_text().split()).num_rows, "rows")
