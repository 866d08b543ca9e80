"""One entity's Parquet file: encoded in memory, and its footer read back, which is the
record of it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from asyncfin.errors import ManifestMismatchError, own_version
from asyncfin.extraction.place import Moment, Place, entity_path, structure, url
from asyncfin.extraction.question import SharedQuestion, canonical, differences
from asyncfin.optional import library, pa, parquet

if TYPE_CHECKING:
    from asyncfin import EntityAnswer, Panel

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
        missing: the ids and words of the question that the entity does not have, by
            field.
        run: the run of the change feed that wrote it, or the one before if nothing
            changed; None without a feed.
    """

    entity_id: str
    dataset_id: str
    created_timestamp: Moment
    rows: int
    bytes: int
    requests: int = 0
    missing: Mapping[str, tuple[str, ...]] = field(factory=dict)
    run: str | None = None


def panels_of(answer: EntityAnswer) -> list[Panel]:
    """Return the panels of an entity, that of the original values first."""
    return [panel for panel in (answer.panel, answer.restated) if panel is not None]


def rows_of(panels: Iterable[Panel]) -> Any:
    """Return the long table of panels of one publication that differ in their value
    version.
    """
    first, *others = tables = [panel.to_arrow() for panel in panels]
    if not others:
        return first
    bare = [table.replace_schema_metadata(None) for table in tables]
    return (
        pa.concat_tables(bare)
        .unify_dictionaries()
        .replace_schema_metadata(first.schema.metadata)
    )


def encode(
    answer: EntityAnswer,
    table: Any,
    question: SharedQuestion,
    *,
    requests: int,
    run: str | None,
) -> tuple[Record, bytes]:
    """Return the rows of an entity's panels, which are `table`, as a Parquet file with
    its record.
    """
    panel = panels_of(answer)[0]
    (about,) = json.loads(table.schema.metadata[METADATA])["panels"]
    about |= {
        # The panel has what this entity has of the question; the file names the
        # question of all entities.
        "select": str(question.select)
        if question.select.where is None
        else question.select.name,
        "question": json.loads(question.text),
        "value_version": question.value_version,
        "missing": dict(answer.missing),
        "requests": requests,
        "run": run,
        "version": own_version(),
        "periods_asked": [period.label for period in panel.periods_asked],
        "catalogue_periods": [period.label for period in panel.catalogue.periods],
    }
    metadata = {METADATA: json.dumps({"format": FORMAT, "panels": [about]})}
    stream = pa.BufferOutputStream()
    # With page checksums, so that a reader can verify a file.
    parquet.write_table(
        table.replace_schema_metadata(metadata),
        stream,
        compression="zstd",
        row_group_size=ROWS_A_GROUP,
        write_page_checksum=True,
    )
    content: bytes = stream.getvalue().to_pybytes()
    dataset = panel.dataset
    record = Record(
        dataset.entity_id,
        dataset.dataset_id,
        dataset.created_timestamp,
        table.num_rows,
        len(content),
        requests,
        answer.missing,
        run,
    )
    return record, content


def read_record(place: Place, path: str) -> tuple[Record, str] | None:
    """Return the record of a file and the text of its question, or None if it is no
    extraction's file.

    Raises:
        FileNotFoundError: it does not exist.
        OSError: it can't be read.
        ValueError: it is not a Parquet file, or a damaged one.
    """
    with place.open(path) as stream:
        try:
            footer = parquet.read_metadata(stream)
            size = stream.seek(0, 2)
        except (OSError, pa.ArrowException) as error:
            if (
                isinstance(error, OSError) and error.errno is not None
            ):  # of the disk or store
                raise
            raise ValueError(f"not a Parquet file: {error}") from None
    try:
        panels = json.loads((footer.metadata or {}).get(METADATA, b"{}")).get(
            "panels", ()
        )
        # Also the metadata of a panel's table that a user has saved, which do not have
        # the question.
        if len(panels) != 1 or "question" not in panels[0]:
            return None
        record = structure(panels[0] | {"rows": footer.num_rows, "bytes": size}, Record)
        question = canonical(dict(panels[0]["question"]))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"a damaged footer: {error}") from None
    return (record, question) if entity_path(place, record.entity_id) == path else None


def find_record(
    place: Place, question: SharedQuestion, entity_id: str
) -> Record | None:
    """Return the record of an entity's file of a question, or None if there is none
    that can be read.
    """
    try:
        found = read_record(place, entity_path(place, entity_id))
    except (FileNotFoundError, ValueError):
        return None
    return found[0] if found is not None and found[1] == question.text else None


def read_records(
    place: Place, question: SharedQuestion, *, replace: bool = False
) -> tuple[dict[str, Record], list[str]]:
    """Return the records of a question by entity, and the entities with files of other
    ones. It blocks.

    Raises:
        ManifestMismatchError: there are foreign files; or files of another question
            have rows, and `replace` is not set.
    """
    library("pyarrow.parquet", "arrow")
    records: dict[str, Record] = {}
    others: list[str] = []
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        paths = [f"{place.name}/{name}" for name in place.names(place.name)]
        for found in threads.map(partial(_examine, place), paths):
            if found is None:
                continue
            record, text = found
            if text == question.text:
                records[record.entity_id] = record
                continue
            others.append(record.entity_id)
            if record.rows and not replace:
                raise ManifestMismatchError(
                    f"{place} belongs to another question, which differs in"
                    f" {differences(question.text, text)}: give another place, or have "
                    "its files deleted"
                    " (replace=True; --replace on the command line)"
                )
    return records, others


def _examine(place: Place, path: str) -> tuple[Record, str] | None:
    """Return what `read_record` does; None for a damaged file, which is replaced, and a
    deleted one.

    Raises:
        ManifestMismatchError: it is not an extraction's file.
    """
    try:
        found = read_record(place, path)
    except FileNotFoundError:
        return None
    except ValueError as error:
        found = None
        if path.startswith(f"{place.name}/O-"):
            _log.warning(
                "%s is damaged, and its entity will be read again: %s",
                url(place, path),
                error,
            )
            return None
    if found is None:
        raise ManifestMismatchError(
            f"{url(place, path)} is not an extraction's file, and readers would take "
            "it for part of the"
            " table: remove it, or give another place"
        )
    return found
