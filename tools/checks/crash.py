"""Kill an extraction at random moments, resume it each time, and compare with one that
nothing disturbed.

Publications change before and during each run, and after every kill every file is
checked, and what `asyncfin status` reports. ``python -m tools.checks.crash [kills]
[seed]`` does it 40 times; the tests do it a few times.
"""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow.parquet as pq
from attrs import define, evolve, field

from asyncfin import Annual, Client, Select, as_of, extract
from asyncfin.extraction.last import read_status
from asyncfin.sandbox import Sandbox
from asyncfin.sandbox.dataset import DatasetFile, Publication
from tests.generate import generate

ROOT = Path(__file__).parents[2]
COMPANIES = 24
IN_PROGRESS = 4
# Before each run some companies publish, so that there is always something to read. One
# takes three requests, and six steps on disk, before and after each of which a kill may
# come.
_CHANGED = 6
_QUERIES_A_KILL = 8
_MOMENTS_A_KILL = 60
_RUN = f"""
import asyncio, os, signal, sys
from pathlib import Path
from asyncfin import Annual, Client, Select, extract
from asyncfin.events import RequestFinished

moments = int(sys.argv.pop(1))

def pass_moment():
    global moments
    moments -= 1
    if moments == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def killing(step):
    def taken(*arguments, **options):
        pass_moment()
        result = step(*arguments, **options)
        pass_moment()
        return result
    return taken

class Halves:
    def __init__(self, file):
        self.file = file

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def write(self, content):
        half = len(content) // 2
        self.file.write(content[:half])
        self.file.flush()
        pass_moment()
        self.file.write(content[half:])

opened = Path.open

def open_halves(path, *arguments, **options):
    file = opened(path, *arguments, **options)
    return Halves(file) if path.suffix == ".part" else file

Path.open, os.fsync, os.replace = open_halves, killing(os.fsync), killing(os.replace)

def tell(event):
    if isinstance(event, RequestFinished) and event.operation == "query":
        print("query", flush=True)

async def main(base_url, token, folder, *ids):
    options = {{"max_in_flight": {IN_PROGRESS}, "observers": [tell]}}
    async with Client(base_url, token, **options) as client:
        await extract(client, ids, Select(), Annual(), to=folder, history=True)

asyncio.run(main(*sys.argv[1:]))
"""


@define
class Outcome:
    """What the kills have done.

    Attributes:
        kills: how many there were.
        on_disk: how many of them came around or within the steps of putting a file in
            place.
        changes: how many publications replaced another one.
        files: how many new files were checked.
        in_progress: the most entities that a run had asked for and not brought to an
            end.
        lost: the requests for those, in all.
        most: how many requests a run without kills sends for an entity, at most.
        repeated: entities that were read again though their file was of the current
            publication.
        wrong: files that are not whole, or not those of one publication; and what
            should not be there.
        equal: whether the rows are those of the undisturbed run.
        feed: whether the change feed leads to these rows.
    """

    kills: int = 0
    on_disk: int = 0
    changes: int = 0
    files: int = 0
    in_progress: int = 0
    lost: int = 0
    most: int = 0
    repeated: set[str] = field(factory=set)
    wrong: set[str] = field(factory=set)
    equal: bool = False
    feed: bool = False

    @property
    def bound(self) -> int:
        """How many requests may be lost: all of the entities in progress, each
        restarted at most once.
        """
        return (self.kills * IN_PROGRESS + self.changes) * self.most

    def check(self) -> None:
        """Refuse an outcome that breaks a promise."""
        assert self.equal, "the rows are not those of the undisturbed run"
        assert self.feed, "the feed does not lead to the rows"
        assert not self.wrong, f"wrong files: {self.wrong}"
        assert not self.repeated, f"read again after they were done: {self.repeated}"
        assert self.in_progress <= IN_PROGRESS, (
            f"entities in progress at a kill: {self.in_progress}"
        )
        assert self.lost <= self.bound, (
            f"{self.lost} requests were lost, {self.bound} may be"
        )


