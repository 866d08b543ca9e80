"""`asyncfin query`: what it asks for, and the forms in which the answer comes."""

import csv
import io
import json
import re
from typing import Any

import pytest

from asyncfin.sandbox import Sandbox
from tests.cli.conftest import (
    ENTITY,
    HUGE,
    LONG_ENTITY,
    ODD_PATH,
    RATIOS_ENTITY,
    UNKNOWN_ID,
    Command,
    Terminal,
)


def table_rows(out: str) -> list[list[str]]:
    """The cells of the first table, without its caption: columns are two spaces apart."""
    lines = out.split("\n\n")[1].splitlines()
    rule = next(at for at, line in enumerate(lines) if line.startswith("─"))
    return [
        [cell.strip() for cell in line.split("  ") if cell.strip()]
        for line in [lines[rule - 1], *lines[rule + 1 :]]
    ]


def test_table_tells_gap_from_zero(command: Command) -> None:
    """Periods are columns, oldest left; a period without a value is a dot, a reported zero is 0."""
    rows = table_rows(command("query", ENTITY, "--metric", "Debt", "--annual").out)
    assert rows == [
        ["series", "FY2022", "FY2023", "FY2024"],
        ["Debt", "0", "·", "5"],
    ]


def test_empty_series_are_left_out(command: Command) -> None:
    """Series without a value are counted in a line, not in the table or CSV; --all and JSON have them."""
    asked = ("query", ENTITY, "--group", "years", "--exact", "FY2023")
    result = command(*asked)
    assert [row[0] for row in table_rows(result.out)] == ["series", "Sales of all kinds"]
    assert "\n2 series without a value left out (--all shows them)\n" in result.out
    everything = command(*asked, "--all").out
    assert len(table_rows(everything)) == 4
    assert "left out" not in everything
    assert len(json.loads(command(*asked, "--json").out)["series"]) == 3
    assert len(command(*asked, "--csv").out.splitlines()) == 2
    assert len(command(*asked, "--csv", "--all").out.splitlines()) == 4


WHY = (
    "no values, because no series has one in 1 period, FY2023; the cadence of their reporting groups is"
    " annual, and the catalogue has 4 periods, FY2022 to FY2024: choose other series or periods"
)


def test_answer_without_any_value_says_why(command: Command) -> None:
    """Which periods were asked for, and what there is; with CSV and JSON, on standard error."""
    asked = ("query", ENTITY, "--metric", "Debt", "--exact", "FY2023")
    table = command(*asked)
    assert "1 series without a value left out" in table.out
    assert "─" not in table.out
    assert (WHY in table.out, table.err) == (True, "")
    for option in ("--csv", "--json"):
        assert f"asyncfin: Example [AG]: {WHY}" in command(*asked, option).err.splitlines()


def test_latest_of_unnamed_periods_are_shown(command: Command) -> None:
    """A line says how many are not shown and how to see them."""
    out = command("query", LONG_ENTITY).out
    assert table_rows(out)[0] == ["series", *(f"FY{year}" for year in range(2013, 2025))]
    assert [row[0] for row in table_rows(out)[1:]] == ["Sales"]
    assert (
        "the latest 12 of 15 periods are shown\n"
        "1 series without a value in these periods left out (--all shows them)\n"
    ) in out
    assert "15 periods, FY2010 to FY2024" in out
    head, *rows = csv.reader(io.StringIO(command("query", LONG_ENTITY, "--csv").out))
    assert head[-15:] == [f"FY{year}" for year in range(2010, 2025)]
    assert [row[-15] for row in rows] == ["1000", "7"]
    assert len(json.loads(command("query", LONG_ENTITY, "--json").out)["periods"]) == 15


def test_json_is_the_service_response(command: Command, service: Sandbox) -> None:
    """The JSON has the fields of spec 2.4 with null for gaps, the question, and the requests spent."""
    document = json.loads(command("query", ENTITY, "--group", "years", "--annual", "--json").out)
    assert document["dataset_id"] == "00000000-0000-4000-8000-000000000001"
    assert document["periods"] == [
        {"year": year, "end_month": 12, "duration_months": 12} for year in (2022, 2023, 2024)
    ]
    numbers = {
        series["series_id"]: [value and value["number"] for value in series["values"]]
        for series in document["series"]
    }
    assert numbers == {"S-1": [1200, 1300, HUGE], "S-2": [0, None, 5], "S-3": [None, None, 700]}
    assert document["series"][2]["scopes"][1] == {"scope_group_id": "product", "scope_id": "a=b|c"}
    assert document["series"][0]["values"][0]["report_period"]["duration_months"] == 0
    assert (document["value_version"], document["unlisted"], document["anchor"]) == ("original", [], None)
    assert document["requests"] == 2


