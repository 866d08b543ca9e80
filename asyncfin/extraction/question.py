"""The question of an extraction in one canonical form, so that equal questions have
equal texts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any

from attrs import asdict, frozen

from asyncfin.errors import SelectionError, shorten
from asyncfin.extraction.entity import check_question
from asyncfin.model.period import Period
from asyncfin.model.select import Select
from asyncfin.model.selection import Exact, PeriodSelection
from asyncfin.typing import AskedVersion


@frozen
class SharedQuestion:
    """The series, the periods and the value versions that are requested of every
    entity.

    Raises:
        SelectionError: one of them is not as described, or the Select has `where` and
            no `name`, which represents it in the files.
    """

    select: Select
    periods: PeriodSelection
    value_version: AskedVersion = "original"

    def __attrs_post_init__(self) -> None:
        check_question(self.select, self.periods, self.value_version)
        if self.select.where is not None and not self.select.name:
            raise SelectionError(
                "a Select with `where` needs a `name` here, which represents it in the "
                "files"
            )

    @cached_property
    def text(self) -> str:
        """The question as JSON: the same for the same question, however it was
        written.
        """
        described = {
            "select": _describe(self.select),
            "periods": {type(self.periods).__name__: _plain(self.periods)},
            "value_version": self.value_version,
        }
        return canonical(described)

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of the text, which distinguishes the question from any other."""
        return sha256(self.text.encode()).hexdigest()


def canonical(described: Mapping[str, Any]) -> str:
    """Return a described question as JSON, in the one form that is compared and
    hashed.
    """
    return json.dumps(
        described, sort_keys=True, ensure_ascii=False, separators=(",", ":")
    )


def _describe(select: Select) -> dict[str, Any]:
    """Return the fields of a Select that are set, without order where order means
    nothing.
    """
    fields = json.loads(select.to_json())
    if select.where is None:
        fields.pop("name", None)  # it only represents a `where`
    # Sorted: the same ids in another order are the same question.
    described = {
        name: sorted(value) if isinstance(value, list) else value
        for name, value in fields.items()
    }
    return described | (
        {"label": select.label.casefold()} if select.label is not None else {}
    )


def _plain(periods: PeriodSelection) -> Any:
    if isinstance(periods, Exact):
        return sorted(period.label for period in periods.periods)
    # Without what is None, so that a field added later leaves old texts as they are.
    fields = (
        (name, value)
        for name, value in asdict(periods, recurse=False).items()
        if value is not None
    )
    return {
        name: value.label if isinstance(value, Period) else value
        for name, value in fields
    }


def differences(text: str, other: str) -> str:
    """Return how the question of one text differs from that of another, for people."""
    now, before = json.loads(text), json.loads(other)
    differing = [
        f"{name} ({_short(before.get(name))}, now {_short(now.get(name))})"
        for name in sorted(now.keys() | before.keys())
        if now.get(name) != before.get(name)
    ]
    return ", ".join(differing)


def _short(value: Any) -> str:
    return shorten(json.dumps(value, ensure_ascii=False), 200)
