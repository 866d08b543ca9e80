"""Sends the requests of a check, reads their responses, and collects what they show."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard, TypeVar
from urllib.parse import quote

import msgspec
from attrs import define, evolve, field, frozen

from asyncfin import Exact, FiscalRange, Period, Query
from asyncfin.conformance.bodies import (
    DATASET,
    DESCRIPTIVE,
    IDENTITY,
    QUERY,
    CatalogueSeries,
    Head,
    QueryPage,
    QuerySeries,
    Value,
    field_states,
)
from asyncfin.conformance.report import KINDS, Finding, Kind
from asyncfin.errors import (
    AllowanceExhaustedError,
    AsyncfinError,
    DatasetChangedError,
    ServiceError,
    TransportError,
    ValidationFailedError,
    ends_all,
)

if TYPE_CHECKING:
    from asyncfin import Client
    from asyncfin.typing import Resolved, Response, ScopePath

PageT = TypeVar("PageT", bound=Head)
# The numbers of a page, by series and period.
Rows: TypeAlias = dict[str, dict[Period, Any]]
_TOO_LARGE = 413
_FIELD_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_OBJECT_FIELDS = {*DATASET, "periods", "series", "groups"}


@frozen
class Request:
    """One request of a check, by the section of the spec that it is about."""

    spec: str
    method: str
    path: str
    params: Mapping[str, str] = field(factory=dict)
    body: dict[str, Any] | None = None


class IncompleteError(Exception):
    """The check ends before its last request."""


@define
class Reader:
    """The requests of a check so far, and what their responses have shown.

    Args:
        client: sends the requests.
        entity_id: the entity whose dataset is read.
        max_requests: how many requests may be sent, retries included.
    """

    _client: Client
    _entity_id: str
    _max_requests: int
    _request_count: int = 0
    _request_id: str | None = None  # the service's id of the last one
    _findings: dict[tuple[Kind, str, str], Finding] = field(factory=dict)
    _dataset: Head | None = None
    _series: dict[str, CatalogueSeries] = field(factory=dict)
    _has_all_series: bool = False
    _periods: tuple[Period, ...] = ()
    # The numbers of the responses so far by series and period, of each value version.
    _numbers: dict[str, dict[tuple[str, Period], Any]] = field(factory=dict)
    _has_restated: bool = False  # whether a value was labelled `latest_restated`

    def _list_findings(self) -> list[Finding]:
        kinds = list(KINDS)

        def read_order(finding: Finding) -> tuple[int, str, str]:
            return kinds.index(finding.kind), finding.spec, finding.what

        return sorted(self._findings.values(), key=read_order)

    def _find(
        self,
        kind: Kind,
        spec: str,
        statement: str,
        count: int = 1,
        total: int | None = None,
    ) -> None:
        """Add a finding, or count it again."""
        key = kind, spec, statement
        finding = self._findings.get(key)
        if finding is None:
            finding = Finding(kind=kind, spec=spec, what=statement, count=0)
            if kind == "break":
                finding = evolve(finding, request_id=self._request_id)
        if total is not None:
            total += finding.of or 0
        count += finding.count
        self._findings[key] = evolve(finding, count=count, of=total)

    # --- requests

    async def _send(self, request: Request) -> Response:
        """Send a request, and count its attempts."""
        if self._request_count >= self._max_requests:
            raise IncompleteError
        self._request_id = None
        try:
            response = await self._client.request(
                request.method, request.path, params=request.params, json=request.body
            )
        except AsyncfinError as error:
            self._request_count += error.attempts or 0
            self._request_id = getattr(error, "request_id", None)
            raise
        self._request_count += response.attempts
        self._request_id = response.request_id
        return response

    async def _fetch(self, request: Request) -> Response | ServiceError:
        """Fetch a response, or the service's rejection of this request.

        Raises:
            IncompleteError: it cannot be sent, or shows nothing of the service.
            AsyncfinError: no request can be sent.
        """
        try:
            return await self._send(request)
        except AllowanceExhaustedError:
            statement = "the request allowance was used up during the check"
            self._find("limit", "8", statement)
        except AsyncfinError as error:
            if ends_all(error, waits=False):
                raise
            if isinstance(error, ServiceError):
                return error
            statement = "the body is too large, or in an unknown coding"
            if isinstance(error, TransportError):
                statement = f"no complete response ({type(error).__name__})"
            self._find("break", request.spec, statement)
        raise IncompleteError

    def _inspect(
        self, response: Response, fields: Mapping[str, Any], spec: str
    ) -> None:
        """Record the fields of a body that are unknown, missing or null."""
        states = Counter(field_states(_read_json(response), fields))
        objects: Counter[str] = Counter()
        for (path, name, _), count in states.items():
            objects[f"{path}.{name}"] += count
        for (path, name, state), count in states.items():
            place = f"{path}.{name}"
            if state == "unknown":
                statement = "fields whose names are not shown"
                # Any other name may be a label or an id.
                if _FIELD_NAME.fullmatch(name):
                    statement = place
                self._find("extra", "2", statement, count)
            elif state:
                statement = f"{place} is {state}"
                self._find("differs", spec, statement, count, objects[place])

    def _decode(self, response: Response, kind: type[PageT], spec: str) -> PageT:
        """Decode a body of the entity and the publication that are checked.

        Raises:
            IncompleteError: it cannot be decoded, or is of another one. That is a
                break without its values.
        """
        try:
            text = response.body.removeprefix(b"\xef\xbb\xbf")
            page = msgspec.json.decode(text, type=kind)
            _check_moment(page)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self._find("break", spec, _remove_values(str(error)))
            raise IncompleteError from None
        problem = self._find_problem(page)
        if problem:
            self._find("break", spec, problem)
            raise IncompleteError
        return page

    def _find_problem(self, page: Head) -> str:
        if page.entity_id != self._entity_id:
            return "$.entity_id is not the requested one"
        head = self._dataset or page
        if page.dataset_id.lower() != head.dataset_id.lower():
            return "$.dataset_id is not the requested one"
        for name in ("periods", "series"):
            entries = getattr(page, name, ())
            keys = [getattr(entry, "series_id", entry) for entry in entries]
            if len(set(keys)) < len(keys):
                return f"$.{name} has an entry twice"
        return ""

    @property
    def _head(self) -> Head:
        assert self._dataset is not None
        return self._dataset

    @property
    def _path(self) -> str:
        return f"/v1/entities/{quote(self._entity_id, safe='')}/dataset"

    def _query(
        self,
        periods: Resolved | None = None,
        *,
        series: Iterable[CatalogueSeries] = (),
        version: Any = "original",
    ) -> Query:
        """A query over the first 20 series of the catalogue, or of other ones.

        Args:
            periods: or None for the catalogue's whole span.
        """
        metrics: dict[str, None] = {}
        paths: dict[ScopePath, None] = {}
        for entry in islice(series or self._series.values(), 20):
            metrics[entry.metric_id] = None
            paths[entry.scopes] = None
        if periods is None:
            first = self._periods[0]
            last = self._periods[-1]
            start = first.year, first.end_month
            end = last.year, last.end_month
            periods = FiscalRange(start, end)
        return Query(
            list(metrics),
            list(paths),
            periods,
            value_version=version,
            expected_dataset_id=self._head.dataset_id,
        )

    def _request(
        self, query: Query, *, limit: int = 100, cursor: str | None = None
    ) -> Request:
        periods: dict[str, Any]
        match query.periods:
            case Exact(periods=exact):
                periods = {"mode": "exact", "exact": exact}
            case FiscalRange(start=start, end=end):
                periods = {"mode": "fiscal_range", "from": start, "to": end}
            case trailing:
                periods = {"mode": "trailing", "months": trailing.months}
        body = {
            "metric_ids": query.metric_ids,
            "scope_combinations": query.scope_combinations,
            "periods": periods,
            "reporting_group_ids": query.reporting_group_ids,
            "expected_dataset_id": query.expected_dataset_id,
            "value_version": query.value_version,
            "limit": limit,
            "cursor": cursor,
        }
        members = {}
        for name, member in body.items():
            if member is not None:
                members[name] = msgspec.to_builtins(member)
        return Request("4.3", "POST", f"{self._path}/query", body=members)

    async def _read(
        self,
        query: Query,
        statement: str,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> tuple[Rows, str | None] | None:
        """Read a page of a valid query, and compare it with what was read before.

        Returns:
            The numbers by series and period, and the cursor; None if the query was
            rejected, or its page is malformed.
        """
        request = self._request(query, limit=limit, cursor=cursor)
        response = await self._fetch(request)
        return self._read_rows(response, query, statement)

    def _read_rows(
        self, response: Response | ServiceError, query: Query, statement: str
    ) -> tuple[Rows, str | None] | None:
        """The result of `_read`, from a response."""
        if isinstance(response, ServiceError):
            if not is_rejection(response):
                raise self._fail(response, "4.3")
            kind: Kind = "break"
            if response.status == _TOO_LARGE:
                kind = "limit"
            self._find(kind, "4.3", f"a valid query is rejected: {statement}")
            return None
        if not self._has_object(response, "4.3", f"a valid query ({statement})"):
            return None
        self._inspect(response, QUERY, "2.4")
        try:
            page = self._decode(response, QueryPage, "2.4")
        except IncompleteError:
            return None
        lengths = {len(series.values) for series in page.series}
        if lengths - {len(page.periods)}:
            breach = "a values array is not aligned with periods"
            self._find("break", "4.3 rule 2", breach)
            return None
        rows: Rows = {}
        for series in page.series:
            self._compare_series(series, query)
            row = rows[series.series_id] = {}
            for period, value in zip(page.periods, series.values, strict=True):
                if value is not None:
                    row[period] = value.number
                    self._check_label(value, query)
        self._compare_rows(rows, query, statement)
        return rows, page.next_cursor or None

    def _check_label(self, value: Value, query: Query) -> None:
        if value.value_version == "latest_restated":
            self._has_restated = True
            if query.value_version == "original":
                breach = "original values are labelled latest_restated"
                self._find("break", "9.3", breach)

    def _compare_rows(self, rows: Rows, query: Query, statement: str) -> None:
        """Compare cells with the query's periods, and with those of earlier queries."""
        numbers = self._numbers.setdefault(query.value_version, {})
        count = outside = different = 0
        for series_id, row in rows.items():
            for period, number in row.items():
                count += 1
                if isinstance(query.periods, Exact):
                    outside += period not in query.periods.periods
                first_number = numbers.setdefault((series_id, period), number)
                different += first_number != number
        if outside:
            breach = "exact returns values in periods that were not selected"
            self._find("break", "4.3", breach, outside, count)
        if different:
            breach = f"numbers differ between two queries ({statement})"
            self._find("break", "4.3", breach, different)

    def _compare_series(self, series: QuerySeries, query: Query) -> None:
        """Compare a series of a query with the catalogue and with the selections."""
        entry = self._series.get(series.series_id)
        if entry is None:
            if self._has_all_series:
                statement = "a series is not in the catalogue"
                self._find("break", "4.3 rule 1", statement)
            return
        if (
            series.metric_id not in query.metric_ids
            or series.scopes not in query.scope_combinations
        ):
            statement = "a series was not selected"
            self._find("break", "4.3 rule 1", statement)
        for name in (*IDENTITY, *DESCRIPTIVE):
            text = getattr(series, name)
            listed_text = getattr(entry, name)
            if text == listed_text:
                continue
            statement = f"$.series[*].{name} differs from the catalogue"
            if name in IDENTITY:
                self._find("break", "2.4", statement)
            elif text and listed_text:  # a text that is absent is a finding of its own
                self._find("differs", "2.4", statement)

    async def _expect_rejection(
        self, request: Request, spec: str, statement: str, status: Literal[400, 409]
    ) -> None:
        code = "dataset_changed" if status == 409 else "validation_failed"
        response = await self._fetch(request)
        if isinstance(response, DatasetChangedError) and status != response.status:
            raise self._fail(response, spec)
        if not isinstance(response, ServiceError):
            if self._has_object(response, spec, statement):
                self._find("break", spec, f"{statement} is accepted")
        elif response.status != status or response.code != code:
            problem = f"status {response.status}"
            if not response.has_error_object:
                problem += " and no error object"
            text = f"{statement} returns {problem}, not {status} {code}"
            self._find("break", spec, text)

    def _has_object(self, response: Response, spec: str, statement: str) -> bool:
        """Whether a 2xx has the requested object; record a break if it has not."""
        body = _read_json(response)
        if isinstance(body, dict) and not _OBJECT_FIELDS.isdisjoint(body):
            return True
        text = f"{statement} returns status {response.status} without a dataset"
        self._find("break", spec, text)
        return False

    def _fail(self, error: ServiceError, spec: str) -> IncompleteError:
        """Record that a valid request failed; the caller raises what is returned."""
        if isinstance(error, DatasetChangedError):
            self._find("reading", "9", "the publication changed during the check")
        else:
            statement = f"a valid request returns status {error.status}"
            self._find("break", spec, statement)
        return IncompleteError()


