"""A company that is gone or forbidden: within `max_age` that costs no further request."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from asyncfin import (
    Annual,
    AsyncfinError,
    Client,
    FileCache,
    MemoryCache,
    NotFoundError,
    PermissionDeniedError,
    Retry,
    Select,
)
from asyncfin.sandbox import Sandbox, Status
from tests.generate import generate
from tests.services.raw import answer, refusal, scripted

DATASET = generate(7, series=20, publications=1)
ENTITY = DATASET.entity_id
GONE = "O-" + "0" * 32
OTHER_TOKEN = "another-token-of-the-account"
Make = Callable[..., Client]


@pytest.fixture(params=["none", "memory", "file"])
async def service(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Sandbox, Make]]:
    """A service, and what makes clients that share a cache of each kind."""
    memory, folder = MemoryCache(account="desk"), FileCache(tmp_path / "cache", account="desk")
    clients = []
    async with Sandbox(DATASET) as sandbox:

        def make(**options: Any) -> Client:
            cache = {
                "none": None,
                "memory": memory,
                "file": folder,
            }[request.param]
            options = {"token": sandbox.token, "retry": Retry(attempts=1), **options}
            clients.append(Client(sandbox.base_url, cache=cache, **options))
            return clients[-1]

        yield sandbox, make
        for client in clients:
            await client.aclose()


shared = pytest.mark.parametrize("service", ["memory", "file"], indirect=True)


async def visit(client: Client, entity_id: str, error: type[AsyncfinError], **options: Any) -> None:
    with pytest.raises(error) as raised:
        await client.query(entity_id, Select(), Annual(), **options)
    assert raised.value.entity_id == entity_id


async def test_rejection_costs_one_request(service: tuple[Sandbox, Make]) -> None:
    """Twenty visits to a made-up id; `attempts` tells those that were not sent."""
    sandbox, make = service
    client = make(max_age=60)
    for _ in range(20):
        await visit(client, GONE, NotFoundError)
    assert len(sandbox.log) == 1
    with pytest.raises(NotFoundError) as raised:
        await client.catalogue(GONE)
    assert (raised.value.status, raised.value.attempts) == (404, 0)
    assert len(sandbox.log) == 1


async def test_visits_without_max_age_are_sent(service: tuple[Sandbox, Make]) -> None:
    """Also where the question alone says so."""
    sandbox, make = service
    for client, options in ((make(), {}), (make(max_age=60), {"max_age": 0})):
        before = len(sandbox.log)
        for _ in range(3):
            await visit(client, GONE, NotFoundError, **options)
        assert len(sandbox.log) - before == 3


async def test_old_rejection_is_asked_again(
    service: tuple[Sandbox, Make], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After `max_age` one request finds out whether the entity is there by now."""
    sandbox, make = service
    client = make(max_age=60)
    sandbox.inject(Status(status=404, code="not_found", nth=1))
    await visit(client, ENTITY, NotFoundError)
    await visit(client, ENTITY, NotFoundError)
    later = datetime.now(UTC) + timedelta(seconds=61)
    publications = client._publications
    monkeypatch.setattr(publications, "clock", lambda: later)
    monkeypatch.setattr(publications.records._cache, "_clock", lambda: later)
    assert len(await client.query(ENTITY, Select(), Annual())) == 20


@shared
async def test_not_found_is_shared_by_clients(service: tuple[Sandbox, Make]) -> None:
    """Whatever their tokens are; and a later success is seen by all."""
    sandbox, make = service
    first, second = make(max_age=60), make(max_age=60, token=OTHER_TOKEN)
    sandbox.inject(Status(status=404, code="not_found", nth=1))
    await visit(first, ENTITY, NotFoundError)
    spent = len(sandbox.log)
    for client in (first, second):
        await visit(client, ENTITY, NotFoundError)
    assert len(sandbox.log) == spent
    await first.dataset(ENTITY)
    assert len(await first.query(ENTITY, Select(), Annual())) == 20
    spent = len(sandbox.log)
    assert len(await second.query(ENTITY, Select(), Annual())) == 20
    assert len(sandbox.log) == spent


