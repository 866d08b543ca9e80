"""The body of a query, checked against spec 4.3 and 8 as far as that goes without the dataset."""

from __future__ import annotations

import json
from typing import Any

from attrs import evolve, frozen

from asyncfin.sandbox.cursor import fingerprint
from asyncfin.sandbox.encode import Period, fiscal_end, path_text
from asyncfin.sandbox.fields import Issues
from asyncfin.sandbox.request import JSON_TYPE, RefusedError, Request

VALUE_VERSIONS = ("original", "latest_restated")
MAX_METRICS = MAX_PATHS = MAX_GROUPS = 50
MAX_PATH_ENTRIES = 20
MAX_LIMIT, DEFAULT_LIMIT = 100, 25
# Not shown in spec; documented in docs/sandbox.md.
MAX_EXACT, MAX_MONTHS, MAX_YEAR, MAX_DURATION = 1000, 1200, 9999, 1200

_MODES = {"exact": ("exact",), "fiscal_range": ("from", "to"), "trailing": ("months",)}
_PERIOD = ("year", "end_month", "duration_months")
_FIELDS = (
    *("metric_ids", "scope_combinations", "periods", "reporting_group_ids"),
    *("expected_dataset_id", "value_version", "limit", "cursor"),
)
_REQUIRED = _FIELDS[:3]


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
    """What one query asks for. paths: scope paths as text, in the order sent; group_ids None: all."""

    metric_ids: tuple[str, ...]
    paths: tuple[str, ...]
    periods: Exact | FiscalRange | Trailing
    group_ids: tuple[str, ...] | None
    value_version: str
    expected_dataset_id: str | None
    limit: int
    cursor: str | None

    def fingerprint(self, entity_id: str) -> str:
        """What a cursor is bound to: all that decides the series and values, whatever the size of a page."""
        selection = evolve(self, expected_dataset_id=None, limit=0, cursor=None)
        return fingerprint(f"{entity_id} {selection}")


def read_selection(request: Request) -> Selection:
    """The selection in the body of a request; raises RefusedError 400 naming every wrong field."""
    body = _json_object(request)
    issues = Issues()
    issues.unknown(body, _FIELDS)
    for name in _REQUIRED:
        if name not in body:
            issues.add(name, "is missing")
    selection = _selection(body, issues)
    issues.refuse()
    return selection


def _json_object(request: Request) -> dict[str, Any]:
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != JSON_TYPE:
        raise _refused("Content-Type", f"is not {JSON_TYPE}")
    try:
        body = json.loads(request.body or b"", parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise _refused("body", "is not a JSON object")
    return body


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _refused(place: str, message: str) -> RefusedError:
    return RefusedError(400, "validation_failed", f"{place} {message}.", issues=((place, message),))


def _selection(body: dict[str, Any], issues: Issues) -> Selection:
    def given(name: str, read: Any, default: Any = None) -> Any:
        return read(body[name], name) if name in body else default

    return Selection(
        metric_ids=given("metric_ids", lambda v, at: _metrics(v, at, issues), ()),
        paths=given(
            "scope_combinations",
            lambda v, at: issues.array(v, at, 1, MAX_PATHS, lambda p, to: _path(p, to, issues)),
            (),
        ),
        periods=given("periods", lambda v, at: _periods(v, at, issues)),
        group_ids=given("reporting_group_ids", lambda v, at: issues.array(v, at, 0, MAX_GROUPS, issues.text)),
        value_version=given(
            "value_version", lambda v, at: issues.choice(v, at, VALUE_VERSIONS), VALUE_VERSIONS[0]
        ),
        expected_dataset_id=given("expected_dataset_id", issues.uuid),
        limit=given("limit", lambda v, at: issues.integer(v, at, 1, MAX_LIMIT), DEFAULT_LIMIT),
        cursor=given("cursor", issues.text),
    )


def _metrics(value: Any, place: str, issues: Issues) -> tuple[str, ...]:
    metrics = issues.array(value, place, 1, MAX_METRICS, issues.text)
    for at, metric in enumerate(metrics):
        if metric is not None and metric in metrics[:at]:
            issues.add(f"{place}[{at}]", f"repeats {metric!r}; metric IDs are distinct")
    return metrics


def _path(value: Any, place: str, issues: Issues) -> str:
    refs = issues.array(value, place, 0, MAX_PATH_ENTRIES, lambda ref, at: _ref(ref, at, issues))
    return path_text([ref for ref in refs if ref is not None])


def _ref(value: Any, place: str, issues: Issues) -> dict[str, str] | None:
    names = ("scope_group_id", "scope_id")
    ref = issues.object(value, place, names)
    if ref is None or None in [issues.text(ref[name], f"{place}.{name}") for name in names]:
        return None
    return ref


def _periods(value: Any, place: str, issues: Issues) -> Any:
    if not isinstance(value, dict) or "mode" not in value:
        return issues.object(value, place, ("mode",))
    mode = issues.choice(value["mode"], f"{place}.mode", _MODES)
    if mode is None:
        return None
    fields = issues.object(value, place, ("mode", *_MODES[mode]))
    return fields and _READERS[mode](fields, place, issues)


def _exact(fields: dict[str, Any], place: str, issues: Issues) -> Exact:
    periods = issues.array(
        fields["exact"], f"{place}.exact", 1, MAX_EXACT, lambda p, at: _period(p, at, issues, MAX_DURATION)
    )
    return Exact(tuple(dict.fromkeys(periods)))


def _fiscal_range(fields: dict[str, Any], place: str, issues: Issues) -> FiscalRange | None:
    start = _period(fields["from"], f"{place}.from", issues, 0)
    end = _period(fields["to"], f"{place}.to", issues, 0)
    if start is None or end is None:
        return None
    if start > end:
        issues.add(f"{place}.from", "lies after periods.to")
    return FiscalRange(fiscal_end(start), fiscal_end(end))


def _trailing(fields: dict[str, Any], place: str, issues: Issues) -> Trailing | None:
    months = issues.integer(fields["months"], f"{place}.months", 1, MAX_MONTHS)
    return None if months is None else Trailing(months)


_READERS = {"exact": _exact, "fiscal_range": _fiscal_range, "trailing": _trailing}


def _period(value: Any, place: str, issues: Issues, longest: int) -> Period | None:
    fields = issues.object(value, place, _PERIOD)
    if fields is None:
        return None
    year = issues.integer(fields["year"], f"{place}.year", 1, MAX_YEAR)
    end_month = issues.integer(fields["end_month"], f"{place}.end_month", 1, 12)
    duration = issues.integer(fields["duration_months"], f"{place}.duration_months", 0, longest)
    if year is None or end_month is None or duration is None:
        return None
    return year, end_month, duration
