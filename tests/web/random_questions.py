"""Random questions about real companies in Chromium: all that the page shows, against plain code.

`python -m tests.web.random_questions 200 --seed 7` asks 200 of them; `--data` is the folder of the companies'
files. A question that fails is printed with what differs; `--only 17` asks the seventeenth alone.
"""

import argparse
import asyncio
import csv
import io
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import uvicorn
from attrs import frozen

from asyncfin import (
    Annual,
    Catalogue,
    Client,
    FiscalRange,
    HalfYearly,
    MemoryCache,
    Period,
    Quarterly,
    SelectionError,
    Trailing,
)
from asyncfin.model.scope import format_path
from asyncfin.sandbox import Sandbox, load
from asyncfin.web import explorer
from asyncfin.web.question import row_text
from tests.web.expected import (
    MOST_CHARTS,
    MOST_COLUMNS,
    MOST_LINES,
    MOST_ROWS,
    Answers,
    Cell,
    Drawn,
    Group,
    Line,
    Row,
    answers,
    bodies,
    charts,
    csv_rows,
    identities,
    line_labels,
    percent,
    publication,
    row_name,
    stem,
)

DATA = Path(__file__).parents[3] / "shared" / "data"
# Notes each text that is written on a canvas, and refuses the clipboard, so that pictures are downloaded.
NOTING = """
    const write = CanvasRenderingContext2D.prototype.fillText;
    CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
        (this.canvas.texts ??= []).push(text);
        return write.call(this, text, ...rest);
    };
    const clear = CanvasRenderingContext2D.prototype.clearRect;
    CanvasRenderingContext2D.prototype.clearRect = function (...rest) {
        this.canvas.texts = [];
        return clear.call(this, ...rest);
    };
    const blob = HTMLCanvasElement.prototype.toBlob;
    HTMLCanvasElement.prototype.toBlob = function (...rest) {
        window.pictured = this.texts;
        return blob.call(this, ...rest);
    };
    Object.defineProperty(navigator, "clipboard", { value: { write: () => Promise.reject() } });
"""
READ = """
() => {
    const text = (place) => place?.textContent ?? null;
    const figures = [...document.querySelectorAll("figure")].map((figure) => {
        const { plot } = figure.querySelector(".chart");
        const values = [...figure.querySelectorAll(".legend .value")];
        const latest = values.map(text);
        const written = plot.ctx.canvas.texts;
        const ends = [...plot.data[0]];
        const readings = ends.map((end) => {
            plot.setCursor({ left: plot.valToPos(end, "x"), top: 20 });
            return values.map(text);
        });
        plot.setCursor({ left: -10, top: -10 });
        return {
            title: text(figure.querySelector("figcaption strong")),
            subtitle: text(figure.querySelector("figcaption .unit")),
            viewed: text(figure.querySelector(".viewed")),
            below: text(figure.querySelector(".below")),
            credit: text(figure.querySelector(".credit")),
            file: figure.dataset.file,
            labels: [...figure.querySelectorAll(".legend li:not(.without) bdi")].map(text),
            without: text(figure.querySelector(".legend .without")),
            colours: plot.series.slice(1).map((each) => `${each.stroke()} ${each.dash}`),
            latest, readings, ends, written,
            numbers: plot.data.slice(1).map((line) => [...line].map((each) => each ?? null)),
            axes: plot.axes.map((axis) => ({ splits: axis._splits ?? [], texts: axis._values ?? [] })),
            isLog: plot.scales.y.distr === 3,
        };
    });
    const table = document.querySelector(".scroll table");
    const head = table ? [...table.tHead.rows[0].cells].slice(1) : [];
    return {
        figures,
        alert: text(document.querySelector("#answer [role=alert]")),
        heads: head.map((cell) => [cell.dataset.period, cell.textContent]),
        bodies: [...(table?.tBodies ?? [])].map((body) => ({
            heading: text(body.querySelector("th[scope=rowgroup] bdi")),
            description: text(body.querySelector("th[scope=rowgroup] .unit")),
            rows: [...body.querySelectorAll("tr[data-series]")].map((row) => ({
                ...row.dataset,
                name: text(row.cells[0].querySelector("bdi")),
                description: text(row.cells[0].querySelector(".unit")),
                cells: [...row.cells].slice(1).map((cell) => [
                    text(cell), cell.dataset.number ?? null, cell.className,
                ]),
            })),
        })),
        notes: [...document.querySelectorAll("#answer > .note")].map(text),
    };
}
"""


