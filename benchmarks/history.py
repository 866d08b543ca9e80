"""What `as_of` takes over a long feed, and what was known earlier, rebuilt from
../shared/data.
"""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import pyarrow as pa
from attrs import define

from asyncfin import Catalogue, Client, FiscalRange, Panel, Period, Select, known_by
from asyncfin.analysis.changes import CHANGE, KNOWN_FROM, RUN
from asyncfin.extraction.feed import (
    Recorded,
    RunFooter,
    empty_rows,
    run_name,
    write_rows,
)
from asyncfin.sandbox import DatasetFile, Sandbox, load
from benchmarks.extraction import measured, night

REAL = Path(__file__).parents[2] / "shared" / "data"
_CELL = ("metric_id", "reporting_group_id", "scope_path", "period_label")


@define
class Rebuilt:
    """Cells of earlier publications, rebuilt from newer ones.

    Attributes:
        certain: the cells that `known_by` calls certain; `wrong`: those of them that
            had another value then; `absent`: those that the earlier publication does
            not have, in series that it does not list.
        flagged: the cells that it does not call certain; `flagged_wrong`: those of them
            that differ.
        missing: cells of the earlier publications that were not rebuilt.
        cut, cut_wrong, cut_future: the same for the usual cut, the restated values of
            the periods that had ended: another value, and no value yet.
    """

    publications: int = 0
    certain: int = 0
    wrong: int = 0
    absent: int = 0
    flagged: int = 0
    flagged_wrong: int = 0
    missing: int = 0
    cut: int = 0
    cut_wrong: int = 0
    cut_future: int = 0

    def add(self, truth: Panel, original: Panel, restated: Panel) -> None:
        """Rebuild one earlier publication, `truth`, from two panels of a newer one."""
        was, table = (
            _numbers(truth.to_arrow()),
            truth.to_arrow(columns=["report_year", "report_end_month"]),
        )
        year, month = max(
            zip(
                *(table.column(name).to_pylist() for name in table.column_names),
                strict=True,
            )
        )
        reported = Period(year, month, 0)
        rebuilt = known_by(original, restated, reported)
        certain = dict(
            zip(_numbers(rebuilt), rebuilt.column("certain").to_pylist(), strict=True)
        )
        for cell, number in _numbers(rebuilt).items():
            self.certain += certain[cell]
            self.flagged += not certain[cell]
            self.wrong += certain[cell] and was.get(cell, number) != number
            self.absent += certain[cell] and cell not in was
            self.flagged_wrong += not certain[cell] and was.get(cell) != number
        self.missing += len(was.keys() - certain.keys())
        for cell, number in _numbers(restated.to_arrow()).items():
            if Period.parse(cell[-1]).fiscal_end <= reported.fiscal_end:
                self.cut += 1
                self.cut_future += cell not in was
                self.cut_wrong += was.get(cell, number) != number
        self.publications += 1


def _numbers(table: Any) -> dict[tuple[str, ...], float]:
    cells = zip(*(table.column(name).to_pylist() for name in _CELL), strict=True)
    return dict(zip(cells, table.column("number").to_pylist(), strict=True))


async def panels(dataset: DatasetFile) -> AsyncIterator[tuple[Panel, Panel]]:
    """Yield the original and the restated panel of each publication, oldest first."""
    async with Sandbox() as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        for publication in dataset.publications:
            sandbox.publish(publication)
            catalogue: Catalogue = await client.catalogue(dataset.entity_id)
            original = await client.query(catalogue, Select(), FiscalRange())
            yield (
                original,
                await client.query(
                    catalogue, Select(), FiscalRange(), value_version="latest_restated"
                ),
            )


async def rebuilt(paths: list[Path]) -> Rebuilt:
    """Return the sums over all companies."""
    found = Rebuilt()
    for path in paths:
        *earlier, (original, restated) = [pair async for pair in panels(load(path))]
        for _, truth in earlier:
            found.add(truth, original, restated)
    return found


