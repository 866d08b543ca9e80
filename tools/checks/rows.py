"""Compare what all faces show of random questions with plain arithmetic over the
values.

    python -m tools.checks.rows [COUNT] [--seed N] [--data FOLDER] [--no-browser]

Questions are to real companies, whose files are in FOLDER, and to odd worlds, made
here: formats such as $#,##0, #,##0.00, 0.0"%" and #,##0,, and magnitudes from 1e-9 to
1e15. The faces are `rows`, the printed table, the plot, and in a Chromium (which
`rows_browser` reads) notebooks and the explorer's table, charts and download.
"""

import argparse
import asyncio
import json
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from decimal import ROUND_HALF_UP, Decimal, localcontext
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import matplotlib

from asyncfin import (
    Annual,
    CatalogueSeries,
    Client,
    Comparison,
    FiscalRange,
    MemoryCache,
    Panel,
    Period,
    Select,
    Series,
    format_path,
)
from asyncfin.errors import SelectionError
from asyncfin.sandbox import Sandbox, load
from asyncfin.typing import Unit
from tools.checks.rows_browser import (
    POWERS,
    Browser,
    Differences,
    ExpectedRow,
    RowKey,
    browsing,
)

DATA = Path(__file__).parents[2] / "../shared/data"
MOST_ROWS = 40
UNITS: tuple[Unit | None, ...] = (None, "thousands", "millions", "billions")
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
    "scale first",
    "scale last",
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
            case "scale first":
                return f"{sign}M\u20ac {size / 10**6:,.0f}"
            case "scale last":
                return f"{sign}{size / 10**3:,.0f} EUR K"
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
        for place, _ in enumerate(years):
            if rng.random() < 0.8:
                number = rng.choice([1, 1, 1, -1]) * rng.uniform(1, 10) * 10.0**power
                number = (
                    float(round(number))
                    if power > 2 and number_format != "General"
                    else number
                )
                rows.append([place, 0 if rng.random() < 0.03 else number])
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
                            place,
                            [
                                number,
                                0,
                                place,
                                [],
                                written(number, texts[series_id]),
                                texts[series_id],
                            ],
                        ]
                        for place, number in rows
                    ]
                    for series_id, rows in values.items()
                },
            }
        ],
    }


def expected(values: Sequence[Any], unit: Unit | None) -> tuple[str, list[str]]:
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


def expect_rows(
    panels: Sequence[Panel], unit: Unit | None
) -> tuple[dict[RowKey, ExpectedRow], Differences]:
    """Return what every face must show of the rows, and what `rows` returns else."""
    expected_rows: dict[RowKey, ExpectedRow] = {}
    count, wrong = 0, []
    for panel in panels:
        for row in panel.rows(unit=unit):
            values = dict(panel[row.series.series_id].observations())
            key = (row.entity_id, row.series.series_id)
            if not values:
                continue
            row_unit, texts = expected([*values.values()], unit)
            factor = percent([*values.values()])
            texts_by_period = dict(zip(values, texts, strict=True))
            expected_rows[key] = ExpectedRow(row_unit, texts_by_period, factor, values)
            count += len(texts)
            if (row.unit or "") != row_unit or [*row.texts.values()] != texts:
                wrong.append(
                    f"rows {key}: {row.unit} {[*row.texts.values()]}, must be "
                    f"{row_unit} {texts}"
                )
            suffix = row.scale.suffix
            if bool(unit) and (suffix == " (not divided)") != (not row_unit):
                wrong.append(f"suffix {suffix!r} of {key}, unit {row_unit!r}")
            if row.percent != factor:
                wrong.append(f"percent of {key}: {row.percent}, must be {factor}")
    return expected_rows, (count, wrong)


