"""The client: one method for each endpoint, and the whole reads made of them."""

from __future__ import annotations

import os
import re
import ssl as tls
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Mapping,
)
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from datetime import date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypedDict, Unpack, overload

from attrs import fields_dict

from asyncfin import checks
from asyncfin.cache.base import Cache
from asyncfin.errors import ArgumentError, SelectionError
from asyncfin.events import Observer, Stats
from asyncfin.model.catalogue import Catalogue, CataloguePage, Dataset
from asyncfin.model.query import (
    VALUE_VERSIONS,
    Query,
    ValueVersion,
    check_dataset_id,
    check_page_size,
    check_value_version,
)
from asyncfin.model.select import Select, check_select
from asyncfin.model.selection import PeriodSelection, check_period_selection
from asyncfin.pacing.bucket import Bucket, Lane, TokenBucket
from asyncfin.plan.plan import Plan
from asyncfin.plan.question import Question
from asyncfin.read.entity import (
    AskedVersion,
    EntityAnswer,
    Unchanged,
    read_versions,
)
from asyncfin.read.many import EntityIds, read_many
from asyncfin.read.publications import Publications, Standing
from asyncfin.read.query import (
    plan_question,
    read_question,
)
from asyncfin.read.read import Read, everything
from asyncfin.read.stream import stream_question
from asyncfin.table.panel import Panel
from asyncfin.tasks import bounded
from asyncfin.wire.codec import encode
from asyncfin.wire.pages import catalogue_pages, query_pages
from asyncfin.wire.protocol import (
    Response,
    limits_request,
    raw_request,
    read_json,
    usage_request,
    usage_windows,
)
from asyncfin.wire.retry import Retry, Timeouts
from asyncfin.wire.sender import Sender
from asyncfin.wire.token import TokenSource
from asyncfin.wire.transport import Transport
from asyncfin.wire.values import QueryPage

if TYPE_CHECKING:
    from asyncfin.model.usage import UsageWindow
    from asyncfin.table.comparison import Comparison

_count_or_none = checks.positive_int.optional()


# Listed a second time, since Python derives no TypedDict from a signature; a test
# compares the two.
class ClientOptions(TypedDict, total=False):
    """The keyword arguments of `Client`, for callers that pass them on."""

    bucket: Bucket | None
    retry: Retry
    timeouts: Timeouts
    max_in_flight: int
    lane: Lane
    cache: Cache | None
    max_age: float
    stale_if_error: float
    ssl: tls.SSLContext | None
    trust_env: bool
    allow_http: bool
    user_agent: str | None
    observers: Iterable[Observer]


