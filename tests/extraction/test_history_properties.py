"""After any nights, the feed leads to the files of each of them, and nothing appears twice."""

import json
import os
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

from asyncfin import Client, Exact, as_of, extract, read_changes
from asyncfin.model.select import Select
from asyncfin.sandbox import Sandbox
from tests.extraction.conftest import clocked
from tests.extraction.steps import at_step, full
from tests.extraction.test_feed import rows
from tests.nights import BEGIN, LABELS, Cell, Content, Key, entity, nights, publication

# ASYNCFIN_NIGHTS="300 8" runs more of the examples, with so many nights each.
EXAMPLES, NIGHTS = map(int, os.environ.get("ASYNCFIN_NIGHTS", "4 6").split())
IDS = tuple(entity(number) for number in range(1, 5))
YEARS = Exact(LABELS)
ALWAYS: Content = {Key("S-always", "Always"): {"FY2020": Cell(1)}}
Rows = list[tuple[Any, ...]]


class Copies:
    """What each company's file held after each run, also after one that failed."""

    def __init__(self) -> None:
        self.by_run: dict[str, dict[str, Rows]] = {}

    def note(self, folder: Path) -> None:
        """Note the files of a folder for the runs that are new in its feed, or pending."""
        for path in folder.with_name("_night.changes").rglob("*.parquet"):
            footer = json.loads(pq.read_metadata(path).metadata[b"asyncfin"])
            self.by_run.setdefault(footer["feed"]["run"], in_folder(folder))

    def check(self, to: Any) -> None:
        """Compare the state as of each moment with the files after the run that found it."""
        table = read_changes(to)
        names = ("known_from", "run", "entity_id")
        known = set(zip(*(table.column(name).to_pylist() for name in names), strict=True))
        for moment, group in groupby(sorted(known), itemgetter(0)):
            found = rows(as_of(to, moment))
            for _, run, entity_id in group:
                expected = self.by_run[run].get(entity_id, [])
                assert [row for row in found if row[0] == entity_id] == expected, (moment, run, entity_id)
        check_order(to)
        *_, files = (files for _, files in sorted(self.by_run.items()))
        assert rows(as_of(to, "2999-01-01")) == sorted(row for each in files.values() for row in each)


def check_order(to: Any) -> None:
    """What is known increases; each cell appears as often as it vanishes, and once more if it is there."""
    names = ("entity_id", "asked_version", "metric_id", "reporting_group_id", "scope_path", "period_label")
    there: Counter[tuple[str, ...]] = Counter()
    last: dict[str, datetime] = {}
    for row in read_changes(to).to_pylist():
        cell = tuple(row[name] for name in names)
        assert row["known_from"] >= last.get(row["entity_id"], datetime.min.replace(tzinfo=UTC))
        last[row["entity_id"]] = row["known_from"]
        there[cell] += {"appeared": 1, "vanished": -1}.get(row["change"], 0)
    state = as_of(to, "2999-01-01", columns=names)
    assert +there == Counter(zip(*(state.column(name).to_pylist() for name in names), strict=True))
    assert min(there.values()) >= 0


class Run:
    """Random nights over four companies, which leave the list and return."""

    def __init__(self, seed: int, to: Any, count: int) -> None:
        self.rng, self.to, self.count = Random(seed), to, count
        self.contents = {each: list(nights(self.rng, count)) for each in IDS}
        self.now = BEGIN + timedelta(hours=1)
        self.numbers: dict[tuple[str, str], int] = {}
        self.days = (1, 1, 1, -3)

    def publication(self, of: str, at: int) -> Any:
        # The others may lose all rows; where no company has any, the question would be refused.
        content = dict(self.contents[of][at]) | (ALWAYS if of == IDS[0] else {})
        # The same content is the same publication, so that earlier ones return.
        number = self.numbers.setdefault((of, repr(content)), len(self.numbers) + 1)
        return publication(content, number=number, of=of, created=BEGIN + timedelta(days=number % 50))

    async def night(self, client: Client, sandbox: Sandbox, at: int, **arguments: Any) -> None:
        for each in IDS:
            sandbox.publish(self.publication(each, at))
        listed = [each for each in IDS if each == IDS[0] or at == 0 or self.rng.random() < 0.85]
        self.now += timedelta(days=self.rng.choice(self.days))
        prune = self.rng.random() < 0.3
        clocked(client, lambda: self.now)
        await extract(client, listed, Select(), YEARS, to=self.to, history=True, prune=prune, **arguments)


def in_folder(folder: Path) -> dict[str, Rows]:
    return {path.stem: rows(pq.ParquetFile(path).read()) for path in folder.glob("*.parquet")}


@pytest.mark.parametrize("seed", range(EXAMPLES))
async def test_state_of_each_night_equals_files(tmp_path: Path, seed: int) -> None:
    """Values, texts, sources, periods and series change; companies leave and return; publications go back.

    In every other example, runs find the disk full at a random step.
    """
    run, copies = Run(seed, tmp_path / "night", NIGHTS), Copies()
    if seed % 2:
        # A run whose parts are all discarded leaves its name to the next one, unless the clock goes on.
        run.days = (1,)
    async with (
        Sandbox(*(run.publication(each, 0) for each in IDS)) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        for at in range(run.count):
            fails = seed % 2 and 0 < at < run.count - 1
            with suppress(OSError), at_step(tmp_path, run.rng.randint(1, 50) if fails else 0, full):
                await run.night(client, sandbox, at)
            copies.note(run.to)
    copies.check(run.to)
