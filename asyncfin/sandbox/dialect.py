"""The dialect: every choice that the service description leaves to the service, as a switch with a default."""

from __future__ import annotations

from typing import Any, Literal

from attrs import field, frozen
from attrs.validators import in_, instance_of


def _one_of(*choices: str) -> Any:
    return field(default=choices[0], validator=in_(choices))


def _switch(default: bool) -> Any:
    return field(default=default, validator=instance_of(bool))


@frozen(kw_only=True)
class Dialect:
    """How the sandbox speaks where spec leaves it open. A wrong choice raises ValueError or TypeError.

    periods: which of the selected periods a query page lists: those populated in the whole "answer", all that were
        "asked" for (Exact: as sent; otherwise the dataset's periods in the range), or those populated on this "page".
    order: of the periods: "oldest" first, "newest" first, or "shuffled" (another order on every page, repeatable).
    empty_series: whether matching series without an observation in the selected periods are listed.
    last_cursor: on the last page `next_cursor` is "absent" or "null".
    pages: "full"; "short": pages hold fewer series than `limit`; "empty": every page with series is preceded by an
        empty one that has a cursor.
    scope_groups: of the catalogue: on "every" page, on the "first" only, or only those "used" by the page's series.
    unrestated: the `value_version` that a never restated value carries when "latest_restated" is asked.
    extras: every object carries a field that spec does not name, and role, basis, cadence and period_meaning have
        values that the dataset does not ("x-" before the dataset's).
    gzip: compress answers for clients that accept it.
    """

    periods: Literal["answer", "asked", "page"] = _one_of("answer", "asked", "page")
    order: Literal["oldest", "newest", "shuffled"] = _one_of("oldest", "newest", "shuffled")
    empty_series: bool = _switch(True)
    last_cursor: Literal["absent", "null"] = _one_of("absent", "null")
    pages: Literal["full", "short", "empty"] = _one_of("full", "short", "empty")
    scope_groups: Literal["every", "first", "used"] = _one_of("every", "first", "used")
    unrestated: Literal["latest_restated", "original"] = _one_of("latest_restated", "original")
    extras: bool = _switch(False)
    gzip: bool = _switch(False)
