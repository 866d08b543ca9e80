"""What people wait for, each beside what it is compared with: medians of five runs in
turn, CPU time.

Answers and extractions run in separate processes, everything else in this one. It
prints the table of RESULTS.md.
"""

import asyncio
import gzip
import json
import os
import platform
import subprocess
import tempfile
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import date
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from urllib.parse import urlencode

import msgspec
from attrs import evolve

from asyncfin import Annual, Client, MemoryCache, Panel, Select
from asyncfin.sandbox import Sandbox
from asyncfin.web import reply
from asyncfin.wire.inflate import inflated
from benchmarks._hand import KINDS
from benchmarks._shapes import REAL, Shape, full, one_chain, real
from benchmarks.answers import runs, served
from benchmarks.extraction import USUAL, measured, night
from benchmarks.imports import CLIENT, FLOOR, HELP, helps, imports
from benchmarks.planner import figures
from benchmarks.request import request
from benchmarks.sandbox import HTTP_GOAL, over_http
from benchmarks.several import COMPANIES, SMALL, VISITED, cold, first, many, memory
from benchmarks.stops import stops
from benchmarks.visits import plain, visit, warm

ROUNDS = 5
VISITS = 200
# Those of the issue that asked for the JSON and the handler.
VALUES_OF_A_PANEL, VALUES_OF_AN_ANSWER = 173_095, 75


def _row(name: str, found: str, goal: str, reached: bool) -> str:
    return f"| {name} | {found} | {goal} | {'reached' if reached else '**missed**'} |"


def _at_most(
    name: str, found: float, goal: float, unit: str = "", beside: str = ""
) -> str:
    return _row(
        name, f"{found:.2f}{unit}{beside}", f"at most {goal:g}{unit}", found <= goal
    )


def answers() -> list[str]:
    """Return the rows of reading answers."""
    with tempfile.TemporaryDirectory() as folder:
        found = _medians(
            ["floor_orjson", "numbers", "every_value"], full(), Path(folder)
        )
        numbers, stop = found["numbers"], found["numbers"]["stop"] * 1000
        ratio = numbers["cpu"] / found["floor_orjson"]["cpu"]
        looked = f", {found['every_value']['stop'] * 1000:.1f} ms with every Value"
        lines = [
            _at_most("full shape, numbers: CPU of floor + orjson", ratio, 0.6),
            _at_most("full shape: longest stop of the loop", stop, 10, " ms", looked),
        ]
        if REAL.exists():
            lines += _real(Path(folder))
        chain = {
            name: each["wall"]
            for name, each in _medians(list(_CHAIN), one_chain(), Path(folder)).items()
        }
    floor = chain.pop("floor")
    return lines + [
        _at_most(
            f"1 query x 40 pages, prefetched, {_CHAIN[way][0]}: wall of bytes",
            wall / floor,
            _CHAIN[way][1],
        )
        for way, wall in chain.items()
    ]


# One query of 40 pages, and its limits.
_CHAIN = {
    "floor": ("", 0.0),
    "prefetched": ("pages", 1.2),
    "prefetched_values": ("every Value", 1.25),
}
# Reading real pages, and the limits.
_REAL = {
    "numbers": ("numbers", 0.9),
    "every_value": ("every Value", 1.5),
    "arrow": ("Arrow", 1.7),
}
# What others do with the same pages, without a limit.
_BY_HAND = {
    "handwritten": "aiohttp and orjson, dicts",
    "numbers_by_hand": "aiohttp and msgspec, numbers only",
    "floor": "aiohttp, bytes only",
}


def _real(folder: Path) -> Iterator[str]:
    """Yield the rows of reading real pages."""
    for again in ("", " again"):
        ways = {way: f"{way}{again}" for way in (*_BY_HAND, *_REAL)}
        figures = _medians(list(ways.values()), real(), folder)
        by_hand = figures[ways["handwritten"]]["cpu"]
        pages = "real pages, read again" if again else "real pages"
        for way, (name, limit) in _REAL.items():
            ratio = figures[ways[way]]["cpu"] / by_hand
            yield _at_most(f"{pages}, {name}: CPU of dicts by hand", ratio, limit)
        for way, name in _BY_HAND.items():
            ratio = figures[ways[way]]["cpu"] / by_hand
            yield f"| {pages}, {name}: CPU of dicts by hand | {ratio:.2f} | | |"


def _medians(
    names: list[str], shape: Shape, folder: Path
) -> dict[str, dict[str, float]]:
    found = runs(names, shape, folder, ROUNDS)
    return {
        name: {figure: median(each[figure] for each in one) for figure in one[0]}
        for name, one in found.items()
    }


