"""A publication as the store keeps it: every piece of an answer as JSON bytes, made once when it is published.

A cell is a value object without its end: `value_version` follows when the page is joined, for it depends on the query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attrs import frozen

from asyncfin.sandbox.dataset import Publication
from asyncfin.sandbox.request import encode

Period = tuple[int, int, int]


@frozen
class EncodedSeries:
    """catalogue: the catalogue series; head: the query series without its `values` and its end.

    populated: a bit for every period, little endian. original, restated: one line for every period, empty where there
    is no value; restated is None when nothing was restated.
    """

    metric_id: str
    path: str
    reporting_group_id: str
    populated: bytes
    catalogue: bytes
    head: bytes
    original: bytes
    restated: bytes | None


def period_object(period: Period) -> dict[str, int]:
    """The wire shape of spec 2.1."""
    return dict(zip(("year", "end_month", "duration_months"), period, strict=True))


def fiscal_end(period: Period) -> int:
    """The last month of a period, counted in fiscal months."""
    return period[0] * 12 + period[1]


def path_text(scopes: Sequence[dict[str, Any]]) -> str:
    """One text for a scope path, so that two paths are equal when their texts are."""
    return encode([[ref["scope_group_id"], ref["scope_id"]] for ref in scopes]).decode()


def open_json(value: dict[str, Any]) -> bytes:
    """A JSON object without its closing brace."""
    return encode(value)[:-1]


def head_json(publication: Publication) -> bytes:
    """The dataset metadata (spec 2.2), open."""
    fields = ("entity_id", "name", "dataset_id", "created_timestamp")
    return open_json({name: getattr(publication, name) for name in fields})


def encoded_series(publication: Publication) -> Iterator[EncodedSeries]:
    """The series of a publication in catalogue order: that of the groups, then of the series in each."""
    count = len(publication.periods)
    for group in publication.groups:
        for series in group["series"]:
            yield _encoded(series, publication.values.get(series["series_id"], ()), count)


def _encoded(series: dict[str, Any], rows: Sequence[Any], count: int) -> EncodedSeries:
    originals = {index: open_json(value) for index, value, _ in rows}
    restated = {index: open_json(value) for index, _, value in rows if value is not None}
    populated = sum(1 << index for index in originals)
    head = {name: value for name, value in series.items() if name != "description"}
    return EncodedSeries(
        metric_id=series["metric_id"],
        path=path_text(series["scopes"]),
        reporting_group_id=series["reporting_group_id"],
        populated=populated.to_bytes((count + 7) // 8, "little"),
        catalogue=encode(series),
        head=open_json(head),
        original=_lines(originals, count),
        restated=_lines(restated, count) if restated else None,
    )


def _lines(cells: dict[int, bytes], count: int) -> bytes:
    return b"\n".join(cells.get(index, b"") for index in range(count))
