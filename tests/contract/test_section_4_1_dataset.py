"""Section 4.1: get the current dataset."""

import pytest

from asyncfin import Client, NotFoundError
from asyncfin.sandbox import Account, Sandbox
from tests.contract.conftest import ENTITY, asking

UNKNOWN = "O-" + "0" * 32


async def test_request_is_a_get(client: Client, sandbox: Sandbox) -> None:
    """At /v1/entities/{entity_id}/dataset."""
    await client.dataset(ENTITY)
    (sent,) = sandbox.log
    assert (sent.method, sent.path, sent.body) == ("GET", f"/v1/entities/{ENTITY}/dataset", None)
    assert sent.params == {}


@pytest.mark.parametrize("odd", ["/../" + "a" * 28, "%2F" + "b" * 29, "?#é ☃&=+" + "c" * 24])
async def test_entity_id_may_have_any_characters(client: Client, sandbox: Sandbox, odd: str) -> None:
    """An id of any characters reaches the service as one part of the path, and is simply unknown there."""
    with pytest.raises(NotFoundError):
        await client.dataset(f"O-{odd}")
    (sent,) = sandbox.log
    assert sent.operation == "dataset"


async def test_404_without_a_published_dataset(client: Client) -> None:
    """Nothing is published under the id."""
    with pytest.raises(NotFoundError) as caught:
        await client.dataset(UNKNOWN)
    assert (caught.value.status, caught.value.operation) == (404, "dataset")


async def test_404_for_another_account(sandbox: Sandbox) -> None:
    """Another account may not see what this one does."""
    sandbox.put_account(Account("blind", entities=()))
    async with asking(sandbox, sandbox.issue_token("blind")) as client:
        with pytest.raises(NotFoundError):
            await client.dataset(ENTITY)
