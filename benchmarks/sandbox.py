"""What one query page of 100 series x 120 periods, 60 % filled, costs the sandbox; and
real companies.

The rules are asked without HTTP: from the request's bytes to the response's, for a page
whose pieces are kept since the first time. Next to it is what rendering the same page
anew would cost, by json.dumps of its parsed form. Over HTTP, the CPU of a process with
the sandbox is divided by that of one with a plain aiohttp.web server that sends the
same bytes, in turns. The real companies of ``../shared/data``, if they are there, are
loaded in a process of their own; the largest is asked for 40 series at a time.
"""

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import aiohttp
from attrs import evolve

from asyncfin.sandbox import Account, Dialect, Publication, load
from asyncfin.sandbox.accounts import PERMISSIONS, Meter, Token
from asyncfin.sandbox.request import Request
from asyncfin.sandbox.rules import Service, answer
from asyncfin.sandbox.store import Store
from tests.generate import generate

ROUNDS, GOAL, HTTP_GOAL = 20, 10, 8
# A whole page, and one over half of its periods.
SPANS = {"all": 0, "the newer half": 0.5}


REAL = sorted(Path("../shared/data").glob("*.json.gz"))
LOADING = """
import asyncio, resource, sys, time
from asyncfin.sandbox import Sandbox

async def main():
    async with Sandbox(*sys.argv[1:]):
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(time.process_time(), memory)

asyncio.run(main())
"""


SERVING = """
import asyncio, json, sys, time
from aiohttp import web
from benchmarks.sandbox import served_page
from asyncfin.sandbox import Sandbox

async def main():
    publication, asked, page = served_page()
    if sys.argv[1] == "sandbox":
        sandbox = Sandbox(publication)
        await sandbox.start()
        address, token = sandbox.base_url, sandbox.token
    else:
        async def send(request):
            await request.read()
            return web.Response(body=page, content_type="application/json")
        runner = web.ServerRunner(web.Server(send))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        address, token = f"http://127.0.0.1:{runner.addresses[0][1]}", "token"
    print(json.dumps([address + asked.path, token, asked.body.decode()]), flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(time.process_time(), flush=True)

asyncio.run(main())
"""


def served_page() -> tuple[Publication, Request, bytes]:
    """Return a publication, a query for a part of its periods, and its page of about
    0.4 MB.
    """
    publication = generate(
        1, series=1000, periods=60, fill=0.25, publications=1
    ).publications[-1]
    body, local_service = request(publication, 6, "original"), service(publication)
    page = answer(body, local_service).body
    local_service.store.close()
    return publication, body, page


