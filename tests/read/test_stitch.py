"""What a stitch refuses, and what it shows of an answer while it arrives."""

import asyncio
import gc
import pickle
import tracemalloc
from typing import Any

import pytest

from asyncfin.errors import MalformedAnswerError
from asyncfin.model.period import Period
from asyncfin.model.selection import Exact, FiscalRange, Resolved, Trailing
from asyncfin.tasks import decoding_lock
from tests.answers import EVER, Numbers, Stitched, catalogue_of, encoded, page_json

FY22, FY23, FY24 = (Period(year, 12, 12) for year in (2022, 2023, 2024))
IDS = ("a.annual", "b.annual", "c.annual")
HOME = frozenset(IDS)


def stitch(periods: Resolved | None = EVER) -> Stitched:
    catalogue = catalogue_of(IDS, [FY22, FY23, FY24])
    return Stitched(catalogue, catalogue.series, periods)


def page(numbers: Numbers, **changes: Any) -> bytes:
    return encoded(page_json([FY22, FY23, FY24], numbers, **changes))


async def test_foreign_series_leave_no_trace() -> None:
    """Neither values nor periods of foreign series are kept, and they may come at home later."""
    answer = stitch()
    await answer.add(
        page({"a.annual": {FY24: 1}, "b.annual": {FY22: 2}}), home=frozenset(IDS[:1]), asked=EVER
    )
    assert [series.series_id for series in answer.stitch.not_received] == ["b.annual", "c.annual"]
    await answer.add(page({"b.annual": {FY23: 3}}), home=frozenset(IDS[1:]), asked=EVER)
    panel = answer.panel()
    assert panel.periods == (FY23, FY24)
    assert panel.unlisted == ("c.annual",)


async def test_a_foreign_series_need_not_be_sound() -> None:
    """A foreign series need not be sound, since its values are not decoded."""
    document = page_json([FY24], {"a.annual": {FY24: 1}, "b.annual": {FY24: 2}})
    document["series"][1]["values"] = ["nonsense"]
    answer = stitch()
    await answer.add(encoded(document), home=frozenset(IDS[:1]), asked=EVER)
    answer.panel().check()


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("metric_id", "other"),
        ("reporting_group_id", "other"),
        ("scopes", [{"scope_group_id": "company", "scope_id": "part"}]),
    ],
)
@pytest.mark.parametrize("home", [HOME, frozenset()], ids=["at home", "foreign"])
async def test_a_series_must_be_the_one_that_the_catalogue_lists(
    field: str, other: Any, home: frozenset[str]
) -> None:
    """A series is one metric, group and path, foreign ones too: what differs is named by its JSON path."""
    document = page_json([FY24], {"a.annual": {FY24: 1}})
    document["series"][0][field] = other
    with pytest.raises(MalformedAnswerError, match=rf"@ \$\.series\[0\] \(a\.annual\)\.{field}$"):
        await stitch().add(encoded(document), home=home, asked=EVER)


@pytest.mark.parametrize("field", ["label", "basis", "number_format", "period_meaning"])
async def test_texts_of_the_catalogue_count(field: str) -> None:
    """A query that states another text of a series shows the catalogue's."""
    document = page_json([FY24], {"a.annual": {FY24: 1}})
    document["series"][0][field] = "other"
    answer = stitch()
    await answer.add(encoded(document), home=HOME, asked=EVER)
    (series, *_) = answer.panel()
    assert getattr(series, field) == getattr(catalogue_of(IDS, [FY24]).series[0], field) != "other"


@pytest.mark.parametrize("home", [frozenset(IDS[1:]), frozenset(IDS[2:])], ids=["at home", "foreign again"])
@pytest.mark.parametrize("field", ["metric_id", "reporting_group_id"])
async def test_a_series_is_compared_with_the_catalogue_in_each_page(field: str, home: frozenset[str]) -> None:
    """A page that describes it rightly says nothing about the next page, or one of another batch."""
    answer = stitch()
    first = page({"a.annual": {FY24: 1}, "b.annual": {FY24: 2}})
    await answer.add(first, home=frozenset(IDS[:1]), asked=EVER)
    document = page_json([FY22, FY23, FY24], {"b.annual": {FY24: 2}, "c.annual": {FY24: 3}})
    document["series"][0][field] = "other"
    with pytest.raises(MalformedAnswerError, match=rf"@ \$\.series\[0\] \(b\.annual\)\.{field}$"):
        await answer.add(encoded(document), home=home, asked=EVER)


