"""Clients that share a cache on disk, as the workers of one machine do."""

import asyncio
from pathlib import Path

import pytest

from asyncfin import Annual, ArgumentError, Client, FileCache, FiscalRange, Select
from asyncfin.sandbox import Sandbox
from asyncfin.sandbox.generate import generate
from tests.properties.test_answers import content

DATASET = generate(23, series=400, publications=1)
ENTITY = DATASET.entity_id


def worker(sandbox: Sandbox, folder: Path, **options: float) -> Client:
    """Return a client with a cache object of its own, as another process has."""
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


async def test_a_cache_that_cannot_be_used_is_said_at_the_first_question(tmp_path: Path) -> None:
    """A file stands where the folder should be: nothing is written, and no request is spent."""
    (tmp_path / "cache").write_text("a file")
    async with Sandbox(DATASET) as sandbox, worker(sandbox, tmp_path / "cache") as client:
        with pytest.raises(ArgumentError):
            await client.query(ENTITY, Select(), Annual())
        assert len(sandbox.log) == 0
    assert (tmp_path / "cache").read_text() == "a file"
