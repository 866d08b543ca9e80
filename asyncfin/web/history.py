"""What the last publication of a company changed of the values that a page shows."""

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import anyio.to_thread
from attrs import field, frozen

from asyncfin import Panel
from asyncfin.errors import AsyncfinError, printable
from asyncfin.extraction.as_of import feed_at
from asyncfin.extraction.latest import LatestChanges, latest_changes
from asyncfin.model.period import Period
from asyncfin.model.series import Series
from asyncfin.words import counted, entity_names, number_text

_log = logging.getLogger("asyncfin")

# A metric, a reporting group and a scope path, as the question names series.
Triple = tuple[str, str, str]
# A cell of a panel: its company, value version, series and period.
Cell = tuple[str, str, str, Period]

_SECONDS = 10
# Reads of a feed that hangs must not take the threads of all other work.
_THREADS = 4
_MOST_VANISHED = 20
_WORDS = {
    "appeared": "new",
    "restated": "restated",
    "relabelled": "relabelled",
    "vanished": "vanished",
}


@frozen
class Marks:
    """What changed with the last publications.

    Attributes:
        cells: what is said next to a changed value: ``"new"``, ``"was 1.76"``,
            ``"relabelled"``.
        notes: a sentence for each company.
        vanished: a line for each value that vanished, also of a series that is not
            listed any more.
    """

    cells: Mapping[Cell, str] = field(factory=dict)
    notes: Sequence[str] = ()
    vanished: Sequence[str] = ()


class History:
    """Marks the values of a page that changed, by the change feed of an extraction.

    Args:
        place: the folder or URL of the extraction, as for `read_changes`.

    Raises:
        ArgumentError: it is neither.
        ImportError: pyarrow is not installed.
    """

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self._feed = feed_at("history", place)
        self._threads = anyio.CapacityLimiter(_THREADS)

    async def marks(self, panels: Iterable[Panel], wanted: Iterable[Triple]) -> Marks:
        """Return what changed of the values of panels. Sends no request to the service.

        Args:
            panels: what is shown.
            wanted: the series of the question, also those that have vanished.
        """
        panels, wanted = list(panels), set(wanted)
        metrics = {metric_id for metric_id, _, _ in wanted}
        entity_ids = {panel.dataset.entity_id for panel in panels}
        read = partial(latest_changes, self._feed, dict.fromkeys(entity_ids, metrics))
        try:
            async with asyncio.timeout(_SECONDS):
                latest = await anyio.to_thread.run_sync(
                    read, limiter=self._threads, abandon_on_cancel=True
                )
            return _marks(panels, wanted, latest)
        # TimeoutError is an OSError. The last three: rows as no version of this library
        # writes them.
        except (
            AsyncfinError,
            OSError,
            ImportError,
            LookupError,
            TypeError,
            ValueError,
        ) as error:
            _log.warning(
                "the change feed can't be read: %s: %s",
                type(error).__name__,
                printable(str(error)),
            )
            return Marks(
                notes=["What changed is not shown: the change feed can't be read."]
            )


def _marks(
    panels: Sequence[Panel], wanted: set[Triple], latest: Mapping[str, LatestChanges]
) -> Marks:
    cells: dict[Cell, str] = {}
    notes: list[str] = []
    # A value can vanish from both versions, in the same words.
    vanished: dict[str, None] = {}
    names = entity_names(panel.catalogue for panel in panels)
    for entity_id in names:
        own = [panel for panel in panels if panel.dataset.entity_id == entity_id]
        name, changes = names[entity_id], latest.get(entity_id)
        if changes is None:
            notes.append(f"{name} is not in the change feed.")
        elif not own[0].dataset.is_publication(changes.dataset_id):
            notes.append(
                f"{name}: the change feed ends with another publication, so changes "
                "are not marked."
            )
        elif changes.is_first:
            notes.append(f"{name}: the change feed begins with this publication.")
        else:
            kinds: list[str] = []
            for panel in own:
                for row, cell in _changed(panel, wanted, changes.rows):
                    kinds.append(row["change"])
                    if cell is not None:
                        cells[cell] = _mark(row)
                    if row["change"] == "vanished":
                        vanished[f"{name}: {_described(row)}"] = None
            notes.append(f"{name}: {_counted(changes, kinds)}")
    lines = list(vanished)
    if (more := len(lines) - _MOST_VANISHED) > 0:
        lines[_MOST_VANISHED:] = [f"and {more:,} more"]
    return Marks(cells, notes, lines)


def _changed(
    panel: Panel, wanted: set[Triple], rows: Iterable[dict[str, Any]]
) -> Iterable[tuple[dict[str, Any], Cell | None]]:
    """Yield the changes of a panel's series, each with its cell; None: the panel does
    not have it.
    """
    by_triple: dict[Triple, list[Series]] = {}
    for series in panel:
        triple = series.metric_id, series.reporting_group_id, series.scope_path
        by_triple.setdefault(triple, []).append(series)
    for row in rows:
        triple = row["metric_id"], row["reporting_group_id"], row["scope_path"]
        if triple not in wanted or row["asked_version"] != panel.value_version:
            continue
        period = Period(row["year"], row["end_month"], row["duration_months"])
        same = by_triple.get(triple, [])
        # An id may change with the publication, unless it distinguishes several series
        # of one triple.
        found = (
            same
            if len(same) == 1
            else [each for each in same if each.series_id == row["series_id"]]
        )
        has_vanished = row["change"] == "vanished"
        if not found:
            if has_vanished:
                yield row, None
        elif (period in dict(found[0].observations())) != has_vanished:
            yield (
                row,
                (
                    panel.dataset.entity_id,
                    panel.value_version,
                    found[0].series_id,
                    period,
                ),
            )


def _mark(row: Mapping[str, Any]) -> str:
    before = row["before"]
    if row["change"] in ("restated", "vanished") and before is not None:
        return f"was {row['before_text'] or number_text(before)}"
    return _WORDS[row["change"]]


def _described(row: Mapping[str, Any]) -> str:
    scopes = " / ".join(row["scope_names"] or ())
    label = f"{row['series_label']} ({scopes})" if scopes else row["series_label"]
    return f"{label}, {row['period_label']}: {_mark(row)}"


def _counted(changes: LatestChanges, kinds: Sequence[str]) -> str:
    date = f"{changes.known_from:%Y-%m-%d}"
    others = changes.count - len(kinds)
    more = f", and {counted(others, 'other change')}" if others > 0 else ""
    if not kinds:
        # Not "nothing has changed": the extraction may have fewer series and periods
        # than this page.
        return (
            "the change feed has no change of these values with the publication of "
            f"{date}{more}."
        )
    parts = ", ".join(
        f"{kinds.count(kind):,} {word}"
        for kind, word in _WORDS.items()
        if kind in kinds
    )
    return (
        f"{counted(len(kinds), 'change')} here with the publication of {date}: "
        f"{parts}{more}."
    )
