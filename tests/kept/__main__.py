"""Writes what this version of the library keeps on a disk, and notes names, types and values of it."""

import asyncio
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from inspect import get_annotations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq

from asyncfin import Client, FileBucket, FileCache, FiscalRange, Select, as_of, extract
from asyncfin.model.catalogue import Catalogue, ReportingGroup, Scope, ScopeGroup
from asyncfin.model.period import Period
from asyncfin.model.scope import ScopeRef
from asyncfin.model.series import CatalogueSeries
from asyncfin.sandbox import Sandbox
from asyncfin.table.block import Axis, Block, PageText
from tests.extraction.conftest import clocked
from tests.nights import BEGIN, Cell, Content, Key, entity, publication

KEPT = Path(__file__).parent
THIS = version("asyncfin").partition(".dev")[0]
ID = entity(1)
REVENUE, COST, TWIN = Key("S-1"), Key("S-2", "Cost"), Key("S-3", "Cost")
NIGHTS: tuple[Content, ...] = (
    {REVENUE: {"FY2020": Cell(1), "FY2021": Cell(2)}, COST: {"FY2020": Cell(3)}},
    {REVENUE: {"FY2020": Cell(9), "FY2021": Cell(2, label="amended")}, COST: {}},
    {REVENUE: {"FY2020": Cell(9)}, COST: {"FY2020": Cell(4)}, TWIN: {"FY2020": Cell(5)}},
)
SPENT, BUDGET, DAY = 7, 50, datetime(2025, 1, 5, 6, tzinfo=UTC)
COLUMNS = ("series_id", "metric_id", "scope_path", "period_label", "number", "text")


def night(number: int) -> Any:
    """Return the publication of a night, from 1 on."""
    created = BEGIN + timedelta(days=number)
    return publication(NIGHTS[number - 1], number=number, of=ID, created=created)


def moment(number: int) -> datetime:
    """Return when the run of a night began."""
    return BEGIN + timedelta(days=number, hours=1)


def bucket_at(folder: Path) -> FileBucket:
    """Return the bucket of a folder, on the day on which it was written."""
    return FileBucket(folder / "bucket", daily_budget=BUDGET, clock=lambda: DAY)


def cache_at(folder: Path) -> FileCache:
    """Return the cache of a folder."""
    return FileCache(folder / "cache", account="kept")


async def write(folder: Path) -> None:
    """Write an extraction of three nights with its feed, a cache, a bucket and a recording into a folder."""
    async with Sandbox(night(1)) as sandbox:
        for number in range(1, len(NIGHTS) + 1):
            sandbox.publish(night(number))
            async with Client(sandbox.base_url, sandbox.token) as client:
                to, now = folder / "night", moment(number)
                await extract(
                    clocked(client, lambda at=now: at), [ID], Select(), FiscalRange(), to=to, history=True
                )
        cache = cache_at(folder)
        async with Client(sandbox.base_url, sandbox.token, cache=cache) as client:
            await client.query(ID, Select(), FiscalRange())
        await cache.aclose()
        asked = [sys.executable, "-m", "asyncfin", "record", ID, "--into", str(folder / "recording")]
        environment = os.environ | {"ASYNCFIN_BASE_URL": sandbox.base_url, "ASYNCFIN_TOKEN": sandbox.token}
        await asyncio.to_thread(subprocess.run, asked, env=environment, check=True, capture_output=True)
        (folder / "base_url").write_text(sandbox.base_url)
    bucket = bucket_at(folder)
    for _ in range(SPENT):
        await bucket.acquire()
    await bucket.aclose()
    shutil.rmtree(folder / "_night.journal")
    (folder / "noted.json").write_text(json.dumps(noted(folder), indent=1, sort_keys=True) + "\n")


def noted(folder: Path) -> dict[str, Any]:
    """Return the values of each night, and the names and types of all that is written."""
    *_, run = sorted((folder / "_night.changes").glob("*.parquet"))
    (recording,) = (folder / "recording").iterdir()
    return {
        "nights": [as_of(folder / "night", moment(at + 1), columns=COLUMNS).to_pylist() for at in range(3)],
        "file": described(folder / "night" / f"{ID}.parquet"),
        "run": described(run),
        "cache": stored(folder / "cache"),
        "bucket": {"spent": SPENT, "bytes": (folder / "bucket").stat().st_size},
        "recording": shape(json.loads(gzip.decompress(recording.read_bytes()))),
    }


def described(file: Path) -> dict[str, Any]:
    """Return the columns of a Parquet file, and the shape of its metadata."""
    schema = pq.read_schema(file)
    return {
        "columns": {each.name: str(each.type) for each in schema},
        "metadata": shape(json.loads(pq.read_metadata(file).metadata[b"asyncfin"])),
    }


def stored(folder: Path) -> dict[str, Any]:
    """Return the form of a cache, the kinds of its files, and the fields of what they contain."""
    (form,) = folder.iterdir()
    kinds = (Catalogue, ScopeGroup, Scope, ReportingGroup, CatalogueSeries, ScopeRef, Period)
    return {
        "form": form.name,
        "files": sorted({re.sub("[0-9a-f]{8,}", "x", str(file.parent.name)) for file in form.rglob("*.*/*")}),
        "fields": {kind.__name__: list(get_annotations(kind)) for kind in (*kinds, Block, Axis, PageText)},
    }


def shape(value: Any) -> Any:
    """Return JSON with the name of its type in place of each value; of lists the shapes that occur."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    if isinstance(value, list):
        return sorted({json.dumps(shape(each), sort_keys=True) for each in value})
    return type(value).__name__


def main() -> None:
    """Write the folder of this version again."""
    tags = subprocess.run(["git", "tag"], cwd=KEPT, capture_output=True, text=True, check=True).stdout.split()
    if {THIS, f"v{THIS}"} & set(tags):
        raise SystemExit(f"{THIS} has been released: what it keeps does not change any more")
    with TemporaryDirectory() as name:
        asyncio.run(write(Path(name)))
        shutil.rmtree(KEPT / THIS, ignore_errors=True)
        shutil.copytree(name, KEPT / THIS)
    size = sum(path.stat().st_size for path in (KEPT / THIS).rglob("*") if path.is_file())
    print(f"{KEPT / THIS}: {size:,} bytes")


if __name__ == "__main__":
    main()
