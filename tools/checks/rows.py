"""Compare what all faces show of random questions with plain arithmetic over the
values.

    python -m tools.checks.rows [COUNT] [--seed N] [--data FOLDER]

Questions are to real companies, whose files are in FOLDER, and to odd worlds, made
here: formats such as $#,##0, #,##0.00, 0.0"%" and #,##0,, and magnitudes from 1e-9 to
1e15. The faces are `rows`, the printed table, the notebook, the plot, and the
explorer's table, charts and download.
"""

import argparse
import asyncio
import csv
import html
import io
import random
import re
import sys
from collections.abc import Callable, Container, Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal, localcontext
from pathlib import Path
from typing import Any

import matplotlib

from asyncfin import Annual, Client, FiscalRange, Panel, Period, Select
from asyncfin.errors import SelectionError
from asyncfin.sandbox import Sandbox, load
from asyncfin.web.answer import write_csv
from asyncfin.web.views import group_entries, list_entries, make_cell, make_charts

DATA = Path(__file__).parents[2] / "../shared/data"
POWERS = {"thousands": 3, "millions": 6, "billions": 9}
FORMATS = (
    "#,##0",
    "$#,##0",
    "#,##0.00",
    '0.0"%"',
    "0.0%",
    "#,##0,,",
    "(#,##0)",
    "0.00x",
    "million",
    "General",
)
AMOUNT = re.compile(r"(\(?-?\$?)([\d.,]+)( million)?(\)?)")


def written(number: float, number_format: str) -> str:
    """Return the text of a number as a service may format it."""
    with localcontext(prec=60):
        exact = Decimal(repr(number))
        size = abs(exact)
        sign = "-" if exact < 0 else ""
        match number_format:
            case "$#,##0":
                return f"{sign}${size:,.0f}"
            case "#,##0.00":
                return f"{exact:,.2f}"
            case '0.0"%"':
                return f"{exact:,.1f}%"
            case "0.0%":
                return f"{exact * 100:,.1f}%"
            case "#,##0,,":
                return f"{sign}{size / 10**6:,.0f}"
            case "(#,##0)":
                return f"({size:,.0f})" if sign else f"{size:,.0f}"
            case "0.00x":
                return f"{exact:,.2f}x"
            case "million":
                return f"{sign}{size / 10**6:,.1f} million"
            case "General":
                return f"{exact:f}"
        return f"{sign}{size:,.0f}"


def odd_world(rng: random.Random, name: str, entity_id: str) -> dict[str, Any]:
    """Return a dataset with series of every format."""
    years = list(range(2016, 2026))
    series, values, texts = [], {}, {}
    for place in range(12):
        number_format = rng.choice(FORMATS)
        power = rng.randint(-9, 15)
        series_id = f"S{place}"
        series.append(
            {
                "series_id": series_id,
                "metric_id": f"M{place}",
                "label": f"Metric {place}",
                "number_format": number_format,
                "scopes": [{"scope_group_id": "company", "scope_id": "all"}],
            }
        )
        rows = []
        for at, _ in enumerate(years):
            if rng.random() < 0.8:
                number = rng.choice([1, 1, 1, -1]) * rng.uniform(1, 10) * 10.0**power
                number = (
                    float(round(number))
                    if power > 2 and number_format != "General"
                    else number
                )
                rows.append([at, 0 if rng.random() < 0.03 else number])
        values[series_id] = rows
        texts[series_id] = number_format
    dataset_id = f"11111111-1111-4111-8111-{int(entity_id[-12:], 16):012d}"
    return {
        "format": "asyncfin-dataset/1",
        "entity_id": entity_id,
        "name": name,
        "publications": [
            {
                "dataset_id": dataset_id[:36],
                "created_timestamp": "2026-02-01T06:00:00Z",
                "periods": [[year, 12, 12] for year in years],
                "report_periods": [[year, 12, 0] for year in years],
                "fill_types": ["reported"],
                "scope_groups": [
                    {"scope_group_id": "company", "scopes": [{"scope_id": "all"}]}
                ],
                "groups": [
                    {
                        "reporting_group_id": "all",
                        "basis": "b",
                        "cadence": "annual",
                        "series": series,
                    }
                ],
                "values": {
                    series_id: [
                        [
                            at,
                            [
                                number,
                                0,
                                at,
                                [],
                                written(number, texts[series_id]),
                                texts[series_id],
                            ],
                        ]
                        for at, number in rows
                    ]
                    for series_id, rows in values.items()
                },
            }
        ],
    }


