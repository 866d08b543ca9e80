"""The generator: deterministic, valid, as large as asked for, and of the shape that real datasets have."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from attrs import asdict, frozen
from hypothesis import given, settings, strategies as st

from asyncfin.sandbox.dataset import DatasetFile, Publication, dump, load
from tests import examples
from tests.generate import generate, generate_table

# The largest files say the same as the others, and take their time.
REAL_FILES = sorted(
    (Path(__file__).parents[2] / "../shared/data").glob("*.json.gz"), key=lambda path: path.stat().st_size
)[:12]
CONSOLIDATED = (("company", "consolidated"),)


@frozen
class Shape:
    """What a catalogue and its values look like, in shares of what they could hold."""

    series: int
    metrics: float
    paths: float
    existing_pairs: float
    consolidated_metrics: float
    paths_with_one_metric: float
    pairs_in_two_groups: float
    filled: float
    restated: float
    derived: float


def shape(dataset: DatasetFile) -> Shape:
    """The shape of the current publication."""
    publication = dataset.publications[-1]
    series = [entry for group in publication.groups for entry in group["series"]]
    groups_by_pair = defaultdict(set)
    metrics_by_path = defaultdict(set)
    for entry in series:
        path = tuple((r["scope_group_id"], r["scope_id"]) for r in entry["scopes"])
        groups_by_pair[entry["metric_id"], path].add(entry["reporting_group_id"])
        metrics_by_path[path].add(entry["metric_id"])
    metrics = len({entry["metric_id"] for entry in series})
    others = [len(found) for path, found in metrics_by_path.items() if path != CONSOLIDATED]
    rows = [row for found in publication.values.values() for row in found]
    return Shape(
        series=len(series),
        metrics=metrics / len(series),
        paths=len(metrics_by_path) / len(series),
        existing_pairs=len(groups_by_pair) / metrics / len(metrics_by_path),
        consolidated_metrics=len(metrics_by_path[CONSOLIDATED]) / metrics,
        paths_with_one_metric=sum(n == 1 for n in others) / max(1, len(others)),
        pairs_in_two_groups=sum(len(g) > 1 for g in groups_by_pair.values()) / len(groups_by_pair),
        filled=len(rows) / len(series) / len(publication.periods),
        restated=sum(row[2] is not None for row in rows) / len(rows),
        derived=sum(row[1]["fill_type"] == "derived" for row in rows) / len(rows),
    )


def ids(publication: Publication) -> set[str]:
    """The series of a publication."""
    return {entry["series_id"] for group in publication.groups for entry in group["series"]}


@settings(max_examples=examples(60), deadline=None)
@given(
    st.integers(),
    st.integers(1, 60),
    st.integers(1, 4),
    st.none() | st.integers(1, 150),
    st.none() | st.floats(0, 1),
)
def test_any_generated_dataset_is_a_valid_file(
    seed: int, series: int, publications: int, periods: int | None, fill: float | None
) -> None:
    """Whatever is asked for survives the loader's checks unchanged and has the size asked for."""
    dataset = generate(seed, series=series, publications=publications, periods=periods, fill=fill)
    assert load(dump(dataset)) == dataset
    assert len(dataset.publications) == publications
    assert len(ids(dataset.publications[-1])) == series
    assert len(dataset.publications[-1].periods) <= (periods or 19)


def test_the_same_arguments_give_the_same_dataset_and_other_seeds_another() -> None:
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
        assert ids(before) < ids(after)
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


def test_a_new_period_can_stand_between_old_ones() -> None:
    """Period indexes move from one publication to the next, as those of real ones do."""
    first, last = (publication.periods for publication in generate(3, series=800).publications)
    assert last[: len(first)] != first


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


def test_the_dense_shape_is_as_full_as_asked_for() -> None:
    """What the benchmarks ask for: 100 series, 120 periods, 60 % filled."""
    dataset = generate(1, series=100, periods=120, fill=0.6)
    assert len(dataset.publications[-1].periods) == 120
    assert shape(dataset).filled == pytest.approx(0.6, abs=0.03)


