"""A 2xx without what was requested: what its error says, and that it is retried if it asks for that."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from asyncfin import Client, FiscalRange, MalformedAnswerError, Query, Retry
from asyncfin.events import OutageBegan
from asyncfin.model.scope import ScopeRef
from asyncfin.wire.protocol import dataset_request, read_dataset
from tests.services.raw import Scripted, answer, scripted
from tests.wire.sending import ENTITY, of_kind, sending

ERROR = {"error": {"code": "internal", "message": "overloaded", "request_id": "r-77"}}
BUSY = json.dumps(ERROR).encode()
METADATA = {
    "entity_id": ENTITY,
    "name": "Example",
    "dataset_id": "11111111-1111-4111-8111-111111111111",
    "created_timestamp": "2026-01-02T03:04:05Z",
}
GOOD = json.dumps(METADATA).encode()
QUERY = Query(["m"], [[ScopeRef("g", "s")]], FiscalRange(2020, 2021))
pytestmark = pytest.mark.virtual


@asynccontextmanager
async def session(*steps: Any, **options: Any) -> AsyncIterator[tuple[Client, Scripted]]:
    async with scripted(*steps) as server, Client(server.base_url, "some-token", **options) as client:
        yield client, server


async def ask(client: Client, operation: str) -> None:
    """Send one request of an operation, and read its response."""
    if operation == "dataset":
        await client.dataset(ENTITY)
    elif operation == "catalogue":
        async for _ in client.catalogue_pages(ENTITY):
            pass
    elif operation == "query":
        async for _ in client.query_pages(ENTITY, QUERY):
            pass


@pytest.mark.parametrize(
    ("operation", "words"), [("dataset", "dataset"), ("catalogue", "catalogue"), ("query", "query result")]
)
async def test_the_error_names_status_object_and_what_the_response_says(operation: str, words: str) -> None:
    """With code, message and request id of an error object, if there is one."""
    async with session(answer(202, BUSY)) as (client, server):
        with pytest.raises(MalformedAnswerError) as caught:
            await ask(client, operation)
    error = caught.value
    assert error.problems == (f"status 202 without a {words} (internal: overloaded) [request r-77]",)
    assert (error.request_id, error.operation, error.entity_id) == ("r-77", operation, ENTITY)
    assert (error.retry_after, error.concerns, error.attempts) == (None, "entity", 1)
    assert error.__suppress_context__
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{}", "status 200 without a dataset"),
        (b"[1]", "status 200 without a dataset"),
        (b'{"status": "queued"}', "status 200 without a dataset"),
        (b'{"error": {"message": "later"}}', "status 200 without a dataset (later)"),
        (b"", "the body is empty @ $"),
        (b'{"name": 5}', "Expected str | null, got int @ $.name"),
        (b'{"name": "Example"}', "a required field is missing @ $.entity_id"),
        (b'{"status": "que', "Input data was truncated @ $"),
    ],
)
async def test_other_bodies(body: bytes, expected: str) -> None:
    """One required field is enough: then the problem is where it was."""
    async with session(answer(200, body)) as (client, _):
        with pytest.raises(MalformedAnswerError) as caught:
            await client.dataset(ENTITY)
    assert caught.value.problems == (expected.replace("`", ""),)


async def test_a_204_has_no_dataset() -> None:
    """Its body is empty, as it must be."""
    async with session(answer(204, b"")) as (client, _):
        with pytest.raises(MalformedAnswerError) as caught:
            await client.dataset(ENTITY)
    assert caught.value.problems == ("status 204 without a dataset",)


async def test_a_request_id_of_a_header_is_named() -> None:
    """Where the body has no error object."""
    async with session(answer(202, b"{}", x_request_id="r-5")) as (client, _):
        with pytest.raises(
            MalformedAnswerError, match=r"status 202 without a dataset \[request r-5\]"
        ) as caught:
            await client.dataset(ENTITY)
    assert caught.value.request_id == "r-5"


@pytest.mark.parametrize("operation", ["dataset", "catalogue", "query"])
async def test_with_retry_after_it_is_retried_like_a_503(operation: str) -> None:
    """After that wait; when the retries end, it is this error, which concerns the service."""
    loop = asyncio.get_running_loop()
    async with session(answer(202, BUSY, retry_after="7"), retry=Retry(attempts=3)) as (client, server):
        with pytest.raises(MalformedAnswerError) as caught:
            await ask(client, operation)
        assert 14 <= loop.time() < 16
    error = caught.value
    assert (error.retry_after, error.concerns, error.attempts, error.request_id) == (7, "service", 3, "r-77")
    assert error.problems[0].endswith("(internal: overloaded) [request r-77]")
    assert len(server.requests) == 3
    async with session(answer(200, b"", retry_after="7"), answer(200, GOOD)) as (client, server):
        assert (await client.dataset(ENTITY)).name == "Example"
    assert len(server.requests) == 2


async def test_a_long_wait_is_not_waited_for() -> None:
    """As after a 5xx: more than `max_retry_after` ends the retries, and uses up nothing."""
    async with session(answer(202, BUSY, retry_after="3600")) as (client, server):
        with pytest.raises(MalformedAnswerError):
            await client.dataset(ENTITY)
        assert client.bucket.stats().exhausted_until is None
    assert len(server.requests) == 1


@pytest.mark.parametrize("text", ["soon", "99999999"])
async def test_a_wait_that_cannot_be_meant_is_none(text: str) -> None:
    """It is an error at once, as without Retry-After."""
    async with session(answer(202, BUSY, retry_after=text)) as (client, server):
        with pytest.raises(MalformedAnswerError) as caught:
            await client.dataset(ENTITY)
    assert caught.value.concerns == "entity"
    assert len(server.requests) == 1


async def test_a_2xx_with_the_object_is_a_result_whatever_its_headers() -> None:
    """Also with status 202 and Retry-After; and usage and limits may have any body."""
    async with session(answer(202, GOOD, retry_after="7"), answer(200, b"{}", retry_after="7")) as (
        client,
        server,
    ):
        assert (await client.dataset(ENTITY)).name == "Example"
        assert await client.limits() == {}
    assert len(server.requests) == 2


async def test_it_counts_as_a_failure_of_the_service() -> None:
    """Eight of them in half a minute are an outage; without Retry-After they are not counted."""
    for headers, expected in ((dict[str, str](), 0), ({"retry_after": "0"}, 1)):
        async with sending(answer(202, BUSY, **headers), retry=Retry(attempts=1)) as (_, sender, events):
            for number in range(8):
                request = dataset_request(f"O-{number:032}")
                with pytest.raises(MalformedAnswerError):
                    read_dataset(request, await sender.send(request))
        assert len(of_kind(events, OutageBegan)) == expected


@pytest.mark.parametrize("size", [1024 * 1024, 1024 * 1024 + 1])
async def test_a_cursor_of_more_than_a_mebibyte_is_malformed(size: int) -> None:
    """Each further request of the chain would repeat it."""
    page = METADATA | {
        "periods": [],
        "series": [],
        "scope_groups": [],
        "groups": [],
        "next_cursor": "c" * size,
    }
    async with session(answer(200, json.dumps(page).encode())) as (client, _):
        for pages in (client.catalogue_pages(ENTITY), client.query_pages(ENTITY, QUERY)):
            async with aclosing(pages) as reading:  # type: ignore[type-var]
                if size == 1024 * 1024:
                    assert (await anext(reading)).next_cursor == "c" * size
                    continue
                with pytest.raises(MalformedAnswerError) as caught:
                    await anext(reading)
                assert caught.value.problems == ("the cursor has more than 1,048,576 bytes @ $.next_cursor",)
