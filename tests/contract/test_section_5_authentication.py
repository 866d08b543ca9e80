"""Section 5: authentication."""

import pickle
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from asyncfin import (
    AuthenticationError,
    Client,
    MalformedAnswerError,
    PermissionDeniedError,
    RateLimitedError,
)
from asyncfin.sandbox import Account, Sandbox
from tests.contract.conftest import ENTITY, ONCE, asking, query
from tests.services.raw import answer, judged, refusal, scripted


async def first_query_page(client: Client) -> Any:
    return await anext(client.query_pages(ENTITY, query()))


async def first_catalogue_page(client: Client) -> Any:
    return await anext(client.catalogue_pages(ENTITY))


OPERATIONS: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "dataset": lambda client: client.dataset(ENTITY),
    "catalogue": first_catalogue_page,
    "query": first_query_page,
    "usage": lambda client: client.usage("2024-01-01", "2024-01-02"),
    "limits": lambda client: client.limits(),
}
every_operation = pytest.mark.parametrize("operation", OPERATIONS)


@every_operation
async def test_rule_1_requests_carry_bearer_token(operation: str) -> None:
    """In the header Authorization, and nowhere else."""
    async with (
        scripted(answer(body=b"{}")) as server,
        Client(server.base_url, "to.ken-1", retry=ONCE) as client,
    ):
        with suppress(MalformedAnswerError):  # an empty object is an answer to some of them only
            await OPERATIONS[operation](client)
    (sent,) = server.requests
    assert sent.headers["authorization"] == "Bearer to.ken-1"
    assert "to.ken-1" not in sent.target
    assert b"to.ken-1" not in sent.body


@every_operation
async def test_rule_2_unknown_token_gives_401(sandbox: Sandbox, operation: str) -> None:
    """The error names the operation, and is not tried again."""
    async with Client(sandbox.base_url, "wrong") as client:
        with pytest.raises(AuthenticationError) as caught:
            await OPERATIONS[operation](client)
    assert (caught.value.status, caught.value.operation) == (401, operation)
    assert len(sandbox.log) == 1


@every_operation
async def test_rule_2_token_of_other_audience(sandbox: Sandbox, operation: str) -> None:
    """An MCP token is none."""
    async with asking(sandbox, sandbox.issue_token(audience="mcp")) as client:
        with pytest.raises(AuthenticationError):
            await OPERATIONS[operation](client)


@pytest.mark.parametrize(
    ("operation", "permission"),
    [
        ("dataset", "datasets:read"),
        ("catalogue", "datasets:read"),
        ("query", "datasets:read"),
        ("usage", "usage:read"),
    ],
)
async def test_rule_3_operation_needs_its_permission(
    sandbox: Sandbox, operation: str, permission: str
) -> None:
    """A token with only the needed permission is answered, and one with all others is refused."""
    async with asking(sandbox, sandbox.issue_token(permissions=[permission])) as client:
        await OPERATIONS[operation](client)
    others = {"datasets:read", "usage:read"} - {permission}
    async with asking(sandbox, sandbox.issue_token(permissions=others)) as client:
        with pytest.raises(PermissionDeniedError, match=permission):
            await OPERATIONS[operation](client)


@every_operation
async def test_rule_4_no_access_gives_403(sandbox: Sandbox, operation: str) -> None:
    """An account without access gets 403 whatever the token's permissions."""
    sandbox.put_account(Account("shut", access=False))
    async with asking(sandbox, sandbox.issue_token("shut")) as client:
        with pytest.raises(PermissionDeniedError) as caught:
            await OPERATIONS[operation](client)
    assert caught.value.status == 403


async def test_rule_5_tokens_share_one_allowance(sandbox: Sandbox) -> None:
    """Two tokens of one account spend the same requests; another account has its own."""
    sandbox.put_account(Account("small", allowance=2))
    for _ in range(2):
        async with asking(sandbox, sandbox.issue_token("small")) as client:
            await client.dataset(ENTITY)
    async with asking(sandbox, sandbox.issue_token("small")) as client:
        with pytest.raises(RateLimitedError):
            await client.dataset(ENTITY)
    async with asking(sandbox) as client:
        await client.dataset(ENTITY)


async def test_rule_6_callable_renews_token(sandbox: Sandbox) -> None:
    """How tokens are obtained is the caller's; one that is refused is asked for again, once."""
    tokens = ["expired", sandbox.token]

    async def ask() -> str:
        return tokens.pop(0)

    async with Client(sandbox.base_url, ask, retry=ONCE) as client:
        assert (await client.dataset(ENTITY)).entity_id == ENTITY
        await client.limits()
    assert [sent.status for sent in sandbox.log] == [401, 200, 200]


TOKEN = "s3cret.token-of-mine"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 429, 500])
async def test_echoed_token_is_in_no_error(status: int) -> None:
    """The token is in no text, field, report, traceback or pickle of an error, even if it is echoed."""
    echo = refusal(status, message=f"Bearer {TOKEN} is bad", code=TOKEN, retry_after="9999")
    async with scripted(echo) as server, Client(server.base_url, TOKEN, retry=ONCE) as client:
        with pytest.raises(Exception, match=str(status)) as caught:
            await client.dataset(ENTITY)
        shown = [repr(client), str(client), repr(vars(caught.value)), caught.value.report()]
    shown += traceback.format_exception(caught.value)
    assert all(TOKEN not in text for text in shown)
    assert TOKEN.encode() not in pickle.dumps(caught.value)


async def test_redirects_are_not_followed() -> None:
    """Redirects are not followed, since they would carry the token to another place."""

    def judge(request: Any) -> bytes:
        return answer(302, location="/elsewhere")

    async with judged(judge) as server, Client(server.base_url, TOKEN, retry=ONCE) as client:
        with pytest.raises(Exception, match="302"):
            await client.dataset(ENTITY)
    assert len(server.requests) == 1
