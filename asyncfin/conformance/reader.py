"""Sends the requests of a check, reads their responses, and collects what they show."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard, TypeVar
from urllib.parse import quote

import msgspec
from attrs import define, evolve, field, frozen

from asyncfin import Exact, FiscalRange, Period, Query
from asyncfin.conformance.bodies import (
    DESCRIPTIVE,
    IDENTITY,
    QUERY,
    CatalogueSeries,
    Head,
    QueryPage,
    QuerySeries,
    Words,
    absences,
    unknown_fields,
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

T = TypeVar("T", bound=Head)
# The numbers of a page, by series and period.
Rows: TypeAlias = dict[str, dict[Period, Any]]
_MAX_FINDINGS = 200
_TOO_LARGE = 413
_HEAD = {
    "entity_id",
    "name",
    "dataset_id",
    "created_timestamp",
    "periods",
    "series",
    "groups",
}


@frozen
class Request:
    """One request of a check, by the section of the spec that it is about."""

    spec: str
    method: str
    path: str
    params: Mapping[str, str] = field(factory=dict)
    body: dict[str, Any] | None = None


class IncompleteError(Exception):
    """The check ends before its last request: too few of them, or the publication
    changed.
    """


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
    _spent: int = 0
    _found: dict[tuple[Kind, str, str], Finding] = field(factory=dict)
    _words: Words = field(factory=Words)
    _extras: Counter[tuple[str, str]] = field(factory=Counter)
    _dataset: Head = field(init=False)
    _series: dict[str, CatalogueSeries] = field(factory=dict)
    _has_all_series: bool = False
    _periods: tuple[Period, ...] = ()
    # What later queries select: the catalogue's whole span, or as much of it as the
    # service accepts.
    _range: FiscalRange | None = None
    # The numbers of the responses so far, by value version, series and period.
    _numbers: dict[tuple[str, str, Period], Any] = field(factory=dict)
    _has_restated: bool = False  # whether a value was labelled `latest_restated`

    def _findings(self) -> tuple[tuple[Finding, ...], int]:
        """Return the findings of the report, and how many more there are."""
        for line, count in self._words.lines():
            self._find("words", "2.3, 2.4", line, count)
        hidden = 0
        # Only now: a later body may have shown that the name of a field is a label.
        for (path, name), count in self._extras.items():
            if self._words.printable(name):
                self._find("extra", "2", f"{path}.{name}", count)
            else:
                hidden += count
        if hidden:
            self._find("extra", "2", "fields whose names are not shown", hidden)
        order = list(KINDS)
        found = sorted(
            self._found.values(),
            key=lambda each: (order.index(each.kind), each.spec, each.what),
        )
        return tuple(found[:_MAX_FINDINGS]), len(found[_MAX_FINDINGS:])

    def _find(
        self,
        kind: Kind,
        spec: str,
        what: str,
        count: int = 1,
        of: int | None = None,
        shown_by: Response | ServiceError | None = None,
    ) -> None:
        known = self._found.get((kind, spec, what)) or Finding(
            kind=kind, spec=spec, what=what, count=0
        )
        self._found[kind, spec, what] = evolve(
            known,
            count=known.count + count,
            of=None if of is None else (known.of or 0) + of,
            request_id=known.request_id or getattr(shown_by, "request_id", None),
        )

    # --- requests

    async def _send(self, request: Request) -> Response:
        """Return a response, and count its attempts. Errors are those of
        `Client.request`.
        """
        if self._spent >= self._max_requests:
            raise IncompleteError
        try:
            response = await self._client.request(
                request.method, request.path, params=request.params, json=request.body
            )
        except AsyncfinError as error:
            self._spent += error.attempts or 0
            raise
        self._spent += response.attempts
        return response

    async def _response(self, request: Request) -> Response | ServiceError:
        """Return a response, or the service's rejection of this request.

        Raises:
            IncompleteError: it cannot be sent, or shows nothing of the service.
            AsyncfinError: nothing can be sent, or a request without an entity was
                rejected (401, 403, 404).
        """
        try:
            return await self._send(request)
        except AllowanceExhaustedError as error:
            self._find(
                "limit",
                "8",
                "the request allowance was used up during the check",
                shown_by=error,
            )
        except AsyncfinError as error:
            if ends_all(error, waits=False):
                raise
            if isinstance(error, ServiceError):
                return error
            if isinstance(error, TransportError):
                self._find(
                    "break",
                    request.spec,
                    f"no complete response ({type(error).__name__})",
                )
            else:
                self._find(
                    "break",
                    request.spec,
                    "the body is too large, or in an unknown coding",
                )
        raise IncompleteError

    def _inspect(self, response: Response, known: Mapping[str, Any]) -> Any:
        """Collect the unknown fields and the words of a body, and return it as plain
        JSON.
        """
        try:
            body = json.loads(response.body)
        except (ValueError, RecursionError):
            return None
        self._words.add(body)
        self._extras.update(unknown_fields(body, known))
        return body

    def _find_absences(
        self, body: Any, fields: Mapping[str, Any], spec: str, response: Response
    ) -> None:
        """Record the optional fields that are missing or null in a body."""
        problems = Counter(absences(body, fields))
        objects: Counter[str] = Counter()
        for (path, _), count in problems.items():
            objects[path] += count
        for (path, problem), count in problems.items():
            if problem:
                self._find(
                    "differs",
                    spec,
                    f"{path} is {problem}",
                    count,
                    objects[path],
                    response,
                )

    @contextmanager
    def _decoding(self, spec: str, response: Response) -> Iterator[None]:
        """Record what cannot be decoded as a break, without its values."""
        try:
            yield
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            self._find("break", spec, _harmless(str(error)), shown_by=response)
            raise IncompleteError from None

    def _decode(self, response: Response, kind: type[T], spec: str) -> T:
        """Return a body as a class of the spec, of the entity and the publication that
        are checked.
        """
        with self._decoding(spec, response):
            page = msgspec.json.decode(
                response.body.removeprefix(b"\xef\xbb\xbf"), type=kind
            )
            moment_of(page)
        is_other = (
            page.dataset_id.lower() != self._dataset_id.lower()
            if self._dataset_id
            else False
        )
        for name, differs in (
            ("entity_id", page.entity_id != self._entity_id),
            ("dataset_id", is_other),
        ):
            if differs:
                self._find(
                    "break",
                    spec,
                    f"$.{name} is not the requested one",
                    shown_by=response,
                )
                raise IncompleteError
        for name in ("periods", "series"):
            entries = getattr(page, name, ())
            keys = [getattr(entry, "series_id", entry) for entry in entries]
            if len(set(keys)) < len(keys):
                self._find(
                    "break", spec, f"$.{name} has an entry twice", shown_by=response
                )
                raise IncompleteError
        return page

    @property
    def _dataset_id(self) -> str:
        """The publication that is checked, or "" before it is known."""
        return self._dataset.dataset_id if hasattr(self, "_dataset") else ""

    def _query(
        self,
        periods: Resolved | None = None,
        *,
        metrics: Sequence[str] | None = None,
        paths: Sequence[ScopePath] | None = None,
        version: Any = "original",
    ) -> Query:
        """Return a query about the first series of the catalogue, or about all series
        of some ids.

        Args:
            periods: None: the catalogue's whole span, or what is accepted of it.
            metrics, paths: None: those of the series, or one that goes with the others.
        """
        listed = list(self._series.values())
        first, last = (
            Period(end.year, end.end_month, 0)
            for end in (self._periods[0], self._periods[-1])
        )
        span = self._range or FiscalRange(first, last)
        if metrics is not None and paths is None:
            chosen = [each for each in listed if each.metric_id == metrics[0]][:1]
        elif paths is not None and metrics is None:
            chosen = [each for each in listed if each.scopes == paths[0]][:1]
        else:
            chosen = listed[:20]
        return Query(
            metrics or [*dict.fromkeys(each.metric_id for each in chosen)],
            paths or [*dict.fromkeys(each.scopes for each in chosen)],
            periods or span,
            value_version=version,
            expected_dataset_id=self._dataset.dataset_id,
        )

    @property
    def _path(self) -> str:
        return f"/v1/entities/{quote(self._entity_id, safe='')}/dataset"

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
        stated = {name: value for name, value in body.items() if value is not None}
        return Request(
            "4.3", "POST", f"{self._path}/query", body=msgspec.to_builtins(stated)
        )

    async def _read(
        self, query: Query, what: str, *, limit: int = 100, cursor: str | None = None
    ) -> tuple[Rows, str | None] | None:
        """Read a page of a query whose selections are valid, and compare it with what
        was read before.

        Returns:
            The numbers by series and period, and the cursor. None: it was refused, or
            is malformed.
        """
        found = await self._response(self._request(query, limit=limit, cursor=cursor))
        return self._rows(found, query, what)

    def _rows(
        self, found: Response | ServiceError, query: Query, what: str
    ) -> tuple[Rows, str | None] | None:
        """Return what `_read` returns, from the response."""
        if isinstance(found, ServiceError):
            if is_refusal(found):
                self._find(
                    "break", "4.3", f"a valid query is refused: {what}", shown_by=found
                )
                return None
            raise self._failed(found, "4.3")
        body = self._inspect(found, QUERY)
        if not self._is_object(found, "4.3", f"a valid query ({what})"):
            return None
        try:
            page = self._decode(found, QueryPage, "2.4")
        except IncompleteError:
            return None
        if any(len(series.values) != len(page.periods) for series in page.series):
            self._find(
                "break",
                "4.3 rule 2",
                "a values array is not aligned with periods",
                shown_by=found,
            )
            return None
        self._find_absences(body, QUERY, "2.4", found)
        rows: Rows = {}
        for series in page.series:
            self._compare_series(series, query, found)
            cells = zip(page.periods, series.values, strict=True)
            values = {period: value for period, value in cells if value is not None}
            rows[series.series_id] = {
                period: value.number for period, value in values.items()
            }
            if "latest_restated" in {value.value_version for value in values.values()}:
                self._has_restated = True
                if query.value_version == "original":
                    labelled = "original values are labelled latest_restated"
                    self._find("break", "9.3", labelled, shown_by=found)
        if isinstance(query.periods, Exact):
            periods = [period for row in rows.values() for period in row]
            if outside := sum(each not in query.periods.periods for each in periods):
                broken = "exact returns values in periods that were not selected"
                self._find("break", "4.3", broken, outside, len(periods), found)
        different = 0
        for one, row in rows.items():
            for period, number in row.items():
                different += (
                    self._numbers.setdefault((query.value_version, one, period), number)
                    != number
                )
        if different:
            self._find(
                "break",
                "4.3",
                f"numbers differ between two queries ({what})",
                different,
                shown_by=found,
            )
        return rows, page.next_cursor or None

    def _compare_series(
        self, series: QuerySeries, query: Query, found: Response
    ) -> None:
        """Compare a series of a query with the catalogue and with the selections."""
        listed = self._series.get(series.series_id)
        if listed is None:
            if self._has_all_series:
                self._find(
                    "break",
                    "4.3 rule 1",
                    "a series is not in the catalogue",
                    shown_by=found,
                )
            return
        if (
            series.metric_id not in query.metric_ids
            or series.scopes not in query.scope_combinations
        ):
            self._find(
                "break", "4.3 rule 1", "a series was not selected", shown_by=found
            )
        for name in IDENTITY:
            if getattr(series, name) != getattr(listed, name):
                self._find(
                    "break",
                    "2.4",
                    f"$.series[*].{name} differs from the catalogue",
                    shown_by=found,
                )
        for name in DESCRIPTIVE:
            theirs, ours = getattr(series, name), getattr(listed, name)
            if theirs and ours and theirs != ours:
                self._find(
                    "differs",
                    "2.4",
                    f"$.series[*].{name} differs from the catalogue",
                    shown_by=found,
                )

    async def _expect_refusal(
        self, request: Request, status: int, code: str, spec: str, what: str
    ) -> None:
        found = await self._response(request)
        if isinstance(found, DatasetChangedError) and status != found.status:
            raise self._failed(found, spec)
        if not isinstance(found, ServiceError):
            if self._is_object(found, spec, what):
                self._find("break", spec, f"{what} is accepted", shown_by=found)
        elif found.status != status or found.code != code:
            got = f"status {found.status}" + (
                "" if found.has_error_object else " and no error object"
            )
            self._find(
                "break",
                spec,
                f"{what} gives {got}, not {status} {code}",
                shown_by=found,
            )

    async def _describe(
        self, request: Request, spec: str, what: str, accepted: str, refused: str
    ) -> None:
        """Record whether the service accepts a request, or refuses it with 400; another
        status is neither.
        """
        found = await self._response(request)
        if isinstance(found, DatasetChangedError):
            raise self._failed(found, spec)
        if not isinstance(found, ServiceError):
            if self._is_object(found, spec, what):
                self._find("reading", spec, accepted)
        elif isinstance(found, ValidationFailedError):
            self._find("reading", spec, refused)
        else:
            self._find(
                "break", spec, f"{what} gives status {found.status}", shown_by=found
            )

    def _is_object(self, response: Response, spec: str, what: str) -> bool:
        """Return whether a 2xx has the object that was requested; record a break if it
        has another body.
        """
        try:
            body = json.loads(response.body)
        except (ValueError, RecursionError):
            body = None
        if isinstance(body, dict) and not _HEAD.isdisjoint(body):
            return True
        without = f"{what} gives status {response.status} without a dataset"
        self._find("break", spec, without, shown_by=response)
        return False

    def _failed(self, error: ServiceError, spec: str) -> IncompleteError:
        """Record that a request failed which should succeed, and return what ends the
        part.
        """
        if isinstance(error, DatasetChangedError):
            self._find("reading", "9", "the publication changed during the check")
        else:
            what = f"a valid request gives status {error.status}"
            self._find("break", spec, what, shown_by=error)
        return IncompleteError()


def is_refusal(found: Response | ServiceError) -> TypeGuard[ServiceError]:
    """Return whether the service refuses a query: as invalid, or as too large."""
    return isinstance(found, ValidationFailedError) or (
        isinstance(found, ServiceError) and found.status == _TOO_LARGE
    )


def moment_of(head: Head) -> datetime:
    """Return when a publication was created; ValueError: it is no ISO 8601 text."""
    try:
        moment = datetime.fromisoformat(head.created_timestamp.upper())
    except ValueError:
        raise ValueError("Expected a timestamp - at `$.created_timestamp`") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


# The messages of decoders that contain nothing of the body.
_KIND = "`?(?:int|float|str|bool|array|object|null)`?"
_EXPECTED = re.compile(rf"Expected {_KIND}(?: \| {_KIND})*, got {_KIND}")
_MISSING = re.compile(r"Object missing required field `(\w{1,50})`")


def _harmless(problem: str) -> str:
    """Return a decoding problem without what the body contains: the kinds, and the path
    without indexes.
    """
    message, _, path = problem.partition(" - at `")
    place = re.sub(r"\[[^\]]*\]", "[*]", path.removesuffix("`") or "$")
    if missing := _MISSING.fullmatch(message):
        place += f".{missing[1]}"
    if not re.fullmatch(r"[$\w.\[\]*]{1,100}", place):
        place = "$"
    why = "a required field is missing" if missing else ""
    if expected := _EXPECTED.match(message):
        why = expected[0].replace("`", "")
    return f"{place} cannot be read" + (f": {why}" if why else "")