@asynccontextmanager
async def serving(client: Client, names: Mapping[str, str]) -> AsyncIterator[str]:
    """Serve the explorer on a free port of this machine; yield its address."""
    config = uvicorn.Config(explorer(client, names), host="127.0.0.1", port=0, log_level="warning")
    server = uvicorn.Server(config)
    served = asyncio.ensure_future(server.serve())
    while not server.started:  # noqa: ASYNC110  uvicorn has no event for it
        await asyncio.sleep(0)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await served


def drawn(rng: random.Random, catalogues: Sequence[Catalogue]) -> Drawn:
    """Return a question that a visitor could choose in the form."""
    chosen = rng.sample(list(catalogues), rng.choice([1, 1, 2, 2, 3, 4]))
    first = chosen[0]
    shared = [
        each
        for each in first
        if all(each.metric_id in other.by_metric for other in chosen) and len(each.scopes) == 1
    ]
    pool = shared if shared and rng.random() < 0.75 else list(first)
    if rng.random() < 0.1:
        pool = list(rng.choice(chosen))
    count = rng.choice([1, 1, 2, 3, 4, 6, 14, 40]) if pool is not shared else rng.choice([1, 2, 3, 4])
    series = rng.sample(pool, min(count, len(pool)))
    if rng.random() < 0.5:  # parts of one metric, side by side
        series += rng.sample(first.by_metric[m], 1) if (m := series[0].metric_id) in first.by_metric else []
    rows = {(each.metric_id, each.reporting_group_id, format_path(each.scopes)): None for each in series[:45]}
    periods, fields = rule(rng, first)
    return Drawn(
        tuple(each.entity_id for each in chosen),
        tuple(rows),
        periods,
        fields,
        rng.choice(["original", "original", "latest_restated", "both"]),
        rng.choice(["values", "values", "growth", "index", "ratio"]),
        rng.randrange(len(rows)),
        rng.choice(["", "thousands", "millions", "billions"]),
        rng.choice(["linear", "log"]),
        rng.choice(["", "metric", "company"]),
    )


def rule(rng: random.Random, catalogue: Catalogue) -> tuple[Any, dict[str, str]]:
    last = rng.randint(1, 12)
    years = [each.year for each in catalogue.periods] or [2020]
    start, end = sorted((rng.randint(min(years), max(years)), rng.randint(min(years), max(years))))
    match rng.choice(
        ["annual", "annual", "quarterly", "quarterly", "half-yearly", "trailing", "range", "all"]
    ):
        case "annual":
            return Annual(last=last), {"rule": "annual", "last": str(last)}
        case "quarterly":
            return Quarterly(last=last), {"rule": "quarterly", "last": str(last)}
        case "half-yearly":
            return HalfYearly(last=last), {"rule": "half-yearly", "last": str(last)}
        case "trailing":
            months = rng.choice([3, 12, 24, 60])
            return Trailing(months), {"rule": "trailing", "last": str(months)}
        case "range":
            lower = rng.random() < 0.8
            upper = rng.random() < 0.8
            return FiscalRange((start, 1) if lower else None, (end, 12) if upper else None), {
                "rule": "range",
                "start": str(start) if lower else "",
                "end": str(end) if upper else "",
            }
    return FiscalRange(), {"rule": "all"}


def form_of(question: Drawn, catalogues: Mapping[str, Catalogue]) -> dict[str, Any]:
    """Return the fields of the question's form."""
    texts = []
    for triple in question.series:
        texts.append(
            next(
                row_text(catalogue, each)
                for catalogue in map(catalogues.__getitem__, question.companies)
                for each in catalogue
                if (each.metric_id, each.reporting_group_id, format_path(each.scopes)) == triple
            )
        )
    shown = {
        "view": question.view,
        "unit": question.unit,
        "scale": question.scale,
        "order": question.order,
        "over": texts[question.over] if question.view == "ratio" else "",
    }
    return {
        "with": question.companies[1:],
        "series": texts,
        **question.fields,
        "value_version": question.value_version,
        **shown,
    }


