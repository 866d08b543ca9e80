"""A fixture for users' own tests: a running service with the demo datasets.

It runs in a separate loop and thread, so it serves tests of every kind, synchronous or
on whatever loop, and needs no other plugin.
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
    # Every run of pytest loads this module where the package is installed, and few need
    # a service.
    from anyio.from_thread import start_blocking_portal

    from asyncfin.sandbox import Sandbox

    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Sandbox.demo()) as sandbox,
    ):
        yield sandbox
