"""How deep a query is: the functions, classes and modules of asyncfin that it enters,
without the sandbox.
"""

import asyncio
import sys
from collections.abc import Awaitable
from pathlib import Path
from types import CodeType

import asyncfin
from asyncfin import Annual, Client, MemoryCache, Select
from asyncfin.sandbox import Sandbox

PACKAGE = str(Path(asyncfin.__file__).parent)


def run() -> str:
    rows = asyncio.run(_count_all())
    lines = [
        f"| {name} | {' | '.join(map(str, counts))} |" for name, counts in rows.items()
    ]
    return "\n".join(
        [
            "| call | functions | classes | modules |",
            "| --- | ---: | ---: | ---: |",
            *lines,
        ]
    )


async def _count_all() -> dict[str, tuple[int, int, int]]:
    rows = {}
    async with Sandbox.demo() as sandbox:
        question = sandbox.entities[0], Select(metric_ids="Revenue"), Annual(last=4)
        async with Client(sandbox.base_url, sandbox.token) as client:
            rows["query, cold"] = await _count(client.query(*question))
        cache = MemoryCache()
        async with Client(
            sandbox.base_url, sandbox.token, cache=cache, max_age=60
        ) as client:
            await client.query(*question)
            rows["query, cached"] = await _count(client.query(*question))
            rows["query, cached, again"] = await _count(client.query(*question))
    return rows


async def _count(call: Awaitable[object]) -> tuple[int, int, int]:
    codes = set[CodeType]()
    sys.setprofile(
        lambda frame, event, _: codes.add(frame.f_code) if event == "call" else None
    )
    try:
        await call
    finally:
        sys.setprofile(None)
    paths = {
        code: code.co_filename.removeprefix(PACKAGE) for code in codes if _is_ours(code)
    }
    classes = {
        (path, code.co_qualname.split(".")[0])
        for code, path in paths.items()
        if _is_method(code)
    }
    return len(paths), len(classes), len({*paths.values()})


def _is_ours(code: CodeType) -> bool:
    path = code.co_filename
    return path.startswith(PACKAGE) and not path.startswith(f"{PACKAGE}/sandbox")


def _is_method(code: CodeType) -> bool:
    owner, _, name = code.co_qualname.partition(".")
    return bool(name) and owner.lstrip("_")[:1].isupper()