async def over_http() -> tuple[float, float, int]:
    """Return the ms of CPU that the sandbox takes for a page, and aiohttp.web; and the
    size of the page.
    """
    smallest, size = {"sandbox": float("inf"), "aiohttp.web": float("inf")}, 0
    with ExitStack() as stack:
        servers = {}
        for kind in smallest:
            command = [sys.executable, "-c", SERVING, kind]
            server = stack.enter_context(
                subprocess.Popen(  # noqa: ASYNC220
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            assert server.stdout is not None
            servers[kind] = server, *json.loads(server.stdout.readline())

        def cpu(server: Any) -> float:
            print(file=server.stdin, flush=True)
            return float(server.stdout.readline())

        async with aiohttp.ClientSession() as session:
            for _ in range(5):
                for kind, (server, url, token, body) in servers.items():
                    headers = {
                        "Authorization": f"Bearer {token}",
                        "Content-Type": "application/json",
                    }
                    began = cpu(server)
                    for _ in range(ROUNDS):
                        async with session.post(
                            url, data=body, headers=headers
                        ) as response:
                            size = len(await response.read())
                    smallest[kind] = min(
                        smallest[kind], (cpu(server) - began) / ROUNDS * 1e3
                    )
        for server, *_ in servers.values():
            server.stdin.close()
    return smallest["sandbox"], smallest["aiohttp.web"], size


def _http_table(ours: float, plain: float, size: int) -> str:
    return (
        "| over HTTP, kB | sandbox, ms CPU | aiohttp.web, ms CPU | ratio | goal |\n|"
        + " --- |" * 5
        + f"\n| {size / 1000:,.0f} | {ours:.2f} | {plain:.2f} | {ours / plain:.1f} | "
        f"at most {HTTP_GOAL} |"
    )


def request(publication: Publication, start: int, value_version: str) -> Request:
    """A query for the first 100 series of the most frequent metrics and paths, from a
    period on.
    """
    series = [item for group in publication.groups for item in group["series"]]
    metrics = Counter(item["metric_id"] for item in series).most_common(50)
    paths = Counter(json.dumps(item["scopes"]) for item in series).most_common(50)
    year, end_month, _ = publication.periods[start]
    body = {
        "metric_ids": [metric for metric, _ in metrics],
        "scope_combinations": [json.loads(path) for path, _ in paths],
        "periods": {
            "mode": "fiscal_range",
            "from": {"year": year, "end_month": end_month, "duration_months": 0},
            "to": {"year": 9999, "end_month": 12, "duration_months": 0},
        },
        "value_version": value_version,
        "limit": 100,
    }
    headers = {"authorization": "Bearer token", "content-type": "application/json"}
    path = f"/v1/entities/{publication.entity_id}/dataset/query"
    return Request("POST", path, "", headers, json.dumps(body).encode(), "req-1")


def service(publication: Publication) -> Service:
    """The rules over a store with this publication."""
    store = Store()
    store.publish(publication)
    store.put_account(Account("main"))
    store.put_token("token", Token("main", PERMISSIONS, "rest"))
    return Service(
        store,
        Meter(store, lambda: datetime.now(UTC), float),
        Dialect(),
        "http://service.test",
    )


def milliseconds(work: Callable[[], Any]) -> float:
    """The least CPU time of many rounds."""
    times = []
    for _ in range(ROUNDS):
        began = process_time()
        work()
        times.append(process_time() - began)
    return min(times) * 1e3


def run() -> str:
    """Return a Markdown table: the goal is less than 10 ms for a page."""
    publication = generate(
        1, series=1000, periods=120, fill=0.6, publications=1
    ).publications[-1]
    local_service = service(publication)
    rows = [
        "| periods | version | values | kB | a page | rendered anew | goal |",
        "|" + " --- |" * 7,
    ]
    for name, share in SPANS.items():
        for version in ("original", "latest_restated"):
            query_body = request(
                publication, int(len(publication.periods) * share), version
            )
            page = json.loads(body := answer(query_body, local_service).body)
            values = sum(
                cell is not None
                for series in page["series"]
                for cell in series["values"]
            )
            ours = milliseconds(partial(answer, query_body, local_service))
            anew = milliseconds(partial(json.dumps, page))
            rows.append(
                f"| {name}: {len(page['periods'])} | {version} | {values:,} in "
                f"{len(page['series'])} series"
                f" | {len(body) / 1000:,.0f} | {ours:.1f} ms | {anew:.1f} ms | < "
                f"{GOAL} ms |"
            )
    local_service.store.close()
    rows += ["", _http_table(*asyncio.run(over_http()))]
    return "\n".join(
        [
            *rows,
            "",
            *(real() if REAL else ["Real companies: ../shared/data is not there."]),
        ]
    )


def real() -> list[str]:
    """Return a Markdown table of loading all real companies, and of queries for some
    series of one.
    """
    loading = [sys.executable, "-c", LOADING, *map(str, REAL)]
    seconds, megabytes = subprocess.run(
        loading, capture_output=True, check=True
    ).stdout.split()
    publication = max(
        (load(path).publications[-1] for path in REAL),
        key=lambda item: len(item.values),
    )
    local_service = service(publication)
    series = [row for group in publication.groups for row in group["series"]]
    source = random.Random(1)
    bodies = []
    for _ in range(40):
        sample = source.sample(series, 40)
        paths = {json.dumps(row["scopes"]): row["scopes"] for row in sample}
        metrics = sorted({row["metric_id"] for row in sample})
        periods = {"mode": "trailing", "months": 1200}
        query = {
            "metric_ids": metrics,
            "scope_combinations": [*paths.values()],
            "periods": periods,
        }
        bodies.append(json.dumps(query | {"limit": 100}).encode())
    head = request(publication, 0, "original")
    requests = [evolve(head, body=body) for body in bodies]
    a_query = milliseconds(
        lambda: [answer(item, local_service) for item in requests]
    ) / len(requests)
    local_service.store.close()
    return [
        "| real companies | loaded, s CPU | peak, MB | queries a second of CPU |",
        "|" + " --- |" * 4,
        f"| {len(REAL)} | {float(seconds):.1f} | {float(megabytes):.0f} | "
        f"{1000 / a_query:.0f}"
        f" of {len(series):,} series |",
    ]


if __name__ == "__main__":
    print(run())
