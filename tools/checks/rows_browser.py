"""What a real Chromium shows of panels: the explorer's page, and notebooks.

`rows` compares it with plain arithmetic. What is read here is what a person sees: the
text of cells as it is laid out, the texts and colours that a chart draws on its canvas,
the readings under the cursor, and the file that the button downloads.
"""

import asyncio
import csv
import io
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any, TypeAlias
from urllib.parse import urlencode

import uvicorn
from attrs import frozen
from playwright.async_api import async_playwright

from asyncfin import Client, Period
from asyncfin.typing import Unit
from asyncfin.web import explorer

WIDE = {"width": 1280, "height": 900}
NARROW = {"width": 380, "height": 740}
POWERS = {"": 0, "thousands": 3, "millions": 6, "billions": 9}
SIZES = {"K": 3, "M": 6, "B": 9, "T": 12}
RowKey: TypeAlias = tuple[str, str]
Differences: TypeAlias = tuple[int, list[str]]

# Notes what is drawn on each canvas since it was last cleared.
_RECORD = """
(() => {
  const proto = CanvasRenderingContext2D.prototype;
  const { fillText, stroke, clearRect } = proto;
  const drawnOn = (canvas) => (canvas.drawn ??= { texts: [], strokes: [] });
  proto.fillText = function (text, ...place) {
    drawnOn(this.canvas).texts.push({ text: String(text), align: this.textAlign });
    return fillText.call(this, text, ...place);
  };
  proto.stroke = function (...path) {
    drawnOn(this.canvas).strokes.push(this.strokeStyle);
    return stroke.apply(this, path);
  };
  proto.clearRect = function (...box) {
    delete this.canvas.drawn;
    return clearRect.apply(this, box);
  };
})();
"""
_TABLE = """
() => {
  const table = document.querySelector(".scroll table");
  if (table === null) return null;
  const heads = [...table.tHead.rows[0].cells].slice(1);
  return {
    periods: heads.map((cell) => cell.innerText.trim().split("\\n")[0]),
    rows: [...table.querySelectorAll("tr[data-series]")].map((row) => ({
      key: [row.dataset.company, row.dataset.series],
      name: row.querySelector("th bdi").innerText,
      cells: [...row.querySelectorAll("td")].map((cell) => cell.innerText),
    })),
  };
}
"""
_CHARTS = """
() => [...document.querySelectorAll("figure")].map((figure) => {
  const plot = figure.querySelector(".chart").plot;
  const { texts, strokes } = figure.querySelector("canvas").drawn;
  const values = [...figure.querySelectorAll(".legend .value")];
  const latest = values.map((value) => value.innerText);
  const readings = values.map(() => []);
  for (const end of plot.data[0]) {
    plot.setCursor({ left: plot.valToPos(end, "x"), top: 10 });
    values.forEach((value, at) => readings[at].push(value.innerText));
  }
  plot.setCursor({ left: -10, top: -10 });
  const items = [...figure.querySelectorAll(".legend li:not(.without)")];
  const axis = plot.axes[1];
  return {
    title: figure.querySelector("strong").innerText,
    scale: figure.querySelector(".viewed").innerText,
    lines: items.map((item, at) => ({
      label: item.querySelector("bdi").innerText,
      swatch: getComputedStyle(item.querySelector(".swatch")).background,
      latest: latest[at],
      readings: readings[at],
    })),
    drawn: texts.filter(({ align }) => align === "right").map(({ text }) => text),
    ticks: axis._splits.filter((number) => number !== null),
    strokes,
  };
})
"""
# Of each cell: whether all of its text can be seen at once, not cut and not covered.
_SEEN = """
() => [...document.querySelectorAll(".scroll td bdi")].map((text) => {
  text.scrollIntoView({ block: "center", behavior: "instant" });
  const { left, right, top, bottom } = text.getBoundingClientRect();
  const y = (top + bottom) / 2;
  const ends = [left + 1, right - 1].map((x) => document.elementFromPoint(x, y));
  const isSeen = ends.every((end) => text.contains(end));
  return { text: text.innerText, isSeen: isSeen && left >= 0 && right <= innerWidth };
})
"""


@frozen
class ExpectedRow:
    """What all faces must show of a row.

    Attributes:
        unit: what it is divided by, "" for a row as published.
        texts: by period.
        percent: what its numbers are multiplied by on an axis; 0 for no percent.
        values: the values, by period.
    """

    unit: str
    texts: Mapping[Period, str]
    percent: int
    values: Mapping[Period, Any]


