"""Daily usage: spec 4.4, 8."""

from datetime import date, timedelta
from typing import Any

import pytest

from .conftest import Desk


def test_usage_counts_every_day(desk: Desk) -> None:
    """Usage counts every day of the range, days without requests and failed reads included."""
    desk.dataset()
    desk.now += timedelta(days=1)
    desk.dataset(), desk.dataset("unknown"), desk.catalogue(), desk.query()
    status, body = desk.get("/v1/usage", start_date="2026-02-28", end_date="2026-03-02")
    assert status == 200
    assert body == {
        "start_date": "2026-02-28",
        "end_date": "2026-03-02",
        "days": [
            {"date": "2026-02-28", "data_requests": 0, "operations": {}},
            {"date": "2026-03-01", "data_requests": 1, "operations": {"dataset": 1}},
            {
                "date": "2026-03-02",
                "data_requests": 4,
                "operations": {"dataset": 2, "catalogue": 1, "query": 1},
            },
        ],
    }


def test_open_range_ends_today(desk: Desk) -> None:
    """A range left open ends today and starts where it ends, which the spec does not show."""
    assert [day["date"] for day in desk.get("/v1/usage")[1]["days"]] == ["2026-03-01"]
    assert len(desk.get("/v1/usage", start_date="2026-02-01")[1]["days"]) == 29
    assert len(desk.get("/v1/usage", end_date="2025-02-01")[1]["days"]) == 1


def test_range_covers_at_most_92_days(desk: Desk) -> None:
    """Spec 8: both dates included."""
    start = date(2026, 1, 1)
    for days, status in ((92, 200), (93, 400)):
        end = start + timedelta(days=days - 1)
        assert desk.get("/v1/usage", start_date=start, end_date=end)[0] == status


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"start_date": "2026-02-30"}, "start_date"),
        ({"start_date": "20260201"}, "start_date"),
        ({"start_date": "2026-W05-1"}, "start_date"),
        ({"end_date": "2026-2-1"}, "end_date"),
        ({"end_date": ""}, "end_date"),
        ({"start_date": "2026-03-02", "end_date": "2026-03-01"}, "start_date"),
        ({"start_date": "2020-01-01", "end_date": "2026-03-01"}, "end_date"),
        ({"days": "7"}, "days"),
        ({"start_date": "2026-03-05", "end_date": "2026-3-9"}, "end_date"),
    ],
)
def test_wrong_range_is_400_and_named(desk: Desk, given: dict[str, Any], named: str) -> None:
    """Spec 4.4: dates are YYYY-MM-DD."""
    status, body = desk.get("/v1/usage", **given)
    assert (status, body["error"]["code"]) == (400, "validation_failed")
    assert [issue["field"] for issue in body["error"]["issues"]] == [named]
