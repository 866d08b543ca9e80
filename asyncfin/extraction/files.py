"""One entity's Parquet file: put in place whole, and looked at by later runs. pyarrow is imported inside."""

from __future__ import annotations

import json
import os
from hashlib import file_digest
from pathlib import Path
from typing import Any

from asyncfin.errors import own_version
from asyncfin.extraction.disk import failing
from asyncfin.extraction.journal import Written
from asyncfin.extraction.question import Lacking, Question
from asyncfin.table.optional import library
from asyncfin.table.panel import Panel

# Most entities have fewer rows; larger groups would make readers hold more than they look at.
_ROWS_A_GROUP = 122_880
_METADATA = b"asyncfin"


def write(part: Path, panel: Panel, question: Question, *, requests: int, lacking: Lacking) -> Written:
    """Write a panel's table to a file that no reader looks at, and return what is to be noted of it.

    All values are decoded first. What is written outlasts a loss of power.

    Raises:
        MalformedAnswerError: a value breaks the spec.
        OSError: the file can't be written.
    """
    parquet = library("pyarrow.parquet", "arrow")
    table = _described(panel.to_arrow(), question, lacking)
    with failing(part):
        parquet.write_table(table, part, compression="zstd", row_group_size=_ROWS_A_GROUP)
        with part.open("rb+") as written:
            os.fsync(written.fileno())
        size, sha256 = part.stat().st_size, _digest(part)
    return Written(panel.dataset.dataset_id, table.num_rows, size, sha256, requests, lacking)


def place(part: Path, file: Path) -> None:
    """Put a written file in place: readers see the one that was there before, or this one.

    Raises:
        OSError: it can't be put there.
    """
    with failing(file):
        part.replace(file)
    flush_names(file.parent)


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


def flush_names(folder: Path) -> None:
    """Make renamings and deletions outlast a loss of power, where directories can be flushed."""
    if os.name == "posix":
        with failing(folder):
            names = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(names)
            finally:
                os.close(names)


def is_whole(file: Path, written: Written) -> bool:
    """Say whether a file is, byte for byte, the one that was put in place."""
    try:
        return file.stat().st_size == written.bytes and _digest(file) == written.sha256
    except FileNotFoundError:
        return False


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return file_digest(content, "sha256").hexdigest()
