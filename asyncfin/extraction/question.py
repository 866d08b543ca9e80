"""The query of an extraction in one canonical form, so that equal queries have equal
texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from attrs import asdict, frozen

from asyncfin import Exact, FiscalRange, Select, Trailing, checks
from asyncfin.errors import SelectionError, shorten
from asyncfin.typing import AskedVersion, PeriodSelection, Rule

_check_select = checks.instance_of(Select).as_selection_error()
_check_periods = checks.instance_of(
    Exact, FiscalRange, Trailing, Rule
).as_selection_error()
_check_version = checks.one_of(
    "original", "latest_restated", "both"
).as_selection_error()


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
        _check_select("select", self.select)
        _check_periods("periods", self.periods)
        _check_version("value_version", self.value_version)
        if self.select.where is not None and not self.select.name:
            raise SelectionError(
                "a Select with `where` needs a `name` here, which represents it in the "
                "files"
            )

    @cached_property
    def document(self) -> dict[str, Any]:
        """The query as plain data: the same for the same query, however it was
        written.
        """
        select = json.loads(self.select.to_json())
        if self.select.where is None:
            select.pop("name", None)  # it only represents a `where`
        if self.select.label is not None:
            select["label"] = self.select.label.casefold()
        for name, value in select.items():
            # The same ids in another order are the same query.
            if isinstance(value, list):
                select[name] = sorted(value)
        return {
            "select": select,
            "periods": {type(self.periods).__name__: _describe_periods(self.periods)},
            "value_version": self.value_version,
        }

    @cached_property
    def text(self) -> str:
        """The document as JSON, in the one form that is compared."""
        return write_canonical(self.document)


def write_canonical(query: Mapping[str, Any]) -> str:
    """Return a described query as JSON, in the one form that is compared."""
    return json.dumps(query, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _describe_periods(periods: PeriodSelection) -> Any:
    if isinstance(periods, Exact):
        return sorted(map(str, periods.periods))
    fields = {}
    for name, value in asdict(periods, recurse=False).items():
        # Without what is None, so that a field added later leaves old texts as they
        # are.
        if value is not None:
            fields[name] = getattr(value, "label", value)
    return fields


def differences(text: str, old_text: str) -> str:
    """Return how the query of one text differs from that of another, for people."""
    old_query = json.loads(old_text)
    query = json.loads(text)
    parts = []
    for name in sorted(old_query.keys() | query.keys()):
        if old_query.get(name) != query.get(name):
            words = _write_words(old_query, name), _write_words(query, name)
            parts.append(f"{name} ({', now '.join(words)})")
    return ", ".join(parts)


def _write_words(query: Mapping[str, Any], name: str) -> str:
    """Return a part of a query as words: ``Annual last 2``."""
    text = json.dumps(query.get(name), ensure_ascii=False, separators=(", ", " "))
    # A fiscal month is a label of no months there.
    words = re.sub('[][{}"]|-00M', "", text).strip()
    return shorten(words or "all", 200)
