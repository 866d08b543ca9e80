"""What each version of the library has kept on a disk is read by this one; see tests/kept."""

import json
import shutil
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from asyncfin import (
    AllowanceExhaustedError,
    Client,
    FiscalRange,
    Select,
    TransportError,
    as_of,
    extract,
    read_changes,
)
from asyncfin.cache.codec import FORMAT
from asyncfin.sandbox import Sandbox
from tests.extraction.conftest import clocked
from tests.kept.__main__ import (
    BUDGET,
    COLUMNS,
    COST,
    ID,
    KEPT,
    NIGHTS,
    REVENUE,
    SPENT,
    THIS,
    bucket_at,
    cache_at,
    moment,
    night,
    noted,
    write,
)
from tests.nights import BEGIN, Cell, publication

pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or sys.byteorder != "little", reason="written with file locks, on little-endian"
)
VERSIONS = sorted(path.name for path in KEPT.iterdir() if (path / "noted.json").exists())


@pytest.fixture(params=VERSIONS)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what a version has kept."""
    copy = tmp_path / "kept"
    shutil.copytree(KEPT / request.param, copy)
    (copy / "cache").chmod(0o700)
    (copy / "bucket").chmod(0o600)  # a repository does not keep that
    return copy


def noted_of(kept: Path) -> Any:
    return json.loads((kept / "noted.json").read_text())


def states(kept: Path) -> list[Any]:
    return [as_of(kept / "night", moment(at + 1), columns=COLUMNS).to_pylist() for at in range(len(NIGHTS))]


async def test_folder_and_feed_are_continued(kept: Path) -> None:
    """An unchanged company costs one request; a change is one row, and earlier nights stay as they were."""
    assert states(kept) == noted_of(kept)["nights"]
    to, changes = kept / "night", len(read_changes(kept / "night"))
    async with Sandbox(night(3)) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        for number, expected in ((3, ("unchanged", 1)), (4, ("done", 3))):
            if number == 4:
                content = dict(NIGHTS[2]) | {REVENUE: {"FY2020": Cell(10)}}
                created = BEGIN + timedelta(days=number)
                sandbox.publish(publication(content, number=number, of=ID, created=created))
            clocked(client, partial(moment, number))
            report = await extract(client, [ID], Select(), FiscalRange(), to=to)
            assert [(each.state, each.requests) for each in report.entities] == [expected]
    (change,) = read_changes(to, last=True).to_pylist()
    assert (change["change"], change["before_text"], change["text"]) == ("restated", "9 filed", "10 filed")
    assert len(read_changes(to)) == changes + 1
    assert states(kept) == noted_of(kept)["nights"]


async def test_a_cache_is_used_or_ignored(kept: Path) -> None:
    """Without a request where its form is this version's; another form is not read, and not an error."""
    cache = cache_at(kept)
    base_url = (kept / "base_url").read_text().strip()
    async with Client(base_url, "token", cache=cache, max_age=1e12) as client:
        if noted_of(kept)["cache"]["form"] == FORMAT:
            panel = await client.query(ID, Select(), FiscalRange())
            assert panel.requests == 0
            found = [row["number"] for row in panel.to_arrow().to_pylist() if row["metric_id"] == "Revenue"]
            assert found == [cell.number for cell in NIGHTS[-1][REVENUE].values()]
        else:
            with pytest.raises(TransportError):  # nothing is cached, and nothing listens there
                await client.dataset(ID)
    await cache.aclose()


async def test_spending_of_bucket_is_taken_over(kept: Path) -> None:
    """On its day: what is left of the budget is granted, and no more."""
    bucket = bucket_at(kept)
    assert (await bucket.inspect()).spent_today == noted_of(kept)["bucket"]["spent"] == SPENT
    for _ in range(BUDGET - SPENT):
        await bucket.acquire()
    with pytest.raises(AllowanceExhaustedError):
        await bucket.acquire()
    await bucket.aclose()


async def test_a_recording_is_served(kept: Path) -> None:
    """The publication that was the current one."""
    (recording,) = (kept / "recording").iterdir()
    async with Sandbox(recording) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        panel = await client.query(ID, Select(), FiscalRange())
    expected = sorted(cell.number for cells in NIGHTS[-1].values() for cell in cells.values())
    assert sorted(panel.to_arrow().column("number").to_pylist()) == expected
    assert COST.metric_id in {series.metric_id for series in panel}


async def test_stored_forms_are_unchanged(tmp_path: Path) -> None:
    """Otherwise a form has changed: before the release, write it again with `python -m tests.kept`."""
    await write(tmp_path)
    assert json.loads(json.dumps(noted(tmp_path))) == noted_of(KEPT / THIS)
