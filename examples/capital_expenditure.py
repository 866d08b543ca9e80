"""Which companies report capital expenditure, under which tag, and since when.

ASYNCFIN_BASE_URL=... ASYNCFIN_TOKEN=... python examples/capital_expenditure.py ids.txt
"""

import asyncio
import json
import sys
from pathlib import Path

import pandas as pd

from asyncfin import Annual, Client, Comparison, Select, first_of

TAGS = [
    "us-gaap:PaymentsToAcquirePropertyPlantAndEquipment",
    "us-gaap:PaymentsToAcquireProductiveAssets",
]


async def read(entity_ids: list[str]) -> Comparison:
    question = Select(TAGS, basis="consolidated", cadence="annual")
    async with Client.from_env() as client:
        return await client.compare(entity_ids, question, Annual())


def tags(companies: Comparison) -> tuple[pd.DataFrame, list[str]]:
    """Return the years of each company and tag, and the ids of the companies without
    any.
    """
    table = first_of(companies, TAGS)
    years = table.to_pandas().groupby(
        ["entity_name", "metric_id"], observed=True, sort=False
    )["year"]
    without = json.loads(table.schema.metadata[b"asyncfin"])["without"]
    return years.agg(["min", "max", "count"]), without


if __name__ == "__main__":
    companies = asyncio.run(read(Path(sys.argv[1]).read_text().split()))
    tags_by_company, without = tags(companies)
    print(tags_by_company.to_string())
    print("without:", *(companies[entity_id].dataset.name for entity_id in without))
    for entity_id, error in companies.failed.items():
        print("failed:", entity_id, error)
