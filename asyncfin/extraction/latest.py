"""What the last publication of an entity changed, from a change feed. pyarrow is
imported inside.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from attrs import frozen

from asyncfin import Period
from asyncfin.analysis.cells import SERIES, plain
from asyncfin.analysis.changes import BEFORE, BEFORE_TEXT, CHANGE
from asyncfin.errors import ManifestMismatchError
from asyncfin.extraction.feed import Feed, RunFooter
from asyncfin.optional import compute, pa

_COLUMNS = (
    *SERIES,
    *Period.__struct_fields__,
    "series_label",
    "scope_names",
    "period_label",
    CHANGE,
    BEFORE,
    BEFORE_TEXT,
)


@frozen
class LatestChanges:
    """What the last publication of an entity changed.

    Attributes:
        dataset_id: the publication.
        known_from: when it became known.
        is_first: whether the feed begins with it, so that every value is new.
        count: how many cells changed.
        rows: the changed cells of the wanted metrics, with columns of the change feed;
            empty if `is_first`.
    """

    dataset_id: str
    known_from: datetime
    is_first: bool
    count: int
    rows: tuple[dict[str, Any], ...]


def latest_changes(
    feed: Feed, wanted: Mapping[str, Collection[str]]
) -> dict[str, LatestChanges]:
    """Return what the last publication of entities changed; those that the feed does
    not have are left out.

    The call blocks. Of a run's file it reads the row groups that may have the entity.

    Args:
        feed: the feed, which keeps the footers that it has read.
        wanted: the metrics of which rows are wanted, by entity.

    Raises:
        ManifestMismatchError: the feed, or a file of it, is missing or damaged.
        OSError: it can't be read.
        ImportError: pyarrow, or obstore for a URL, is not installed.
    """
    feed.check_head()
    changes = feed.changes()
    if not changes and not feed.runs():
        raise ManifestMismatchError(f"{feed} has no runs")
    latest = {}
    for entity_id in wanted.keys() & changes.keys():
        footer, last = changes[entity_id][-1]
        if last.pruned:
            continue  # it has left the extraction
        is_first = len(changes[entity_id]) == 1
        rows = () if is_first else _read(feed, footer, entity_id, wanted[entity_id])
        latest[entity_id] = LatestChanges(
            last.dataset_id, last.moment, is_first, last.rows, rows
        )
    return latest


def _read(
    feed: Feed, footer: RunFooter, entity_id: str, metric_ids: Collection[str]
) -> tuple[dict[str, Any], ...]:
    metrics = pa.array(sorted(metric_ids), pa.string())
    rows: list[dict[str, Any]] = []
    for table in feed.tables(footer, _COLUMNS, [entity_id]):
        of_entity = compute.equal(plain(table.column("entity_id")), entity_id)
        of_metrics = compute.is_in(plain(table.column("metric_id")), value_set=metrics)
        rows += table.filter(compute.and_(of_entity, of_metrics)).to_pylist()
    return tuple(rows)