class Browser:
    """One page of the explorer, and one for notebooks."""

    def __init__(self, base_url: str, page: Any, notebook: Any) -> None:
        self._base_url = base_url
        self._page = page
        self._notebook = notebook

    async def read_tables(self, html: str) -> list[list[str]]:
        """Show the HTML of a notebook, and return the texts of its tables' rows."""
        await self._notebook.set_content(f"<!doctype html><body>{html}")
        rows: list[list[str]] = await self._notebook.eval_on_selector_all(
            "tr", "rows => rows.map(row => [...row.cells].map(cell => cell.innerText))"
        )
        return rows

    async def compare_explorer(
        self,
        entity_ids: Sequence[str],
        series: Sequence[str],
        unit: Unit | None,
        expected_rows: Mapping[RowKey, ExpectedRow],
        *,
        is_narrow: bool,
    ) -> Differences:
        """Compare the page of a query of all years with what it must show."""
        page = self._page
        await page.set_viewport_size(NARROW if is_narrow else WIDE)
        fields = [("rule", "annual"), ("last", "100"), ("unit", unit or "")]
        fields += [("with", entity_id) for entity_id in entity_ids[1:]]
        fields += [("series", text) for text in series]
        await page.goto(f"{self._base_url}/company/{entity_ids[0]}?{urlencode(fields)}")
        # What the client has cached is on the page at once.
        if await page.locator("#answer .spent").count() == 0:
            await page.click("#ask")
        await page.wait_for_selector("#answer .spent")
        await page.wait_for_selector("#cancel", state="hidden")
        count, wrong = compare_table(await page.evaluate(_TABLE), unit, expected_rows)
        charts = await page.evaluate(_CHARTS)
        compared, differences = compare_charts(charts, expected_rows)
        count += compared
        wrong += differences
        if not expected_rows:
            return count, wrong
        async with page.expect_download() as download:
            await page.click("#csv")
        path = await (await download.value).path()
        text = await asyncio.to_thread(path.read_bytes)
        compared, differences = compare_download(text.decode(), expected_rows)
        count += compared
        wrong += differences
        if is_narrow:
            for cell in await page.evaluate(_SEEN):
                count += 1
                if not cell["isSeen"]:
                    wrong.append(f"{cell['text']!r} is cut at 380 px")
            if await page.evaluate("document.documentElement.scrollWidth") > 380:
                wrong.append("the page is wider than 380 px")
        return count, wrong


