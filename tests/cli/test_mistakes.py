"""Mistakes of a first day: one line that says what to write, and no request is spent."""

import errno
import socket
from pathlib import Path

import pytest

from asyncfin.cli.errors import name_options
from asyncfin.sandbox import Sandbox
from tests.cli.conftest import ENTITY, RATIOS_ENTITY, Command

# The command line after `asyncfin`, with E for an entity, and what its line must contain.
MISTAKES = [
    # Periods.
    ("query E --exact FY23", 'write "FY2023"'),
    ("query E --exact 1Q23", 'write "FY2023-Q1"'),
    ("query E --exact Q1-2023", "--exact must be a label such as FY2024"),
    ("query E --to 2023Q1", 'write "FY2023-Q1"'),
    ("query E --to 2024-13", "the fiscal month must be a whole number from 1 to 12, not 13"),
    ("query E --from 2024 --to 2023", "--to must not be before the start: FY2023-12 is before FY2024-01"),
    ("query E --to 2024-Q5", "--to must be a year, a fiscal month"),
    ("query E --exact FY2024 --exact FY2024", "must be distinct: FY2024 is named twice"),
    ("query E --trailing 12 --from 2023", "--trailing takes neither --from nor --to"),
    ("query E --trailing 0", "--trailing must be"),
    ("query E --annual --last five", "--last: 'five' is not a whole number"),
    ("query E --annual --last 2.5", "--last: '2.5' is not a whole number"),
    ("query E --annual --last 0", "--last must be a whole number from 1 to 9999, not 0"),
    ("query E --last 5", "--last goes with --annual, --quarterly or --half-yearly: add one of them"),
    ("query E --explain --all", "--explain and --all exclude each other"),
    ("query E --ttm", "there is no --ttm: write asyncfin.last_twelve_months in Python"),
    ("query E --plot x.png", "there is no --plot: write panel.plot() in Python"),
    ("query E --latest 1 --all", "--latest and --all exclude each other"),
    ("query E --quarters", "--quarters. Did you mean --quarterly?"),
    ("query E --annual --quarterly", "--annual and --quarterly exclude each other: choose one"),
    ("extract E --into night --history --trailing 12", "when you read"),
    ("query E --annual=5", "Invalid value for --annual"),
    # Entities.
    ("query", "no entity is given: give entity ids or names"),
    ("query AAPL", "no entity has the name 'AAPL': give its id, O- and 32 characters, or"),
    ("check E another", "Unused Tokens: ['another']; see --help"),
    ("check id:", "entity must be an id"),
    ("extract --into night", "no entity is given: give entity ids or names"),
    ("extract --ids missing.txt --into night", "--ids missing.txt can't be read (No such file or directory)"),
    ("names E --into no/such/folder.csv", "no/such is not a folder"),
    ("check E --names missing.csv", "--names: missing.csv can't be read (No such file or directory)"),
    ("extract E --into night --history --annual --last 3", "not the last 3 fiscal years, which each"),
    # Series.
    ("query E --metrics Revenue", "Unknown option: --metrics. Did you mean --metric?"),
    ("query E --scope segment", "must be written group=scope|group=scope"),
    # Output.
    ("extract E", "--into needs a value"),
    ("catalogue E --search", "--search needs a value"),
    ("names apple --into names.csv", "give its id, O- and 32 characters, or"),
    ("as-of night", "WHEN needs a value"),
    ("extract E --into / --annual", "--into: / is a mount point"),
    ("extract E --into night --fresh-for 20", "--fresh-for must be a number with s, m, h or d"),
    ("extract E --into night --rate 0", "--rate must be a finite number above 0, not 0.0"),
    ("status nofolder --json", "nofolder is not the folder of an extraction"),
    ("record E --into ids.txt", "--into ids.txt is not a folder: give a folder or a new path"),
    ("explore E --root-path /x", "write a program that mounts asyncfin.web.explorer"),
    ("query E --json --csv", "--json and --csv exclude each other: choose one"),
    ("query E --unit million", 'Choose from: "thousands", "millions", "billions", "auto"'),
    ("query E --csv --unit millions", "--csv and --unit exclude each other"),
    # The account and the service.
    ("usage --from 01/02/2026", "Invalid value for --from"),
    ("usage --from 2026-13-01", 'unable to convert "2026-13-01" into date; see --help'),
    ("usage --from 2026-02-01 --to 2026-01-01", "--to must not be before --from"),
    ("usage --token abc", "Unknown option: --token. Did you mean --token-file?"),
    ("usage --base-url http://example.org", "unless the host is this machine or --allow-http is set"),
    ("usage --base-url example.org", "--base-url or ASYNCFIN_BASE_URL must be https://host"),
    ("usage --base-url https://example.org/v1", "must not end in /v1"),
    ("usage --token-file missing.txt", "--token-file can't be read (No such file or directory)"),
    ("usage --token-file empty.txt", "is empty: its first line is the token"),
    ("extract E --into x --refresh --fresh-for 1h", "--refresh reads every entity again: leave out --fresh"),
    # Commands, and names that are gone.
    ("limits", "there is no limits: write asyncfin usage --limits"),
    ("completion", "write asyncfin --install-completion"),
    ("changes night --to 2026-01-31", "Unknown option: --to; see --help"),
    ("as-of night 2026-01-31 --to 2026-02-28", "Unknown option: --to; see --help"),
    ("querry E", 'Unknown command "querry". Did you mean "query"?'),
    ("sandbox --port x", "Invalid value for --port"),
    ("sandbox ids.txt --port 0", "ids.txt: $: is not JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "said"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_a_mistake_is_one_line(
    command: Command, service: Sandbox, line: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2, nothing on standard output, and no request."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ids.txt").write_text(ENTITY)
    (tmp_path / "empty.txt").touch()
    before = len(service.log)
    result = command(*(ENTITY if word == "E" else word for word in line.split()))
    assert (result.code, result.out, len(service.log)) == (2, "", before)
    assert result.line.startswith("asyncfin: ")
    assert said in result.line


@pytest.mark.parametrize("line", [line for line, _ in MISTAKES if "abc" in line])
def test_token_as_argument_is_not_printed(command: Command, line: str) -> None:
    """Terminals and logs keep what is printed."""
    assert "abc" not in command(*line.split()).err


def test_unknown_names_in_one_message(command: Command, tmp_path: Path) -> None:
    """AAPL resembles no name."""
    path = tmp_path / "names.csv"
    path.write_text(f"id,name,aliases\n{ENTITY},Apple,\n{RATIOS_ENTITY},NVIDIA,\n")
    result = command("catalogue", "--publication", "AAPL", "--names", str(path))
    assert result.code == 2
    assert "no entity has the name 'AAPL'" in result.line
    # All unknown words are in one message.
    line = command("query", "apple", "nvidai", "xyz", "--names", str(path)).line
    assert "'nvidai' (close: NVIDIA) or 'xyz'" in line


def test_port_in_use_is_one_line(command: Command) -> None:
    """Without the log of the server."""
    pytest.importorskip("uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = command("explore", ENTITY, "--port", str(port))
    assert result.code == 2
    assert result.line.startswith(f"asyncfin: --port {port} can't be used (Address already in use): choose")


def test_explorer_listens_on_this_machine_only(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its visitors spend requests."""
    pytest.importorskip("uvicorn")
    listened: list[object] = []

    def create_server(address: object, **_: object) -> socket.socket:
        listened.append(address)
        raise OSError(errno.EADDRINUSE, "in use")

    monkeypatch.setattr(socket, "create_server", create_server)
    assert command("explore", ENTITY, "--port", "8766").code == 2
    assert listened == [("127.0.0.1", 8766)]


def test_texts_have_options() -> None:
    """In place of the library's names for them."""
    text = "none has metric_ids 'x': the option `allow_missing` reads them"
    assert name_options(text) == "none has --metric 'x': --allow-missing reads them"
