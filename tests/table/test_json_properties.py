"""The JSON of a panel against json.dumps of its values: whatever numbers and texts are."""

import asyncio
import json
from typing import Any

from hypothesis import given, settings, strategies as st
from msgspec.structs import asdict

from asyncfin.model.period import Period
from asyncfin.model.series import Value
from asyncfin.table.panel import Panel
from tests import examples
from tests.answers import panel_of

PERIODS = [Period(year, month, 3) for year in (2023, 2024) for month in (3, 6, 9, 12)]
EXTREMES = [0, 0.0, -0.0, 2**80, -(2**64), 2**53 + 1, 1e15, 1e16, 1e-3, 9.99e-4, 1e-7, 5e-324, 1.7e308, 0.1]
numbers = st.sampled_from(EXTREMES) | st.integers(-(2**70), 2**70) | st.floats(-1e20, 1e20)
panels = st.dictionaries(
    st.sampled_from([f"m{at}.{group}" for at in range(4) for group in ("annual", "quarterly")])
    | st.just('quote".annual')
    | st.just("é\u2028\x7f\U0001f600\\.annual"),
    st.dictionaries(st.sampled_from(PERIODS), numbers, max_size=5),
    min_size=1,
)


def expected(panel: Panel) -> str:
    def plain(value: Value | None) -> Any:
        if value is None:
            return None
        assert value.report_period is not None
        parts = {"report_period": asdict(value.report_period), "sources": [*map(asdict, value.sources)]}
        return asdict(value) | parts

    fields = ["series_id", "reporting_group_id", "metric_id", "label", "basis", "scopes", "number_format"]
    fields.append("period_meaning")
    series = [
        {name: getattr(each, name) for name in fields}
        | {"scopes": [asdict(ref) for ref in each.scopes], "values": [*map(plain, each.values)]}
        for each in panel
    ]
    document = {
        "entity_id": panel.dataset.entity_id,
        "name": panel.dataset.name,
        "dataset_id": panel.dataset.dataset_id,
        "created_timestamp": "2026-02-03T04:05:06Z",
        "value_version": "original",
        "periods": [*map(asdict, panel.periods)],
        "series": series,
        "unlisted": [*panel.unlisted],
        "anchor": None,
        "requests": 1,
    }
    return json.dumps(document)


@settings(max_examples=examples(100))
@given(panels, st.sampled_from([None, 1, 2, 8]), st.sampled_from(["", "annual", "quarterly"]), st.booleans())
def test_json_has_the_values(
    found: dict[str, dict[Period, Any]], indent: int | None, group: str, cut: bool
) -> None:
    """Whole panels, some of the series, and some of the periods."""
    panel = asyncio.run(panel_of(found, PERIODS))
    if group:
        panel = panel.where(lambda series: series.reporting_group_id == group)
    if cut and panel.periods:
        panel = panel.during(panel.periods[::2])
    text = panel.to_json(indent=indent)
    assert json.loads(text) == json.loads(expected(panel))
    assert ("\n" in text) == (indent is not None)
