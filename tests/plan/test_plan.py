"""What a plan promises, on catalogues small enough to see through."""

import gzip
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from attrs import evolve
from msgspec.structs import replace

from asyncfin.errors import SelectionError
from asyncfin.model.catalogue import Catalogue, ReportingGroup
from asyncfin.model.period import Period
from asyncfin.model.query import Query
from asyncfin.model.scope import ScopeRef
from asyncfin.model.select import Select
from asyncfin.model.selection import Exact, Resolved, Trailing
from asyncfin.model.series import CatalogueSeries
from asyncfin.plan.plan import Plan
from asyncfin.plan.question import Question
from tests.plan.tables import plan

REAL = Path(__file__).parents[3] / "shared" / "data"
YEARS = tuple(Period(year, 12, 12) for year in (2022, 2023, 2024))
ANNUAL = Exact(YEARS)


def catalogue(*triples: tuple[str, str, str], periods: tuple[Period, ...] = YEARS) -> Catalogue:
    """Return a catalogue of one series per (metric, scope, group), named after its place."""
    groups: dict[str, list[CatalogueSeries]] = {}
    for at, (metric, scope, group) in enumerate(triples):
        path = (ScopeRef("company", scope),)
        series = CatalogueSeries(
            series_id=f"s{at}",
            reporting_group_id=group,
            metric_id=metric,
            label=metric,
            description="",
            basis="",
            scopes=path,
            number_format="0",
            period_meaning="over_period",
        )
        groups.setdefault(group, []).append(series)
    return Catalogue(
        entity_id="O-" + "0" * 32,
        name="Example",
        dataset_id="11111111-1111-1111-1111-111111111111",
        created_timestamp=datetime(2025, 1, 1, tzinfo=UTC),
        periods=periods,
        scope_groups=(),
        groups=tuple(
            ReportingGroup(reporting_group_id=name, name=name, series=tuple(each))
            for name, each in groups.items()
        ),
    )


def planned(known: Catalogue, wanted: tuple[str, ...] | None = None, periods: Resolved = ANNUAL) -> Plan:
    """Plan the series of these ids, or all of them."""
    series = known.series if wanted is None else tuple(known[each] for each in wanted)
    return plan(Question(known, Select(), periods), known, series)


def test_one_page_is_one_batch() -> None:
    """The batch is the query a careful person would write, pinned to the publication."""
    known = catalogue(("Revenue", "all", "annual"), ("Cost", "all", "annual"), ("Cash", "all", "other"))
    (batch,) = planned(known, ("s0", "s1")).batches
    assert isinstance(batch, Query)
    assert batch.metric_ids == ("Revenue", "Cost")
    assert batch.scope_combinations == ((ScopeRef("company", "all"),),)
    assert batch.expected_dataset_id == known.dataset_id
    assert batch.periods == ANNUAL
    assert batch.home == batch.matched == {"s0", "s1"}


def test_each_catalogue_is_judged() -> None:
    """After a change of the publication, a question selects series of the new catalogue."""
    earlier = catalogue(("Revenue", "all", "annual"))
    later = catalogue(("Cost", "all", "annual"), ("Revenue", "all", "annual"))
    question = Question(earlier.entity_id, Select("Revenue"), ANNUAL)
    selected = [question.resolve(publication)[0] for publication in (earlier, later, earlier)]
    assert selected == [earlier.series, later.series[1:], earlier.series]


def test_foreign_group_is_left_out() -> None:
    """Where a metric and path exist in two groups, the wanted one is named, and the other does not come."""
    known = catalogue(("Revenue", "all", "annual"), ("Revenue", "all", "quarterly"))
    (batch,) = planned(known, ("s1",)).batches
    assert batch.reporting_group_ids == ("quarterly",)
    assert batch.matched == {"s1"}


def test_groups_are_named_only_when_needed() -> None:
    """All groups of what is asked for are wanted, so the query leaves them out."""
    known = catalogue(("Revenue", "all", "annual"), ("Revenue", "all", "quarterly"))
    assert planned(known).batches[0].reporting_group_ids is None


def test_all_groups_of_one_cell_page() -> None:
    """120 groups of one metric and path are two pages of one query, but three queries that name them."""
    known = catalogue(*(("Revenue", "all", f"g{at}") for at in range(120)))
    (batch,) = planned(known).batches
    assert batch.reporting_group_ids is None
    assert len(batch.home) == len(batch.matched) == 120
    assert batch.requests == 2


def test_fifty_groups_are_named() -> None:
    """50 groups are within the cap of spec 8, so the 70 others of the same metric and path stay out."""
    known = catalogue(*(("Revenue", "all", f"g{at}") for at in range(120)))
    (batch,) = planned(known, tuple(f"s{at}" for at in range(50))).batches
    assert batch.reporting_group_ids is not None
    assert len(batch.reporting_group_ids) == 50
    assert batch.matched == batch.home


