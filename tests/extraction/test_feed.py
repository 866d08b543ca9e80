"""The change feed of `extract`: what each run writes, and what it refuses."""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from asyncfin import (
    Annual,
    ArgumentError,
    Client,
    Exact,
    ExtractReport,
    FiscalRange,
    ManifestMismatchError,
    Select,
    Trailing,
    as_of,
    extract,
    read_changes,
)
from asyncfin.model.selection import PeriodSelection
from asyncfin.sandbox import Sandbox
from tests.extraction.conftest import clocked
from tests.nights import (
    BEGIN,
    LABELS,
    Cell,
    Content,
    Key,
    changes_in,
    dataset_id,
    entity,
    publication,
)

REVENUE, COST = Key("S-1"), Key("S-2", "Cost")
ALL = FiscalRange()
ONE = {REVENUE: {"FY2020": Cell(1), "FY2021": Cell(2)}}
TWO = {REVENUE: {"FY2020": Cell(3), "FY2021": Cell(2)}}


class Nights:
    """A service whose companies change, and the runs over them, a day apart."""

    def __init__(self, sandbox: Sandbox, client: Client, to: Any) -> None:
        self.sandbox, self.client, self.to = sandbox, client, to
        self.number, self.now = 0, BEGIN + timedelta(hours=1)

    def publish(self, content: Content, of: str = entity(1), *, number: int = 0, **arguments: Any) -> None:
        """Publish new content, as of tonight; a number brings an earlier publication back."""
        self.number += 1
        created = BEGIN + timedelta(days=number or self.number)
        self.sandbox.publish(
            publication(content, number=number or self.number, of=of, created=created, **arguments)
        )

    async def run(
        self, ids: Iterable[str] = (entity(1),), periods: PeriodSelection = ALL, **arguments: Any
    ) -> ExtractReport:
        """Extract, a day after the last time."""
        self.now += timedelta(days=1)
        return await extract(
            clocked(self.client, lambda: self.now), ids, Select(), periods, to=self.to, **arguments
        )


