"""Which publication counts as the current one: late responses, refusals, and clients that share a cache."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from asyncfin import (
    Annual,
    AsyncfinError,
    Catalogue,
    Client,
    FileCache,
    FiscalRange,
    MemoryCache,
    NotFoundError,
    Panel,
    PermissionDeniedError,
    Retry,
    Select,
    ServerFailureError,
)
from asyncfin.sandbox import Sandbox, Slow, Status
from asyncfin.sandbox.dataset import DatasetFile
from tests.generate import generate
from tests.read.test_answers import content

BOTH = generate(7, series=60, publications=2)
OLD, NEW = (DatasetFile(BOTH.entity_id, BOTH.name, (publication,)) for publication in BOTH.publications)
ENTITY = BOTH.entity_id
ONCE = Retry(attempts=1)
Make = Callable[..., Client]


@pytest.fixture(params=["memory", "file"])
async def shared(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Sandbox, Make]]:
    """A service with the old publication, and what makes clients that share a cache, each file in turn."""
    memory, folder = MemoryCache(account="desk"), FileCache(tmp_path / "cache", account="desk")
    clients = []
    async with Sandbox(OLD) as sandbox:

        def make(token: str = sandbox.token, **options: float) -> Client:
            cache = memory if request.param == "memory" else folder
            kept = {"retry": ONCE, "cache": cache, **options}
            clients.append(Client(sandbox.base_url, token, **kept))  # type: ignore[arg-type]
            return clients[-1]

        yield sandbox, make
        for each in clients:
            await each.aclose()


def requested(sandbox: Sandbox, since: int = 0) -> list[str | None]:
    return [served.operation for served in list(sandbox.log)[since:]]


async def pieces(client: Client, source: str | Catalogue) -> list[Panel]:
    async with client.stream(source, Select(), Annual()) as stream:
        return [piece async for piece in stream]


@pytest.mark.parametrize(("status", "error"), [(403, PermissionDeniedError), (404, NotFoundError)])
async def test_refusal_withholds_a_given_catalogue(
    shared: tuple[Sandbox, Make], status: int, error: type[Exception]
) -> None:
    """The next question sends one request, whose 200 lifts the refusal, whichever publication is current."""
    sandbox, make = shared
    client = make(stale_if_error=1e9)
    whole = await client.query(ENTITY, Select(), FiscalRange())
    sandbox.inject(Status(status=status, code="no", nth=(1, 2)))
    with pytest.raises(error):
        await client.dataset(ENTITY)
    spent = len(sandbox.log)
    with pytest.raises(error):
        await client.query(whole.catalogue, Select(), Annual())
    sandbox.publish(NEW)
    panel = await client.query(whole.catalogue, Select(), FiscalRange())
    assert content(panel) == content(whole)
    assert requested(sandbox, spent) == ["dataset", "dataset"]


async def test_refusal_applies_to_every_client(
    shared: tuple[Sandbox, Make],
) -> None:
    """What another client has in its memory is neither returned nor stored again."""
    sandbox, make = shared
    one, other = make(stale_if_error=1e9), make(stale_if_error=1e9)
    whole = await one.query(ENTITY, Select(), FiscalRange())
    assert (await other.query(ENTITY, Select(), Annual())).requests == 1
    sandbox.inject(Status(status=404, code="no", nth=(1, 2)))
    with pytest.raises(NotFoundError):
        await one.dataset(ENTITY)
    spent = len(sandbox.log)
    with pytest.raises(NotFoundError):
        await other.query(ENTITY, Select(), Annual())
    assert requested(sandbox, spent) == ["dataset"]
    panel = await other.query(ENTITY, Select(), FiscalRange())
    assert (panel.requests, content(panel)) == (1, content(whole))
    assert (await one.query(ENTITY, Select(), Annual(), max_age=60)).requests == 0


READS: dict[str, Callable[[Client, str | Catalogue], Awaitable[object]]] = {
    "query": lambda client, source: client.query(source, Select(), Annual()),
    "stream": pieces,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("pinned", [False, True])
async def test_refusal_ends_read_in_progress(
    shared: tuple[Sandbox, Make], read: Callable[[Client, str | Catalogue], Awaitable[object]], pinned: bool
) -> None:
    """Its old confirmation is not stored either: no other client returns anything afterwards."""
    sandbox, make = shared
    one, other = make(max_age=1e9), make(max_age=1e9)
    catalogue = await one.catalogue(ENTITY)
    sandbox.inject(Slow(seconds=0.5, operation="query"), Status(status=403, code="no", operation="dataset"))
    reading = asyncio.ensure_future(read(one, catalogue if pinned else ENTITY))
    while "query" not in requested(sandbox):  # noqa: ASYNC110  the sandbox has no event for it
        await asyncio.sleep(0.02)
    with pytest.raises(PermissionDeniedError):
        await other.dataset(ENTITY)
    with pytest.raises(PermissionDeniedError):
        await reading
    for each in (one, other):
        with pytest.raises(PermissionDeniedError):
            await each.query(ENTITY, Select(), Annual())


async def test_replaced_publication_is_never_stale_result(
    shared: tuple[Sandbox, Make],
) -> None:
    """Though it is what this client read last."""
    sandbox, make = shared
    one, other = make(stale_if_error=1e9), make()
    await one.query(ENTITY, Select(), FiscalRange())
    sandbox.publish(NEW)
    await other.dataset(ENTITY)
    sandbox.inject(Status(status=503))
    with pytest.raises(ServerFailureError):
        await one.query(ENTITY, Select(), FiscalRange())
    with pytest.raises(AsyncfinError):
        await one.catalogue(ENTITY)


async def test_clients_never_go_back(
    shared: tuple[Sandbox, Make],
) -> None:
    """One confirms the new one; the others follow, without another 409."""
    sandbox, make = shared
    clients = [make(max_age=1e9) for _ in range(3)]
    for each in clients:
        await each.query(ENTITY, Select(), FiscalRange())
    sandbox.publish(NEW)
    current = await clients[0].dataset(ENTITY)
    for each in (*clients, *clients):
        assert (await each.query(ENTITY, Select(), FiscalRange())).dataset == current
    sandbox.publish(OLD)
    await clients[1].query(ENTITY, Select(), Annual(), max_age=0)
    for each in clients:
        assert (await each.query(ENTITY, Select(), FiscalRange())).dataset != current
    assert not [served for served in sandbox.log if served.status == 409]


async def test_confirmation_elsewhere_restarts_the_read(
    shared: tuple[Sandbox, Make],
) -> None:
    """Its pages arrive, and are of the old publication: the read starts over with the new one."""
    sandbox, make = shared
    one, other = make(max_age=1e9), make()
    await one.catalogue(ENTITY)
    sandbox.inject(Slow(seconds=0.5, operation="query"))
    reading = asyncio.ensure_future(one.query(ENTITY, Select(), FiscalRange()))
    while "query" not in requested(sandbox):  # noqa: ASYNC110  the sandbox has no event for it
        await asyncio.sleep(0.02)
    sandbox.publish(NEW)
    current = await other.dataset(ENTITY)
    panel = await reading
    assert panel.dataset == current
    assert 409 not in [served.status for served in sandbox.log]


async def test_future_confirmation_is_not_recent(
    shared: tuple[Sandbox, Make], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wall clock was set back by an hour: its age is unknown, and a new confirmation counts."""
    sandbox, make = shared
    one, other = make(max_age=60), make(max_age=60)
    tomorrow = datetime.now(UTC) + timedelta(hours=1)
    with monkeypatch.context() as ahead:
        for client in (one, other):
            for clock in (
                (client._transport, "clock"),
                (client._publications, "clock"),
                (client._publications.records._cache, "_clock"),
            ):
                ahead.setattr(*clock, lambda: tomorrow)
        whole = await one.query(ENTITY, Select(), FiscalRange())
        assert (await other.query(ENTITY, Select(), FiscalRange())).requests == 0
    spent = len(sandbox.log)
    for client in (one, other):
        panel = await client.query(ENTITY, Select(), FiscalRange())
        assert content(panel) == content(whole)
    assert requested(sandbox, spent)
    spent = len(sandbox.log)
    for client in (one, other):  # the new confirmation counts
        await client.query(ENTITY, Select(), FiscalRange())
    assert not requested(sandbox, spent)


