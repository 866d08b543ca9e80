"""A dlt resource of many companies: incremental, into whatever destination dlt writes to.

python examples/dlt_resource.py ids.txt
"""

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import dlt

from asyncfin import Annual, Client, Select, read_entity

SELECT = Select(metric_ids=["Revenue", "NetIncome"])
COLUMNS = ["entity_id", "entity_name", "metric_id", "scope_path", "period_label", "number"]


@dlt.resource(name="figures", write_disposition="merge", merge_key="entity_id")
async def figures(entity_ids: list[str]) -> AsyncIterator[Any]:
    """The figures of companies that have a new publication: their old rows are replaced."""
    known = dlt.current.resource_state().setdefault("publications", {})
    async with Client.from_env() as client:
        for entity_id in entity_ids:
            if known.get(entity_id) == (await client.dataset(entity_id)).dataset_id:
                continue
            answer = await read_entity(client, entity_id, SELECT, Annual())
            yield answer.panel.to_arrow(columns=COLUMNS)
            known[entity_id] = answer.panel.dataset.dataset_id


if __name__ == "__main__":
    pipeline = dlt.pipeline("companies", destination="duckdb", dataset_name="figures_of")
    print(pipeline.run(figures(Path(sys.argv[1]).read_text().split())))
