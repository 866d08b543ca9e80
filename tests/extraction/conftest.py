"""Companies to extract, what is to be in their files, and what is."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from asyncfin import Client
from asyncfin.sandbox import Sandbox
from asyncfin.sandbox.dataset import DatasetFile, Publication
from tests.conftest import ignored_without
from tests.generate import generate

COMPANIES = tuple(generate(seed, series=30, publications=2) for seed in range(6))
IDS = tuple(company.entity_id for company in COMPANIES)
collect_ignore_glob = ignored_without("extraction")
collect_ignore = [] if find_spec("moto") and find_spec("obstore") else ["test_objects.py"]
UNKNOWN_ID = "O-" + "f" * 32

Rows = list[tuple[str, str, int, int, int, float]]


def only(company: DatasetFile, at: int) -> DatasetFile:
    """The company as it was when that publication was the current one."""
    return DatasetFile(company.entity_id, company.name, (company.publications[at],))


def annual(*companies: DatasetFile) -> Rows:
    """What the files of these companies hold of all fiscal years, as first reported."""
    return sorted(row for company in companies for row in _annual(company.publications[-1]))


def _annual(publication: Publication) -> Rows:
    years = {at: period for at, period in enumerate(publication.periods) if period[1:] == (12, 12)}
    return [
        (publication.entity_id, series_id, *years[at], float(value["number"]))
        for series_id, rows in publication.values.items()
        for at, value, _ in rows
        if at in years
    ]


def query(sql: str) -> list[tuple[Any, ...]]:
    """What DuckDB returns, on a separate connection."""
    import duckdb

    with duckdb.connect() as connection:
        return connection.execute(sql).fetchall()


def rows(folder: Path) -> Rows:
    """What DuckDB reads in a folder of files."""
    columns = "entity_id, series_id, year, end_month, duration_months, number"
    return sorted(query(f"SELECT {columns} FROM '{folder}/*.parquet'"))


def names(folder: Path) -> list[str]:
    """Everything in a folder and below it."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def stamps(folder: Path) -> dict[str, tuple[int, int]]:
    """The size and the time of writing of each file."""
    return {path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.iterdir()}


async def wait_for(condition: Any) -> None:
    """Return as soon as a condition holds that another thread or process brings about."""
    async with asyncio.timeout(60):
        async for _ in _looks():
            if condition():
                return


async def _looks() -> AsyncIterator[None]:
    while True:
        yield
        await asyncio.sleep(0.01)


def clocked(client: Client, clock: Callable[[], datetime]) -> Client:
    """The client, which from now on dates what it receives by this clock."""
    client._transport.clock = clock
    return client


FIRST = tuple(only(company, 0) for company in COMPANIES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where to extract to; it is not there yet."""
    return tmp_path / "night"


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A service of the companies, each at its first publication."""
    async with Sandbox(*(only(company, 0) for company in COMPANIES)) as running:
        yield running


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    async with Client(sandbox.base_url, sandbox.token) as opened:
        yield opened


@pytest.fixture
async def virtual_clock() -> Callable[[], datetime]:
    """Wall time that goes by the loop's clock, from one minute before a midnight on."""
    loop, began = asyncio.get_running_loop(), datetime(2026, 1, 1, 23, 59, tzinfo=UTC)
    return lambda: began + timedelta(seconds=loop.time())
