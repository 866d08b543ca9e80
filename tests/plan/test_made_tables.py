"""Tables that a heuristic plans badly: each has a limit of requests, as a multiple of the lower bound."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from asyncfin.plan.plan import Plan
from tests import examples
from tests.plan.tables import TABLES, Triples, blocks, crosses, many_groups
from tests.plan.test_plan import ANNUAL, catalogue, planned
from tests.plan.test_plan_properties import Case, matched, planned as planned_case


def check(made: Plan, most: float) -> None:
    homes = Counter(each for batch in made.batches for each in batch.home)
    assert homes == Counter(series.series_id for series in made.series)
    assert all(batch.requests == 1 for batch in made.batches)
    assert made.requests <= most * made.lower_bound


@pytest.mark.parametrize("order", ["as made", "shuffled"])
@pytest.mark.parametrize(("triples", "most"), TABLES.values(), ids=TABLES)
def test_made_tables_are_near_the_bound(triples: Triples, most: float, order: str) -> None:
    """Each batch is a page, and each series has one home, in whatever order the catalogue lists them."""
    if order == "shuffled":
        triples = Random(7).sample(triples, len(triples))
    check(planned(catalogue(*triples)), most)


def _mixed(seed: int) -> Case:
    """Return blocks, crosses and cells of many groups in one catalogue, of which a part is wanted."""
    random = Random(seed)
    triples = [
        *crosses(random.randrange(3), random.choice((5, 60, 130))),
        *blocks(random.randrange(8), random.choice((3, 8, 11))),
        *many_groups(random.choice((0, 3, 9)), random.choice((1, 4)), random.choice((2, 30, 60))),
    ]
    triples += random.choices(triples, k=len(triples) // 50) if triples else [("m", "p", "g")]
    random.shuffle(triples)
    known = catalogue(*triples)
    share = random.choice((0.1, 0.5, 1.0, 1.0))
    return Case(known, tuple(each for each in known.series if random.random() < share))


@settings(max_examples=examples(25))
@given(st.integers(0, 2**64).map(_mixed))
def test_mixed_shapes_are_planned_exactly(case: Case) -> None:
    """What each batch matches is what its query selects."""
    made = planned_case(case, ANNUAL)
    homes = Counter(each for batch in made.batches for each in batch.home)
    assert homes == Counter(series.series_id for series in case.wanted)
    for batch in made.batches:
        found = {series.series_id for series in matched(case.catalogue, batch)}
        assert batch.matched == found >= batch.home
        assert max(len(batch.metric_ids), len(batch.scope_combinations)) <= 50
        assert len(batch.reporting_group_ids or ()) <= 50
        assert len(found) <= 100 or len(made.batches) == 1