# A company of the usual size, with a night for each of this many publications.
_PUBLICATIONS, _SERIES, _YEARS, _CHANGED = 1_000, 300, 15, 40
_DUCKDB = """
SELECT * EXCLUDE (place) FROM (
    SELECT *, row_number() OVER (
        PARTITION BY entity_id, asked_version, metric_id, reporting_group_id, scope_path,
                     year, end_month, duration_months
        ORDER BY known_from DESC
    ) AS place
    FROM '{feed}/*.parquet' WHERE known_from <= TIMESTAMPTZ '{when}'
) WHERE place = 1 AND change <> 'vanished'
"""


def write_feed(folder: Path, publications: int = _PUBLICATIONS) -> None:
    """Write the feed of one company, with a run for each publication, as `extract`
    writes it.
    """
    place = Path(folder).with_name(f"_{Path(folder).name}.changes")
    place.mkdir(parents=True)
    rng, moment, previous = Random(1), datetime(2020, 1, 1, 6, tzinfo=UTC), None
    for number in range(publications):
        count = _SERIES * _YEARS if number == 0 else _CHANGED
        cells = (
            range(count) if number == 0 else rng.sample(range(_SERIES * _YEARS), count)
        )
        moment += timedelta(days=1)
        run = run_name(moment, previous)
        recorded = Recorded("O-1", f"publication {number}", moment.isoformat(), count)
        footer = RunFooter(run, previous, {}, (recorded,), ("O-1.parquet",))
        with (place / f"{run}.parquet").open("wb") as stream:
            write_rows(stream, footer, [_rows(list(cells), number, moment, run)])
        previous = run


def _rows(cells: list[int], number: int, moment: datetime, run: str) -> Any:
    """Return changes of these cells, with texts and sources as long as real ones."""
    columns: dict[str, Any] = {}
    for each in empty_rows().schema:
        kind = str(each.type)
        columns[each.name] = (
            [0 if "int" in kind else 1.0] * len(cells)
            if "string" not in kind
            else (
                [None] * len(cells)
                if kind.startswith("list")
                else [f"a text of {each.name}"] * len(cells)
            )
        )
    columns |= {
        "entity_id": ["O-1"] * len(cells),
        "asked_version": ["original"] * len(cells),
        "series_id": [f"S-{cell // _YEARS}" for cell in cells],
        "metric_id": [f"metric {cell // _YEARS}" for cell in cells],
        "year": [2010 + cell % _YEARS for cell in cells],
        "number": [float(number)] * len(cells),
        "text": [f"{number:,} of {cell}" for cell in cells],
        "sources": [
            [{"item_id": f"item {cell}", "row_index": 1, "column_index": 2}]
            for cell in cells
        ],
        CHANGE: ["appeared" if number == 0 else "restated"] * len(cells),
        KNOWN_FROM: [moment] * len(cells),
        RUN: [run] * len(cells),
    }
    return pa.table(columns, schema=empty_rows().schema)


def as_of_figures(folder: Path) -> list[str]:
    """Return the time and memory of `as_of` and of DuckDB over a feed, each in a
    separate process.
    """
    lines, feed = [], str(Path(folder).with_name(f"_{Path(folder).name}.changes"))
    for when in ("2021-01-01", "2999-01-01"):
        for name, code in {
            "`as_of`": f"from asyncfin import as_of; rows = len(as_of({str(folder)!r}, "
            f"{when!r}))",
            "`as_of`, number only": "from asyncfin import as_of;"
            f" rows = len(as_of({str(folder)!r}, {when!r}, columns=['period_label', "
            "'number']))",
            "DuckDB": "import duckdb;"
            " rows = "
            f"len(duckdb.sql({_DUCKDB.format(feed=feed, when=when)!r}).to_arrow_table())",
        }.items():
            measured = (
                "import time, resource; import pyarrow.parquet; began = "
                "time.perf_counter();"
                " before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss;"
                f" {code}; print(rows, time.perf_counter() - began,"
                " (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)"
            )
            done = subprocess.run(
                [sys.executable, "-c", measured],
                capture_output=True,
                text=True,
                check=True,
            )
            rows, seconds, megabytes = done.stdout.split()
            lines.append(
                f"| {name} | {when} | {int(rows):,} | {float(seconds):.2f} | "
                f"{float(megabytes):.0f} |"
            )
    return lines


