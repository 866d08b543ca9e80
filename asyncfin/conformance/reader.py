"""Sends the requests of a check, reads their responses, and collects what they show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard
from urllib.parse import quote

import msgspec
from attrs import define, evolve, field, frozen
from msgspec.structs import replace

from asyncfin import Period
from asyncfin.conformance.bodies import (
    DATASET,
    DESCRIPTIVE,
    IDENTITY,
    QUERY,
    Body,
    compare,
    list_series,
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
from asyncfin.typing import ScopePath

if TYPE_CHECKING:
    from asyncfin import Client
    from asyncfin.typing import Response

# The numbers of a page, by series and period.
Rows: TypeAlias = dict[str, dict[Period, Any]]
_TOO_LARGE = 413
_OBJECT_FIELDS = {*DATASET, "periods", "series", "groups"}


@frozen
class Request:
    """One request of a check, by the section of the spec that it is about."""

    spec: str
    method: str
    path: str
    params: Mapping[str, str] = field(factory=dict)
    body: Body | None = None


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
    _dataset_id: str = ""  # of the publication that is checked, once it was read
    _series: dict[str, Body] = field(factory=dict)
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

    def _decode(self, response: Response, fields: Body, spec: str) -> Body:
        """Read a body of the entity and the publication that are checked, and record
        what differs from the spec.

        Returns:
            The body, with periods and scope paths as objects.

        Raises:
            IncompleteError: it breaks the spec, or is of another one.
        """
        body: Body = read_json(response)
        deviations = Counter(compare(body, fields))
        totals: Counter[str] = Counter()
        has_break = False
        for (kind, path, _), count in deviations.items():
            totals[path] += count
            has_break = has_break or kind == "break"
        for (kind, path, problem), count in deviations.items():
            if kind == "extra":
                self._find(kind, "2", path, count)
            elif problem:
                total = totals[path] if kind == "differs" else None
                self._find(kind, spec, f"{path} {problem}", count, total)
        if has_break:
            raise IncompleteError
        for entry in list_series(body):
            entry["scopes"] = msgspec.convert(entry["scopes"], ScopePath)
        periods = body.get("periods", ())
        body["periods"] = msgspec.convert(periods, tuple[Period, ...])
        if problem := self._find_problem(body):
            self._find("break", spec, problem)
            raise IncompleteError
        return body

    def _find_problem(self, body: Body) -> str:
        """Find a problem that the types of the fields do not show."""
        try:
            datetime.fromisoformat(body["created_timestamp"].upper())
        except ValueError:
            return "$.created_timestamp cannot be read: it is not a timestamp"
        if body["entity_id"] != self._entity_id:
            return "$.entity_id is not the requested one"
        dataset_id = self._dataset_id or body["dataset_id"]
        if body["dataset_id"].lower() != dataset_id.lower():
            return "$.dataset_id is not the requested one"
        series_ids = [series["series_id"] for series in body.get("series", ())]
        for name, keys in (("periods", body["periods"]), ("series", series_ids)):
            if len(set(keys)) < len(keys):
                return f"$.{name} has an entry twice"
        return ""

    @property
    def _path(self) -> str:
        return f"/v1/entities/{quote(self._entity_id, safe='')}/dataset"

    def _query(
        self,
        periods: Mapping[str, Any] | None = None,
        *,
        series: Iterable[Body] = (),
        version: str = "original",
    ) -> Body:
        """A query over the first 20 series of the catalogue, or of other ones.

        Args:
            periods: or None for the catalogue's whole span.
        """
        metrics: dict[str, None] = {}
        paths: dict[ScopePath, None] = {}
        for entry in islice(series or self._series.values(), 20):
            metrics[entry["metric_id"]] = None
            paths[entry["scopes"]] = None
        if periods is None:
            start, end = self._periods[0], self._periods[-1]
            periods = {
                "mode": "fiscal_range",
                "from": replace(start, duration_months=0),
                "to": replace(end, duration_months=0),
            }
        return {
            "metric_ids": list(metrics),
            "scope_combinations": list(paths),
            "periods": periods,
            "expected_dataset_id": self._dataset_id,
            "value_version": version,
            "limit": 100,
        }

    def _request(self, query: Body) -> Request:
        return Request("4.3", "POST", f"{self._path}/query", body=query)

    async def _read(
        self, query: Body, statement: str
    ) -> tuple[Rows, str | None] | None:
        """Read a page of a valid query, and compare it with what was read before.

        Returns:
            The numbers by series and period, and the cursor; None if the query was
            rejected, or its page is malformed.
        """
        response = await self._fetch(self._request(query))
        return self._read_rows(response, query, statement)

    def _read_rows(
        self, response: Response | ServiceError, query: Body, statement: str
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
        try:
            page = self._decode(response, QUERY, "2.4")
        except IncompleteError:
            return None
        lengths = {len(series["values"]) for series in page["series"]}
        if lengths - {len(page["periods"])}:
            breach = "a values array is not aligned with periods"
            self._find("break", "4.3 rule 2", breach)
            return None
        rows: Rows = {}
        for series in page["series"]:
            self._compare_series(series, query)
            row = rows[series["series_id"]] = {}
            for period, value in zip(page["periods"], series["values"], strict=True):
                if value is not None:
                    row[period] = value["number"]
                    self._check_label(value, query)
        self._compare_rows(rows, query, statement)
        return rows, page.get("next_cursor") or None

    def _check_label(self, value: Body, query: Body) -> None:
        if value["value_version"] == "latest_restated":
            self._has_restated = True
            if query["value_version"] == "original":
                breach = "original values are labelled latest_restated"
                self._find("break", "9.3", breach)

    def _compare_rows(self, rows: Rows, query: Body, statement: str) -> None:
        """Compare cells with the query's periods, and with those of earlier queries."""
        numbers = self._numbers.setdefault(query["value_version"], {})
        exact_periods = query["periods"].get("exact")
        count = outside = different = 0
        for series_id, row in rows.items():
            for period, number in row.items():
                count += 1
                if exact_periods is not None:
                    outside += period not in exact_periods
                first_number = numbers.setdefault((series_id, period), number)
                different += first_number != number
        if outside:
            breach = "exact returns values in periods that were not selected"
            self._find("break", "4.3", breach, outside, count)
        if different:
            breach = f"numbers differ between two queries ({statement})"
            self._find("break", "4.3", breach, different)

    def _compare_series(self, series: Body, query: Body) -> None:
        """Compare a series of a query with the catalogue and with the selections."""
        entry = self._series.get(series["series_id"])
        if entry is None:
            if self._has_all_series:
                statement = "a series is not in the catalogue"
                self._find("break", "4.3 rule 1", statement)
            return
        if not is_selected(series, query):
            self._find("break", "4.3 rule 1", "a series was not selected")
        for name in (*IDENTITY, *DESCRIPTIVE):
            text = series.get(name)
            listed_text = entry.get(name)
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
        body = read_json(response)
        if isinstance(body, dict) and not _OBJECT_FIELDS.isdisjoint(body):
            return True
        problem = "and no JSON" if body is msgspec.UNSET else "without a dataset"
        text = f"{statement} returns status {response.status} {problem}"
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


def is_selected(series: Body, query: Body) -> bool:
    """Whether a query selects the metric and the path of a series."""
    return (
        series["metric_id"] in query["metric_ids"]
        and series["scopes"] in query["scope_combinations"]
    )


def read_json(response: Response) -> Any:
    """The JSON of a response, or UNSET if it has none."""
    try:
        return msgspec.json.decode(response.body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return msgspec.UNSET
