"""Datasets written by hand, for tests that need to know where each value is."""

from collections.abc import Mapping
from typing import Any

from asyncfin import Period

ENTITY_ID = "O-" + "7" * 32
FIRST, SECOND = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"

Numbers = Mapping[tuple[str, str], Mapping[str, float]]
"""By metric and scope, the numbers by the periods' labels."""


def series_id(metric_id: str, scope_id: str) -> str:
    return f"{metric_id}.{scope_id}"


def dataset(
    numbers: Numbers, *, periods: tuple[str, ...] = (), dataset_id: str = FIRST, entity_id: str = ENTITY_ID
) -> dict[str, Any]:
    """Return a dataset file with one series for each metric and scope, all in one reporting group.

    Args:
        periods: labels of periods that the catalogue lists besides those that have a value.
    """
    labels = {label for found in numbers.values() for label in found} | {*periods}
    known = sorted(map(Period.parse, labels))
    places = {period.label: place for place, period in enumerate(known)}
    series = [
        {
            "series_id": series_id(metric, scope),
            "metric_id": metric,
            "scopes": [{"scope_group_id": "company", "scope_id": scope}],
        }
        for metric, scope in numbers
    ]
    publication = {
        "dataset_id": dataset_id,
        "created_timestamp": "2025-02-01T06:00:00Z",
        "periods": [[each.year, each.end_month, each.duration_months] for each in known],
        "scope_groups": [
            {
                "scope_group_id": "company",
                "scopes": [{"scope_id": scope} for scope in dict.fromkeys(scope for _, scope in numbers)],
            }
        ],
        "groups": [{"reporting_group_id": "all", "basis": "b", "cadence": "c", "series": series}],
        "values": {
            series_id(*names): sorted([places[label], number] for label, number in found.items())
            for names, found in numbers.items()
        },
    }
    return {
        "format": "asyncfin-dataset/1",
        "entity_id": entity_id,
        "name": "Example",
        "publications": [publication],
    }
