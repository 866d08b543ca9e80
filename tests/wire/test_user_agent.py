"""How a client names itself to the service."""

import re
from importlib.metadata import version
from typing import Any

import pytest

from asyncfin import ArgumentError, Client
from tests.services.raw import answer, scripted

OWN = f"asyncfin/{version('asyncfin')}"


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (None, OWN),
        ("acme", f"acme {OWN}"),
        ("a (b; c) 1.0", f"a (b; c) 1.0 {OWN}"),
        ("~" * 200, f"{'~' * 200} {OWN}"),
    ],
)
async def test_program_text_comes_first(given: str | None, sent: str) -> None:
    """Then the library and its version; `repr` does not show it."""
    async with (
        scripted(answer()) as server,
        Client(server.base_url, "some-token", user_agent=given) as client,
    ):
        await client.limits()
        assert repr(client) == f"Client({server.base_url!r})"
    assert server.requests[0].headers["user-agent"] == sent


@pytest.mark.parametrize(
    "given", ["", "x" * 201, " acme", "acme ", " ", "a\nb", "a\r\nHost: b", "a\tb", "é", "a\x7f", b"acme", 5]
)
def test_other_texts_are_refused(given: Any) -> None:
    """Before anything is sent: a header could not carry them."""
    said = "user_agent must be 1 to 200 printable ASCII characters without a blank at an end or None, not"
    with pytest.raises(ArgumentError, match=re.escape(said)):
        Client("https://example.com", "some-token", user_agent=given)
