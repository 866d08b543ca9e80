"""The dialect: what the service description leaves to the service, as switches with defaults."""

from __future__ import annotations

import json
from typing import Any, Literal

from attrs import field, frozen
from attrs.validators import and_, ge, in_, instance_of

from asyncfin.sandbox.request import encode

_EXTRA = {"x_extra": {"note": "not in the description", "list": [1, None, 2.5]}}
_OPEN_SETS = ("role", "basis", "cadence", "period_meaning", "fill_type")


def one_of(*choices: str) -> Any:
    return field(default=choices[0], validator=in_(choices))


def switch(default: bool) -> Any:
    return field(default=default, validator=instance_of(bool))


@frozen(kw_only=True)
class Dialect:
    """How the sandbox speaks where spec leaves it open. A wrong choice raises ValueError or TypeError.

    Attributes:
        periods: which of the selected periods a query page lists: those populated in the whole "answer", all
            that were "asked" for (exact: each once; otherwise the dataset's in the range), or those
            populated on this "page".
        order: of the periods: "oldest" first, "newest" first, or "shuffled" (by page, repeatable).
        empty_series: whether matching series without an observation in the selected periods are listed.
        never_valued: whether matching series are listed that have no value in any period of the publication,
            in the `value_version` asked for.
        left_out_on: series that are not listed for one of these reasons are missing on "every" page, or on
            "some" only: about half of them, always the same for the same request.
        trailing: the window holds all periods that "end" in it, or only those that lie "within" it whole.
        last_cursor: on the last page `next_cursor` is "absent" or "null".
        pages: "full"; "short": pages hold half as many series as `limit`; "empty": every page with series is
            preceded by an empty one that has a cursor.
        scope_groups: of the catalogue: on "every" page, on the "first" only, or only those "used" by its
            series.
        ids_before_pin: whether unknown ids (400) are found before an old `expected_dataset_id` (409).
        cursor_before_pin: whether the cursor is checked before `expected_dataset_id`; one of an older
            publication is then an invalid field (400), not `dataset_changed`.
        metadata_lag: how many answers of the dataset endpoint still name the old publication after a new one
            became current; catalogue and query know the new one at once.
        unrestated: the `value_version` of a never restated value when "latest_restated" is asked.
        extras: every object carries a field that spec does not name, and role, basis, cadence, period_meaning
            and fill_type have unknown values ("x-" before the dataset's).
        gzip: compress answers for clients that accept it.
    """

    periods: Literal["answer", "asked", "page"] = one_of("answer", "asked", "page")
    order: Literal["oldest", "newest", "shuffled"] = one_of("oldest", "newest", "shuffled")
    # About series that are missing though they exist: a client must tell this from an incomplete answer.
    empty_series: bool = switch(True)
    never_valued: bool = switch(True)
    left_out_on: Literal["every", "some"] = one_of("every", "some")
    trailing: Literal["end", "within"] = one_of("end", "within")
    last_cursor: Literal["absent", "null"] = one_of("absent", "null")
    pages: Literal["full", "short", "empty"] = one_of("full", "short", "empty")
    scope_groups: Literal["every", "first", "used"] = one_of("every", "first", "used")
    # About a question that a new publication has made stale: spec 4.3 rules 5 and 6 have no order.
    ids_before_pin: bool = switch(False)
    cursor_before_pin: bool = switch(False)
    metadata_lag: int = field(default=0, validator=and_(instance_of(int), ge(0)))
    unrestated: Literal["latest_restated", "original"] = one_of("latest_restated", "original")
    extras: bool = switch(False)
    gzip: bool = switch(False)


def extended(body: bytes) -> bytes:
    """Return the same JSON with an unknown field in every object, and unknown values in the open sets."""
    return encode(_extended(json.loads(body)))


def _extended(value: Any) -> Any:
    if isinstance(value, list):
        return [_extended(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    grown = {name: _extended(member) for name, member in value.items()}
    for name in _OPEN_SETS:
        if name in grown:
            grown[name] = f"x-{grown[name]}"
    return grown | _EXTRA