class Client:
    """A session with the service.

    Use it as an async context manager, or call ``await client.aclose()`` at the end.
    Connections open at first use. Any number of tasks of one event loop may share a
    client.

    Args:
        base_url: the URL of the service: https, or http to this machine.
        token: the access token (spec 5), or an async callable that returns one, such as
            `token_file(path)`; it is called again when the service rejects the token.
        bucket: paces the requests; clients with the same bucket share its
            pace. None: a separate `TokenBucket()`, which learns its rate from the
            service's 429s.
        retry: when to send a request again.
        timeouts: the time limits of one attempt.
        max_in_flight: how many requests may be in flight at once, at least 1.
        lane: ``"interactive"``, or ``"bulk"``, which gives way to interactive clients
            of the same bucket and process.
        cache: stores what is read, so that it need not be requested again. None: only
            the catalogues used last are cached. Equal queries at the same time share
            their requests in either case.
        max_age: how many seconds a publication is taken for the current one after it
            was confirmed. 0: each question confirms it, with one request for the
            metadata if it sends no other.
        stale_if_error: for how many seconds after that a cached catalogue and cached
            values are returned, if nothing else is needed and the current publication
            cannot be found out: the allowance is used up, or the service fails, can't
            be reached or, in the interactive lane, does not respond within two seconds
            of the sending; the bucket's pace and pauses are waited for.
            Extractions never take such a result. `Panel.confirmed_at` shows how old
            they are.
        ssl: the context that verifies the service's certificate. None: the system's
            certificate authorities.
        trust_env: whether to use the proxies that the environment names.
        allow_http: whether to accept an http URL of another machine; this warns, and
            uses no proxy.
        user_agent: what names the program to the service, in 1 to 200 printable ASCII
            characters: it is sent as ``<text> asyncfin/<version>``. None:
            ``asyncfin/<version>``.
        observers: functions that are called with each event of `asyncfin.events`.

    Raises:
        ArgumentError: an argument is not as described.
    """

    def __init__(
        self,
        base_url: str,
        token: TokenSource,
        *,
        bucket: Bucket | None = None,
        retry: Retry = Retry(),
        timeouts: Timeouts = Timeouts(),
        max_in_flight: int = 8,
        lane: Lane = "interactive",
        cache: Cache | None = None,
        max_age: float = 0.0,
        stale_if_error: float = 0.0,
        ssl: tls.SSLContext | None = None,
        trust_env: bool = False,
        allow_http: bool = False,
        user_agent: str | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        self._transport = Transport(
            base_url,
            timeouts=timeouts,
            max_in_flight=max_in_flight,
            ssl=ssl,
            trust_env=trust_env,
            allow_http=allow_http,
            user_agent=user_agent,
        )
        self._bucket: Bucket = TokenBucket() if bucket is None else bucket
        # A protocol: any object with these methods will do, and a class in place of an
        # object will not.
        checks.instance_of(Bucket)("bucket", self._bucket)
        checks.several("observers", observers, "functions")
        self._sender = Sender(
            self._transport,
            token,
            bucket=self._bucket,
            retry=retry,
            lane=lane,
            observers=observers,
        )
        partition = None
        if cache is not None:
            # By the address that is sent to, so that all ways of writing it share what
            # is kept.
            partition = checks.instance_of(Cache)("cache", cache).partition(
                self._transport.base_url, token
            )
        self._publications = Publications(
            self._sender,
            cache=partition,
            max_age=checks.seconds("max_age", max_age),
            stale_if_error=checks.seconds("stale_if_error", stale_if_error),
        )

    @classmethod
    def from_env(cls, **options: Unpack[ClientOptions]) -> Self:
        """Return a client for the base URL and token in ASYNCFIN_BASE_URL and
        ASYNCFIN_TOKEN.

        ASYNCFIN_USER_AGENT is its `user_agent` unless that is given.

        Args:
            options: the keyword arguments of `Client`.

        Raises:
            ArgumentError: one of the variables is not set, or an option is not as
                described.
        """
        missing = [
            name
            for name in ("ASYNCFIN_BASE_URL", "ASYNCFIN_TOKEN")
            if not os.environ.get(name)
        ]
        if missing:
            raise ArgumentError(
                f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not "
                "set"
            )
        options.setdefault("user_agent", os.environ.get("ASYNCFIN_USER_AGENT") or None)
        return cls(
            os.environ["ASYNCFIN_BASE_URL"], os.environ["ASYNCFIN_TOKEN"], **options
        )

    def __repr__(self) -> str:
        return f"Client({self._transport.base_url!r})"

    async def __aenter__(self) -> Self:
        return self

    if not TYPE_CHECKING:  # a type checker reports the mistake itself

        def __enter__(self) -> NoReturn:
            raise TypeError("write `async with Client(...) as client:`")

        __exit__ = __enter__

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections. The client can't be used afterwards; closing it again
        does nothing.

        Requests in flight and waiting ones end at once with a RuntimeError; the waiting
        ones take no grant of the bucket.

        Raises:
            RuntimeError: the client belongs to another event loop that is not closed.
        """
        await self._sender.aclose()

    @property
    def bucket(self) -> Bucket:
        """The bucket that paces the requests; other clients may share it."""
        return self._bucket

    @property
    def max_in_flight(self) -> int:
        """How many requests may be in flight at once."""
        return self._transport.max_in_flight

    @property
    def clock(self) -> Callable[[], datetime]:
        """Returns the wall time, aware UTC, by which the client dates what it
        receives.
        """
        return self._transport.clock

    def stats(self) -> Stats:
        """Count what the client's requests have cost so far, in total and by
        operation.
        """
        return self._sender.stats()

    def observed(self, observer: Observer) -> AbstractContextManager[Observer]:
        """Return a context manager that adds an observer for the length of a ``with``
        block.

        It yields a function that passes an event to all observers, for callers that
        announce events too.
        """
        return self._sender.announce.also(observer)

    async def dataset(self, entity_id: str) -> Dataset:
        """Return the metadata of an entity's current dataset (spec 4.1). One request.

        Raises:
            SelectionError: the text cannot be an entity id: it is empty, ``"."``,
                ``".."``, longer than 512 characters, or contains a control character.
            NotFoundError: no published dataset is available to the account.
        """
        read = Read(self._publications, everything(entity_id), "dataset")
        return await read.metadata()

    def catalogue_pages(
        self,
        entity_id: str,
        *,
        expected_dataset_id: str | None = None,
        page_size: int = 100,
    ) -> AsyncGenerator[CataloguePage, None]:
        """Yield the pages of a catalogue as the service cuts them (spec 4.2). One
        request each.

        Args:
            entity_id: the entity.
            expected_dataset_id: the publication to read. None: the current one; a
                change between two pages is an error in either case.
            page_size: series per page, 1 to 100.

        Raises:
            SelectionError: an argument is not as described.
            DatasetChangedError: the publication was replaced.
            MalformedAnswerError: a page breaks the spec, is of another publication, or
                repeats a series or a cursor.
        """
        send = Read(self._publications, everything(entity_id), "catalogue").send
        # Checked here: the generator would not begin before its first step.
        check_dataset_id(expected_dataset_id)
        check_page_size(page_size)
        return catalogue_pages(
            send,
            entity_id,
            expected_dataset_id=expected_dataset_id,
            page_size=page_size,
        )

    async def catalogue(
        self, entity_id: str, *, max_age: float | None = None
    ) -> Catalogue:
        """Return the whole catalogue of an entity's current publication (spec 4.2).

        Spends one request for each 100 series, at least one; or one for the metadata if
        the client or its cache has a catalogue of the entity, which is returned if it
        is still the current one.

        If the publication changes during the read, it starts over, at most three times.

        Args:
            entity_id: the entity.
            max_age: how many seconds a publication is taken for the current one after
                it was confirmed. None: the client's `max_age`.

        Raises:
            SelectionError, NotFoundError: as for `dataset`.
            DatasetChangedError: the publication changed too often.
        """
        read = Read(self._publications, everything(entity_id, max_age), "catalogue")
        return await read.attempt(read.catalogue)

    async def cached_catalogue(
        self, entity_id: str, *, max_age: float | None = None
    ) -> Catalogue | None:
        """Return the catalogue last confirmed as current, if it is cached. No request.

        Args:
            entity_id: the entity.
            max_age: how many seconds ago it may have been confirmed. None: the client's
                `max_age`.

        Raises:
            SelectionError: an argument is not as described.
        """
        read = Read(self._publications, everything(entity_id, max_age), "catalogue")
        last = await read.last_publication()
        if last is None or last.standing is not Standing.CURRENT:
            return None
        return last.publication.catalogue

    def query_pages(
        self,
        entity_id: str,
        query: Query,
        *,
        page_size: int = 100,
        prefetch: bool = False,
    ) -> AsyncGenerator[QueryPage, None]:
        """Yield the pages of one query as the service cuts them (spec 4.3). One request
        each.

        Args:
            entity_id: the entity.
            query: what to request.
            page_size: series per page, 1 to 100.
            prefetch: whether to request the next page while the caller works on this
                one; never more than one ahead.

        Raises:
            SelectionError: an argument is not as described.
            ValidationFailedError: the service does not know a metric, group or path.
            DatasetChangedError: the publication of the query's `expected_dataset_id`
                was replaced.
            MalformedAnswerError: a page breaks the spec, is of another publication,
                holds series that were not requested, or repeats a series or a cursor.
                Values are decoded, and can raise it, when they are first looked at.
        """
        send = Read(self._publications, everything(entity_id), "query").send
        checks.instance_of(Query).as_selection_error()("query", query)
        # A user can have changed a batch, which does not check its fields.
        query = Query(**{name: getattr(query, name) for name in fields_dict(Query)})
        check_page_size(page_size)
        return query_pages(
            send, entity_id, query, page_size=page_size, prefetch=prefetch
        )

    async def plan(
        self,
        source: str | Catalogue,
        select: Select,
        periods: PeriodSelection,
        *,
        value_version: ValueVersion = "original",
        max_age: float | None = None,
        fill_cache: bool = True,
        allow_missing: bool = False,
    ) -> Plan:
        """Return the plan of a question: which queries it needs, and how many requests.

        Args:
            source: an entity id, or a Catalogue. With a Catalogue no request is spent;
                with an entity id the catalogue is read unless the client still has it.
            select: the series.
            periods: `Exact`, `FiscalRange`, `Trailing` or a rule such as `Annual`. If
                the catalogue has no periods, those that name no period and no end
                select none, and nothing is requested.
            value_version: ``"original"`` or ``"latest_restated"``.
            max_age: how many seconds a publication is taken for the current one after
                it was confirmed. None: the client's `max_age`.
            fill_cache: whether the client's cache stores what is read. What it already
                holds is used in either case.
            allow_missing: whether ids, words and periods that the entity does not have
                are ignored, as in `compare`. Else they are an error.

        Raises:
            SelectionError: an argument is not as described, or names what the catalogue
                does not have.
        """
        question = Question(
            source, select, periods, value_version, max_age, fill_cache, allow_missing
        )
        return await plan_question(self._publications, question)

    async def run(self, plan: Plan) -> Panel:
        """Return the answer to a planned question. Errors are those of `query`.

        It shares the requests of an equal question that is pending, planned or not.
        """
        checks.instance_of(Plan).as_selection_error()("plan", plan)
        return await read_question(self._publications, plan.question, plan)

    async def query(
        self,
        source: str | Catalogue,
        select: Select,
        periods: PeriodSelection,
        *,
        value_version: ValueVersion = "original",
        max_age: float | None = None,
        fill_cache: bool = True,
    ) -> Panel:
        """Return the selected series with their values at the selected periods, all of
        one publication.

        The panel equals the result of a single query without caps (spec 4.3), read in
        as few requests as the planner can. The arguments are those of `plan`.

        If the publication changes during the read, it starts over, at most three times;
        with a Catalogue as the source a change is an error at once. Equal questions
        that are asked of one client at the same time share their requests, which count
        in `requests` of the first one's panel.

        Raises:
            SelectionError: an argument is not as described, or names what the catalogue
                does not have; no query was sent.
            DatasetChangedError: the publication changed too often, or is not the
                Catalogue's.
            IncompleteResultError: series are missing that the service had listed
                before.
            MalformedAnswerError: a response breaks the spec.
            ServiceError: an error response that retries did not overcome.
            TransportError: no complete response was received in any attempt.
        """
        question = Question(source, select, periods, value_version, max_age, fill_cache)
        return await read_question(self._publications, question)

    def stream(
        self,
        source: str | Catalogue,
        select: Select,
        periods: PeriodSelection,
        *,
        value_version: ValueVersion = "original",
        max_age: float | None = None,
        fill_cache: bool = True,
    ) -> AbstractAsyncContextManager[AsyncIterator[Panel]]:
        """Yield the answer of `query` in pieces, for answers that do not fit into
        memory.

        It is an async context manager that gives an async iterator:

            async with client.stream(entity_id, Select(), Annual()) as pieces:
                async for piece in pieces:
                    ...

        Each piece is a Panel of some of the series, with its own periods. All pieces
        are of one publication, and each series is in exactly one of them. Arguments and
        errors are those of `query`, except that a change of the publication after the
        first piece is a DatasetChangedError. A wait for a piece may be cancelled
        (``asyncio.wait_for``); the next one continues where it stopped.

        Each stream sends its own requests, at the pace of its consumer: only the
        metadata and the catalogue are shared with other pending questions.
        """
        question = Question(source, select, periods, value_version, max_age, fill_cache)
        return stream_question(self._publications, question)

    def query_many(
        self,
        entity_ids: EntityIds,
        select: Select,
        periods: PeriodSelection,
        *,
        value_version: ValueVersion = "original",
        ahead: int | None = None,
        max_age: float | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[EntityAnswer]]:
        """Yield what each of several entities has of a question, in the order of
        arrival.

        For the order of the question, use `compare`.

        It is an async context manager that gives an async iterator of `EntityAnswer`:

            async with client.query_many(entity_ids, select, Annual(last=5)) as answers:
                async for answer in answers:
                    ...

        Each entity is read as `query` reads it. Ids, words and periods that it does not
        have are in `missing`; an entity with nothing of the question has a panel
        without series. If the read fails, `panel` is None and `error` is set, also for
        a malformed id; the other entities continue. A wait for an answer may be
        cancelled (``asyncio.wait_for``) without losing any.

        At most `max_in_flight` requests of all entities wait for the bucket or are in
        flight. Leaving the block cancels the rest.

        Args:
            entity_ids: any iterable or async iterable of entity ids, read as needed.
                Repeated ids are read once.
            select, value_version, max_age: as for `plan`.
            periods: as for `plan`. A rule is resolved for each entity; for one table,
                resolve it first: ``rule.resolve(catalogues)``.
            ahead: how many entities may be begun beyond those that the caller has
                received, at least 1; more than 1,000 count as 1,000. None:
                `max_in_flight`.

        Raises:
            SelectionError: an argument is not as described; no request was sent.
            AsyncfinError: no further entity can be read: `concerns` is ``"account"`` (a
                rejected token or a used-up quota), ``"local"`` (the shared bucket is
                unreachable), or on the bulk lane ``"service"`` (it has failed for
                `Retry.max_outage`). Raised after the answers of the entities begun.
        """
        checks.several("entity_ids", entity_ids, "entity ids", AsyncIterable)
        check_select(select)
        check_period_selection(periods)
        check_value_version(value_version)
        _count_or_none("ahead", ahead)
        checks.seconds_or_none("max_age", max_age)

        def question(entity_id: str) -> Question:
            return Question(
                entity_id, select, periods, value_version, max_age, allow_missing=True
            )

        return read_many(self._publications, entity_ids, question, ahead=ahead)

    async def compare(
        self,
        entity_ids: Iterable[str | Catalogue],
        select: Select,
        periods: PeriodSelection,
        *,
        value_version: ValueVersion = "original",
        max_age: float | None = None,
    ) -> Comparison:
        """Read a query of multiple entities, side by side, in the order of the ids.

        Each entity is read as `query` reads it, at once, with at most `max_in_flight`
        requests. A rule, such as `Annual`, is resolved over the catalogues of all
        entities that can be read, so that one period is one row for all. Other periods
        are passed unchanged.

        Ids, words and periods that an entity does not have are in `missing`; one with
        nothing of the question has a panel without series. An entity that cannot be
        read is in `failed`, also one with a malformed id; the others continue. An
        entity that is published again during the read is read again, at most three
        times; the others only if the rule then selects other periods.

        Requests: those of `query` for each entity, and for a rule at most one more for
        the metadata of an entity whose catalogue was cached.

        Args:
            entity_ids: any iterable of entity ids or Catalogues, read once. Of repeated
                entities the first one counts. With a Catalogue that publication is
                read, and a change is an error of this entity.
            select, periods, value_version, max_age: as for `plan`.

        Raises:
            ArgumentError: `entity_ids` is a single text, or one of them is neither a
                text nor a Catalogue.
            SelectionError: another argument is not as described, or there is no id; no
                request was sent. Or no entity failed, and none has a series of the
                question; or a rule selects no period of any.
            AsyncfinError: all entities failed: the error of the first, or what ended
                the reading.
        """
        # Here, as few programs compare: it imports the tables for people.
        from asyncfin.read.compare import compare

        checks.several("entity_ids", entity_ids, "entity ids")
        return await compare(
            self._publications, entity_ids, select, periods, value_version, max_age
        )

    async def usage(
        self, start_date: date | str, end_date: date | str
    ) -> tuple[UsageWindow, ...]:
        """Return the account's usage from one day to another, oldest first (spec 4.4).

        The range may be of any length: it is read in windows of at most 92 days, one
        request each.

        Args:
            start_date: the first day, a date or ISO text (``"2024-03-31"``), included.
            end_date: the last day, included.

        Raises:
            SelectionError: an argument is not a day, or the end is before the start.
            PermissionDeniedError: the token does not have ``usage:read``.
        """
        start, end = _day("start_date", start_date), _day("end_date", end_date)
        if end < start:
            raise SelectionError(
                f"end_date must not be before start_date: {end} is before {start}"
            )
        # A window is at most 92 days (spec 4.4), so a year takes four requests, which
        # need not wait for each other.
        days = usage_windows(start, end)
        jobs = [partial(self._read_window, *window) for window in days]
        async with bounded(jobs, self.max_in_flight) as results:
            windows = [window async for window in results]
        # They came as they completed.
        return tuple(sorted(windows, key=lambda window: window.start_date))

    async def _read_window(self, start_date: date, end_date: date) -> UsageWindow:
        from asyncfin.model.usage import UsageWindow  # few programs ask for it

        request = usage_request(start_date, end_date)
        body = read_json(request, await self._sender.send(request))
        return UsageWindow(start_date, end_date, body)

    async def limits(self) -> Any:
        """Return the account's credits and research-run limits (spec 4.5). One request.

        It is the response's JSON value, unchanged, since the spec does not show its
        structure.
        """
        request = limits_request()
        return read_json(request, await self._sender.send(request))

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        json: object = None,
    ) -> Response:
        """Return the service's 2xx response in JSON to any request, undecoded, for what
        no other method decodes.

        It is authorized, paced, retried and observed like every other request, so the
        service may receive it more than once. Nothing is cached.

        Args:
            method: the HTTP method.
            path: the path below the base URL, percent-encoded, such as
                ``"/v1/limits"``.
            params: the query parameters, not encoded, or None for none.
            json: what is sent as the body, in JSON, or None for no body.

        Raises:
            ServiceError, TransportError: as of the other methods.
            MalformedAnswerError: the response is not JSON.
            ArgumentError: `path` does not begin with a slash or is not percent-encoded,
                or `params` is not a mapping.
        """
        checks.instance_of(Mapping).optional()("params", params)
        body = None if json is None else encode(json)
        return await self._sender.send(raw_request(method, path, params, body))


_check_client = checks.instance_of(Client)
_check_version = checks.one_of(*VALUE_VERSIONS, "both").as_selection_error()
_check_unless = checks.text("the dataset_id of a publication").optional()


@overload
async def read_entity(
    client: Client,
    entity_id: str,
    select: Select,
    periods: PeriodSelection,
    *,
    value_version: AskedVersion = "original",
    unless: None = None,
) -> EntityAnswer: ...


@overload
async def read_entity(
    client: Client,
    entity_id: str,
    select: Select,
    periods: PeriodSelection,
    *,
    value_version: AskedVersion = "original",
    unless: str | None,
) -> EntityAnswer | Unchanged: ...


async def read_entity(
    client: Client,
    entity_id: str,
    select: Select,
    periods: PeriodSelection,
    *,
    value_version: AskedVersion = "original",
    unless: str | None = None,
) -> EntityAnswer | Unchanged:
    """Read what one entity has of a query of many entities: the unit for any engine.

    Unlike `Client.query`, it accepts ids, words and periods that the entity's catalogue
    does not have: `missing` names them, and the panel contains the rest. If the
    publication changes, the read starts over, at most three times. Unlike `extract`, it
    writes nothing, and accepts a Select with `where` and no `name`. The client's cache
    is read, and never filled.

    Requests: one for each 100 series of the catalogue, and those of the query; with
    `unless` one more, for the metadata. If the catalogue is cached, only the metadata
    and what else is missing.

    Args:
        client: the client.
        entity_id: the entity.
        select: the series.
        periods: `Exact`, `FiscalRange`, `Trailing` or a rule such as `Annual`.
        value_version: ``"original"``, ``"latest_restated"`` or ``"both"``: then the
            catalogue is read once, `EntityAnswer.panel` has the original values, and
            `EntityAnswer.restated` the others.
        unless: the ``dataset_id`` of the publication that the caller has: if it is
            still the current one, `Unchanged` is returned after the metadata request.

    Raises:
        SelectionError: an argument is not as described, before a request is spent.
        DatasetChangedError: the publication changed too often.
        MalformedAnswerError: a response violates the spec; values are decoded on first
            access.
        IncompleteResultError: the service lost series.
        ServiceError, TransportError: a request failed, after its retries.
    """
    _check_client("client", client)
    _check_version("value_version", value_version)
    _check_unless("unless", unless)
    versions = VALUE_VERSIONS if value_version == "both" else (value_version,)
    question = Question(
        entity_id, select, periods, versions[0], fill_cache=False, allow_missing=True
    )
    return await read_versions(client._publications, question, versions, unless=unless)


def _day(name: str, value: date | str) -> date:
    """Return a day. A datetime is rejected, since its time of day would be lost."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    # Neither week dates nor days without hyphens.
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII):
        with suppress(ValueError):
            return date.fromisoformat(value)
    raise SelectionError(
        f"{name} must be a date, or its text YYYY-MM-DD, not {checks.short_repr(value)}"
    )