def compare_print(
    panels: Sequence[Panel],
    unit: Unit | None,
    expected_rows: Mapping[RowKey, ExpectedRow],
) -> Differences:
    """Compare the printed table of each panel, row by row, and its heading."""
    count, wrong = 0, []
    for panel in panels:
        lines = str(panel.show(unit, width=4_000)).splitlines()
        is_divided = False
        for name, expected_row in name_rows(panel, unit, expected_rows):
            ends = [line.split() for line in lines if line.startswith(f"{name} ")]
            is_divided |= bool(ends and expected_row and expected_row.unit)
            if len(ends) != 1 or expected_row is None:
                continue  # not shown, or of two series of one name
            periods = panel.periods[-12:]
            cells = [expected_row.texts.get(period, "·") for period in periods]
            count += len(cells)
            if not " ".join(ends[0]).endswith(" ".join(cells)):
                wrong.append(f"print of {name!r}: {ends[0]}, must end in {cells}")
        headings = [re.search(rf"(^|, )in {unit}$", line) for line in lines[:3]]
        if unit and any(headings) != is_divided:
            wrong.append(f"heading of {panel.dataset.name}, must be {is_divided}")
    return count, wrong


async def compare_notebook(
    browser: Browser,
    panels: Sequence[Panel],
    unit: Unit | None,
    expected_rows: Mapping[RowKey, ExpectedRow],
) -> Differences:
    """Compare the notebook of each panel, row by row, as a browser shows it."""
    count, wrong = 0, []
    for panel in panels:
        table = await browser.read_tables(panel.show(unit)._repr_html_())
        if not table:
            continue
        periods = [Period.parse(text) for text in table[0] if text[:2] == "FY"]
        for name, expected_row in name_rows(panel, unit, expected_rows):
            rows = [row for row in table if row[0] == name]
            if len(rows) != 1 or expected_row is None:
                continue
            cells = [expected_row.texts.get(period, "·") for period in periods]
            count += len(cells)
            if rows[0][-len(periods) :] != cells:
                wrong.append(f"notebook of {name!r}: {rows[0]}, must end in {cells}")
    return count, wrong


async def compare_comparison(
    browser: Browser,
    comparison: Comparison,
    unit: Unit | None,
    expected_rows: Mapping[RowKey, ExpectedRow],
) -> Differences:
    """Compare each row that a notebook shows with those of its entity."""
    count, wrong = 0, []
    html = comparison.show(unit)._repr_html_()
    for periods, name, cells in read_comparison(await browser.read_tables(html)):
        count += len(cells)
        rows = []
        for (entity_id, _), expected_row in expected_rows.items():
            # The rows of one entity are named by their labels.
            if len(comparison) == 1 or comparison[entity_id].dataset.name in name:
                texts = expected_row.texts
                rows.append([texts.get(period, "·") for period in periods])
        cells = [cell.replace("?", "·") for cell in cells]
        if cells not in rows and set(cells) != {"·"}:
            wrong.append(f"row {name!r}: {cells}, must be one of {rows}")
    return count, wrong


def read_comparison(
    table: Sequence[Sequence[str]],
) -> Iterator[tuple[list[Period], str, list[str]]]:
    """Yield the periods, the name and the cells of each row."""
    periods: list[Period] = []
    for row in table:
        labels = [text for text in row if text[:2] == "FY"]
        if labels:
            periods = [Period.parse(label) for label in labels]
        else:
            yield periods, " ".join(row[: -len(periods)]), list(row[-len(periods) :])


def name_rows(
    panel: Panel, unit: Unit | None, expected_rows: Mapping[RowKey, ExpectedRow]
) -> Iterator[tuple[str, ExpectedRow | None]]:
    """Yield the name of each row, and what it must show; None: it has no value."""
    for series in panel:
        expected_row = expected_rows.get((panel.dataset.entity_id, series.series_id))
        is_marked = expected_row is not None and unit and not expected_row.unit
        yield series.label + " (not divided)" * bool(is_marked), expected_row


def compare_plot(panels: Sequence[Panel]) -> Differences:
    """Compare the numbers, ticks and colours of plots."""
    from matplotlib import pyplot

    count, wrong = 0, []
    for panel in panels:
        series_ids = panel.series_ids[:6]

        def is_first(series: Series, series_ids: Sequence[str] = series_ids) -> bool:
            return series.series_id in series_ids

        try:
            figure: Any = panel.where(is_first).plot().figure
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