def night_figures(place: Path, companies: int = 1_000, pairs: int = 7) -> list[str]:
    """Return the CPU time of first and of unchanged nights, without a feed and with
    one, in turn.
    """
    ways = {"without": "extracted", "with": "history"}
    with night(10) as url:
        first = {
            name: measured(way, url, companies, place / name)
            for name, way in ways.items()
        }
        again: dict[str, list[float]] = {name: [] for name in ways}
        for pair in range(pairs):
            for name in sorted(
                ways, reverse=bool(pair % 2)
            ):  # a feed that exists is continued
                again[name].append(
                    measured("extracted", url, companies, place / name)["cpu"]
                )
    middle = {name: median(each) for name, each in again.items()}
    return [
        f"| {companies:,} companies of 10 series, CPU seconds | without a feed | with "
        "one | ratio |",
        "| --- | --- | --- | --- |",
        *(
            f"| {name} | {cpu['without']:.2f} | {cpu['with']:.2f} | "
            f"{cpu['with'] / cpu['without']:.2f} |"
            for name, cpu in {
                "first night": {name: each["cpu"] for name, each in first.items()},
                f"unchanged night, median of {pairs}": middle,
            }.items()
        ),
        "",
    ]


def memory_figures(place: Path, few: int = 100, many: int = 10_000) -> list[str]:
    """Return the peak memory of first nights with a feed, each in a separate
    process.
    """
    with night(10) as url:
        peaks = [
            measured("history", url, companies, place / f"memory{companies}")["memory"]
            for companies in (few, many)
        ]
    return [
        "| first night with a feed, companies of 10 series | peak MB of memory |",
        "| --- | --- |",
        *(
            f"| {companies:,} | {peak:.0f} |"
            for companies, peak in zip((few, many), peaks, strict=True)
        ),
        "",
    ]


def run() -> str:
    """Return the figures as Markdown."""
    with tempfile.TemporaryDirectory() as place:
        lines = [*night_figures(Path(place)), *memory_figures(Path(place))]
        folder = Path(place) / "night"
        write_feed(folder)
        size = (
            sum(
                path.stat().st_size
                for path in Path(folder)
                .with_name(f"_{Path(folder).name}.changes")
                .glob("*.parquet")
            )
            / 1e6
        )
        lines += [
            f"One company, {_PUBLICATIONS:,} publications of {_SERIES * _YEARS:,} "
            f"cells, {_CHANGED} of which"
            f" change each night: {size:.1f} MB of changes",
            "",
            "| way | as of | rows | seconds | MB of memory more |",
            "| --- | --- | --- | --- | --- |",
            *as_of_figures(folder),
        ]
    return "\n".join([*lines, "", _known_by()])


def _known_by() -> str:
    paths = sorted(REAL.glob("*.json.gz"))
    if not paths:
        return "skipped: ../shared/data is not there"
    found = asyncio.run(rebuilt(paths))
    return (
        f"{found.publications} earlier publications rebuilt from the newest of "
        f"{len(paths)} companies\n\n"
        "| way | cells | another number then | not in the earlier publication |\n| --- "
        "| --- | --- | --- |\n"
        f"| `known_by`, certain | {found.certain:,} | {found.wrong:,} | "
        f"{found.absent:,} |\n"
        f"| `known_by`, flagged | {found.flagged:,} | {found.flagged_wrong:,} | |\n"
        f"| restated values of the periods that had ended | {found.cut:,} | "
        f"{found.cut_wrong:,}"
        f" | {found.cut_future:,} |\n\n"
        f"`known_by` misses {found.missing:,} cells that the earlier publications have."
    )
