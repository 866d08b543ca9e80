"""The body of a query, checked against spec 4.3 and 8 as far as that goes without the dataset."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from attrs import evolve, frozen

from asyncfin.sandbox.cursor import fingerprint
from asyncfin.sandbox.dataset import Period
from asyncfin.sandbox.dataset_rules import MAX_PATH_ENTRIES
from asyncfin.sandbox.encode import fiscal_end, path_text
from asyncfin.sandbox.fields import Issues, shown
from asyncfin.sandbox.json_place import parsed
from asyncfin.sandbox.request import JSON_TYPE, RefusedError, Request

VALUE_VERSIONS = ("original", "latest_restated")
MAX_METRICS = MAX_PATHS = MAX_GROUPS = 50
MAX_LIMIT, DEFAULT_LIMIT = 100, 25
# Not shown in spec; documented in docs/sandbox.md.
MAX_EXACT, MAX_MONTHS, MAX_YEAR, MAX_DURATION = 10_000, 120_000, 9999, 1200

_PERIOD = ("year", "end_month", "duration_months")


@frozen
class Exact:
    """Exactly these periods, distinct."""

    periods: tuple[Period, ...]


@frozen
class FiscalRange:
    """Fiscal ends from start to end, both included."""

    start: int
    end: int


@frozen
class Trailing:
    """The last months up to the latest populated period of the matching series."""

    months: int


@frozen
class Selection:
    """What one query asks for. scope_combinations: paths as text; reporting_group_ids None: all groups."""

    metric_ids: tuple[str, ...]
    scope_combinations: tuple[str, ...]
    periods: Exact | FiscalRange | Trailing
    reporting_group_ids: tuple[str, ...] | None = None
    expected_dataset_id: str | None = None
    value_version: str = VALUE_VERSIONS[0]
    limit: int = DEFAULT_LIMIT
    cursor: str | None = None

    def fingerprint(self, entity_id: str) -> str:
        """What a cursor is bound to: all that decides the series and values, whatever the size of a page."""
        selection = evolve(self, expected_dataset_id=None, limit=0, cursor=None)
        return fingerprint(f"{entity_id} {selection}")


def read_selection(request: Request) -> Selection:
    """The selection in the body of a request; raises RefusedError 400 naming every wrong field."""
    body = _json_object(request)
    issues = Issues()
    issues.unknown(body, _READERS)
    for name in _REQUIRED:
        if name not in body:
            issues.add(name, "is missing")
    fields = {name: read(issues, body[name], name) for name, read in _READERS.items() if name in body}
    issues.refuse()
    return Selection(**fields)


def _json_object(request: Request) -> dict[str, Any]:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != JSON_TYPE:
        raise _refused("Content-Type", f"is not {JSON_TYPE}")
    coding = request.headers.get("content-encoding", "")
    if coding.lower() not in ("", "identity"):
        raise _refused("Content-Encoding", f"is {shown(coding)}; a body is sent without any")
    try:
        body = parsed(request.body or b"")
    except (ValueError, RecursionError) as error:
        raise _refused("body", f"is not JSON ({error})") from None
    if not isinstance(body, dict):
        raise _refused("body", "is not a JSON object")
    return body


def _refused(place: str, message: str) -> RefusedError:
    return RefusedError(400, "validation_failed", f"{place} {message}.", issues=((place, message),))


def _metrics(issues: Issues, value: Any, place: str) -> tuple[str, ...]:
    metrics = issues.array(value, place, 1, MAX_METRICS, issues.text)
    for at, metric in enumerate(metrics):
        if metric is not None and metric in metrics[:at]:
            issues.add(f"{place}[{at}]", f"repeats {metric!r}; metric IDs are distinct")
    return metrics


def _paths(issues: Issues, value: Any, place: str) -> tuple[str, ...]:
    return issues.array(value, place, 1, MAX_PATHS, partial(_path, issues))


def _path(issues: Issues, value: Any, place: str) -> str:
    refs = issues.array(value, place, 0, MAX_PATH_ENTRIES, partial(_ref, issues))
    return path_text([ref for ref in refs if ref is not None])


def _ref(issues: Issues, value: Any, place: str) -> dict[str, str] | None:
    names = ("scope_group_id", "scope_id")
    ref = issues.object(value, place, names)
    if ref is None or None in [issues.text(ref[name], f"{place}.{name}") for name in names]:
        return None
    return ref


def _groups(issues: Issues, value: Any, place: str) -> tuple[str, ...]:
    return issues.array(value, place, 0, MAX_GROUPS, issues.text)


def _value_version(issues: Issues, value: Any, place: str) -> str | None:
    return issues.choice(value, place, VALUE_VERSIONS)


def _limit(issues: Issues, value: Any, place: str) -> int | None:
    return issues.integer(value, place, 1, MAX_LIMIT)


def _periods(issues: Issues, value: Any, place: str) -> Any:
    if not isinstance(value, dict) or "mode" not in value:
        return issues.object(value, place, ("mode",))
    mode = issues.choice(value["mode"], f"{place}.mode", _MODES)
    if mode is None:
        return None
    names, read = _MODES[mode]
    fields = issues.object(value, place, ("mode", *names))
    return fields and read(issues, fields, place)


def _exact(issues: Issues, fields: dict[str, Any], place: str) -> Exact:
    read = partial(_period, issues, MAX_DURATION)
    return Exact(tuple(dict.fromkeys(issues.array(fields["exact"], f"{place}.exact", 1, MAX_EXACT, read))))


def _fiscal_range(issues: Issues, fields: dict[str, Any], place: str) -> FiscalRange | None:
    start = _period(issues, 0, fields["from"], f"{place}.from")
    end = _period(issues, 0, fields["to"], f"{place}.to")
    if start is None or end is None:
        return None
    if start > end:
        issues.add(f"{place}.from", f"lies after {place}.to")
    return FiscalRange(fiscal_end(start), fiscal_end(end))


def _trailing(issues: Issues, fields: dict[str, Any], place: str) -> Trailing | None:
    months = issues.integer(fields["months"], f"{place}.months", 1, MAX_MONTHS)
    return None if months is None else Trailing(months)


def _period(issues: Issues, longest: int, value: Any, place: str) -> Period | None:
    fields = issues.object(value, place, _PERIOD)
    if fields is None:
        return None
    year = issues.integer(fields["year"], f"{place}.year", 1, MAX_YEAR)
    end_month = issues.integer(fields["end_month"], f"{place}.end_month", 1, 12)
    duration = issues.integer(fields["duration_months"], f"{place}.duration_months", 0, longest)
    if year is None or end_month is None or duration is None:
        return None
    return year, end_month, duration


_MODES: dict[str, tuple[tuple[str, ...], Callable[[Issues, dict[str, Any], str], Any]]] = {
    "exact": (("exact",), _exact),
    "fiscal_range": (("from", "to"), _fiscal_range),
    "trailing": (("months",), _trailing),
}
_REQUIRED = ("metric_ids", "scope_combinations", "periods")
_READERS: dict[str, Callable[[Issues, Any, str], Any]] = {
    "metric_ids": _metrics,
    "scope_combinations": _paths,
    "periods": _periods,
    "reporting_group_ids": _groups,
    "expected_dataset_id": Issues.uuid,
    "value_version": _value_version,
    "limit": _limit,
    "cursor": Issues.text,
}
