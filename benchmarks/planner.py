"""Requests and CPU time of the planner, beside the grid of 50 x 50 blocks and the lower
bound.

Run from the root of the repository: ``python -m benchmarks.planner``. It prints a
Markdown table. Real catalogues are read from ``../shared/data`` where that is.
Generated ones show how the time grows; dense ones are of the kind that analysts ask
for: some metrics by some segments; made tables are those that a heuristic plans badly
(tests/plan/tables.py). A block of the grid is one query, whose pages follow its cursor;
the planner's batches are a page each.
"""

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice, product
from math import ceil
from pathlib import Path
from random import Random
from time import process_time
from typing import Any

from attrs import define

from asyncfin.model.catalogue import Catalogue, ReportingGroup
from asyncfin.model.period import Period
from asyncfin.model.scope import ScopeRef
from asyncfin.model.select import Select
from asyncfin.model.selection import FiscalRange
from asyncfin.model.series import CatalogueSeries
from asyncfin.plan.plan import Plan, batches_of
from asyncfin.plan.question import Question
from tests.generate import generate
from tests.plan.tables import TABLES, Triples

REAL = Path(__file__).parents[2] / "shared" / "data"
YEARS = FiscalRange(2020, 2024)
SUBSETS_OF_EACH = 3
# The made tables whose limits differ, and what the others are.
_KINDS = {
    "crosses": list(TABLES)[:3],
    "blocks": list(TABLES)[3:5],
    "cells of 34 groups": list(TABLES)[5:6],
}
_FRIENDLY = "9 friendly tables"
ROUNDS = 3


@define
class Row:
    """Sums over the catalogues of one line of the table; the times are those of the
    slowest plans.
    """

    plans: int = 0
    series: int = 0
    requests: int = 0
    batches: int = 0
    grid: int = 0
    bound: int = 0
    slowest: float = 0.0
    a_series: float = 0.0

    def add(self, made: Plan, grid: int, seconds: float) -> None:
        self.plans += 1
        self.series += len(made.series)
        self.requests += made.requests
        self.batches += len(made.batches)
        self.grid += grid
        self.bound += made.lower_bound
        self.slowest = max(self.slowest, seconds)
        self.a_series = max(self.a_series, seconds / len(made.series))

    def __str__(self) -> str:
        return " | ".join(
            [
                f"{self.plans} | {self.series:,} | {self.requests:,} | {self.bound:,}",
                f"{self.requests / self.bound:.3f} | {self.grid:,} | "
                f"{self.grid / self.bound:.3f}",
                f"{self.batches} | {self.slowest * 1000:.0f} | "
                f"{self.a_series * 1e6:.0f}",
            ]
        )


