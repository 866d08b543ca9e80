"""The demo companies for the tools."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from asyncfin.sandbox import Sandbox

# Its tests need the extra mcp, whose client they use.
collect_ignore_glob = [] if importlib.util.find_spec("mcp") else ["test_*.py"]


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a store with the demo companies: encoding them for each test would take most of its time."""
    store = tmp_path_factory.mktemp("demo") / "store"

    async def fill() -> None:
        async with Sandbox.demo(store=store):
            pass

    asyncio.run(fill())
    return store


@pytest.fixture
async def sandbox(demo: Path) -> AsyncIterator[Sandbox]:
    async with Sandbox(store=demo) as made:
        yield made