class Differences(list[str]):
    """What a page shows that it must not, a line each."""

    def equal(self, what: str, shown: object, wanted: object) -> None:
        if shown != wanted:
            self.append(f"{what}: shows {shown!r}, must show {wanted!r}")

    def cell(self, what: str, text: str, number: object, wanted: Cell) -> None:
        if text not in wanted.texts:
            self.append(f"{what}: shows {text!r}, must show {' or '.join(map(repr, wanted.texts))}")
        self.number(what, number, wanted)

    def number(self, what: str, number: object, wanted: Cell) -> None:
        if (number in (None, "")) != (wanted.number is None):
            self.append(f"{what}: number {number!r}, must be {wanted.number and float(wanted.number)!r}")
        elif wanted.number is not None:
            exact = float(wanted.number)
            if abs(float(str(number)) - exact) > 1e-9 * abs(exact) + 1e-9:
                self.append(f"{what}: number {number!r}, must be {exact!r}")


def words(text: str | None) -> str:
    return " ".join((text or "").split())


def compare_page(page: Any, found: Answers) -> Differences:
    """Compare what a browser read of the page with what it must show."""
    differences = Differences()
    compare_table(differences, page, found)
    wanted = charts(found)
    differences.equal("number of charts", len(page["figures"]), min(len(wanted), MOST_CHARTS))
    for figure, (group, every) in zip(page["figures"], wanted, strict=False):
        compare_chart(differences, figure, group, every)
    compare_colours(differences, page["figures"], found)
    for _, every in wanted[:MOST_CHARTS]:
        if hidden := len(every) - MOST_LINES:
            said = f"{hidden} more line{' is' if hidden == 1 else 's are'} not drawn."
            if hidden > 0 and not any(note.endswith(said) for note in page["notes"]):
                differences.append(f"no note says {said!r}")
    return differences


def compare_table(differences: Differences, page: Any, found: Answers) -> None:
    periods = found.periods[-MOST_COLUMNS:]
    differences.equal("columns", [label for label, _ in page["heads"]], [each.label for each in periods])
    several = len({each.duration_months for each in periods}) > 1
    for (_, text), period in zip(page["heads"], periods, strict=False):
        months = f"{period.duration_months} months" if several else ""
        differences.equal("column", text, f"{period.label}{months}")
    left = MOST_ROWS
    wanted = []
    for heading, below in bodies(found):
        if left > 0:
            wanted.append((heading, below, below[:left]))
            left -= len(below)
    differences.equal("headings", [each["heading"] for each in page["bodies"]], [each[0] for each in wanted])
    by_metric = found.question.by_metric
    for body, (_, below, shown) in zip(page["bodies"], wanted, strict=False):
        every = [row for _, row in below]
        shared = {row.description for row in every}
        in_heading = shared.copy().pop() if by_metric and len(shared) == 1 else ""
        differences.equal("description", words(body["description"]), words(in_heading))
        differences.equal("rows", len(body["rows"]), len(shown))
        names = [each["name"] for each in body["rows"]]
        if len(set(names)) < len(names):
            differences.append(f"rows of one name: {names}")
        for line, (group, row) in zip(body["rows"], shown, strict=False):
            wanted_name = row_name(row, every, by_metric=by_metric) + group.suffix(row)
            differences.equal("row", line["name"], wanted_name)
            named = "" if in_heading else row.description
            differences.equal(f"description of {wanted_name}", words(line["description"]), words(named))
            identity = (row.panel.dataset.entity_id, row.panel.value_version, row.series.series_id)
            differences.equal("identity", (line["company"], line["version"], line["series"]), identity)
            for (text, number, kind), period in zip(line["cells"], periods, strict=False):
                cell = group.cell(row, period)
                where = f"{row.company} {wanted_name} {period.label}"
                differences.cell(where, text, number, cell)
                differences.equal(f"{where}, kind", kind, kind_of(text, cell))


def kind_of(text: str, cell: Cell) -> str:
    if text in ("·", "?"):
        return {"·": "gap", "?": "unasked"}[text]
    if cell.number is None:
        return "reason" if text else ""
    is_zero = not any(digit in text for digit in "123456789") and "%" in text
    return "negative" if cell.number < 0 and not is_zero else ""


