"""The first catalogue of an entity, while its publication is replaced (handwritten service)."""

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest
from attrs import define, field

from asyncfin import (
    Client,
    DatasetChangedError,
    FiscalRange,
    MemoryCache,
    NotFoundError,
    Select,
    ValidationFailedError,
)
from tests.services.raw import Received, Step, answer, delayed, judged, refusal

pytestmark = pytest.mark.virtual

ENTITY_ID = "O-" + "5" * 32
HEAD = {"entity_id": ENTITY_ID, "name": "Example", "created_timestamp": "2026-02-03T04:05:06Z"}


def publication_id(number: int) -> str:
    return str(UUID(int=number))


def series(number: int) -> dict[str, Any]:
    return {
        "series_id": f"S{number}",
        "reporting_group_id": "annual",
        "metric_id": f"M{number}",
        "label": "",
        "description": "",
        "basis": "",
        "scopes": [],
        "number_format": "",
        "period_meaning": "",
    }


@define
class Service:
    """A dataset of three pages, published again at some of the requests.

    Args:
        changes: the numbers of the requests before which it is published again, from 1.
        rejection: the status of a cursor without a pin of an older publication; 200: the
            page of the current one.
        lag: for how many requests the metadata name the first publication.
        gone: whether the entity has no dataset after the first change.
    """

    changes: tuple[int, ...] = ()
    rejection: int = 400
    lag: int = 0
    gone: bool = False
    current: int = 1
    requests: list[str] = field(factory=list)

    def respond(self, request: Received) -> bytes:
        path, _, query = request.target.partition("?")
        fields = dict(part.split("=") for part in query.split("&") if part)
        pin, cursor = fields.get("expected_dataset_id"), fields.get("cursor", "1-0")
        operation = path.rsplit("/", 1)[-1]
        self.requests.append(
            f"{operation} {cursor[2:]}{' pinned' if pin else ''}".replace("dataset 0", "dataset")
        )
        if len(self.requests) in self.changes:
            self.current += 1
        if self.gone and self.current > 1:
            return refusal(404, "not_found")
        head = {**HEAD, "dataset_id": publication_id(self.current)}
        if operation == "dataset":
            if self.lag:
                self.lag -= 1
                head["dataset_id"] = publication_id(1)
            return answer(body=json.dumps(head).encode())
        if pin is not None and pin != publication_id(self.current):
            return refusal(409, "dataset_changed")
        publication, number = map(int, cursor.split("-"))
        if "cursor" in fields and publication != self.current and self.rejection != 200:
            code = {400: "validation_failed", 404: "not_found", 409: "dataset_changed"}[self.rejection]
            return refusal(self.rejection, code)
        page = {
            **head,
            "periods": [{"year": 2024, "end_month": 12, "duration_months": 12}],
            "scope_groups": [],
            "groups": [
                {
                    "reporting_group_id": "annual",
                    "name": "",
                    "description": "",
                    "basis": "",
                    "cadence": "",
                    "series": [series(number)],
                }
            ],
        }
        if number < 2:
            page["next_cursor"] = f"{self.current}-{number + 1}"
        return answer(body=json.dumps(page).encode())


FIRST = ["catalogue 0", "catalogue 1"]
PINNED = ["catalogue 0 pinned", "catalogue 1 pinned", "catalogue 2 pinned"]


async def read(service: Service, count: int = 3) -> str:
    """Return the publication of the catalogue that a client reads."""
    async with judged(service.respond) as server, Client(server.base_url, "t", allow_http=True) as client:
        catalogue = await client.catalogue(ENTITY_ID)
        assert [each.series_id for each in catalogue.series] == ["S0", "S1", "S2"]
        return catalogue.dataset_id


@pytest.mark.parametrize("rejection", [400, 404, 409, 200])
async def test_replaced_publication_is_read_again(rejection: int) -> None:
    """A cursor that is rejected, or a page of another publication: the metadata, then pinned pages."""
    service = Service(changes=(2,), rejection=rejection)
    assert await read(service) == publication_id(2)
    assert service.requests == [*FIRST, "dataset", *PINNED]


