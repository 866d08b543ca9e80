"""Section 4.5: account limits."""

import pytest

from asyncfin import Client, MalformedAnswerError
from asyncfin.sandbox import Sandbox
from tests.contract.conftest import wrong_service
from tests.services.raw import answer, scripted


async def test_request_is_get_without_anything(client: Client, sandbox: Sandbox) -> None:
    """At /v1/limits."""
    await client.limits()
    (sent,) = sandbox.log
    assert (sent.method, sent.path, sent.params, sent.body) == ("GET", "/v1/limits", {}, None)


async def test_credits_and_research_runs_are_reported(client: Client) -> None:
    """Credits and research runs are reported in the service's own form."""
    assert {"credits", "research_runs"} <= set(await client.limits())


@pytest.mark.parametrize(
    "body", [{}, {"anything": [1, {"at": None}], "n": 0}, [], [{"n": 1}], None, "text", 5]
)
async def test_body_stays_as_it_came(body: object) -> None:
    """Nothing is guessed or left out, whatever JSON value it is."""
    async with wrong_service(body) as (client, _):
        assert await client.limits() == body
        assert [window.body for window in await client.usage("2024-01-01", "2024-01-02")] == [body]


async def test_body_without_json_is_malformed() -> None:
    """The error says so, and of which operation."""
    async with scripted(answer(body=b"{")) as server, Client(server.base_url, "token") as client:
        with pytest.raises(MalformedAnswerError, match=r"@ \$") as caught:
            await client.limits()
    assert caught.value.operation == "limits"
