"""The dialect: what the service description leaves to the service, as switches with
defaults.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec
from attrs import field, frozen
from attrs.validators import and_, ge, in_, instance_of

_EXTRA = {"x_extra": {"note": "not in the description", "list": [1, None, 2.5]}}
_OPEN_SETS = ("role", "basis", "cadence", "period_meaning", "fill_type")


def one_of(*choices: str) -> Any:
    return field(default=choices[0], validator=in_(choices))


def switch(default: bool) -> Any:
    return field(default=default, validator=instance_of(bool))


@frozen(kw_only=True)
class Dialect:
    """How the sandbox behaves where the service description leaves a choice.

    Attributes:
        periods: which of the selected periods a query page lists: "answer": those with
            a value anywhere in the answer; "asked": all that were asked for (with
            `exact` each once, otherwise those of the dataset in the range); "page":
            those with a value on the page.
        order: the order of the periods: "oldest" first, "newest" first, or "shuffled",
            for each page in its own way, which is the same each time.
        empty_series: whether to list matching series that have no value in the selected
            periods.
        never_valued: whether to list matching series that have no value in any period
            of the publication, in the value version asked for.
        left_out_on: where series are missing for one of these two reasons: on "every"
            page, or on "some": about half of the pages, the same ones each time.
        trailing: which periods a trailing window has: those that "end" in it, or only
            those that lie "within" it as a whole.
        last_cursor: whether `next_cursor` is "absent" or "null" on the last page.
        pages: "full"; "short": with half as many series as `limit`; "empty": with an
            empty page, which has a cursor, before each page of series.
        scope_groups: which scope groups a catalogue page lists: all on "every" page,
            all on the "first" page, or on each page those "used" by its series.
        ids_before_pin: whether to check ids (400) before `expected_dataset_id` (409).
        cursor_before_pin: whether to check the cursor before `expected_dataset_id`. A
            cursor of an older publication is then an invalid field (400), not
            `dataset_changed`.
        metadata_lag: how many responses of the dataset endpoint name the old
            publication after a new one has become current. Catalogue and query know the
            new one at once.
        unrestated: the `value_version` of values that were never restated, when
            "latest_restated" is asked for.
        extras: whether each object has a field that the description does not name, and
            role, basis, cadence, period_meaning and fill_type have unknown values ("x-"
            before those of the dataset).
        gzip: whether to compress responses for clients that accept it.

    Raises:
        ValueError, TypeError: a field is not one of its choices.
    """

    periods: Literal["answer", "asked", "page"] = one_of("answer", "asked", "page")
    order: Literal["oldest", "newest", "shuffled"] = one_of(
        "oldest", "newest", "shuffled"
    )
    # About series that are missing though they exist: a client must distinguish it from
    # a loss.
    empty_series: bool = switch(True)
    never_valued: bool = switch(True)
    left_out_on: Literal["every", "some"] = one_of("every", "some")
    trailing: Literal["end", "within"] = one_of("end", "within")
    last_cursor: Literal["absent", "null"] = one_of("absent", "null")
    pages: Literal["full", "short", "empty"] = one_of("full", "short", "empty")
    scope_groups: Literal["every", "first", "used"] = one_of("every", "first", "used")
    # About a query that a new publication has made stale: spec 4.3 rules 5 and 6
    # have no order.
    ids_before_pin: bool = switch(False)
    cursor_before_pin: bool = switch(False)
    metadata_lag: int = field(default=0, validator=and_(instance_of(int), ge(0)))
    unrestated: Literal["latest_restated", "original"] = one_of(
        "latest_restated", "original"
    )
    extras: bool = switch(False)
    gzip: bool = switch(False)


def add_extras(body: bytes) -> bytes:
    """Return the same JSON with an unknown field in every object, and unknown values in
    the open sets.
    """
    return msgspec.json.encode(_extend(json.loads(body)))


def _extend(value: Any) -> Any:
    if isinstance(value, list):
        return [_extend(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    members = {name: _extend(member) for name, member in value.items()}
    for name in _OPEN_SETS:
        if name in members:
            members[name] = f"x-{members[name]}"
    return members | _EXTRA
