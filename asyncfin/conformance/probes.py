"""The requests of a check, and what their responses show of the service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import uuid4

from attrs import define, field
from msgspec import UNSET

from asyncfin import Period, ScopeRef
from asyncfin.clock import utc_now
from asyncfin.conformance.bodies import (
    CATALOGUE,
    DATASET,
    Body,
    differences,
    list_series,
)
from asyncfin.conformance.reader import (
    IncompleteError,
    Reader,
    Request,
    Rows,
    is_rejection,
    is_selected,
    read_json,
)
from asyncfin.conformance.report import CheckReport
from asyncfin.errors import DatasetChangedError, ServiceError
from asyncfin.words import counted

# The cap of metrics and of paths in a query (spec 8).
_CAP = 50
# What it is of, by the field of a series.
_CAPPED = {"metric_ids": "metric_id", "scope_combinations": "scopes"}
# Pages of the catalogue may take this share of the requests; the queries need the rest.
_CATALOGUE_SHARE = 0.5
# Exact periods that a service with a cap probably accepts.
_FEW_PERIODS = 24
_MAX_FINDINGS = 200


@define
class Probe(Reader):
    """One check of a service, from its first request to its report."""

    _pages: list[Body] = field(factory=list)  # of the catalogue

    async def report(self) -> CheckReport:
        """Send the requests, and report what they show.

        Metadata that cannot be decoded end it.

        Raises:
            ServiceError, TransportError: the metadata are rejected, or not received.
        """
        complete = True
        checks = [self._check_catalogue, self._check_queries, self._check_account]
        try:
            await self._read_metadata()
        except IncompleteError:
            complete = False
            checks.clear()
        for check in checks:
            try:
                await check()
            except IncompleteError:
                complete = False
        findings = self._list_findings()
        return CheckReport(
            entity_id=self._entity_id,
            findings=tuple(findings[:_MAX_FINDINGS]),
            omitted=len(findings[_MAX_FINDINGS:]),
            requests=self._request_count,
            complete=complete,
        )

    # --- metadata and catalogue (spec 4.1, 4.2)

    async def _read_metadata(self) -> None:
        request = Request("4.1", "GET", self._path)
        response = await self._send(request)
        if not self._has_object(response, "4.1", "the request for the metadata"):
            raise IncompleteError
        self._dataset_id = ""  # the publication may be another now
        dataset = self._decode(response, DATASET, "2.2")
        self._dataset_id = dataset["dataset_id"]

    async def _check_catalogue(self) -> None:
        await self._read_catalogue()
        if not self._series:
            statement = "the catalogue has no series: queries were not checked"
            self._find("reading", "4.2", statement)
            raise IncompleteError
        for path, count in Counter(differences(self._pages)).items():
            self._find("differs", "4.2", f"{path} differs between pages", count)
        durations = [period.duration_months for period in self._periods]
        instants = durations.count(0)
        if instants:
            statement = "periods have duration_months 0: no rule contains them"
            self._find("reading", "2.1", statement, instants, len(self._periods))
        page = await self._read_page(1, None)
        count = len(list_series(page))
        is_cut_off = count < len(self._series) and not page.get("next_cursor")
        if count > 1 or is_cut_off:
            self._find("break", "4.2 rule 1", "`limit` 1 is not observed")
        request = self._catalogue_request(1, None, pin=str(uuid4()))
        statement = "another expected_dataset_id"
        await self._expect_rejection(request, "4.2 rule 3", statement, 409)

    async def _read_catalogue(self) -> None:
        """Read all pages, or as many as the requests suffice for."""
        budget = max(1, int(self._max_requests * _CATALOGUE_SHARE))
        cursor = None
        cursors: set[str] = set()
        for _ in range(budget):
            page = await self._read_page(100, cursor)
            for entry in list_series(page):
                series_id = entry["series_id"]
                if series_id in self._series:
                    self._find("break", "4.2 rule 1", "a series is listed twice")
                self._series[series_id] = entry
            self._pages.append(page)
            periods = {*self._periods, *page["periods"]}
            self._periods = tuple(sorted(periods))
            cursor = page.get("next_cursor") or None
            if cursor is None:
                self._has_all_series = True
                break
            if cursor in cursors:
                statement = "the catalogue's next_cursor is repeated"
                self._find("break", "4.2 rule 2", statement)
                raise IncompleteError
            cursors.add(cursor)
        else:
            statement = f"the catalogue has more than {counted(budget, 'page')}"
            self._find("limit", "4.2", f"{statement}; the others were not read")
            raise IncompleteError

    async def _read_page(self, limit: int, cursor: str | None) -> Body:
        response = await self._fetch(self._catalogue_request(limit, cursor))
        for _ in range(3):
            # The metadata may lag behind a publication. Once a page was read, a change
            # ends the check.
            if not isinstance(response, DatasetChangedError) or self._series:
                break
            await self._read_metadata()
            response = await self._fetch(self._catalogue_request(limit, cursor))
        if isinstance(response, ServiceError):
            raise self._fail(response, "4.2")
        return self._decode(response, CATALOGUE, "2.3")

    def _catalogue_request(
        self, limit: int, cursor: str | None, *, pin: str = ""
    ) -> Request:
        params = {
            "expected_dataset_id": pin or self._dataset_id,
            "limit": str(limit),
        }
        if cursor is not None:
            params["cursor"] = cursor
        return Request("4.2", "GET", f"{self._path}/catalogue", params)

    # --- queries (spec 4.3)

    async def _check_queries(self) -> None:
        if not self._series or not self._periods:
            return
        await self._check_periods()
        await self._check_pages()
        await self._read(self._query({"mode": "trailing", "months": 6}), "trailing")
        await self._check_rejections()
        # Last, as a valid query shows a publication that has changed meanwhile.
        await self._check_caps()

    async def _check_periods(self) -> None:
        """Read the same periods in each form, and in both value versions."""
        query = self._query()
        page = await self._read(query, "fiscal_range")
        if page is None:  # all that follow need it
            raise IncompleteError
        range_rows, cursor = page
        if cursor is None and self._has_all_series:
            await self._check_absent(query, range_rows)
        exact = await self._read_exact()
        if exact is not None:
            self._compare_forms(range_rows, *exact)
        query = self._query(version="latest_restated")
        latest = await self._read(query, "latest_restated")
        if latest is not None:
            self._compare_versions(range_rows, latest[0])
        await self._check_cell()

    async def _check_absent(self, query: Body, rows: Rows) -> None:
        """Read some of the series that a complete page leaves out again, alone."""
        absent = []
        for series in self._series.values():
            if is_selected(series, query) and series["series_id"] not in rows:
                absent.append(series)
        if not absent:
            return
        query = self._query(series=absent)
        page = await self._read(query, "series that were left out")
        if page is None:
            return
        rows_alone = page[0]
        lost_count = 0
        for series in absent:
            lost_count += bool(rows_alone.get(series["series_id"]))
        if lost_count:
            statement = "a query leaves out series that another one lists"
            self._find("break", "4.3", statement, lost_count, len(absent))

    async def _read_exact(self) -> tuple[Rows, Sequence[Period]] | None:
        """Read all periods as exact ones, or fewer if so many are rejected: the spec
        states no cap.
        """
        total = len(self._periods)
        counts = {total, min(total, _FEW_PERIODS), 1}
        for count in sorted(counts, reverse=True):
            periods = self._periods[-count:]
            query = self._query(_exact(*periods))
            response = await self._fetch(self._request(query))
            if not is_rejection(response):
                break
        page = self._read_rows(response, query, "exact")
        if page is None:
            return None
        if count < total:
            statement = f"exact rejects {total} periods, and accepts {count}"
            self._find("limit", "4.3", statement)
        return page[0], periods

    def _compare_forms(
        self, range_rows: Rows, exact: Rows, periods: Sequence[Period]
    ) -> None:
        """Compare the cells of a range and of exact periods, in series that both pages
        list.
        """
        range_cells = set()
        exact_cells = set()
        for series_id in range_rows.keys() & exact.keys():
            for period in periods:
                if period in range_rows[series_id]:
                    range_cells.add((series_id, period))
                if period in exact[series_id]:
                    exact_cells.add((series_id, period))
        missing = exact_cells - range_cells
        if missing:
            statement = "fiscal_range leaves out values that exact has"
            self._find("break", "4.3", statement, len(missing), len(exact_cells))
        missing = range_cells - exact_cells
        if missing:
            statement = "exact leaves out values that fiscal_range has"
            self._find("break", "4.3", statement, len(missing), len(range_cells))

    def _compare_versions(self, original: Rows, latest: Rows) -> None:
        count = 0
        for series_id in original.keys() & latest.keys():
            if original[series_id] != latest[series_id]:
                return
            count += len(original[series_id])
        if count and not self._has_restated:
            statement = (
                "all values are equal in both versions: value_version may be ignored"
            )
            self._find("reading", "4.3", statement, count, count)

    async def _check_cell(self) -> None:
        """Read one cell as exact, alone.

        If possible it is one whose query has another duration of the same end: the
        response has all series of the metric and the path, of every group.
        """
        cells: dict[object, dict[Period, Body]] = {}
        for series_id, period in self._numbers["original"]:
            series = self._series.get(series_id)
            if series is not None:
                key = series["metric_id"], series["scopes"], period.fiscal_end
                cells.setdefault(key, {})[period] = series
        if cells:
            series_by_period = max(cells.values(), key=lambda row: len(row) > 1)
            period = next(iter(series_by_period))
            series = series_by_period[period]
            query = self._query(_exact(period), series=[series])
            await self._read(query, "a cell alone")

    async def _check_pages(self) -> None:
        query = self._query() | {"limit": 1}
        page = await self._read(query, "limit 1")
        if page is None:
            return
        rows, cursor = page
        if len(rows) > 1:
            self._find("break", "4.3", "`limit` 1 is not observed")
        if cursor is not None:
            query["cursor"] = cursor
            second = await self._read(query, "limit 1, second page")
            if second is None:
                return
            second_rows, _ = second
            if set(rows) & set(second_rows):
                self._find("break", "4.3 rule 3", "a series is on two pages")

    async def _check_caps(self) -> None:
        """Send as many metrics and paths as the spec allows, and one more of each."""
        query = self._query()
        ids: dict[str, list[Any]] = {}
        for name, field_name in _CAPPED.items():
            values = [series[field_name] for series in self._series.values()]
            ids[name] = list(dict.fromkeys(values))
            query[name] = ids[name][:_CAP]
        metrics = counted(len(query["metric_ids"]), "metric")
        paths = counted(len(query["scope_combinations"]), "scope path")
        await self._read(query, f"{metrics} x {paths}")
        for name, values in ids.items():
            if len(values) > _CAP:
                longer_query = query | {name: values[: _CAP + 1]}
                await self._exceed_cap(longer_query, f"{_CAP + 1} {name}")
            elif len(values) < _CAP and self._has_all_series:
                statement = f"the catalogue has fewer than {_CAP} {name}"
                self._find("reading", "8", f"{statement}: the cap was not checked")

    async def _exceed_cap(self, query: Body, statement: str) -> None:
        response = await self._fetch(self._request(query))
        if isinstance(response, ServiceError):
            if not is_rejection(response):
                raise self._fail(response, "8")
        elif self._has_object(response, "8", statement):
            self._find("limit", "8", f"{statement} are accepted")

    async def _check_rejections(self) -> None:
        query = self._query()
        unknown = f"unknown-{uuid4().hex}"
        request = self._request(query | {"expected_dataset_id": str(uuid4())})
        statement = "another expected_dataset_id"
        await self._expect_rejection(request, "4.3 rule 6", statement, 409)
        wrong_fields: dict[str, Body] = {
            "metric": {"metric_ids": [unknown]},
            "scope path": {"scope_combinations": [[ScopeRef("unknown", unknown)]]},
            "reporting group": {"reporting_group_ids": [unknown]},
        }
        for noun, fields in wrong_fields.items():
            request = self._request(query | fields)
            statement = f"an unknown {noun}"
            await self._expect_rejection(request, "4.3 rule 5", statement, 400)

    # --- the account (spec 4.4, 4.5)

    async def _check_account(self) -> None:
        today = utc_now().date()
        start = today - timedelta(days=6)
        days = {"start_date": str(start), "end_date": str(today)}
        usage = Request("4.4", "GET", "/v1/usage", days)
        await self._check_answered(usage)
        limits = Request("4.5", "GET", "/v1/limits")
        await self._check_answered(limits)

    async def _check_answered(self, request: Request) -> None:
        """Check the status and the form of a body that the spec does not show."""
        path, spec = request.path, request.spec
        try:
            response = await self._fetch(request)
        except ServiceError as error:
            # The token was accepted for the dataset, and all else has been checked.
            if error.status not in (401, 403):
                raise
            response = error
        if not isinstance(response, ServiceError):
            if read_json(response) is UNSET:
                statement = f"the body of {path} is not JSON"
                self._find("break", spec, statement)
        elif response.status in (401, 403):
            statement = f"the token has no permission for {path}"
            self._find("limit", spec, statement)
        else:
            statement = f"{path} returns status {response.status}"
            self._find("break", spec, statement)


def _exact(*periods: Period) -> Body:
    return {"mode": "exact", "exact": periods}
