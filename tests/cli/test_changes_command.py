"""`asyncfin changes` and `asyncfin as-of`: what a change feed holds, in each form."""

import asyncio
import csv
import io
import json
import re
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from asyncfin import Client, FiscalRange, Select, extract
from asyncfin.sandbox import Sandbox
from tests.cli.conftest import ENTITY, LONG_ENTITY, Command
from tests.extraction.conftest import clocked
from tests.nights import BEGIN, Cell, Key, entity, publication


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of what `night` and `feed` extract once; each test gets a copy."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def night(command: Command, kept: Path, tmp_path: Path) -> str:
    """An extraction of two companies, of which one was pruned by the second run."""
    if not (kept / "night").exists():
        asked = ("--into", str(tmp_path / "night"), "--metric", "Revenue", "--annual", "--quiet")
        assert command("extract", ENTITY, LONG_ENTITY, *asked, "--history").code == 0
        assert "not in the list: 1 (--prune deletes them)" in command("extract", ENTITY, *asked).out
        assert command("extract", ENTITY, *asked, "--prune").code == 0
        shutil.copytree(tmp_path, kept / "night")
    shutil.copytree(kept / "night", tmp_path, dirs_exist_ok=True)
    return str(tmp_path / "night")


def test_changes_are_shown_as_a_table(command: Command, service: Sandbox, night: str) -> None:
    """The newest first, with how many there are of each kind; those that began the feed are one line."""
    before = len(service.log)
    result = command("changes", night)
    lines = result.out.splitlines()
    assert lines[0].split() == [
        *("known", "from", "change", "entity", "label", "scope", "path", "group", "period"),
        *("before", "now", "percent"),
    ]
    runs = sorted({row["run"] for row in json.loads(command("changes", night, "--json").out)})
    assert lines[-2] == "19 rows with which entities entered the feed: --change appeared shows them"
    assert lines[-1] == (
        "34 changes in 2 runs: 19 appeared, 0 restated, 0 relabelled, 15 vanished;"
        f" the last run is {runs[-1]}"
    )
    assert sum("vanished" in line for line in lines[1:-2]) == 15
    assert not any("appeared" in line for line in lines[1:-2])
    assert result.err == ""
    assert (
        sum("appeared" in line for line in command("changes", night, "--change", "appeared").out.splitlines())
        == 20
    )
    assert len(service.log) == before


def run_nights(to: Path, *contents: dict[str, Any]) -> None:
    """Extract companies with a feed, a night for each of these contents by company, from 2025-01-02 on."""

    async def nights() -> None:
        first = [
            publication(content, number=900 + at, of=of)
            for at, (of, content) in enumerate(contents[0].items())
        ]
        others = [publication({}, number=990, of=of) for of in contents[-1] if of not in contents[0]]
        async with Sandbox(*first, *others) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
            for night, by_entity in enumerate(contents, 1):
                for at, (of, content) in enumerate(by_entity.items()):
                    created = BEGIN + timedelta(days=night)
                    sandbox.publish(publication(content, number=10 * night + at, of=of, created=created))
                now = BEGIN + timedelta(days=night, hours=1)
                await extract(
                    clocked(client, lambda at=now: at),
                    list(by_entity),
                    Select(),
                    FiscalRange(),
                    to=to,
                    history=True,
                )

    asyncio.run(nights())


REVENUE, MARGIN = Key("S-1"), Key("S-2", "Margin")


@pytest.fixture
def feed(kept: Path, tmp_path: Path) -> str:
    """Three nights: a restatement of two metrics, and a company that enters with the last one."""
    if not (kept / "feed").exists():
        run_three_nights(tmp_path / "feed")
        shutil.copytree(tmp_path, kept / "feed")
    shutil.copytree(kept / "feed", tmp_path, dirs_exist_ok=True)
    return str(tmp_path / "feed")


def run_three_nights(to: Path) -> None:
    one, two = entity(1), entity(2)
    first = {REVENUE: {"FY2020": Cell(1000), "FY2021": Cell(0)}, MARGIN: {"FY2020": Cell(-4, "%")}}
    second = {REVENUE: {"FY2020": Cell(1250), "FY2021": Cell(7)}, MARGIN: {"FY2020": Cell(-3, "%")}}
    third = {REVENUE: {"FY2020": Cell(1250, "refiled")}, MARGIN: second[MARGIN]}
    run_nights(to, {one: first}, {one: second}, {one: third, two: {REVENUE: {"FY2020": Cell(5)}}})


def cells(out: str) -> list[list[str]]:
    """The rows of a printed table: columns are two blanks apart."""
    lines = out.splitlines()
    ends = [at for at, line in enumerate(lines) if not line]
    return [re.split(r" {2,}", line.rstrip()) for line in lines[2 : ends[0]]]


