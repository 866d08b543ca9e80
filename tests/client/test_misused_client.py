"""Mistakes in the use of a client that Python itself would describe: the error says what to write."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from asyncfin import ArgumentError, Client, SelectionError

ENTITY = "O-" + "7" * 32


async def plain_with(client: Any) -> None:
    with client:
        pass


async def usage_without_days(client: Any) -> None:
    await client.usage()


async def usage_without_an_end(client: Any) -> None:
    await client.usage("2026-01-01")


@pytest.mark.parametrize(
    ("mistake", "error", "said"),
    [
        (plain_with, TypeError, "write `async with Client"),
        (usage_without_days, SelectionError, 'usage("2026-01-01", "2026-01-31")'),
        (usage_without_an_end, SelectionError, 'usage("2026-01-01", "2026-01-31")'),
    ],
)
async def test_a_mistake_says_what_to_write(
    mistake: Callable[[Client], Awaitable[None]], error: type[Exception], said: str
) -> None:
    """Before a request is sent: no server listens."""
    async with Client("http://127.0.0.1:9", "token") as client:
        with pytest.raises(error) as raised:
            await mistake(client)
    assert said in str(raised.value)


def test_single_observer_is_rejected() -> None:
    """Of `observers` by name, as of every other argument."""
    wrong: Any = print
    with pytest.raises(
        ArgumentError, match="observers must be an iterable of functions, such as a list, not <"
    ):
        Client("http://127.0.0.1:9", "token", observers=wrong)
