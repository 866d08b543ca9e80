"""One entity's Parquet file: made whole in memory, and read back for what it says of itself.

pyarrow is imported inside.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from attrs import frozen

from asyncfin.errors import own_version
from asyncfin.extraction.question import Lacking, SharedQuestion, canonical
from asyncfin.extraction.strict import structure
from asyncfin.table.optional import library
from asyncfin.table.panel import Panel

# Most entities have fewer rows; larger groups would make readers hold more than they look at.
_ROWS_A_GROUP = 122_880
_METADATA = b"asyncfin"


@frozen
class Written:
    """What is known of the file of an entity.

    Attributes:
        dataset_id: its publication.
        rows, bytes: its size.
        sha256: the hash of its content; empty where it is not known to be whole.
        requests: how many the extraction took, everything counted.
        lacking: the asked ids and words that the catalogue lacks.
    """

    dataset_id: str
    rows: int
    bytes: int
    sha256: str
    requests: int
    lacking: Lacking


@frozen
class EntityFile:
    """A file that is ready to be put in place."""

    entity_id: str
    written: Written
    content: bytes


@frozen
class Footer:
    """What a file's own metadata says: whose it is, and of which question, as canonical text."""

    entity_id: str
    question: str
    written: Written


@frozen
class _About:
    """The part of the metadata that an extraction relies on."""

    entity_id: str
    dataset_id: str
    question: dict[str, Any]
    lacking: Lacking
    requests: int = 0


def encode(panel: Panel, question: SharedQuestion, *, requests: int, lacking: Lacking) -> EntityFile:
    """Return a panel's table as a Parquet file, all values decoded.

    Raises:
        MalformedAnswerError: a value breaks the spec.
    """
    pa, parquet = library("pyarrow", "arrow"), library("pyarrow.parquet", "arrow")
    table = panel.to_arrow()
    (about,) = json.loads(table.schema.metadata[_METADATA])["panels"]
    # The panel knows what was asked of this entity; the file says what was asked of all.
    about["select"] = str(question.select) if question.select.where is None else question.select.name
    about |= {
        "question": json.loads(question.text),
        "lacking": dict(lacking),
        "requests": requests,
        "version": own_version(),
    }
    table = table.replace_schema_metadata({_METADATA: json.dumps({"panels": [about]})})
    # In memory, so that its hash is known before anything is written.
    stream = pa.BufferOutputStream()
    # Page checksums let a file be verified when nothing else is left that knows its hash.
    parquet.write_table(
        table, stream, compression="zstd", row_group_size=_ROWS_A_GROUP, write_page_checksum=True
    )
    content: bytes = stream.getvalue().to_pybytes()
    written = Written(
        panel.dataset.dataset_id,
        table.num_rows,
        len(content),
        sha256(content).hexdigest(),
        requests,
        lacking,
    )
    return EntityFile(panel.dataset.entity_id, written, content)


def read_footer(file: Path | bytes) -> Footer | None:
    """Return what a file, or its end, says of itself; None where it is of no extraction, or can't be read.

    Its `sha256` is empty: `verified_hash` reads the whole file.
    """
    pa, parquet = library("pyarrow", "arrow"), library("pyarrow.parquet", "arrow")
    try:
        found = parquet.read_metadata(file if isinstance(file, Path) else pa.BufferReader(file))
        size = file.stat().st_size if isinstance(file, Path) else len(file)
        (described,) = json.loads(found.metadata[_METADATA])["panels"]
        about = structure(described, _About)
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException):
        return None
    written = Written(about.dataset_id, found.num_rows, size, "", about.requests, about.lacking)
    return Footer(about.entity_id, canonical(about.question), written)


def verified_hash(file: Path) -> str:
    """Return the hash of a file all of whose pages match their checksums; empty where one does not."""
    pa, parquet = library("pyarrow", "arrow"), library("pyarrow.parquet", "arrow")
    content = file.read_bytes()
    try:
        parquet.read_table(pa.BufferReader(content), page_checksum_verification=True)
    except (OSError, ValueError, pa.ArrowException):
        return ""
    return sha256(content).hexdigest()
