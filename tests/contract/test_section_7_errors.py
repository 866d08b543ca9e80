"""Section 7: errors, row by row."""

import asyncio
from datetime import UTC, datetime

import pytest

from asyncfin import (
    Client,
    DatasetChangedError,
    NotFoundError,
    RateLimitedError,
    Retry,
    ServerFailureError,
    ServiceError,
)
from asyncfin.sandbox import Sandbox, Status
from tests.contract.conftest import ENTITY, SECOND, asking, query

pytestmark = pytest.mark.virtual


async def test_error_has_code_and_request_id(client: Client, sandbox: Sandbox) -> None:
    """An error has the service's code, message and request id, the operation, and the time."""
    before = datetime.now(UTC)
    with pytest.raises(ServiceError) as caught:
        await client.dataset("O-" + "0" * 32)
    error = caught.value
    assert (error.code, error.operation, error.attempts) == ("not_found", "dataset", 1)
    assert error.message.startswith("No published dataset")
    assert error.request_id
    assert error.request_id.startswith("req-")
    assert error.at
    assert before <= error.at <= datetime.now(UTC)


@pytest.mark.parametrize("operation", ["catalogue", "query"])
async def test_row_409_is_not_retried(sandbox: Sandbox, operation: str) -> None:
    """Fetch metadata and catalogue again, rebuild the query: that is for who knows the question."""
    async with asking(sandbox, retry=Retry()) as client:
        pages = (
            client.catalogue_pages(ENTITY, expected_dataset_id=SECOND)
            if operation == "catalogue"
            else client.query_pages(ENTITY, query(expected_dataset_id=SECOND))
        )
        with pytest.raises(DatasetChangedError) as caught:
            await anext(pages)
    assert caught.value.operation == operation
    assert len(sandbox.log) == 1


@pytest.mark.parametrize("seconds", [0, 1, 59])
async def test_row_429_waits_for_retry_after(sandbox: Sandbox, seconds: int) -> None:
    """After a 429 the next attempt comes when Retry-After is over, and not much later."""
    sandbox.inject(Status(nth=1, status=429, retry_after=seconds))
    async with asking(sandbox, retry=Retry()) as client:
        await client.dataset(ENTITY)
    assert [sent.status for sent in sandbox.log] == [429, 200]
    assert seconds <= asyncio.get_running_loop().time() <= seconds + 2


@pytest.mark.parametrize(
    ("status", "kind"), [(500, ServerFailureError), (429, RateLimitedError), (404, NotFoundError)]
)
@pytest.mark.parametrize("body", [b"", b"<html>bad gateway</html>", b'{"error": "text"}', b"[]"])
async def test_status_decides_without_error_object(
    sandbox: Sandbox, status: int, kind: type[ServiceError], body: bytes
) -> None:
    """An error without an error object, as a proxy sends it, is chosen by its status."""
    sandbox.inject(Status(status=status, body=body))
    async with asking(sandbox) as client:
        with pytest.raises(kind) as caught:
            await client.dataset(ENTITY)
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.request_id) == (None, None)


async def test_clients_decide_on_the_code(sandbox: Sandbox) -> None:
    """An error is chosen by its code, whatever status it comes with."""
    sandbox.inject(Status(status=412, code="dataset_changed"))
    async with asking(sandbox) as client:
        with pytest.raises(DatasetChangedError):
            await client.dataset(ENTITY)


async def test_a_persistent_error_can_be_reported(sandbox: Sandbox) -> None:
    """Request id, time and operation are in the report; the access token is not."""
    sandbox.inject(Status(status=500))
    async with asking(sandbox) as client:
        with pytest.raises(ServerFailureError) as caught:
            await client.dataset(ENTITY)
    report = caught.value.report()
    assert all(
        fact in report for fact in ("request id: req-", "operation: dataset", "time: 20", "status: 500")
    )
    assert sandbox.token not in report