def _timed(works: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Return the median of each work's CPU time in ms."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            begin = time.process_time()
            work()
            found[name].append((time.process_time() - begin) * 1000)
    return {name: median(each) for name, each in found.items()}


async def _panel() -> Panel:
    """Return the panel of half the full shape."""
    shape = full()
    batches, wanted = shape.plan.batches[:24], set[str]()
    for batch in batches:
        wanted |= batch.home
    series = tuple(each for each in shape.plan.series if each.series_id in wanted)
    with (
        tempfile.TemporaryDirectory() as folder,
        served(shape, Path(folder)) as (_, url, token),
    ):
        async with Client(url, token) as client:
            return await client.run(evolve(shape.plan, batches=batches, series=series))


def shown(panel: Panel) -> list[str]:
    """Return the rows of showing a large panel."""

    def in_python() -> str:
        series = [{"values": observed.values} for observed in panel]
        return json.dumps({"series": series}, default=msgspec.structs.asdict)

    works = {
        "json": panel.to_json,
        "python": in_python,
        "text": lambda: str(panel),
        "html": panel._repr_html_,
    }
    found = _timed(works)
    name, beside = (
        f"to_json, {panel.value_count:,} values",
        f" ({found['json']:.0f} ms)",
    )
    ratio = found["json"] / found["python"]
    return [
        _at_most(
            f"{name}: of json.dumps with a Python function", ratio, 0.25, "", beside
        ),
        _at_most(
            f"print of that panel, {len(panel):,} series", found["text"], 15, " ms"
        ),
        _at_most("HTML of that panel", found["html"], 20, " ms"),
    ]


def unpacked(page: bytes) -> str:
    """Return the row of decompressing a page."""
    body = gzip.compress(page, 6)

    async def ours() -> None:
        for _ in range(10):
            await inflated(body, "gzip", len(page))

    found = _timed(
        {
            "ours": lambda: asyncio.run(ours()),
            "zlib": lambda: [zlib.decompress(body, 31) for _ in range(10)],
        }
    )
    by = "isal" if find_spec("isal") else "zlib"
    beside = f" by {by}; zlib in one call: {found['zlib'] / 10:.1f} ms"
    return _at_most(
        f"gunzip of a page of {len(page):,} bytes", found["ours"] / 10, 2, " ms", beside
    )


async def handlers() -> list[str]:
    """Return the rows of a cached question as JSON."""
    async with Sandbox.demo() as sandbox:
        os.environ |= {
            "ASYNCFIN_BASE_URL": sandbox.base_url,
            "ASYNCFIN_TOKEN": sandbox.token,
        }
        entity_id = sandbox.entities[0]
        async with Client.from_env(
            cache=MemoryCache(), max_age=3600
        ) as plain.state.client:
            client = plain.state.client
            catalogue = await client.catalogue(entity_id)
            panels = {
                metric: await client.query(
                    entity_id, Select(metric_ids=[metric]), Annual(last=20)
                )
                for metric in catalogue.by_metric
            }
            metric = min(
                panels,
                key=lambda each: abs(panels[each].value_count - VALUES_OF_AN_ANSWER),
            )
            count = panels[metric].value_count

            async def bare() -> None:
                panel = await client.query(
                    entity_id, Select(metric_ids=[metric]), Annual(last=20)
                )
                assert (await reply(panel, accept="application/json")).status == 200

            async def framework() -> None:
                headers = {"host": "127.0.0.1", "accept": "application/json"}
                path = f"/entities/{entity_id}/values"
                assert (
                    await visit(plain, path, urlencode({"metric": metric}), headers)
                )[0] == 200

            found = await _awaited(
                {"the query and `reply`": bare, "with FastAPI": framework}, VISITS
            )
    name = f"a cached query, {count} values as JSON"
    return [
        _at_most(f"{name}, {way}", each / 1000, 0.75, " ms")
        for way, each in found.items()
    ]


async def _awaited(
    works: Mapping[str, Callable[[], Awaitable[None]]], times: int
) -> dict[str, float]:
    """Return the median of each work's CPU time in us, after a first call."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for at in range(ROUNDS + 1):
        for name, work in works.items():
            begin = time.process_time()
            for _ in range(times):
                await work()
            if at:
                found[name].append((time.process_time() - begin) * 1e6 / times)
    return {name: median(each) for name, each in found.items()}


def starts() -> list[str]:
    """Return the rows of a start: the help of commands, and the import of the
    client.
    """
    found, shown = imports(), helps()
    base = shown.pop(HELP)
    slowest = max(shown, key=lambda name: shown[name])
    return [
        _at_most(
            f"`{slowest}`, the slowest: CPU of `{HELP}`", shown[slowest] / base, 1.4
        ),
        _at_most(
            f"`{CLIENT}`: CPU of its libraries' imports",
            found[CLIENT] / found[FLOOR],
            1.25,
        ),
    ]


def extractions(entities: int = 24) -> list[str]:
    """Return the rows of extracting companies: of a program by hand, and of runs of ten
    times as many.
    """
    ratios: dict[str, list[float]] = {"command": [], "extracted": [], "memory": []}
    with tempfile.TemporaryDirectory() as folder:
        with night(USUAL) as url:
            measured("extracted", url, KINDS, Path(folder) / "warm")
            for number in range(ROUNDS):
                place = Path(folder) / str(number)
                hand, command, call = (
                    measured(way, url, entities, place / way)
                    for way in ("by_hand", "command", "extracted")
                )
                ratios["command"].append(command["cpu"] / hand["cpu"])
                ratios["extracted"].append(call["cpu"] / hand["cpu"])
                ratios["memory"].append(call["memory"] / hand["memory"])
        with night(200) as url:
            few, many = (
                measured("extracted", url, count, Path(folder) / str(count))
                for count in (200, 2000)
            )
    a_company = many["cpu"] / few["cpu"] / 10
    name = f"{entities} companies of {USUAL:,} series"
    return [
        _at_most(
            f"`asyncfin extract`, {name}: CPU of by hand",
            median(ratios["command"]),
            1.15,
        ),
        _at_most(
            f"`extract`, {name}: CPU of by hand", median(ratios["extracted"]), 1.15
        ),
        _at_most(
            f"`extract`, {name}: peak memory of by hand", median(ratios["memory"]), 1.0
        ),
        _at_most(
            "`extract`, 2,000 companies of 200 series: CPU a company, of 200 companies",
            a_company,
            1.15,
        ),
        _at_most("the same: peak memory", many["memory"] / few["memory"], 1.25),
    ]


def requests() -> Iterator[str]:
    """Yield the rows of a request, of a first query, of visits and of several
    companies.
    """
    yield _at_most("`client.dataset`: CPU of aiohttp", asyncio.run(request()), 1.4)
    beyond, wall, cpu = asyncio.run(first())
    name = f"first query, {VISITED} series"
    yield _at_most(f"{name}: requests besides catalogue pages and queries", beyond, 0)
    yield _at_most(
        f"{name}, 20 ms latency: wall of the same requests by hand", wall, 1.15
    )
    yield _at_most(f"{name}: CPU of the same requests by hand", cpu, 1.3)
    for way, (ratio, bare) in asyncio.run(warm()).items():
        beside = f" ({bare:.2f} of a route without parameters)"
        limit = 1.5 if "example" in way else 1.2
        yield _at_most(
            f"warm visit, {way}: CPU of FastAPI with constant bytes",
            ratio,
            limit,
            "",
            beside,
        )
    yield _at_most(
        f"cold visit, {VISITED} series: CPU of a backend by hand",
        asyncio.run(cold()),
        1.8,
    )
    yield _at_most(
        "memory of a cached company of the demo: of its response bodies",
        asyncio.run(memory()),
        1.15,
    )
    name = (
        f"`query_many`, {COMPANIES} companies of {SMALL} series: CPU of dicts by hand"
    )
    yield _at_most(name, asyncio.run(many()), 1.5)


def _of() -> str:
    """Return the date, the machine and the commit of a run."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        check=False,
    )
    machine = (
        f"Python {platform.python_version()}, {platform.system()}, {os.cpu_count()} "
        "cores"
    )
    load = f"load {os.getloadavg()[0]:.1f} at the start"
    return (
        f"{date.today()}, {machine}, {load}, commit "
        f"{commit.stdout.strip() or 'unknown'}."
    )


def run() -> str:
    """Return a line about the run, and a table."""
    lines = [
        _of(),
        "",
        "| | found | limit | |",
        "| --- | --- | --- | --- |",
        *requests(),
        *answers(),
    ]
    page = max(full(queries=1).answers.values(), key=len)
    lines += [*shown(asyncio.run(_panel())), unpacked(page), *asyncio.run(handlers())]
    limits = {"all series": 15.0}
    lines += [
        _at_most(
            f"24,000 series, longest stop: {name}", found, limits.get(name, 50.0), " ms"
        )
        for name, found in asyncio.run(stops()).items()
    ]
    lines += [
        _at_most(f"plans of {name}", found, limit) for name, found, limit in figures()
    ]
    ours, plain_server, size = asyncio.run(over_http())
    name = (
        f"sandbox, query page of {size / 1000:,.0f} kB: CPU of aiohttp.web that sends "
        "the same bytes"
    )
    lines += [_at_most(name, ours / plain_server, HTTP_GOAL), *extractions()]
    return "\n".join([*lines, *starts()])
