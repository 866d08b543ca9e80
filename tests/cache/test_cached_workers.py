"""Clients that share a cache on disk, as the workers of one machine do."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from asyncfin import (
    Annual,
    ArgumentError,
    Client,
    FileCache,
    FiscalRange,
    MemoryCache,
    RedisCache,
    Select,
)
from asyncfin.sandbox import DatasetFile, Sandbox, Slow
from asyncfin.typing import ValueVersion
from tests.generate import generate
from tests.read.test_answers import content
from tests.shared_buckets import redis_server

DATASET = generate(23, series=400, publications=1)
ENTITY = DATASET.entity_id
VERSIONS: tuple[ValueVersion, ...] = ("original", "latest_restated")


def worker(sandbox: Sandbox, folder: Path, **options: float) -> Client:
    """Return a client with a separate cache object, as in another process."""
    cache = FileCache(folder, account="tests")
    return Client(sandbox.base_url, sandbox.token, cache=cache, **options)  # type: ignore[arg-type]


async def test_cold_workers_ask_together_hardly_more_than_one(tmp_path: Path) -> None:
    """Four of them get equal questions at the same time: what one asks for, the others find."""
    selects = [Select(), Select(label="a"), Select(label="e")]
    async with Sandbox(DATASET) as sandbox, worker(sandbox, tmp_path / "one") as alone:
        answers = [await alone.query(ENTITY, select, FiscalRange()) for select in selects]
        cost = len(sandbox.log)
    async with Sandbox(DATASET) as sandbox:
        workers = [worker(sandbox, tmp_path / "four", max_age=60) for _ in range(4)]

        async def visited(each: Client) -> None:
            for select, answer in zip(selects, answers, strict=True):
                assert content(await each.query(ENTITY, select, FiscalRange())) == content(answer)

        await asyncio.gather(*map(visited, workers))
        assert len(sandbox.log) <= 1.1 * cost
        for each in workers:
            await each.aclose()


@pytest.mark.parametrize("max_age", [0.0, 60.0])
async def test_a_worker_that_begins_while_another_reads_the_catalogue_takes_it_as_current(
    tmp_path: Path, max_age: float
) -> None:
    """The other has confirmed it within `max_age`; without that, by a request that was sent before."""
    async with (
        Sandbox(DATASET) as sandbox,
        worker(sandbox, tmp_path / "cache", max_age=max_age) as first,
        worker(sandbox, tmp_path / "cache", max_age=max_age) as second,
    ):
        sandbox.inject(Slow(seconds=0.3, operation="catalogue", nth=1))
        reading = asyncio.ensure_future(first.catalogue(ENTITY))
        async for _ in looks():
            if first.stats().requests:
                break
        found = await second.catalogue(ENTITY)
        assert found.series == (await reading).series
        operations = [served.operation for served in sandbox.log]
    assert operations == ["catalogue"] * -(-len(found) // 100) + ["dataset"] * (max_age == 0)


async def looks() -> AsyncIterator[None]:
    """Look again every hundredth of a second, for at most ten."""
    async with asyncio.timeout(10):
        while True:
            yield
            await asyncio.sleep(0.01)


COLD = """
import asyncio, sys
from asyncfin import Client, FileCache, FiscalRange, RedisCache, Select
from asyncfin.cache import file, redis, stored

# The machine may be busy: who waits so long for a store or a claim goes on without it.
stored.STORE_SECONDS = file.STORE_SECONDS = redis.STORE_SECONDS = stored.LOCK_SECONDS = 60.0

async def main():
    kind, place, base_url, token, entity_id = sys.argv[1:]
    cache = FileCache(place, account="desk") if kind == "file" else RedisCache(place, account="desk")
    async with Client(base_url, token, cache=cache, max_age=60) as client:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for select in (Select(), Select(label="a"), Select(label="e")):
            panel = await client.query(entity_id, select, FiscalRange())
            print(len(panel), panel.value_count, panel.requests)
    assert cache.stats().broken == 0
    await cache.aclose()

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["file", "redis"])
async def test_cold_processes_ask_together_as_often_as_one(kind: str, tmp_path: Path) -> None:
    """Four processes begin at the same moment: their claims let one ask, and the others find it."""
    # Seconds of real time: each worker is an interpreter that starts.

    async def spent(count: int, place: str) -> tuple[int, list[list[str]]]:
        """Return the requests of several cold processes, and the panels that each has printed."""
        async with Sandbox(DATASET) as sandbox:
            workers = [
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-c", COLD, kind, place, sandbox.base_url, sandbox.token, ENTITY),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                )
                for _ in range(count)
            ]
            for each in workers:
                assert each.stdout is not None
                await each.stdout.readline()
            ends = await asyncio.gather(*(each.communicate(b"go\n") for each in workers))
            assert [each.returncode for each in workers] == [0] * count
            lines = [out.decode().splitlines() for out, _ in ends]
            requests = sum(int(line.split()[2]) for each in lines for line in each)
            assert requests == len(sandbox.log), "each request is counted for one question"
            return len(sandbox.log), [[line.rpartition(" ")[0] for line in each] for each in lines]

    with redis_server() if kind == "redis" else nullcontext() as server:
        place = f"{server.url}?db=" if server else str(tmp_path / "cache")
        cost, (panels,) = await spent(1, f"{place}1")
        together, theirs = await spent(4, f"{place}2")
    assert theirs == [panels] * 4
    assert together == cost