async def crash(kills: int, seed: int, place: Path) -> Outcome:
    """Kill a run so often, at random moments, and let the last one come to its end."""
    companies = [
        generate(number, series=30, publications=3) for number in range(COMPANIES)
    ]
    folder = place / "night"
    async with Sandbox(
        *(_holding(item, item.publications[0]) for item in companies)
    ) as sandbox:
        course = _Course(sandbox, companies, folder, random.Random(seed))
        while course.outcome.kills < kills:
            by_moment = course.outcome.kills % 2 == 1
            course.change(_CHANGED)
            if by_moment:
                was_killed = await course.run(
                    moments=1 + course.source.randrange(_MOMENTS_A_KILL)
                )
            else:
                was_killed = await course.run(
                    queries=1 + course.source.randrange(_QUERIES_A_KILL)
                )
            course.outcome.kills += was_killed
            course.outcome.on_disk += was_killed and by_moment
        # Nothing changes in the last run: what publishes after it was looked at is
        # rightly left for the next.
        await course.run(changing=False)
        outcome = course.outcome
        async with Client(sandbox.base_url, sandbox.token) as client:
            report = await extract(
                client, sandbox.entities, Select(), Annual(), to=place / "calm"
            )
        outcome.most = max(item.requests for item in report.entities)
        expected = {f"{entity_id}.parquet" for entity_id in sandbox.entities}
    outcome.wrong |= {path.name for path in folder.iterdir()} ^ expected
    outcome.wrong |= {path.name for path in _beside(folder).iterdir()} ^ {
        "lock",
        "last.json",
        "runs.jsonl",
        "confirmed.json",
    }
    outcome.equal = _rows(folder) == _rows(place / "calm") != []
    outcome.feed = _read(as_of(folder, "2999-01-01")) == sorted(
        row for path in folder.glob("*.parquet") for row in _read(pq.read_table(path))
    )
    return outcome


