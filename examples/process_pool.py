"""Many companies over the processes of one machine, into a folder or a bucket.

ASYNCFIN_BASE_URL=... ASYNCFIN_TOKEN=... python examples/process_pool.py
s3://bucket/figures ids.txt
"""

import asyncio
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from asyncfin import Annual, Client, ExtractReport, Select, extract

SELECT = Select(metric_ids=["Revenue", "NetIncome"])


def make_executor() -> ProcessPoolExecutor:
    """Return a pool whose processes are spawned: a fork would take over threads and
    connections.
    """
    return ProcessPoolExecutor(4, mp_context=get_context("spawn"))


async def night(to: str, entity_ids: list[str]) -> ExtractReport:
    # Client.from_env is sent to the workers by its name: each takes the token from its
    # own environment. In the bulk lane it waits through outages.
    return await extract(
        partial(Client.from_env, lane="bulk"),
        entity_ids,
        SELECT,
        Annual(),
        to=to,
        executor=make_executor,
        chunk=25,
    )


if __name__ == "__main__":
    print(asyncio.run(night(sys.argv[1], Path(sys.argv[2]).read_text().split())))