def test_restated_values_are_requested(command: Command) -> None:
    """With --restated the latest restated value takes the place of the original one."""
    out = command("query", ENTITY, "--metric", "Revenue", "--exact", "FY2022", "--csv", "--restated").out
    assert out.splitlines()[1].endswith(",1150")


@pytest.mark.parametrize(
    ("options", "periods"),
    [
        ([], {"mode": "fiscal_range", "from": (2022, 12), "to": (2024, 12)}),
        (["--from", "2023"], {"mode": "fiscal_range", "from": (2023, 1), "to": (2024, 12)}),
        (["--from", "2023-04", "--to", "FY2024-Q1"],
         {"mode": "fiscal_range", "from": (2023, 4), "to": (2024, 3)}),
        (["--from", "FY2024", "--to", "FY2024"],
         {"mode": "fiscal_range", "from": (2024, 1), "to": (2024, 12)}),
        (["--quarterly", "--from", "FY2024", "--to", "2024-Q3"], {"mode": "exact", "exact": [(2024, 3, 3)]}),
        (["--annual", "--last", "2"], {"mode": "exact", "exact": [(2023, 12, 12), (2024, 12, 12)]}),
        (["--annual", "--to", "FY2023"], {"mode": "exact", "exact": [(2022, 12, 12), (2023, 12, 12)]}),
        (["--quarterly"], {"mode": "exact", "exact": [(2024, 3, 3)]}),
        (["--exact", "FY2024-Q1", "--exact", "FY2022"],
         {"mode": "exact", "exact": [(2024, 3, 3), (2022, 12, 12)]}),
        (["--trailing", "12"], {"mode": "fiscal_range", "from": (2022, 12), "to": (2024, 12)}),
    ],
)  # fmt: skip
def test_period_options_reach_the_service(
    command: Command, service: Sandbox, options: list[str], periods: dict[str, Any]
) -> None:
    """The period options become the period selection of spec 4.3."""
    assert command("query", ENTITY, *options).code == 0
    sent = service.log[-1].body["periods"]
    assert {name: _short(part) for name, part in sent.items()} == periods


def _short(part: Any) -> Any:
    """A period of the request as a tuple, without the duration 0 of range ends."""
    if isinstance(part, list):
        return [_short(each) for each in part]
    if isinstance(part, dict):
        ends = (part["year"], part["end_month"])
        return (*ends, part["duration_months"]) if part["duration_months"] else ends
    return part


@pytest.mark.parametrize(
    ("options", "series_ids"),
    [
        ([], {"S-1", "S-2", "S-3", "S-4"}),
        (["--metric", "Debt"], {"S-2"}),
        (["--series", "S-4", "--series", "S-1"], {"S-1", "S-4"}),
        (["--metric", "Debt", "--metric", "Revenue", "--group", "years"], {"S-1", "S-2", "S-3"}),
        (["--scope", ODD_PATH], {"S-3"}),
        (["--scope-group", "company"], {"S-1", "S-2", "S-4"}),
        (["--scope-group", "company", "--scope-group", "product"], {"S-3"}),
        (["--basis", "product"], {"S-4"}),
        (["--cadence", "annual", "--metric", "Revenue"], {"S-1", "S-3"}),
        (["--period-meaning", "over_period", "--cadence", "quarterly"], {"S-4"}),
    ],
)
def test_each_selection_option_narrows_the_series(
    command: Command, options: list[str], series_ids: set[str]
) -> None:
    """Options together narrow, and a repeated one takes any of its values."""
    result = command("query", ENTITY, *options, "--json")
    assert {series["series_id"] for series in json.loads(result.out)["series"]} == series_ids


def test_comparison_is_one_json_object(command: Command) -> None:
    """Each document is that of the entity alone, the spent requests included; what failed is next to them."""
    both = json.loads(command("query", ENTITY, RATIOS_ENTITY, "--metric", "Revenue", "--json").out)
    alone = [
        json.loads(command("query", each, "--metric", "Revenue", "--json").out)
        for each in (ENTITY, RATIOS_ENTITY)
    ]
    assert both == {
        "panels": alone,
        "failed": {},
        "missing": {},
        "requests": sum(each["requests"] for each in alone),
    }