def compare_chart(differences: Differences, figure: Any, group: Group, every: Sequence[Line]) -> None:
    question = group.answers.question
    lines = every[:MOST_LINES]
    rows = [line.row for line in lines]
    title = title_of(rows)
    differences.equal("title", figure["title"], title)
    differences.equal(f"{title}: subtitle", words(figure["subtitle"]), words(subtitle_of(title, rows)))
    differences.equal(f"{title}: file", figure["file"], f"{stem(group.answers, title)}.png")
    is_log = question.scale == "log" and question.view != "growth"
    differences.equal(f"{title}: logarithmic", figure["isLog"], is_log)
    labels = line_labels(group, lines)
    unit = group.unit_of(rows[0])
    viewed = [
        group.described() if question.view != "values" else "",
        f"in {unit}" if unit else "",
        "logarithmic scale" if is_log else "",
    ]
    differences.equal(f"{title}: viewed", figure["viewed"], ", ".join(filter(None, viewed)))
    months_differ = "; the same fiscal period can be different months"
    below = f"fiscal periods; {publication(rows)}{months_differ * (len({row.company for row in rows}) > 1)}"
    differences.equal(f"{title}: below", figure["below"], below)
    names = list(dict.fromkeys(row.company for row in rows))
    credit = f"Source: dataset of {', '.join(names)}, {publication(rows)}; asyncfin"
    differences.equal(f"{title}: source", figure["credit"], credit)
    differences.equal(f"{title}: legend", figure["labels"], labels)
    if len(set(labels)) < len(labels):
        differences.append(f"{title}: lines of one name: {labels}")
    at_end: dict[int, Period] = {}
    for period in sorted(
        (each for line in lines for each in line.periods), key=lambda each: each.duration_months
    ):
        at_end[period.fiscal_end] = period
    ends = sorted(at_end)
    differences.equal(f"{title}: ends", figure["ends"], ends)
    if figure["ends"] == ends:
        compare_lines(differences, title, figure, group, lines, ends, is_log)
        compare_axes(differences, title, figure, group, lines, {end: at_end[end].label for end in ends})


def compare_colours(differences: Differences, figures: Sequence[Any], found: Answers) -> None:
    """Check that a colour with its dash is of one identity in all charts, and an identity of one colour."""
    of_line = identities(found)
    seen: dict[Any, Any] = {}
    for figure, (group, every) in zip(figures, charts(found), strict=False):
        for line, colour in zip(every, figure["colours"], strict=False):
            identity = of_line[line.row, line.months]
            for one, other in ((identity, colour), (colour, identity)):
                if seen.setdefault(one, other) != other:
                    differences.append(
                        f"{figure['title']}: {one!r} is {other!r} here, {seen[one]!r} elsewhere"
                    )
        drawn = [line.row for line in every]
        rows = [row for row in group.rows if row not in drawn]
        if rows and not (figure["without"] or "").startswith("no value: "):
            differences.append(f"{figure['title']}: does not name {len(rows)} rows without a value")


def compare_lines(
    differences: Differences,
    title: str,
    figure: Any,
    group: Group,
    lines: Sequence[Line],
    ends: Sequence[int],
    is_log: bool,
) -> None:
    for at, line in enumerate(lines):
        latest = "no value"
        by_end = {each.fiscal_end: each for each in line.periods}
        for place, end in enumerate(ends):
            where = f"{title}, line {figure['labels'][at]}, {end}"
            reading, number = figure["readings"][place][at], figure["numbers"][at][place]
            if (period := by_end.get(end)) is None:
                differences.equal(where, (reading, number), ("", None))
                continue
            cell = group.cell(line.row, period)
            if is_log and cell.number is not None and cell.number <= 0:
                differences.equal(where, (reading, number), (f"{period.label}: not above zero", None))
                latest = reading
                continue
            exact = group.reading(line.row, period)
            texts = [f"{period.label}: {text}" if text else period.label for text in exact.texts]
            if reading not in texts:
                differences.append(f"{where}: reads {reading!r}, must read one of {texts}")
            differences.number(where, number, cell)
            if cell.number is not None or not cell.texts & {"", "·", "?"}:
                texts = [f"{period.label}: {text}" for text in cell.texts]
                latest = next((text for text in texts if text == figure["latest"][at]), texts[0])
        differences.equal(f"{title}: latest of {figure['labels'][at]}", figure["latest"][at], latest)


