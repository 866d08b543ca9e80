"""The question of an extraction in one canonical form, so that equal questions have equal texts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any, Literal, TypeAlias

from attrs import asdict, frozen

from asyncfin import checks
from asyncfin.errors import SelectionError, shorten
from asyncfin.model.period import Period
from asyncfin.model.query import VALUE_VERSIONS, ValueVersion
from asyncfin.model.select import Select, check_select
from asyncfin.model.selection import Exact, PeriodSelection, check_period_selection, describe
from asyncfin.plan.question import Question

AskedVersion: TypeAlias = ValueVersion | Literal["both"]
_check_version = checks.one_of(*VALUE_VERSIONS, "both").as_selection_error()


@frozen
class SharedQuestion:
    """The series, the periods and the value versions that are requested of every entity."""

    select: Select
    periods: PeriodSelection
    value_version: AskedVersion = "original"

    def __attrs_post_init__(self) -> None:
        check_select(self.select)
        check_period_selection(self.periods)
        _check_version("value_version", self.value_version)

    @property
    def versions(self) -> tuple[ValueVersion, ...]:
        """The value versions to request, the original first."""
        return VALUE_VERSIONS if self.value_version == "both" else (self.value_version,)

    def of(self, entity_id: str) -> Question:
        """Return the question to one entity, in the first of the versions."""
        return Question(
            entity_id,
            self.select,
            self.periods,
            self.versions[0],
            fill_cache=False,
            known_only=True,
        )

    @cached_property
    def text(self) -> str:
        """The question as JSON: the same for the same question, however it was written."""
        described = {
            "select": _described(self.select),
            "periods": {type(self.periods).__name__: _plain(self.periods)},
            "value_version": self.value_version,
        }
        return canonical(described)

    @cached_property
    def hash(self) -> str:
        """The hash of the text, which distinguishes the question from any other."""
        return text_hash(self.text)

    def __str__(self) -> str:
        return f"{self.select!r}, {describe(self.periods)}, {self.value_version}"


def written_question(select: Select, periods: PeriodSelection, value_version: AskedVersion) -> SharedQuestion:
    """Return a question that can be written into files: a Select with a `where` has a `name`."""
    question = SharedQuestion(select, periods, value_version)
    if select.where is not None and not select.name:
        raise SelectionError("a Select with `where` needs a `name` here, which represents it in the files")
    return question


def canonical(described: Mapping[str, Any]) -> str:
    """Return a described question as JSON, in the one form that is compared and hashed."""
    return json.dumps(described, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def text_hash(text: str) -> str:
    """Return the SHA-256 of a question's text."""
    return sha256(text.encode()).hexdigest()


def _described(select: Select) -> dict[str, Any]:
    """Return the given fields of a Select, without order where order means nothing."""
    given = json.loads(select.to_json())
    given.pop("name", None)  # it only represents a `where`, and is written in its place
    # Sorted: the same ids in another order are the same question.
    described = {name: sorted(each) if isinstance(each, list) else each for name, each in given.items()}
    return described | ({"label": select.label.casefold()} if select.label is not None else {})


def _plain(periods: PeriodSelection) -> Any:
    if isinstance(periods, Exact):
        return sorted(period.label for period in periods.periods)
    # Without what is None, so that a field added later leaves old texts, and their hashes, as they are.
    given = ((name, each) for name, each in asdict(periods, recurse=False).items() if each is not None)
    return {name: each.label if isinstance(each, Period) else each for name, each in given}


def differences(text: str, other: str) -> str:
    """Return how the question of one text differs from that of another, for people."""
    now, before = json.loads(text), json.loads(other)
    differing = [
        f"{field} ({_short(before.get(field))}, now {_short(now.get(field))})"
        for field in sorted(now.keys() | before.keys())
        if now.get(field) != before.get(field)
    ]
    return ", ".join(differing)


def _short(value: Any) -> str:
    return shorten(json.dumps(value, ensure_ascii=False), 200)