@asynccontextmanager
async def browsing(client: Client, entity_ids: Sequence[str]) -> AsyncIterator[Browser]:
    """Serve the explorer on this machine, and open it in Chromium."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        raise SystemExit("rows needs Chromium: install it, or give --no-browser")
    app = explorer(client, entity_ids)
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning")
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve())
    while not server.started:  # noqa: ASYNC110  uvicorn has no event for it
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        async with async_playwright() as playwright:
            chromium = await playwright.chromium.launch(
                executable_path=path, args=["--no-sandbox", "--disable-gpu"]
            )
            context = await chromium.new_context(reduced_motion="reduce")
            await context.add_init_script(_RECORD)
            pages = await context.new_page(), await context.new_page()
            yield Browser(f"http://127.0.0.1:{port}", *pages)
            await chromium.close()
    finally:
        server.should_exit = True
        await serving


def compare_table(
    table: Any, unit: Unit | None, expected_rows: Mapping[RowKey, ExpectedRow]
) -> Differences:
    """Compare cells, and the words behind the names of rows."""
    if table is None:
        return 0, ["no table"] if expected_rows else []
    count, wrong = 0, []
    periods = [Period.parse(label) for label in table["periods"]]
    shown_keys = []
    for row in table["rows"]:
        key = tuple(row["key"])
        if key not in expected_rows:  # without a value
            cells = set(row["cells"])
            if not cells <= {"·", "?"}:
                wrong.append(f"cells of {key}: {cells}")
            continue
        shown_keys.append(key)
        expected_row = expected_rows[key]
        missing = expected_row.texts.keys() - set(periods)
        if missing:
            wrong.append(f"{row['name']!r} has no column for {sorted(missing)}")
        for period, text in zip(periods, row["cells"], strict=True):
            count += 1
            expected = expected_row.texts.get(period)
            if text != expected and (expected is not None or text not in "·?"):
                wrong.append(f"cell {row['name']!r} {period}: {text!r}, {expected!r}")
        is_marked = row["name"].endswith(" (not divided)")
        if is_marked != bool(unit and not expected_row.unit):
            wrong.append(f"name {row['name']!r}, unit {expected_row.unit!r}")
    if sorted(shown_keys) != sorted(expected_rows):
        wrong.append(f"rows {shown_keys}, must be {list(expected_rows)}")
    return count, wrong


def compare_charts(
    charts: Any, expected_rows: Mapping[RowKey, ExpectedRow]
) -> Differences:
    """Compare readings, units, legends, ticks and colours."""
    count, wrong = 0, []
    keys_by_readings: dict[frozenset[str], list[RowKey]] = defaultdict(list)
    for key, expected_row in expected_rows.items():
        readings = frozenset(write_readings(expected_row))
        keys_by_readings[readings].append(key)
    lines_by_key: Counter[RowKey] = Counter()
    colours: dict[str, set[str]] = defaultdict(set)
    has_one_line_each = True
    for chart in charts:
        title, styles, entity_ids = chart["title"], [], []
        percents, units = set(), set()
        for line in chart["lines"]:
            readings = frozenset(
                text for text in line["readings"] if text and text[-1] not in "·?"
            )
            count += len(readings)
            keys = keys_by_readings.get(readings)
            if not keys:
                wrong.append(f"readings of {line['label']!r}: {sorted(readings)}")
                continue
            # Rows with the same readings take turns.
            key = min(keys, key=lambda key: lines_by_key[key])
            lines_by_key[key] += 1
            expected_row = expected_rows[key]
            units.add(expected_row.unit)
            percents.add(expected_row.percent)
            period, text = list(expected_row.texts.items())[-1]
            if line["latest"] != f"{period.label}: {text}":
                wrong.append(f"legend of {line['label']!r}: {line['latest']!r}")
            styles.append(line["swatch"])
            colour = read_colour(line["swatch"])
            if colour not in {read_colour(stroke) for stroke in chart["strokes"]}:
                wrong.append(f"{title!r} draws no line in {line['swatch']}")
            entity_ids.append(key[0])
            if len(keys) == 1:
                colours[key[0]].add(line["swatch"])
        has_one_line_each &= len(set(entity_ids)) == len(entity_ids)
        if len(set(styles)) < len(styles):
            wrong.append(f"colours of {title!r}: {styles}")
        scale = " ".join(f"in {unit}" for unit in units if unit)
        if chart["scale"] != scale:
            wrong.append(f"scale of {title!r}: {chart['scale']!r}, {scale!r}")
        if len(percents) == 1:
            compared, differences = compare_ticks(chart, percents.pop())
            count += compared
            wrong += differences
        else:
            wrong.append(f"{title!r} has rows of {percents} percent on one axis")
    absent = [key for key in expected_rows if not lines_by_key[key]]
    if absent and len(charts) < 12:
        wrong.append(f"not drawn: {absent}")
    if has_one_line_each:
        for entity_id, swatches in colours.items():
            if len(swatches) > 1:
                wrong.append(f"colours of {entity_id}: {swatches}")
    return count, wrong


def write_readings(row: ExpectedRow) -> list[str]:
    """Return what the cursor reads of a row: all digits, in the unit."""
    readings = []
    for period, value in row.values.items():
        text = row.texts[period]
        if row.unit and value.number:
            digits = write_digits(abs(value.number), -POWERS[row.unit])
            text = re.sub("<?[0-9][0-9.,]*", digits, text)
        elif value.number_format.endswith(",,"):
            text += f" ({write_number(value.number)})"
        readings.append(f"{period.label}: {text}")
    return readings


def write_digits(number: float, power: int) -> str:
    """Return all digits of a number times a power of ten."""
    digits = f"{Decimal(repr(number)).scaleb(power):,f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def write_number(number: float) -> str:
    """Return a number as published, very small ones with an exponent."""
    digits = repr(number)
    return digits if "e-" in digits else write_digits(number, 0)


def compare_ticks(chart: Any, percent: int) -> Differences:
    """Compare the texts of the y axis with the numbers where they are drawn."""
    wrong = []
    texts, numbers = chart["drawn"], chart["ticks"]
    factor = percent or 1
    if len(texts) != len(numbers) or len(set(texts)) < len(texts):
        return 0, [f"ticks of {chart['title']!r}: {texts} at {numbers}"]
    span = (max(numbers) - min(numbers)) * factor
    for text, number in zip(texts, numbers, strict=True):
        digits = text.removesuffix("%").replace(",", "").replace("\u2212", "-")
        power = SIZES.get(digits[-1:], 0)
        stated = float(digits.rstrip("KMBT")) * 10.0**power
        if abs(stated - number * factor) > 1e-9 * span:
            wrong.append(f"tick {text!r} of {chart['title']!r} is at {number!r}")
        if text.endswith("%") != bool(percent):
            wrong.append(f"tick {text!r} of {chart['title']!r}, percent {percent}")
    return len(texts), wrong


def read_colour(style: str) -> str:
    """Return the first colour of a style, as #rrggbb."""
    if match := re.search(r"#[0-9a-f]{6}", style):
        return match[0]
    match = re.search(r"rgb\((\d+), (\d+), (\d+)\)", style)
    return "#{:02x}{:02x}{:02x}".format(*map(int, match.groups())) if match else style


def compare_download(
    text: str, expected_rows: Mapping[RowKey, ExpectedRow]
) -> Differences:
    """Compare the number of each value in the CSV."""
    wrong = []
    cells = Counter[RowKey]()
    for line in csv.DictReader(io.StringIO(text, newline="")):
        key = line["entity_id"], line["series_id"]
        for column, cell in line.items():
            if not column.startswith("FY") or cell in ("", "?"):
                continue
            period = Period.parse(column)
            if key not in expected_rows or period not in expected_rows[key].texts:
                wrong.append(f"download has {key} {period}")
                continue
            cells[key] += 1
            number = expected_rows[key].values[period].number
            if float(cell) != number:
                label = line["series_label"]
                wrong.append(f"download of {label!r} {period}: {cell}, not {number!r}")
    for key, expected_row in expected_rows.items():
        if cells[key] != len(expected_row.texts):
            wrong.append(f"download has {cells[key]} values of {key}")
    return cells.total(), wrong
