"""One entity's Parquet file: encoded in memory, and its footer read back.

The footer is the record of an extraction: the entity, the publication, the question, what the entity does
not have of it, and what it cost.
"""

from __future__ import annotations

import json
import os
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from attrs import frozen
from msgspec import Meta

from asyncfin.errors import own_version
from asyncfin.extraction.question import SharedQuestion, canonical, text_hash
from asyncfin.extraction.strict import structure
from asyncfin.model.catalogue import is_same_publication
from asyncfin.model.judge import Missing
from asyncfin.optional import pa, parquet
from asyncfin.table.arrow import METADATA
from asyncfin.table.panel import Panel

if TYPE_CHECKING:
    from asyncfin.read.entity import EntityAnswer
    from asyncfin.read.read import Metadata

# Most entities have fewer rows; larger groups would make readers hold more than they look at.
ROWS_A_GROUP = 122_880
# Of the metadata, so that a later version knows what it reads.
FORMAT = 1


@frozen
class Written:
    """What the footer of an entity's file says, and its size.

    Attributes:
        dataset_id: its publication.
        created_timestamp: when that was published.
        rows, bytes: its size.
        requests: how many its catalogue and values took, everything counted.
        missing: the ids and words of the question that the entity does not have, by field.
        run: the run of the change feed that wrote it, or the one before if nothing changed; None without
            a feed.
    """

    dataset_id: str
    created_timestamp: Annotated[datetime, Meta(tz=True)]
    rows: int
    bytes: int
    requests: int
    missing: Missing
    run: str | None = None

    def is_current(self, current: Metadata) -> bool:
        """Return whether metadata name the publication of the file."""
        return is_same_publication(self.dataset_id, current.dataset.dataset_id)


@frozen
class EntityFile:
    """A file that is ready to be put in place."""

    entity_id: str
    written: Written
    content: bytes


@frozen
class Found:
    """A file of an extraction, in its place. `question` is the hash of its question's text."""

    entity_id: str
    question: str
    written: Written


@frozen
class Footer:
    """The metadata of a file: of which entity it is, and of which question, as canonical text."""

    entity_id: str
    question: str
    written: Written

    @property
    def found(self) -> Found:
        return Found(self.entity_id, text_hash(self.question), self.written)


def panels_of(answer: EntityAnswer) -> tuple[Panel, ...]:
    """Return the panels of an entity, that of the original values first."""
    return tuple(panel for panel in (answer.panel, answer.restated) if panel is not None)


def rows_of(*panels: Panel) -> Any:
    """Return the long table of panels of one publication that differ in their value version."""
    first, *others = tables = [panel.to_arrow() for panel in panels]
    if not others:
        return first
    bare = [table.replace_schema_metadata(None) for table in tables]
    whole = pa.concat_tables(bare).unify_dictionaries()
    return whole.replace_schema_metadata(first.schema.metadata)


def encode(
    answer: EntityAnswer,
    table: Any,
    question: SharedQuestion,
    *,
    requests: int,
    run: str | None = None,
) -> EntityFile:
    """Return the rows of an entity's panels, which are `table`, as a Parquet file."""
    dataset = panels_of(answer)[0].dataset
    noted: dict[str, Any] = {"requests": requests, "run": run}
    table = table.replace_schema_metadata(_footer_metadata(answer, table, question, noted))
    stream = pa.BufferOutputStream()
    # With page checksums, so that a reader can verify a file.
    parquet.write_table(
        table, stream, compression="zstd", row_group_size=ROWS_A_GROUP, write_page_checksum=True
    )
    content: bytes = stream.getvalue().to_pybytes()
    written = Written(
        dataset.dataset_id,
        dataset.created_timestamp,
        rows=table.num_rows,
        bytes=len(content),
        missing=answer.missing,
        **noted,
    )
    return EntityFile(dataset.entity_id, written, content)


def _footer_metadata(
    answer: EntityAnswer, table: Any, question: SharedQuestion, noted: dict[str, Any]
) -> dict[bytes, str]:
    """Return the metadata that `read_footer` reads: those of the table, and what the extraction records."""
    panel = panels_of(answer)[0]
    (about,) = json.loads(table.schema.metadata[METADATA])["panels"]
    about |= noted | {
        # The panel has what this entity has of the question; the file names the question of all entities.
        "select": str(question.select) if question.select.where is None else question.select.name,
        "question": json.loads(question.text),
        "value_version": question.value_version,
        "missing": dict(answer.missing),
        "version": own_version(),
        "periods_asked": [period.label for period in panel.periods_asked],
        "catalogue_periods": [period.label for period in panel.catalogue.periods],
    }
    return {METADATA: json.dumps({"format": FORMAT, "panels": [about]})}


def read_footer(file: Path | bytes) -> Footer | None:
    """Return the footer of a file, or of its end; None if it is a Parquet file of something else.

    ValueError: it is not a Parquet file, or a damaged one.
    """
    # Opened here: pyarrow raises OSError for a damaged file too.
    with file.open("rb") if isinstance(file, Path) else BytesIO(file) as stream:
        size = stream.seek(0, os.SEEK_END)
        try:
            found = parquet.read_metadata(stream)
        except (OSError, pa.ArrowException) as error:
            raise ValueError(f"not a Parquet file: {error}") from None
    if found.metadata is None or METADATA not in found.metadata:
        return None
    try:
        panels = json.loads(found.metadata[METADATA])["panels"]
        # Also the metadata of a panel's table that a user has saved, which do not have the question.
        if len(panels) != 1 or "question" not in panels[0]:
            return None
        entry = {"requests": 0, "run": None} | panels[0]
        entry |= {"question": canonical(dict(entry["question"])), "rows": found.num_rows, "bytes": size}
        return structure(entry | {"written": entry}, Footer)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"a damaged footer: {error}") from None
