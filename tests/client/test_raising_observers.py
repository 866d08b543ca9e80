"""What observers raise ends a question as itself: no part of an answer is returned as the whole."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from asyncfin import Client, FiscalRange, MemoryCache, Select, extract
from asyncfin.events import Event, RequestStarted
from asyncfin.sandbox import Sandbox

pytestmark = pytest.mark.virtual


class StopError(BaseException):
    """Not an Exception, as what pytest.fail raises is none."""


def raiser(operation: str, error: type[BaseException]) -> Callable[[Event], None]:
    """Return an observer that raises when a request of an operation starts."""

    def observe(event: Event) -> None:
        if isinstance(event, RequestStarted) and event.operation == operation:
            raise error("stopped")

    return observe


@pytest.mark.parametrize("error", [StopError, GeneratorExit])
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("call", ["query", "stream", "query_many", "compare"])
async def test_raising_observer_ends_the_question(
    call: str, cached: bool, error: type[BaseException]
) -> None:
    """A BaseException in a worker is not its end: an incomplete answer would seem complete."""
    async with Sandbox.demo() as sandbox:
        cache = MemoryCache() if cached else None
        async with Client(sandbox.base_url, sandbox.token, cache=cache) as client:
            entities = sandbox.entities[:2]

            async def ask() -> Any:
                if call == "query":
                    return await client.query(entities[0], Select(), FiscalRange())
                if call == "compare":
                    return await client.compare(entities, Select("Revenue"), FiscalRange())
                if call == "stream":
                    async with client.stream(entities[0], Select(), FiscalRange()) as pieces:
                        return [piece async for piece in pieces]
                async with client.query_many(entities, Select("Revenue"), FiscalRange()) as answers:
                    return [answer async for answer in answers]

            with client.observed(raiser("query", error)), pytest.raises(error):
                await ask()
            whole = await client.query(entities[0], Select(), FiscalRange())
            assert (len(whole), whole.unlisted) == (206, ())


async def test_raising_observer_writes_no_file(tmp_path: Path) -> None:
    """A file is whole or absent: the next run asks again."""
    pytest.importorskip("pyarrow")
    async with Sandbox.demo() as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        question = Select("Revenue"), FiscalRange()
        with client.observed(raiser("query", StopError)), suppress(StopError):
            await extract(client, sandbox.entities[:1], *question, to=tmp_path / "night")
        assert not list((tmp_path / "night").glob("*.parquet"))
        report = await extract(client, sandbox.entities[:1], *question, to=tmp_path / "night")
        assert [entity.rows for entity in report.done] == [367]
