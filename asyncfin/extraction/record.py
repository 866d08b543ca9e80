"""One entity's Parquet file: encoded in memory, and its footer read back, which is the
record of it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from sys import intern
from typing import IO

import msgspec
from attrs import field, frozen

from asyncfin import EntityAnswer, Panel
from asyncfin.analysis.changes import find_ambiguous
from asyncfin.errors import ManifestMismatchError, own_version
from asyncfin.extraction.place import Place, Timestamp
from asyncfin.extraction.question import (
    SharedQuestion,
    differences,
    write_canonical,
)
from asyncfin.optional import library, pa, parquet
from asyncfin.typing import Missing

_log = logging.getLogger("asyncfin")
# The entry of a table's metadata in which the library describes it.
METADATA = b"asyncfin"
# Most entities have fewer rows; larger groups would make readers hold more than they
# look at.
ROWS_A_GROUP = 122_880
# Of the metadata, so that a later version knows what it reads.
FORMAT = 1
# Footers that are read at once.
_AT_ONCE = 32


@frozen
class Record:
    """What the footer of an entity's file records, and its size.

    Attributes:
        entity_id: the entity.
        dataset_id: its publication.
        created_timestamp: when that was published.
        rows, bytes: its size.
        requests: how many its catalogue and values took, everything counted.
        missing: the ids and words of the query that the entity does not have, by
            field.
        query: the text of the query.
    """

    entity_id: str
    dataset_id: str
    created_timestamp: Timestamp
    rows: int
    bytes: int
    requests: int = 0
    missing: Missing = field(factory=dict)
    query: str = ""


def list_panels(answer: EntityAnswer) -> list[Panel]:
    """Return the panels of an entity, that of the original values first."""
    panels = answer.panel, answer.restated
    return [panel for panel in panels if panel is not None]


def encode(
    answer: EntityAnswer, question: SharedQuestion, *, requests: int
) -> tuple[Record, bytes]:
    """Write what an entity has as a Parquet file, with its record."""
    panels = list_panels(answer)
    panel = panels[0]
    tables = list(map(Panel.to_arrow, panels))
    description = json.loads(tables[0].schema.metadata[METADATA])
    (facts,) = description["panels"]
    select = question.select
    facts |= {
        # The panel has what this entity has of the query; the file names the query of
        # all entities.
        "select": str(select) if select.where is None else select.name,
        "question": question.document,
        "value_version": question.value_version,
        "missing": dict(answer.missing),
        "requests": requests,
        "ambiguous": sorted(find_ambiguous(panel)),
        "version": own_version(),
    }
    metadata = {METADATA: json.dumps({"format": FORMAT, "panels": [facts]})}
    # The versions of one publication are one table.
    table = pa.concat_tables(
        [table.replace_schema_metadata(metadata) for table in tables]
    ).unify_dictionaries()
    stream = pa.BufferOutputStream()
    # With page checksums, so that a reader can verify a file.
    parquet.write_table(
        table,
        stream,
        compression="zstd",
        row_group_size=ROWS_A_GROUP,
        write_page_checksum=True,
    )
    content: bytes = stream.getvalue().to_pybytes()
    record = Record(
        panel.dataset.entity_id,
        panel.dataset.dataset_id,
        panel.dataset.created_timestamp,
        table.num_rows,
        len(content),
        requests,
        answer.missing,
        question.text,
    )
    return record, content


@contextmanager
def open_parquet(place: Place, path: str) -> Iterator[IO[bytes]]:
    """Open a Parquet file, to read it in the block.

    Raises:
        OSError: it can't be read; FileNotFoundError if it does not exist.
        ValueError: it is damaged, or no Parquet file.
    """
    kinds = (
        OSError,
        LookupError,
        TypeError,
        ValueError,
        pa.ArrowException,
        msgspec.ValidationError,
    )
    try:
        with place.open(path) as stream:
            yield stream
    except kinds as error:
        # Errors of a disk or store have a number, unlike pyarrow's.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(str(error).partition("\n")[0]) from None


def read_record(place: Place, path: str) -> Record | None:
    """Return the record of a file, or None if it is no extraction's file.

    Raises:
        FileNotFoundError: it does not exist.
        OSError: it can't be read.
        ValueError: it is not a Parquet file, or a damaged one.
    """
    with open_parquet(place, path) as stream:
        footer = parquet.read_metadata(stream)
        size = stream.seek(0, 2)
        content = (footer.metadata or {}).get(METADATA, b"{}")
        metadata = dict(json.loads(content))
        panels = metadata.get("panels", ())
        # Also the metadata of a panel's table that a user has saved, which do not have
        # the query.
        if len(panels) != 1 or "question" not in panels[0]:
            return None
        query = intern(write_canonical(dict(panels[0]["question"])))
        facts = {"rows": footer.num_rows, "bytes": size, "query": query}
        record = msgspec.convert(panels[0] | facts, Record)
    return record if place.entity_path(record.entity_id) == path else None


def read_records(
    place: Place,
    question: SharedQuestion,
    entity_ids: Iterable[str] | None = None,
    *,
    replace: bool = False,
) -> tuple[dict[str, Record], list[str]]:
    """Return the records of a query by entity, and the entities with files of other
    queries, which are to be deleted. It blocks.

    Args:
        entity_ids: the entities whose files are read, if not all.
        replace: whether all files of other queries may be deleted. Otherwise only
            files without rows may be.

    Raises:
        ManifestMismatchError: there are foreign files, or files that may not be
            deleted.
    """
    library("pyarrow.parquet", "arrow")
    if entity_ids is None:
        paths = place.parquet_paths(place.name)
    else:
        paths = list(map(place.entity_path, entity_ids))
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        entries = list(threads.map(partial(_read_or_reject, place), paths))
    records = filter(None, entries)
    of_question = {}
    others_ids = []
    for record in records:
        if record.query == question.text:
            of_question[record.entity_id] = record
            continue
        if record.rows and not replace:
            raise ManifestMismatchError(
                f"{place} belongs to another query, which differs in "
                f"{differences(question.text, record.query)}: give another place, or "
                "let the option `replace` delete its files"
            )
        others_ids.append(record.entity_id)
    return of_question, others_ids


def _read_or_reject(place: Place, path: str) -> Record | None:
    """Return the record of a file, or None if it was deleted, or is damaged and will be
    replaced.

    Raises:
        ManifestMismatchError: it is not an extraction's file.
    """
    record = None
    try:
        record = read_record(place, path)
    except FileNotFoundError:
        return None
    except ValueError as error:
        if path.startswith(f"{place.name}/O-"):
            _log.warning(
                "%s is damaged, and its entity will be read again: %s",
                place.url(path),
                error,
            )
            return None
    if record is None:
        raise ManifestMismatchError(
            f"{place.url(path)} is not an extraction's file, and readers would take it "
            "for part of the table: remove it, or give another place"
        )
    return record
