"""Kill drivers and workers of an extraction over an executor, into an object store, and
compare in the end.

``python -m tools.checks.crash_workers [pool|dask] [kills] [seed]``: every second kill
is the driver's. moto's server replaces S3. After each kill every object is read, and
the requests that brought none are counted: those in flight at most. Forty kills take
minutes, most of them imports and waits for the locks of killed drivers; there is a
line after each.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import obstore
import pyarrow.parquet as pq

from asyncfin import Annual, Client, Select, extract
from asyncfin.sandbox import Sandbox
from asyncfin.sandbox.dataset import DatasetFile
from tests.extraction.s3 import BUCKET, S3, served
from tests.generate import generate

ROOT = Path(__file__).parents[2]
COMPANIES = 12
# How many of them publish before each run.
_CHANGED = 6
# Of one page of catalogue and one of the question: the metadata are asked again, as of
# any entity.
REQUESTS = 2
# A worker reads two entities at once. A driver takes both workers with it, and a broken
# pool ends the other.
IN_FLIGHT = {"driver": 4 * REQUESTS, "pool": 4 * REQUESTS, "dask": 2 * REQUESTS}
# A run takes some ten seconds, most of them imports; on a busy machine these alone take
# two minutes.
LONGEST = 600
TO = f"s3://{BUCKET}/night"
_RUN = """
import asyncio, multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
from asyncfin import Annual, Select, extract
import asyncfin.extraction.extract  # noqa: F401
from asyncfin.extraction import prefix
from tests.extraction.making import make_killing_client

for module in (prefix, sys.modules["asyncfin.extraction.extract"]):
    vars(module).update(RENEW_SECONDS=0.5, STALE_SECONDS=8.0)

def pool():
    # What a new interpreter would import is imported once for each driver.
    context = multiprocessing.get_context("forkserver")
    names = ["asyncfin.extraction.extract", "tests.extraction.making", "obstore"]
    context.set_forkserver_preload(names)
    return ProcessPoolExecutor(2, mp_context=context)

def main(kind, to, *ids):
    arguments = make_killing_client, ids, Select(), Annual()
    options = {"to": to, "chunk": 3}
    if kind == "pool":
        asyncio.run(extract(*arguments, executor=pool, **options))
        return
    from distributed import Client as Cluster
    with Cluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        executor = cluster.get_executor(pure=False)
        asyncio.run(extract(*arguments, executor=executor, **options))

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


async def crash(kind: str, kills: int, seed: int, place: Path) -> str:
    """Kill so often, let the last run end, and return what came of it."""
    source = random.Random(seed)
    companies = [
        generate(number, series=30, publications=2) for number in range(COMPANIES)
    ]
    ids = [company.entity_id for company in companies]
    program, kill_at = place / "driver.py", place / "kill"
    program.write_text(_RUN)
    done, wasted, most = {"driver": 0, "worker": 0}, 0, 0
    with served() as s3:
        async with Sandbox(*(_at(company, 0) for company in companies)) as sandbox:
            os.environ |= {
                "ASYNCFIN_BASE_URL": sandbox.base_url,
                "ASYNCFIN_TOKEN": sandbox.token,
                "ASYNCFIN_KILL_AT": str(kill_at),
                "PYTHONPATH": str(ROOT),
            }
            placed = _publications(s3, companies)
            current = dict.fromkeys(ids, 0)
            while sum(done.values()) < kills:
                # Each of them is read: a run that ends before the kill is no trial.
                for company in source.sample(companies, _CHANGED):
                    current[company.entity_id] ^= 1
                    sandbox.publish(_at(company, current[company.entity_id]))
                since, before = len(sandbox.log), placed
                if (sum(done.values()) % 2) == 0:
                    kill_at.write_text(str(1 + source.randrange(_CHANGED)))
                    await _run(program, kind, ids, sandbox, None)
                    killed, allowed = not kill_at.exists(), IN_FLIGHT[kind]
                    kill_at.unlink(missing_ok=True)
                    done["worker"] += killed
                else:
                    killed = await _run(
                        program, kind, ids, sandbox, 1 + source.randrange(_CHANGED)
                    )
                    allowed = IN_FLIGHT["driver"]
                    done["driver"] += killed
                placed = _publications(s3, companies)
                read = sum(
                    item.operation in ("catalogue", "query")
                    for item in sandbox.log[since:]
                )
                lost = read - REQUESTS * len(placed.items() - before.items())
                assert 0 <= lost <= (allowed if killed else 0), (
                    f"{lost} requests brought no object, {done}"
                )
                wasted, most = wasted + lost, max(most, lost)
                count = sum(done.values())
                print(f"{count} of {kills} kills, {lost} requests lost", flush=True)
            await _run(program, kind, ids, sandbox, None)
            requests = len(sandbox.log)
            async with Client(sandbox.base_url, sandbox.token) as client:
                await extract(client, ids, Select(), Annual(), to=place / "calm")
            calm = [
                row
                for path in (place / "calm").iterdir()
                for row in _rows(path.read_bytes())
            ]
        assert sorted(_all(s3)) == sorted(calm) != []
        assert "_night.journal/lock" not in s3.names("_night.journal/")
    kills_made = f"{done['driver']} drivers and {done['worker']} workers killed"
    cost = f"{requests} requests, {wasted} of them wasted, at most {most} by one kill"
    return f"{kind}: {kills_made}; {cost}; equal rows"


