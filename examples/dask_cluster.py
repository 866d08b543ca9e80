"""Many companies over a Dask cluster, into a bucket that all of its workers reach.

The workers need asyncfin[store], ASYNCFIN_BASE_URL, ASYNCFIN_TOKEN and the bucket's
credentials in their environment. A worker that dies loses nothing: Dask gives its chunk
to another one, which finds in the bucket what the first had put there.

    python examples/dask_cluster.py tcp://scheduler:8786 s3://bucket/figures ids.txt
"""

import asyncio
import sys
from functools import partial
from pathlib import Path

from distributed import Client as Cluster

from asyncfin import Annual, Client, ExtractReport, Select, extract

SELECT = Select(metric_ids=["Revenue", "NetIncome"])


def night(cluster: Cluster, to: str, entity_ids: list[str]) -> ExtractReport:
    # pure=False: Dask would otherwise take a chunk that it has read before for read.
    executor = cluster.get_executor(pure=False)
    return asyncio.run(
        extract(
            partial(Client.from_env, lane="bulk"),  # waits through outages
            entity_ids,
            SELECT,
            Annual(),
            to=to,
            executor=executor,
            chunk=25,
        )
    )


if __name__ == "__main__":
    print(
        night(Cluster(sys.argv[1]), sys.argv[2], Path(sys.argv[3]).read_text().split())
    )
