"""Sends the requests of a check, reads their responses, and collects what they show."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeGuard

from attrs import define, evolve, field

from asyncfin.conformance.bodies import QUERY, Words, absences, unknown_fields
from asyncfin.conformance.report import KINDS, Finding, Kind
from asyncfin.errors import (
    AllowanceExhaustedError,
    AsyncfinError,
    DatasetChangedError,
    MalformedAnswerError,
    ServiceError,
    TransportError,
    ValidationFailedError,
    ends_all,
)
from asyncfin.model.catalogue import Dataset
from asyncfin.model.period import Period
from asyncfin.model.query import Query
from asyncfin.model.scope import ScopePath
from asyncfin.model.selection import Exact, FiscalRange, Resolved, resolve
from asyncfin.model.series import IDENTITY, PAGE_FIELDS, CatalogueSeries
from asyncfin.wire.protocol import (
    Request,
    Response,
    check_publication,
    query_request,
)
from asyncfin.wire.values import read_query_page

Send: TypeAlias = Callable[[Request, Callable[[], None]], Awaitable[Response]]
# The numbers of a page, by series and period.
Rows: TypeAlias = dict[str, dict[Period, Any]]
_SECTIONS = {"dataset": "4.1", "catalogue": "4.2", "query": "4.3", "usage": "4.4", "limits": "4.5"}
_MAX_FINDINGS = 200
_TOO_LARGE = 413
_HEAD = {"entity_id", "name", "dataset_id", "created_timestamp", "periods", "series", "groups"}
_DESCRIPTIVE = tuple(name for name in PAGE_FIELDS if name not in ("series_id", *IDENTITY))


class IncompleteError(Exception):
    """The check ends before its last request: too few of them, or the publication changed."""


@define
class Reader:
    """The requests of a check so far, and what their responses have shown.

    Args:
        send: sends a request, and calls its second argument at each attempt.
        entity_id: the entity whose dataset is read.
        max_requests: how many requests may be sent, retries included.
    """

    _send: Send
    _entity_id: str
    _max_requests: int
    _spent: int = 0
    _found: dict[tuple[Kind, str, str], Finding] = field(factory=dict)
    _words: Words = field(factory=Words)
    _extras: Counter[tuple[str, str]] = field(factory=Counter)
    _dataset: Dataset = field(init=False)
    _series: dict[str, CatalogueSeries] = field(factory=dict)
    _has_all_series: bool = False
    _periods: tuple[Period, ...] = ()
    # What later queries select: the catalogue's whole span, or as much of it as the service accepts.
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
        found = sorted(self._found.values(), key=lambda each: (order.index(each.kind), each.spec, each.what))
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
        known = self._found.get((kind, spec, what)) or Finding(kind=kind, spec=spec, what=what, count=0)
        self._found[kind, spec, what] = evolve(
            known,
            count=known.count + count,
            of=None if of is None else (known.of or 0) + of,
            request_id=known.request_id or getattr(shown_by, "request_id", None),
        )

    # --- requests

    def _count(self) -> None:
        if self._spent >= self._max_requests:
            raise IncompleteError
        self._spent += 1

    async def _response(self, request: Request) -> Response | ServiceError:
        """Return a response, or the service's refusal of this request.

        Raises:
            IncompleteError: it cannot be sent, or says nothing about the service.
            AsyncfinError: nothing can be sent, or a request without an entity was refused (401, 403, 404).
        """
        if self._spent >= self._max_requests:
            raise IncompleteError
        section = _SECTIONS[request.operation]
        try:
            return await self._send(request, self._count)
        except AllowanceExhaustedError as error:
            self._find("limit", "8", "the request allowance was used up during the check", shown_by=error)
        except AsyncfinError as error:
            if ends_all(error, waits=False):
                raise
            if isinstance(error, ServiceError):
                return error
            if isinstance(error, TransportError):
                self._find("break", section, f"no complete response ({type(error).__name__})")
            else:
                self._find("break", section, "the body is too large, or in an unknown coding")
        raise IncompleteError

    def _inspect(self, response: Response, known: Mapping[str, Any]) -> Any:
        """Collect the unknown fields and the words of a body, and return it as plain JSON."""
        try:
            body = json.loads(response.body)
        except (ValueError, RecursionError):
            return None
        self._words.add(body)
        self._extras.update(unknown_fields(body, known))
        return body

    def _find_absences(self, body: Any, fields: Mapping[str, Any], spec: str, response: Response) -> None:
        """Record the optional fields that are missing or null in a body."""
        problems = Counter(absences(body, fields))
        objects: Counter[str] = Counter()
        for (path, _), count in problems.items():
            objects[path] += count
        for (path, problem), count in problems.items():
            if problem:
                self._find("differs", spec, f"{path} is {problem}", count, objects[path], response)

    @contextmanager
    def _decoding(self, spec: str, response: Response) -> Iterator[None]:
        """Report what cannot be decoded as a break, without its values."""
        try:
            yield
        except MalformedAnswerError as error:
            for problem in error.problems:
                self._find("break", spec, _harmless(problem), shown_by=response)
            raise IncompleteError from None

    def _query(
        self,
        periods: Resolved | None = None,
        *,
        metrics: Sequence[str] | None = None,
        paths: Sequence[ScopePath] | None = None,
        version: Any = "original",
    ) -> Query:
        """Return a query about the first series of the catalogue, or about all series of some ids.

        Args:
            periods: None: the catalogue's whole span, or what is accepted of it.
            metrics, paths: None: those of the series, or one that goes with the others.
        """
        listed = list(self._series.values())
        span = self._range or resolve(FiscalRange(), self._periods)
        assert span is not None  # there are periods
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

    def _request(self, query: Query, *, limit: int = 100, cursor: str | None = None) -> Request:
        return query_request(self._entity_id, query, page_size=limit, cursor=cursor)

    async def _read(
        self, query: Query, what: str, *, limit: int = 100, cursor: str | None = None
    ) -> tuple[Rows, str | None] | None:
        """Read a page of a query whose selections are valid, and compare it with what was read before.

        Returns:
            The numbers by series and period, and the cursor. None: it was refused, or is malformed.
        """
        found = await self._response(self._request(query, limit=limit, cursor=cursor))
        return self._rows(found, query, what)

    def _rows(
        self, found: Response | ServiceError, query: Query, what: str
    ) -> tuple[Rows, str | None] | None:
        """Return what `_read` returns, from the response."""
        if not isinstance(found, Response):
            if is_refusal(found):
                self._find("break", "4.3", f"a valid query is refused: {what}", shown_by=found)
                return None
            raise self._failed(found, "4.3")
        body = self._inspect(found, QUERY)
        if not self._is_object(found, "4.3", f"a valid query ({what})"):
            return None
        try:
            with self._decoding("2.4", found):
                page = read_query_page(found.body, query.value_version)
                check_publication(page, entity_id=self._entity_id, dataset_id=self._dataset.dataset_id)
                rows = {
                    each.series_id: {period: value.number for period, value in each.observations()}
                    for each in page.series
                }
        except IncompleteError:
            return None
        self._find_absences(body, QUERY, "2.4", found)
        for each in page.series:
            self._compare_series(each, query, found)
            labels = {value.value_version for _, value in each.observations()}
            self._has_restated = self._has_restated or "latest_restated" in labels
        if isinstance(query.periods, Exact):
            periods = [period for row in rows.values() for period in row]
            if outside := sum(each not in query.periods.periods for each in periods):
                broken = "exact returns values in periods that were not selected"
                self._find("break", "4.3", broken, outside, len(periods), found)
        different = 0
        for one, row in rows.items():
            for period, number in row.items():
                different += self._numbers.setdefault((query.value_version, one, period), number) != number
        if different:
            self._find(
                "break", "4.3", f"numbers differ between two queries ({what})", different, shown_by=found
            )
        return rows, page.next_cursor

    def _compare_series(self, series: Any, query: Query, found: Response) -> None:
        """Compare a series of a query with the catalogue and with the selections."""
        listed = self._series.get(series.series_id)
        if listed is None:
            if self._has_all_series:
                self._find("break", "4.3 rule 1", "a series is not in the catalogue", shown_by=found)
            return
        if series.metric_id not in query.metric_ids or series.scopes not in query.scope_combinations:
            self._find("break", "4.3 rule 1", "a series was not selected", shown_by=found)
        for name in IDENTITY:
            if getattr(series, name) != getattr(listed, name):
                self._find("break", "2.4", f"$.series[*].{name} differs from the catalogue", shown_by=found)
        for name in _DESCRIPTIVE:
            theirs, ours = getattr(series, name), getattr(listed, name)
            if theirs and ours and theirs != ours:
                self._find("differs", "2.4", f"$.series[*].{name} differs from the catalogue", shown_by=found)

    async def _expect_refusal(self, request: Request, status: int, code: str, spec: str, what: str) -> None:
        found = await self._response(request)
        if isinstance(found, DatasetChangedError) and status != found.status:
            raise self._failed(found, spec)
        if isinstance(found, Response):
            if self._is_object(found, spec, what):
                self._find("break", spec, f"{what} is accepted", shown_by=found)
        elif found.status != status or found.code != code:
            got = f"status {found.status}" + ("" if found.has_error_object else " and no error object")
            self._find("break", spec, f"{what} gives {got}, not {status} {code}", shown_by=found)

    async def _describe(self, request: Request, spec: str, what: str, accepted: str, refused: str) -> None:
        """Record whether the service accepts a request, or refuses it with 400; another status is neither."""
        found = await self._response(request)
        if isinstance(found, DatasetChangedError):
            raise self._failed(found, spec)
        if isinstance(found, Response):
            if self._is_object(found, spec, what):
                self._find("reading", spec, accepted)
        elif isinstance(found, ValidationFailedError):
            self._find("reading", spec, refused)
        else:
            self._find("break", spec, f"{what} gives status {found.status}", shown_by=found)

    def _is_object(self, response: Response, spec: str, what: str) -> bool:
        """Return whether a 2xx has the object that was requested; record a break if it has another body."""
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
        """Record that a request failed which should succeed, and return what ends the part."""
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


# The messages of decoders that contain nothing of the body.
_KIND = "(?:int|float|str|bool|array|object|null)"
_EXPECTED = re.compile(rf"[Ee]xpected {_KIND}(?: \| {_KIND})*, got {_KIND}|a required field is missing")


def _harmless(problem: str) -> str:
    """Return a decoding problem without what the body contains: the kinds, and the path without indexes."""
    message, _, path = problem.rpartition(" @ ")
    expected = _EXPECTED.match(message)
    # The path of a value contains the id of its series in parentheses.
    place = re.sub(r"\[[^\]]*\]", "[*]", re.sub(r" \(.*\)", "", path)) if path.startswith("$") else "$"
    place = place if re.fullmatch(r"[$\w.\[\]*]{1,100}", place) else "$"
    return f"{place} cannot be read" + (f": {expected[0]}" if expected else "")