def expected(values: Sequence[Any], unit: str) -> tuple[str, list[str]]:
    """Return the unit of a row, and the text of each value."""
    texts = [value.text for value in values]
    if not unit:
        return "", texts
    sizes = []
    for value in values:
        match = AMOUNT.fullmatch(value.text)
        if match is None or "%" in value.number_format:
            return "", texts
        stated = Decimal(match[2].replace(",", ""))
        half = Decimal(5).scaleb(int(stated.as_tuple().exponent) - 1)
        with localcontext(prec=60):
            size = abs(Decimal(repr(value.number)))
            powers = (0, 3, 6, 9, 12)
            if not any(abs(size.scaleb(-power) - stated) <= half for power in powers):
                return "", texts
        if value.number and ("-" in match[1] or "(" in match[1]) != (value.number < 0):
            return "", texts
        if value.number:
            sizes.append(size)
    if max(sizes, default=0) < 1_000:
        return "", texts
    places = 0
    with localcontext(prec=60):
        while places < 6 and min(sizes).scaleb(places - POWERS[unit]) < 100:
            places += 1
        divided = []
        for value in values:
            match = AMOUNT.fullmatch(value.text)
            assert match is not None
            size = abs(Decimal(repr(value.number))).scaleb(-POWERS[unit])
            number = size.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
            digits = f"{number:,f}" if number else "<0.000001"
            divided.append(
                f"{match[1]}{digits}{match[4]}" if value.number else value.text
            )
    return unit, divided


def percent(values: Sequence[Any]) -> int:
    """Return what the numbers of a row are multiplied by to be percent."""
    largest = max(values, key=lambda value: abs(value.number))
    if not largest.text.endswith("%"):
        return 0
    stated = Decimal(largest.text.rstrip("%").replace(",", "").lstrip("-"))
    half = Decimal(5).scaleb(int(stated.as_tuple().exponent) - 1)
    size = abs(Decimal(repr(largest.number)))
    fitting = [factor for factor in (1, 100) if abs(size * factor - stated) <= half]
    return fitting[0] if len(fitting) == 1 or (fitting and not size) else 0


def differences(panels: Sequence[Panel], unit: str) -> Iterator[tuple[int, list[str]]]:
    """Yield, for each face, how many cells were compared and what is wrong."""
    asked: Any = unit or None
    wanted: dict[tuple[str, str], tuple[str, dict[Period, str]]] = {}
    count, wrong = 0, []
    for panel in panels:
        for row in panel.rows(unit=asked):
            values = panel[row.series.series_id].observations()
            by_period = dict(values)
            name = (row.entity_id, row.series.series_id)
            if not by_period:
                continue
            row_unit, texts = expected([*by_period.values()], unit)
            wanted[name] = row_unit, dict(zip(by_period, texts, strict=True))
            count += len(texts)
            if (row.unit or "") != row_unit or [*row.texts.values()] != texts:
                wrong.append(
                    f"rows {name}: {row.unit} {[*row.texts.values()]}, must be "
                    f"{row_unit} {texts}"
                )
            if bool(unit) and row.name.endswith(" (not divided)") != (not row_unit):
                wrong.append(f"name {row.name!r} of {name}, unit {row_unit!r}")
            if row.percent != percent([*by_period.values()]):
                wrong.append(f"percent of {name}: {row.percent}")
    yield count, wrong
    yield shown_differences(panels, unit, wanted)
    yield explorer_differences(panels, unit, wanted)
    yield plot_differences(panels)