async def test_a_series_comes_once() -> None:
    """A page that brings a series at home again is an error, which names it."""
    answer = stitch()
    await answer.add(page({"a.annual": {FY24: 1}}), home=HOME, asked=EVER)
    with pytest.raises(MalformedAnswerError, match=r"came before @ \$\.series\[1\] \(a\.annual\)"):
        await answer.add(page({"b.annual": {FY24: 1}, "a.annual": {FY24: 1}}), home=HOME, asked=EVER)


@pytest.mark.parametrize("late_first", [False, True])
async def test_the_latest_value_of_all_batches_anchors_the_window(late_first: bool) -> None:
    """The batch with the latest value cuts the others to its window, whenever it comes."""
    answer = stitch(Trailing(12))
    homes = [({"a.annual": {FY23: 1}}, IDS[:1]), ({"b.annual": {FY24: 2}}, IDS[1:])]
    for numbers, home in reversed(homes) if late_first else homes:
        await answer.add(page(numbers), home=frozenset(home), asked=EVER)
    panel = answer.panel()
    assert panel.anchor == FY24
    assert panel.anchored_by == ("b.annual",)
    assert panel.periods == (FY24,)
    assert panel["a.annual"].values == (None,)


async def test_a_piece_is_cut_to_the_anchor_of_the_whole_answer() -> None:
    """In a stream, the page with the latest value decides where the window of every piece ends."""
    answer = stitch(Trailing(24))
    await answer.add(page({"a.annual": {FY22: 1, FY23: 2}}), home=frozenset(IDS[:1]), asked=EVER)
    await answer.add(page({"b.annual": {FY24: 2}}), home=frozenset(IDS[1:]), asked=EVER)
    (first, _) = answer.blocks
    panel = answer.stitch.panel([first], answer.stitch.series_of(first))
    assert panel.series_ids == ("a.annual",)
    assert panel.periods == (FY23,)
    assert panel.anchor == FY24
    assert panel.anchored_by == ()


@pytest.mark.parametrize(
    "asked", [Exact([FY23]), FiscalRange((2022, 1), (2023, 12)), FiscalRange(2024, 2024)], ids=repr
)
async def test_a_value_that_was_not_asked_for_is_refused(asked: Resolved) -> None:
    """The error names the series, the period and what was asked."""
    with pytest.raises(MalformedAnswerError, match=r"a\.annual has a value at FY202[24], outside of"):
        await stitch(asked).add(page({"a.annual": {FY22: 1, FY23: 1, FY24: 1}}), home=HOME, asked=asked)


async def test_listing_more_periods_than_asked_is_allowed() -> None:
    """The spec says what has a value, not what is listed."""
    answer = stitch(Exact([FY23]))
    await answer.add(page({"a.annual": {FY23: 1}}), home=HOME, asked=Exact([FY23]))
    assert answer.panel().periods == (FY23,)


@pytest.mark.parametrize(
    ("asked", "listed"),
    [
        (EVER, ("a.annual", "b.annual")),
        (FiscalRange(2022, 2024), ("a.annual", "b.annual")),
        (Exact([FY24, FY23, FY22]), ("a.annual", "b.annual")),
        (FiscalRange(2023, 2024), ()),
        (FiscalRange(2022, 2023), ()),
        (Exact([FY24]), ()),
    ],
    ids=repr,
)
async def test_a_response_over_all_periods_shows_which_series_are_listed(
    asked: Resolved, listed: tuple[str, ...]
) -> None:
    """Foreign and empty series count too; a response over some of the periods shows nothing of the others."""
    answer = stitch(asked)
    await answer.add(page({"a.annual": {}, "b.annual": {}}), home=frozenset(IDS[:1]), asked=asked)
    publication = answer.stitch.publication
    found = {each.series_id for each in publication.catalogue if publication.has_listed("original", each)}
    assert found == set(listed)
    assert not any(publication.has_listed("latest_restated", each) for each in publication.catalogue)


async def test_a_series_that_is_listed_later_is_no_longer_unlisted() -> None:
    """It can be missing like any other series once a response lists it."""
    answer = stitch()
    answer.stitch.unlisted.update(IDS)
    await answer.add(page({"a.annual": {FY24: 1}, "b.annual": {}}), home=frozenset(IDS[:1]), asked=EVER)
    assert answer.stitch.unlisted == {"c.annual"}


async def test_cached_blocks_that_share_a_series_give_it_once() -> None:
    """Two readers stored it in separate blocks; the first block counts."""
    blocks = []
    for numbers in ({"a.annual": {FY23: 1}, "b.annual": {FY24: 2}}, {"b.annual": {FY24: 3}, "c.annual": {}}):
        reader = stitch()
        await reader.add(page(numbers), home=frozenset(numbers), asked=EVER)
        blocks += reader.blocks
    answer = stitch()
    answer.blocks += answer.stitch.take(blocks)
    panel = answer.panel()
    assert panel.value_count == 2
    assert [value and value.number for value in panel["b.annual"].values] == [None, 2]
    assert panel.unlisted == ()


