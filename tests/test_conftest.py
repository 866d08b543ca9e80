"""What the tests say of themselves: whose event loop was left open, and which rooms were skipped."""

import asyncio
import gc
import os
import subprocess
import sys
import types
import warnings
from pathlib import Path

import pytest


def _left_open(make: types.FunctionType) -> str:
    """Return the warning about a loop that a function makes and nothing closes."""
    gc.collect()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make()
        gc.collect()
    (warning,) = [each for each in caught if "unclosed event loop" in str(each.message)]
    assert issubclass(warning.category, ResourceWarning)
    return str(warning.message)


def test_an_unclosed_loop_names_the_test_and_the_line_that_made_it() -> None:
    """Not asyncio's own line, which is the same for all."""

    def make() -> None:
        asyncio.new_event_loop()

    said = _left_open(make)
    assert f"made in {os.environ['PYTEST_CURRENT_TEST']} at {__file__}:" in said
    assert said.endswith(f":{make.__code__.co_firstlineno + 1}")


def test_an_unclosed_loop_names_other_modules_that_had_a_part_in_it() -> None:
    """Such as a pytest plugin that asks for a loop in every test."""
    plugin = types.ModuleType("some_plugin.hooks")
    code = "import asyncio\n\ndef make():\n    asyncio.new_event_loop()\n"
    exec(compile(code, "/elsewhere/some_plugin/hooks.py", "exec"), plugin.__dict__)
    said = _left_open(plugin.make)
    assert "at /elsewhere/some_plugin/hooks.py:4, by way of some_plugin" in said


@pytest.mark.parametrize(("room", "library"), [("web", "httpx"), ("mcp", "mcp")])
def test_a_room_without_the_library_that_it_needs_is_skipped_with_a_reason(
    room: str, library: str, tmp_path: Path
) -> None:
    """In another process, in which the library cannot be found."""
    plugin = tmp_path / "hiding.py"
    plugin.write_text(
        "import importlib.util, sys\n"
        "find = importlib.util.find_spec\n"
        f"importlib.util.find_spec = lambda name, *more: None if name == {library!r} else find(name, *more)\n"
        f"sys.modules[{library!r}] = None\n"
    )
    command = [
        "-m",
        "pytest",
        "-p",
        "hiding",
        "-p",
        "no:cacheprovider",
        "--collect-only",
        "-q",
        f"tests/{room}",
    ]
    root = Path(__file__).parents[1]
    ended = subprocess.run(
        [sys.executable, *command],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, ended.stdout + ended.stderr
    assert f"skipped: tests/{room}, which needs {library}" in ended.stdout
