"""Section 4.1: get the current dataset."""

import pytest

from asyncfin import Client, NotFoundError, PermissionDeniedError
from asyncfin.sandbox import Account, Sandbox
from tests.contract.conftest import ENTITY, FIRST, LATER, SECOND, asking, each_dialect, query

UNKNOWN = "O-" + "0" * 32


@each_dialect
async def test_response_200_is_the_metadata(client: Client) -> None:
    """All four fields, in one request."""
    found = await client.dataset(ENTITY)
    assert (found.entity_id, found.name, found.dataset_id) == (ENTITY, "Ünited Sample", FIRST)
    assert found.created_timestamp.isoformat() == "2025-02-01T06:00:00+00:00"


async def test_the_request_is_a_get_without_body_or_parameters(client: Client, sandbox: Sandbox) -> None:
    """At /v1/entities/{entity_id}/dataset."""
    await client.dataset(ENTITY)
    (sent,) = sandbox.log
    assert (sent.method, sent.path, sent.body) == ("GET", f"/v1/entities/{ENTITY}/dataset", None)
    assert sent.params == {}


async def test_permission_datasets_read(sandbox: Sandbox) -> None:
    """A token without it is refused."""
    async with asking(sandbox, sandbox.issue_token(permissions=["usage:read"])) as client:
        with pytest.raises(PermissionDeniedError, match="403"):
            await client.dataset(ENTITY)


@pytest.mark.parametrize("odd", ["/../" + "a" * 28, "%2F" + "b" * 29, "?#é ☃&=+" + "c" * 24])
async def test_path_parameter_entity_id_may_hold_any_characters(
    client: Client, sandbox: Sandbox, odd: str
) -> None:
    """An id of any characters reaches the service as one part of the path, and is simply unknown there."""
    with pytest.raises(NotFoundError):
        await client.dataset(f"O-{odd}")
    (sent,) = sandbox.log
    assert sent.operation == "dataset"


async def test_the_dataset_id_identifies_what_is_queried(client: Client, sandbox: Sandbox) -> None:
    """The dataset id pins a query to its publication; the next publication has another."""
    found = await client.dataset(ENTITY)
    asked = query(expected_dataset_id=found.dataset_id)
    assert [page.dataset_id async for page in client.query_pages(ENTITY, asked)] == [FIRST]
    sandbox.publish(LATER)
    assert (await client.dataset(ENTITY)).dataset_id == SECOND


async def test_404_without_a_published_dataset(client: Client) -> None:
    """Nothing is published under the id."""
    with pytest.raises(NotFoundError) as caught:
        await client.dataset(UNKNOWN)
    assert (caught.value.status, caught.value.operation) == (404, "dataset")


async def test_404_when_it_is_not_available_to_the_account(sandbox: Sandbox) -> None:
    """Another account may not see what this one does."""
    sandbox.put_account(Account("blind", entities=()))
    async with asking(sandbox, sandbox.issue_token("blind")) as client:
        with pytest.raises(NotFoundError):
            await client.dataset(ENTITY)
