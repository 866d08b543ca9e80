"""The requests of a check, and what their responses say about the service."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import msgspec
from attrs import define, evolve, field

from asyncfin.clock import utc_now
from asyncfin.conformance.bodies import CATALOGUE, DATASET, QUERY, Words, objects_at, unknown_fields
from asyncfin.conformance.report import KINDS, CheckReport, Finding, Kind
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
from asyncfin.model.deviation import Deviation
from asyncfin.model.period import Period
from asyncfin.model.query import MAX_METRIC_IDS, MAX_SCOPE_COMBINATIONS, Query
from asyncfin.model.scope import ScopePath
from asyncfin.model.selection import RULES, Exact, FiscalRange, Resolved, Trailing, class_names, resolve
from asyncfin.model.series import IDENTITY, PAGE_FIELDS, CatalogueSeries
from asyncfin.model.words import counted
from asyncfin.wire.codec import read_catalogue_page
from asyncfin.wire.protocol import (
    Request,
    Response,
    catalogue_request,
    check_publication,
    dataset_request,
    limits_request,
    query_request,
    read_dataset,
    usage_request,
)
from asyncfin.wire.tolerance import Tolerance
from asyncfin.wire.values import read_query_page

Send = Callable[[Request, Callable[[], None]], Awaitable[Response]]
# Deviations are repaired and counted here, not announced to the client's observers.
_TOLERANT = Tolerance()
# Pages of the catalogue may take this share of the requests; the queries need the others.
_CATALOGUE_SHARE = 0.5
_MAX_FINDINGS = 200
_DESCRIPTIVE = tuple(name for name in PAGE_FIELDS if name not in ("series_id", *IDENTITY))
# Shorter than a year, so that a window of whole periods differs from one of fiscal ends.
_TRAILING_MONTHS = 6
# Exact periods that a service with a cap probably accepts.
_FEW_PERIODS = 24


class _IncompleteError(Exception):
    """The check ends before its last request: too few of them, or the publication changed."""


@define
class Probe:
    """One check of a service, from its first request to its report.

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
    # The numbers of the responses so far, by value version, series and period.
    _numbers: dict[tuple[str, str, Period], Any] = field(factory=dict)

    async def report(self) -> CheckReport:
        """Send the requests, and return what they show.

        Raises:
            ServiceError, TransportError, MalformedAnswerError: the metadata cannot be read.
        """
        await self._read_metadata()
        complete = True
        for part in (self._check_catalogue, self._check_queries, self._check_account):
            try:
                await part()
            except _IncompleteError:
                complete = False
        return CheckReport(
            entity_id=self._entity_id, findings=self._findings(), requests=self._spent, complete=complete
        )

    def _findings(self) -> tuple[Finding, ...]:
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
        return tuple(found[:_MAX_FINDINGS])

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
            raise _IncompleteError
        self._spent += 1

    async def _response(self, request: Request) -> Response | ServiceError:
        """Return a response, or the service's refusal of this request.

        Raises:
            _IncompleteError: it cannot be sent, or says nothing about the service.
            AsyncfinError: nothing can be sent, or a request without an entity was refused (401, 403, 404).
        """
        if self._spent >= self._max_requests:
            raise _IncompleteError
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
        raise _IncompleteError

    def _inspect(self, response: Response, known: Mapping[str, Any]) -> Any:
        """Collect the unknown fields and the words of a body, and return it as plain JSON."""
        try:
            body = json.loads(response.body)
        except (ValueError, RecursionError):
            return None
        self._words.add(body)
        self._extras.update(unknown_fields(body, known))
        return body

    def _deviations(self, found: Iterable[Deviation], body: Any, spec: str, response: Response) -> None:
        for each in found:
            of = objects_at(body, each.path)
            self._find("differs", spec, f"{each.path} is {each.problem}", each.count, of or None, response)

    @contextmanager
    def _decoding(self, spec: str, response: Response) -> Iterator[None]:
        """Report what cannot be decoded as a break, without its values."""
        try:
            yield
        except MalformedAnswerError as error:
            for problem in error.problems:
                self._find("break", spec, _harmless(problem), shown_by=response)
            raise _IncompleteError from None

    # --- metadata and catalogue (spec 4.1, 4.2)

    async def _read_metadata(self) -> None:
        request = dataset_request(self._entity_id)
        try:
            response = await self._send(request, self._count)
        except _IncompleteError:  # its retries have used up the requests
            raise TransportError(f"the metadata could not be read in {self._max_requests} requests") from None
        body = self._inspect(response, DATASET)
        self._dataset = read_dataset(request, evolve(response, tolerance=_TOLERANT))
        if isinstance(body, dict) and not isinstance(body.get("name"), str):
            problem = "null" if "name" in body else "missing"
            self._find("differs", "2.2", f"$.name is {problem}", shown_by=response)

    async def _check_catalogue(self) -> None:
        budget = max(1, int(self._max_requests * _CATALOGUE_SHARE))
        cursor, cursors, pages, short = None, set(), 0, 0
        while True:
            if pages >= budget:
                self._find(
                    "limit",
                    "4.2",
                    f"the catalogue has more than {counted(pages, 'page')}; the others were not read",
                )
                raise _IncompleteError
            count, cursor = await self._catalogue_page(100, cursor)
            pages += 1
            if cursor is None:
                break
            short += count < 100
            if cursor in cursors:
                self._find("break", "4.2 rule 2", "the catalogue's next_cursor is repeated")
                raise _IncompleteError
            cursors.add(cursor)
        self._has_all_series = True
        if short:
            self._find("reading", "4.2", "pages before the last have fewer series than `limit`", short, pages)
        if not self._series:
            self._find("reading", "4.2", "the catalogue has no series: queries were not checked")
            raise _IncompleteError
        self._describe_periods()
        count, cursor = await self._catalogue_page(1, None)
        if count > 1 or (count == 1 and len(self._series) > 1 and cursor is None):
            self._find("break", "4.2 rule 1", "`limit` 1 is not observed")
        await self._expect_refusal(
            catalogue_request(self._entity_id, expected_dataset_id=str(uuid4()), page_size=1, cursor=None),
            409,
            "dataset_changed",
            "4.2 rule 3",
            "another expected_dataset_id",
        )

    async def _catalogue_page(self, limit: int, cursor: str | None) -> tuple[int, str | None]:
        """Read a page; return how many series it has, and its cursor."""
        found = await self._response(self._catalogue_request(limit, cursor))
        for _ in range(3):
            # The metadata may lag behind a publication. Once a page was read, a change ends the check.
            if not isinstance(found, DatasetChangedError) or self._series:
                break
            await self._read_metadata()
            found = await self._response(self._catalogue_request(limit, cursor))
        if not isinstance(found, Response):
            raise self._failed(found, "4.2")
        body = self._inspect(found, CATALOGUE)
        with self._decoding("2.3", found):
            page = await read_catalogue_page(found.body, _TOLERANT)
            check_publication(page, entity_id=self._entity_id, dataset_id=self._dataset.dataset_id)
        series = [each for group in page.groups for each in group.series]
        if limit == 100:
            self._deviations(page.deviations, body, "2.3", found)
            known = len(self._series)
            self._series |= {each.series_id: each for each in series}
            if repeated := known + len(series) - len(self._series):
                self._find("break", "4.2 rule 1", "a series is listed twice", repeated)
            self._periods = page.periods
        return len(series), page.next_cursor

    def _catalogue_request(self, limit: int, cursor: str | None) -> Request:
        pin = self._dataset.dataset_id
        return catalogue_request(self._entity_id, expected_dataset_id=pin, page_size=limit, cursor=cursor)

    def _describe_periods(self) -> None:
        instants = sum(not each.duration_months for each in self._periods)
        if instants:
            what = f"periods have duration_months 0: {class_names(word='and')} do not contain them"
            self._find("reading", "2.1", what, instants, len(self._periods))
        for rule in RULES:
            ends = {each.end_month for each in self._periods if each.duration_months == rule.months}
            if ends and rule.end_month not in {None, *ends}:
                months = ", ".join(map(str, sorted(ends)))
                self._find(
                    "reading",
                    "2.1",
                    f"periods of {rule.months} months end in month {months}, not {rule.end_month}:"
                    f" {rule.__name__} finds none",
                )

    # --- queries (spec 4.3)

    async def _check_queries(self) -> None:
        if not self._series or not self._periods:
            return
        await self._check_periods()
        await self._check_pages()
        await self._check_trailing()
        await self._check_caps()
        await self._check_refusals()
        await self._check_empty()

    async def _check_periods(self) -> None:
        """Read the same periods in each form, and in both value versions."""
        whole = await self._read(self._query(), "fiscal_range over the whole catalogue")
        if whole is None:
            return
        await self._check_exact()
        await self._read(self._query(version="latest_restated"), "latest_restated")
        unknown = Period(self._periods[-1].year + 50, 12, 12)
        what = "a period that the catalogue does not list"
        request = self._request(self._query(Exact((unknown,))))
        await self._describe(request, "4.3", what, f"exact accepts {what}", f"exact refuses {what}")

    async def _check_exact(self) -> None:
        """Read all periods as exact ones, or fewer if so many are refused: the spec states no cap."""
        refusal: ValidationFailedError | None = None
        refused = 0
        for count in sorted({len(self._periods), min(len(self._periods), _FEW_PERIODS), 1}, reverse=True):
            query = self._query(Exact(self._periods[-count:]))
            found = await self._response(self._request(query))
            if count > 1 and isinstance(found, ValidationFailedError):
                refused, refusal = count, found
                continue
            if self._rows(found, query, "exact") is not None and refusal is not None:
                what = f"exact refuses {refused} periods, and accepts {count}"
                self._find("limit", "4.3", what, shown_by=refusal)
            return

    async def _check_pages(self) -> None:
        query = self._query()
        one = await self._read(query, "limit 1", limit=1)
        if one is None:
            return
        if len(one[0]) > 1:
            self._find("break", "4.3", "`limit` 1 is not observed")
        if one[1] is not None:
            other = await self._read(query, "limit 1, second page", limit=1, cursor=one[1])
            if other is not None and set(one[0]) & set(other[0]):
                self._find("break", "4.3 rule 3", "a series is on two pages")
        request, what = self._request(query, limit=101), "`limit` 101"
        await self._describe(request, "8", what, f"{what} is accepted", f"{what} is refused")

    async def _check_trailing(self) -> None:
        months = _TRAILING_MONTHS
        read = await self._read(self._query(Trailing(months)), "trailing")
        if read is None or read[1] is not None:
            return
        wanted = set(read[0])
        populated = {at for version, one, at in self._numbers if version == "original" and one in wanted}
        if not populated:
            return
        anchor = max(populated)
        ours = {each for each in populated if Trailing(months).contains(each, anchor)}
        theirs = {period for row in read[0].values() for period in row}
        if theirs != ours:
            what = (
                "the service's trailing window differs from asyncfin's, which cuts it from a range by itself"
            )
            more, fewer = len(theirs - ours), len(ours - theirs)
            self._find("reading", "4.3", f"{what}: {more} more and {fewer} fewer periods")

    async def _check_caps(self) -> None:
        metrics = [*dict.fromkeys(each.metric_id for each in self._series.values())]
        paths = [*dict.fromkeys(each.scopes for each in self._series.values())]
        for name, argument, ids, cap in (
            ("metric_ids", "metrics", metrics, MAX_METRIC_IDS),
            ("scope_combinations", "paths", paths, MAX_SCOPE_COMBINATIONS),
        ):
            if len(ids) < cap:
                if self._has_all_series:
                    what = f"the catalogue has fewer than {cap} {name}: the cap was not checked"
                    self._find("reading", "8", what)
                continue
            request = self._request(self._query(**{argument: ids[:cap]}))  # type: ignore[arg-type]
            found = await self._response(request)
            if isinstance(found, ValidationFailedError):
                self._find("break", "8", f"{cap} {name} are refused", shown_by=found)
            elif not isinstance(found, Response):
                raise self._failed(found, "8")
            if len(ids) > cap:
                body = json.loads(request.body or b"")
                body[name].append(msgspec.to_builtins(ids[cap]))
                found = await self._response(evolve(request, body=json.dumps(body).encode()))
                if isinstance(found, Response):
                    self._find("limit", "8", f"{cap + 1} {name} are accepted")
                elif not isinstance(found, ValidationFailedError):
                    raise self._failed(found, "8")

    async def _check_refusals(self) -> None:
        query = self._query()
        unknown = f"unknown-{uuid4().hex}"
        stale = evolve(query, expected_dataset_id=str(uuid4()))
        await self._expect_refusal(
            self._request(stale), 409, "dataset_changed", "4.3 rule 6", "another expected_dataset_id"
        )
        for what, wrong in (
            ("an unknown metric", evolve(query, metric_ids=(unknown,))),
            ("an unknown scope path", evolve(query, scope_combinations=((("unknown", unknown),),))),
            ("an unknown reporting group", evolve(query, reporting_group_ids=(unknown,))),
        ):
            await self._expect_refusal(self._request(wrong), 400, "validation_failed", "4.3 rule 5", what)
        both = evolve(stale, metric_ids=(unknown,))
        found = await self._response(self._request(both))
        if isinstance(found, (DatasetChangedError, ValidationFailedError)):
            first = "expected_dataset_id (409)" if isinstance(found, DatasetChangedError) else "ids (400)"
            self._find("reading", "4.3 rules 5, 6", f"{first} is checked first")

    async def _check_empty(self) -> None:
        """Request a pair that does not exist, and a series in a period in which it has no value."""
        existing = {(each.metric_id, each.scopes) for each in self._series.values()}
        metrics, paths = {each for each, _ in existing}, {each for _, each in existing}
        pair = next(((m, p) for m in metrics for p in paths if (m, p) not in existing), None)
        if pair is not None and self._has_all_series:
            query = self._query(metrics=[pair[0]], paths=[pair[1]])
            read = await self._read(query, "a pair that does not exist")
            if read is not None and read[0]:
                self._find("break", "4.3 rule 1", "series are listed that the catalogue does not have")
        empty = self._empty_cell()
        if empty is None:
            return
        series, period = empty
        query = self._query(Exact((period,)), metrics=[series.metric_id], paths=[series.scopes])
        read = await self._read(query, "a series without values")
        if read is not None and read[1] is None:
            listed = "listed" if series.series_id in read[0] else "left out"
            what = f"series without a value in the selected periods are {listed}"
            self._find("reading", "4.3 rule 4", what)

    def _empty_cell(self) -> tuple[CatalogueSeries, Period] | None:
        """Return a series that was read, and a period in which it has no value."""
        valued: dict[str, set[Period]] = {}
        for version, one, period in self._numbers:
            if version == "original":
                valued.setdefault(one, set()).add(period)
        for one, periods in valued.items():
            if one in self._series and (rest := [each for each in self._periods if each not in periods]):
                return self._series[one], rest[0]
        return None

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
            periods: None: the catalogue's whole span.
            metrics, paths: None: those of the series, or one that goes with the others.
        """
        listed = list(self._series.values())
        span = resolve(FiscalRange(), self._periods)
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
    ) -> tuple[dict[str, dict[Period, Any]], str | None] | None:
        """Read a page of a query whose selections are valid, and compare it with what was read before.

        Returns:
            The numbers by series and period, and the cursor. None: it was refused, or is malformed.
        """
        found = await self._response(self._request(query, limit=limit, cursor=cursor))
        return self._rows(found, query, what)

    def _rows(
        self, found: Response | ServiceError, query: Query, what: str
    ) -> tuple[dict[str, dict[Period, Any]], str | None] | None:
        """Return what `_read` returns, from the response."""
        if not isinstance(found, Response):
            if isinstance(found, ValidationFailedError):
                self._find("break", "4.3", f"a valid query is refused: {what}", shown_by=found)
                return None
            raise self._failed(found, "4.3")
        body = self._inspect(found, QUERY)
        try:
            with self._decoding("2.4", found):
                page = read_query_page(found.body, query.value_version, _TOLERANT)
                check_publication(page, entity_id=self._entity_id, dataset_id=self._dataset.dataset_id)
                rows = {
                    each.series_id: {period: value.number for period, value in each.observations()}
                    for each in page.series
                }
        except _IncompleteError:
            return None
        self._deviations(page.deviations, body, "2.4", found)
        for each in page.series:
            self._compare_series(each, query, found)
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
        if isinstance(found, Response):
            self._find("break", spec, f"{what} is accepted", shown_by=found)
        elif found.status != status or found.code != code:
            got = f"status {found.status}" + ("" if found.has_error_object else " and no error object")
            self._find("break", spec, f"{what} gives {got}, not {status} {code}", shown_by=found)

    async def _describe(self, request: Request, spec: str, what: str, accepted: str, refused: str) -> None:
        """Record whether the service accepts a request, or refuses it with 400; another status is neither."""
        found = await self._response(request)
        if isinstance(found, DatasetChangedError):
            raise self._failed(found, spec)
        if isinstance(found, (Response, ValidationFailedError)):
            self._find("reading", spec, accepted if isinstance(found, Response) else refused)
        else:
            self._find("break", spec, f"{what} gives status {found.status}", shown_by=found)

    def _failed(self, error: ServiceError, spec: str) -> _IncompleteError:
        """Record that a request failed which should succeed, and return what ends the part."""
        if isinstance(error, DatasetChangedError):
            self._find("reading", "9", "the publication changed during the check")
        else:
            what = f"a valid request gives status {error.status}"
            self._find("break", spec, what, shown_by=error)
        return _IncompleteError()

    # --- the account (spec 4.4, 4.5)

    async def _check_account(self) -> None:
        today = utc_now().date()
        for spec, request in (
            ("4.4", usage_request(today - timedelta(days=6), today)),
            ("4.5", limits_request()),
        ):
            try:
                found = await self._response(request)
            except ServiceError as error:
                if not error.answered:
                    raise
                found = error  # the token was accepted for the dataset, and all else has been checked
            if isinstance(found, Response):
                try:
                    json.loads(found.body)
                except (ValueError, RecursionError):
                    self._find("break", spec, f"the body of {request.path} is not JSON", shown_by=found)
            elif found.status in (401, 403):
                self._find("limit", spec, f"the token has no permission for {request.path}", shown_by=found)
            else:
                self._find("break", spec, f"{request.path} gives status {found.status}", shown_by=found)


_SECTIONS = {"dataset": "4.1", "catalogue": "4.2", "query": "4.3", "usage": "4.4", "limits": "4.5"}
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
