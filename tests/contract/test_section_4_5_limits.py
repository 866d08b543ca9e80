"""Section 4.5: account limits."""

import pytest

from asyncfin import Client, MalformedAnswerError
from asyncfin.sandbox import Sandbox
from tests.contract.conftest import wrong_service


async def test_the_request_is_a_get_without_anything(client: Client, sandbox: Sandbox) -> None:
    """At /v1/limits."""
    await client.limits()
    (sent,) = sandbox.log
    assert (sent.method, sent.path, sent.params, sent.body) == ("GET", "/v1/limits", {}, None)


async def test_account_credits_and_research_runs_are_reported(client: Client) -> None:
    """As the service words them."""
    assert {"credits", "research_runs"} <= set(await client.limits())


@pytest.mark.parametrize("body", [{}, {"anything": [1, {"at": None}], "n": 0}])
async def test_the_body_is_not_shown_so_it_stays_as_it_came(body: dict[str, object]) -> None:
    """Nothing is guessed or left out."""
    async with wrong_service(body) as (client, _):
        assert await client.limits() == body


@pytest.mark.parametrize("body", [[], None, "text", 5])
async def test_a_body_that_is_no_object_is_malformed(body: object) -> None:
    """The error says so, and of which operation."""
    async with wrong_service(body) as (client, _):
        with pytest.raises(MalformedAnswerError, match="expected an object") as caught:
            await client.limits()
    assert caught.value.operation == "limits"
