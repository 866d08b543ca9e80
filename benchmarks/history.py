"""What nights with a feed cost, and what was known earlier, rebuilt from
../shared/data.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median
from typing import Any

from attrs import define

from asyncfin import Catalogue, Client, FiscalRange, Panel, Period, Select, known_by
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
        report_period = Period(year, month, 0)
        rebuilt = known_by(original, restated, report_period)
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
            if Period.parse(cell[-1]).fiscal_end <= report_period.fiscal_end:
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
    result = Rebuilt()
    for path in paths:
        *earlier, (original, restated) = [pair async for pair in panels(load(path))]
        for _, truth in earlier:
            result.add(truth, original, restated)
    return result


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
        ratios: dict[str, list[float]] = {name: [] for name in ways}
        for pair in range(pairs):
            for name in sorted(
                ways, reverse=bool(pair % 2)
            ):  # a feed that exists is continued
                ratios[name].append(
                    measured("extracted", url, companies, place / name)["cpu"]
                )
    middle = {name: median(figures) for name, figures in ratios.items()}
    return [
        f"| {companies:,} companies of 10 series, CPU seconds | without a feed | with "
        "one | ratio |",
        "| --- | --- | --- | --- |",
        *(
            f"| {name} | {cpu['without']:.2f} | {cpu['with']:.2f} | "
            f"{cpu['with'] / cpu['without']:.2f} |"
            for name, cpu in {
                "first night": {
                    name: figures["cpu"] for name, figures in first.items()
                },
                f"unchanged night, median of {pairs}": middle,
            }.items()
        ),
        "",
    ]


def run() -> str:
    """Return the figures as Markdown."""
    with tempfile.TemporaryDirectory() as place:
        return "\n".join([*night_figures(Path(place)), _known_by()])


def _known_by() -> str:
    paths = sorted(REAL.glob("*.json.gz"))
    if not paths:
        return "skipped: ../shared/data is not there"
    result = asyncio.run(rebuilt(paths))
    return (
        f"{result.publications} earlier publications rebuilt from the newest of "
        f"{len(paths)} companies\n\n"
        "| way | cells | another number then | not in the earlier publication |\n| --- "
        "| --- | --- | --- |\n"
        f"| `known_by`, certain | {result.certain:,} | {result.wrong:,} | "
        f"{result.absent:,} |\n"
        f"| `known_by`, flagged | {result.flagged:,} | {result.flagged_wrong:,} | |\n"
        f"| restated values of the periods that had ended | {result.cut:,} | "
        f"{result.cut_wrong:,}"
        f" | {result.cut_future:,} |\n\n"
        f"`known_by` misses {result.missing:,} cells of the earlier publications."
    )
