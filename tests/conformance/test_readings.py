"""`asyncfin.check` at services that read the spec in ways which lose or falsify numbers."""

import json
import re
from collections.abc import Callable
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from attrs import evolve

from asyncfin import CheckReport, Client, check
from asyncfin.sandbox import Dialect, Publication, Sandbox, Switch
from asyncfin.sandbox.dataset import publication_of
from tests.conformance.test_check import DATASET, WIDE, words
from tests.handmade import dataset
from tests.services.altering import altered

pytestmark = pytest.mark.virtual
YEARS = {f"FY{year}": float(year) for year in range(2013, 2024)}
# A fiscal end with three durations, and a series without values.
MADE = dataset(
    {
        ("Sales", "all"): {**YEARS, "FY2023-Q4": 7.0, "FY2023-H2": 9.0},
        ("Cost", "all"): dict(YEARS),
        ("Never", "all"): {},
    }
)
MONTHS = 12 * 10 + 1  # from 2013-12 to 2023-12
Body = dict[str, Any]


def unchanged(operation: str, sent: Body, body: Body) -> None:
    """Leave a response as it is."""


async def report_on(
    made: Any = MADE,
    alter: Callable[[str, Body, Body], None] = unchanged,
    status_of: Callable[[str, Any], int] = lambda operation, sent: 200,
    **options: Any,
) -> CheckReport:
    async with (
        Sandbox(made, **options) as sandbox,
        altered(sandbox, alter, status_of) as url,
        Client(url, sandbox.token) as client,
    ):
        return await check(client, sandbox.entities[0])


def found(report: CheckReport, kind: str, what: str) -> tuple[str, int, int | None] | None:
    """Return the section and the counts of a finding; None: there is none."""
    for entry in report.findings:
        if (entry.kind, entry.what) == (kind, what):
            return entry.spec, entry.count, entry.of
    return None


def mode_of(sent: Body | None) -> str | None:
    """Return the form of a query's periods."""
    return str(sent["periods"]["mode"]) if sent and "periods" in sent else None


def months_of(sent: Body) -> int:
    """Return the width of a range."""
    start, end = sent["periods"]["from"], sent["periods"]["to"]
    return 12 * (end["year"] - start["year"]) + end["end_month"] - start["end_month"] + 1


def add_period(body: Body, year: int, series_id: str) -> None:
    """Add a period in which a series has the value that it has in another one."""
    body["periods"].append({"year": year, "end_month": 12, "duration_months": 12})
    for series in body["series"]:
        value = next(filter(None, series["values"]), None) if series["series_id"] == series_id else None
        series["values"].append(value)


@pytest.mark.parametrize(
    ("mode", "what"),
    [
        ("fiscal_range", "fiscal_range leaves out values that exact has"),
        ("exact", "exact leaves out values that fiscal_range has"),
    ],
)
async def test_values_of_one_form_only_break(mode: str, what: str) -> None:
    """Two of the 24 values are missing in one of the forms."""

    def drop(_: str, sent: Body, body: Body) -> None:
        if mode_of(sent) == mode and sent["value_version"] == "original":
            for series in body["series"]:
                places = [at for at, value in enumerate(series["values"]) if value]
                if len(places) > 1:
                    series["values"][places[0]] = None

    report = await report_on(alter=drop)
    assert found(report, "break", what) == ("4.3", 2, 24)


async def test_exact_returning_other_periods_breaks() -> None:
    """One cell is read alone, at a fiscal end with another duration."""
    alone: list[Body] = []

    def widen(_: str, sent: Body, body: Body) -> None:
        if (
            mode_of(sent) == "exact"
            and len(sent["periods"]["exact"]) == 1
            and any(value for series in body["series"] for value in series["values"])
        ):
            alone.append(sent["periods"]["exact"][0])
            add_period(body, 2001, body["series"][0]["series_id"])

    report = await report_on(alter=widen)
    what = "exact returns values in periods that were not selected"
    assert found(report, "break", what) == ("4.3", 1, 2)
    assert (alone[0]["year"], alone[0]["end_month"]) == (2023, 12)


@pytest.mark.parametrize(("unrestated", "says"), [("original", True), ("latest_restated", False)])
async def test_equal_versions_are_a_reading(unrestated: Any, says: bool) -> None:
    """A service that ignores `value_version` labels none `latest_restated`."""
    report = await report_on(dialect=Dialect(unrestated=unrestated))
    what = "all values are equal in both versions: value_version may be ignored"
    assert found(report, "reading", what) == (("4.3", 24, 24) if says else None)


