"""How deep a call is: what a reader of the code, or of a traceback, goes through."""

import re
import sys
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import asyncfin
from asyncfin import Annual, Client, FileCache, FiscalRange, MemoryCache, Select, Trailing
from asyncfin.sandbox import Sandbox

OURS = str(Path(asyncfin.__file__).parent)
SANDBOX = str(Path(OURS, "sandbox"))


CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"


def is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(OURS) and not code.co_filename.startswith(SANDBOX)


@contextmanager
def each_call(seen: Any) -> Iterator[None]:
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, _: seen(frame) if event == "call" else None)
    try:
        yield
    finally:
        sys.setprofile(before)


async def entered(call: Awaitable[object]) -> set[CodeType]:
    """Return the functions of the package that a call enters."""
    codes: set[CodeType] = set()
    with each_call(lambda frame: codes.add(frame.f_code)):
        await call
    return {code for code in codes if is_ours(code)}


async def frames_above_aiohttp(call: Awaitable[object]) -> set[tuple[str, ...]]:
    """Return which functions of the package wait for a request to aiohttp, innermost first."""
    stacks = set()

    def look(frame: FrameType) -> None:
        if frame.f_code.co_qualname != "ClientSession._request":
            return
        stack, waiting = [], frame.f_back
        while waiting is not None:
            if is_ours(waiting.f_code):
                stack.append(waiting.f_code.co_qualname)
            waiting = waiting.f_back
        stacks.add(tuple(stack))

    with each_call(look):
        await call
    return stacks


@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_a_question_that_the_cache_answers_enters_at_most_165_functions(
    kind: str, tmp_path: Path
) -> None:
    cache = MemoryCache() if kind == "memory" else FileCache(tmp_path)
    async with (
        Sandbox.demo() as sandbox,
        Client(sandbox.base_url, sandbox.token, cache=cache, max_age=3600) as client,
    ):
        question = (sandbox.entities[0], Select(), Annual(last=3))
        await client.query(*question)
        sent = client.stats().requests
        functions = await entered(client.query(*question))
        assert client.stats().requests == sent
        assert len(functions) <= 165
        # The count is of what runs, and not of nothing.
        assert {"Client.query", "Stitch.panel"} <= {each.co_qualname for each in functions}


def class_of(code: CodeType) -> tuple[str, str] | None:
    """Return the room and the name of the class whose function it is, also one that attrs has written."""
    if made := re.fullmatch(r"<attrs generated \w+ asyncfin\.(\w+)\.[\w.]*?(\w+)>", code.co_filename):
        return made[1], made[2]
    name, *rest = code.co_qualname.split(".")
    is_method = rest and is_ours(code) and name[0].isupper()
    return (Path(code.co_filename).parent.name, name) if is_method else None


@pytest.mark.parametrize("cached", [False, True])
async def test_each_class_that_a_query_enters_is_explained_to_contributors(cached: bool) -> None:
    codes: set[CodeType] = set()
    async with (
        Sandbox.demo() as sandbox,
        Client(sandbox.base_url, sandbox.token, cache=MemoryCache() if cached else None) as client,
    ):
        with each_call(lambda frame: codes.add(frame.f_code)):
            await client.query(sandbox.entities[0], Select(), Trailing(12))
    entered = {each[1] for each in map(class_of, codes) if each and each[0] in ("plan", "read", "table")}
    text = CONTRIBUTING.read_text(encoding="utf-8").partition("## How a query runs")[2]
    explained = set(re.findall(r"`(\w+)`", text.partition("The calls from")[0]))
    assert entered - explained == set()
    # The twelve that are explained first are entered, and those of other rooms are there.
    assert len(re.findall(r"^\| `\w+` \|", text, re.MULTILINE)) == 12
    assert len(entered) >= 20
    assert {"Judged", "Tolerance"} < explained


async def test_few_functions_wait_for_a_request() -> None:
    async with Sandbox.demo() as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        (metadata,) = await frames_above_aiohttp(client.dataset(sandbox.entities[0]))
        assert metadata[-1] == "Client.dataset"
        assert len(metadata) <= 6
        catalogue = await client.catalogue(sandbox.entities[0])
        pages = await frames_above_aiohttp(client.query(catalogue, Select(), FiscalRange()))
        assert pages
        assert max(map(len, pages)) <= 7
