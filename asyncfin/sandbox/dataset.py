"""The dataset file: what a publication of an entity holds, read from a file and written to one.

The format (`docs/dataset-format.md`) keeps values as rows of numbers and table indexes. `load` checks all of
it and expands it to the wire shapes of spec 2: whoever serves a publication has nothing left to check.
"""

from __future__ import annotations

import gc
import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec
from attrs import asdict, field, frozen

from asyncfin.sandbox.dataset_rules import DATASET_ID_FORM, FORMATS, is_dataset_id, read_document
from asyncfin.sandbox.dataset_values import WITHDRAWN
from asyncfin.sandbox.json_place import WrongPlaceError, parsed

Period = tuple[int, int, int]
Row = tuple[int, dict[str, Any] | None, dict[str, Any] | Literal["withdrawn"] | None]

_GZIP_MAGIC = b"\x1f\x8b"


def _check_dataset_id(_: object, __: object, dataset_id: Any) -> None:
    if not isinstance(dataset_id, str) or not is_dataset_id(dataset_id):
        raise ValueError(f"dataset_id is {dataset_id!r}; it must be a UUID: {DATASET_ID_FORM}")


@frozen
class Publication:
    """One publication of an entity's dataset (spec 9.2), in wire shapes; nothing in it is to be changed.

    dataset_id: a UUID in lower case, or else ValueError.
    periods: (year, end_month, duration_months), sorted and distinct.
    scope_groups, groups: as the catalogue sends them (spec 2.3), every group with its complete `series`.
    values: for every series_id its rows, ascending by period index: (period index, value, restated value).
        Values are complete value objects of spec 2.4 but for `value_version`. The value is None where it
        exists only restated; the restated value is None where there was no restatement, and "withdrawn"
        where a restatement left no value.
    """

    entity_id: str
    name: str
    dataset_id: str = field(validator=_check_dataset_id)
    created_timestamp: str
    periods: tuple[Period, ...]
    scope_groups: tuple[dict[str, Any], ...]
    groups: tuple[dict[str, Any], ...]
    values: Mapping[str, Sequence[Row]]

    @cached_property
    def digest(self) -> bytes:
        """What tells it from other content under the same id."""
        content = asdict(self, recurse=False) | {"values": dict(self.values)}
        return hashlib.blake2b(msgspec.json.encode(content), digest_size=16).digest()


@frozen
class DatasetFile:
    """The publications of one entity, oldest first; the last one is the current one."""

    entity_id: str
    name: str
    publications: tuple[Publication, ...]


class BrokenDatasetError(ValueError):
    """A dataset file that cannot be used.

    source: the file. place: the JSON place (`$.publications[0].periods[3]`). problem: what stands there,
    and what would be right.
    """

    def __init__(self, source: str, place: str, problem: str) -> None:
        super().__init__(source, place, problem)
        self.source, self.place, self.problem = source, place, problem

    def __str__(self) -> str:
        return f"{self.source}: {self.place}: {self.problem}"


def load(source: Path | str | bytes | Mapping[str, Any]) -> DatasetFile:
    """Read and check a dataset file.

    source: a path (Path or str), the content of a file (bytes), or the document itself (a mapping). JSON,
    gzip'd or not; that is seen from the content, not from the name.

    Raises BrokenDatasetError when it cannot be read, is no JSON, or breaks a rule of the format.
    """
    name = str(source) if isinstance(source, Path | str) else f"<{type(source).__name__}>"
    try:
        with _collector_paused():
            document = source if isinstance(source, Mapping) else _document(_content(source, name), name)
            entity_id, entity_name, publications = read_document(document)
    except WrongPlaceError as wrong:
        broken = BrokenDatasetError(name, wrong.place, wrong.problem)
    else:
        return DatasetFile(
            entity_id,
            entity_name,
            tuple(Publication(entity_id, entity_name, **fields) for fields in publications),
        )
    raise broken


