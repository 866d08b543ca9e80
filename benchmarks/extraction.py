"""Extracting many companies: CPU beside fetching the same bytes, a pool, memory, and
runs that do nothing.

Each figure is of a separate process, against a replaying service in another.
"""

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager, redirect_stdout
from io import BytesIO, TextIOWrapper
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import aiohttp

from asyncfin import Client, FiscalRange, Select, extract
from asyncfin.cli.app import run as command
from benchmarks._hand import IN_FLIGHT, KINDS, extract_by_hand, requests_of
from benchmarks._night import TOKEN, entity_id

ROOT = Path(__file__).parents[1]
# Of a machine of two cores, on which the service runs too.
WORKERS = 2
CHUNK = 5
USUAL = 1171  # series of a company, the median of real ones


@contextmanager
def night(series: int, fail: int = 0, latency: int = 0) -> Iterator[str]:
    """Give the address of a replaying service, which answers after so many
    milliseconds.
    """
    arguments = map(str, (series, KINDS, fail, latency))
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks._night", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.stdin.close()


def measured(way: str, url: str, entities: int, folder: Path) -> dict[str, Any]:
    """Return what a separate process measured of one way."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.extraction",
        way,
        url,
        str(entities),
        str(folder),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=ROOT)
    return json.loads(done.stdout)


async def discarded(url: str, entities: int) -> int:
    """Fetch the same answers as bytes, and throw them away; return how many."""
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT)
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(
        url, connector=connector, headers=headers
    ) as session:
        numbers, counts = iter(range(1, entities + 1)), []
        bodies = [await requests_of(session, kind) for kind in range(KINDS)]

        async def work() -> None:
            for number in numbers:
                requests = bodies[number % KINDS]
                counts.append(len(requests))
                for method, path, body in requests:
                    path_of_company = path.replace(
                        entity_id(number % KINDS), entity_id(number)
                    )
                    async with session.request(
                        method, path_of_company, data=body or None
                    ) as answer:
                        await answer.read()

        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
    return sum(counts)


async def extracted(
    url: str, entities: int, folder: Path, history: bool = False
) -> dict[str, int]:
    """Extract all series of all periods; return how many answers that took, and how the
    entities fared.
    """
    ids = [entity_id(number) for number in range(1, entities + 1)]
    async with Client(url, TOKEN, max_in_flight=IN_FLIGHT) as client:
        report = await extract(
            client, ids, Select(), FiscalRange(), to=folder, history=history
        )
    return {
        "answers": report.requests,
        "done": len(report.done),
        "failed": len(report.failed),
    }


async def sent_out(engine: Executor, entities: int, folder: Path) -> dict[str, int]:
    """Extract the same over the workers of an engine, whose environment names the
    service.
    """
    ids = [entity_id(number) for number in range(1, entities + 1)]
    report = await extract(
        Client.from_env,
        ids,
        Select(),
        FiscalRange(),
        to=folder,
        executor=engine,
        chunk=CHUNK,
    )
    assert len(report.done) == entities
    return {"answers": report.requests}


@contextmanager
def pool() -> Iterator[Executor]:
    """Give a pool of as many processes as there are cores here."""
    with ProcessPoolExecutor(WORKERS, mp_context=get_context("spawn")) as executor:
        yield executor


def measure_pool(url: str, entities: int, folder: Path) -> None:
    """Print what a pool's workers take; they have done some entities before, so
    imports do not count.
    """
    os.environ |= {"ASYNCFIN_BASE_URL": url, "ASYNCFIN_TOKEN": TOKEN}
    with pool() as engine:
        asyncio.run(sent_out(engine, 4 * WORKERS * CHUNK, folder / "before"))
        began = time.perf_counter()
        counts = asyncio.run(sent_out(engine, entities, folder / "measured"))
        print(json.dumps(counts | {"seconds": time.perf_counter() - began}))


def measure(way: str, url: str, entities: int, folder: Path) -> None:
    """Print what one way takes in this process; one entity goes before, so that imports
    do not count.
    """
    with tempfile.TemporaryDirectory() as folder_before:
        _taken(way, url, 1, Path(folder_before) / "night")
    began, cpu = time.perf_counter(), time.process_time()
    counts = _taken(way, url, entities, folder)
    figures = counts | {
        "seconds": time.perf_counter() - began,
        "cpu": time.process_time() - cpu,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(figures))


def _taken(way: str, url: str, entities: int, folder: Path) -> dict[str, int]:
    match way:
        case "discarded":
            return {"answers": asyncio.run(discarded(url, entities))}
        case "by_hand":
            return {"answers": asyncio.run(extract_by_hand(url, entities, folder))}
        case "command":
            return commanded(url, entities, folder)
    return asyncio.run(extracted(url, entities, folder, way == "history"))


def commanded(url: str, entities: int, folder: Path) -> dict[str, int]:
    """Extract the same by the command, in this process, with its progress in lines."""
    ids = folder.with_name(f"{folder.name}.txt")
    ids.write_text(
        "".join(f"{entity_id(number)}\n" for number in range(1, entities + 1))
    )
    os.environ |= {"ASYNCFIN_BASE_URL": url, "ASYNCFIN_TOKEN": TOKEN}
    # The report is written to a text stream of bytes, whose encoding the command sets.
    with redirect_stdout(TextIOWrapper(BytesIO())) as output:
        assert (
            command(["extract", "--ids", str(ids), "--into", str(folder), "--json"])
            == 0
        )
    output.seek(0)
    report = json.load(output)
    return {"answers": report["requests"], "done": report["done"]}


def run() -> str:
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        return "\n\n".join(
            [_speed(place), _compare_pool(place), _memory(place), _failing(place)]
        )


def _compare_pool(place: Path, entities: int = 60) -> str:
    ways = ["extracted", "pool"]
    with night(USUAL) as url:
        results = {way: measured(way, url, entities, place / way) for way in ways}
    alone = results["extracted"]["seconds"]
    names = {
        "extracted": "one process",
        "pool": f"a pool of {WORKERS} processes",
    }
    lines = [
        f"| {names[way]} | {figures['answers']:,} | {figures['seconds']:.1f} | "
        f"{alone / figures['seconds']:.2f}x |"
        for way, figures in results.items()
    ]
    head = (
        f"| {entities} companies of {USUAL:,} series | requests | seconds | speed "
        "|\n|---|---|---|---|"
    )
    return "\n".join([head, *lines])


def _speed(place: Path, entities: int = 60) -> str:
    with night(USUAL) as url:
        measured("extracted", url, KINDS, place / "warm")
        floor = measured("discarded", url, entities, place)
        first = measured("extracted", url, entities, place / "speed")
        second = measured("extracted", url, entities, place / "speed")
    per_floor, per_answer = (
        floor["cpu"] / floor["answers"],
        first["cpu"] / first["answers"],
    )
    assert second["answers"] == entities
    return _table(
        f"{entities} companies of {USUAL:,} series",
        ("bytes discarded", floor, f"{per_floor * 1e3:.2f} ms an answer"),
        (
            "first run",
            first,
            f"{per_answer * 1e3:.2f} ms an answer, {per_answer / per_floor:.2f}x",
        ),
        (
            "second run, nothing changed",
            second,
            f"{first['seconds'] / second['seconds']:.0f}x faster than the first",
        ),
    )


def _memory(place: Path) -> str:
    with night(200) as url:
        small_run, large_run = (
            measured("extracted", url, count, place / str(count))
            for count in (200, 2000)
        )
    ratio = large_run["memory"] / small_run["memory"]
    return _table(
        "companies of 200 series",
        ("200 entities", small_run, ""),
        ("2,000 entities", large_run, f"{ratio:.2f}x the memory"),
    )


def _failing(place: Path) -> str:
    with night(20, fail=100) as url:
        figures = measured("extracted", url, 10_000, place / "failing")
    assert (figures["done"], figures["failed"]) == (9_900, 100)
    return _table(
        "companies of 20 series", ("10,000 entities, 1 % unknown", figures, "")
    )


def _table(title: str, *rows: tuple[str, dict[str, Any], str]) -> str:
    head = (
        f"| {title} | answers | seconds | CPU seconds | peak MB | "
        "|\n|---|---|---|---|---|---|"
    )
    lines = [
        f"| {name} | {f['answers']:,} | {f['seconds']:.1f} | {f['cpu']:.1f} | "
        f"{f['memory']:.0f} | {note} |"
        for name, f, note in rows
    ]
    return "\n".join([head, *lines])


if __name__ == "__main__":
    way, url, entities, folder = sys.argv[1:]
    if way == "pool":
        measure_pool(url, int(entities), Path(folder))
    else:
        measure(way, url, int(entities), Path(folder))
