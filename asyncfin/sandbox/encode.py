"""A publication as it is stored: the pieces of its answers as JSON bytes, made
when it is published.

A cell is the JSON of a value object that ends in its own `value_version`; a page may
relabel it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen
from msgspec.json import encode

from asyncfin.sandbox.dataset import Publication
from asyncfin.sandbox.dataset_file import WITHDRAWN

NULL = b"null"
# Between cells: no JSON string holds a line break, and all cells of a series together
# are an array's inside.
BETWEEN = b",\n"


@frozen
class EncodedSeries:
    """The pieces of a series: its catalogue series, its query series without `values`
    and end, its cells.
    """

    metric_id: str
    path: str
    reporting_group_id: str
    # A bit for every period with an original value, little endian.
    valued_periods: bytes
    # Likewise for the latest restated values, or None where that is the same.
    valued_latest: bytes | None
    catalogue: bytes
    head: bytes
    original: bytes  # a cell for every period, null without a value
    # Likewise with the restated values in their places, if any was restated.
    latest: bytes | None


def fiscal_end(period: Sequence[int]) -> int:
    """Return the last month of a period, counted in fiscal months."""
    return period[0] * 12 + period[1]


def write_path(path: Iterable[Sequence[str]]) -> str:
    """Return one text for a scope path of pairs: two paths are equal when their texts
    are.
    """
    return encode(list(path)).decode()


def open_json(value: Mapping[str, Any]) -> bytes:
    """Return a JSON object without its closing brace."""
    return encode(value)[:-1]


def write_head(publication: Publication) -> bytes:
    """Return the dataset metadata (spec 2.2) without the closing brace."""
    fields = ("entity_id", "name", "dataset_id", "created_timestamp")
    return open_json({name: getattr(publication, name) for name in fields})


def encode_series(publication: Publication) -> Iterator[EncodedSeries]:
    """Yield the series of a publication in catalogue order: by groups, then by the
    series in each.
    """
    count = len(publication.periods)
    for group in publication.groups:
        for series in group["series"]:
            rows = publication.values.get(series["series_id"], ())
            yield encode_one(series, rows, count)


def encode_one(
    series: dict[str, Any], rows: Sequence[Any], count: int
) -> EncodedSeries:
    # Rendered once, when it is published; a page is only joined from these pieces.
    originals = {}
    for index, value, _ in rows:
        if value is not None:
            originals[index] = _encode_cell(value, "original")
    # Of a value that was never restated the latest one is the original. Spec 2.4 does
    # not show more.
    latest = dict(originals)
    for index, _, newest in rows:
        if newest == WITHDRAWN:
            latest.pop(index, None)
        elif newest is not None:
            latest[index] = _encode_cell(newest, "latest_restated")
    size = (count + 7) // 8
    # A query series has all fields of a catalogue series but this one (spec 2.4).
    head = dict(series)
    head.pop("description", None)
    path = [(ref["scope_group_id"], ref["scope_id"]) for ref in series["scopes"]]
    return EncodedSeries(
        metric_id=series["metric_id"],
        path=write_path(path),
        reporting_group_id=series["reporting_group_id"],
        valued_periods=pack_bits(originals, size),
        valued_latest=None
        if latest.keys() == originals.keys()
        else pack_bits(latest, size),
        catalogue=encode(series),
        head=open_json(head),
        original=join_cells(originals, count),
        # A series that was never restated is stored once, not twice.
        latest=None if latest == originals else join_cells(latest, count),
    )


def pack_bits(indexes: Iterable[int], size: int) -> bytes:
    # A number of as many bits as periods: to find those that any of the series has is
    # one OR for each.
    number = 0
    for index in indexes:
        number |= 1 << index
    return number.to_bytes(size, "little")


def _encode_cell(value: Mapping[str, Any], value_version: str) -> bytes:
    return open_json(value) + write_version_end(value_version)


def write_version_end(value_version: str) -> bytes:
    """Return the last member of a value object, and its end."""
    return b',"value_version":"%b"}' % value_version.encode()


def join_cells(cells: dict[int, bytes], count: int) -> bytes:
    return BETWEEN.join(cells.get(index, NULL) for index in range(count))