@pytest.fixture
async def night(tmp_path: Path) -> AsyncIterator[Nights]:
    other = publication({COST: {"FY2020": Cell(7)}}, of=entity(2), number=900, created=BEGIN)
    async with (
        Sandbox(publication({}, number=999), other) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        yield Nights(sandbox, client, tmp_path / "night")


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def rows(table: Any) -> list[tuple[Any, ...]]:
    """What a table says of each cell, without what does not count as a change."""
    names = (
        "entity_id", "metric_id", "reporting_group_id", "scope_path", "period_label", "asked_version",
        "number", "text", "fill_type", "report_year", "report_end_month", "value_version",
        "value_number_format",
    )  # fmt: skip
    return sorted(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def in_files(folder: Path) -> list[tuple[Any, ...]]:
    return sorted(row for path in folder.glob("*.parquet") for row in rows(pq.ParquetFile(path).read()))


async def test_first_run_writes_everything_appeared(night: Nights) -> None:
    """One file beside the folder, of the publication's own time; nothing is left pending."""
    night.publish(ONE)
    await night.run(history=True)
    table = read_changes(night.to)
    assert changes_in(table) == [
        ("appeared", REVENUE.triple, "FY2020", 1, None),
        ("appeared", REVENUE.triple, "FY2021", 2, None),
    ]
    assert table.column("known_from").to_pylist() == [BEGIN + timedelta(days=1)] * 2
    assert files(night.to.parent / "_night.changes") == ["20250102T070000.000000Z.parquet", "head"]
    assert set(table.column("run").to_pylist()) == {"20250102T070000.000000Z"}
    assert table.column_names[30:] == [
        *("change", "before", "before_text", "before_dataset_id", "known_from", "run")
    ]


async def test_later_run_writes_only_changed(night: Nights) -> None:
    """Without the argument the feed is continued; an unchanged night writes no file."""
    night.publish(ONE)
    await night.run(history=True)
    night.publish(TWO)
    await night.run()
    await night.run()
    table = read_changes(night.to)
    assert changes_in(table)[2:] == [("restated", REVENUE.triple, "FY2020", 3, 1)]
    assert table.column("before_dataset_id").to_pylist() == [None, None, dataset_id(1)]
    assert table.column("before_text").to_pylist() == [None, None, "1 filed"]
    assert len(list((night.to.parent / "_night.changes").glob("*.parquet"))) == 2
    for when, expected in ((1, ONE), (2, TWO)):
        known = as_of(night.to, BEGIN + timedelta(days=when))
        assert known.column("number").to_pylist() == [each.number for each in expected[REVENUE].values()]
    assert len(as_of(night.to, BEGIN)) == 0


async def test_feed_starts_from_existing_files(night: Nights) -> None:
    """What was there is known from its publication's time, in a run before the one that changes it."""
    night.publish(ONE)
    await night.run()
    night.publish(TWO)
    await night.run(history=True)
    first, second = sorted(set(read_changes(night.to).column("run").to_pylist()))
    assert changes_in(read_changes(night.to, since=first)) == [("restated", REVENUE.triple, "FY2020", 3, 1)]
    assert rows(as_of(night.to, BEGIN + timedelta(days=1))) != in_files(night.to)
    assert rows(as_of(night.to, BEGIN + timedelta(days=2))) == in_files(night.to)
    assert set(read_changes(night.to, since=second).column("run").to_pylist()) == set()


@pytest.mark.parametrize("later", ["R-1", "R-2"])
async def test_renamed_series_when_others_become_twins(night: Nights, later: str) -> None:
    """Its rows are in the feed under two ids, and twins are compared with the feed; only the twin appears."""
    renamed, twin = REVENUE._replace(series_id="R-1"), COST._replace(series_id="S-9")
    cost = {COST: {"FY2020": Cell(4)}}
    for content in (
        ONE | cost,
        {renamed: TWO[REVENUE]} | cost,
        {REVENUE._replace(series_id=later): TWO[REVENUE]} | cost | {twin: {"FY2020": Cell(5)}},
    ):
        night.publish(content)
        await night.run(history=True)
    last = max(read_changes(night.to).column("run").to_pylist())
    found = [row for row in read_changes(night.to).to_pylist() if row["run"] == last]
    assert [(row["change"], row["series_id"]) for row in found] == [("appeared", "S-9")]
    assert rows(as_of(night.to, night.now)) == in_files(night.to)


async def test_renamed_series_whose_id_twins_take(night: Nights) -> None:
    """Twins have the id under which the feed has its rows: it is restated, and does not vanish."""
    renamed = REVENUE._replace(series_id="R-1")
    twins = {COST._replace(series_id=each): {"FY2020": Cell(4)} for each in ("S-1", "S-9")}
    for content in (ONE, {renamed: ONE[REVENUE]} | twins, {renamed: TWO[REVENUE]} | twins):
        night.publish(content)
        await night.run(history=True)
    changes = read_changes(night.to, since=night.now).to_pylist()
    assert [(row["change"], row["series_id"]) for row in changes] == [("restated", "R-1")]


async def test_publications_moment_known_after_other(night: Nights) -> None:
    """Otherwise both would be the state of that moment: what is known at each one is one publication."""
    for number, content in enumerate((ONE, TWO), 1):
        night.sandbox.publish(publication(content, number=number, of=entity(1), created=BEGIN))
        await night.run(history=True)
    known = sorted(set(read_changes(night.to).column("known_from").to_pylist()))
    assert len(known) == 2
    first = as_of(night.to, known[0])
    assert sorted(first.column("number").to_pylist()) == [1, 2]
    assert sorted(as_of(night.to, known[1]).column("number").to_pylist()) == [2, 3]


async def test_a_missing_run_is_named(night: Nights) -> None:
    """In the middle by the run after it, at the end by the files that it wrote."""
    for content in (ONE, TWO, ONE):
        night.publish(content)
        await night.run(history=True)
    paths = sorted((night.to.parent / "_night.changes").glob("*.parquet"))
    for path in paths:
        content_of_it = path.read_bytes()
        path.unlink()
        for read in (read_changes, lambda to: as_of(to, night.now)):
            with pytest.raises(ManifestMismatchError, match=path.stem):
                read(night.to)
        night.publish(TWO)
        with pytest.raises(ManifestMismatchError, match=path.stem):
            await night.run()
        path.write_bytes(content_of_it)
    assert len(read_changes(night.to)) == 4


async def test_damaged_head_is_named(night: Nights) -> None:
    """Without it the runs are read as they are."""
    night.publish(ONE)
    await night.run(history=True)
    head = night.to.parent / "_night.changes" / "head"
    head.write_text("2025")
    with pytest.raises(ManifestMismatchError, match=r"head is damaged.*delete it"):
        read_changes(night.to)
    head.unlink()
    assert len(as_of(night.to, night.now)) == 2


async def test_feed_leaves_damaged_file_out(night: Nights) -> None:
    """The error names it, the feed has the others, and once it is deleted the next run reads it."""
    night.publish(ONE)
    companies = entity(1), entity(2)
    await night.run(companies)
    file = night.to / f"{entity(1)}.parquet"
    content = bytearray(file.read_bytes())
    content[60] ^= 0xFF
    file.write_bytes(content)
    with pytest.raises(ManifestMismatchError, match=rf"{file.name} is damaged .*delete it"):
        await night.run(companies, history=True)
    assert set(read_changes(night.to)["entity_id"].to_pylist()) == {entity(2)}
    file.unlink()
    await night.run(companies, history=True)
    assert len(read_changes(night.to)) == 3


@pytest.mark.parametrize("damage", ["truncated", "empty", "flipped", "renamed", "later", "other"])
async def test_damaged_run_named_never_read(night: Nights, damage: str) -> None:
    """Whatever was done to a file: an error that names it."""
    for content in (ONE, TWO):
        night.publish(content)
        await night.run(history=True)
    first, second = sorted((night.to.parent / "_night.changes").glob("*.parquet"))
    content_of_it = first.read_bytes()
    match damage:
        case "truncated":
            first.write_bytes(content_of_it[: len(content_of_it) // 2])
        case "empty":
            first.write_bytes(b"")
        case "flipped":
            first.write_bytes(content_of_it[:60] + bytes([content_of_it[60] ^ 255]) + content_of_it[61:])
        case "renamed":  # a bit of a required column's name, which is in no page
            first.write_bytes(content_of_it.replace(b"known_from", b"known_frol"))
        case "later":  # of a later version, which may mean something else by a column
            table = pq.read_table(first)
            footer = json.loads(pq.read_metadata(first).metadata[b"asyncfin"])
            footer["format"] += 1
            pq.write_table(table.replace_schema_metadata({b"asyncfin": json.dumps(footer)}), first)
        case "other":
            first.write_bytes(second.read_bytes())
    for read in (read_changes, lambda to: as_of(to, night.now)):
        with pytest.raises(ManifestMismatchError, match=first.name):
            read(night.to)


async def test_another_question_than_feeds_refused(night: Nights) -> None:
    """Also with `replace`, which would delete the files that the feed describes; nothing is touched."""
    night.publish(ONE)
    await night.run(history=True)
    before, spent = in_files(night.to), len(night.sandbox.log)
    for arguments in (
        {"periods": Exact(LABELS)},
        {"value_version": "latest_restated"},
        {"periods": Exact(LABELS), "replace": True},
        {"periods": Annual(last=2)},
    ):
        with pytest.raises(ManifestMismatchError, match=r"_night\.changes belongs to another query.*move it"):
            await night.run(**arguments)
    assert in_files(night.to) == before
    assert len(night.sandbox.log) == spent


@pytest.mark.parametrize("periods", [Annual(last=3), Annual(2000, last=3), Trailing(12)])
async def test_moving_rules_are_rejected(night: Nights, periods: PeriodSelection) -> None:
    """Their windows would report each old period as vanished."""
    night.publish(ONE)
    with pytest.raises(ArgumentError, match="history needs periods that stay, not the last") as caught:
        await night.run(periods=periods, history=True)
    assert not night.to.exists()
    report = await night.run(periods=caught.value.instead, history=True)
    assert not report.failed


async def test_entity_left_list_keeps_file(night: Nights) -> None:
    """The report counts it; pruned rows are vanished, as of the run's time."""
    night.publish(ONE)
    both = (entity(1), entity(2))
    await night.run(both, history=True)
    report = await night.run()
    assert report.others == 1
    assert "files of entities that are not in the list: 1" in str(report)
    assert (night.to / f"{entity(2)}.parquet").exists()
    report = await night.run(prune=True)
    assert report.others == 0
    assert [path.stem for path in night.to.glob("*.parquet")] == [entity(1)]
    vanished = read_changes(night.to, since=night.now)
    assert changes_in(vanished) == [("vanished", COST.triple, "FY2020", 7, 7)]
    assert vanished.column("known_from").to_pylist() == [night.now]
    assert len(as_of(night.to, night.now)) == 2
    assert len(as_of(night.to, night.now - timedelta(microseconds=1))) == 3


async def test_restored_file_changes_nothing(night: Nights) -> None:
    """The feed is: a file that was deleted, or restored from an earlier night, makes nothing appear twice."""
    night.publish(ONE)
    await night.run(history=True)
    file = night.to / f"{entity(1)}.parquet"
    old = file.read_bytes()
    night.publish(TWO)
    await night.run()
    file.unlink()
    await night.run()
    assert len(read_changes(night.to)) == 3
    file.write_bytes(old)
    await night.run()
    assert len(read_changes(night.to)) == 3
    assert rows(as_of(night.to, night.now)) == in_files(night.to)


@pytest.mark.parametrize(
    ("since", "count"),
    [
        (None, 3),
        ("20250102T070000.000000Z", 1),
        ("2025-01-03", 1),
        ("2025-01-02", 3),
        ("2025-01-03T07:00:00Z", 1),
        ("2025-01-03T08:00:00+01:00", 1),
        ("2025-01-03T07:00:00.000001", 0),
        (datetime(2025, 1, 3, 7, tzinfo=UTC), 1),
        (datetime(2025, 1, 3).date(), 1),
        (datetime(2025, 1, 4).date(), 0),
    ],
)
async def test_changes_since_run_or_time(night: Nights, since: Any, count: int) -> None:
    """A run is exclusive, a date or time inclusive."""
    for content in (ONE, TWO):
        night.publish(content)
        await night.run(history=True)
    assert len(read_changes(night.to, since=since)) == count


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda to: read_changes(to, since="yesterday"), "since must be a date.*not 'yesterday'"),
        (lambda to: read_changes(to, since=5), "since must be a date.*not 5"),
        (lambda to: read_changes(to, since=datetime(2025, 1, 1)), "since must be a date"),
        (lambda to: read_changes(to, since="20250101T000000.000000Z"), "has no run 20250101T000000.000000Z"),
        (lambda to: as_of(to, "noon"), "when must be a date.*not 'noon'"),
        (lambda to: as_of("", "2025-01-01"), "to must be the path of a folder"),
        (lambda to: as_of("ftp://host/x", "2025-01-01"), "to: ftp:/... is not an address"),
        (lambda to: as_of(to, "2025-01-01", columns="price"), "no column 'price'"),
        (lambda to: as_of(to, "2025-01-01", columns=5), "columns must be"),
        (lambda to: as_of(to, "2025-01-01", columns=[["number"]]), "each of columns must be"),
    ],
)
async def test_bad_arguments_are_refused(night: Nights, call: Callable[[Any], Any], message: str) -> None:
    """The message names the argument, the value, and what to write."""
    night.publish(ONE)
    await night.run(history=True)
    with pytest.raises(ValueError, match=message):
        call(night.to)


async def test_only_newest_run_read_last(night: Nights) -> None:
    """Also if a run after it changed nothing; a time or run is not given with it."""
    for content in (ONE, TWO):
        night.publish(content)
        await night.run(history=True)
    await night.run()
    assert changes_in(read_changes(night.to, last=True)) == [("restated", REVENUE.triple, "FY2020", 3, 1)]
    with pytest.raises(ArgumentError, match="leave out since, or last"):
        read_changes(night.to, since="2025-01-01", last=True)
    with pytest.raises(ArgumentError, match="last"):
        read_changes(night.to, last=1)  # type: ignore[arg-type]


async def test_companies_not_kept_yet_are_named(night: Nights) -> None:
    """With the time from which on they are known; nothing is said of what was known and pruned."""
    both = (entity(1), entity(2))
    night.publish(ONE)
    await night.run(history=True)
    night.publish({COST: {"FY2020": Cell(1)}}, of=entity(2), number=5)
    night.now += timedelta(days=5)
    await night.run(both)
    await night.run(prune=True)

    def not_kept(when: datetime) -> Any:
        return json.loads(as_of(night.to, when).schema.metadata[b"asyncfin"])["not_kept"]

    expected = [
        {"entity_id": each, "kept_from": since}
        for each, since in zip(both, ("2025-01-02T06:00:00Z", "2025-01-06T06:00:00Z"), strict=True)
    ]
    assert not_kept(BEGIN) == expected
    assert not_kept(BEGIN + timedelta(days=1)) == expected[1:]
    assert not_kept(BEGIN + timedelta(days=5)) == not_kept(night.now) == []


async def test_documented_query_returns_rows(night: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of docs/history.md, with DuckDB: restated, vanished and pruned rows among them."""
    await night.run((entity(1), entity(2)), history=True)
    for content in (ONE, TWO, {REVENUE: {"FY2021": Cell(2)}}):
        night.publish(content)
        await night.run(prune=True)
    text = (Path(__file__).parents[2] / "docs" / "history.md").read_text()
    (sql,) = re.findall(r"^```sql\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(night.to.parent)
    with duckdb.connect() as connection:
        for day, count in ((1, 3), (2, 2), (3, 1)):
            when = f"{BEGIN + timedelta(days=day, hours=2):%Y-%m-%dT%H:%M:%SZ}"
            found = connection.sql(sql.replace("2025-03-01", when)).to_arrow_table()
            assert len(found) == count
            assert rows(found) == rows(as_of(night.to, when))


async def test_known_never_later_than_run(night: Nights) -> None:
    """A publication dated far ahead by mistake hides no later one."""
    dates = [datetime(*day, tzinfo=UTC) for day in ((2025, 2, 27), (2199, 1, 1), (2026, 10, 1))]
    contents = [{REVENUE: {"FY2020": Cell(number), "FY2021": Cell(1)}} for number in range(3)]
    night.now = datetime.now(UTC) - timedelta(days=20)
    for content, created in zip(contents, dates, strict=False):
        night.number += 1
        night.sandbox.publish(publication(content, number=night.number, created=created))
        await night.run(history=True)
        assert rows(as_of(night.to, datetime.now(UTC))) == in_files(night.to)
        assert max(read_changes(night.to).column("known_from").to_pylist()) <= night.now
