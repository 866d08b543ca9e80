"""What a page must not hold (spec 4.2, 4.3, 9): a wrong answer is an error that says where."""

import json
from typing import Any

import pytest

from asyncfin import (
    Client,
    MalformedAnswerError,
    MemoryCache,
    NotFoundError,
    PermissionDeniedError,
)
from tests.contract.conftest import (
    ENTITY,
    ONCE,
    catalogue_body,
    catalogue_series,
    query,
    query_body,
    query_series,
    wrong_service,
)
from tests.services.raw import answer, scripted

OTHER = "O-" + "2c" * 16
SALES, PROFIT = query_series("A-sales", [None]), query_series("A-profit", [None])
LISTED, LISTED_TOO = catalogue_series("A-sales"), catalogue_series("A-profit")


async def read_query(*bodies: Any, **options: Any) -> list[str]:
    """Return the series ids that the pages of a service with these answers bring."""
    asked = query(**options)
    async with wrong_service(*bodies) as (client, _):
        pages = [page async for page in client.query_pages(ENTITY, asked)]
        return [series.series_id for page in pages for series in page.series]


async def read_catalogue(*bodies: Any, **options: Any) -> list[str]:
    async with wrong_service(*bodies) as (client, _):
        pages = [page async for page in client.catalogue_pages(ENTITY, **options)]
        return [series.series_id for page in pages for group in page.groups for series in group.series]


async def test_an_empty_cursor_ends_the_pages() -> None:
    """An empty cursor is not sent back: the page is the last one."""
    async with wrong_service(query_body(SALES, next_cursor="")) as (client, server):
        found = [page async for page in client.query_pages(ENTITY, query())]
        assert [page.next_cursor for page in found] == [None]
        assert len(server.requests) == 1
    async with wrong_service(catalogue_body(LISTED, next_cursor="")) as (client, server):
        listed = [page async for page in client.catalogue_pages(ENTITY)]
        assert [page.next_cursor for page in listed] == [None]
        assert len(server.requests) == 1


@pytest.mark.parametrize("status", [403, 404])
@pytest.mark.parametrize("with_error_object", [False, True])
async def test_proxy_page_deletes_no_cached_data(status: int, with_error_object: bool) -> None:
    """A proxy's 403 leaves the cached catalogue readable; the service's own is raised, without a request."""
    body = b'{"error": {"code": "no_access", "message": "no"}}' if with_error_object else b"<html>no</html>"
    steps = [answer(body=json.dumps(each).encode()) for each in (catalogue_body(LISTED),)]
    async with (
        scripted(*steps, answer(status, body)) as server,
        Client(server.base_url, "token", retry=ONCE, cache=MemoryCache(), max_age=3600) as client,
    ):
        await client.catalogue(ENTITY)
        with pytest.raises(PermissionDeniedError if status == 403 else NotFoundError) as caught:
            await client.catalogue(ENTITY, max_age=0)
        assert caught.value.has_error_object is with_error_object
        if with_error_object:
            with pytest.raises(type(caught.value)):
                await client.catalogue(ENTITY)
        else:
            await client.catalogue(ENTITY)
        assert len(server.requests) == 2


async def test_a_series_twice_on_two_pages() -> None:
    """The error names it."""
    with pytest.raises(MalformedAnswerError, match="'A-sales' is repeated"):
        await read_query(query_body(SALES, next_cursor="a"), query_body(SALES))
    with pytest.raises(MalformedAnswerError, match="'A-sales' is repeated"):
        await read_catalogue(catalogue_body(LISTED, next_cursor="a"), catalogue_body(LISTED))


@pytest.mark.parametrize(
    "asked",
    [
        {"metric_ids": "staff"},
        {"scope_combinations": "segment=cloud & co"},
        {"reporting_group_ids": "quarterly"},
    ],
)
async def test_unrequested_series_is_malformed(asked: dict[str, Any]) -> None:
    """A series that was not asked for, by metric, path or group, is refused (spec 4.3 rule 1)."""
    with pytest.raises(MalformedAnswerError, match=r"'A-sales' .* was not requested @ \$\.series\[0\]"):
        await read_query(query_body(SALES), **asked)


async def test_series_under_wrong_group() -> None:
    """The catalogue would find it under the wrong one."""
    stray = catalogue_series("A-sales", reporting_group_id="quarterly")
    with pytest.raises(
        MalformedAnswerError, match=r"'A-sales' names the group 'quarterly' @ \$\.groups\[0\]"
    ):
        await read_catalogue(catalogue_body(stray))