def test_without_a_fill_every_series_has_a_value_and_with_none_no_series_has_one() -> None:
    """Empty series can be asked for, and come only then."""
    assert all(generate(5, series=300).publications[-1].values.values())
    empty = generate(5, series=30, fill=0).publications[-1]
    assert empty.periods == ()
    assert not any(empty.values.values())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"series": 0}, "series is 0; it must be 1 or more"),
        ({"publications": 0}, "publications is 0"),
        ({"periods": 0}, "periods is 0"),
        ({"fill": 1.5}, "fill is 1.5; it must be 0 to 1"),
        ({"fill": float("nan")}, "fill is nan"),
    ],
)
def test_a_number_out_of_range_is_refused(arguments: dict[str, float], words: str) -> None:
    """The error names the argument, its value, and the range."""
    with pytest.raises(ValueError, match=words):
        generate(1, **arguments)  # type: ignore[arg-type]


def test_the_usual_shape() -> None:
    """At the median number of series, the figures of 64 real companies (design of the project) come out."""
    found = shape(generate(1, series=1171))
    assert found.metrics == pytest.approx(421 / 1171, abs=0.02)
    assert found.paths == pytest.approx(180 / 1171, abs=0.02)
    assert found.existing_pairs == pytest.approx(0.011, abs=0.002)
    assert found.consolidated_metrics == pytest.approx(319 / 421, abs=0.05)
    assert found.paths_with_one_metric == pytest.approx(0.5, abs=0.08)
    assert found.pairs_in_two_groups == pytest.approx(0.4, abs=0.05)
    assert found.filled == pytest.approx(0.14, abs=0.04)


@pytest.mark.skipif(not REAL_FILES, reason="../shared/data is not there")
def test_the_shape_lies_among_real_datasets() -> None:
    """Every share of the generated shape is within the range of the real files."""
    real = [shape(load(path)) for path in REAL_FILES]
    generated = shape(generate(1, series=round(statistics.median(one.series for one in real))))
    for name, share in asdict(generated).items():
        values = [getattr(one, name) for one in real]
        assert min(values) <= share <= max(values), name


@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize(("density", "blocks"), [(1.0, 1), (0.5, 1), (1.0, 4), (0.8, 3)])
def test_a_table_has_the_cells_that_were_asked_for(density: float, blocks: int, groups: int) -> None:
    """Dense, half-dense and in blocks, in one to three groups, each with separate cells."""
    dataset = generate_table(7, metrics=24, paths=18, density=density, blocks=blocks, groups=groups)
    assert load(dump(dataset)) == dataset
    assert dataset == generate_table(7, metrics=24, paths=18, density=density, blocks=blocks, groups=groups)
    cells: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for group in dataset.publications[-1].groups:
        for series in group["series"]:
            cell = series["metric_id"], str(series["scopes"])
            assert cell not in cells[group["cadence"]]
            cells[group["cadence"]].add(cell)
    assert len(cells) == groups
    for found in cells.values():
        assert len(found) == pytest.approx(24 * 18 * density / blocks, rel=0.2)
        metrics = {metric for metric, _ in found}
        partners = {metric: frozenset(path for m, path in found if m == metric) for metric in metrics}
        if density == 1:  # the metrics of a block have the same paths
            assert len(set(partners.values())) == blocks
    if groups > 1 and density < 1:
        assert len({frozenset(found) for found in cells.values()}) == groups


@pytest.mark.parametrize(
    "wrong", [{"groups": 4}, {"groups": 0}, {"density": 0}, {"density": 1.1}, {"blocks": 0}, {"blocks": 5}]
)
def test_a_table_out_of_range_is_refused(wrong: dict[str, float]) -> None:
    """A table out of range is refused by the name of the number."""
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is"):
        generate_table(1, **{"metrics": 4, "paths": 9, **wrong})  # type: ignore[arg-type]
