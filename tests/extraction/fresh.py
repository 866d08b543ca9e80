"""Fresh processes, forked from one that has imported this module and runs no test; what runs in them.

A new interpreter would import asyncfin and pyarrow again, for each of them. One that hangs ends after
`SECONDS`: a test that waits for it would never end.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_all_start_methods, get_context
from typing import Any

import tests.extraction.making  # noqa: F401
from asyncfin import Annual, Client, ManifestMismatchError, Select, extract

SECONDS = 100


def fresh() -> Any:
    """Return the context that makes them; Windows has new interpreters only."""
    if "forkserver" not in get_all_start_methods():
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__, "obstore"])
    return context


def processes(workers: int) -> ProcessPoolExecutor:
    """Return a pool of them, in the present environment."""
    environment = (dict(os.environ),)
    return ProcessPoolExecutor(workers, mp_context=fresh(), initializer=_begin, initargs=environment)


def _begin(environment: Mapping[str, str]) -> None:
    # What they are forked from has the environment of the test that came first.
    os.environ.clear()
    os.environ.update(environment)
    if hasattr(signal, "alarm"):
        signal.alarm(SECONDS)


async def exit_code(function: Callable[..., object], *arguments: Any) -> int | None:
    """Call a function in one, and return how that ended."""
    process = fresh().Process(target=_called, args=(dict(os.environ), function, *arguments))
    process.start()
    await asyncio.to_thread(process.join)
    return process.exitcode  # type: ignore[no-any-return]


def _called(environment: Mapping[str, str], function: Callable[..., object], *arguments: Any) -> None:
    _begin(environment)
    function(*arguments)


def extracted(base_url: str, token: str, folder: str, ids: Sequence[str]) -> str:
    """Extract, and return what was said."""

    async def run() -> str:
        async with Client(base_url, token) as client:
            try:
                report = await extract(client, ids, Select(), Annual(), to=folder)
            except ManifestMismatchError as error:
                return str(error)
            return f"{len(report.done)} done"

    return asyncio.run(run())
