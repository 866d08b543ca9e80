"""What reading query answers costs, beside the bytes alone and beside what others write."""

import json
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import environ
from pathlib import Path
from typing import Any

from asyncfin.sandbox.openapi import openapi_document
from benchmarks._shapes import REAL, Shape, full, one_chain, real

ROUNDS = 2
ROUNDS_OF_REAL = 6  # they are short
Figures = dict[str, float]

CONTENDERS = {
    "floor": "aiohttp, bytes only",
    "floor_orjson": "aiohttp + orjson.loads, discarded",
    "numbers": "asyncfin: a panel, numbers at hand",
    "arrow": "asyncfin: Arrow, all 30 columns",
    "every_value": "asyncfin: every Value looked at",
    "stream": "asyncfin: stream",
    "handwritten": "aiohttp + gather + json, dicts",
    "pandas_by_hand": "requests + json -> pandas",
    "pydantic_models": "httpx + pydantic v2",
    "generated": "openapi-python-client's client",
}


@contextmanager
def _replayed(shape: Shape, folder: Path) -> Iterator[tuple[str, str]]:
    """Serve a shape's answers in a process of its own, and give its address and the file of the question."""
    answers, question = folder / "answers", folder / "question"
    answers.write_bytes(pickle.dumps(shape.answers))
    question.write_bytes(pickle.dumps((shape.plan, shape.chains)))
    command = [sys.executable, "-m", "benchmarks._replay", str(answers)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        try:
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}", str(question)
        finally:
            server.stdin.close()


def _measure(name: str, question: str, url: str, folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks._contenders", name, question, url]
    path = f"{folder}:{environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        command, stdout=subprocess.PIPE, check=True, text=True, env={**environ, "PYTHONPATH": path}
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _rounds(names: Sequence[str], shape: Shape, folder: Path, rounds: int = ROUNDS) -> dict[str, Figures]:
    """Return the least of each figure of each contender; they take turns."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with _replayed(shape, folder) as (url, question):
        for _ in range(rounds):
            for name in names:
                figures = _measure(name, question, url, folder)
                if name in CONTENDERS and figures["values"] not in _counts(name, shape):
                    raise AssertionError(f"{name} read {figures['values']} of {shape.values} values")
                found[name].append(figures)
    return {
        name: {figure: min(each[figure] for each in runs) for figure in runs[0]}
        for name, runs in found.items()
    }


def _counts(name: str, shape: Shape) -> list[int]:
    return [0] if "floor" in name else [shape.values, shape.sent]


def _generate_client(folder: Path) -> None:
    """Make a client of the sandbox's OpenAPI document, as anyone could."""
    document = folder / "openapi.json"
    document.write_text(json.dumps(openapi_document("http://127.0.0.1")))
    config = folder / "config.json"
    config.write_text(json.dumps({"package_name_override": "generated_client", "post_hooks": []}))
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none", "--path"]
    output = ["--output-path", str(folder / "generated_client"), "--config", str(config)]
    subprocess.run([*command, str(document), *output], check=True, capture_output=True)


def _table(shape: Shape, found: dict[str, Figures]) -> list[str]:
    base = found["floor_orjson"]
    lines = [
        f"**{shape.name}**: {shape}; 20 ms latency, 8 in flight.",
        "",
        "| | CPU, of floor + orjson | us a value | wall, s | peak, B a value | held, B a value | stop, ms |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, figures in found.items():
        cells = [
            f"{figures['cpu'] / base['cpu']:.2f}",
            f"{figures['cpu'] / shape.values * 1e6:.1f}",
            f"{figures['wall']:.1f}",
            f"{figures['peak'] / shape.values:,.0f}",
            f"{figures['held'] / shape.values:,.0f}",
            f"{figures['stop'] * 1000:.0f}",
        ]
        lines.append(f"| {CONTENDERS[name]} | {' | '.join(cells)} |")
    return lines


def _chain(folder: Path) -> str:
    found = _rounds(["floor", "prefetched"], one_chain(), folder)
    wall = found["prefetched"]["wall"] / found["floor"]["wall"]
    return (
        f"1 query x 40 pages, next page requested ahead, numbers read: {wall:.2f}x of the floor's wall time."
    )


def _streams(folder: Path) -> str:
    names = ["stream", "planned", "streaming"]
    few, many = (_rounds(names, full(queries, 2, 12), folder) for queries in (24, 240))
    peaks = [each["stream"]["peak"] / 1e6 for each in (few, many)]
    plans = [each["planned"]["peak"] / 1e6 for each in (few, many)]
    later = [each["streaming"]["values"] / 1e6 for each in (few, many)]
    return (
        f"stream over 480 pages instead of 48: a peak of {peaks[1]:.0f} MB instead of {peaks[0]:.0f} MB."
        f" Planning is in it, which alone takes {plans[1]:.0f} MB instead of {plans[0]:.0f} MB; after the"
        f" first piece memory grows by {later[1]:.1f} MB instead of {later[0]:.1f} MB."
    )


def _heartbeat(folder: Path) -> str:
    """Read a panel of a million values beside a heartbeat."""
    shape = full(140, 1)
    still, busy = _rounds(["idle", "numbers"], shape, folder).values()
    longer, rate = busy["stop"] / still["stop"], busy["beats"] / still["beats"]
    return (
        f"a panel of {shape.values:,} values: the longest pause of a heartbeat is {busy['stop'] * 1e3:.0f} ms"
        f" of CPU time, {longer:.0f}x that of an idle loop; it beats {busy['beats']:.0f} times a second,"
        f" {rate:.0%} of idle."
    )


def _panel(folder: Path) -> str:
    shape = full(8)
    held = _rounds(["traced"], shape, folder, 1)["traced"]["values"] / shape.values
    return f"What Python holds for a panel (tracemalloc, full shape): {held:.0f} B a value."


def run() -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _generate_client(folder)
        shape = full()
        lines = _table(shape, _rounds(list(CONTENDERS), shape, folder))
        del shape
        if REAL.exists():
            shape = real()
            lines += ["", *_table(shape, _rounds(list(CONTENDERS), shape, folder, ROUNDS_OF_REAL))]
        last = (_chain, _streams, _panel, _heartbeat)
        lines += ["", *(f"- {each(folder)}" for each in last)]
    return "\n".join(lines)