async def test_values_in_unlisted_periods_break() -> None:
    """The whole range is read ten years wider at both ends."""

    def older(_: str, sent: Body, body: Body) -> None:
        if mode_of(sent) == "fiscal_range" and sent["periods"]["from"]["year"] == 2003:
            assert sent["periods"]["to"]["year"] == 2033
            add_period(body, 2005, "Cost.all")

    report = await report_on(alter=older)
    assert found(report, "break", "values in periods that the catalogue does not list") == ("2.3", 1, 25)


@pytest.mark.parametrize("status", [400, 413])
async def test_rejected_wider_range_is_a_reading(status: int) -> None:
    """The spec does not say whether a range may begin before the first period."""

    def status_of(_: str, sent: Any) -> int:
        return status if mode_of(sent) == "fiscal_range" and months_of(sent) > MONTHS else 200

    report = await report_on(status_of=status_of)
    what = "fiscal_range refuses a range beyond the catalogue's periods"
    assert found(report, "reading", what) == ("4.3", 1, None)
    assert (report.breaks, report.complete) == ((), True)


@pytest.mark.parametrize("status", [400, 413])
async def test_capped_range_is_a_limit(status: int) -> None:
    """Later queries use one that is accepted."""
    sizes: list[int] = []

    def status_of(_: str, sent: Any) -> int:
        if mode_of(sent) != "fiscal_range":
            return 200
        sizes.append(months_of(sent))
        return status if sizes[-1] > 40 else 200

    report = await report_on(status_of=status_of)
    assert words(report, "limit") == [f"fiscal_range refuses {MONTHS} months, and accepts {MONTHS // 4}"]
    assert (report.breaks, report.complete) == ((), True)
    assert sizes[:3] == [MONTHS, MONTHS // 2, MONTHS // 4]
    assert set(sizes[3:]) == {MONTHS // 4}


async def test_range_rejected_at_any_length_breaks() -> None:
    """It is not a limit."""
    report = await report_on(status_of=lambda _, sent: 400 if mode_of(sent) == "fiscal_range" else 200)
    assert any("a valid query is refused: fiscal_range" in what for what in words(report, "break"))


async def test_differing_catalogue_pages_are_named() -> None:
    """What the client repairs when it joins them differs."""

    def differ(operation: str, _: Body, body: Body) -> None:
        if operation == "catalogue":
            count = sum(len(group["series"]) for group in body["groups"])
            for group in body["groups"]:
                group["description"] = f"of {count} series"

    report = await report_on(DATASET, differ)
    what = "$.groups[*].description differs between pages"
    section = found(report, "differs", what)
    assert section is not None
    assert section[1] >= 1
    assert not report.breaks


async def test_series_left_out_break() -> None:
    """The first query of a plan for everything has no series of one metric, which it has alone."""
    lost = "Cost.all"

    def leave_out(_: str, sent: Body, body: Body) -> None:
        if sent and len(sent.get("metric_ids", ())) > 1:
            body["series"] = [entry for entry in body.get("series", ()) if entry["series_id"] != lost]

    report = await report_on(alter=leave_out)
    section = found(report, "break", "a query leaves out series that another one lists")
    assert section is not None
    assert section[:2] == ("4.3", 1)


async def test_exact_selecting_by_ends_breaks() -> None:
    """The cell that is read alone is of a series that itself has another duration at its end."""
    made = dataset({("Cost", "all"): dict(YEARS), ("Sales", "all"): {**YEARS, "FY2023-Q4": 7.0}})

    def by_ends(_: str, sent: Body, body: Body) -> None:
        if mode_of(sent) == "exact" and len(sent["periods"]["exact"]) == 1:
            (selected,) = sent["periods"]["exact"]
            if (selected["year"], selected["end_month"]) == (2023, 12) and "Sales" in sent["metric_ids"]:
                other = 3 if selected["duration_months"] == 12 else 12
                body["periods"].append(selected | {"duration_months": other})
                for series in body["series"]:
                    is_sales = series["metric_id"] == "Sales"
                    series["values"].append(dict(series["values"][0], number=7.0) if is_sales else None)

    report = await report_on(made, alter=by_ends)
    what = "exact returns values in periods that were not selected"
    assert found(report, "break", what) == ("4.3", 1, 2)


async def test_too_large_bodies_are_limits() -> None:
    """Those at the caps, and the first query of a plan."""

    def status_of(_: str, sent: Any) -> int:
        return 413 if sent and len(json.dumps(sent)) > 2048 else 200

    report = await report_on(WIDE, status_of=status_of)
    assert (report.breaks, report.complete) == ((), True)
    limits = words(report, "limit")
    assert any(
        re.fullmatch(r"a query of \d+ metric_ids x .* is refused as too large", what) for what in limits
    )
    assert any(what.startswith("the first query of a plan, ") for what in limits)


@pytest.mark.parametrize(("year", "says"), [(2999, True), (2020, False)])
async def test_future_publication_is_a_reading(year: int, says: bool) -> None:
    """Its created_timestamp is later than the response."""

    def later(_: str, sent: Body, body: Body) -> None:
        if "created_timestamp" in body:
            body["created_timestamp"] = f"{year}-01-01T00:00:00Z"

    report = await report_on(alter=later)
    assert found(report, "reading", "created_timestamp is in the future") == (
        ("2.2", 1, None) if says else None
    )


@pytest.mark.parametrize("operation", ["dataset", "catalogue"])
@pytest.mark.parametrize("wrong", [1735689600, None])
async def test_wrong_timestamp_ends_the_report(operation: str, wrong: Any) -> None:
    """The break names its path; the report is not complete."""

    def spoil(name: str, sent: Body, body: Body) -> None:
        if name == operation:
            body["created_timestamp"] = wrong

    report = await report_on(alter=spoil)
    assert not report.complete
    assert any(entry.startswith("$.created_timestamp cannot be read") for entry in words(report, "break"))


@pytest.mark.parametrize(("most", "says"), [(49, True), (40, False)])
async def test_rejected_cap_breaks(most: int, says: bool) -> None:
    """A service that refuses 49 too has another limit."""
    report = await report_on(
        WIDE,
        status_of=lambda _, sent: 400 if mode_of(sent) and len(sent["metric_ids"]) > most else 200,
    )
    assert ("50 metric_ids are refused" in words(report, "break")) == says


@pytest.mark.parametrize(
    ("what", "selected"),
    [
        ("`limit` 101", lambda sent: sent.get("limit") == 101),
        ("51 metric_ids", lambda sent: len(sent["metric_ids"]) == 51),
        ("another expected_dataset_id", None),
    ],
)
async def test_2xx_without_a_dataset_breaks(what: str, selected: Callable[[Body], bool] | None) -> None:
    """Such as a service that only notes the request."""
    known: list[str] = []

    def status_of(_: str, sent: Any) -> int:
        if mode_of(sent) is None:
            return 200
        known.append(sent["expected_dataset_id"])
        wrong = known[-1] != known[0] if selected is None else selected(sent)
        return 202 if wrong else 200

    report = await report_on(WIDE, status_of=status_of)
    assert f"{what} gives status 202 without a dataset" in words(report, "break")
    assert not [entry for entry in report.findings if entry.what == f"{what} is accepted"]
    assert f"{what} are accepted" not in words(report, "limit")


def cap_on_months(_: str, sent: Any) -> int:
    return 400 if mode_of(sent) == "fiscal_range" and months_of(sent) > 30 else 200


def cap_on_ids(_: str, sent: Any) -> int:
    return 400 if mode_of(sent) and len(sent["metric_ids"]) * len(sent["scope_combinations"]) > 300 else 200


@pytest.mark.parametrize(
    ("made", "status_of"),
    [(publication_of(MADE), cap_on_months), (WIDE.publications[-1], cap_on_ids)],
    ids=["months", "ids"],
)
async def test_changed_publication_is_no_break(
    made: Publication, status_of: Callable[[str, Any], int]
) -> None:
    """Nor a limit, at whichever query it changes: what is refused for it says nothing else of the service."""
    other = evolve(made, dataset_id=str(uuid4()))
    whole = await report_on(made, status_of=status_of)
    for nth in count(1):
        async with (
            Sandbox(made) as sandbox,
            altered(sandbox, unchanged, status_of) as url,
            Client(url, sandbox.token) as client,
        ):
            sandbox.inject(Switch(operation="query", nth=nth, publication=other))
            report = await check(client, sandbox.entities[0])
            queries = [served.status for served in sandbox.log if served.operation == "query"]
        if len(queries) < nth:
            assert report.complete
            break
        assert words(report, "break") == []
        # Before the first query that is accepted, nothing is known to be.
        assert {*words(report, "limit")} <= ({*words(whole, "limit")} if nth > 1 else set())
        if 409 in queries[nth - 1 :]:
            assert not report.complete
            assert "the publication changed during the check" in words(report, "reading")