@shared
async def test_forbidden_counts_for_its_token_only(service: tuple[Sandbox, Make]) -> None:
    """It may be the token's permission: a client of another token sends its request."""
    sandbox, make = service
    sandbox.inject(Status(status=403, code="forbidden", nth=(1, 2)))
    first, same, other = make(max_age=60), make(max_age=60), make(max_age=60, token=OTHER_TOKEN)
    await visit(first, ENTITY, PermissionDeniedError)
    for client in (first, same):
        await visit(client, ENTITY, PermissionDeniedError)
    assert len(sandbox.log) == 1
    with pytest.raises(AsyncfinError):
        await other.query(ENTITY, Select(), Annual())
    assert len(sandbox.log) == 2


async def test_own_max_age_decides(service: tuple[Sandbox, Make]) -> None:
    """One that is pending with another `max_age` shares no rejection that it would not take itself."""
    sandbox, make = service
    client = make(max_age=60)
    await visit(client, GONE, NotFoundError)
    spent = len(sandbox.log)
    questions = [client.query(GONE, Select(), Annual(), max_age=age) for age in (60, 0, 60, 0)]
    results = await asyncio.gather(*questions, return_exceptions=True)
    assert [type(result) for result in results] == [NotFoundError] * 4
    assert [result.attempts for result in results] == [0, 1, 0, 1]  # type: ignore[union-attr]
    assert len(sandbox.log) > spent


@shared
async def test_rejection_after_renewal_binds_no_other(service: tuple[Sandbox, Make]) -> None:
    """A 403 to the token that replaced a rejected one says nothing of the first one (spec 5.4)."""
    sandbox, make = service
    tokens = iter([sandbox.token, OTHER_TOKEN])

    async def token() -> str:
        return next(tokens)

    renewing, fixed = make(token=token, max_age=60), make(max_age=60)
    await renewing.dataset(ENTITY)
    sandbox.inject(Status(status=401, code="invalid_token", operation="catalogue", nth=1))
    sandbox.inject(Status(status=403, code="forbidden", operation="catalogue", nth=2))
    with pytest.raises(PermissionDeniedError):
        await renewing.catalogue(ENTITY)
    assert (await fixed.catalogue(ENTITY)).entity_id == ENTITY


@pytest.mark.virtual
@pytest.mark.parametrize("status", [403, 404])
@pytest.mark.parametrize("is_rejected_last", [True, False])
async def test_last_attempt_dates_the_record(status: int, is_rejected_last: bool) -> None:
    """Of a request that was sent twice, the second attempt counts: another client's came in between."""
    dataset = {
        "entity_id": GONE,
        "dataset_id": "00000000-0000-4000-8000-000000000001",
        "name": "Example",
        "created_timestamp": "2026-02-03T04:05:06Z",
    }
    success = answer(body=json.dumps(dataset).encode())
    rejection = refusal(status, "forbidden" if status == 403 else "not_found")
    second, third = (success, rejection) if is_rejected_last else (rejection, success)
    responses = [answer(503), second, third]
    cache = MemoryCache(account="desk")
    async with (
        scripted(*responses) as server,
        Client(server.base_url, "t", allow_http=True, cache=cache, max_age=60) as slow,
        Client(server.base_url, "t", allow_http=True, cache=cache, max_age=60) as other,
    ):
        retried = asyncio.create_task(slow.dataset(GONE))
        await server.arrived(1)
        await asyncio.sleep(0.1)
        await asyncio.gather(other.dataset(GONE), return_exceptions=True)
        await asyncio.gather(retried, return_exceptions=True)
        assert len(server.requests) == 3
        with pytest.raises(AsyncfinError) as raised:
            await other.catalogue(GONE)
        assert (raised.value.attempts == 0) is is_rejected_last