def compare_axes(
    differences: Differences,
    title: str,
    figure: Any,
    group: Group,
    lines: Sequence[Line],
    labels: Mapping[int, str],
) -> None:
    x, y = figure["axes"]
    differences.equal(f"{title}: x axis", x["texts"], [labels[end] for end in x["splits"]])
    # On a logarithmic axis most splits have no text.
    ticks = [(text, number) for text, number in zip(y["texts"], y["splits"], strict=True) if text]
    texts = [text for text, _ in ticks]
    drawn = [text for text in figure["written"] if text]
    differences.equal(f"{title}: texts of the axes", sorted(drawn), sorted([*x["texts"], *texts]))
    if len(set(texts)) < len(texts):
        differences.append(f"{title}: equal ticks {texts}")
    cells = [group.cell(line.row, period) for line in lines for period in line.periods]
    with_number = [cell for cell in cells if cell.number is not None]
    if group.view == "values":
        with_value = next(row for row in group.rows if row.shown)
        factor = percent(with_value.shown.values())
    else:
        factor = int(
            bool(with_number) and all(text.endswith("%") for each in with_number for text in each.texts)
        )
    for text, number in ticks:
        differences.equal(f"{title}: tick {text} in percent", text.endswith("%"), factor > 0)
        read = float(text.rstrip("%KMBT").replace(",", "")) * 1000 ** (
            " KMBT".find(text[-1:]) if text[-1:] in "KMBT" else 0
        )
        if abs(read - number * (factor or 1)) > 1e-9 * abs(number * (factor or 1)) + 1e-12:
            differences.append(f"{title}: tick {text!r} is at {number!r}, factor {factor}")


def title_of(rows: Sequence[Row]) -> str:
    if len({row.label for row in rows}) == 1 or len({row.series.metric_id for row in rows}) == 1:
        return rows[0].label
    return rows[0].company if len({row.company for row in rows}) == 1 else "Values"


def subtitle_of(title: str, rows: Sequence[Row]) -> str:
    """Return what the lines share: the company below a label, scopes, version, description."""
    places = [0, 2, 4] if len({row.label for row in rows}) == 1 else [2, 4]
    parts = [rows[0].names[at] for at in places if len({row.names[at] for row in rows}) == 1]
    descriptions = list(dict.fromkeys(row.description for row in rows))
    if len(descriptions) > 1:
        quoted = ", ".join(f"“{each}”" for each in list(filter(None, descriptions))[:2])
        parts.append(f"different descriptions: {quoted}")
    else:
        parts += descriptions
    return " · ".join(filter(None, parts))


def compare_csv(text: str, found: Answers) -> Differences:
    differences = Differences()
    lines = list(csv.DictReader(io.StringIO(text)))
    wanted = list(csv_rows(found))
    differences.equal("lines of the download", len(lines), len(wanted))
    for line, row in zip(lines, wanted, strict=False):
        cell, value = row.pop("cell"), row.pop("number")
        where = f"download, {line['entity_name']} {line['series_label']} {line['period_label']}"
        for name, expected in row.items():
            shown = line[name].removeprefix("'") if expected[:1] in "=+-@" else line[name]
            differences.equal(f"{where}, {name}", shown, expected)
        differences.equal(f"{where}, number", line["number"], "" if value is None else exact(value.number))
        differences.number(f"{where}, shown", line["shown"], cell)
        shown = line["text"]
        texts = {"" if text == "·" else text for text in cell.texts}
        if shown not in texts and shown.removeprefix("'") not in texts:
            differences.append(f"{where}, text: {shown!r}, must be one of {sorted(texts)}")
    return differences


def exact(number: float) -> str:
    return str(int(number)) if number == int(number) else repr(number)


def compare_dialog(text: str, row: Row, period: Period) -> Differences:
    """Compare the parts of the dialog of a cell."""
    differences = Differences()
    value = row.shown.get(period)
    months = f"{period.duration_months} month{'' if period.duration_months == 1 else 's'}"
    parts = [
        row.label,
        row.company,
        f"{period.label}: {months} to fiscal month {period.end_month} of {period.year}",
        row.names[4],
        row.names[3],
        *filter(None, [row.names[2], row.description]),
    ]
    if value is None:
        parts.append(row.panel.why(row.series.series_id, period))
    else:
        parts += [value.text, exact(value.number), value.number_format, value.fill_type]
        parts += [source.item_id for source in value.sources]
        if value.report_period is not None:
            parts.append(f"fiscal month {value.report_period.end_month} of {value.report_period.year}")
    for part in parts:
        if words(part) not in words(text):
            differences.append(f"dialog of {row.label} {period.label}: {part!r} is not in {words(text)!r}")
    return differences


