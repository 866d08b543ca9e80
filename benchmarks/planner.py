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
from asyncfin.plan.plan import Plan, make_batches
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

    def add(self, plan: Plan, grid: int, seconds: float) -> None:
        self.plans += 1
        self.series += len(plan.series)
        self.requests += plan.requests
        self.batches += len(plan.batches)
        self.grid += grid
        self.bound += plan.lower_bound
        self.slowest = max(self.slowest, seconds)
        self.a_series = max(self.a_series, seconds / len(plan.series))

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


def best_grid(catalogue: Catalogue, wanted_series: Iterable[CatalogueSeries]) -> int:
    """Return the pages of the non-empty blocks, in the best order of metrics and of
    paths.
    """
    metrics = _orders(Counter(series.metric_id for series in wanted_series))
    paths = _orders(Counter(series.scopes for series in wanted_series))
    groups = {series.reporting_group_id for series in wanted_series}
    matchable = [series for series in catalogue if series.reporting_group_id in groups]
    return min(
        _pages(matchable, wanted_series, *orders) for orders in product(metrics, paths)
    )


def _orders(counts: Counter[Any]) -> list[dict[Any, int]]:
    """Return the block of each line: in catalogue order, by id, and the most used
    first.
    """
    orders = (counts, sorted(counts), sorted(counts, key=lambda line: -counts[line]))
    return [
        {line: position // 50 for position, line in enumerate(order)}
        for order in orders
    ]


def _pages(
    matchable: list[CatalogueSeries],
    wanted_series: Iterable[CatalogueSeries],
    of_metric: dict[Any, int],
    of_path: dict[Any, int],
) -> int:
    used = {
        (of_metric[series.metric_id], of_path[series.scopes])
        for series in wanted_series
    }
    matches = Counter(
        (of_metric.get(series.metric_id, -1), of_path.get(series.scopes, -1))
        for series in matchable
    )
    return sum(ceil(count / 100) for block, count in matches.items() if block in used)


def measured(
    catalogue: Catalogue, series: tuple[CatalogueSeries, ...]
) -> tuple[Plan, float]:
    """Return a plan, and the CPU time of the best of a few rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = process_time()
        question = Question(catalogue, Select(), YEARS)
        periods = catalogue.resolve(YEARS)
        batches = make_batches(catalogue, series, periods, question.value_version)
        plan = Plan(question, catalogue, periods, series, batches)
        best = min(best, process_time() - start)
    return plan, best


def _planned_and_grid(catalogue: Catalogue) -> tuple[Plan, int, float]:
    plan, seconds = measured(catalogue, catalogue.series)
    return plan, best_grid(catalogue, catalogue.series), seconds


def wanted_of(
    catalogue: Catalogue,
) -> Iterator[tuple[str, tuple[CatalogueSeries, ...]]]:
    """Yield what is asked for: everything, random subsets, a few scattered series, all
    annual groups.
    """
    yield "all series", catalogue.series
    for seed in range(SUBSETS_OF_EACH):
        random = Random(seed)
        yield (
            "30 % at random",
            tuple(random.sample(catalogue.series, len(catalogue) * 3 // 10)),
        )
        yield "25 scattered", tuple(random.sample(catalogue.series, 25))
    yield (
        "annual groups",
        tuple(
            item for item in catalogue if item.reporting_group_id.startswith("annual")
        ),
    )


def table(name: str, catalogues: Iterable[Catalogue]) -> Iterator[str]:
    rows: dict[str, Row] = {}
    for catalogue in catalogues:
        for question_name, series in wanted_of(catalogue):
            grid = best_grid(catalogue, series)
            plan, seconds = measured(catalogue, series)
            rows.setdefault(f"{name}, {question_name}", Row()).add(plan, grid, seconds)
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
    for number, (metric, path, group) in enumerate(triples):
        series = {
            "series_id": f"s{number}",
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
        {"reporting_group_id": name, **heads, "series": members}
        for name, members in groups.items()
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
        company = catalogue(
            generate(1, series=series, publications=1).publications[-1].groups
        )
        yield from table(f"generated of {series:,}", [company])
    for name, fill, blocks in (
        ("dense", 1.0, 1),
        ("half dense", 0.5, 1),
        ("dense in blocks", 0.9, 3),
    ):
        row = Row()
        for company in dense(fill, blocks):
            row.add(*_planned_and_grid(company))
        yield f"| {name}, all series | {row} |"
    for name, (triples, _) in TABLES.items():
        row = Row()
        row.add(*_planned_and_grid(of_triples(triples)))
        yield f"| made: {name} | {row} |"


def figures() -> Iterator[tuple[str, float, float]]:
    """Yield figures of plans and their limits: requests as multiples of the lower
    bound, and CPU time.
    """
    plans_by_kind: dict[str, list[tuple[Plan, float]]] = {}
    for name, (triples, _) in TABLES.items():
        company = of_triples(triples)
        kinds = (kind for kind in _KINDS if name in _KINDS[kind])
        plans_by_kind.setdefault(next(kinds, _FRIENDLY), []).append(
            measured(company, company.series)
        )
    friendly = [
        *islice(dense(1.0, 1), 1),
        *islice(dense(0.5, 1), 1),
        *islice(dense(0.9, 3), 1),
    ]
    friendly.append(
        catalogue(generate(1, series=3_000, publications=1).publications[-1].groups)
    )
    plans_by_kind[_FRIENDLY] += [
        measured(company, company.series) for company in friendly
    ]
    for kind, plans in plans_by_kind.items():
        largest = max(plan.requests / plan.lower_bound for plan, _ in plans)
        yield (
            f"{kind}: requests, of the lower bound",
            largest,
            1.45 if "groups" in kind else 1.1,
        )
    plan = [pair for plans in plans_by_kind.values() for pair in plans]
    yield "made tables, slowest plan: us of CPU a series", _slowest(plan), 150
    by_question: dict[str, list[tuple[Plan, float]]] = {}
    for company in real() if REAL.is_dir() else ():
        for question_name, series in wanted_of(company):
            by_question.setdefault(question_name, []).append(measured(company, series))
    for question_name, limit in (
        (("all series", 1.03), ("30 % at random", 1.31)) if by_question else ()
    ):
        requests, bounds = zip(
            *((m.requests, m.lower_bound) for m, _ in by_question[question_name]),
            strict=True,
        )
        yield (
            f"real companies, {question_name}: requests, of the lower bound",
            sum(requests) / sum(bounds),
            limit,
        )
    if by_question:
        plans = [pair for group in by_question.values() for pair in group]
        yield "real companies, slowest plan: us of CPU a series", _slowest(plans), 150


def _slowest(plans: Iterable[tuple[Plan, float]]) -> float:
    return max(seconds / len(plan.series) for plan, seconds in plans) * 1e6


def run() -> str:
    return "\n".join(lines())


if __name__ == "__main__":
    print(run())