async def test_nothing_asked_gives_all_series_without_periods() -> None:
    """A rule may mean no period of the catalogue: no request, and no series is called unlisted."""
    panel = stitch(None).panel()
    assert panel.series_ids == IDS
    assert panel.periods == ()
    assert panel.unlisted == ()


LARGE = [f"m{at}.annual" for at in range(100)]


def large_page() -> bytes:
    """Return a page of more than 4 MiB, which is read in slices."""
    document = page_json([FY24], {series_id: {FY24: at} for at, series_id in enumerate(LARGE)})
    for series in document["series"]:
        series["values"][0]["text"] = "x" * 50_000
    return encoded(document)


async def test_others_run_between_the_slices_of_a_large_page() -> None:
    """A page whose scan would take too long gives the loop a turn after each slice of 128 KiB."""
    catalogue = catalogue_of(LARGE)
    body = large_page()
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    answer = Stitched(catalogue, catalogue.series, EVER)
    await answer.add(body, home=frozenset(LARGE), asked=EVER)
    counting.cancel()
    assert turns >= len(body) // (2 * 128 * 1024)
    assert [series.values[0].number for series in answer.panel() if series.values[0]] == [*range(len(LARGE))]


async def test_a_cancelled_page_is_not_half_taken() -> None:
    """Cancelled between slices, the stitch holds nothing of the page, which can be added again."""
    catalogue = catalogue_of(LARGE)
    answer = Stitched(catalogue, catalogue.series, EVER)
    adding = asyncio.create_task(answer.add(large_page(), home=frozenset(LARGE), asked=EVER))
    for _ in range(3):
        await asyncio.sleep(0)
    adding.cancel()
    await asyncio.wait([adding])
    assert adding.cancelled()
    assert len(answer.stitch.not_received) == len(LARGE)
    await answer.add(large_page(), home=frozenset(LARGE), asked=EVER)
    assert not answer.stitch.not_received


def test_a_panel_of_some_series_names_only_those_that_did_not_come() -> None:
    """Also where nothing at all has come, its `unlisted` is of its own series."""
    nothing = stitch().stitch
    one = nothing.plan.series[:1]
    assert nothing.panel([], one).unlisted == (one[0].series_id,)


async def test_what_was_given_away_takes_no_memory() -> None:
    """After fifty pages a stream holds no more than after ten, but for a few bytes a series."""
    pages = [[f"m{page}-{at}.annual" for at in range(100)] for page in range(50)]
    catalogue = catalogue_of((each for ids in pages for each in ids), [FY24])
    answer = Stitched(catalogue, catalogue.series, EVER)
    held = {}
    tracemalloc.start()
    try:
        for number, ids in enumerate(pages):
            await answer.add(page({each: {FY24: number} for each in ids}), home=frozenset(ids), asked=EVER)
            (block,) = answer.blocks
            assert len(answer.stitch.series_of(answer.stitch.release(block))) == 100
            answer.blocks.clear()
            del block
            if number in (9, 49):
                gc.collect()
                held[number], _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held[49] - held[9] < 4 * 4_000
    assert not answer.stitch.not_received


def test_each_loop_has_a_lock_of_its_own() -> None:
    """A lock of an ended loop is not met again."""

    async def hold() -> None:
        async with decoding_lock():
            await asyncio.sleep(0)

    async def twice() -> None:
        await asyncio.gather(hold(), hold())

    asyncio.run(twice())
    asyncio.run(twice())


async def test_an_error_about_very_many_series_is_bounded() -> None:
    """100 problems, each and the message of at most 2,000 characters, and how many more there were."""
    ids = [f"m{number}.annual" for number in range(20_000)]
    document = page_json([], {series_id: {} for series_id in ids})
    for series in document["series"]:
        series["metric_id"] = "x" * 10_000 if series["series_id"] == ids[0] else "other"
    catalogue = catalogue_of(ids)
    answer = Stitched(catalogue, catalogue.series, EVER)
    with pytest.raises(MalformedAnswerError) as caught:
        await answer.add(encoded(document), home=frozenset(ids), asked=EVER)
    assert len(caught.value.problems) == 100
    assert caught.value.omitted == len(ids) - 100
    assert max(map(len, caught.value.problems)) == 2_000
    assert len(str(caught.value)) <= 2_000
    assert caught.value.problems[99].endswith("@ $.series[99] (m99.annual).metric_id")
    assert len(pickle.dumps(caught.value)) < 100 * 2_000
