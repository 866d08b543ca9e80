"""`asyncfin catalogue --search`, and `asyncfin catalogue` of several entities."""

import csv
import io
import json
from pathlib import Path

import pytest

from tests.cli.conftest import ENTITY, LONG_ENTITY, RATIOS_ENTITY, UNKNOWN_ID, Command


def cells(out: str) -> list[list[str]]:
    """Return the rows of a printed table, split at two blanks."""
    return [line.split("  ") for line in out.splitlines()]


def test_search_rows_are_ranked(command: Command) -> None:
    """With the entities that have it; `all` if all of them do."""
    table = command("catalogue", "--search", "sales", ENTITY, RATIOS_ENTITY)
    head, _, *rows = [[cell.strip() for cell in row if cell.strip()] for row in cells(table.out)]
    assert head == ["metric", "label", "scopes", "entities"]
    assert rows[0] == ["Revenue", "Sales", "all", "all"]


def test_search_as_json_and_csv(command: Command) -> None:
    """Ids, and no names; CSV has no lists."""
    words = ("catalogue", "--search", "revenue", ENTITY, RATIOS_ENTITY)
    document = json.loads(command(*words, "--json").out)
    assert document[0] == {
        "metric_id": "Revenue",
        "series_label": document[0]["series_label"],
        "scope_path": "company=all",
        "reporting_group_ids": document[0]["reporting_group_ids"],
        "entity_ids": [ENTITY, RATIOS_ENTITY],
        "last_value": None,
    }
    assert set(document[0]["reporting_group_ids"]) == {"years", "quarters"}
    (first, *_) = csv.DictReader(io.StringIO(command(*words, "--csv").out))
    assert first.keys() == document[0].keys() - {"reporting_group_ids", "entity_ids"}


def test_series_that_end_early_rank_behind(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the cached values of the publication; with an empty cache by the words alone."""
    monkeypatch.setenv("ASYNCFIN_CACHE", str(tmp_path))
    words = ("catalogue", LONG_ENTITY, "--search", "debt revenue")
    assert "no value since" not in command(*words).out
    assert command("query", LONG_ENTITY).code == 0
    assert "Debt (no value since FY2010)" in command(*words).out


def test_search_says_what_is_only_close(command: Command) -> None:
    """On standard error, whatever the form."""
    close = "asyncfin: nothing has all these words; the series are close to them"
    for form in ((), ("--json",)):
        result = command("catalogue", "--search", "debt moonbase", ENTITY, *form)
        assert (result.code, result.line) == (0, close)
        assert "Debt" in result.out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["xyzzy", ENTITY], 2, "no series has the words 'xyzzy'"),
        (["debt"], 2, "no entity is given"),
        (["  ", ENTITY], 2, "--search has no words"),
        (["debt", ENTITY, "--metric", "Debt"], 2, "leave the other selection out"),
        (["debt", UNKNOWN_ID], 4, "404"),
        (["debt", ENTITY, UNKNOWN_ID], 1, "1 of 2 entities failed"),
    ],
)
def test_failed_search_is_one_line(command: Command, arguments: list[str], code: int, said: str) -> None:
    """What some entities have is printed in either case."""
    result = command("catalogue", "--search", *arguments)
    assert (result.code, said in result.err) == (code, True), result.err
    assert ("Debt" in result.out) == (code == 1)


def test_catalogues_as_csv_and_json(command: Command) -> None:
    """One after the other, also in the table; a list of the documents of one."""
    consolidated = ("--basis", "consolidated")
    tables = [command("catalogue", entity, *consolidated).out for entity in (RATIOS_ENTITY, LONG_ENTITY)]
    assert command("catalogue", RATIOS_ENTITY, LONG_ENTITY, *consolidated).out == "\n".join(tables)
    first, second = (command("catalogue", entity, "--csv").out for entity in (ENTITY, RATIOS_ENTITY))
    lines = command("catalogue", ENTITY, RATIOS_ENTITY, "--csv").out.splitlines()
    assert lines == first.splitlines() + second.splitlines()[1:]
    documents = json.loads(command("catalogue", ENTITY, RATIOS_ENTITY, "--metric", "Debt", "--json").out)
    alone = json.loads(command("catalogue", ENTITY, "--metric", "Debt", "--json").out)
    assert documents[0] == alone
    assert (documents[1]["entity_id"], documents[1]["groups"]) == (RATIOS_ENTITY, [])


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([ENTITY, RATIOS_ENTITY, "--metric", "Debt"], 0, ""),
        (
            [ENTITY, RATIOS_ENTITY, "--metric", "Gold"],
            2,
            "no entity has the metric",
        ),
        ([ENTITY, UNKNOWN_ID, "--metric", "Debt"], 1, "1 of 2 entities failed"),
        ([ENTITY, RATIOS_ENTITY, "--publication"], 2, "--publication is for one entity"),
        ([], 2, "no entity is given"),
    ],
)
def test_catalogues_without_the_selection_fail(
    command: Command, arguments: list[str], code: int, said: str
) -> None:
    """What one of them does not have is a dot; one that fails leaves the others."""
    result = command("catalogue", *arguments)
    assert (result.code, said in result.err) == (code, True), result.err
    assert ("Debt" in result.out) == (code < 2)
