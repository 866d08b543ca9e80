"""Entities that the service failed are read again; an account that is refused everywhere ends the run."""

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from asyncfin import (
    Annual,
    Client,
    ExtractProgress,
    Retry,
    Select,
    TokenBucket,
    extract,
)
from asyncfin.extraction.report import EntityReport
from tests.extraction.gate import TOKEN, Status, entity, gate

ONCE = Retry(attempts=1)


def made() -> Client:
    return Client.from_env(retry=ONCE, max_in_flight=2, bucket=TokenBucket(10_000, 100))


async def extracted(
    status: Status, ids: list[str], folder: Path, *, workers: Executor | None = None, **options: Any
) -> tuple[Any, Any, list[EntityReport]]:
    """Return the report of a run, the service, and what has ended, in order."""
    ended: list[EntityReport] = []

    def note(progress: ExtractProgress) -> None:
        if progress.ended is not None:
            ended.append(progress.ended)

    async with gate(status) as (served, base_url):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ASYNCFIN_BASE_URL", base_url)
            patch.setenv("ASYNCFIN_TOKEN", TOKEN)
            async with made() as client:
                options |= {"to": folder, "progress": note}
                if workers is not None:
                    options |= {"executor": workers, "chunk": 25}
                report = await extract(
                    client if workers is None else made, ids, Select(), Annual(), **options
                )
    return report, served, ended


@pytest.fixture(params=["one process", "workers"])
def workers(request: pytest.FixtureRequest) -> Iterator[Executor | None]:
    if request.param == "one process":
        yield None
        return
    with ThreadPoolExecutor(2) as executor:
        yield executor


IDS = [entity(number) for number in range(1, 61)]
FAILING = {IDS[0], IDS[7], IDS[30], IDS[59]}


async def test_service_failures_are_read_again(folder: Path, workers: Executor | None) -> None:
    """It ends once, and its requests are those of both tries."""

    def status(entity_id: str, operation: str, number: int) -> int:
        return 503 if entity_id in FAILING and number == 1 else 200

    report, served, ended = await extracted(status, IDS, folder, workers=workers)
    assert [each.state for each in report.entities] == ["done"] * 60
    assert sorted(each.entity_id for each in ended) == sorted(IDS)
    assert {each.entity_id for each in ended[-4:]} == FAILING
    assert report.requests == sum(served.requests.values())
    by_id = {each.entity_id: each.requests for each in report.entities}
    assert by_id == dict(served.requests)
    assert all(by_id[each] == min(by_id.values()) + 1 for each in FAILING)


async def test_what_fails_twice_has_failed(folder: Path, workers: Executor | None) -> None:
    """There is no third try in a run."""

    def status(entity_id: str, operation: str, number: int) -> int:
        return 503 if entity_id == IDS[7] else 200

    report, served, ended = await extracted(status, IDS, folder, workers=workers)
    (failed,) = report.failed
    assert (failed.entity_id, failed.requests) == (IDS[7], 2)
    assert served.requests[IDS[7]] == 2
    assert [each.entity_id for each in ended].count(IDS[7]) == 1
