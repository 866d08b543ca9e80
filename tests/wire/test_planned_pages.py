"""Pages of planned queries: whichever way they are read and kept, the values are those that came."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from asyncfin.errors import MalformedAnswerError
from asyncfin.model.period import Period
from asyncfin.model.query import ValueVersion
from asyncfin.model.series import Value
from asyncfin.table.block import compress_blocks as compressed_blocks
from asyncfin.table.panel import Panel
from asyncfin.tasks import decoding_lock
from asyncfin.wire.values import PlannedPage, read_planned_page
from tests import examples
from tests.answers import EVER, Stitched, catalogue_of, encoded, page_json, value
from tests.wire.test_codec_properties import documents, eager

FY22, FY23, FY24 = Period(2022, 12, 12), Period(2023, 12, 12), Period(2024, 12, 12)
FOREIGN = "foreign.annual"
ALL_KINDS_OF_TEXT = ["[null,null]", "[]", '","values":[', "\\[\u00e9", "[" * 40]


def read(document: dict[str, Any], value_version: str = "original") -> PlannedPage:
    wanted = {series["series_id"] for series in document["series"]} - {FOREIGN}
    return asyncio.run(read_planned_page(encoded(document), wanted, value_version))


def panel(document: dict[str, Any], value_version: ValueVersion, *, packed: bool) -> Panel:
    async def run() -> Panel:
        ids = [series["series_id"] for series in document["series"]]
        catalogue = catalogue_of(ids)
        wanted = tuple(series for series in catalogue.series if series.series_id != FOREIGN)
        answer = Stitched(catalogue, wanted, EVER, value_version)
        await answer.add(encoded(document), home=frozenset(ids) - {FOREIGN}, asked=EVER)
        if packed:
            answer.blocks = [*compressed_blocks(answer.blocks)]
        return answer.panel()

    return asyncio.run(run())


def found(panel: Panel) -> dict[str, list[tuple[Period, Value]]]:
    return {series.series_id: list(series.observations()) for series in panel}


@settings(max_examples=examples(100))
@given(documents(), st.booleans(), st.sampled_from(ALL_KINDS_OF_TEXT))
def test_values_are_received_values(document: dict[str, Any], packed: bool, label: str) -> None:
    """Whole or in pieces, in values, numbers and tables; whatever a head has that looks like values."""
    for series in document["series"]:
        series["unknown"] = label
    expected = eager(document)
    (foreign,) = page_json([], {FOREIGN: {}})["series"]
    foreign["values"] = [None] * len(document["periods"])
    answer = panel({**document, "series": [foreign, *document["series"]]}, "latest_restated", packed=packed)
    assert found(answer) == expected
    assert [[number for number in row if number == number] for row in answer.to_numpy().tolist()] == [
        [float(value.number) for _, value in expected[series.series_id]] for series in answer
    ]
    assert answer.to_arrow(columns=["series_id", "text"]).to_pylist() == [
        {"series_id": series_id, "text": value.text}
        for series_id, values in expected.items()
        for _, value in values
    ]
    answer.check()


def plain() -> dict[str, Any]:
    return page_json([FY22, FY23], {"a.annual": {FY22: 1.5, FY23: 0.0}, "b.annual": {FY23: 2}})


def changed(**fields: Any) -> dict[str, Any]:
    document = plain()
    document["series"][0]["values"][0].update(fields)
    return document


ACCEPTED = [
    (plain(), "original"),
    (changed(value_version="latest_restated"), "latest_restated"),
    (plain(), "latest_restated"),
    (changed(value_version="as_filed"), "original"),
]


@pytest.mark.parametrize(("document", "value_version"), ACCEPTED)
def test_page_has_its_numbers(document: dict[str, Any], value_version: str) -> None:
    """A label may be original although restated values were requested, or an unknown word."""
    numbers = read(document, value_version).wanted.numbers
    assert (list(numbers.starts), list(numbers.positions)) == ([0, 2, 3], [0, 1, 1])
    assert list(numbers.numbers) == [1.5, 0, 2]


REFUSED = {
    r"Expected int \| float, got str @ \$\.series\[0\]\.values\[0\]\.number": changed(number="1"),
    r"out of range @ \$\.series\[0\] \(a\.annual\)\.values\[0\]\.number": changed(number=10**400),
    r"each of the 2 periods, got 1 @ \$\.series\[1\] \(b\.annual\)\.values": {
        **plain(),
        "series": [plain()["series"][0], {**plain()["series"][1], "values": [None]}],
    },
    r"is latest_restated, and original was requested @ \$\.series\[0\] \(a\.annual\)": changed(
        value_version="latest_restated"
    ),
    r"Expected int <= 12 @ \$\.periods\[1\]\.end_month": {
        **plain(),
        "periods": [plain()["periods"][0], {"year": 2023, "end_month": 13, "duration_months": 12}],
    },
    r"is also at \$\.periods\[0\] @ \$\.periods\[1\]": {
        **plain(),
        "periods": [plain()["periods"][0]] * 2,
    },
    r"is also at \$\.series\[0\] @ \$\.series\[1\]": {**plain(), "series": [plain()["series"][0]] * 2},
    r"a required field is missing @ \$\.series\[0\]\.metric_id": {
        **plain(),
        "series": [{name: each for name, each in plain()["series"][0].items() if name != "metric_id"}],
    },
    r"Expected str, got int @ \$\.series\[0\]\.scopes\[0\]\.scope_id": {
        **plain(),
        "series": [{**plain()["series"][0], "scopes": [{"scope_group_id": "g", "scope_id": 5}]}],
    },
    r"expected an ISO 8601 timestamp .*got 'now' @ \$\.created_timestamp": {
        **plain(),
        "created_timestamp": "now",
    },
}


@pytest.mark.parametrize("problem", REFUSED)
def test_broken_page_is_rejected_in_place(problem: str) -> None:
    """The error shows the path in the response."""
    with pytest.raises(MalformedAnswerError, match=f"{problem}$"):
        read(REFUSED[problem])


@pytest.mark.parametrize("text", ["1", 5])
@pytest.mark.parametrize("written", ["latest\\u005frestated", "\\u006Catest_restated"])
def test_restated_value_is_rejected(written: str, text: str | int) -> None:
    """In any spelling of its label, and if its value is malformed too (spec 9.3)."""
    body = encoded(changed(value_version="latest_restated", text=text))
    body = body.replace(b"latest_restated", written.encode())
    with pytest.raises(MalformedAnswerError, match="is latest_restated, and original was requested"):
        asyncio.run(read_planned_page(body, {"a.annual", "b.annual"}, "original"))


FIVE = [f"m{at}.annual" for at in range(5)]


def _five() -> Stitched:
    catalogue = catalogue_of(FIVE)
    return Stitched(catalogue, catalogue.series, EVER)


def _two_megabytes(series_id: str) -> bytes:
    document = page_json([FY23, FY24], {series_id: {FY23: 1, FY24: 2}})
    text = "".join(_noise(series_id, 1_045_000))
    document["series"][0]["values"] = [value(at, period, text=text) for at, period in enumerate([FY23, FY24])]
    return encoded(document)


async def _add_two_megabytes(answer: Stitched, series_id: str) -> None:
    await answer.add(_two_megabytes(series_id), home=frozenset([series_id]), asked=EVER)


async def test_texts_of_a_page_are_packed() -> None:
    """4 MiB as they came; values look the same from either, also where an array lies in several pieces."""
    answer = _five()
    for series_id in FIVE:
        await _add_two_megabytes(answer, series_id)
    assert [block.text.is_compressed for block in answer.blocks] == [False, False, True, True, True]
    assert all(len(block.text.pieces) > 10 for block in answer.blocks[2:])
    for series in answer.panel():
        assert [each.text for _, each in series.observations()] == [
            "".join(_noise(series.series_id, 1_045_000))
        ] * 2


async def test_packing_leaves_the_loop_free() -> None:
    """Packing two megabytes takes milliseconds, between which others run; to keep them takes none."""
    answer, turns = _five(), list[int]()

    async def count_turns() -> None:
        while True:
            turns[-1:] = [turns[-1] + 1]
            await asyncio.sleep(0)

    for series_id in FIVE[:3]:
        page = await read_planned_page(_two_megabytes(series_id), {series_id}, "original")
        turns.append(0)
        counting = asyncio.create_task(count_turns())
        await answer.stitch.add(page, home=frozenset({series_id}), request_periods=EVER)
        counting.cancel()
    assert turns[:2] == [0, 0]
    assert turns[2] >= 2  # sixteen pieces, of which eight take a millisecond


async def test_packing_waits_for_decoding() -> None:
    """Several at once would each take a slice of every turn of the loop."""
    answer = _five()
    await _add_two_megabytes(answer, FIVE[0])
    await _add_two_megabytes(answer, FIVE[1])
    async with decoding_lock():
        adding = asyncio.create_task(_add_two_megabytes(answer, FIVE[2]))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not adding.done()
    await adding
    assert [block.text.is_compressed for block in answer.blocks] == [False, False, True]


def _noise(seed: str, length: int) -> Iterator[str]:
    for at in range(length // 10):
        yield f"{hash((seed, at)) % 10**10:010}"
