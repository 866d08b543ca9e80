"""Stitching against the obvious way: look every value up in the publication."""

import asyncio
from collections.abc import Sequence
from math import isnan
from typing import Any

import pytest
from attrs import evolve, frozen
from hypothesis import given, settings, strategies as st

from asyncfin.errors import MalformedAnswerError
from asyncfin.model.period import Period
from asyncfin.model.selection import Exact, FiscalRange, Resolved, Trailing
from asyncfin.table.panel import Panel
from tests import examples
from tests.answers import EVER, Stitched, catalogue_of, encoded, page_json

PERIODS = [
    Period(year, month, duration)
    for year in (2022, 2023, 2024)
    for month, duration in ((3, 3), (6, 3), (6, 6), (12, 3), (12, 12))
]
IDS = [f"m{at}.{group}" for at in range(4) for group in ("annual", "quarterly")]
NUMBERS = st.integers(-(2**70), 2**70) | st.floats(-1e12, 1e12) | st.just(0)

Publication = dict[str, dict[Period, Any]]
publications = st.dictionaries(
    st.sampled_from(IDS), st.dictionaries(st.sampled_from(PERIODS), NUMBERS, max_size=8), min_size=1
)
selections = st.one_of(
    st.builds(Exact, st.lists(st.sampled_from(PERIODS), min_size=1, unique=True)),
    st.builds(FiscalRange, st.just((2022, 4)), st.sampled_from([(2023, 6), (2024, 12)])),
    st.builds(Trailing, st.integers(1, 40)),
)


@frozen
class Batch:
    """What one request matches, and which of it is wanted there."""

    matched: tuple[str, ...]
    home: frozenset[str]


def matching(selection: Resolved, publication: Publication, ids: Sequence[str]) -> set[Period]:
    """Return the periods that a query over these series selects, by the words of spec 4.3."""
    populated = {period for series_id in ids for period in publication[series_id]}
    match selection:
        case Exact(periods=exact):
            return set(exact)
        case FiscalRange(start=Period() as start, end=Period() as end):
            first, last = (start.year, start.end_month), (end.year, end.end_month)
            return {each for each in populated if first <= (each.year, each.end_month) <= last}
        case Trailing(months=months) if populated:
            latest = max((each.year, each.end_month) for each in populated)
            back = {divmod(latest[0] * 12 + latest[1] - 1 - ago, 12) for ago in range(months)}
            return {each for each in populated if (each.year, each.end_month - 1) in back}
    return set()


@st.composite
def questions(draw: st.DrawFn, *, foreign: bool) -> tuple[Publication, tuple[str, ...], list[Batch]]:
    """Draw a publication, the wanted series in catalogue order, and batches that have them all at home."""
    publication = draw(publications)
    catalogue = catalogue_of(publication)
    wanted = draw(st.lists(st.sampled_from([s.series_id for s in catalogue]), min_size=1, unique=True))
    homes: dict[int, list[str]] = {}
    for series_id in wanted:
        homes.setdefault(draw(st.integers(0, 2)), []).append(series_id)
    batches = []
    for home in homes.values():
        extra = draw(st.lists(st.sampled_from(sorted(publication)), unique=True)) if foreign else []
        matched = draw(st.permutations(sorted({*home, *extra})))
        batches.append(Batch(tuple(matched), frozenset(home)))
    ordered = tuple(series.series_id for series in catalogue if series.series_id in wanted)
    return publication, ordered, batches


@st.composite
def pages(
    draw: st.DrawFn, publication: Publication, batches: list[Batch], asked: Resolved
) -> list[tuple[Batch, bytes]]:
    """Draw the answers: each batch in one or two pages, each with a separate `periods`, in any order."""
    answers = []
    for batch in batches:
        selected = matching(asked, publication, batch.matched)
        cut = draw(st.integers(0, len(batch.matched)))
        for ids in (batch.matched[:cut], batch.matched[cut:]):
            needed = selected.intersection(period for each in ids for period in publication[each])
            more = draw(st.sets(st.sampled_from(sorted(selected)))) if selected else set()
            listed = draw(st.permutations(sorted(needed | more)))
            numbers = {each: publication[each] for each in ids}
            answers.append((batch, encoded(page_json(listed, numbers))))
    return draw(st.permutations(answers))