def test_rows_have_texts_and_percent(command: Command, feed: str) -> None:
    """Relative to the absolute value before; of restated rows whose old value is not 0. The newest first."""
    out = command("changes", feed).out
    name = "Company 0001"
    revenue = [name, "Revenue as S-1", "company=all", "annual"]
    margin = [name, "Margin as S-2", "company=all", "annual"]
    last, before = ["2025-01-04 06:00"], ["2025-01-03 06:00"]
    assert cells(out) == [
        [*last, "relabelled", *revenue, "FY2020", "1,250 filed", "1,250 refiled"],
        [*last, "vanished", *revenue, "FY2021", "7 filed"],
        [*before, "restated", *revenue, "FY2020", "1,000 filed", "1,250 filed", "+25.0%"],
        [*before, "restated", *revenue, "FY2021", "0 filed", "7 filed"],
        [*before, "restated", *margin, "FY2020", "-4 %", "-3 %", "+25.0%"],
    ]
    assert out.splitlines()[-2:] == [
        "4 rows with which entities entered the feed: --change appeared shows them",
        "9 changes in 3 runs: 4 appeared, 3 restated, 1 relabelled, 1 vanished;"
        " the last run is 20250104T070000.000000Z",
    ]


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ((), 9),
        (("--last",), 3),
        (("--since", "2025-01-03"), 6),
        (("--change", "restated"), 3),
        (("--change", "restated", "--change", "vanished"), 4),
        ((entity(2),), 1),
        (("second", entity(1), "--last"), 3),
        (("second", "--change", "restated"), 0),
        (("--since", "2999-01-01"), 0),
    ],
)
def test_filters_apply_to_all_forms(
    command: Command, feed: str, tmp_path: Path, arguments: tuple[str, ...], count: int
) -> None:
    """The table, --json and --csv; nothing left is no error."""
    (tmp_path / "names.csv").write_text(f"id,name,aliases\n{entity(2)},second,\n")
    asked = ("changes", feed, *arguments, "--names", str(tmp_path / "names.csv"))
    assert len(json.loads(command(*asked, "--json").out)) == count
    reader = csv.DictReader(io.StringIO(command(*asked, "--csv").out))
    assert len(list(reader)) == count
    assert {"scopes", "scope_path"}.intersection(reader.fieldnames or ()) == {"scope_path"}
    shown = command(*asked)
    assert shown.code == 0
    assert f"{count} change" in shown.out if count else shown.out == "no changes\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("changes", "FEED", entity(9)), f"{entity(9)}' is not in the change feed of FEED, which has"),
        (("changes", "FEED", entity(9)), f"{entity(1)} (Company 0001), {entity(2)} (Company 0002)"),
        (("changes", "FEED", "acme"), "no entity has the name 'acme'"),
        (("changes", "FEED", "--change", "moved"), 'Choose from: "appeared", "restated"'),
        (("changes", "FEED", "--last", "--since", "2025-01-01"), "--since and --last exclude each other"),
        (("as-of", "FEED", "2025-02-01", entity(9)), "is not in the change feed of"),
    ],
)
def test_what_the_feed_lacks_is_rejected(
    command: Command, feed: str, arguments: tuple[str, ...], said: str
) -> None:
    """With what it has."""
    result = command(*(each.replace("FEED", feed) for each in arguments))
    assert (result.code, result.out) == (2, "")
    assert said.replace("FEED", feed) in result.line


def test_state_names_later_companies(command: Command, feed: str) -> None:
    """Below the table; with the other forms on standard error."""
    said = "in the feed only later: Company 0002 (from 2025-01-04)"
    shown = command("as-of", feed, "2025-01-03")
    assert shown.out.splitlines()[-2:] == [said, "3 rows of 1 entity"]
    written = command("as-of", feed, "2025-01-03", "--json")
    assert (len(json.loads(written.out)), written.err.strip()) == (3, said)
    assert said not in command("as-of", feed, "2025-01-03", entity(1)).out
    alone = command("as-of", feed, "2025-01-03", entity(2))
    assert (alone.code, alone.out) == (0, f"{said}\n0 rows of 0 entities\n")
    assert command("as-of", feed, "2025-01-05", entity(2), "--json").err == ""


def test_the_state_at_a_time(command: Command, night: str) -> None:
    """Nothing before the publications, both companies after, and the one that is left at last."""
    assert command("as-of", night, "2025-02-01").out.splitlines()[-1] == "0 rows of 0 entities"
    shown = command("as-of", night, "2025-02-01T06:00:00Z").out
    assert "19 rows of 2 entities" in shown
    assert "Sales of all kinds" in shown
    assert "4 rows of 1 entity" in command("as-of", night, "2999-01-01").out


def test_rows_of_both_versions_are_distinguished(command: Command, tmp_path: Path) -> None:
    """A column says which version was requested: two rows of one cell can differ."""
    into = str(tmp_path / "both")
    asked = ("--metric", "Revenue", "--annual", "--quiet", "--both", "--history")
    assert command("extract", ENTITY, "--into", into, *asked).code == 0
    for shown in (command("changes", into, "--change", "appeared"), command("as-of", into, "2999-01-01")):
        lines = [line.split() for line in shown.out.splitlines()]
        assert lines[0][-3:] in (["before", "now", "percent"], ["asked", "version", "value"])
        assert lines[0].count("version") == 1
        assert {word for line in lines[2:] for word in line if word in ("original", "latest_restated")} == {
            "original",
            "latest_restated",
        }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("as-of", "NIGHT", "noon"), "the time must be a date, or a time with its zone"),
        (("changes", "NIGHT", "--since", "noon"), "--since must be"),
        (("changes", "NIGHT", "--csv", "--json"), "exclude each other"),
        (("changes", "NIGHT2"), "there is no folder"),
        (("as-of", "NIGHT2", "2025-01-01"), "there is no folder"),
    ],
)
def test_wrong_usage_is_one_line(command: Command, night: str, arguments: tuple[str, ...], said: str) -> None:
    """It says what to write."""
    result = command(*(each.replace("NIGHT", night) for each in arguments))
    assert result.code == 2
    assert said in result.line
