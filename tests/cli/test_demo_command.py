"""`asyncfin sandbox --demo`: the stranger's first look."""

import re
import sys

import pytest

from tests.cli.conftest import Result, Terminal, finish, start


@pytest.fixture(scope="module")
def piped() -> Result:
    """The demo's output in pipes."""
    return finish(start("sandbox", "--demo"))


def test_demo_fits_80_columns(piped: Result) -> None:
    """It runs without any environment, and prints nothing on standard error."""
    assert (piped.code, piped.err) == (0, "")
    assert "\x1b" not in piped.out
    assert max(map(len, piped.out.splitlines())) <= 80


def test_demo_lists_companies_and_figures(piped: Result) -> None:
    """Apple's revenue of the fiscal years 2021 to 2025, in billions, as it was filed."""
    assert all(name in piped.out for name in ("Apple", "NVIDIA", "Alphabet"))
    assert re.search(r"^Revenue +366 +394 +383 +391 +416$", piped.out, re.MULTILINE)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals on Windows")
def test_demo_fits_a_terminal() -> None:
    """No line is wider than the terminal."""
    terminal = Terminal("sandbox", "--demo")
    assert terminal.end() == 0
    assert terminal.width <= 80
