"""What an extraction asks, in one canonical form: equal questions have equal texts, however written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any

from attrs import asdict, evolve, frozen

from asyncfin.errors import SelectionError, bounded
from asyncfin.model.catalogue import Catalogue, triple
from asyncfin.model.period import Exact, Period, PeriodSelection, describe, resolve
from asyncfin.model.query import ValueVersion, check_value_version
from asyncfin.model.scope import format_path
from asyncfin.model.select import Select, Wanted, check_select
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
        check_select(self.select)
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
        return canonical(described)

    @cached_property
    def hash(self) -> str:
        """The hash of the text, which tells the question from any other."""
        return text_hash(self.text)

    def __str__(self) -> str:
        return f"{self.select!r}, {describe(self.periods)}, {self.value_version}"


def canonical(described: Mapping[str, Any]) -> str:
    """Return a described question as JSON, in the one form that is compared and hashed."""
    return json.dumps(described, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def text_hash(text: str) -> str:
    """Return the SHA-256 of a question's text."""
    return sha256(text.encode()).hexdigest()


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


def differences(text: str, other: str) -> str:
    """Return how the question of one text differs from that of another, for people."""
    now, before = json.loads(text), json.loads(other)
    named = []
    for field in sorted(now.keys() | before.keys()):
        if now.get(field) != before.get(field):
            change = f" ({_short(before.get(field))}, now {_short(now.get(field))})"
            named.append(field if field == "columns" else field + change)
    return ", ".join(named)


def _short(value: Any) -> str:
    return bounded(json.dumps(value, ensure_ascii=False), 200)


def _matches_nothing(_: CatalogueSeries) -> bool:
    return False


def narrow(select: Select, catalogue: Catalogue) -> tuple[Select, Lacking]:
    """Return what a catalogue has of a Select, and the ids and words that it lacks, by field.

    A catalogue that lacks all ids of a field has nothing of the Select. Scope groups are not "one of
    these" but "exactly these", so a single lacking one is enough.
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
        return Select(where=_matches_nothing, name="nothing"), lacking
    return evolve(select, **kept), lacking
