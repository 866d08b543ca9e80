"""Random questions while the service publishes, refuses and fails: every answer equals the oracle's.

ASYNCFIN_ORACLE says how many answers there are for each kind of cache, ASYNCFIN_ORACLE_SEED which.
"""

import asyncio
import os
import random
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests import examples
from tests.cache.conftest import redis_url  # noqa: F401  a fixture
from tests.services.independent import Judge, Service, change, serving
from tests.services.independent_client import ask, cache_of, client_of, question, read

COUNT = int(os.environ.get("ASYNCFIN_ORACLE", examples(120)))
SEED = os.environ.get("ASYNCFIN_ORACLE_SEED", "1")
ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(14_400)


@pytest.mark.parametrize("lists_empty", [True, False], ids=["empty series listed", "not listed"])
@pytest.mark.parametrize("kind", ["none", "memory", "file"])
async def test_process_equals_the_oracle(kind: str, lists_empty: bool, tmp_path: Path) -> None:
    """Three clients share a cache; questions overlap and some are cancelled."""
    rng = random.Random(f"{SEED}/{kind}/{lists_empty}")
    service = Service(rng.randrange(1 << 30), lists_empty=lists_empty, faults=0.05)
    judge, ids = Judge(service, has_cache=kind != "none"), list(service.entities)
    cache = cache_of(f"{kind}:{tmp_path / 'cache'}")
    async with serving(service) as base_url:
        clients = [client_of(base_url, cache) for _ in range(3)]
        try:
            while judge.right + judge.errors < COUNT:
                work = [
                    asyncio.ensure_future(
                        ask(rng.choice(clients), question(rng, ids), stream=rng.random() < 0.2)
                    )
                    for _ in range(6)
                ]
                if rng.random() < 0.5:
                    change(service, rng)
                if rng.random() < 0.2:
                    work.pop().cancel()
                for answer in sorted(await asyncio.gather(*work), key=lambda each: each.ended):
                    assert judge.problem(answer) == "", answer
        finally:
            for each in clients:
                await each.aclose()
    assert judge.right > COUNT / 3


async def run_processes(service: Service, cache: str, rng: random.Random, count: int) -> int:
    """Ask in four processes that share a cache while two are killed; return the number of right answers."""
    judge = Judge(service)
    answers = []

    async def one(base_url: str, seed: str, kill: bool) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.services.independent_client", base_url, cache, seed, str(count // 4),
            stdout=asyncio.subprocess.PIPE, cwd=ROOT, limit=1 << 24,
        )  # fmt: skip
        assert process.stdout is not None
        seen = 0
        async for line in process.stdout:
            if not line.endswith(b"\n"):
                break  # killed while it wrote
            answers.append(read(line.decode()))
            seen += 1
            if seen % 5 == 0:
                change(service, rng)
            if kill and seen == count // 8:
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGKILL)
        status = await process.wait()
        assert status == (-signal.SIGKILL if kill and seen >= count // 8 else 0)

    async with serving(service) as base_url:
        await asyncio.gather(*(one(base_url, f"{SEED}/{n}", kill=n % 2 == 0) for n in range(4)))
    for answer in sorted(answers, key=lambda each: each.ended):
        assert judge.problem(answer) == "", answer
    return judge.right


async def test_processes_of_folder_equal_oracle(tmp_path: Path) -> None:
    """Four processes on one FileCache; two are killed."""
    service = Service(3, lists_empty=False, faults=0.03)
    right = await run_processes(service, f"file:{tmp_path / 'cache'}", random.Random(SEED), COUNT)
    assert right > COUNT / 4


async def test_processes_of_redis_equal_oracle(redis_url: str) -> None:  # noqa: F811
    """Four processes on one RedisCache; two are killed."""
    service = Service(4, lists_empty=False, faults=0.03)
    right = await run_processes(service, f"redis:{redis_url}", random.Random(SEED), COUNT)
    assert right > COUNT / 4
