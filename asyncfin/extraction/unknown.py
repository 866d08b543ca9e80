"""What no entity has of a question: judged by a sample that is read first, and by all at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from asyncfin.extraction.progress import Tracker
from asyncfin.extraction.question import SharedQuestion
from asyncfin.extraction.report import EntityReport
from asyncfin.model.judge import Missing, has_nothing, missing_in_all, named, unknown_names
from asyncfin.model.selection import Exact

_log = logging.getLogger("asyncfin")


def unknown_to_all(question: SharedQuestion, entities: Sequence[EntityReport], *, has_rows: bool) -> Missing:
    """Return what no entity has, by field; nothing while one is failed or left: it may have it.

    `has_rows` is whether a file of the place has a row: then the periods of the question do exist.
    """
    if any(each.state in ("failed", "left") for each in entities):
        return {}
    if unknown := unknown_names(question.select, [each.missing for each in entities]):
        return unknown
    if not has_rows and all(_has_no_periods(question, each.missing) for each in entities):
        return missing_in_all({"periods": each.missing["periods"]} for each in entities)
    return {}


def _has_no_periods(question: SharedQuestion, missing: Missing) -> bool:
    names = missing.get("periods", ())
    if isinstance(question.periods, Exact):
        return len(names) == len(question.periods.periods)
    return bool(names)


def sample(ids: Sequence[str], failed: Collection[str] = ()) -> tuple[str, ...]:
    """Return the first, the middle and the last entity; in place of a failed one, the next in the list."""
    chosen: list[str] = []
    for start in (0, len(ids) // 2, len(ids) - 1):
        in_turn = (*ids[start:], *ids[:start])
        chosen += [each for each in in_turn if each not in failed and each not in chosen][:1]
    return tuple(chosen)


def unread_sample(ids: Sequence[str], reports: Mapping[str, EntityReport]) -> tuple[str, ...]:
    """Return the entities of the sample that have no report; those that have failed are replaced."""
    failed = {entity_id for entity_id, report in reports.items() if report.state == "failed"}
    return tuple(each for each in sample(ids, failed) if each not in reports)


def unknown_to_sample(
    question: SharedQuestion,
    reports: Collection[EntityReport],
    tracker: Tracker,
    explain: Callable[[Missing], str | None],
) -> Missing:
    """Return what ends a run after the sample: what it does not have, if it has nothing of the question.

    What it does not have otherwise is logged, and part of the progress from then on.
    """
    missing = [each.missing for each in reports if each.state == "done"]
    if not (unknown := unknown_names(question.select, missing)):
        return {}
    if all(has_nothing(question.select, each) for each in missing):
        return unknown
    tracker.unknown = unknown
    explained = explain(unknown)
    near = f"; {explained}" if explained else ""
    _log.warning("none of %d entities has %s%s", len(missing), named(unknown), near)
    return {}
