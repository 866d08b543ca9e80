"""Pages without end: each read ends after a few requests, in a result if it is complete (spec 4.2, 4.3)."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from asyncfin import (
    Annual,
    Client,
    FiscalRange,
    MalformedAnswerError,
    Retry,
    Select,
    ValidationFailedError,
)
from tests.services.raw import Received, answer, judged, refusal
from tests.wire.test_missing_texts import HAND, hand_response

pytestmark = pytest.mark.virtual

Body = dict[str, Any]
# What becomes of the response to the n-th request of an operation.
Alter = Callable[[int, Body], None]


class Service:
    """The server written by hand, whose catalogue or query is altered. It counts the requests."""

    def __init__(self, operation: str, alter: Alter) -> None:
        self._operation, self._alter = operation, alter
        self.count = 0

    def respond(self, request: Received) -> bytes:
        operation, body = hand_response(request)
        if operation == self._operation:
            self.count += 1
            self._alter(self.count, body)
        return answer(body=json.dumps(body).encode())

    async def query(self) -> list[str]:
        """Return the ids of the series that a query for everything has."""
        async with (
            judged(self.respond) as server,
            Client(server.base_url, "token", retry=Retry(attempts=1)) as client,
        ):
            panel = await client.query(HAND, Select(), FiscalRange())
        panel.check()
        return list(panel.series_ids)


def without_end(number: int, body: Body) -> None:
    """Send everything on the first page, then empty pages."""
    if number > 1:
        body.update(series=[], groups=[], scope_groups=[])
    body["next_cursor"] = f"cursor-{number}"


async def test_complete_query_follows_two_pages() -> None:
    """All series have arrived: the result does not wait for what can have nothing of it."""
    service = Service("query", without_end)
    assert await service.query() == ["S-0", "S-1", "S-2"]
    assert service.count == 3


async def test_ten_empty_pages_end_a_query() -> None:
    """A series that never comes is waited for on ten empty pages in a row."""

    def never_the_last(number: int, body: Body) -> None:
        without_end(number, body)
        del body["series"][2:]

    service = Service("query", never_the_last)
    with pytest.raises(MalformedAnswerError, match="10 pages in a row were empty"):
        await service.query()
    assert service.count == 11


async def test_empty_catalogue_pages_end() -> None:
    """Ten in a row are an error, after ten further requests."""
    service = Service("catalogue", without_end)
    with pytest.raises(MalformedAnswerError, match="10 pages in a row were empty"):
        await service.query()
    assert service.count == 11


@pytest.mark.parametrize("operation", ["catalogue", "query"])
@pytest.mark.parametrize(
    ("cursors", "problem"),
    [(["a", "b", "a"], "a cursor was received a second time"), (["x" * (64 * 1024 + 1)], "length <= 65536")],
    ids=["repeated", "large"],
)
async def test_cursor_is_an_error(operation: str, cursors: list[str], problem: str) -> None:
    """A repeated one would never end; each further request would carry a large one."""

    def send_cursor(number: int, body: Body) -> None:
        without_end(number, body)
        del body.get("series", [])[2:]
        body["next_cursor"] = cursors[number - 1]

    service = Service(operation, send_cursor)
    with pytest.raises(MalformedAnswerError, match=problem):
        await service.query()
    assert service.count == len(cursors)


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_rejected_cursor_is_checked(is_replaced: bool) -> None:
    """The publication may have been replaced (spec 4.3 does not order its rules 5 and 6); else it fails."""
    replacement = "22222222-2222-4222-8222-222222222222"
    publication, operations = "", []

    def respond(request: Received) -> bytes:
        nonlocal publication
        operation, body = hand_response(request)
        operations.append(operation)
        if operation == "query" and "cursor" not in json.loads(request.body):
            del body["series"][2:]
            body["next_cursor"] = "more"
        elif operation == "query":
            if not publication:
                publication = replacement if is_replaced else body["dataset_id"]
                return refusal(400, "validation_failed")
            del body["series"][:2]
        body["dataset_id"] = publication or body["dataset_id"]
        return answer(body=json.dumps(body).encode())

    async with judged(respond) as server, Client(server.base_url, "token") as client:
        if is_replaced:
            panel = await client.query(HAND, Select(), FiscalRange())
            assert panel.dataset.dataset_id == replacement
            assert panel.series_ids == ("S-0", "S-1", "S-2")
        else:
            with pytest.raises(ValidationFailedError) as caught:
                await client.query(HAND, Select(), FiscalRange())
            assert caught.value.__notes__ == ["the service rejected a cursor that it had sent; query again"]
    assert operations[:4] == ["catalogue", "query", "query", "dataset"]


async def test_rejected_cursor_of_range_is_named() -> None:
    """The range was accepted in place of exact periods: the query is not too wide."""
    modes = []

    def respond(request: Received) -> bytes:
        operation, body = hand_response(request)
        if operation == "query":
            sent = json.loads(request.body)
            modes.append("cursor" if "cursor" in sent else sent["periods"]["mode"])
            if modes[-1] != "fiscal_range":
                return refusal(400, "validation_failed")
            del body["series"][2:]
            body["next_cursor"] = "more"
        return answer(body=json.dumps(body).encode())

    async with judged(respond) as server, Client(server.base_url, "token") as client:
        with pytest.raises(ValidationFailedError) as caught:
            await client.query(HAND, Select(), Annual())
    assert modes == ["exact", "fiscal_range", "cursor"]
    assert caught.value.__notes__ == ["the service rejected a cursor that it had sent; query again"]
