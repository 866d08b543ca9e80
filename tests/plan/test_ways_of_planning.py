"""Strips and growing are two ways to one answer: what either sends to the sandbox brings what is stored."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from attrs import frozen
from hypothesis import event, given, settings, strategies as st

from asyncfin import Client, FiscalRange, Panel, Period, Select
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.query import MAX_PAGE_SIZE
from asyncfin.model.series import CatalogueSeries
from asyncfin.plan.cells import Cells
from asyncfin.plan.grow import grow
from asyncfin.plan.plan import Batch, Plan
from asyncfin.plan.question import Question
from asyncfin.plan.strips import strips
from asyncfin.sandbox import Sandbox
from tests import examples
from tests.conftest import VirtualTimeLoop
from tests.handmade import ENTITY_ID, FIRST

YEARS = [Period(year, 12, 12) for year in (2022, 2023, 2024)]
Numbers = dict[str, dict[Period, float]]


@frozen
class Case:
    """A dataset, its numbers by series, and the ids of the wanted series."""

    document: dict[str, Any]
    numbers: Numbers
    wanted: frozenset[str]

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Be printed in a line by Hypothesis, which warns of long ones instead of showing the failure."""
        printer.text(f"{len(self.wanted)} of {len(self.numbers)} series")


def case_of(seed: int) -> Case:
    """Return metrics by paths by groups, thin, dense or in blocks, some cells with several series."""
    random = Random(seed)
    metrics, paths, groups = (random.choice(each) for each in ((1, 8, 30, 60), (1, 5, 20, 60), (1, 2, 3)))
    fill, blocks = random.choice((0.05, 0.2, 0.5, 1.0)), random.choice((1, 1, 3))
    cells = [
        (metric, path)
        for metric in range(metrics)
        for path in range(paths)
        if random.random() < fill and metric * blocks // metrics == path * blocks // paths
    ]
    cells = random.sample(cells, min(len(cells), 250)) or [(0, 0)]
    twins = random.choice((0.0, 0.0, 0.05))
    layout = random.choice(("every group", "a group a cell", "any"))
    triples = [
        (metric, path, group)
        for metric, path in cells
        for group in range(groups)
        if layout == "every group" or (layout == "any" and random.random() < 0.6) or group == path % groups
        for _ in range(2 if random.random() < twins else 1)
    ]
    numbers: Numbers = {
        f"s{at}": {period: random.randint(-9, 9) for period in YEARS if random.random() < 0.6}
        for at in range(len(triples))
    }
    share = random.choice((0.2, 0.7, 1.0))
    wanted = frozenset(each for each in numbers if random.random() < share) or frozenset(["s0"])
    return Case(_document(triples, numbers), numbers, wanted)


def _document(triples: list[tuple[int, int, int]], numbers: Numbers) -> dict[str, Any]:
    paths = sorted({f"p{path}" for _, path, _ in triples})
    groups: dict[str, list[dict[str, Any]]] = {}
    for series_id, (metric, path, group) in zip(numbers, triples, strict=True):
        scopes = [{"scope_group_id": "segment", "scope_id": f"p{path}"}]
        series = {"series_id": series_id, "metric_id": f"m{metric}", "scopes": scopes}
        groups.setdefault(f"g{group}", []).append(series)
    publication = {
        "dataset_id": FIRST,
        "created_timestamp": "2025-02-01T06:00:00Z",
        "periods": [[each.year, each.end_month, each.duration_months] for each in YEARS],
        "scope_groups": [{"scope_group_id": "segment", "scopes": [{"scope_id": each} for each in paths]}],
        "groups": [
            {"reporting_group_id": name, "basis": "b", "cadence": "c", "series": series}
            for name, series in groups.items()
        ],
        "values": {
            series_id: [[YEARS.index(period), number] for period, number in found.items()]
            for series_id, found in numbers.items()
        },
    }
    return {
        "format": "asyncfin-dataset/1",
        "entity_id": ENTITY_ID,
        "name": "Example",
        "publications": [publication],
    }


def plan_of(
    catalogue: Catalogue, cells: Cells, wanted: Sequence[CatalogueSeries], homes: Sequence[Any]
) -> Plan:
    """Return a plan with a batch for each of these sets of home series."""
    question = Question(catalogue, Select(), FiscalRange())
    periods = catalogue.resolve(question.periods)
    products = [cells.cross_product(home) for home in homes]
    batches = [
        Batch(
            product.metric_ids,
            product.paths,
            periods,
            reporting_group_ids=product.groups,
            expected_dataset_id=catalogue.dataset_id,
            home=frozenset(series.series_id for series in product.home),
            matched=frozenset(series.series_id for series in product.matching_series),
        )
        for product in products
    ]
    return Plan(question, catalogue, periods, tuple(wanted), tuple(batches))


def numbers_of(panel: Panel) -> Numbers:
    return {
        series.series_id: {period: value.number for period, value in series.observations()}
        for series in panel
    }


@settings(max_examples=examples(25))
@given(st.integers(0, 2**64).map(case_of))
def test_both_ways_cover_equal_series(case: Case) -> None:
    """Every wanted series once, by a page a batch, with the numbers that are stored; no other series."""

    async def run() -> None:
        async with Sandbox(case.document) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
            catalogue = await client.catalogue(ENTITY_ID)
            wanted = [series for series in catalogue if series.series_id in case.wanted]
            cells = Cells(catalogue, wanted)
            ways = {
                "strips": strips(cells, cells.wanted, enough=0),
                "grown": grow(cells, cells.wanted, enough=MAX_PAGE_SIZE),
            }
            for way, homes in ways.items():
                assert homes is not None
                event(way)
                made = plan_of(catalogue, cells, wanted, homes)
                assert Counter(each for batch in made.batches for each in batch.home) == Counter(case.wanted)
                assert made.requests == len(made.batches)
                panel = await client.run(made)
                assert panel.requests == made.requests
                assert panel.series_ids == tuple(series.series_id for series in wanted)
                assert numbers_of(panel) == {each: case.numbers[each] for each in panel.series_ids}

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(run())