def publication_of(source: Any) -> Publication:
    """The publication that a source is, or the last one of a DatasetFile or of what `load` takes.

    Raises BrokenDatasetError as `load` does.
    """
    if isinstance(source, Publication):
        return source
    dataset = source if isinstance(source, DatasetFile) else load(source)
    return dataset.publications[-1]


def dump(dataset: DatasetFile) -> bytes:
    """The dataset as a gzip'd file of the format `asyncfin-dataset/1`: the same bytes for the same dataset.

    `load(dump(dataset)) == dataset`, for a dataset that `load` or the generator gave.
    """
    document = {
        "format": FORMATS[0],
        "entity_id": dataset.entity_id,
        "name": dataset.name,
        "publications": [_compact(publication) for publication in dataset.publications],
    }
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Without garbage collections: the new objects are many and none is garbage, so they double the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _content(source: Path | str | bytes, name: str) -> bytes:
    """The bytes of the file, inflated."""
    try:
        content = source if isinstance(source, bytes) else Path(source).read_bytes()
        return gzip.decompress(content) if content.startswith(_GZIP_MAGIC) else content
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        problem = f"the gzip stream is broken ({error}); write the file again"
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        problem = f"cannot be read ({reason}); give the path of a .json or .json.gz file"
    raise BrokenDatasetError(name, "$", problem)


def _document(content: bytes, name: str) -> Any:
    """The JSON document in the content."""
    try:
        return parsed(content)
    except (ValueError, RecursionError) as error:
        problem = f"is no JSON ({error}); a dataset file is one JSON object"
    raise BrokenDatasetError(name, "$", problem)


class _Table:
    """Distinct entries in the order of their first use."""

    def __init__(self, entries: Sequence[Any] = ()) -> None:
        self._indexes = {entry: index for index, entry in enumerate(entries)}

    def index(self, entry: Any) -> int:
        return self._indexes.setdefault(entry, len(self._indexes))

    def entries(self) -> list[Any]:
        return list(self._indexes)


@frozen
class _Tables:
    """The tables that the values of one publication point into."""

    periods: tuple[Period, ...]
    report_periods: _Table
    items: _Table
    fill_types: _Table


def _compact(publication: Publication) -> dict[str, Any]:
    """The publication as the file holds it."""
    tables = _Tables(publication.periods, _Table(), _Table(), _Table(("reported",)))
    values = {
        series_id: [_compact_row(row, tables) for row in rows]
        for series_id, rows in publication.values.items()
        if rows
    }
    return {
        "dataset_id": publication.dataset_id,
        "created_timestamp": publication.created_timestamp,
        "periods": publication.periods,
        "report_periods": tables.report_periods.entries(),
        "items": tables.items.entries(),
        "fill_types": tables.fill_types.entries(),
        "scope_groups": publication.scope_groups,
        "groups": publication.groups,
        "values": values,
    }


def _compact_row(row: Row, tables: _Tables) -> list[Any]:
    """The row with its values as numbers and table indexes."""
    index, original, restated = row
    versions = [original] if restated is None else [original, None if restated == WITHDRAWN else restated]
    return [index, *(_compact_value(value, index, tables) for value in versions)]


def _compact_value(value: Any, index: int, tables: _Tables) -> Any:
    """The bare number where the rest of the value is what the loader supplies anyway."""
    if value is None:
        return None
    year, end_month, _ = tables.periods[index]
    report = value["report_period"]
    own = (report["year"], report["end_month"]) == (year, end_month)
    if own and value["fill_type"] == "reported" and not value["sources"]:
        return value["number"]
    return [
        value["number"],
        tables.fill_types.index(value["fill_type"]),
        tables.report_periods.index((report["year"], report["end_month"], 0)),
        [
            [tables.items.index(source["item_id"]), source["row_index"], source["column_index"]]
            for source in value["sources"]
        ],
    ]
