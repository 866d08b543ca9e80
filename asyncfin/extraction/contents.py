"""What a change feed has: its entities, its metrics and its runs. pyarrow is imported
inside.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from attrs import frozen

from asyncfin.analysis.cells import number_rows, read_examples
from asyncfin.extraction.as_of import open_feed

_COLUMNS = ("entity_id", "metric_id", "entity_name")


@frozen
class FeedContents:
    """What a change feed has.

    Attributes:
        names: the name of each entity in its last changes, by id, in the order of the
            feed.
        entry_runs: the run with which each entity entered the feed, by id.
        metrics: the metric ids, in their order in the feed.
        runs: the runs, oldest first.
    """

    names: Mapping[str, str]
    entry_runs: Mapping[str, str]
    metrics: tuple[str, ...]
    runs: tuple[str, ...]


def read_contents(address: str | os.PathLike[str]) -> FeedContents:
    """Read the contents of the change feed of an extraction, and three columns of its
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
    metrics: dict[str, None] = {}
    footers = feed.chain()
    for footer in footers:
        for entry in footer.changes:
            entry_runs.setdefault(entry.entity_id, footer.run)
        for table in feed.tables(footer, _COLUMNS):
            for entity_id, metric_id, name in read_examples(
                table, number_rows(table, _COLUMNS[:2]), _COLUMNS
            ):
                names[entity_id] = name or entity_id
                metrics[metric_id] = None
    return FeedContents(
        names, entry_runs, tuple(metrics), tuple(footer.run for footer in footers)
    )
