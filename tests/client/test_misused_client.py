"""Mistakes in the use of a client that Python itself would describe: the error says what to write."""

from typing import Any

import pytest

from asyncfin import ArgumentError, Client


def test_plain_with_says_what_to_write() -> None:
    """A client is an async context manager only."""
    client: Any = Client("http://127.0.0.1:9", "token")
    with pytest.raises(TypeError, match="write `async with Client"), client:
        pass


def test_single_observer_is_rejected() -> None:
    """Of `observers` by name, as of every other argument."""
    wrong: Any = print
    with pytest.raises(
        ArgumentError, match="observers must be an iterable of functions, such as a list, not <"
    ):
        Client("http://127.0.0.1:9", "token", observers=wrong)
