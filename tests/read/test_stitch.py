"""What a stitch refuses, and what it shows of an answer while it arrives."""

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest

from asyncfin.errors import MalformedAnswerError
from asyncfin.model.period import Period
from asyncfin.model.selection import Exact, FiscalRange, Resolved, Trailing
from asyncfin.wire.values import read_planned_page
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
    assert [series.series_id for series in answer.stitch.list_missing(include_unlisted=True)] == [
        "b.annual",
        "c.annual",
    ]
    await answer.add(page({"b.annual": {FY23: 3}}), home=frozenset(IDS[1:]), asked=EVER)
    panel = answer.panel()
    assert panel.periods == (FY23, FY24)
    assert panel.unlisted == ("c.annual",)


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("metric_id", "other"),
        ("reporting_group_id", "other"),
        ("scopes", [{"scope_group_id": "company", "scope_id": "part"}]),
    ],
)
@pytest.mark.parametrize("home", [HOME, frozenset()], ids=["at home", "foreign"])
async def test_series_must_equal_the_catalogue(field: str, other: Any, home: frozenset[str]) -> None:
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


async def test_pieces_share_one_anchor() -> None:
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


OUTSIDE = [Exact([FY23]), FiscalRange((2022, 1), (2023, 12)), FiscalRange(2024, 2024)]


@pytest.mark.parametrize("asked", OUTSIDE, ids=repr)
async def test_a_value_outside_is_rejected(asked: Resolved) -> None:
    """The error names the period and what was requested."""
    with pytest.raises(MalformedAnswerError, match=r"a value at FY202[24] is outside of"):
        await stitch(asked).add(page({"a.annual": {FY22: 1, FY23: 1, FY24: 1}}), home=HOME, asked=asked)


@pytest.mark.parametrize("asked", OUTSIDE, ids=repr)
async def test_foreign_value_outside_is_dropped(asked: Resolved) -> None:
    """It fails no query: with and without a cache the result is the same."""
    body = page({"a.annual": {FY22: 1, FY23: 1, FY24: 1}})
    planned = await read_planned_page(body, HOME, "original")
    assert planned.wanted.indices
    added = await stitch(asked).stitch.add(planned, home=frozenset(IDS[1:]), request_periods=asked)
    assert added == (None, None)


async def test_short_foreign_array_is_malformed() -> None:
    """Also where nothing of the series is read: a result does not depend on the cache."""
    document = page_json([FY23, FY24], {"a.annual": {FY24: 1}, "b.annual": {FY24: 1}})
    document["series"][1]["values"].pop()
    with pytest.raises(MalformedAnswerError, match=r"b\.annual"):
        await read_planned_page(encoded(document), HOME - {"b.annual"}, "original")


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
async def test_whole_response_shows_listed_series(asked: Resolved, listed: tuple[str, ...]) -> None:
    """Foreign and empty series count too; a response over some of the periods shows nothing of the others."""
    answer = stitch(asked)
    await answer.add(page({"a.annual": {}, "b.annual": {}}), home=frozenset(IDS[:1]), asked=asked)
    publication = answer.stitch.publication
    assert publication.listed_ids["original"] == set(listed)
    assert not publication.listed_ids["latest_restated"]


LARGE = [f"m{at}.annual" for at in range(100)]


def large_page() -> bytes:
    """Return a page of more than 4 MiB, which is read in slices."""
    document = page_json([FY24], {series_id: {FY24: at} for at, series_id in enumerate(LARGE)})
    for series in document["series"]:
        series["values"][0]["text"] = "x" * 50_000
    return encoded(document)


async def test_cancelled_page_can_be_repeated() -> None:
    """Cancelled between slices, the stitch holds nothing of the page, which can be added again."""
    catalogue = catalogue_of(LARGE)
    answer = Stitched(catalogue, catalogue.series, EVER)
    adding = asyncio.create_task(answer.add(large_page(), home=frozenset(LARGE), asked=EVER))
    for _ in range(3):
        await asyncio.sleep(0)
    adding.cancel()
    await asyncio.wait([adding])
    assert adding.cancelled()
    assert len(answer.stitch.list_missing()) == len(LARGE)
    await answer.add(large_page(), home=frozenset(LARGE), asked=EVER)
    assert not answer.stitch.list_missing()


async def test_yielded_pieces_take_no_memory() -> None:
    """After fifty pages a stream holds no more than after ten, but for the ids that were listed."""
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
    assert held[49] - held[9] < 200 * 4_000
    assert not answer.stitch.list_missing()