async def test_a_new_process_finds_what_another_has_read(tmp_path: Path) -> None:
    """Catalogue and values, for any question about them; only the publication is confirmed."""
    async with Sandbox(DATASET) as sandbox:
        async with worker(sandbox, tmp_path / "cache") as first:
            whole = await first.query(ENTITY, Select(), FiscalRange())
        spent = len(sandbox.log)
        async with worker(sandbox, tmp_path / "cache") as second:
            panel = await second.query(ENTITY, Select.of(whole.series[:7]), Annual())
            assert [served.operation for served in list(sandbox.log)[spent:]] == ["dataset"]
        async with worker(sandbox, tmp_path / "cache", max_age=600) as third:
            again = await third.query(ENTITY, Select.of(whole.series[:7]), Annual())
            assert again.requests == 0
        assert content(again) == content(panel)


QUESTIONS: dict[str, Callable[[Client], Awaitable[object]]] = {
    "catalogue": lambda client: client.catalogue(ENTITY),
    "query": lambda client: client.query(ENTITY, Select(), Annual()),
    "dataset": lambda client: client.dataset(ENTITY),
}
first_question = pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)


@first_question
async def test_a_cache_whose_folder_is_not_there_yet_is_made_by_the_first_question(
    question: Callable[[Client], Awaitable[object]], tmp_path: Path
) -> None:
    """Whichever it is, nothing is counted or logged as a fault."""
    cache = FileCache(tmp_path / "cache", account="tests")
    async with Sandbox(DATASET) as sandbox, Client(sandbox.base_url, sandbox.token, cache=cache) as client:
        await question(client)
        assert cache.stats().broken == 0
    await cache.aclose()


def _a_file(path: Path) -> None:
    path.write_text("a file")


def _open_to_others(path: Path) -> None:
    path.mkdir()
    path.chmod(0o755)


@first_question
@pytest.mark.parametrize("spoil", [_a_file, _open_to_others])
async def test_a_cache_that_cannot_be_used_is_said_at_the_first_question(
    spoil: Callable[[Path], None], question: Callable[[Client], Awaitable[object]], tmp_path: Path
) -> None:
    """There is a file in place of the folder, or others can read it: nothing is written."""
    spoil(tmp_path / "cache")
    async with Sandbox(DATASET) as sandbox, worker(sandbox, tmp_path / "cache") as client:
        with pytest.raises(ArgumentError):
            await question(client)
    assert [each for _, folders, files in os.walk(tmp_path) for each in folders + files] == ["cache"]


async def test_questions_are_answered_while_the_server_of_a_cache_is_silent() -> None:
    """From memory, or from the service; when it is back, what it holds is given again."""
    # Seconds of real time: the Redis server is a real one, which is stopped, and does not answer in time.
    with redis_server() as server:
        one, other = (RedisCache(server.url, account="desk") for _ in range(2))
        async with (
            Sandbox(DATASET) as sandbox,
            Client(sandbox.base_url, sandbox.token, cache=one) as first,
            Client(sandbox.base_url, sandbox.token, cache=other, max_age=60) as second,
        ):
            whole = await first.query(ENTITY, Select(), FiscalRange())
            server.signal(signal.SIGSTOP)
            assert content(await first.query(ENTITY, Select(), FiscalRange())) == content(whole)
            assert content(await second.query(ENTITY, Select(), FiscalRange())) == content(whole)
            assert min(one.stats().broken, other.stats().broken) > 0
            server.signal(signal.SIGCONT)
            third = RedisCache(server.url, account="desk")
            async with Client(sandbox.base_url, sandbox.token, cache=third, max_age=60) as client:
                panel = await client.query(ENTITY, Select(), FiscalRange())
            assert (panel.requests, content(panel)) == (0, content(whole))
        for each in (one, other, third):
            await each.aclose()


