"""Random histories of many companies: what the feed says is what was published, whatever the dates say."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from asyncfin import Client, Exact, Select, as_of, extract, read_changes
from asyncfin.sandbox import Dialect, Sandbox
from tests.extraction.conftest import clocked
from tests.nights import (
    BEGIN,
    LABELS,
    Cell,
    Content,
    Key,
    changes_in,
    entity,
    expected_changes,
    nights,
    publication,
)

# How many companies have a history, with so many nights each; ASYNCFIN_HISTORIES="300 8" runs more.
COMPANIES, NIGHTS = map(int, os.environ.get("ASYNCFIN_HISTORIES", "8 6").split())
IDS = tuple(entity(number) for number in range(1, COMPANIES + 1))
ALWAYS: Content = {Key("S-always", "Always"): {"FY2020": Cell(1)}}
MICROSECOND = timedelta(microseconds=1)
Triple = tuple[str, str, str]


class Histories:
    """The contents of each company, night after night, and the publications that have them."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.now = rng, BEGIN + timedelta(days=1)
        self.contents = {each: list(nights(rng, NIGHTS)) for each in IDS}
        # Where no company has any row, the question would be refused.
        self.contents[IDS[0]] = [dict(content) | ALWAYS for content in self.contents[IDS[0]]]
        self.made: dict[tuple[str, str], Any] = {}
        self.created: dict[tuple[str, str], datetime] = {}

    def publication(self, of: str, night: int) -> Any:
        """Return a company's publication; the same content is the same one, so that earlier ones return."""
        key = of, repr(content := self.contents[of][night])
        if key not in self.made:
            # Long ago, in the nights of the test, or far ahead.
            moment = BEGIN + timedelta(days=self.rng.choice((-4000, self.rng.randint(0, 20), 90_000)))
            self.created[key] = moment
            self.made[key] = publication(content, number=len(self.made) + 1, of=of, created=moment)
        return self.made[key]

    def created_at(self, of: str, night: int) -> datetime:
        return self.created[of, repr(self.contents[of][night])]

    def alone(self, of: str) -> set[Triple]:
        """The metrics, groups and scopes of which a company never has two series."""
        return {
            triple
            for content in self.contents[of]
            for triple in {key.triple for key in content}
            if all(sum(key.triple == triple for key in each) <= 1 for each in self.contents[of])
        }


def published(of: str, content: Content) -> list[tuple[Any, ...]]:
    """What a company's file is to have."""
    return sorted(
        (of, *key.triple, label, cell.number, f"{cell.number:,} {cell.label}")
        for key, cells in content.items()
        for label, cell in cells.items()
    )


def rows(table: Any) -> list[tuple[Any, ...]]:
    names = ("entity_id", "metric_id", "reporting_group_id", "scope_path", "period_label", "number", "text")
    found = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    return sorted(
        (of, metric, group, path.partition("=")[2], *rest) for of, metric, group, path, *rest in found
    )


@pytest.mark.parametrize("empty_series", [True, False])
async def test_the_feed_is_what_was_published(tmp_path: Path, empty_series: bool) -> None:
    """Series have twins, new ids, and leave; publications return, and are dated long ago and far ahead.

    A service that leaves out empty series makes no difference: such a series has no values.
    """
    told = Histories(Random(empty_series))
    to, began = tmp_path / "night", {}
    dialect = Dialect(empty_series=empty_series)
    async with (
        Sandbox(*(told.publication(each, 0) for each in IDS), dialect=dialect) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        for night in range(NIGHTS):
            for each in IDS:
                sandbox.publish(told.publication(each, night))
            told.now += timedelta(days=told.rng.choice((1, 1, 2, -2)))
            await extract(
                clocked(client, lambda: told.now), IDS, Select(), Exact(LABELS), to=to, history=True
            )
            expected = [row for each in IDS for row in published(each, told.contents[each][night])]
            assert rows(as_of(to, datetime.now(UTC))) == sorted(expected), night
            for run in set(read_changes(to).column("run").to_pylist()) - began.keys():
                began[run] = night, told.now
    check(to, told, began)


def check(to: Path, told: Histories, began: dict[str, tuple[int, datetime]]) -> None:
    """Compare changes, times and earlier states with what was published."""
    table = read_changes(to).to_pylist()
    for of in IDS:
        last, alone = datetime.min.replace(tzinfo=UTC), told.alone(of)
        for run, (night, clock) in sorted(began.items()):
            content = told.contents[of][night]
            found = [row for row in table if (row["entity_id"], row["run"]) == (of, run)]
            before = told.contents[of][night - 1] if night else {}
            changes = [each for each in expected_changes(before, content) if each[1] in alone]
            assert [each for each in changes_of(found) if each[1] in alone] == changes, (of, night)
            if not found:
                continue
            (moment,) = {row["known_from"] for row in found}
            first = min(told.created_at(of, night), clock)
            assert moment == next((each for each in (first, clock) if each > last), last + MICROSECOND)
            assert moment <= max(clock, last + MICROSECOND)
            state = as_of(to, moment)
            assert [row for row in rows(state) if row[0] == of] == published(of, content), (of, night)
            last = moment


def changes_of(found: list[dict[str, Any]]) -> list[Any]:
    import pyarrow as pa

    return changes_in(pa.Table.from_pylist(found)) if found else []
