"""`asyncfin sandbox --demo`: the stranger's first look."""

import re
import sys
from itertools import takewhile
from pathlib import Path

import pytest

from asyncfin.cli.output import screen
from asyncfin.cli.tour import print_next
from tests.cli.conftest import Result, Terminal, finish, start


@pytest.fixture(scope="module")
def piped() -> Result:
    """The demo's output in pipes."""
    return finish(start("sandbox", "--demo"))


def test_the_demo_needs_no_service_and_says_nothing_else(piped: Result) -> None:
    """The demo runs without any environment, ends well, and says nothing else."""
    assert (piped.code, piped.err) == (0, "")


def test_the_demo_is_plain_text_of_80_columns_in_a_pipe(piped: Result) -> None:
    """No colours, no line that would wrap."""
    assert "\x1b" not in piped.out
    assert max(map(len, piped.out.splitlines())) <= 80


def test_the_demo_lists_the_companies_and_shows_figures_with_bars(piped: Result) -> None:
    """Apple's revenue of the fiscal years 2021 to 2025, in billions, as it was filed."""
    assert all(name in piped.out for name in ("Apple", "NVIDIA", "Alphabet"))
    row = next(line for line in piped.out.splitlines() if line.startswith("Revenue "))
    assert re.fullmatch(r"Revenue +365\.8 +394\.3 +383\.3 +391\.0 +416\.2 +[▁-█]{10} *", row)


def test_the_demo_lists_products_and_no_sum_of_them(piped: Result) -> None:
    """The filings have "All products" too, which would count twice next to the products."""
    _, _, products = piped.out.partition("Revenue by product")
    lines = takewhile(str.strip, products.splitlines()[1:])
    listed = [line.strip().split("  ")[0] for line in lines]
    assert {"Mac", "Services", "iPad", "iPhone"} < set(listed)
    assert len(listed) == 5
    assert "All products" not in piped.out


def test_the_demo_says_what_it_cost(piped: Result) -> None:
    """The requests are counted by operation, and add up."""
    found = re.search(r"in (\d+) requests: (\d+) catalogue, (\d+) query\.", piped.out)
    assert found
    total, *parts = map(int, found.groups())
    assert total == sum(parts)


@pytest.mark.parametrize(("found", "in_nox"), [(False, False), (True, False), (True, True)])
def test_what_to_run_next_can_be_run(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    found: bool,
    in_nox: bool,
) -> None:
    """Where the command is not on the user's own path, the line that installs it comes first.

    A session of nox has its own path, as the demo of the README does.
    """
    if found:
        script = tmp_path / "asyncfin"
        script.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("NOX_CURRENT_SESSION", raising=False)
    if in_nox:
        monkeypatch.setenv("NOX_CURRENT_SESSION", "demo")
    print_next(screen(80))
    first, *rest = capsys.readouterr().out.split("Next\n")[1].splitlines()
    runs = found and not in_nox
    assert first.startswith("  asyncfin sandbox " if runs else '  python -m pip install -e ".[all]" ')
    assert max(map(len, [first, *rest])) <= 80


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals on Windows")
def test_the_demo_fits_a_terminal_of_80_columns() -> None:
    """There it has colours and shows progress, and no line is wider than the terminal."""
    terminal = Terminal("sandbox", "--demo")
    assert terminal.end() == 0
    assert "Reading from the sandbox: 8 requests" in terminal.shown
    assert b"\x1b[36m" in terminal.written
    assert terminal.width <= 80
