"""One entity's Parquet file: put in place whole, and looked at by later runs. pyarrow is imported inside."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from asyncfin.errors import own_version
from asyncfin.extraction.folder import Folder
from asyncfin.extraction.journal import Written
from asyncfin.extraction.question import Lacking, Question
from asyncfin.table.library import library
from asyncfin.table.panel import Panel

# Most entities have fewer rows; larger groups would make readers hold more than they look at.
_ROWS_A_GROUP = 122_880
_METADATA = b"asyncfin"


def write(folder: Folder, panel: Panel, question: Question, lacking: Lacking) -> tuple[int, int]:
    """Put a panel's table in place of the entity's file, and return its rows and bytes.

    All values are decoded first. Readers see the file that was there before, or the new one.

    Raises:
        MalformedAnswerError: a value breaks the spec.
        OSError: the file can't be written.
    """
    parquet = library("pyarrow.parquet", "arrow")
    entity_id = panel.dataset.entity_id
    table = _described(panel.to_arrow(), question, lacking)
    part, file = folder.part(entity_id), folder.file(entity_id)
    try:
        parquet.write_table(table, part, compression="zstd", row_group_size=_ROWS_A_GROUP)
        with part.open("rb+") as written:
            os.fsync(written.fileno())
        size = part.stat().st_size
        part.replace(file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _flush_names(folder.data)
    return table.num_rows, size


def _described(table: Any, question: Question, lacking: Lacking) -> Any:
    """Return the table with the whole question in its metadata, in place of what was asked of this entity."""
    (about,) = json.loads(table.schema.metadata[_METADATA])["panels"]
    about["select"] = str(question.select) if question.select.where is None else question.select.name
    about |= {
        "question": json.loads(question.text),
        "lacking": dict(lacking),
        "version": own_version(),
    }
    return table.replace_schema_metadata({_METADATA: json.dumps({"panels": [about]})})


def _flush_names(folder: Path) -> None:
    """Make a renaming outlast a loss of power, where directories can be flushed."""
    if os.name == "posix":
        names = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(names)
        finally:
            os.close(names)


def is_whole(file: Path, written: Written) -> bool:
    """Say whether a file is the one that was put in place: by its size, and by what its footer says."""
    try:
        if file.stat().st_size != written.bytes:
            return False
        footer = library("pyarrow.parquet", "arrow").read_metadata(file)
        (about,) = json.loads(footer.metadata[_METADATA])["panels"]
    except (OSError, ValueError, LookupError, TypeError):  # pyarrow's own error is a ValueError
        return False
    return bool(footer.num_rows == written.rows and about["dataset_id"] == written.dataset_id)
