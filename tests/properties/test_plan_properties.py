"""A plan against brute force: all wanted once, nothing too large, never dearer than a grid of blocks."""

from collections import Counter
from datetime import UTC, datetime
from itertools import product
from math import ceil
from random import Random
from typing import Any

from attrs import field, frozen
from hypothesis import event, example, given
from hypothesis import strategies as st

from asyncfin.fanout.plan import Batch, Plan, plan
from asyncfin.model.catalogue import Catalogue, ReportingGroup
from asyncfin.model.period import Exact, FiscalRange, Period, Resolved, Trailing
from asyncfin.model.scope import ScopeRef
from asyncfin.model.select import Select
from asyncfin.model.series import CatalogueSeries

YEARS = (Period(2023, 12, 12), Period(2024, 12, 12))


@frozen
class Case:
    """A catalogue, and which of its series are wanted."""

    catalogue: Catalogue = field(repr=lambda catalogue: f"{len(catalogue)} series")
    wanted: tuple[CatalogueSeries, ...] = field(repr=lambda wanted: f"{len(wanted)} series")

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Be printed in a line by Hypothesis too, which warns of long ones instead of showing the failure."""
        printer.text(repr(self))


def case_of(seed: int) -> Case:
    """Return a catalogue thin or dense, with crowded and lonely lines, and the series wanted of it."""
    random = Random(seed)
    metrics, paths = random.choice((7, 40, 60, 110)), random.choice((1, 7, 40, 60, 110))
    groups = random.choice((1, 2, 2, 5, 70))
    known = _catalogue(_triples(random, metrics, paths, groups))
    share = random.choice((0.1, 0.3, 0.7, 1.0))
    wanted_metrics = {f"m{metric}" for metric in range(metrics) if random.random() < share}
    wanted_groups = {f"g{group}" for group in range(groups) if random.random() < share}
    by = random.choice(("series", "series", "metric", "group"))
    wanted = [
        series
        for series in known
        if (by == "series" and random.random() < share)
        or (by == "metric" and series.metric_id in wanted_metrics)
        or (by == "group" and series.reporting_group_id in wanted_groups)
    ]
    return Case(known, tuple(wanted))


def _triples(random: Random, metrics: int, paths: int, groups: int) -> list[tuple[int, int, int]]:
    """Return (metric, path, group) of each series; some twice, a rare one more often than a page holds."""
    density = random.choice((0.01, 0.03, 0.1, 0.3, 1.0))
    crowded = random.choice((0, 1, 1, 2))
    places = [
        (m, p) for m in range(metrics) for p in range(paths) if p < crowded or random.random() < density
    ]
    places = random.sample(places, min(len(places), random.choice((60, 150, 400, 600)))) or [(0, 0)]
    twins = random.choice((0.0, 0.0, 0.1))
    triples = [
        (metric, path, group)
        for metric, path in places
        for group in random.sample(range(groups), random.randint(1, min(2, groups)))
        for _ in range(2 if random.random() < twins else 1)
    ]
    return triples + [triples[0]] * (random.choice((99, 130, 220)) if random.random() < 0.1 else 0)


def cases() -> st.SearchStrategy[Case]:
    return st.integers(0, 2**64).map(case_of)


def _catalogue(triples: list[tuple[int, int, int]]) -> Catalogue:
    groups: dict[str, list[CatalogueSeries]] = {}
    for at, (metric, path, group) in enumerate(triples):
        scopes = (ScopeRef("segment", f"p{path}"),) + (ScopeRef("region", "r"),) * (path % 2)
        series = CatalogueSeries(f"s{at}", f"g{group}", f"m{metric}", "", "", "", scopes, "0", "")
        groups.setdefault(series.reporting_group_id, []).append(series)
    return Catalogue(
        "O-" + "0" * 32,
        "Example",
        "11111111-1111-1111-1111-111111111111",
        datetime(2025, 1, 1, tzinfo=UTC),
        YEARS,
        (),
        tuple(ReportingGroup(name, name, "", "", "", tuple(each)) for name, each in groups.items()),
    )


def planned(case: Case, periods: Resolved) -> Plan:
    return plan(case.catalogue, case.wanted, periods, select=Select(), period_selection=periods, pinned=False)


def matched(catalogue: Catalogue, batch: Batch) -> list[CatalogueSeries]:
    """Return what a batch matches: spec 4.3, word for word."""
    metrics, paths = set(batch.metric_ids), set(batch.scope_combinations)
    return [
        series
        for series in catalogue
        if series.metric_id in metrics
        and series.scopes in paths
        and (batch.reporting_group_ids is None or series.reporting_group_id in batch.reporting_group_ids)
    ]


def best_grid(case: Case) -> int:
    """Return the requests of the best grid of 50 x 50 blocks, each with its pages of all that it matches."""
    if not case.wanted:
        return 0
    return min(
        _grid_requests(case, metrics, paths)
        for metrics, paths in product(
            _orders([series.metric_id for series in case.wanted]),
            _orders([series.scopes for series in case.wanted]),
        )
    )


def _orders(keys: list) -> list[list]:  # type: ignore[type-arg]
    counts = Counter(keys)
    return [list(counts), sorted(counts), sorted(counts, key=lambda key: (-counts[key], key))]


def _grid_requests(case: Case, metrics: list[str], paths: list[tuple[ScopeRef, ...]]) -> int:
    of_metric = {metric: at // 50 for at, metric in enumerate(metrics)}
    of_path = {path: at // 50 for at, path in enumerate(paths)}
    groups: dict[tuple[int, int], set[str]] = {}
    for series in case.wanted:
        block = of_metric[series.metric_id], of_path[series.scopes]
        groups.setdefault(block, set()).add(series.reporting_group_id)
    matches: Counter[tuple[int, int]] = Counter()
    for series in case.catalogue:
        if series.metric_id in of_metric and series.scopes in of_path:
            block = of_metric[series.metric_id], of_path[series.scopes]
            named = groups.get(block, set())
            if named and (len(named) > 50 or series.reporting_group_id in named):
                matches[block] += 1
    return sum(ceil(count / 100) for count in matches.values())


PERIODS = st.sampled_from([Exact(YEARS), FiscalRange(2023, 2024), Trailing(12)])


@given(cases(), PERIODS)
def test_every_wanted_series_has_one_home(case: Case, periods: Resolved) -> None:
    """The home sets are disjoint, and together they are what was wanted."""
    homes = Counter(each for batch in planned(case, periods).batches for each in batch.home)
    assert homes == Counter(series.series_id for series in case.wanted)


@given(cases(), PERIODS)
@example(case_of(2194), FiscalRange(2023, 2024))  # blocks win, whose pages cross series of other groups
@example(case_of(3136), Trailing(12))
def test_batches_match_what_they_say_on_one_page(case: Case, periods: Resolved) -> None:
    """Brute force finds what `matched` says: at most a page, unless a cell is larger or pages save none."""
    made = planned(case, periods)
    found = [matched(case.catalogue, batch) for batch in made.batches]
    for batch, several in zip(made.batches, found, strict=True):
        assert batch.matched == {series.series_id for series in several} >= batch.home
        cells = Counter((s.metric_id, s.scopes, s.reporting_group_id) for s in several)
        if len(several) > 100 >= max(cells.values()):
            event("a batch of several pages")
            home = tuple(series for series in case.catalogue if series.series_id in batch.home)
            assert planned(Case(case.catalogue, home), periods).requests >= ceil(len(several) / 100)
    assert made.requests == sum(ceil(len(several) / 100) for several in found)


@given(cases(), PERIODS)
@example(case_of(3945), FiscalRange(2023, 2024))  # the best grid counts series, not cells
def test_never_more_requests_than_the_best_grid_nor_fewer_than_the_bound(
    case: Case, periods: Resolved
) -> None:
    """The plan lies between what the caps make necessary and what the plainest way would take."""
    made = planned(case, periods)
    assert made.lower_bound <= made.requests <= best_grid(case)


@given(cases(), st.integers(1, 40))
@example(case_of(2194), 1)
def test_trailing_as_asked_matches_no_series_that_nobody_wants(case: Case, months: int) -> None:
    """A foreign series could move the window; the range way is taken only where it takes fewer requests."""
    wanted = {series.series_id for series in case.wanted}
    made = planned(case, Trailing(months))
    ranged = planned(case, FiscalRange(2023, 2024))
    event(made.way)
    assert made.requests <= ranged.requests
    if made.way == "as asked":
        for batch in made.batches:
            assert batch.periods == Trailing(months)
            assert {series.series_id for series in matched(case.catalogue, batch)} <= wanted
    else:
        assert {batch.periods for batch in made.batches} == {FiscalRange((2023, 12), (2024, 12))}


@given(cases(), PERIODS, st.randoms(use_true_random=False))
def test_the_order_of_the_wanted_series_does_not_matter(
    case: Case, periods: Resolved, random: Random
) -> None:
    """The same question gives the same plan."""
    shuffled = list(case.wanted)
    random.shuffle(shuffled)
    assert planned(Case(case.catalogue, tuple(shuffled)), periods) == planned(case, periods)
