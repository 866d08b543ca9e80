"""A fixture for users' own tests: a running service with the demo datasets.

It has a loop and a thread of its own, so it serves tests of every kind, synchronous or on whatever loop, and
needs no other plugin.
"""

from __future__ import annotations

import typing

import pytest

if typing.TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncfin.sandbox import Sandbox


@pytest.fixture
def asyncfin_sandbox() -> Iterator[Sandbox]:
    """Yield a running `Sandbox.demo()`: base_url, token, entities, publish, inject."""
    # Every run of pytest loads this module where the package is installed, and few need a service.
    import asyncio
    import threading

    from asyncfin.sandbox import Sandbox

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="asyncfin-sandbox", daemon=True)
    thread.start()
    sandbox = Sandbox.demo()
    try:
        asyncio.run_coroutine_threadsafe(sandbox.start(), loop).result()
        yield sandbox
        asyncio.run_coroutine_threadsafe(sandbox.aclose(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
