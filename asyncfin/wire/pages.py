"""Pages as plain async generators, and the checks that hold across the pages of one
read (spec 4.2, 4.3).

They are strictly sequential: only the page that is prefetched outlives a step. To leave
early, close the generator (`contextlib.aclosing`).
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Set
from contextlib import aclosing
from functools import partial
from typing import TypeAlias, TypeVar

import msgspec
from attrs import evolve

from asyncfin.errors import (
    AsyncfinError,
    DatasetChangedError,
    MalformedAnswerError,
    complete_error,
)
from asyncfin.model.catalogue import (
    Catalogue,
    CataloguePage,
    Dataset,
    is_same_publication,
    join_pages,
)
from asyncfin.model.query import MAX_PAGE_SIZE, Query
from asyncfin.model.scope import format_path
from asyncfin.tasks import cancel_and_wait, decoding_lock
from asyncfin.wire import codec
from asyncfin.wire.protocol import (
    Request,
    Response,
    catalogue_request,
    check_entity,
    query_request,
)
from asyncfin.wire.values import (
    PlannedPage,
    QueryPage,
    get_series_id,
    read_planned_page,
    read_query_page,
    series_path,
)

# The spec has no bound for it. It only stops a read that would never end.
MAX_EMPTY_PAGES = 10
# How many pages of a planned query are followed after all its wanted series have
# arrived.
FURTHER_PAGES = 2
# Steps of the loop within which a request that waits for nothing is written; three are
# enough today.
_STEPS = 8

Send: TypeAlias = Callable[[Request], Awaitable[Response]]
Page = TypeVar("Page", CataloguePage, QueryPage, PlannedPage)


class _Trail(msgspec.Struct):
    """The publication, the series and the cursors of the pages of one read so far."""

    entity_id: str
    dataset_id: str | None
    series_ids: set[str] = set()
    cursors: set[str] = set()
    empty_in_a_row: int = 0

    def follow(
        self,
        page: CataloguePage | QueryPage | PlannedPage,
        response: Response,
        series_ids: list[str],
    ) -> None:
        """Check the next page against those before it, and record it.

        Raises:
            MalformedAnswerError: it is of another entity, or repeats a series or a
                cursor.
            DatasetChangedError: it is of another publication than the pin or the pages
                before it. Also if the request was pinned: the service may ignore the
                pin, or something in front of it respond.
        """
        check_entity(page, self.entity_id)
        pin = self.dataset_id
        if pin is not None and not is_same_publication(pin, page.dataset_id):
            raise DatasetChangedError(
                status=response.status,
                code="dataset_changed",
                message=f"the response is of publication {page.dataset_id}, not of "
                f"{self.dataset_id}",
                answered=True,
                has_error_object=False,
            )
        self.dataset_id = page.dataset_id
        self.empty_in_a_row = 0 if series_ids else self.empty_in_a_row + 1
        for series_id in series_ids:
            if series_id in self.series_ids:
                raise MalformedAnswerError(f"series {series_id!r} is repeated")
            self.series_ids.add(series_id)
        if page.next_cursor is not None:
            if self.empty_in_a_row >= MAX_EMPTY_PAGES:
                raise MalformedAnswerError(
                    f"{self.empty_in_a_row} pages in a row were empty @ $.next_cursor"
                )
            if page.next_cursor in self.cursors:
                raise MalformedAnswerError(
                    "a cursor was received a second time @ $.next_cursor"
                )
            self.cursors.add(page.next_cursor)


def catalogue_pages(
    send: Send, entity_id: str, *, expected_dataset_id: str | None, page_size: int
) -> AsyncGenerator[CataloguePage, None]:
    """Yield the pages of a catalogue, in the service's order (spec 4.2)."""
    trail = _Trail(entity_id, expected_dataset_id)
    request_for = partial(
        catalogue_request,
        entity_id,
        expected_dataset_id=expected_dataset_id,
        page_size=page_size,
    )

    async def read(response: Response) -> CataloguePage:
        page = codec.read_catalogue_page(response.body)
        series_ids = []
        for index, group in enumerate(page.groups):
            for series in group.series:
                series_ids.append(series.series_id)
                if series.reporting_group_id != group.reporting_group_id:
                    raise MalformedAnswerError(
                        f"series {series.series_id!r} names the group "
                        f"{series.reporting_group_id!r} @ $.groups[{index}]"
                    )
        trail.follow(page, response, series_ids)
        return page

    return _follow_cursor(send, request_for, read, prefetch=False)


