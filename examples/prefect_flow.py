"""A nightly run as a Prefect flow; an Airflow task is the same function under `@task`.

The extraction resumes by itself, so a retry of the task reads only what is left. A
used-up allowance is no failure: the flow ends, and the next one goes on.

    python examples/prefect_flow.py s3://bucket/figures ids.txt
"""

import asyncio
import sys
from pathlib import Path

from prefect import flow, task

from asyncfin import Annual, Client, Select, extract

SELECT = Select(metric_ids=["Revenue", "NetIncome"])


@task(retries=3, retry_delay_seconds=60)
async def night(to: str, entity_ids: list[str]) -> str:
    """Bring the bucket up to date, and return the report."""
    async with Client.from_env(lane="bulk") as client:
        report = await extract(client, entity_ids, SELECT, Annual(), to=to)
    if report.failed:
        raise RuntimeError(str(report))  # Prefect tries again; what is done stays done
    return str(report)


@flow
async def figures(to: str, entity_ids: list[str]) -> str:
    return await night(to, entity_ids)


if __name__ == "__main__":
    print(asyncio.run(figures(sys.argv[1], Path(sys.argv[2]).read_text().split())))