async def _run(
    program: Path, kind: str, ids: list[str], sandbox: Sandbox, queries: int | None
) -> bool:
    """Run a driver, and kill it after a number of queries; return whether it was
    killed.
    """
    since = len(sandbox.log)
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(program), kind, TO, *ids, cwd=ROOT, start_new_session=True
    )
    killed = False
    ends = asyncio.get_running_loop().time() + LONGEST
    while process.returncode is None:
        assert asyncio.get_running_loop().time() < ends, "the driver hangs"
        served_since = sum(item.operation == "query" for item in sandbox.log[since:])
        if queries is not None and served_since >= queries:
            os.killpg(
                process.pid, signal.SIGKILL
            )  # its workers go with it, as with their machine
            killed = True
            break
        await asyncio.sleep(0.02)
    code = await process.wait()
    assert killed or code == 0, f"the driver ended with {code}"
    return killed


def _publications(s3: S3, companies: list[DatasetFile]) -> dict[str, str]:
    """Read every object, each of which is whole, and return of which publication of its
    company it is.
    """
    dataset_ids = {
        company.entity_id: {item.dataset_id for item in company.publications}
        for company in companies
    }
    publications = {}
    for key in s3.names("night/"):
        table = pq.read_table(
            io.BytesIO(bytes(obstore.get(s3.store, key).bytes())),
            page_checksum_verification=True,
        )
        (record,) = json.loads(table.schema.metadata[b"asyncfin"])["panels"]
        assert record["dataset_id"] in dataset_ids[record["entity_id"]]
        publications[record["entity_id"]] = record["dataset_id"]
    return publications


def _all(s3: S3) -> list[tuple[Any, ...]]:
    return [
        row
        for key in s3.names("night/")
        for row in _rows(bytes(obstore.get(s3.store, key).bytes()))
    ]


def _rows(content: bytes) -> list[tuple[Any, ...]]:
    table = pq.read_table(io.BytesIO(content))
    columns = ("entity_id", "dataset_id", "series_id", "period_label", "number")
    return list(zip(*(table.column(name).to_pylist() for name in columns), strict=True))


def _at(company: DatasetFile, number: int) -> DatasetFile:
    return DatasetFile(company.entity_id, company.name, (company.publications[number],))


def main(kind: str = "pool", kills: str = "40", seed: str = "0") -> None:
    with tempfile.TemporaryDirectory() as place:
        print(asyncio.run(crash(kind, int(kills), int(seed), Path(place))))


if __name__ == "__main__":
    main(*sys.argv[1:])