HEAD = (
    "| catalogues, wanted | plans | series | requests | bound | x bound | grid | grid "
    "x bound"
    " | batches | slowest, ms CPU | slowest, us CPU a series "
    "|\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def catalogue(groups: Iterable[dict[str, Any]]) -> Catalogue:
    """Return a catalogue from reporting groups in the shape of the spec."""
    read = tuple(
        ReportingGroup(**{**group, "series": tuple(map(_series, group["series"]))})
        for group in groups
    )
    periods = (Period(2020, 12, 12), Period(2024, 12, 12))
    return Catalogue(
        "O-" + "0" * 32,
        "Example",
        "0",
        datetime(2025, 1, 1, tzinfo=UTC),
        periods,
        (),
        read,
    )


def _series(fields: dict[str, Any]) -> CatalogueSeries:
    return CatalogueSeries(
        **{**fields, "scopes": tuple(ScopeRef(**ref) for ref in fields["scopes"])}
    )


def real() -> Iterator[Catalogue]:
    for file in sorted(REAL.glob("*.json.gz")):
        yield catalogue(
            json.loads(gzip.decompress(file.read_bytes()))["publications"][-1]["groups"]
        )


def best_grid(known: Catalogue, wanted: Iterable[CatalogueSeries]) -> int:
    """Return the pages of the non-empty blocks, in the best order of metrics and of
    paths.
    """
    metrics = _orders(Counter(series.metric_id for series in wanted))
    paths = _orders(Counter(series.scopes for series in wanted))
    groups = {series.reporting_group_id for series in wanted}
    matchable = [series for series in known if series.reporting_group_id in groups]
    return min(_pages(matchable, wanted, *orders) for orders in product(metrics, paths))


def _orders(counts: Counter[Any]) -> list[dict[Any, int]]:
    """Return the block of each line: in catalogue order, by id, and the most used
    first.
    """
    orders = (counts, sorted(counts), sorted(counts, key=lambda line: -counts[line]))
    return [{line: at // 50 for at, line in enumerate(order)} for order in orders]


def _pages(
    matchable: list[CatalogueSeries],
    wanted: Iterable[CatalogueSeries],
    of_metric: dict[Any, int],
    of_path: dict[Any, int],
) -> int:
    used = {(of_metric[series.metric_id], of_path[series.scopes]) for series in wanted}
    matches = Counter(
        (of_metric.get(series.metric_id, -1), of_path.get(series.scopes, -1))
        for series in matchable
    )
    return sum(ceil(count / 100) for block, count in matches.items() if block in used)


def measured(
    known: Catalogue, wanted: tuple[CatalogueSeries, ...]
) -> tuple[Plan, float]:
    """Return a plan, and the CPU time of the best of a few rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = process_time()
        question = Question(known, Select(), YEARS)
        periods = known.resolve(YEARS)
        batches = batches_of(known, wanted, periods, question.value_version)
        made = Plan(question, known, periods, wanted, batches)
        best = min(best, process_time() - start)
    return made, best


def _planned_and_grid(known: Catalogue) -> tuple[Plan, int, float]:
    made, seconds = measured(known, known.series)
    return made, best_grid(known, known.series), seconds


def wanted_of(known: Catalogue) -> Iterator[tuple[str, tuple[CatalogueSeries, ...]]]:
    """Yield what is asked for: everything, random subsets, a few scattered series, all
    annual groups.
    """
    yield "all series", known.series
    for seed in range(SUBSETS_OF_EACH):
        random = Random(seed)
        yield "30 % at random", tuple(random.sample(known.series, len(known) * 3 // 10))
        yield "25 scattered", tuple(random.sample(known.series, 25))
    yield (
        "annual groups",
        tuple(each for each in known if each.reporting_group_id.startswith("annual")),
    )


def table(name: str, catalogues: Iterable[Catalogue]) -> Iterator[str]:
    rows: dict[str, Row] = {}
    for known in catalogues:
        for what, wanted in wanted_of(known):
            grid = best_grid(known, wanted)
            made, seconds = measured(known, wanted)
            rows.setdefault(f"{name}, {what}", Row()).add(made, grid, seconds)
    return (f"| {label} | {row} |" for label, row in rows.items())


def dense(fill: float, blocks: int) -> Iterator[Catalogue]:
    """Yield catalogues of one to three groups that lie dense, everywhere or in blocks
    along the diagonal.
    """
    for metrics, paths, groups in product(
        (10, 13, 37, 60, 120), (12, 23, 50, 110), (1, 2, 3)
    ):
        random = Random(metrics * 1000 + paths * 10 + groups)
        triples = [
            (metric, path, group)
            for metric, path in product(range(metrics), range(paths))
            if random.random() < fill
            and metric * blocks // metrics == path * blocks // paths
            for group in range(groups)
        ]
        yield of_triples(
            [(f"m{metric}", str(path), f"g{group}") for metric, path, group in triples]
        )


def of_triples(triples: Triples) -> Catalogue:
    """Return a catalogue with a series for each metric, path and group."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for at, (metric, path, group) in enumerate(triples):
        series = {
            "series_id": f"s{at}",
            "reporting_group_id": group,
            "metric_id": metric,
            "scopes": [{"scope_group_id": "segment", "scope_id": path}],
            **dict.fromkeys(
                ("label", "description", "basis", "number_format", "period_meaning"), ""
            ),
        }
        groups.setdefault(group, []).append(series)
    heads = dict.fromkeys(("name", "description", "basis", "cadence"), "")
    return catalogue(
        {"reporting_group_id": name, **heads, "series": each}
        for name, each in groups.items()
    )


def lines() -> Iterator[str]:
    yield HEAD
    if REAL.is_dir():
        yield from table("real", real())
    else:
        yield "| real: skipped, ../shared/data is not there | | | | | | | | | | |"
    for series in (300, 3_000, 30_000):
        # The publication is dropped: a full collection would walk over it while a plan
        # is timed.
        known = catalogue(
            generate(1, series=series, publications=1).publications[-1].groups
        )
        yield from table(f"generated of {series:,}", [known])
    for name, fill, blocks in (
        ("dense", 1.0, 1),
        ("half dense", 0.5, 1),
        ("dense in blocks", 0.9, 3),
    ):
        row = Row()
        for known in dense(fill, blocks):
            row.add(*_planned_and_grid(known))
        yield f"| {name}, all series | {row} |"
    for name, (triples, _) in TABLES.items():
        row = Row()
        row.add(*_planned_and_grid(of_triples(triples)))
        yield f"| made: {name} | {row} |"


def figures() -> Iterator[tuple[str, float, float]]:
    """Yield figures of plans and their limits: requests as multiples of the lower
    bound, and CPU time.
    """
    found: dict[str, list[tuple[Plan, float]]] = {}
    for name, (triples, _) in TABLES.items():
        known = of_triples(triples)
        kinds = (kind for kind in _KINDS if name in _KINDS[kind])
        found.setdefault(next(kinds, _FRIENDLY), []).append(
            measured(known, known.series)
        )
    friendly = [
        *islice(dense(1.0, 1), 1),
        *islice(dense(0.5, 1), 1),
        *islice(dense(0.9, 3), 1),
    ]
    friendly.append(
        catalogue(generate(1, series=3_000, publications=1).publications[-1].groups)
    )
    found[_FRIENDLY] += [measured(known, known.series) for known in friendly]
    for kind, plans in found.items():
        most = max(made.requests / made.lower_bound for made, _ in plans)
        yield (
            f"{kind}: requests, of the lower bound",
            most,
            1.45 if "groups" in kind else 1.1,
        )
    made = [each for plans in found.values() for each in plans]
    yield "made tables, slowest plan: us of CPU a series", _slowest(made), 150
    by_question: dict[str, list[tuple[Plan, float]]] = {}
    for known in real() if REAL.is_dir() else ():
        for what, wanted in wanted_of(known):
            by_question.setdefault(what, []).append(measured(known, wanted))
    for what, limit in (
        (("all series", 1.03), ("30 % at random", 1.31)) if by_question else ()
    ):
        requests, bounds = zip(
            *((m.requests, m.lower_bound) for m, _ in by_question[what]), strict=True
        )
        yield (
            f"real companies, {what}: requests, of the lower bound",
            sum(requests) / sum(bounds),
            limit,
        )
    if by_question:
        plans = [each for several in by_question.values() for each in several]
        yield "real companies, slowest plan: us of CPU a series", _slowest(plans), 150


def _slowest(plans: Iterable[tuple[Plan, float]]) -> float:
    return max(seconds / len(made.series) for made, seconds in plans) * 1e6


def run() -> str:
    return "\n".join(lines())


if __name__ == "__main__":
    print(run())