@frozen
class Visitor:
    """A tab of the browser on the explorer, and the library's client of the same service."""

    tab: Any
    base_url: str
    client: Client
    catalogues: Mapping[str, Catalogue]

    async def ask(self, question: Drawn, rng: random.Random) -> Differences:
        """Ask a question on the page, and return what is wrong with what it shows."""
        form = form_of(question, self.catalogues)
        refusal = "no company has one of these series"
        try:
            found = await answers(self.client, question)
        except SelectionError as error:
            found, refusal = None, str(error)
        shows_later = rng.random() < 0.4
        first = form | {"view": "values", "unit": "", "scale": "linear", "order": "", "over": ""}
        page = await self.opened(question, first if shows_later else form)
        said = page["alert"]
        if shows_later and page["heads"]:
            said = await self.choose(form)
            page = await self.tab.evaluate(READ)
        if found is None or not found.rows:
            is_refused = said or not page["heads"]
            return Differences([] if is_refused else [f"is shown, and the library refuses it: {refusal}"])
        if said:
            return Differences([f"refused: {said}"])
        if not found.periods:
            return Differences([] if not page["heads"] else ["columns where there is no period"])
        differences = compare_page(page, found)
        await self.tab.reload()
        again = await self.tab.evaluate(READ)
        differences.equal("reload", again["bodies"], page["bodies"])
        differences.equal("reload", again["figures"], page["figures"])
        differences += await self.downloaded(found)
        differences += await self.looked_at(found, rng)
        if page["figures"]:
            differences += await self.pictured(page, rng)
        return differences

    async def opened(self, question: Drawn, form: Mapping[str, Any]) -> Any:
        query = urlencode({name: value for name, value in form.items() if value not in ("", ())}, doseq=True)
        await self.tab.goto(f"{self.base_url}/company/{question.companies[0]}?{query}")
        if not await self.tab.locator("#answer > *").count():
            async with self.tab.expect_response("**/answer"):
                await self.tab.click("#ask")
            await self.until("document.getElementById('cancel').hidden && answer.children.length > 0")
        return await self.tab.evaluate(READ)

    async def until(self, condition: str) -> None:
        """Wait for a condition in JavaScript, which the page's policy does not let playwright do itself."""
        async with asyncio.timeout(60):
            while not await self.tab.evaluate(condition):  # noqa: ASYNC110  the page has no event for it
                await asyncio.sleep(0.01)

    async def choose(self, form: Mapping[str, Any]) -> str:
        """Choose how the values are shown, and return what the page says if it refuses that."""
        for name in ("view", "over", "unit", "scale", "order"):
            wanted = form[name]
            is_hidden = name == "unit" and form["view"] != "values"
            if is_hidden or await self.tab.locator(f"[name={name}]").input_value() == wanted:
                continue
            await self.tab.evaluate("answer.firstElementChild.id = 'before'; refused.textContent = ''")
            await self.tab.select_option(f"[name={name}]", wanted)
            await self.until("!document.getElementById('before') || refused.textContent !== ''")
        return str(await self.tab.evaluate("refused.textContent"))

    async def downloaded(self, found: Answers) -> Differences:
        async with self.tab.expect_download() as download:
            await self.tab.click("#csv")
        received = await download.value
        differences = compare_csv((await received.path()).read_bytes().decode(), found)
        differences.equal("name of the download", received.suggested_filename, f"{stem(found)}.csv")
        return differences

    async def looked_at(self, found: Answers, rng: random.Random) -> Differences:
        """Open some cells of the table."""
        differences = Differences()
        shown = [row for _, below in bodies(found) for _, row in below][:MOST_ROWS]
        periods = found.periods[-MOST_COLUMNS:]
        for _ in range(2):
            at, column = rng.randrange(len(shown)), rng.randrange(len(periods))
            cell = self.tab.locator(".scroll tr[data-series]").nth(at).locator("td").nth(column)
            await cell.evaluate("cell => cell.click()")
            await self.tab.wait_for_selector("dialog[open] dl")
            text = await self.tab.locator("dialog").text_content()
            differences += compare_dialog(text, shown[at], periods[column])
            await self.tab.keyboard.press("Escape")
            # Returning the focus scrolls the page.
            await self.until("document.activeElement.tagName === 'TD'")
        return differences

    async def pictured(self, page: Any, rng: random.Random) -> Differences:
        """Take a picture of a chart, and read a value with the mouse."""
        differences = Differences()
        at = rng.randrange(len(page["figures"]))
        figure = page["figures"][at]
        place = self.tab.locator(".chart").nth(at)
        await place.scroll_into_view_if_needed()
        await self.tab.evaluate(
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        box = await place.locator(".u-over").bounding_box()
        point = rng.randrange(len(figure["ends"]))
        left = await place.evaluate("(place, end) => place.plot.valToPos(end, 'x')", figure["ends"][point])
        await self.tab.mouse.move(box["x"] + min(max(left, 1), box["width"] - 2), box["y"] + 20)
        wanted = figure["readings"][point]
        reads = (
            "place => [...place.closest('figure').querySelectorAll('.legend .value')].map(e => e.textContent)"
        )
        read = await place.evaluate(reads)
        for _ in range(100):  # it is read within the next frame
            if read == wanted:
                break
            await asyncio.sleep(0.02)
            read = await place.evaluate(reads)
        differences.equal("reading under the mouse", read, wanted)
        await self.tab.mouse.move(0, 0)
        async with self.tab.expect_download() as download:
            await self.tab.locator(".picture").nth(at).click()
        received = await download.value
        differences.equal("name of the picture", received.suggested_filename, figure["file"])
        texts = await self.tab.evaluate("window.pictured")
        legend = [f"{label} {last}" for label, last in zip(figure["labels"], figure["latest"], strict=True)]
        around = [figure["title"], figure["subtitle"], figure["viewed"], *legend, figure["without"] or ""]
        around.append(figure["below"])
        # Long lines are wrapped.
        differences.equal("picture", words(" ".join(texts)), words(" ".join([*around, figure["credit"]])))
        return differences


@asynccontextmanager
async def visiting(chromium: Any, files: Sequence[Path]) -> AsyncIterator[Visitor]:
    """Serve real companies to a browser and to the library."""
    datasets = [load(each) for each in files]
    faults: list[str] = []
    async with (
        Sandbox(*datasets) as sandbox,
        Client(sandbox.base_url, sandbox.token, cache=MemoryCache(), max_age=86_400) as shown,
        Client(sandbox.base_url, sandbox.token, cache=MemoryCache(), max_age=86_400) as library,
        serving(shown, sandbox.names) as base_url,
    ):
        catalogues = {each: await library.catalogue(each) for each in sandbox.entities}
        tab = await chromium.new_page(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
        await tab.add_init_script(NOTING)
        tab.on("pageerror", lambda error: faults.append(str(error)))
        yield Visitor(tab, base_url, library, catalogues)
        await tab.close()
        assert faults == []


async def asked(
    visitor: Visitor, seed: object, numbers: Sequence[int], report: Callable[[str], object] = str
) -> list[str]:
    """Ask the questions of these numbers, and return what is wrong."""
    api = pytest.importorskip("playwright.async_api")
    wrong = []
    for number in numbers:
        rng = random.Random(f"{seed}-{number}")
        question = drawn(rng, list(visitor.catalogues.values()))
        try:
            found = await visitor.ask(question, rng)
        except (TimeoutError, api.Error) as error:
            found = Differences([f"{type(error).__name__}: {str(error)[:500]}, at {visitor.tab.url}"])
        if found:
            lines = "\n  ".join([*found[:12], *([f"and {len(found) - 12} more"] if len(found) > 12 else [])])
            wrong.append(f"question {number}: {question}\n  {lines}")
            report(wrong[-1])
    return wrong


async def main() -> int:
    from playwright.async_api import async_playwright

    from tests.web.conftest import CHROMIUM, QUIET

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", default=random.randrange(10**6))
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--only", type=int)
    given = parser.parse_args()
    files = sorted(given.data.glob("*.json.gz"))
    print(f"{given.count} questions to {len(files)} companies, seed {given.seed}", flush=True)
    since = time.monotonic()
    numbers = [given.only] if given.only is not None else range(given.count)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        async with visiting(browser, files) as visitor:
            wrong = await asked(visitor, given.seed, numbers, lambda text: print(text, flush=True))
        await browser.close()
    print(f"{len(wrong)} of {len(numbers)} questions are wrong; {time.monotonic() - since:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
