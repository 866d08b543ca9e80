"""The requests of a check, and what their responses say about the service."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
from attrs import define, evolve, field

from asyncfin import (
    Annual,
    Catalogue,
    CatalogueSeries as ModelSeries,
    Exact,
    FiscalRange,
    HalfYearly,
    Period,
    Quarterly,
    Query,
    ReportingGroup,
    Select,
    Trailing,
)
from asyncfin.clock import utc_now
from asyncfin.conformance.bodies import (
    CATALOGUE,
    DATASET,
    IDENTITY,
    CataloguePage,
    CatalogueSeries,
    Head,
    differences,
)
from asyncfin.conformance.reader import (
    IncompleteError,
    Reader,
    Request,
    Rows,
    is_refusal,
    moment_of,
)
from asyncfin.conformance.report import CheckReport
from asyncfin.errors import DatasetChangedError, ServiceError, ValidationFailedError

if TYPE_CHECKING:
    from asyncfin import Batch
    from asyncfin.typing import Response

# The caps of a query (spec 8).
_CAPS = {"metric_ids": 50, "scope_combinations": 50}
# Pages of the catalogue may take this share of the requests; the queries need the
# others.
_CATALOGUE_SHARE = 0.5
# Shorter than a year, so that a window of whole periods differs from one of fiscal
# ends.
_TRAILING_MONTHS = 6
# Exact periods that a service with a cap probably accepts.
_FEW_PERIODS = 24
# The years by which a range is wider than the catalogue's span, at both ends.
_WIDER = 10
# How often a refused query is halved.
_SIZES = 6
# How far clocks may differ.
_FUTURE = timedelta(minutes=5)


@define
class Probe(Reader):
    """One check of a service, from its first request to its report. Arguments as of
    `Reader`.
    """

    _pages: list[CataloguePage] = field(
        factory=list
    )  # of the catalogue, in their order
    _catalogue: Catalogue | None = (
        None  # as the client joins its pages; None: not all were read
    )

    async def report(self) -> CheckReport:
        """Send the requests, and return what they show.

        Metadata that cannot be decoded end it.

        Raises:
            ServiceError, TransportError: the metadata are refused, or not received.
        """
        complete = await self._can_read_metadata()
        for part in (
            (self._check_catalogue, self._check_queries, self._check_account)
            if complete
            else ()
        ):
            try:
                await part()
            except IncompleteError:
                complete = False
        findings, omitted = self._findings()
        return CheckReport(
            entity_id=self._entity_id,
            findings=findings,
            omitted=omitted,
            requests=self._spent,
            complete=complete,
        )

    # --- metadata and catalogue (spec 4.1, 4.2)

    async def _can_read_metadata(self) -> bool:
        try:
            await self._read_metadata()
        except IncompleteError:
            return False
        return True

    async def _read_metadata(self) -> None:
        response = await self._send(Request("4.1", "GET", self._path))
        body = self._inspect(response, DATASET)
        if not self._is_object(response, "4.1", "the request for the metadata"):
            raise IncompleteError
        if hasattr(self, "_dataset"):  # the publication may be another now
            del self._dataset
        self._dataset = self._decode(response, Head, "2.2")
        # The service's clock may differ from this one's.
        now = _date_of(response) or response.at
        if moment_of(self._dataset) > now + _FUTURE:
            self._find(
                "reading",
                "2.2",
                "created_timestamp is in the future",
                shown_by=response,
            )
        self._find_absences(body, DATASET, "2.2", response)

    async def _check_catalogue(self) -> None:
        budget = max(1, int(self._max_requests * _CATALOGUE_SHARE))
        cursor, cursors, pages, short = None, set(), 0, 0
        while True:
            if pages >= budget:
                self._find(
                    "limit",
                    "4.2",
                    f"the catalogue has more than {pages:,} pages; the others were not "
                    "read",
                )
                raise IncompleteError
            count, cursor = await self._catalogue_page(100, cursor)
            pages += 1
            if cursor is None:
                break
            short += count < 100
            if cursor in cursors:
                self._find(
                    "break", "4.2 rule 2", "the catalogue's next_cursor is repeated"
                )
                raise IncompleteError
            cursors.add(cursor)
        self._has_all_series = True
        self._join()
        if short:
            self._find(
                "reading",
                "4.2",
                "pages before the last have fewer series than `limit`",
                short,
                pages,
            )
        if not self._series:
            self._find(
                "reading",
                "4.2",
                "the catalogue has no series: queries were not checked",
            )
            raise IncompleteError
        self._describe_periods()
        count, cursor = await self._catalogue_page(1, None)
        if count > 1 or (count == 1 and len(self._series) > 1 and cursor is None):
            self._find("break", "4.2 rule 1", "`limit` 1 is not observed")
        await self._expect_refusal(
            self._catalogue_request(1, None, pin=str(uuid4())),
            409,
            "dataset_changed",
            "4.2 rule 3",
            "another expected_dataset_id",
        )

    async def _catalogue_page(
        self, limit: int, cursor: str | None
    ) -> tuple[int, str | None]:
        """Read a page; return how many series it has, and its cursor."""
        found = await self._response(self._catalogue_request(limit, cursor))
        for _ in range(3):
            # The metadata may lag behind a publication. Once a page was read, a change
            # ends the check.
            if not isinstance(found, DatasetChangedError) or self._series:
                break
            await self._read_metadata()
            found = await self._response(self._catalogue_request(limit, cursor))
        if isinstance(found, ServiceError):
            raise self._failed(found, "4.2")
        body = self._inspect(found, CATALOGUE)
        page = self._decode(found, CataloguePage, "2.3")
        series = [each for group in page.groups for each in group.series]
        if limit == 100:
            self._find_absences(body, CATALOGUE, "2.3", found)
            known = len(self._series)
            self._series |= {each.series_id: each for each in series}
            if repeated := known + len(series) - len(self._series):
                self._find("break", "4.2 rule 1", "a series is listed twice", repeated)
            self._pages.append(page)
            self._periods = tuple(sorted({*self._periods, *page.periods}))
        return len(series), page.next_cursor or None

    def _join(self) -> None:
        """Join the pages of the catalogue for the planner; what they state differently
        is a finding.
        """
        members: dict[str, list[ModelSeries]] = {}
        for series in self._series.values():
            ids = {name: getattr(series, name) for name in ("series_id", *IDENTITY)}
            members.setdefault(series.reporting_group_id, []).append(ModelSeries(**ids))
        head = self._dataset
        self._catalogue = Catalogue(
            head.entity_id,
            head.name or "",
            head.dataset_id,
            moment_of(head),
            self._periods,
            (),
            tuple(
                ReportingGroup(reporting_group_id=id, series=tuple(of))
                for id, of in members.items()
            ),
        )
        for path, count in Counter(differences(self._pages)).items():
            self._find("differs", "4.2", f"{path} differs between pages", count)

    def _catalogue_request(
        self, limit: int, cursor: str | None, *, pin: str = ""
    ) -> Request:
        params = {
            "expected_dataset_id": pin or self._dataset.dataset_id,
            "limit": str(limit),
        }
        if cursor is not None:
            params["cursor"] = cursor
        return Request("4.2", "GET", f"{self._path}/catalogue", params)

    def _describe_periods(self) -> None:
        instants = sum(not each.duration_months for each in self._periods)
        if instants:
            what = (
                "periods have duration_months 0: Annual, Quarterly and HalfYearly do "
                "not contain them"
            )
            self._find("reading", "2.1", what, instants, len(self._periods))
        for rule in (Annual, Quarterly, HalfYearly):
            ends = {
                each.end_month
                for each in self._periods
                if each.duration_months == rule.months
            }
            if ends and rule.end_month not in {None, *ends}:
                months = ", ".join(map(str, sorted(ends)))
                self._find(
                    "reading",
                    "2.1",
                    f"periods of {rule.months} months end in month {months}, not "
                    f"{rule.end_month}:"
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
        await self._check_plan()

    async def _check_periods(self) -> None:
        """Read the same periods in each form, and in both value versions."""
        whole = await self._read_range()
        if whole is None:
            return
        exact = await self._read_exact()
        if exact is not None:
            self._compare_forms(whole, *exact)
        restated = await self._read(
            self._query(version="latest_restated"), "latest_restated"
        )
        if restated is not None:
            self._compare_versions(whole, restated[0])
        await self._check_wider()
        await self._check_cell()
        unknown = Period(self._periods[-1].year + 50, 12, 12)
        what = "a period that the catalogue does not list"
        query = self._query(Exact((unknown,)))
        await self._describe(
            self._request(query),
            "4.3",
            what,
            f"exact accepts {what}",
            f"exact refuses {what}",
        )

    async def _read_range(self) -> Rows | None:
        """Read the catalogue's whole span, or as much of it as the service accepts, the
        newest part.
        """
        what = "fiscal_range over the whole catalogue"
        query = self._query()
        found = await self._response(self._request(query))
        refusal, months = found, self._months
        while is_refusal(found) and months > 1:
            months //= 2
            query = self._query(self._newest(months))
            found = await self._response(self._request(query))
        if is_refusal(found):
            found = refusal
        elif not isinstance(found, ServiceError) and is_refusal(refusal):
            limit = f"fiscal_range refuses {self._months} months, and accepts {months}"
            self._find("limit", "4.3", limit, shown_by=refusal)
            self._range = self._newest(months)
        read = self._rows(found, query, what)
        return None if read is None else read[0]

    @property
    def _months(self) -> int:
        """The months of the catalogue's span."""
        return self._periods[-1].fiscal_end - self._periods[0].fiscal_end + 1

    def _newest(self, months: int) -> FiscalRange:
        """Return the range of the last months of the catalogue's span."""
        end = self._periods[-1].fiscal_end
        return FiscalRange(_ending(end - months + 1), _ending(end))

    async def _read_exact(self) -> tuple[Rows, Exact] | None:
        """Read all periods as exact ones, or fewer if so many are refused: the spec
        states no cap.
        """
        refusal: ServiceError | None = None
        refused = 0
        for count in sorted(
            {len(self._periods), min(len(self._periods), _FEW_PERIODS), 1}, reverse=True
        ):
            periods = Exact(self._periods[-count:])
            query = self._query(periods)
            found = await self._response(self._request(query))
            if count > 1 and is_refusal(found):
                refused, refusal = count, found
                continue
            read = self._rows(found, query, "exact")
            if read is not None and refusal is not None:
                what = f"exact refuses {refused} periods, and accepts {count}"
                self._find("limit", "4.3", what, shown_by=refusal)
            return None if read is None else (read[0], periods)
        return None

    def _compare_forms(self, whole: Rows, exact: Rows, periods: Exact) -> None:
        """Compare the cells of a range and of exact periods, in series that both pages
        list.
        """
        asked = set((self._range or FiscalRange()).among(periods.periods))
        both = whole.keys() & exact.keys()
        ranged, selected = (
            {(one, period) for one in both for period in rows[one] if period in asked}
            for rows in (whole, exact)
        )
        for what, missing, of in (
            (
                "fiscal_range leaves out values that exact has",
                selected - ranged,
                selected,
            ),
            (
                "exact leaves out values that fiscal_range has",
                ranged - selected,
                ranged,
            ),
        ):
            if missing:
                self._find("break", "4.3", what, len(missing), len(of))

    def _compare_versions(self, original: Rows, latest: Rows) -> None:
        both = original.keys() & latest.keys()
        cells = [
            {(one, *cell) for one in both for cell in rows[one].items()}
            for rows in (original, latest)
        ]
        if cells[0] and cells[0] == cells[1] and not self._has_restated:
            what = "all values are equal in both versions: value_version may be ignored"
            self._find("reading", "4.3", what, len(cells[0]), len(cells[0]))

    async def _check_wider(self) -> None:
        """Read the whole range, ten years wider at both ends."""
        if self._range is not None:
            return
        first, last = self._periods[0], self._periods[-1]
        wider = FiscalRange(
            Period(max(1, first.year - _WIDER), first.end_month, 0),
            Period(min(9999, last.year + _WIDER), last.end_month, 0),
        )
        query = self._query(wider)
        found = await self._response(self._request(query))
        if isinstance(found, ValidationFailedError):
            what = "fiscal_range refuses a range beyond the catalogue's periods"
            self._find("reading", "4.3", what)
            return
        if is_refusal(found):
            limit = (
                f"fiscal_range refuses {_width(wider)} months, and accepts "
                f"{self._months}"
            )
            self._find("limit", "4.3", limit, shown_by=found)
            return
        read = self._rows(found, query, "a range beyond the catalogue's periods")
        periods = (
            []
            if read is None
            else [period for row in read[0].values() for period in row]
        )
        if unlisted := sum(each not in self._periods for each in periods):
            what = "values in periods that the catalogue does not list"
            self._find("break", "2.3", what, unlisted, len(periods))

    async def _check_cell(self) -> None:
        """Read one cell as exact, alone: if possible one whose query has another
        duration of the same end.
        """
        cells = [
            (one, at) for version, one, at in self._numbers if version == "original"
        ]
        known = [(self._series[one], at) for one, at in cells if one in self._series]
        if not known:
            return
        # In the response are all series of the metric and the path, of every group.
        periods = {(one.metric_id, one.scopes, at) for one, at in known}
        ends = Counter(
            (metric_id, path, at.fiscal_end) for metric_id, path, at in periods
        )
        series, period = next(
            (
                (one, at)
                for one, at in known
                if ends[one.metric_id, one.scopes, at.fiscal_end] > 1
            ),
            known[0],
        )
        query = self._query(
            Exact((period,)), metrics=[series.metric_id], paths=[series.scopes]
        )
        await self._read(query, "a cell alone")

    async def _check_pages(self) -> None:
        query = self._query()
        one = await self._read(query, "limit 1", limit=1)
        if one is None:
            return
        if len(one[0]) > 1:
            self._find("break", "4.3", "`limit` 1 is not observed")
        if one[1] is not None:
            other = await self._read(
                query, "limit 1, second page", limit=1, cursor=one[1]
            )
            if other is not None and set(one[0]) & set(other[0]):
                self._find("break", "4.3 rule 3", "a series is on two pages")
        request, what = self._request(query, limit=101), "`limit` 101"
        await self._describe(
            request, "8", what, f"{what} is accepted", f"{what} is refused"
        )

    async def _check_trailing(self) -> None:
        months = _TRAILING_MONTHS
        read = await self._read(self._query(Trailing(months)), "trailing")
        if read is None or read[1] is not None:
            return
        wanted = set(read[0])
        populated = {
            at
            for version, one, at in self._numbers
            if version == "original" and one in wanted
        }
        if not populated:
            return
        anchor = max(populated)
        ours = {each for each in populated if Trailing(months).contains(each, anchor)}
        theirs = {period for row in read[0].values() for period in row}
        if theirs != ours:
            what = (
                "the service's trailing window differs from asyncfin's, which cuts it "
                "from a range by itself"
            )
            more, fewer = len(theirs - ours), len(ours - theirs)
            self._find(
                "reading", "4.3", f"{what}: {more} more and {fewer} fewer periods"
            )

    async def _check_caps(self) -> None:
        for side, (name, cap) in enumerate(_CAPS.items()):
            ids, others = self._together(side, cap)
            if len(ids) < cap:
                if self._has_all_series:
                    what = (
                        f"the catalogue has fewer than {cap} {name}: the cap was not "
                        "checked"
                    )
                    self._find("reading", "8", what)
                continue
            query = self._crossing(side, ids[:cap], others)
            found = await self._response(self._request(query))
            if isinstance(found, ValidationFailedError):
                fewer = await self._response(
                    self._request(self._crossing(side, ids[: cap - 1], others))
                )
                if not isinstance(fewer, ServiceError) and self._is_object(
                    fewer, "8", f"{cap - 1} {name}"
                ):
                    self._find(
                        "break", "8", f"{cap} {name} are refused", shown_by=found
                    )
            elif is_refusal(found):
                what = f"a query of {_size(query)} is refused as too large"
                self._find("limit", "8", what, shown_by=found)
            elif isinstance(found, ServiceError):
                raise self._failed(found, "8")
            else:
                self._is_object(found, "8", f"{cap} {name}")
            if len(ids) > cap:
                await self._check_beyond_cap(name, query, ids[cap])

    async def _check_beyond_cap(self, name: str, query: Query, further: Any) -> None:
        """Send one id more than allowed."""
        request = self._request(query)
        body = dict(request.body or {})
        body[name] = [*body[name], msgspec.to_builtins(further)]
        count = len(body[name])
        found = await self._response(evolve(request, body=body))
        if not isinstance(found, ServiceError):
            if self._is_object(found, "8", f"{count} {name}"):
                self._find("limit", "8", f"{count} {name} are accepted")
        elif not is_refusal(found):
            raise self._failed(found, "8")

    def _together(self, side: int, cap: int) -> tuple[list[Any], list[Any]]:
        """Return more metrics (0) or paths (1) than a cap, if there are, and few lines
        that they are on.
        """
        on: dict[Any, dict[Any, None]] = {}
        for each in self._series.values():
            one, other = (each.metric_id, each.scopes)[:: 1 if side == 0 else -1]
            on.setdefault(other, {})[one] = None
        ids: dict[Any, None] = {}
        others: list[Any] = []
        for other in sorted(on, key=lambda other: -len(on[other])):
            if len(ids) > cap or len(others) == min(_CAPS.values()):
                break
            if not on[other].keys() <= ids.keys():
                ids |= on[other]
                others.append(other)
        return list(ids), others

    def _crossing(self, side: int, ids: Sequence[Any], others: Sequence[Any]) -> Query:
        metrics, paths = (ids, others) if side == 0 else (others, ids)
        return self._query(metrics=metrics, paths=paths)

    async def _check_refusals(self) -> None:
        query = self._query()
        unknown = f"unknown-{uuid4().hex}"
        stale = evolve(query, expected_dataset_id=str(uuid4()))
        await self._expect_refusal(
            self._request(stale),
            409,
            "dataset_changed",
            "4.3 rule 6",
            "another expected_dataset_id",
        )
        for what, wrong in (
            ("an unknown metric", evolve(query, metric_ids=(unknown,))),
            (
                "an unknown scope path",
                evolve(query, scope_combinations=((("unknown", unknown),),)),
            ),
            (
                "an unknown reporting group",
                evolve(query, reporting_group_ids=(unknown,)),
            ),
        ):
            await self._expect_refusal(
                self._request(wrong), 400, "validation_failed", "4.3 rule 5", what
            )
        both = evolve(stale, metric_ids=(unknown,))
        found = await self._response(self._request(both))
        if isinstance(found, (DatasetChangedError, ValidationFailedError)):
            first = (
                "expected_dataset_id (409)"
                if isinstance(found, DatasetChangedError)
                else "ids (400)"
            )
            self._find("reading", "4.3 rules 5, 6", f"{first} is checked first")

    async def _check_empty(self) -> None:
        """Request a pair that does not exist, and a series in a period in which it has
        no value.
        """
        existing = {(each.metric_id, each.scopes) for each in self._series.values()}
        metrics, paths = {each for each, _ in existing}, {each for _, each in existing}
        pair = next(
            ((m, p) for m in metrics for p in paths if (m, p) not in existing), None
        )
        if pair is not None and self._has_all_series:
            query = self._query(metrics=[pair[0]], paths=[pair[1]])
            read = await self._read(query, "a pair that does not exist")
            if read is not None and read[0]:
                self._find(
                    "break",
                    "4.3 rule 1",
                    "series are listed that the catalogue does not have",
                )
        empty = self._empty_cell()
        if empty is None:
            return
        series, period = empty
        query = self._query(
            Exact((period,)), metrics=[series.metric_id], paths=[series.scopes]
        )
        read = await self._read(query, "a series without values")
        if read is not None and read[1] is None:
            listed = "listed" if series.series_id in read[0] else "left out"
            what = f"series without a value in the selected periods are {listed}"
            self._find("reading", "4.3 rule 4", what)

    async def _check_plan(self) -> None:
        """Read the first batch of everything as `query` sends it, and what it leaves
        out again, alone.
        """
        if self._catalogue is None:
            return
        batch = await self._batch(Select())
        listed = await self._read_batch(batch) if batch is not None else None
        if batch is None or listed is None or not (left := batch.matched - listed):
            return
        if (alone := await self._batch(Select(series_ids=sorted(left)))) is None:
            return
        found = await self._response(self._request(alone))
        read = self._rows(found, alone, "series that were left out")
        again = (
            {one for one, row in read[0].items() if row} if read is not None else set()
        )
        again |= {one for version, one, _ in self._numbers if version == "original"}
        if lost := left & again:
            what = "a query leaves out series that another one lists"
            self._find("break", "4.3", what, len(lost), len(batch.matched))

    async def _batch(self, select: Select) -> Batch | None:
        """Return the first batch of the plan for some series, over the range that is
        accepted.

        None if the client's cache has them all.
        """
        assert self._catalogue is not None
        plan = await self._client.plan(self._catalogue, select, FiscalRange())
        if not plan.batches:
            return None
        first = plan.batches[0]
        return first if self._range is None else evolve(first, periods=self._range)

    async def _read_batch(self, batch: Batch) -> set[str] | None:
        """Return the series on all pages of a batch; None: it is refused, or cannot be
        read.
        """
        listed: set[str] = set()
        cursor, cursors = None, set[str]()
        while True:
            found = await self._response(self._request(batch, cursor=cursor))
            if cursor is None and is_refusal(found):
                await self._find_size(batch, found)
                return None
            read = self._rows(found, batch, "the first query of a plan")
            if read is None:
                return None
            rows, cursor = read
            listed.update(rows)
            if cursor is None:
                return listed
            if cursor in cursors:
                self._find(
                    "break", "4.3 rule 3", "the next_cursor of a query is repeated"
                )
                return None
            cursors.add(cursor)

    async def _find_size(self, batch: Batch, refusal: ServiceError) -> None:
        """Halve the metrics or paths of a refused batch, whichever are more, until it
        is accepted.
        """
        metrics, paths = batch.metric_ids, batch.scope_combinations
        for _ in range(_SIZES):
            if len(metrics) == len(paths) == 1:
                break
            if len(metrics) >= len(paths):
                metrics = metrics[: len(metrics) // 2]
            else:
                paths = paths[: len(paths) // 2]
            smaller = self._query(batch.periods, metrics=metrics, paths=paths)
            found = await self._response(
                self._request(
                    evolve(smaller, reporting_group_ids=batch.reporting_group_ids)
                )
            )
            if isinstance(found, ServiceError):
                if not is_refusal(found):
                    raise self._failed(found, "4.3")
            elif self._is_object(found, "4.3", "a part of the first query"):
                months = self._months if self._range is None else _width(self._range)
                accepted = (
                    f"{len(metrics)} x {len(paths)} over {months} months is accepted"
                )
                what = (
                    f"a query of {_size(batch)} over {months} months is refused; "
                    f"{accepted}"
                )
                self._find("limit", "4.3", what, shown_by=refusal)
                return
        self._find(
            "break", "4.3", "the first query of a plan is refused", shown_by=refusal
        )

    def _empty_cell(self) -> tuple[CatalogueSeries, Period] | None:
        """Return a series that was read, and a period in which it has no value."""
        valued: dict[str, set[Period]] = {}
        for version, one, period in self._numbers:
            if version == "original":
                valued.setdefault(one, set()).add(period)
        for one, periods in valued.items():
            if one in self._series and (
                rest := [each for each in self._periods if each not in periods]
            ):
                return self._series[one], rest[0]
        return None

    # --- the account (spec 4.4, 4.5)

    async def _check_account(self) -> None:
        today = utc_now().date()
        days = {"start_date": str(today - timedelta(days=6)), "end_date": str(today)}
        for request in (
            Request("4.4", "GET", "/v1/usage", days),
            Request("4.5", "GET", "/v1/limits"),
        ):
            spec = request.spec
            try:
                found = await self._response(request)
            except ServiceError as error:
                if error.attempts == 0 and error.status == 401:
                    what = (
                        f"{request.path} was not requested: the token was rejected "
                        "just before"
                    )
                    self._find("limit", spec, what)
                    continue
                if not error.answered:
                    raise
                # the token was accepted for the dataset, and all else has been checked
                found = error
            if not isinstance(found, ServiceError):
                try:
                    json.loads(found.body)
                except (ValueError, RecursionError):
                    self._find(
                        "break",
                        spec,
                        f"the body of {request.path} is not JSON",
                        shown_by=found,
                    )
            elif found.status in (401, 403):
                self._find(
                    "limit",
                    spec,
                    f"the token has no permission for {request.path}",
                    shown_by=found,
                )
            else:
                self._find(
                    "break",
                    spec,
                    f"{request.path} gives status {found.status}",
                    shown_by=found,
                )


def _ending(fiscal_end: int) -> Period:
    """Return the end of a range, from its month as `Period.fiscal_end` counts it."""
    year, index = divmod(fiscal_end - 1, 12)
    return Period(year, index + 1, 0)


def _width(periods: FiscalRange) -> int:
    """Return the months of a range."""
    assert isinstance(periods.start, Period)
    assert isinstance(periods.end, Period)
    return periods.end.fiscal_end - periods.start.fiscal_end + 1


def _size(query: Query) -> str:
    """Return the size of a query, in words."""
    return (
        f"{len(query.metric_ids)} metric_ids x {len(query.scope_combinations)} "
        "scope_combinations"
    )


def _date_of(response: Response) -> datetime | None:
    """Return when the service has sent a response, by its own clock."""
    try:
        return parsedate_to_datetime(response.headers.get("date", "")).astimezone(UTC)
    except (TypeError, ValueError):
        return None
