"""The demo companies for the tools."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from asyncfin.sandbox import Sandbox
from tests.conftest import ignored_without

collect_ignore_glob = ignored_without("mcp")


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
