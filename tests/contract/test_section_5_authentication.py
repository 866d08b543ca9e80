"""Section 5: authentication."""

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
from tests.services.raw import answer, judged, scripted


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


TOKEN = "s3cret.token-of-mine"


async def test_redirects_are_not_followed() -> None:
    """Redirects are not followed, since they would carry the token to another place."""

    def judge(request: Any) -> bytes:
        return answer(302, location="/elsewhere")

    async with judged(judge) as server, Client(server.base_url, TOKEN, retry=ONCE) as client:
        with pytest.raises(Exception, match="302"):
            await client.dataset(ENTITY)
    assert len(server.requests) == 1
