"""What reading query answers costs, beside the bytes alone and beside what others
write.
"""

import json
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import environ
from pathlib import Path
from typing import Any

from asyncfin.sandbox.openapi import make_openapi
from benchmarks._shapes import REAL, Shape, full, real

ROUNDS = 2
ROUNDS_OF_REAL = 4  # they are short
Figures = dict[str, float]

CONTENDERS = {
    "floor": "aiohttp, bytes only",
    "floor_orjson": "aiohttp + orjson.loads, discarded",
    "numbers": "asyncfin: a panel, numbers ready",
    "arrow": "asyncfin: Arrow, all 30 columns",
    "every_value": "asyncfin: every Value looked at",
    "every_value_kept": "asyncfin: every Value kept",
    "stream": "asyncfin: stream",
    "handwritten": "aiohttp + gather + orjson, dicts",
    "numbers_by_hand": "aiohttp + gather + msgspec, numbers only",
    "pandas_by_hand": "requests + json -> pandas",
    "pydantic_models": "httpx + pydantic v2",
    "generated": "openapi-python-client's client",
}


@contextmanager
def served(shape: Shape, folder: Path) -> Iterator[list[str]]:
    """Serve a shape in a separate process, and give the file of the question, its
    address and a token.
    """
    answers, question = folder / "answers", folder / "question"
    answers.write_bytes(pickle.dumps(shape.answers))
    question.write_bytes(pickle.dumps((shape.plan, shape.chains)))
    command = [sys.executable, "-m", "benchmarks._replay", str(answers)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        try:
            yield [str(question), *server.stdout.readline().split()]
        finally:
            server.stdin.close()


def _measure(name: str, arguments: list[str], folder: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks._contenders", name, *arguments]
    path = f"{folder}:{environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        env={**environ, "PYTHONPATH": path},
    )
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def rounds(
    names: Sequence[str], shape: Shape, folder: Path, rounds: int = ROUNDS
) -> dict[str, Figures]:
    """Return the least of each figure of each contender; they take turns."""
    results = runs(names, shape, folder, rounds)
    return {
        name: {
            figure: min(figures[figure] for figures in all_figures)
            for figure in all_figures[0]
        }
        for name, all_figures in results.items()
    }


def runs(
    names: Sequence[str], shape: Shape, folder: Path, rounds: int
) -> dict[str, list[Figures]]:
    """Return the figures of all runs of each contender, each in a separate process;
    they take turns.
    """
    results: dict[str, list[Figures]] = {name: [] for name in names}
    with served(shape, folder) as arguments:
        for _ in range(rounds):
            for name in names:
                figures = _measure(name, arguments, folder)
                if name in CONTENDERS and figures["values"] not in _counts(name, shape):
                    raise AssertionError(
                        f"{name} read {figures['values']} of {shape.values} values"
                    )
                results[name].append(figures)
    return results


def _counts(name: str, shape: Shape) -> list[int]:
    return [0] if "floor" in name else [shape.values, shape.sent_values]


def generate_client(folder: Path) -> None:
    """Make a client of the sandbox's OpenAPI document, as anyone could."""
    document = folder / "openapi.json"
    document.write_text(json.dumps(make_openapi("http://127.0.0.1")))
    config = folder / "config.json"
    config.write_text(
        json.dumps({"package_name_override": "generated_client", "post_hooks": []})
    )
    command = [
        sys.executable,
        "-m",
        "openapi_python_client",
        "generate",
        "--meta",
        "none",
        "--path",
    ]
    output = [
        "--output-path",
        str(folder / "generated_client"),
        "--config",
        str(config),
    ]
    subprocess.run([*command, str(document), *output], check=True, capture_output=True)


def _table(shape: Shape, results: dict[str, Figures]) -> list[str]:
    base = results["floor_orjson"]
    lines = [
        f"**{shape.name}**: {shape}; 20 ms latency, 8 in flight.",
        "",
        "| | CPU, of floor + orjson | us a value | wall, s | peak, B a value | held, B "
        "a value | stop, ms |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, figures in results.items():
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


def goals(rows: Iterable[tuple[str, float, str, float]]) -> list[str]:
    """Return a Markdown table of goals; each is given as its name, the figure, "<=" or
    ">=", and the goal.
    """
    lines = ["| | goal | result | |", "| --- | --- | --- | --- |"]
    for name, result, relation, goal in rows:
        is_reached = result <= goal if relation == "<=" else result >= goal
        sign = "at most" if relation == "<=" else "at least"
        lines.append(
            f"| {name} | {sign} {goal:g} | {result:.2f} | "
            f"{'reached' if is_reached else '**missed**'} |"
        )
    return lines


def _goals(
    full: dict[str, Figures], real: dict[str, Figures] | None, values: int
) -> list[str]:
    floor, ours = full["floor_orjson"]["cpu"], full["numbers"]["cpu"]
    rows = [
        ("full shape, numbers: CPU of floor + orjson", ours / floor, "<=", 0.6),
        ("every Value looked at", full["every_value"]["cpu"] / floor, "<=", 1.5),
        ("every Value kept", full["every_value_kept"]["cpu"] / floor, "<=", 1.5),
        ("Arrow, all 30 columns", full["arrow"]["cpu"] / floor, "<=", 1.8),
        ("dicts by hand: CPU of ours", full["handwritten"]["cpu"] / ours, ">=", 4),
        ("pandas by hand: CPU of ours", full["pandas_by_hand"]["cpu"] / ours, ">=", 6),
        ("a generated client: CPU of ours", full["generated"]["cpu"] / ours, ">=", 10),
        ("pydantic: CPU of ours", full["pydantic_models"]["cpu"] / ours, ">=", 20),
        ("peak of a panel, B a value", full["numbers"]["peak"] / values, "<=", 100),
        ("longest stop of the loop, ms", full["numbers"]["stop"] * 1e3, "<=", 10),
    ]
    if real is not None:
        ratio = real["numbers"]["cpu"] / real["floor_orjson"]["cpu"]
        rows.insert(1, ("real shape, numbers: CPU of floor + orjson", ratio, "<=", 1.2))
    return goals(rows)


def run() -> str:
    """Return a table for each shape, and one of the goals."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate_client(folder)
        shape, found_of_real = full(), None
        results = rounds(list(CONTENDERS), shape, folder)
        lines, values = _table(shape, results), shape.values
        del shape
        if REAL.exists():
            shape = real()
            found_of_real = rounds(list(CONTENDERS), shape, folder, ROUNDS_OF_REAL)
            lines += ["", *_table(shape, found_of_real)]
        lines += ["", *_goals(results, found_of_real, values)]
    return "\n".join(lines)