@pytest.mark.parametrize("rejection", [400, 404, 409, 200])
async def test_publication_replaced_twice(rejection: int) -> None:
    service = Service(changes=(2, 5), rejection=rejection)
    assert await read(service) == publication_id(3)
    assert service.requests == [*FIRST, "dataset", *PINNED[:2], "dataset", *PINNED]


@pytest.mark.parametrize("rejection", [400, 404, 409, 200])
async def test_metadata_that_lag(rejection: int) -> None:
    """They name the old publication once more, and its pinned pages are rejected."""
    service = Service(changes=(2,), rejection=rejection, lag=1)
    assert await read(service) == publication_id(2)
    assert service.requests == [*FIRST, "dataset", PINNED[0], "dataset", *PINNED]


async def test_rejected_cursor_rejects_no_entity() -> None:
    """Another client of the cache, which comes before the restart, reads the new publication."""
    service, options = Service(changes=(2,), rejection=404), {"cache": MemoryCache(), "max_age": 60}
    async with (
        judged(service.respond) as server,
        Client(server.base_url, "t", allow_http=True, **options) as client,
        Client(server.base_url, "t", allow_http=True, **options) as other,
    ):
        reading = asyncio.ensure_future(client.catalogue(ENTITY_ID))
        await server.arrived(2)
        await asyncio.sleep(0.05)
        assert service.requests == FIRST
        for catalogue in (await other.catalogue(ENTITY_ID), await reading):
            assert catalogue.dataset_id == publication_id(2)


@pytest.mark.parametrize("max_age", [0.0, 3600.0])
async def test_shared_read_began_too_early(max_age: float) -> None:
    """With max_age=0 a question takes no confirmation that was requested before it."""
    service = Service()

    def respond(request: Received) -> Step:
        is_slow = request.target.endswith("cursor=1-2") and "expected" not in request.target
        return delayed(1.0 if is_slow else 0.0, service.respond(request))

    async with (
        judged(respond) as server,
        Client(server.base_url, "t", allow_http=True, cache=MemoryCache()) as client,
    ):
        first = asyncio.ensure_future(client.catalogue(ENTITY_ID, max_age=max_age))
        await server.arrived(3)
        await asyncio.sleep(0.1)
        service.current = 2
        later = [client.catalogue(ENTITY_ID, max_age=0) for _ in range(5)]
        catalogues = await asyncio.gather(first, *later)
        numbers = [UUID(catalogue.dataset_id).int for catalogue in catalogues]
    assert numbers == [1, 2, 2, 2, 2, 2]
    assert service.requests == [*FIRST, "catalogue 2", "dataset", *PINNED]


async def test_publication_that_keeps_changing() -> None:
    """After three restarts the error says so."""
    service = Service(changes=(2, 5, 7, 9))
    with pytest.raises(DatasetChangedError) as caught:
        await read(service)
    assert caught.value.entity_id == ENTITY_ID


async def test_entity_that_is_gone() -> None:
    """A 404 to a cursor is checked against the metadata, which are 404 too."""
    service = Service(changes=(2,), gone=True)
    with pytest.raises(NotFoundError):
        await read(service)
    assert service.requests == [*FIRST, "dataset"]


async def test_broken_cursor_is_raised() -> None:
    """A cursor that is rejected although nothing was replaced."""
    service = Service()

    def respond(request: Received) -> bytes:
        page = service.respond(request)
        return refusal(400, "validation_failed") if "cursor" in request.target else page

    async with judged(respond) as server, Client(server.base_url, "t", allow_http=True) as client:
        with pytest.raises(ValidationFailedError):
            await client.query(ENTITY_ID, Select(), FiscalRange())
    assert service.requests == [*FIRST, "dataset", *PINNED[:2], "dataset"]
