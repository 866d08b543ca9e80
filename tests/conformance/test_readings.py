"""`asyncfin.check` at services that read the spec in ways which lose or falsify numbers."""

from collections.abc import Callable
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from attrs import evolve

from asyncfin import CheckReport, Client, check
from asyncfin.sandbox import Dialect, Sandbox, Switch
from asyncfin.sandbox.dataset import read_publication
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


@pytest.mark.parametrize(("status", "kind"), [(400, "break"), (413, "limit")])
async def test_rejected_range_ends_the_report(status: int, kind: str) -> None:
    """A plan sends the whole range, whatever was selected."""
    report = await report_on(status_of=lambda _, sent: status if mode_of(sent) == "fiscal_range" else 200)
    assert words(report, kind) == ["a valid query is rejected: fiscal_range"]
    assert not report.complete
    assert all(bool(entry.request_id) == (entry.kind == "break") for entry in report.findings)


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
    """A query of two metrics has no series of one of them, which it has alone."""
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


@pytest.mark.parametrize(("status", "kind"), [(400, "break"), (413, "limit")])
async def test_rejected_size_is_named(status: int, kind: str) -> None:
    """With the number of metrics and paths."""

    def status_of(_: str, sent: Any) -> int:
        return status if mode_of(sent) and len(sent["metric_ids"]) > 40 else 200

    report = await report_on(WIDE, status_of=status_of)
    assert report.complete
    size = "a valid query is rejected: 50 metrics x 50 scope paths"
    assert size in words(report, kind)


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


@pytest.mark.parametrize(
    ("what", "selected"),
    [
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
    assert f"{what} returns status 202 without a dataset" in words(report, "break")
    assert not [entry for entry in report.findings if entry.what == f"{what} is accepted"]
    assert f"{what} are accepted" not in words(report, "limit")


async def test_changed_publication_is_no_break() -> None:
    """Nor a limit, at any query it changes: what is rejected for it says nothing else of the service."""
    made = read_publication(MADE)
    other = evolve(made, dataset_id=str(uuid4()))
    for nth in count(1):
        async with Sandbox(made) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
            sandbox.inject(Switch(operation="query", nth=nth, publication=other))
            report = await check(client, sandbox.entities[0])
            queries = [served.status for served in sandbox.log if served.operation == "query"]
        if len(queries) < nth:
            assert report.complete
            break
        assert words(report, "break") == words(report, "limit") == []
        if 409 in queries[nth - 1 :]:
            assert not report.complete
            assert "the publication changed during the check" in words(report, "reading")
