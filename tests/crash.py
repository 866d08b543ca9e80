"""Kill an extraction at random moments, resume it each time, and compare with one that nothing disturbed.

``python tests/crash.py [kills] [seed]`` does it 40 times; the tests do it a few times.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import duckdb
from attrs import define, field

from asyncfin import Annual, Client, Select, extract
from asyncfin.sandbox import Sandbox
from asyncfin.sandbox.generate import generate

ROOT = Path(__file__).parents[1]
IN_PROGRESS = 4
# A run prints a line for each event. An entity takes three requests, and so about eight events.
_EVENTS_A_KILL = 56
_ENTITIES_A_KILL = 4
_RUN = f"""
import asyncio, sys
from asyncfin import Annual, Client, Select, extract

def tell(event):
    print(type(event).__name__, flush=True)

async def main(base_url, token, folder, *ids):
    async with Client(base_url, token, max_in_flight={IN_PROGRESS}, observers=[tell]) as client:
        await extract(client, ids, Select(), Annual(), to=folder, progress=tell)

asyncio.run(main(*sys.argv[1:]))
"""


@define
class Outcome:
    """What the kills have done.

    Attributes:
        kills: how many there were.
        in_progress: how many entities each of them has cost: asked by the killed run, and not done.
        repeated: entities that were asked for more than their metadata after they were done.
        requests: how many were sent in all.
        needed: how many an undisturbed run sends.
        stray: what stands in the folders and should not.
        equal: whether the rows are those of the undisturbed run.
    """

    kills: int = 0
    in_progress: list[int] = field(factory=list)
    repeated: set[str] = field(factory=set)
    requests: int = 0
    needed: int = 0
    stray: set[str] = field(factory=set)
    equal: bool = False


async def crash(kills: int, seed: int, place: Path) -> Outcome:
    """Kill a run so often, at random moments, and let the last one come to its end."""
    source, outcome = random.Random(seed), Outcome()
    companies = [generate(seed, series=30, publications=1) for seed in range(_ENTITIES_A_KILL * kills)]
    folder = place / "night"
    async with Sandbox(*companies) as sandbox:
        while outcome.kills < kills:
            events = 2 * len(done(folder)) + source.randrange(_EVENTS_A_KILL)
            outcome.kills += await _run(sandbox, folder, outcome, events)
        while await _run(sandbox, folder, outcome, sys.maxsize):
            pass
        outcome.requests = len(sandbox.log)
        async with Client(sandbox.base_url, sandbox.token) as client:
            report = await extract(client, sandbox.entities, Select(), Annual(), to=place / "calm")
        outcome.needed = report.requests
        expected = {f"{entity_id}.parquet" for entity_id in sandbox.entities}
    outcome.stray = _names(folder) ^ expected | _names(_beside(folder)) ^ {"journal.sqlite", "lock"}
    outcome.equal = _rows(folder) == _rows(place / "calm") != []
    return outcome


async def _run(sandbox: Sandbox, folder: Path, outcome: Outcome, events: int) -> bool:
    """Run until so many events; say whether it was killed."""
    before, since = done(folder), len(sandbox.log)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", _RUN, sandbox.base_url, sandbox.token, str(folder), *sandbox.entities),
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdout is not None
    while events and await process.stdout.readline():
        events -= 1
    if events == 0:
        process.send_signal(signal.SIGKILL)
    await process.stdout.read()
    code = await process.wait()
    assert code in (0, -signal.SIGKILL), f"the run ended with {code}"
    asked = {served.path.split("/")[3] for served in sandbox.log[since:] if served.operation != "dataset"}
    outcome.in_progress.append(len(asked - done(folder)))
    outcome.repeated |= asked & before
    return code != 0


def done(folder: Path) -> set[str]:
    """The entities that a folder's journal knows as done."""
    journal = _beside(folder) / "journal.sqlite"
    if not journal.exists():
        return set()
    # A copy is read: whoever opens the journal itself tidies up in it.
    with tempfile.TemporaryDirectory() as place:
        copied = shutil.copytree(_beside(folder), Path(place) / "copy")
        with closing(sqlite3.connect(copied / "journal.sqlite")) as rows:
            return _done(rows)


def _done(rows: sqlite3.Connection) -> set[str]:
    if not rows.execute("SELECT 1 FROM sqlite_master WHERE name = 'entity'").fetchone():
        return set()
    return {entity_id for (entity_id,) in rows.execute("SELECT entity_id FROM entity WHERE state = 'done'")}


def _beside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.journal")


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _rows(folder: Path) -> list[object]:
    order = "entity_id, series_id, year, end_month, duration_months"
    with duckdb.connect() as connection:
        return connection.execute(f"SELECT * FROM '{folder}/*.parquet' ORDER BY {order}").fetchall()


def main(kills: str = "40", seed: str = "0") -> None:
    with tempfile.TemporaryDirectory() as place:
        outcome = asyncio.run(crash(int(kills), int(seed), Path(place)))
    print(f"{outcome.kills} kills; {outcome.requests} requests, {outcome.needed} without kills")
    print(f"entities in progress at a kill: {max(outcome.in_progress)} at most, {IN_PROGRESS} allowed")
    print(f"done entities read again: {len(outcome.repeated)}; stray files: {sorted(outcome.stray)}")
    print(f"rows equal to the undisturbed run's: {outcome.equal}")
    good = outcome.equal and not outcome.stray and not outcome.repeated
    raise SystemExit(0 if good and max(outcome.in_progress) <= IN_PROGRESS else 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
