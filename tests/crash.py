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
# What a run does until it is killed, in the mean: it reads five entities. Each of them takes three requests
# and so about eight events, and three steps on disk, before and after each of which a kill may come.
_ENTITIES_A_KILL = 6
_EVENTS_A_KILL = 80
_MOMENTS_A_KILL = 60
_RUN = f"""
import asyncio, os, signal, sys
from asyncfin import Annual, Client, Select, extract

moments = int(sys.argv.pop(1))

def pass_moment():
    global moments
    moments -= 1
    if moments == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def killing(step):
    def taken(*arguments):
        pass_moment()
        step(*arguments)
        pass_moment()
    return taken

os.fsync, os.replace = killing(os.fsync), killing(os.replace)

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
        on_disk: how many of them came before or after a step of putting a file in place.
        in_progress: how many entities each run has asked for and not brought to an end.
        repeated: entities that were asked for more than their metadata after they were done.
        requests: how many were sent in all.
        checks: how many of them asked for the metadata of entities that were done.
        needed: how many an undisturbed run sends.
        most: how many that one sends for an entity, at most.
        stray: what stood in the folders and should not: in the end, or after a kill, unknown to the journal.
        equal: whether the rows are those of the undisturbed run.
    """

    kills: int = 0
    on_disk: int = 0
    in_progress: list[int] = field(factory=list)
    repeated: set[str] = field(factory=set)
    requests: int = 0
    checks: int = 0
    needed: int = 0
    most: int = 0
    stray: set[str] = field(factory=set)
    equal: bool = False

    @property
    def lost(self) -> int:
        """How many requests were sent again because of the kills."""
        return self.requests - self.checks - self.needed

    @property
    def bound(self) -> int:
        """How many that may be: all of the entities in progress."""
        return self.kills * IN_PROGRESS * self.most

    def check(self) -> None:
        """Refuse an outcome that breaks a promise."""
        assert self.equal, "the rows are not those of the undisturbed run"
        assert not self.stray, f"stray files: {self.stray}"
        assert not self.repeated, f"read again after they were done: {self.repeated}"
        assert max(self.in_progress) <= IN_PROGRESS, f"entities in progress at a kill: {self.in_progress}"
        assert 0 <= self.lost <= self.bound, f"{self.lost} requests were lost, {self.bound} may be"


async def crash(kills: int, seed: int, place: Path) -> Outcome:
    """Kill a run so often, at random moments, and let the last one come to its end."""
    source, outcome = random.Random(seed), Outcome()
    companies = [generate(seed, series=30, publications=1) for seed in range(_ENTITIES_A_KILL * kills)]
    folder = place / "night"
    async with Sandbox(*companies) as sandbox:
        while outcome.kills < kills:
            if outcome.kills % 2:
                moments = 1 + source.randrange(_MOMENTS_A_KILL)
                killed = await _run(sandbox, folder, outcome, moments=moments)
                outcome.on_disk += killed
            else:
                events = 2 * len(done(folder)) + source.randrange(_EVENTS_A_KILL)
                killed = await _run(sandbox, folder, outcome, events=events)
            outcome.kills += killed
        while await _run(sandbox, folder, outcome):
            pass
        outcome.requests = len(sandbox.log)
        async with Client(sandbox.base_url, sandbox.token) as client:
            report = await extract(client, sandbox.entities, Select(), Annual(), to=place / "calm")
        outcome.needed = report.requests
        outcome.most = max(each.requests for each in report.entities)
        expected = {f"{entity_id}.parquet" for entity_id in sandbox.entities}
    outcome.stray |= _names(folder) ^ expected | _names(_beside(folder)) ^ {"journal.sqlite", "lock"}
    outcome.equal = _rows(folder) == _rows(place / "calm") != []
    return outcome


async def _run(
    sandbox: Sandbox, folder: Path, outcome: Outcome, *, events: int = sys.maxsize, moments: int = 0
) -> bool:
    """Run until so many events, or moments around steps on disk; say whether it was killed."""
    before, since = done(folder), len(sandbox.log)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", _RUN, str(moments), sandbox.base_url, sandbox.token, str(folder), *sandbox.entities),
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
    asked = [(served.path.split("/")[3], served.operation) for served in sandbox.log[since:]]
    read = {entity_id for entity_id, operation in asked if operation != "dataset"}
    after = done(folder)
    outcome.in_progress.append(len({entity_id for entity_id, _ in asked} - after))
    outcome.repeated |= read & before
    outcome.stray |= _names(folder) - {f"{entity_id}.parquet" for entity_id in after}
    outcome.checks += sum(entity_id in before for entity_id, operation in asked if operation == "dataset")
    return code != 0


def done(folder: Path) -> set[str]:
    """The entities that a folder's journal knows as done, and whose files are in place."""
    journal = _beside(folder) / "journal.sqlite"
    if not journal.exists():
        return set()
    # A copy is read: whoever opens the journal itself tidies up in it.
    with tempfile.TemporaryDirectory() as place:
        copied = shutil.copytree(_beside(folder), Path(place) / "copy")
        with closing(sqlite3.connect(copied / "journal.sqlite")) as rows:
            return {entity_id for entity_id in _done(rows) if (folder / f"{entity_id}.parquet").exists()}


def _done(rows: sqlite3.Connection) -> set[str]:
    if not rows.execute("SELECT 1 FROM sqlite_master WHERE name = 'entity'").fetchone():
        return set()
    return {entity_id for (entity_id,) in rows.execute("SELECT entity_id FROM entity WHERE state = 'done'")}


def _beside(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.journal")


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*")}


def _rows(folder: Path) -> list[object]:
    order = "entity_id, series_id, year, end_month, duration_months"
    with duckdb.connect() as connection:
        return connection.execute(f"SELECT * FROM '{folder}/*.parquet' ORDER BY {order}").fetchall()


def main(kills: str = "40", seed: str = "0") -> None:
    with tempfile.TemporaryDirectory() as place:
        outcome = asyncio.run(crash(int(kills), int(seed), Path(place)))
    print(f"{outcome.kills} kills, {outcome.on_disk} of them around the steps that put a file in place")
    print(f"entities in progress at a kill: {max(outcome.in_progress)} at most, {IN_PROGRESS} allowed")
    print(f"{outcome.requests} requests, {outcome.needed} without kills")
    print(f"requests for the metadata of done entities: {outcome.checks}")
    print(f"requests lost: {outcome.lost}, {outcome.bound} allowed")
    print(f"done entities read again: {len(outcome.repeated)}; stray files: {sorted(outcome.stray)}")
    print(f"rows equal to the undisturbed run's: {outcome.equal}")
    outcome.check()


if __name__ == "__main__":
    main(*sys.argv[1:])
