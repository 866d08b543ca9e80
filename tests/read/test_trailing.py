"""The window of a trailing question is the client's own, whatever window the service uses."""

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings, strategies as st

from asyncfin import Client, MemoryCache, Panel, Period, Select, Trailing
from asyncfin.sandbox import Dialect, Sandbox
from tests import examples
from tests.conftest import VirtualTimeLoop
from tests.handmade import ENTITY_ID, Numbers, dataset
from tests.services.altering import altered

LABELS = [
    "FY2023",
    "FY2023-Q4",
    "FY2024-Q1",
    "FY2024-H1",
    "FY2024-Q2",
    "FY2024-Q3",
    "FY2024-9M",
    "FY2024-Q4",
    "FY2024",
]
CELLS = [(metric, scope) for metric in ("Revenue", "Cost", "Cash") for scope in ("all", "cloud")]


def window(numbers: Numbers, wanted: list[tuple[str, str]], months: int) -> dict[str, dict[str, float]]:
    """Return the values of the wanted series in the window, counted by hand."""
    ends = {label: (p := Period.parse(label)).year * 12 + p.end_month for label in LABELS}
    latest = max((ends[label] for cell in wanted for label in numbers[cell]), default=0)
    return {
        ".".join(cell): {
            label: number
            for label, number in numbers[cell].items()
            if latest - months < ends[label] <= latest
        }
        for cell in wanted
    }


def values(panel: Panel) -> dict[str, dict[str, float]]:
    return {
        series.series_id: {period.label: value.number for period, value in series.observations()}
        for series in panel
    }


def wider(numbers: Numbers) -> Callable[[str, dict[str, Any], dict[str, Any]], None]:
    """Return what makes the window of a trailing response one month wider than ours."""

    def alter(operation: str, sent: dict[str, Any], answer: dict[str, Any]) -> None:
        if operation != "query" or sent["periods"]["mode"] != "trailing":
            return
        cells = [(each["metric_id"], each["scopes"][0]["scope_id"]) for each in answer["series"]]
        found = window(numbers, cells, sent["periods"]["months"] + 1)
        labels = sorted({label for each in found.values() for label in each}, key=Period.parse)
        answer["periods"] = [
            {"year": p.year, "end_month": p.end_month, "duration_months": p.duration_months}
            for p in map(Period.parse, labels)
        ]
        for series in answer["series"]:
            given_numbers = found[series["series_id"]]
            series["values"] = [
                None if label not in given_numbers else _value(given_numbers[label]) for label in labels
            ]

    return alter


def _value(number: float) -> dict[str, Any]:
    return {
        "number": number, "text": str(number), "number_format": "0", "fill_type": "reported",
        "value_version": "original", "sources": [],
        "report_period": {"year": 2024, "end_month": 12, "duration_months": 0},
    }  # fmt: skip


numbers_of_all_cells = st.fixed_dictionaries(
    {cell: st.dictionaries(st.sampled_from(LABELS), st.integers(-9, 9)) for cell in CELLS}
)


@settings(max_examples=examples(30))
@given(
    numbers_of_all_cells,
    st.lists(st.sampled_from(CELLS), min_size=1, unique=True),
    st.integers(1, 30),
    st.sampled_from(["end", "within", "wider"]),
)
def test_trailing_is_equal_with_cache(
    numbers: Numbers, wanted: list[tuple[str, str]], months: int, dialect: str
) -> None:
    """Counted by hand; the service's window contains what ends in it, whole periods only, or a month more."""

    async def run() -> None:
        known = dataset(numbers, periods=tuple(LABELS))
        sandbox_dialect = Dialect(trailing="within" if dialect == "within" else "end")
        change = wider(numbers) if dialect == "wider" else lambda *_: None
        expected = window(numbers, wanted, months)
        labels = {label for each in expected.values() for label in each}
        async with Sandbox(known, dialect=sandbox_dialect) as sandbox, altered(sandbox, change) as url:
            for cache in (None, MemoryCache()):
                async with Client(url, sandbox.token, cache=cache) as client:
                    catalogue = await client.catalogue(ENTITY_ID)
                    series = [each for each in catalogue if tuple(each.series_id.split(".")) in wanted]
                    for _ in range(2):
                        panel = await client.query(catalogue, Select.of(series), Trailing(months))
                        assert values(panel) == expected
                        assert [p.label for p in panel.periods] == sorted(labels, key=Period.parse)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(run())