@pytest.mark.parametrize("status", [403, 404])
async def test_forbidden_token_withholds_nothing_of_others(shared: tuple[Sandbox, Make], status: int) -> None:
    """A client with another token gets values within `max_age`, and stale ones; after a 404 it gets none."""
    sandbox, make = shared
    one, other = make(stale_if_error=1e9), make("another-token", stale_if_error=1e9)
    whole = await one.query(ENTITY, Select(), FiscalRange())
    sandbox.inject(Status(status=status, code="no", nth=1))
    with pytest.raises((PermissionDeniedError, NotFoundError)):
        await one.dataset(ENTITY)
    sandbox.inject(Status(status=503))
    for client, may_read in ((one, False), (other, status == 403)):
        for max_age in (0, 1e9):
            query = client.query(ENTITY, Select(), FiscalRange(), max_age=max_age)
            if may_read:
                assert content(await query) == content(whole)
            else:
                with pytest.raises((PermissionDeniedError, NotFoundError, ServerFailureError)):
                    await query


async def test_returning_publication_has_its_confirmation() -> None:
    """Not after the wait before the restart: `confirmed_at` would be later than what is known."""
    received: list[datetime] = []

    def clock() -> datetime:
        received.append(datetime.now(UTC))
        return received[-1]

    async with (
        Sandbox(OLD, clock=clock) as sandbox,
        Client(sandbox.base_url, sandbox.token, cache=MemoryCache()) as client,
    ):
        for each in (NEW, OLD):
            await client.query(ENTITY, Select(), FiscalRange())
            sandbox.publish(each)
        panel = await client.query(ENTITY, Select(), FiscalRange())
        assert panel.requests == 1
        assert panel.confirmed_at is not None
        assert panel.confirmed_at <= received[-1]
