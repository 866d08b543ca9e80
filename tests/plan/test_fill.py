"""Widened batches: within the caps, no request more, and everything that was missing still has its home."""

from random import Random

from attrs import evolve
from hypothesis import given, strategies as st
from msgspec.structs import replace

from asyncfin.model.scope import ScopeRef
from asyncfin.model.selection import Exact, FiscalRange
from asyncfin.plan.fill import adapt_to_cache
from tests.plan.tables import check_caps
from tests.plan.test_plan import catalogue, planned as planned_of
from tests.plan.test_plan_properties import YEARS, Case, cases, matched, planned


def _partly_cached(case: Case, seed: int) -> tuple[set[str], set[str]]:
    """Return the ids of cached and of unlisted series, wanted ones and others."""
    random = Random(seed)
    share = random.choice((0.0, 0.2, 0.8))
    ids = [series.series_id for series in case.catalogue]
    cached = {each for each in ids if random.random() < share}
    return cached, {each for each in ids if each not in cached and random.random() < 0.1}


@given(cases(), st.integers(0, 2**64), st.booleans())
def test_widened_batches_cost_no_request(case: Case, seed: int, exact: bool) -> None:
    """A page that is requested anyway is filled; each missing series has one home, and no other has any."""
    cached, unlisted = _partly_cached(case, seed)
    made = planned(case, Exact(YEARS) if exact else FiscalRange())
    plain = adapt_to_cache(made, cached, unlisted, fill=False)
    filled = adapt_to_cache(made, cached, unlisted)
    assert filled.requests == plain.requests
    assert [batch.home for batch in filled.batches] == [batch.home for batch in plain.batches]
    for batch, narrow in zip(filled.batches, plain.batches, strict=True):
        found = {series.series_id for series in matched(case.catalogue, batch)}
        assert batch.matched == found >= narrow.matched
        check_caps(batch)


def test_batch_is_widened_to_the_caps() -> None:
    """To 50 paths of a metric, and to 50 metrics of a path."""
    known = catalogue(*(("M", f"p{at}", "g") for at in range(60)))
    (batch,) = adapt_to_cache(planned_of(known, ("s0",)), set(), set()).batches
    assert len(batch.scope_combinations) == 50
    known = catalogue(*((f"M{at}", "p", "g") for at in range(60)))
    (batch,) = adapt_to_cache(planned_of(known, ("s0",)), set(), set()).batches
    assert len(batch.metric_ids) == 50


def test_overlong_path_widens_no_batch() -> None:
    """A path of 21 entries exceeds the cap of spec 8: the other metrics fill the page without it."""
    known = catalogue(*((f"M{at}", scope, "g") for at in range(10) for scope in ("a", "b", "long")))
    (group,) = known.groups
    long = tuple(ScopeRef("company", str(at)) for at in range(21))
    series = tuple(
        replace(each, scopes=long) if each.scopes[0].scope_id == "long" else each for each in group.series
    )
    known = evolve(known, groups=(evolve(group, series=series),))
    (batch,) = adapt_to_cache(planned_of(known, ("s0",)), set(), set()).batches
    assert long not in batch.scope_combinations
    assert len(batch.matched) == 20