def is_rejection(response: Response | ServiceError) -> TypeGuard[ServiceError]:
    """Whether the service rejects a query: as invalid, or as too large."""
    return isinstance(response, ValidationFailedError) or (
        isinstance(response, ServiceError) and response.status == _TOO_LARGE
    )


def _check_moment(head: Head) -> None:
    """Check when a publication was created.

    Raises:
        ValueError: the timestamp is no ISO 8601 text.
    """
    try:
        datetime.fromisoformat(head.created_timestamp.upper())
    except ValueError:
        raise ValueError("Expected a timestamp - at `$.created_timestamp`") from None


def _read_json(response: Response) -> Any:
    try:
        return json.loads(response.body)
    except (ValueError, RecursionError):
        return None


# The messages of decoders that contain nothing of the body.
_KIND = "`?(?:int|float|str|bool|array|object|null)`?"
_EXPECTED = re.compile(rf"Expected {_KIND}(?: \| {_KIND})*, got {_KIND}")
_MISSING = re.compile(r"Object missing required field `(\w{1,50})`")


def _remove_values(problem: str) -> str:
    """A decoding problem without values: the kinds, and the path without indexes."""
    message, _, path = problem.partition(" - at `")
    place = re.sub(r"\[[^\]]*\]", "[*]", path.removesuffix("`") or "$")
    reason = ""
    kinds = _EXPECTED.match(message)
    if kinds:
        reason = ": " + kinds[0].replace("`", "")
    missing = _MISSING.fullmatch(message)
    if missing:
        place += f".{missing[1]}"
        reason = ": a required field is missing"
    if not re.fullmatch(r"[$\w.\[\]*]{1,100}", place):
        place = "$"
    return f"{place} cannot be read{reason}"
