"""The entities and the runs of a change feed. pyarrow is imported inside."""

from __future__ import annotations

import os
from collections.abc import Mapping

from attrs import frozen

from asyncfin.analysis.cells import number_rows, read_examples
from asyncfin.extraction.as_of import open_feed

_COLUMNS = ("entity_id", "entity_name")


@frozen
class FeedContents:
    """The entities and the runs of a change feed.

    Attributes:
        names: the name of each entity in its last changes, by id, in the order of the
            feed.
        entry_runs: the run with which each entity entered the feed, by id.
        runs: the runs, oldest first.
    """

    names: Mapping[str, str]
    entry_runs: Mapping[str, str]
    runs: tuple[str, ...]


def read_contents(address: str | os.PathLike[str]) -> FeedContents:
    """Read the footers of the change feed of an extraction, and two columns of its
    rows. The call blocks.

    Raises:
        ArgumentError: `address` is not the place of an extraction.
        ManifestMismatchError: the feed, or a file of it, is missing or damaged.
        OSError: it can't be read.
        ImportError: pyarrow, or obstore for a URL, is not installed.
    """
    feed = open_feed(address)
    names: dict[str, str] = {}
    entry_runs: dict[str, str] = {}
    footers = feed.chain()
    for footer in footers:
        for entry in footer.changes:
            entry_runs.setdefault(entry.entity_id, footer.run)
        for table in feed.tables(footer, _COLUMNS):
            numbers = number_rows(table, _COLUMNS[:1])
            for entity_id, name in read_examples(table, numbers, _COLUMNS):
                names[entity_id] = name or entity_id
    return FeedContents(names, entry_runs, tuple(footer.run for footer in footers))
