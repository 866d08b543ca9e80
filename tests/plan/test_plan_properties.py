"""A plan against brute force: all wanted once, a page a batch, hardly more requests than the caps demand."""

from collections import Counter
from datetime import UTC, datetime
from math import ceil
from random import Random
from typing import Any

from attrs import field, frozen
from hypothesis import event, example, given, strategies as st

from asyncfin.model.catalogue import Catalogue, ReportingGroup
from asyncfin.model.period import Period
from asyncfin.model.scope import ScopeRef
from asyncfin.model.select import Select
from asyncfin.model.selection import Exact, FiscalRange, Resolved, Trailing
from asyncfin.model.series import CatalogueSeries
from asyncfin.plan.plan import Batch, Plan
from asyncfin.plan.question import Question
from tests.plan.tables import plan

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
        series = CatalogueSeries(
            series_id=f"s{at}",
            reporting_group_id=f"g{group}",
            metric_id=f"m{metric}",
            label="",
            description="",
            basis="",
            scopes=scopes,
            number_format="0",
            period_meaning="",
        )
        groups.setdefault(series.reporting_group_id, []).append(series)
    return Catalogue(
        "O-" + "0" * 32,
        "Example",
        "11111111-1111-1111-1111-111111111111",
        datetime(2025, 1, 1, tzinfo=UTC),
        YEARS,
        (),
        tuple(
            ReportingGroup(reporting_group_id=name, name=name, series=tuple(each))
            for name, each in groups.items()
        ),
    )


def planned(case: Case, periods: Resolved) -> Plan:
    return plan(Question(case.catalogue, Select(), periods), case.catalogue, case.wanted)


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


def line_by_line(case: Case) -> int:
    """Return the requests of the plainest way without cursors: each metric, or path, of each group apart."""
    return min(
        sum(_first_fit(costs) for costs in _crossing_lines(case, *sides).values())
        for sides in ((_metric, _path), (_path, _metric))
    )


def _metric(series: CatalogueSeries) -> Any:
    return series.metric_id


def _path(series: CatalogueSeries) -> Any:
    return series.scopes


def _crossing_lines(case: Case, line: Any, other: Any) -> dict[Any, list[int]]:
    """Return, for each line and group, how many series each wanted crossing line brings along."""
    known = Counter((line(series), series.reporting_group_id, other(series)) for series in case.catalogue)
    costs: dict[Any, list[int]] = {}
    for of, group, across in {(line(s), s.reporting_group_id, other(s)): 0 for s in case.wanted}:
        costs.setdefault((of, group), []).append(known[of, group, across])
    return costs


def _first_fit(costs: list[int]) -> int:
    """Return the pages of at most 100 series and 50 lines that hold these, one after the other."""
    pages, lines, series = 0, 50, 100
    for cost in costs:
        if lines == 50 or series + cost > 100:
            pages += ceil(cost / 100)
            lines = series = 0
        lines += 1
        series += cost
    return pages


PERIODS = st.sampled_from([Exact(YEARS), FiscalRange(2023, 2024), Trailing(12)])


@given(cases(), PERIODS)
def test_every_wanted_series_has_one_home(case: Case, periods: Resolved) -> None:
    """The home sets are disjoint, and together they are what was wanted."""
    homes = Counter(each for batch in planned(case, periods).batches for each in batch.home)
    assert homes == Counter(series.series_id for series in case.wanted)


@given(cases(), PERIODS)
@example(case_of(2194), FiscalRange(2023, 2024))
@example(case_of(3136), Trailing(12))
def test_batches_match_one_page(case: Case, periods: Resolved) -> None:
    """Brute force finds what `matched` says: a page, but for one large cell, or one query of two pages."""
    made = planned(case, periods)
    found = [matched(case.catalogue, batch) for batch in made.batches]
    for batch, several in zip(made.batches, found, strict=True):
        assert batch.matched == {series.series_id for series in several} >= batch.home
        if len(several) > 100:
            event("a batch of several pages")
            one_cell = len({(series.metric_id, series.scopes) for series in several}) == 1
            assert one_cell or (len(made.batches) == 1 and len(several) <= 200)
    assert made.requests == sum(ceil(len(several) / 100) for several in found)


@given(cases(), PERIODS)
@example(case_of(655789), Exact(YEARS))  # 101 series in one cell: four requests, line by line three
def test_requests_are_within_bounds(case: Case, periods: Resolved) -> None:
    """The plan lies between what the caps make necessary and what the plainest way would take.

    A cell of more than a page is requested by itself. The series that its last page has room for may take
    one request more.
    """
    made = planned(case, periods)
    wanted = {(series.metric_id, series.scopes) for series in case.wanted}
    sizes = Counter((series.metric_id, series.scopes) for series in case.catalogue)
    oversized = sum(sizes[cell] > 100 for cell in wanted)
    assert made.lower_bound <= made.requests <= line_by_line(case) + oversized


def dense_case_of(seed: int) -> Case:
    """Return a dense, half-dense or block-dense catalogue, and a question about it."""
    random = Random(seed)
    metrics = random.choice((1, 2, 5, 10, 13, 20, 37, 50, 60, 90))
    paths = random.choice((1, 3, 8, 12, 15, 23, 30, 50, 70))
    groups = random.choice((1, 1, 2, 3))
    fill, blocks = random.choice((0.25, 0.5, 0.75, 1.0)), random.choice((1, 1, 2, 3))
    layout = random.choice(("in all groups", "in one group a metric", "in one group a cell"))
    triples = [
        (metric, path, group)
        for metric in range(metrics)
        for path in range(paths)
        if random.random() <= fill and metric * blocks // metrics == path * blocks // paths
        for group in {
            "in all groups": range(groups),
            "in one group a metric": (metric % groups,),
            "in one group a cell": (random.randrange(groups),),
        }[layout]
    ]
    known = _catalogue(triples or [(0, 0, 0)])
    asked = random.choice(("everything", "metrics", "group"))
    some = {f"m{metric}" for metric in range(metrics) if random.random() < 0.5}
    wanted = {
        "everything": known.series,
        "metrics": tuple(series for series in known if series.metric_id in some),
        "group": tuple(series for series in known if series.reporting_group_id == "g0"),
    }[asked]
    return Case(known, wanted)


@given(st.integers(0, 2**64).map(dense_case_of))
def test_dense_query_is_near_the_bound(case: Case) -> None:
    """At most 1.12 times the bound and one; each batch a page, or one query of two pages is all."""
    made = planned(case, FiscalRange(2023, 2024))
    assert made.requests <= 1.12 * made.lower_bound + 1
    pages = [batch.requests for batch in made.batches]
    assert pages == [2] or set(pages) <= {1}


def test_dense_queries_together_near_the_bound() -> None:
    """Over sixty of them at most three percent more than the lower bound."""
    plans = [planned(dense_case_of(seed), FiscalRange(2023, 2024)) for seed in range(60)]
    assert sum(plan.requests for plan in plans) <= 1.03 * sum(plan.lower_bound for plan in plans)


@given(cases(), st.integers(1, 40))
def test_trailing_is_requested_as_all_periods(case: Case, months: int) -> None:
    """The batches are those of the open range, foreign series included: the client cuts the window."""
    made, ranged = planned(case, Trailing(months)), planned(case, FiscalRange())
    assert made.periods == Trailing(months)
    assert made.batches == ranged.batches
