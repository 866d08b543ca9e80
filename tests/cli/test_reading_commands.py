"""`asyncfin catalogue` and `usage` against a service."""

import csv
import io
import json
from datetime import UTC, datetime, timedelta

import pytest

from asyncfin.sandbox import Sandbox
from tests.cli.conftest import ENTITY, ODD_PATH, RATIOS_ENTITY, Command


def test_dataset_shows_metadata_of_current_publication(command: Command) -> None:
    """All four fields of spec 2.2 are there to be read, in one request."""
    result = command("catalogue", "--publication", ENTITY)
    assert result.code == 0
    assert [line.split(maxsplit=1)[1].strip() for line in result.out.splitlines()[2:]] == [
        ENTITY,
        "Example [AG]",
        "00000000-0000-4000-8000-000000000001",
        "2025-02-01T06:00:00Z",
    ]


def test_catalogue_lists_every_series(command: Command) -> None:
    """Group, metric and scope path are columns, the path in its text form."""
    out = command("catalogue", ENTITY).out
    rows = [line.split() for line in out.splitlines()]
    assert ["Revenue", "Sales", "of", "one", "kind", ODD_PATH] in rows
    assert "years: years (annual, consolidated, 3 series)" in out
    assert "4 of 4 series: 2 metrics, 2 scope paths, 2 reporting groups" in out


def test_selection_narrows_the_catalogue(command: Command) -> None:
    """Only selected series are listed, and groups without any are left out."""
    out = command("catalogue", ENTITY, "--cadence", "quarterly").out
    assert "1 of 4 series" in out
    assert "quarters:" in out
    assert "years:" not in out


def test_catalogue_as_json_is_one_page(command: Command) -> None:
    """The document has the fields of spec 2.3, with the selected series only."""
    document = json.loads(command("catalogue", ENTITY, "--metric", "Debt", "--json").out)
    assert document["periods"][0] == {"year": 2022, "end_month": 12, "duration_months": 12}
    assert [group["reporting_group_id"] for group in document["groups"]] == ["years"]
    (series,) = document["groups"][0]["series"]
    assert (series["series_id"], series["scopes"]) == (
        "S-2",
        [{"scope_group_id": "company", "scope_id": "all"}],
    )


def test_catalogue_as_csv(command: Command) -> None:
    """The CSV has a line for each series, with all that a query can select by, and the description."""
    rows = list(csv.DictReader(io.StringIO(command("catalogue", RATIOS_ENTITY, "--csv").out)))
    assert [row["series_id"] for row in rows] == ["S-1", "S-2", "S-3", "S-4"]
    assert rows[1]["scope_path"] == ODD_PATH
    assert (rows[0]["cadence"], rows[0]["description"]) == ("annual", "Goods sold. Unit: USD.")


def test_usage_covers_thirty_days(command: Command) -> None:
    """The last day is today in UTC, the first one 29 days earlier."""
    (window,) = json.loads(command("usage").out)
    days = datetime.fromisoformat(window["end_date"]) - datetime.fromisoformat(window["start_date"])
    assert days == timedelta(days=29)
    assert abs(datetime.fromisoformat(window["end_date"]).date() - datetime.now(UTC).date()) <= timedelta(
        days=1
    )


def test_usage_is_printed_unchanged(command: Command) -> None:
    """The spec does not show their bodies, so they are JSON as they came."""
    (window,) = json.loads(command("usage", "--from", "2020-01-01", "--to", "2020-01-03").out)
    assert (window["start_date"], window["end_date"], len(window["body"]["days"])) == (
        "2020-01-01",
        "2020-01-03",
        3,
    )
    assert json.loads(command("usage", "--limits").out)["credits"]["granted"] == 1000


@pytest.mark.parametrize(
    ("line", "requests"),
    [
        ("catalogue --publication E", 1),
        ("usage --limits", 1),
        ("usage --from 2026-01-01 --to 2026-04-02", 1),  # 92 days
        ("usage --from 2026-01-01 --to 2026-04-03", 2),
        ("catalogue E --metric Debt", 1),
        ("catalogue --search debt E R", 2),
        ("status", 0),
    ],
)
def test_commands_cost_the_documented_requests(
    command: Command, service: Sandbox, line: str, requests: int
) -> None:
    """One for each entity, 100 series or 92 days; whatever is selected."""
    before = len(service.log)
    arguments = [{"E": ENTITY, "R": RATIOS_ENTITY}.get(word, word) for word in line.split()]
    assert command(*arguments).code == 0
    assert len(service.log) - before == requests