def query_pages(
    send: Send, entity_id: str, query: Query, *, page_size: int, prefetch: bool
) -> AsyncGenerator[QueryPage, None]:
    """Yield the pages of a query, in the service's order (spec 4.3)."""
    trail = _Trail(entity_id, query.expected_dataset_id)
    request_for = partial(query_request, entity_id, query, page_size=page_size)

    async def read(response: Response) -> QueryPage:
        page = read_query_page(response.body, query.value_version)
        page = evolve(
            page,
            at=response.at,
            request_id=response.request_id,
            attempts=response.attempts,
        )
        trail.follow(page, response, list(map(get_series_id, page.raw_series)))
        _check_selection(query, page)
        return page

    return _follow_cursor(send, request_for, read, prefetch=prefetch)


def planned_pages(
    send: Send,
    entity_id: str,
    query: Query,
    *,
    home: Set[str],
    query_ids: Set[str],
    wanted_ids: Set[str],
) -> AsyncGenerator[PlannedPage, None]:
    """Yield the pages of a planned query, in the service's order, with the numbers of
    its wanted series.

    Its query selects the `query_ids`; a page with any other is rejected. Once the
    `home` series have arrived, at most two further pages are followed.
    """
    trail = _Trail(entity_id, query.expected_dataset_id)
    request_for = partial(query_request, entity_id, query, page_size=MAX_PAGE_SIZE)
    complete_pages = 0  # pages since all home series arrived

    async def read(response: Response) -> PlannedPage:
        nonlocal complete_pages
        page = await read_planned_page(response.body, wanted_ids, query.value_version)
        page = evolve(page, response=response)
        series_ids = list(map(get_series_id, page.heads))
        trail.follow(page, response, series_ids)
        # A response may list fewer series than the catalogue, but none that the query
        # does not select.
        for index, series_id in enumerate(series_ids):
            if series_id not in query_ids:
                path = series_path(index, series_id)
                raise MalformedAnswerError(
                    f"the series is not in the catalogue @ {path}"
                )
        complete_pages += trail.series_ids >= home
        return (
            evolve(page, next_cursor=None) if complete_pages > FURTHER_PAGES else page
        )

    return _follow_cursor(send, request_for, read, prefetch=False)


async def _follow_cursor(
    send: Send,
    request_for: Callable[..., Request],
    read: Callable[[Response], Awaitable[Page]],
    *,
    prefetch: bool,
) -> AsyncGenerator[Page, None]:
    """Follow the cursor until the last page; with `prefetch` request a page ahead."""
    # At most one request is ahead of the consumer, who sets the pace.
    request = request_for(cursor=None)
    ahead: asyncio.Task[Response] | None = None
    try:
        while True:
            response, ahead = await (ahead or send(request)), None
            async with decoding_lock():
                try:
                    page = await read(response)
                except AsyncfinError as error:
                    operation, entity_id = request.operation, request.entity_id
                    complete_error(error, operation, entity_id, response)
                    raise
                if page.next_cursor is not None:
                    request = request_for(cursor=page.next_cursor)
                    # Not sooner: a request counts against the allowance, and this page
                    # might be rejected.
                    ahead = asyncio.ensure_future(send(request)) if prefetch else None
                # Others run before the next body is decoded, however many were received
                # at once.
                await asyncio.sleep(0)
            if ahead is not None:
                await _wait_until_sent(ahead)
            is_last, pages = page.next_cursor is None, [page]
            # While the consumer works, only the consumer keeps the bytes.
            del page, response
            yield pages.pop()
            if is_last:
                return
    finally:
        if ahead is not None:
            await cancel_and_wait([ahead])


async def _wait_until_sent(request: asyncio.Future[Response]) -> None:
    """Return when a request is written, or waits for the bucket, a connection or a
    retry, or has ended.

    The consumer of the page may not let the loop run: then the request would be written
    after its work.
    """
    for _ in range(_STEPS):
        if request.done():
            return
        await asyncio.sleep(0)


def _check_selection(query: Query, page: QueryPage) -> None:
    """Reject series that the query does not select (spec 4.3 rule 1)."""
    metrics, paths = {*query.metric_ids}, {*query.scope_combinations}
    groups = query.reporting_group_ids
    for index, series in enumerate(page.raw_series):
        if (
            series.metric_id not in metrics
            or series.scopes not in paths
            or (groups is not None and series.reporting_group_id not in groups)
        ):
            raise MalformedAnswerError(
                f"series {series.series_id!r} ({series.metric_id}, "
                f"{format_path(series.scopes)},"
                f" {series.reporting_group_id}) was not requested @ $.series[{index}]"
            )


async def read_catalogue(
    send: Send, entity_id: str, dataset: Dataset | None = None
) -> Catalogue:
    """Return a whole catalogue (spec 4.2).

    With `dataset` each request is pinned to its publication. Without, none is pinned:
    the first page says which publication is the current one, and all must be of it.
    """
    pin = None if dataset is None else dataset.dataset_id
    chain = catalogue_pages(
        send, entity_id, expected_dataset_id=pin, page_size=MAX_PAGE_SIZE
    )
    async with aclosing(chain):
        pages = [page async for page in chain]
    return join_pages(dataset or pages[0], pages)
