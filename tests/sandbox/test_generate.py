"""The generator: deterministic, valid, as large as asked for, and of the shape that real datasets have."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st

from asyncfin.sandbox.dataset import dump, load
from tests import examples
from tests.generate import generate, generate_table


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(),
    st.integers(1, 60),
    st.integers(1, 4),
    st.none() | st.integers(1, 150),
    st.none() | st.floats(0, 1),
)
def test_any_generated_dataset_is_valid_file(
    seed: int, series: int, publications: int, periods: int | None, fill: float | None
) -> None:
    """Whatever is asked for survives the loader's checks unchanged and has the size asked for."""
    dataset = generate(seed, series=series, publications=publications, periods=periods, fill=fill)
    assert load(dump(dataset)) == dataset
    assert len(dataset.publications) == publications
    assert len(dataset.publications[-1].values) == series
    assert len(dataset.publications[-1].periods) <= (periods or 19)


def test_seed_decides_the_dataset() -> None:
    """Tests and benchmarks may rely on a seed; names and ids differ between seeds."""
    first, again, other = generate(7, series=50), generate(7, series=50), generate(8, series=50)
    assert dump(first) == dump(again)
    assert (first.name, other.name) == ("Generated 7", "Generated 8")
    assert first.entity_id != other.entity_id
    assert {p.dataset_id for p in first.publications}.isdisjoint(p.dataset_id for p in other.publications)


def test_later_publications_only_add() -> None:
    """Series, periods and restatements come on top; original values stay what they were."""
    publications = generate(3, series=800, publications=3).publications
    for before, after in pairwise(publications):
        assert before.values.keys() < after.values.keys()
        assert set(before.periods) < set(after.periods)
        restated = Counter[str]()
        for series_id, rows in before.values.items():
            later = {after.periods[i]: versions for i, *versions in after.values[series_id]}
            for index, original, old in rows:
                original_later, new = later[before.periods[index]]
                assert original_later == original
                assert old is None or new == old
                restated["new"] += old is None and new is not None
        assert restated["new"] > 0


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize(("density", "blocks"), [(0.5, 1), (1.0, 4)])
def test_table_has_requested_cells(density: float, blocks: int, groups: int) -> None:
    """So many cells in each group, and each only once."""
    dataset = generate_table(7, metrics=24, paths=18, density=density, blocks=blocks, groups=groups)
    assert load(dump(dataset)) == dataset
    cells = Counter(
        (group["cadence"], series["metric_id"], str(series["scopes"]))
        for group in dataset.publications[-1].groups
        for series in group["series"]
    )
    assert max(cells.values()) == 1
    assert len(cells) == pytest.approx(groups * 24 * 18 * density / blocks, rel=0.2)
    assert len({cadence for cadence, *_ in cells}) == groups


def test_it_holds_the_rare_cases() -> None:
    """Two series of one metric, path and group; paths of six references; reversed paths; odd characters."""
    publication = generate(1, series=3000).publications[-1]
    series = [entry for group in publication.groups for entry in group["series"]]
    paths = {tuple(tuple(ref.values()) for ref in entry["scopes"]) for entry in series}
    triples = Counter(
        (entry["metric_id"], str(entry["scopes"]), entry["reporting_group_id"]) for entry in series
    )
    assert max(triples.values()) > 1
    assert {len(path) for path in paths} == {1, 2, 3, 4, 5, 6}
    assert any(len(path) > 1 and path[::-1] in paths for path in paths)
    metric_ids = "".join(entry["metric_id"] for entry in series)
    scope_ids = "".join(part for path in paths for reference in path for part in reference)
    assert set("=|% :/?#&+öß") <= set(metric_ids)
    assert set("=|% :öß") <= set(scope_ids)
    numbers = [row[1]["number"] for rows in publication.values.values() for row in rows]
    assert min(numbers) < 0
    assert 0 in numbers