def row_text(series: Series | CatalogueSeries) -> str:
    """Return how the explorer's URL names a series: metric/group/path."""
    parts = series.metric_id, series.reporting_group_id, format_path(series.scopes)
    return "/".join(quote(part, safe="=|, ") for part in parts)


def choose_panels(rng: random.Random, panels: Sequence[Panel]) -> list[Panel]:
    """Return panels of some metrics, which have at most forty rows in all."""
    metrics = sorted({series.metric_id for panel in panels for series in panel})
    chosen_metrics = set(rng.sample(metrics, min(len(metrics), rng.randint(1, 8))))
    texts: set[str] = set()
    for panel in panels:
        for series in panel:
            if series.metric_id in chosen_metrics and len(texts) < MOST_ROWS:
                texts.add(row_text(series))
    chosen_panels = []
    for panel in panels:
        part = panel.where(lambda series: row_text(series) in texts)
        chosen_panels.append(part.during(Annual()))
    return chosen_panels


async def check(
    count: int, seed: int, files: Sequence[Path], *, has_browser: bool
) -> int:
    matplotlib.use("Agg")
    rng = random.Random(seed)
    worlds = [
        odd_world(rng, f"Odd {number}", f"O-{number:032x}") for number in range(1, 9)
    ]
    totals: Counter[str] = Counter()
    wrong: list[str] = []
    async with AsyncExitStack() as stack:
        sandbox = await stack.enter_async_context(Sandbox(*worlds, *map(load, files)))
        client = await stack.enter_async_context(
            Client(sandbox.base_url, sandbox.token, cache=MemoryCache(), max_age=86_400)
        )
        browser = None
        if has_browser:
            browser = await stack.enter_async_context(
                browsing(client, sandbox.entities)
            )
        odd_ids = [world["entity_id"] for world in worlds]
        real_ids = [entity for entity in sandbox.entities if entity not in odd_ids]
        panels: dict[str, Panel] = {}
        for number in range(count):
            is_odd = bool(number % 2 or not real_ids)
            ids = rng.sample(odd_ids if is_odd else real_ids, rng.choice([1, 1, 2, 3]))
            select = Select(basis="consolidated", cadence="annual")
            for entity_id in ids:
                if entity_id not in panels:
                    panels[entity_id] = await client.query(
                        entity_id, Select() if is_odd else select, FiscalRange()
                    )
            chosen_panels = choose_panels(rng, [panels[entity_id] for entity_id in ids])
            unit = rng.choice(UNITS)
            expected_rows, differences = expect_rows(chosen_panels, unit)
            results = {
                "rows": differences,
                "print": compare_print(chosen_panels, unit, expected_rows),
                "plot": compare_plot(chosen_panels),
            }
            if browser is not None:
                texts = {
                    row_text(series) for panel in chosen_panels for series in panel
                }
                is_narrow = number % 10 < 2
                results["notebook"] = await compare_notebook(
                    browser, chosen_panels, unit, expected_rows
                )
                triples = [
                    list(map(unquote, text.split("/"))) for text in sorted(texts)
                ]
                comparison = await client.compare(
                    ids,
                    Select.from_json(json.dumps({"series": triples})),
                    Annual(last=100),
                )
                results["comparison"] = await compare_comparison(
                    browser, comparison, unit, expected_rows
                )
                results["explorer"] = await browser.compare_explorer(
                    ids, sorted(texts), unit, expected_rows, is_narrow=is_narrow
                )
            for face, (compared, lines) in results.items():
                totals[face] += compared
                for line in lines:
                    wrong.append(f"{number}, {unit or 'as published'}, {face}: {line}")
    print(f"seed {seed}, {count} questions: {dict(totals)}, {len(wrong)} wrong")
    print("\n".join(wrong[:40]))
    return min(1, len(wrong))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=500)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--no-browser", action="store_true")
    arguments = parser.parse_args()
    files = sorted(arguments.data.glob("*.json.gz"))
    has_browser = not arguments.no_browser
    work = check(arguments.count, arguments.seed, files, has_browser=has_browser)
    sys.exit(asyncio.run(work))
