"""How many requests a read sends, by what is known of the entity (spec 2.3: each page has the metadata)."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from asyncfin import (
    Annual,
    Client,
    DatasetChangedError,
    Exact,
    FileCache,
    MemoryCache,
    Query,
    Select,
    SelectionError,
    Unchanged,
    extract,
    read_entity,
)
from asyncfin.events import Event, QuestionFinished
from asyncfin.sandbox import Sandbox
from tests.handmade import ENTITY_ID, SECOND, dataset
from tests.services.altering import altered

pytestmark = pytest.mark.virtual
QUESTION = (Select(), Annual())


def company(series: int, *, entity_id: str = ENTITY_ID, **options: Any) -> dict[str, Any]:
    numbers = {(f"M{number}", "all"): {"FY2023": 1.0, "FY2024": 2.0} for number in range(series)}
    return dataset(numbers, entity_id=entity_id, **options)


async def stream(client: Client, folder: Path) -> None:
    async with client.stream(ENTITY_ID, *QUESTION) as pieces:
        async for _ in pieces:
            pass


async def query_many(client: Client, folder: Path) -> None:
    async with client.query_many([ENTITY_ID], *QUESTION) as answers:
        async for answer in answers:
            assert answer.error is None


async def extracted(client: Client, folder: Path, **options: Any) -> None:
    report = await extract(client, [ENTITY_ID], *QUESTION, to=folder / "out", **options)
    assert not report.failed


READS: dict[str, Callable[[Client, Path], Awaitable[object]]] = {
    "catalogue": lambda client, _: client.catalogue(ENTITY_ID),
    "plan": lambda client, _: client.plan(ENTITY_ID, *QUESTION),
    "query": lambda client, _: client.query(ENTITY_ID, *QUESTION),
    "stream": stream,
    "compare": lambda client, _: client.compare([ENTITY_ID], *QUESTION),
    "query_many": query_many,
    "read_entity": lambda client, _: read_entity(client, ENTITY_ID, *QUESTION),
    "extract": extracted,
}


@pytest.mark.parametrize("series", [0, 206])
@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("cached", [False, True])
async def test_cold_read_requests_no_metadata(name: str, series: int, cached: bool, tmp_path: Path) -> None:
    """The catalogue's pages, and the batches; none of the pages is pinned, and all queries are."""
    pages = max(1, -(-series // 100))
    async with (
        Sandbox(company(series)) as sandbox,
        Client(sandbox.base_url, sandbox.token, cache=MemoryCache() if cached else None) as client,
    ):
        # A comparison that would show nothing is refused.
        with pytest.raises(SelectionError) if name == "compare" and not series else nullcontext():
            await READS[name](client, tmp_path)
        log = list(sandbox.log)
    # A query takes at most 50 metrics.
    batches = 0 if name in ("catalogue", "plan") else -(-series // 50)
    assert [served.operation for served in log] == ["catalogue"] * pages + ["query"] * batches
    assert not any("expected_dataset_id" in served.params for served in log)
    assert all("expected_dataset_id" in str(served.body) for served in log[pages:])


async def test_unless_requests_the_metadata() -> None:
    """One request if the publication is that of the caller; else one more than without."""
    ends: list[QuestionFinished] = []

    def collect(event: Event) -> None:
        if isinstance(event, QuestionFinished):
            ends.append(event)

    async with Sandbox(company(150)) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        with client.observed(collect):
            answer = await read_entity(client, ENTITY_ID, *QUESTION, unless="another")
            assert answer.panel is not None
            assert answer.panel.requests == len(sandbox.log)
            operations = [served.operation for served in sandbox.log]
            assert operations == ["dataset", "catalogue", "catalogue", "query", "query", "query"]
            known = answer.panel.dataset.dataset_id
            assert isinstance(await read_entity(client, ENTITY_ID, *QUESTION, unless=known), Unchanged)
    assert len(sandbox.log) == len(operations) + 1
    assert [end.requests for end in ends] == [len(operations), 1]


@pytest.mark.parametrize("make", [None, MemoryCache, FileCache])
@pytest.mark.parametrize("is_replaced", [False, True])
async def test_metadata_confirm_the_catalogue(make: Any, is_replaced: bool, tmp_path: Path) -> None:
    """Also that of another client of the cache; only of a new publication pages are read, and pinned."""
    cache = make and (make(tmp_path) if make is FileCache else make())
    async with (
        Sandbox(company(150)) as sandbox,
        Client(sandbox.base_url, sandbox.token, cache=cache) as client,
        Client(sandbox.base_url, sandbox.token, cache=cache) as other,
    ):
        await client.catalogue(ENTITY_ID)
        if is_replaced:
            sandbox.publish(company(150, dataset_id=SECOND))
        before = len(sandbox.log)
        await (client if cache is None else other).catalogue(ENTITY_ID)
        log = list(sandbox.log)[before:]
    assert [served.operation for served in log] == ["dataset"] + ["catalogue"] * (2 * is_replaced)
    assert all(served.params["expected_dataset_id"] == SECOND for served in log[1:])


@pytest.mark.parametrize("cached", [False, True])
async def test_simultaneous_reads_share_first_pages(cached: bool) -> None:
    """Whatever they read of the entity."""
    async with (
        Sandbox(company(206)) as sandbox,
        Client(sandbox.base_url, sandbox.token, cache=MemoryCache() if cached else None) as client,
    ):
        await asyncio.gather(
            client.catalogue(ENTITY_ID),
            client.plan(ENTITY_ID, *QUESTION),
            stream(client, Path()),
            *(client.query(ENTITY_ID, Select(f"M{number}"), Annual()) for number in range(3)),
        )
        operations = Counter(served.operation for served in sandbox.log)
    assert (operations["dataset"], operations["catalogue"]) == (0, 3)


@pytest.mark.parametrize("operation", ["catalogue", "query"])
async def test_page_of_another_publication_changes(operation: str) -> None:
    """Also if the request was pinned: a page generator ends, and a whole read starts over."""
    answered = 0

    def alter(name: str, _: Any, body: dict[str, Any]) -> None:
        nonlocal answered
        if name == operation and body.get("dataset_id") and (answered := answered + 1) == 2:
            body["dataset_id"] = SECOND

    async with (
        Sandbox(company(206)) as sandbox,
        altered(sandbox, alter) as base_url,
        Client(base_url, sandbox.token, max_in_flight=1) as client,
    ):
        catalogue = await client.catalogue(ENTITY_ID) if operation == "query" else None
        if catalogue is None:
            pages: Any = client.catalogue_pages(ENTITY_ID)
        else:
            metrics, paths = [*catalogue.by_metric][:50], [*catalogue.by_path]
            query = Query(metrics, paths, Exact(["FY2023"]))
            pages = client.query_pages(ENTITY_ID, query, page_size=25)
        with pytest.raises(DatasetChangedError) as changed:
            async for _ in pages:
                pass
        answered = 0
        before = len(sandbox.log)
        panel = await client.query(ENTITY_ID, *QUESTION)
    error = changed.value
    assert (error.status, error.code, error.answered, error.has_error_object) == (
        200,
        "dataset_changed",
        True,
        False,
    )
    assert (error.operation, error.entity_id) == (operation, ENTITY_ID)
    assert len(panel) == 206
    assert "dataset" in [served.operation for served in sandbox.log[before:]]


@pytest.mark.parametrize("make", [None, MemoryCache, FileCache])
async def test_metadata_are_requested_once(make: Any, tmp_path: Path) -> None:
    """As after the metadata alone: they are not requested a second time."""
    cache = make and (make(tmp_path) if make is FileCache else make())
    async with (
        Sandbox(company(150)) as sandbox,
        Client(sandbox.base_url, sandbox.token, cache=cache) as client,
    ):
        await client.dataset(ENTITY_ID)
        await client.query(ENTITY_ID, *QUESTION)
    operations = [served.operation for served in sandbox.log]
    assert operations == ["dataset", "catalogue", "catalogue", "query", "query", "query"]
