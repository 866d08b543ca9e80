"""Tables that a heuristic plans badly: each has a limit of requests, as a multiple of the lower bound."""

from collections import Counter
from random import Random

import pytest

from asyncfin.plan.plan import Plan
from tests.plan.tables import TABLES, Triples
from tests.plan.test_plan import catalogue, planned


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
