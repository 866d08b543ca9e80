"""What an extraction asks, in one canonical form: the same question has the same text, however written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any

from attrs import asdict, evolve, frozen

from asyncfin.errors import SelectionError
from asyncfin.model.catalogue import Catalogue, triple
from asyncfin.model.period import Exact, Period, PeriodSelection, describe, resolve
from asyncfin.model.query import ValueVersion, check_value_version
from asyncfin.model.scope import format_path
from asyncfin.model.select import Select, Wanted
from asyncfin.model.series import CatalogueSeries
from asyncfin.table.columns import COLUMNS

Lacking = Mapping[str, tuple[str, ...]]

_IDS = ("metric_ids", "reporting_group_ids", "scope_group_ids", "basis", "cadence", "period_meaning")


@frozen
class Question:
    """The series, the periods and the value version asked of every entity.

    Raises:
        SelectionError: an argument is not as said, or a Select has a `where` and no `name`.
    """

    select: Select
    periods: PeriodSelection
    value_version: ValueVersion = "original"

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.select, Select):
            raise SelectionError(f"select must be a Select, not {self.select!r}")
        if self.select.where is not None and not self.select.name:
            raise SelectionError("a Select with `where` needs a `name` here: it stands for it in the journal")
        resolve(self.periods, ())  # refuses what is no selection of periods
        check_value_version(self.value_version)

    @cached_property
    def text(self) -> str:
        """The question as JSON: the same for the same question, however it was written."""
        described = {
            "select": _described(self.select),
            "periods": {type(self.periods).__name__: _plain(self.periods)},
            "value_version": self.value_version,
            "columns": {column.name: column.type for column in COLUMNS},
        }
        return json.dumps(described, sort_keys=True, ensure_ascii=False, separators=(",", ":"))

    @cached_property
    def hash(self) -> str:
        """What tells the question from any other: the SHA-256 of its text."""
        return sha256(self.text.encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.select!r}, {describe(self.periods)}, {self.value_version}"


def _described(select: Select) -> dict[str, Any]:
    """Return the given fields of a Select, without order where order means nothing."""
    described: dict[str, Any] = {
        name: sorted(ids) for name in _IDS if (ids := getattr(select, name)) is not None
    }
    if select.scope_combinations is not None:
        described["scope_combinations"] = sorted(map(format_path, select.scope_combinations))
    if select.label is not None:
        described["label"] = select.label.casefold()
    if select.where is not None:
        described["where"] = select.name
    if select.series is not None:
        described["series"] = sorted(map(_wanted, select.series))
    return described


def _wanted(wanted: Wanted) -> list[str]:
    return [wanted.metric_id, wanted.reporting_group_id, format_path(wanted.scopes), wanted.series_id]


def _plain(periods: PeriodSelection) -> Any:
    if isinstance(periods, Exact):
        return sorted(period.label for period in periods.periods)
    given = ((name, each) for name, each in asdict(periods, recurse=False).items() if each is not None)
    return {name: each.label if isinstance(each, Period) else each for name, each in given}


def differences(one: str, other: str) -> str:
    """Return in which parts the texts of two questions differ, for people."""
    mine, theirs = json.loads(one), json.loads(other)
    named = []
    for part in sorted(mine.keys() | theirs.keys()):
        if mine.get(part) != theirs.get(part):
            shown = (
                "" if part == "columns" else f" ({_short(theirs.get(part))}, now {_short(mine.get(part))})"
            )
            named.append(part + shown)
    return ", ".join(named)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _nothing(_: CatalogueSeries) -> bool:
    return False


def narrowed(select: Select, catalogue: Catalogue) -> tuple[Select, Lacking]:
    """Return what a catalogue has of a Select, and the ids and words that it lacks, by field.

    Where it lacks all of a field, the Select means nothing there. Scope groups are not "one of these"
    but "exactly these", so one that is lacking is enough.
    """
    lacking = catalogue.lacking(select)
    kept: dict[str, Any] = {}
    for field, names in lacking.items():
        match field:
            case "scope_group_ids":
                kept[field] = ()
            case "scope_combinations":
                kept[field] = tuple(
                    path for path in select.scope_combinations or () if path in catalogue.by_path
                )
            case "series":
                kept[field] = tuple(
                    each for each in select.series or () if triple(each) in catalogue.by_triple
                )
            case _:
                kept[field] = tuple(each for each in getattr(select, field) if each not in names)
    if not all(kept.values()):
        return Select(where=_nothing, name="nothing"), lacking
    return evolve(select, **kept), lacking
