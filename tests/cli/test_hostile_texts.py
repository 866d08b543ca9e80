"""Texts of the service that mean to do something: to a terminal, or in a spreadsheet."""

import csv
import io
import json
import sys
from collections.abc import Iterator

import pytest

from asyncfin.sandbox import Sandbox
from tests.cli.conftest import Command, Terminal, series, serving, small

EVIL_ENTITY = "O-" + "0" * 31 + "9"
HARM = "\x1b[31m\x9b32m\u202e\x07\nforged"
FORMULA = '=HYPERLINK("http://localhost","x")'
EVIL = small(
    EVIL_ENTITY,
    f"Evil{HARM}",
    range(2023, 2025),
    [
        {
            "reporting_group_id": "years",
            "name": f"Years{HARM}",
            "basis": f"consolidated{HARM}",
            "cadence": "annual",
            "series": [
                series("S-1", "Revenue", f"Sales{HARM}") | {"description": f"About{HARM}"},
                series("S-2", "Debt", FORMULA),
                series("S-3", "Costs", "- other costs"),
            ],
        }
    ],
    {"S-1": [[0, 1200], [1, -1300]], "S-2": [[1, 5]], "S-3": [[1, -7.5]]},
)


@pytest.fixture(scope="module")
def running() -> Iterator[Sandbox]:
    """A sandbox of the hostile dataset."""
    with serving(EVIL) as sandbox:
        yield sandbox


SHOWN = [
    "catalogue --publication",
    "catalogue --publication --json",
    "catalogue --csv",
    "catalogue --json",
    "query",
    "query --csv",
    "query --json",
    "query --explain",
]
# One process for all of them: each would import the library.
ALL = """
import sys
from asyncfin.cli.app import run

entity_id, *lines = sys.argv[1:]
for line in lines:
    name, *options = line.split()
    print("exit code", run([name, entity_id, *options]), flush=True)
"""


@pytest.fixture(scope="module")
def written(running: Sandbox) -> dict[str, bytes]:
    """What each command writes to a terminal; each has ended with exit code 0."""
    terminal = Terminal("-c", ALL, EVIL_ENTITY, *SHOWN, sandbox=running)
    assert terminal.end() == 0
    *parts, rest = terminal.written.split(b"exit code 0\r\n")
    assert rest == b"", rest
    return dict(zip(SHOWN, parts, strict=True))


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals on Windows")
@pytest.mark.parametrize("line", SHOWN)
def test_nothing_harmful_reaches_a_terminal(written: dict[str, bytes], line: str) -> None:
    """Control characters and marks of direction are shown as escapes on a terminal."""
    for harm in (b"\x1b[31m", "\x9b".encode(), "\u202e".encode(), b"\x07"):
        assert harm not in written[line]
    assert b"\nforged" not in written[line]
    if "--explain" not in line:
        assert b"x1b[31m" in written[line] or b"u001b[31m" in written[line]


def test_files_and_pipes_get_original_texts(command: Command) -> None:
    """JSON escapes what it must, and says the same; CSV holds the very signs."""
    document = json.loads(command("query", EVIL_ENTITY, "--json").out)
    assert document["series"][0]["label"] == f"Sales{HARM}"
    rows = list(csv.DictReader(io.StringIO(command("query", EVIL_ENTITY, "--csv").out)))
    assert rows[0]["series_label"] == f"Sales{HARM}"


def test_formulas_are_defused(command: Command) -> None:
    """Numbers keep their signs."""
    rows = list(csv.DictReader(io.StringIO(command("query", EVIL_ENTITY, "--csv").out)))
    assert [row["series_label"] for row in rows[1:]] == [f"'{FORMULA}", "'- other costs"]
    assert (rows[0]["FY2024"], rows[2]["FY2024"]) == ("-1300", "-7.5")