def test_comparison_has_what_each_has(command: Command) -> None:
    """A company without any of the ids is a line on standard error; an id that none has is an error."""
    asked = ("query", ENTITY, RATIOS_ENTITY, "--metric", "Debt", "--annual")
    result = command(*asked)
    assert result.code == 0
    assert result.out.count("Ratios has no metric 'Debt'") == 1
    assert result.err == ""
    assert command(*asked, "--csv").line == "asyncfin: Ratios has no metric 'Debt'"
    assert command(*asked, "--metric", "Revenue").err == ""
    partly = command("query", ENTITY, RATIOS_ENTITY, "--metric", "Revenue", "--metric", "Foo")
    assert partly.code == 2
    assert "--metric: no entity has the metric 'Foo'" in partly.line
    empty = command(*asked, "--metric", "Foo")
    assert "Ratios has no metric 'Debt'\n" in empty.out
    unknown = command("query", ENTITY, RATIOS_ENTITY, "--metric", "Revenues")
    assert (unknown.code, unknown.out) == (2, "")
    assert "no entity has the metric 'Revenues'" in unknown.line
    assert "'Revenues' (close: Revenue" in unknown.line


@pytest.mark.parametrize("periods", [["--annual"], ["--trailing", "24"], []])
@pytest.mark.parametrize("form", [[], ["--csv"], ["--json"]])
def test_failed_entity_leaves_the_others(command: Command, form: list[str], periods: list[str]) -> None:
    """Its error is a line, and the exit code is 1."""
    result = command("query", ENTITY, UNKNOWN_ID, RATIOS_ENTITY, "--metric", "Revenue", *form, *periods)
    assert result.code == 1
    for name, entity_id in (("Example [AG]", ENTITY), ("Ratios", RATIOS_ENTITY)):
        assert (entity_id if form else name) in result.out
    assert (UNKNOWN_ID in result.out) == (form in ([], ["--json"]))  # in a note, and in `failed`
    first, last = result.err.splitlines()
    assert first.startswith(f"asyncfin: {UNKNOWN_ID}: 404")
    assert last.startswith("asyncfin: 1 of 3 entities failed")


def test_entity_without_the_query_is_named(command: Command) -> None:
    """It is not a failure; if all have nothing, it is exit code 2."""
    asked = ("query", ENTITY, RATIOS_ENTITY, "--metric", "Earnings")
    result = command(*asked)
    assert (result.code, result.err) == (0, "")
    assert "Example [AG] has no metric 'Earnings'" in result.out
    periods = command("query", LONG_ENTITY, RATIOS_ENTITY, "--metric", "Revenue", "--exact", "FY2010")
    assert periods.code == 0
    assert (periods.err, "Ratios has no FY2010" in periods.out) == ("", True)
    for options in (["--exact", "FY1999"], ["--annual", "--from", "2090"]):
        nothing = command("query", ENTITY, RATIOS_ENTITY, *options)
        assert (nothing.code, nothing.out) == (2, "")


def test_explain_says_what_planning_has_spent(command: Command) -> None:
    """For one entity."""
    assert command("query", ENTITY, "--explain").out.endswith("planning has spent 1 request\n")
    assert command("query", ENTITY, RATIOS_ENTITY, "--explain").code == 2


@pytest.mark.parametrize("arguments", [("query", "--explain"), ("catalogue", "--publication")])
def test_output_begins_after_progress(service: Sandbox, arguments: tuple[str, str]) -> None:
    """On a terminal the line of the progress is gone by then, and the cursor is back."""
    terminal = Terminal(*arguments, ENTITY, sandbox=service)
    assert terminal.end() == 0
    assert terminal.written.index(b"\x1b[?25h") < terminal.written.index(b"Example [AG]")


def test_latest_values_have_their_own_periods(command: Command) -> None:
    """All years are queried; the last one of each series is a line, in every form."""
    asked = ("query", LONG_ENTITY, RATIOS_ENTITY, "--metric", "Revenue", "--latest", "1")
    result = command(*asked)
    assert result.code == 0
    assert result.out.startswith("2 companies, original values\n")
    rows = json.loads(command(*asked, "--json").out)
    assert rows
    assert re.search("^Ratios: publication ", result.out, re.MULTILINE)
    alone = command("query", RATIOS_ENTITY, "--metric", "Revenue", "--latest", "1")
    assert alone.out.count("publication ") == 1
    for row in rows:
        assert re.search(
            rf"{row['entity_name']}.* {row['period_label']} +{re.escape(row['text'])}", result.out
        )
    found = list(csv.DictReader(io.StringIO(command(*asked, "--csv").out)))
    assert [row["period_label"] for row in found] == [row["period_label"] for row in rows]
    annual = command(*asked, "--annual", "--unit", "thousands")
    assert (annual.code, "in thousands" in annual.out, "publication " in annual.out) == (0, True, True)
    rejected = command(*asked, "--annual", "--last", "2")
    assert (rejected.code, "leave --last out" in rejected.line) == (2, True)
