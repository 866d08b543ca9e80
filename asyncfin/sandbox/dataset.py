"""The dataset file: what a publication of an entity holds, read from a file and written
to one.

In the format (`docs/dataset-format.md`) values are rows of numbers and table indexes.
`load` checks all of it and expands it to the wire shapes of spec 2: the server has
nothing left to check.
"""

from __future__ import annotations

import gc
import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import msgspec
from attrs import asdict, field, frozen

from asyncfin.sandbox.dataset_file import FORMATS, compact, read_document
from asyncfin.sandbox.errors import BrokenDatasetError
from asyncfin.sandbox.reader import WrongPlaceError, parse_json, read
from asyncfin.sandbox.schema import Uuid

Period = tuple[int, int, int]
Row = tuple[int, dict[str, Any] | None, dict[str, Any] | Literal["withdrawn"] | None]

_GZIP_MAGIC = b"\x1f\x8b"
# A few kilobytes of gzip can expand to gigabytes, and a file may come from anywhere.
_MAX_INFLATED = 512 << 20  # the largest real file has 30 MB


def check_dataset_id(_: object, __: object, dataset_id: Any) -> None:
    try:
        read(dataset_id, Uuid, "dataset_id")
    except WrongPlaceError as wrong:
        raise ValueError(f"{wrong.place} {wrong.problem}") from None


@frozen
class Publication:
    """One publication of an entity's dataset (spec 9.2), in wire shapes; nothing in it
    is to be changed.

    Attributes:
        dataset_id: a UUID, or else ValueError.
        periods: (year, end_month, duration_months), sorted and distinct.
        scope_groups: as the catalogue sends them (spec 2.3).
        groups: as the catalogue sends them (spec 2.3), every group with its complete
            `series`.
        values: for every series_id its rows, ascending by period index: (period index,
            value, restated value). Values are complete value objects of spec 2.4 but
            for `value_version`. The value is None where it exists only restated; the
            restated value is None where there was no restatement, and "withdrawn" where
            a restatement left no value.
    """

    entity_id: str
    name: str
    dataset_id: str = field(validator=check_dataset_id)
    created_timestamp: str
    periods: tuple[Period, ...]
    scope_groups: tuple[dict[str, Any], ...]
    groups: tuple[dict[str, Any], ...]
    values: Mapping[str, Sequence[Row]]

    @cached_property
    def digest(self) -> bytes:
        """A hash that differs for other content under the same id."""
        content = asdict(self, recurse=False) | {"values": dict(self.values)}
        return hashlib.blake2b(msgspec.json.encode(content), digest_size=16).digest()


@frozen
class DatasetFile:
    """The publications of one entity, oldest first; the last one is the current one."""

    entity_id: str
    name: str
    publications: tuple[Publication, ...]


def load(source: Path | str | bytes | Mapping[str, Any]) -> DatasetFile:
    """Read and check a dataset file.

    Args:
        source: A path (Path or str), the content of a file (bytes), or the document
            itself (a mapping). JSON, gzip'd or not; that is seen from the content, not
            from the name.

    Raises:
        BrokenDatasetError: it cannot be read, is not JSON, inflates to more than 512
            MiB, or breaks a rule of the format.
    """
    name = f"<{type(source).__name__}>"
    if isinstance(source, Path | str):
        name = str(source)
    # The new objects are many and none is garbage: collections would double the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        document = source
        if not isinstance(source, Mapping):
            document = _parse_document(_read_content(source, name), name)
        entity_id, entity_name, publications = read_document(document)
    # Raised below, outside of the handler, so that a user sees one error and not two.
    except WrongPlaceError as wrong:
        failure = BrokenDatasetError(name, wrong.place, wrong.problem)
    else:
        make_publication = partial(Publication, entity_id, entity_name)
        members = [make_publication(**fields) for fields in publications]
        return DatasetFile(entity_id, entity_name, tuple(members))
    finally:
        if collecting:
            gc.enable()
    raise failure


def read_publication(source: Any) -> Publication:
    """Return the publication that a source is, or the last one of a DatasetFile or of
    what `load` accepts.
    """
    if isinstance(source, Publication):
        return source
    dataset = source if isinstance(source, DatasetFile) else load(source)
    return dataset.publications[-1]


def dump(dataset: DatasetFile) -> bytes:
    """Return the dataset as a gzip'd file, always the same bytes, from which `load`
    makes an equal one.
    """
    document = {
        "format": FORMATS[0],
        "entity_id": dataset.entity_id,
        "name": dataset.name,
        "publications": [compact(publication) for publication in dataset.publications],
    }
    text = json.dumps(
        document, ensure_ascii=False, allow_nan=False, separators=(",", ":")
    )
    # No time in its header, or the same dataset would give other bytes each second.
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def _read_content(source: Path | str | bytes, name: str) -> bytes:
    """Return the bytes of the file, data."""
    try:
        content = source
        if not isinstance(content, bytes):
            content = Path(content).expanduser().read_bytes()
        if not content.startswith(_GZIP_MAGIC):
            return content
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            data = stream.read(_MAX_INFLATED + 1)
        if len(data) <= _MAX_INFLATED:
            return data
        # A few megabytes of gzip can expand to gigabytes.
        problem = (
            f"inflates to more than {_MAX_INFLATED >> 20} MiB; give a file of fewer "
            "publications"
        )
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        problem = f"is a broken gzip stream ({error}); write the file again"
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "strerror", None) or error
        problem = (
            f"cannot be read ({reason}); give the path of a .json or .json.gz file"
        )
    raise BrokenDatasetError(name, "$", problem)


def _parse_document(content: bytes, name: str) -> Any:
    try:
        return parse_json(content)
    except (ValueError, RecursionError) as error:
        problem = f"is not JSON ({error}); a dataset file is one JSON object"
    raise BrokenDatasetError(name, "$", problem)