@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_values_of_two_versions_are_kept_apart(kind: str, tmp_path: Path) -> None:
    """Each question is answered as without a cache, whichever version was asked for before."""
    cache = MemoryCache() if kind == "memory" else FileCache(tmp_path / "cache")
    both = generate(7, series=150, publications=2)
    async with (
        Sandbox(both) as sandbox,
        Client(sandbox.base_url, sandbox.token) as plain,
        Client(sandbox.base_url, sandbox.token, cache=cache, max_age=60) as cached,
    ):
        right = {
            version: content(
                await plain.query(both.entity_id, Select(), FiscalRange(), value_version=version)
            )
            for version in VERSIONS
        }
        assert right["original"] != right["latest_restated"]
        for version in VERSIONS * 2:
            panel = await cached.query(both.entity_id, Select(), FiscalRange(), value_version=version)
            assert content(panel) == right[version]
    await cache.aclose()


VISITS = """
import asyncio, random, sys, time
from asyncfin import Client, FileCache, FiscalRange, Select
from asyncfin.cache import file, stored

stored.STORE_SECONDS = file.STORE_SECONDS = stored.LOCK_SECONDS = 60.0  # the machine may be busy

async def main():
    place, base_url, token, seed, count, *entities = sys.argv[1:]
    cache, draw = FileCache(place, account="desk"), random.Random(seed)
    async with Client(base_url, token, cache=cache, max_age=60) as client:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for _ in range(int(count)):
            entity_id, began = draw.choice(entities), time.time()
            third, version = draw.randrange(3), draw.choice(["original", "latest_restated"])
            select = Select(where=lambda series: sum(series.series_id.encode()) % 3 == third)
            panel = await client.query(entity_id, select, FiscalRange(), value_version=version)
            print(entity_id, panel.dataset.dataset_id, began, time.time(), flush=True)
    assert cache.stats().broken == 0
    await cache.aclose()

asyncio.run(main())
"""
# "20 500 20" is what the documents state: entities, visits and changes. It takes half a minute.
ENTITIES, COUNT, CHANGES = map(int, os.environ.get("ASYNCFIN_VISITS", "5 100 5").split())


async def test_visits_of_four_workers_never_go_back(tmp_path: Path) -> None:
    """Entities are published anew during the visits; an answer is never older than one that had ended."""
    # Seconds of real time: each worker is an interpreter that starts.
    companies = [generate(40 + number, series=30, publications=2) for number in range(ENTITIES)]
    ids = [company.entity_id for company in companies]
    current = {each.entity_id: 0 for each in companies}
    number_of = {part.dataset_id: at for each in companies for at, part in enumerate(each.publications)}
    first = [DatasetFile(each.entity_id, each.name, each.publications[:1]) for each in companies]
    answers: list[tuple[float, float, str, int]] = []
    lines = asyncio.Semaphore(0)

    async with Sandbox(*first) as sandbox:

        async def work(seed: int) -> None:
            worker = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", VISITS, str(tmp_path / "cache"), sandbox.base_url, sandbox.token),
                *(str(seed), str(COUNT // 4), *ids),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            assert worker.stdout is not None
            assert worker.stdin is not None
            await worker.stdout.readline()
            worker.stdin.write(b"go\n")
            async for line in worker.stdout:
                entity_id, dataset_id, began, ended = line.decode().split()
                answers.append((float(began), float(ended), entity_id, number_of[dataset_id]))
                lines.release()
            assert await worker.wait() == 0

        async def publish() -> None:
            for at in range(CHANGES):
                for _ in range(COUNT // (CHANGES + 1)):
                    await lines.acquire()
                company = companies[at % len(companies)]
                if current[company.entity_id] == 0:
                    current[company.entity_id] = 1
                    newer = company.publications[1:]
                    sandbox.publish(DatasetFile(company.entity_id, company.name, newer))

        await asyncio.gather(publish(), *map(work, range(4)))
    assert len(answers) == COUNT // 4 * 4
    for began, _, entity_id, number in answers:
        seen = [other for _, end, entity, other in answers if entity == entity_id and end < began]
        assert number >= max(seen, default=0), "an answer went back to an older publication"
    assert sum(current.values()) == min(CHANGES, ENTITIES)