def stitched(
    publication: Publication,
    wanted: tuple[str, ...],
    answers: list[tuple[Batch, bytes]],
    selection: Resolved,
    asked: Resolved,
) -> Panel:
    async def run() -> Panel:
        catalogue = catalogue_of(publication, PERIODS)
        stitch = Stitched(catalogue, tuple(catalogue[each] for each in wanted), selection)
        for batch, body in answers:
            await stitch.add(body, home=batch.home, asked=asked)
        return stitch.panel()

    return asyncio.run(run())


def check(panel: Panel, publication: Publication, wanted: tuple[str, ...], selection: Resolved) -> None:
    """Compare with one query without caps over exactly the wanted series."""
    selected = matching(selection, publication, wanted)
    if not isinstance(selection, Exact):
        selected = {each for each in selected if any(each in publication[one] for one in wanted)}
    assert panel.periods == tuple(sorted(selected))
    assert panel.series_ids == wanted
    assert panel.unlisted == ()
    for series, row in zip(panel, panel.to_numpy(), strict=True):
        expected = [publication[series.series_id].get(period) for period in panel.periods]
        assert [value and value.number for value in series.values] == expected
        assert [None if isnan(number) else number for number in row] == [
            None if number is None else float(number) for number in expected
        ]
    if isinstance(selection, Trailing):
        populated = [period for each in wanted for period in publication[each]]
        assert panel.anchor == max(populated, default=None)


@settings(max_examples=examples(50))
@given(st.data(), selections)
def test_a_panel_equals_one_query_without_caps(data: st.DataObject, selection: Resolved) -> None:
    """A panel equals one query without caps, whatever the batches, the pages' periods and their order."""
    publication, wanted, batches = data.draw(questions(foreign=True))
    # Trailing months are requested as a range: foreign series, and values before the window, leave no trace.
    requested = EVER if isinstance(selection, Trailing) else selection
    answers = data.draw(pages(publication, batches, requested))
    check(stitched(publication, wanted, answers, selection, requested), publication, wanted, selection)


@settings(max_examples=examples(50))
@given(st.data(), selections.filter(lambda selection: not isinstance(selection, Trailing)))
def test_a_value_outside_of_what_was_asked_is_refused(data: st.DataObject, selection: Resolved) -> None:
    """A service that sends more than was asked for is not trusted with the rest."""
    publication, wanted, _ = data.draw(questions(foreign=False))
    whole = Batch(wanted, frozenset(wanted))
    populated = {period for each in wanted for period in publication[each]}
    body = encoded(page_json(sorted(populated), {each: publication[each] for each in wanted}))
    if populated <= matching(selection, publication, wanted):
        stitched(publication, wanted, [(whole, body)], selection, selection)
    else:
        with pytest.raises(MalformedAnswerError, match="outside of"):
            stitched(publication, wanted, [(whole, body)], selection, selection)


@settings(max_examples=examples(50))
@given(st.data())
def test_a_series_that_comes_twice_is_refused(data: st.DataObject) -> None:
    """From its home batch a series comes once, on whichever page."""
    publication, wanted, batches = data.draw(questions(foreign=False))
    answers = data.draw(pages(publication, batches, EVER))
    again = data.draw(st.sampled_from(answers))
    body = encoded(page_json([], {each: {} for each in again[0].home}))
    with pytest.raises(MalformedAnswerError, match="came before"):
        stitched(publication, wanted, [*answers, (again[0], body)], EVER, EVER)


@settings(max_examples=examples(50))
@given(st.data())
def test_what_did_not_come_is_unlisted(data: st.DataObject) -> None:
    """Series that no page contains are in the panel without values, and are named."""
    publication, wanted, batches = data.draw(questions(foreign=False))
    absent = data.draw(st.sets(st.sampled_from(wanted)))
    here = [
        evolve(batch, matched=tuple(each for each in batch.matched if each not in absent))
        for batch in batches
    ]
    panel = stitched(publication, wanted, data.draw(pages(publication, here, EVER)), EVER, EVER)
    assert panel.unlisted == tuple(each for each in wanted if each in absent)
    left = {each: {} if each in absent else found for each, found in publication.items()}
    check(evolve(panel, unlisted=()), left, wanted, EVER)