def shown_differences(
    panels: Sequence[Panel], unit: str, wanted: Any
) -> tuple[int, list[str]]:
    """Compare the printed table and the notebook of each panel, row by row."""
    count, wrong = 0, []
    asked: Any = unit or None
    for panel in panels:
        shown = panel.show(asked, width=4_000)
        lines = str(shown).splitlines()
        table = re.findall("<tr>(.*?)</tr>", shown._repr_html_())
        cells = [
            [
                html.unescape(cell)
                for cell in re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row)
            ]
            for row in table
        ]
        for series in panel:
            row_unit, texts = wanted.get(
                (panel.dataset.entity_id, series.series_id), ("", {})
            )
            suffix = " (not divided)" if unit and not row_unit else ""
            ends = [
                line.split()
                for line in lines
                if line.startswith(f"{series.label}{suffix} ")
            ]
            rows = [row for row in cells if row and row[0] == f"{series.label}{suffix}"]
            periods = panel.periods[-12:]
            expected_cells = [texts.get(period, "·") for period in periods]
            if len(ends) == 1 and texts:
                count += len(periods)
                got = " ".join(ends[0])
                if not got.endswith(" ".join(expected_cells)):
                    wrong.append(
                        f"print of {series.label}: {got!r}, must end in "
                        f"{expected_cells}"
                    )
            if len(rows) == 1 and texts:
                count += len(periods)
                if rows[0][-len(periods) :] != [
                    texts.get(period, "·") for period in periods
                ]:
                    wrong.append(f"notebook of {series.label}: {rows[0]}")
        has_heading = (
            any(re.search(rf"(^|, )in {unit}$", line) for line in lines[:3])
            if unit
            else False
        )
        shown_series = [
            s.series_id
            for s in panel
            if any(line.startswith(s.label) for line in lines)
        ]
        divides = any(
            wanted.get((panel.dataset.entity_id, each), ("", {}))[0]
            for each in shown_series
        )
        if unit and has_heading != divides:
            wrong.append(
                f"heading of {panel.dataset.name}: {has_heading}, must be {divides}"
            )
    return count, wrong


def explorer_differences(
    panels: Sequence[Panel], unit: str, wanted: Any
) -> tuple[int, list[str]]:
    """Compare cells, legends, axes' numbers, colours and the download of the
    explorer.
    """
    count, wrong = 0, []
    asked: Any = unit or None
    groups = group_entries(list_entries(panels, asked), by_metric=True)
    for group in groups:
        for entry in group:
            row = entry.row
            row_unit, texts = wanted.get(
                (row.entity_id, row.series.series_id), ("", {})
            )
            for period, text in texts.items():
                count += 1
                shown = make_cell(entry, period).text
                if shown != text:
                    wrong.append(
                        f"cell of {row.label} {period}: {shown!r}, must be {text!r}"
                    )
            if texts and {
                other.row.unit or "" for other in group if other.row.values
            } != {row_unit}:
                wrong.append(f"chart of {row.label}: {row.unit}, must be {row_unit}")
    names = {panel.dataset.name for panel in panels}
    colours: dict[str, set[Any]] = {}
    for chart in make_charts(groups, is_log=False, by_metric=True):
        lines: Any = chart.drawing["lines"]
        seen = [line["colour"] for line in lines]
        if len(set(seen)) < len(seen):
            wrong.append(f"colours of {chart.title}: {seen}")
        for line in lines:
            # A line that is alone in its chart goes by its metric.
            name = str(line["label"]).removesuffix(" (not divided)")
            if name in names:
                colours.setdefault(name, set()).add(line["colour"])
    wrong += [
        f"colours of {name}: {found}"
        for name, found in colours.items()
        if len(found) > 1
    ]
    for line in csv.DictReader(io.StringIO(write_csv(panels, asked))):
        row_unit, texts = wanted.get((line["entity_id"], line["series_id"]), ("", {}))
        text = texts.get(Period.parse(line["period_label"]), "")
        if text:
            count += 1
            amount = Decimal(line["shown"]).scaleb(POWERS.get(line["unit"], 0))
            exact = Decimal(line["number"])
            if line["unit"] != row_unit or line["text"].removeprefix("'") != text:
                wrong.append(
                    f"download of {line['series_label']}: {line['unit']} "
                    f"{line['text']!r}, must be {text!r}"
                )
            if abs(amount - exact) > abs(exact) * Decimal("1e-14"):
                wrong.append(
                    f"download of {line['series_label']}: {line['shown']} of {exact}"
                )
    return count, wrong


