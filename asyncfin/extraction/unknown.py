"""What no entity has of a question: judged by the first three that are read, and by all at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from attrs import define, field

from asyncfin.extraction.progress import Tracker
from asyncfin.extraction.question import SharedQuestion
from asyncfin.extraction.report import EntityReport, missing_in_all, named
from asyncfin.model.judge import Missing, has_nothing
from asyncfin.model.period import Exact
from asyncfin.model.select import Select
from asyncfin.tasks import in_thread

_log = logging.getLogger("asyncfin")
# What none of this many entities has is probably misspelt.
ENOUGH = 3


def unknown_names(select: Select, missing: Collection[Missing]) -> Missing:
    """Return the ids and words that are missing in all; if no entity has anything, all that are missing."""
    names = [without_periods(each) for each in missing]
    common = missing_in_all(names)
    if common or not all(has_nothing(select, each) for each in names):
        return common
    union: dict[str, dict[str, None]] = {}
    for each in names:
        for named_field, values in each.items():
            union.setdefault(named_field, {}).update(dict.fromkeys(values))
    return {named_field: tuple(values) for named_field, values in union.items()}


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


def without_periods(missing: Missing) -> Missing:
    """Return the ids and words alone: periods that do not exist yet are not a mistake."""
    return {name: values for name, values in missing.items() if name != "periods"}


def _has_no_periods(question: SharedQuestion, missing: Missing) -> bool:
    names = missing.get("periods", ())
    if isinstance(question.periods, Exact):
        return len(names) == len(question.periods.periods)
    return bool(names)


@define
class FirstThree:
    """Ends a run early if the first three entities that are read have nothing of its question.

    Attributes:
        unknown: what they do not have, if that ends the run.
    """

    _question: SharedQuestion
    _tracker: Tracker
    _may_end: bool  # False: all entities are read, whatever the first ones have
    _explain: Callable[[Missing], str | None]
    unknown: Missing = field(factory=dict)
    _judged: bool = False

    def next(self, left: Sequence[str], reports: Mapping[str, EntityReport]) -> Sequence[str]:
        """Return the entities to read next: few until three are read, then the others, or none."""
        read = [each for each in reports.values() if each.state in ("done", "unchanged")]
        if self._may_end and len(read) < ENOUGH:
            return left[: ENOUGH - len(read)]
        if self._may_end and not self._judged:
            self._judged = True
            self._judge([each.missing for each in read])
        return () if self.unknown else left

    async def unknown_at_end(self, entities: Sequence[EntityReport], *, has_rows: bool) -> Missing:
        """Return what no entity has, of all that the run was to read; see `unknown_to_all`."""
        judge = partial(unknown_to_all, self._question, entities, has_rows=has_rows)
        return self.unknown or await in_thread(judge)

    def _judge(self, missing: Sequence[Missing]) -> None:
        if not (unknown := unknown_names(self._question.select, missing)):
            return
        self._tracker.unknown = unknown
        explained = self._explain(unknown)
        near = f"; {explained}" if explained else ""
        _log.warning("none of the first %d entities has %s%s", len(missing), named(unknown), near)
        if all(has_nothing(self._question.select, each) for each in missing):
            self.unknown = unknown