@pytest.mark.parametrize("periods", [ANNUAL, Trailing(12)])
def test_large_cell_follows_its_cursor(periods: Resolved) -> None:
    """A query cannot separate 250 series of one metric, path and group: one batch of three pages."""
    known = catalogue(*[("Revenue", "all", "annual")] * 250, ("Cost", "all", "annual"))
    large = planned(known, periods=periods)
    assert sorted(len(batch.home) for batch in large.batches) in ([1, 250], [251])
    assert large.requests in (3, 4)


def test_fixed_periods_allow_foreign_series() -> None:
    """Two series on a diagonal are one request, and what else the cross product matches is dropped."""
    known = catalogue(("A", "x", "g"), ("A", "y", "g"), ("B", "x", "g"), ("B", "y", "g"))
    (batch,) = planned(known, ("s0", "s3")).batches
    assert batch.home == {"s0", "s3"}
    assert batch.matched == {"s0", "s1", "s2", "s3"}


@pytest.mark.parametrize(
    ("triples", "bound"),
    [
        ([("Revenue", f"p{at}", "g") for at in range(101)], 3),
        ([(f"M{at}", "all", "g") for at in range(101)], 3),
        ([(f"M{at}", f"p{at}", "g") for at in range(51)], 2),
        ([(f"M{at % 2}", f"p{at // 2}", "g") for at in range(202)], 3),
    ],
    ids=["paths of a metric", "metrics of a path", "diagonal", "series"],
)
def test_the_lower_bound_counts_every_cap(triples: list[tuple[str, str, str]], bound: int) -> None:
    """At most 100 series, 50 metrics and 50 paths fit into one request, whichever is short first."""
    assert planned(catalogue(*triples)).lower_bound == bound


def test_a_plan_explains_itself() -> None:
    """People see what would be sent before anything is sent."""
    known = catalogue(("A", "x", "g"), ("A", "y", "g"), ("B", "x", "g"), ("B", "y", "g"))
    text = str(planned(known, ("s0", "s3"), Trailing(12)))
    for part in (
        "2 series selected",
        "1 batch, 1 request: ",
        "lower bound: 1 request;",
        "2 other series match these queries; only a cache stores them",
        "periods: the last 12 months; all periods are requested, and the window is cut from them",
    ):
        assert part in text
    whole = str(planned(known))
    assert "other series" not in whole
    assert "periods: exactly FY2022, FY2023, FY2024\n" in whole
    assert repr(planned(known)).endswith("4 series in 1 request>")


@pytest.mark.parametrize(
    ("periods", "known_periods", "words"),
    [
        (Trailing(12), (), "periods: the last 12 months, of which the catalogue has none"),
        (Trailing(12), YEARS, "; all periods are requested, and the window is cut from them"),
    ],
)
def test_plan_describes_its_periods(periods: Trailing, known_periods: tuple[Period, ...], words: str) -> None:
    """What is requested instead, and why nothing is."""
    known = catalogue(("A", "x", "g"), periods=known_periods)
    assert words in str(planned(known, periods=periods))


def test_series_on_overlong_path_is_rejected() -> None:
    """No legal query names a path of 21 entries; the error says how many it has."""
    path = tuple(ScopeRef("company", str(at)) for at in range(21))
    known = catalogue(("Revenue", "all", "annual"))
    (group,) = known.groups
    long = evolve(known, groups=(evolve(group, series=(replace(group.series[0], scopes=path),)),))
    with pytest.raises(SelectionError, match="scope path has 21 entries"):
        planned(long)


@pytest.mark.skipif(not REAL.is_dir(), reason="../shared/data is not there")
def test_real_companies_are_near_the_bound() -> None:
    """Over all of them at most a twentieth more than the lower bound, and every batch is one page."""
    requests = bound = 0
    for file in sorted(REAL.glob("*.json.gz")):
        groups = json.loads(gzip.decompress(file.read_bytes()))["publications"][-1]["groups"]
        triples = [
            (each["metric_id"], json.dumps(each["scopes"]), each["reporting_group_id"])
            for group in groups
            for each in group["series"]
        ]
        made = planned(catalogue(*triples))
        assert made.requests == len(made.batches)
        requests += made.requests
        bound += made.lower_bound
    assert requests <= 1.05 * bound


SCRIPT = """
from tests.plan.test_plan import catalogue, planned
known = catalogue(*((f"M{m}", f"p{p}", f"g{m % 3}") for m in range(70) for p in range(70) if m * p % 11 == 1))
wanted = tuple(series.series_id for series in known.series)[::3]
for batch in planned(known, wanted).batches:
    print(batch.metric_ids, batch.scope_combinations, batch.reporting_group_ids)
"""


def test_hash_seed_does_not_matter() -> None:
    """Another process plans the same batches, ids in the same order."""
    seen = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(seen) == 1
    assert seen != {""}