def _among(field: str, texts: Container[str]) -> Callable[[Any], bool]:
    """Return a condition on series: their field is one of these texts."""
    return lambda series: getattr(series, field) in texts


def plot_differences(panels: Sequence[Panel]) -> tuple[int, list[str]]:
    """Compare the numbers, ticks and colours of plots."""
    from matplotlib import pyplot

    count, wrong = 0, []
    for panel in panels:
        few = panel.series_ids[:6]
        try:
            figure: Any = panel.where(_among("series_id", few)).plot().figure
        except SelectionError:
            continue
        figure.canvas.draw()
        for axes in figure.axes:
            lines = [line for line in axes.lines if len(line.get_xdata())]
            factors = {
                row.percent
                for row in panel.rows()
                for line in lines
                if row.values
                and next(iter(row.values.values())).number == line.get_ydata()[0]
            }
            for tick, text in zip(
                axes.get_yticks(), axes.get_yticklabels(), strict=True
            ):
                shown = text.get_text()
                if not shown or len(factors) != 1:
                    continue
                count += 1
                factor = max(factors)
                size = {"T": 12, "B": 9, "M": 6, "k": 3}.get(shown[-1:], 0)
                read = (
                    float(
                        shown.rstrip("TBMk% ").replace(",", "").replace("\u2212", "-")
                    )
                    * 10.0**size
                )
                span = abs(axes.get_ylim()[1] - axes.get_ylim()[0]) * (factor or 1)
                if (
                    shown.endswith("%") != (factor > 0)
                    or abs(read - tick * (factor or 1)) > 1e-6 * span
                ):
                    wrong.append(
                        f"tick {shown!r} of {panel.dataset.name} is at {tick!r}, "
                        f"factor {factor}"
                    )
            styles = [(line.get_color(), line.get_linestyle()) for line in lines]
            if len(set(styles)) < len(styles):
                wrong.append(f"colours {styles}")
        pyplot.close(figure)
    return count, wrong


async def check(count: int, seed: int, files: Sequence[Path]) -> int:
    matplotlib.use("Agg")
    rng = random.Random(seed)
    odd = [odd_world(rng, f"Odd {at}", f"O-{at:032x}") for at in range(1, 9)]
    totals = {"rows": 0, "print and notebook": 0, "explorer": 0, "plot": 0}
    wrong: list[str] = []
    async with (
        Sandbox(*odd, *map(load, files)) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        odd_ids = [each["entity_id"] for each in odd]
        real_ids = [entity for entity in sandbox.entities if entity not in odd_ids]
        panels: dict[str, Panel] = {}
        for question in range(count):
            ids = odd_ids if question % 2 or not real_ids else real_ids
            chosen = rng.sample(ids, rng.choice([1, 1, 2, 3]))
            for entity_id in chosen:
                if entity_id not in panels:
                    select = (
                        Select()
                        if ids is odd_ids
                        else Select(basis="consolidated", cadence="annual")
                    )
                    panels[entity_id] = await client.query(
                        entity_id, select, FiscalRange()
                    )
            metrics = sorted(
                {
                    series.metric_id
                    for entity_id in chosen
                    for series in panels[entity_id]
                }
            )
            few = set(rng.sample(metrics, min(len(metrics), rng.randint(1, 8))))
            cut = [
                panels[entity_id].where(_among("metric_id", few)).during(Annual())
                for entity_id in chosen
            ]
            unit = rng.choice(["", "thousands", "millions", "billions"])
            for name, (compared, found) in zip(
                totals, differences(cut, unit), strict=True
            ):
                totals[name] += compared
                wrong += [
                    f"question {question}, {unit or 'as published'}: {line}"
                    for line in found
                ]
    print(f"seed {seed}, {count} questions: {totals}, {len(wrong)} wrong")
    print("\n".join(wrong[:40]))
    return min(1, len(wrong))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--data", type=Path, default=DATA)
    given = parser.parse_args()
    sys.exit(
        asyncio.run(
            check(given.count, given.seed, sorted(given.data.glob("*.json.gz")))
        )
    )
