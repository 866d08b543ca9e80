"""What the tests say of themselves: whose event loop was left open, and which rooms were skipped."""

import asyncio
import gc
import os
import types
import warnings

import pytest

from tests.conftest import ROOM_NEEDS, ignored_without, missing_of


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


def test_room_without_its_library_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The summary names it."""
    assert ignored_without("web") == ["test_*.py"] * bool(missing_of("web"))
    monkeypatch.setitem(ROOM_NEEDS, "web", ("asyncio", "no_such_library", "no_such_package.part"))
    assert missing_of("web") == ["no_such_library", "no_such_package.part"]
    assert ignored_without("web") == ["test_*.py"]