class _Course:
    """The runs, and the publications that change during them."""

    def __init__(
        self,
        sandbox: Sandbox,
        companies: list[DatasetFile],
        folder: Path,
        source: random.Random,
    ) -> None:
        self.sandbox, self.folder, self.source = sandbox, folder, source
        self.companies = {company.entity_id: company for company in companies}
        self.current = {
            company.entity_id: company.publications[0] for company in companies
        }
        self.publications = {item.dataset_id: item for item in self.current.values()}
        self.outcome = Outcome()
        self.seen: dict[
            str, tuple[int, int]
        ] = {}  # of each file, its stamp when it was checked
        self.published: dict[str, str | None] = {}  # of each file, its dataset_id then

    def change(self, count: int) -> set[str]:
        """Let companies publish, and return which."""
        changed_companies = self.source.sample(sorted(self.companies), count)
        for entity_id in changed_companies:
            company = self.companies[entity_id]
            # The contents come again, an id never does: a file of an earlier
            # publication is never current.
            number = len(self.publications)
            following = company.publications[number % len(company.publications)]
            following = evolve(following, dataset_id=str(UUID(int=number)))
            self.publications[following.dataset_id] = self.current[entity_id] = (
                following
            )
            self.sandbox.publish(_holding(company, following))
        self.outcome.changes += count
        return set(changed_companies)

    async def run(
        self, *, queries: int = sys.maxsize, moments: int = 0, changing: bool = True
    ) -> bool:
        """Run until some queries are answered, or moments have passed; return whether
        it was killed.

        One entity publishes at the first answer, unless `changing` is False.
        """
        since = len(self.sandbox.log)
        fresh = {
            entity_id
            for entity_id, dataset_id in self.published.items()
            if dataset_id == self.current[entity_id].dataset_id
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *(
                "-c",
                _RUN,
                str(moments),
                self.sandbox.base_url,
                self.sandbox.token,
                str(self.folder),
            ),
            *self.sandbox.entities,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        assert process.stdout is not None
        changed: set[str] = set()
        while queries and await process.stdout.readline():
            queries -= 1
            if changing and not changed:
                changed = self.change(1)
        if queries == 0:
            process.send_signal(signal.SIGKILL)
        await process.stdout.read()
        code = await process.wait()
        assert code in (0, -signal.SIGKILL), f"the run ended with {code}"
        if _beside(self.folder).joinpath("lock").exists():
            status = read_status(self.folder)
            assert status["unfinished"] == (code != 0), status
            assert not status["running"]
        read = [
            entry.path.split("/")[3]
            for entry in self.sandbox.log[since:]
            if entry.operation != "dataset"
        ]
        unfinished = set(read) - self._check_files()
        self.outcome.repeated |= set(read) & (fresh - changed)
        self.outcome.in_progress = max(self.outcome.in_progress, len(unfinished))
        self.outcome.lost += sum(entity_id in unfinished for entity_id in read)
        return code != 0

    def _check_files(self) -> set[str]:
        """Check every file that is new since the last time, and return whose they
        are.
        """
        written = set()
        for path in self.folder.glob("*"):
            stamp = path.stat().st_size, path.stat().st_mtime_ns
            if path.suffix != ".parquet" or self.seen.get(path.stem) == stamp:
                continue
            self.seen[path.stem] = stamp
            self.outcome.files += 1
            written.add(path.stem)
            try:
                table = pq.read_table(path, page_checksum_verification=True)
                (record,) = json.loads(table.schema.metadata[b"asyncfin"])["panels"]
            except Exception as error:
                self.outcome.wrong.add(f"{path.name}: {error}")
                continue
            self.published[path.stem] = record["dataset_id"]
            if _read(table) != _annual(self.publications[record["dataset_id"]]):
                self.outcome.wrong.add(f"{path.name}: not the rows of its publication")
        return written


def _holding(company: DatasetFile, publication: Publication) -> DatasetFile:
    return DatasetFile(company.entity_id, company.name, (publication,))


def _read(table: Any) -> list[tuple[Any, ...]]:
    columns = ("series_id", "year", "end_month", "duration_months", "number")
    return sorted(
        zip(*(table.column(name).to_pylist() for name in columns), strict=True)
    )


def _annual(publication: Publication) -> list[tuple[Any, ...]]:
    """What a publication holds of all fiscal years, as first reported."""
    years = {
        place: period
        for place, period in enumerate(publication.periods)
        if period[1:] == (12, 12)
    }
    return sorted(
        (series_id, *years[place], float(value["number"]))
        for series_id, rows in publication.values.items()
        for place, value, _ in rows
        if place in years and value is not None
    )


def _beside(folder: Path) -> Path:
    return folder.with_name(f"_{folder.name}.journal")


def _rows(folder: Path) -> Sequence[object]:
    order = "entity_id, series_id, year, end_month, duration_months"
    with duckdb.connect() as connection:
        return connection.execute(
            f"SELECT * FROM '{folder}/*.parquet' ORDER BY {order}"
        ).fetchall()


def main(kills: str = "40", seed: str = "0") -> None:
    with tempfile.TemporaryDirectory() as place:
        outcome = asyncio.run(crash(int(kills), int(seed), Path(place)))
    print(
        f"{outcome.kills} kills, {outcome.on_disk} of them while a file was written or "
        "put in place"
    )
    print(
        f"{outcome.changes} publications changed; {outcome.files} files checked, "
        f"wrong: {outcome.wrong}"
    )
    print(
        f"entities in progress at a kill: {outcome.in_progress} at most, {IN_PROGRESS} "
        "allowed"
    )
    print(f"requests lost: {outcome.lost}, {outcome.bound} allowed")
    print(f"current entities read again: {len(outcome.repeated)}")
    print(f"rows equal to the undisturbed run's: {outcome.equal}")
    print(f"the feed leads to them: {outcome.feed}")
    outcome.check()


if __name__ == "__main__":
    main(*sys.argv[1:])
