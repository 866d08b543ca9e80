"""What changed with the last publication, on the explorer's page."""

import json
import os
import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from asyncfin import ArgumentError, Client, FiscalRange, MemoryCache, Select, extract
from asyncfin.cli.exits import UsageError
from asyncfin.sandbox import Sandbox
from asyncfin.web import explorer
from tests.nights import BEGIN, Cell, Content, Key, entity, publication
from tests.web.conftest import Page

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
REVENUE, COST, GONE = Key("S-1"), Key("S-2", "Cost"), Key("S-3", "Gone")
ROWS = ["Revenue/annual/company=all", "Cost/annual/company=all", "Gone/annual/company=all"]
ONE: Content = {
    REVENUE: {"FY2020": Cell(1000), "FY2021": Cell(2), "FY2022": Cell(3)},
    COST: {"FY2020": Cell(7), "FY2021": Cell(8)},
    GONE: {"FY2020": Cell(5)},
}
TWO: Content = {
    REVENUE: {"FY2020": Cell(1250.5), "FY2021": Cell(2), "FY2023": Cell(4), "FY2024": Cell(5)},
    COST: {"FY2020": Cell(7, "refiled"), "FY2021": Cell(8)},
}


class Nights:
    """A service, an extraction with a change feed, and the explorer with that feed."""

    def __init__(self, sandbox: Sandbox, client: Client, to: Path) -> None:
        self.sandbox, self.client, self.to = sandbox, client, to
        self._number = 0

    def publish(self, content: Content, of: str = entity(1)) -> None:
        self._number += 1
        created = BEGIN + timedelta(days=self._number)
        self.sandbox.publish(publication(content, number=self._number, of=of, created=created))

    async def run(self, *ids: str, select: Select = Select(), **options: Any) -> None:  # noqa: B008
        await extract(
            self.client, ids or (entity(1),), select, FiscalRange(), to=self.to, history=True, **options
        )

    async def answer(self, history: Any = None, **fields: Any) -> str:
        app = explorer(self.client, [entity(1), entity(2)], history=history or self.to)
        page = Page(app, self.client, (entity(1),))
        answer = await page.post("answer", **{"series": ROWS, "rule": "all", **fields})
        assert answer.status_code == 200, answer.text
        return str(answer.text)


@pytest.fixture
async def night(tmp_path: Path) -> AsyncIterator[Nights]:
    empty = [publication({}, number=900 + each, of=entity(each), created=BEGIN) for each in (1, 2)]
    async with (
        Sandbox(*empty) as sandbox,
        Client(sandbox.base_url, sandbox.token, cache=MemoryCache(), max_age=3600) as client,
    ):
        yield Nights(sandbox, client, tmp_path / "night")


def cells(html: str) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the text and the mark of the changed cells, by series and period."""
    heads = re.findall(r'<th scope="col"[^>]*>(\w[^<]*)</th>', html)[1:]
    found = {}
    for names, rest in re.findall(r'<tr [^>]*><th scope="row" data-row="(\[.*?\])">(.*?)</tr>', html, re.S):
        label = json.loads(unescape(names))[1]
        for period, (kind, cell) in zip(heads, re.findall(r"<td([^>]*)>(.*?)</td>", rest), strict=True):
            text = re.search(r"<bdi>(.*?)</bdi>", cell)
            mark = re.search(r'<small class="was">(.*?)</small>', cell)
            assert ("changed" in kind) == (mark is not None)
            if mark:
                found[label.split()[0], period] = (text[1] if text else "", mark[1])
    return found


async def test_values_of_the_last_publication_are_marked_with_what_they_were(night: Nights) -> None:
    """In words, next to the value; what vanished is listed, also of a series that is not listed any more."""
    night.publish(ONE)
    await night.run()
    night.publish(TWO)
    await night.run()
    html = unescape(await night.answer())
    assert cells(html) == {
        ("Revenue", "FY2020"): ("1,250.5 filed", "was 1,000 filed"),
        ("Revenue", "FY2022"): ("·", "was 3 filed"),
        ("Revenue", "FY2023"): ("4 filed", "new"),
        ("Revenue", "FY2024"): ("5 filed", "new"),
        ("Cost", "FY2020"): ("7 refiled", "relabelled"),
    }
    assert "6 changes here with the publication of 2025-01-03: 2 new, 1 restated, 1 relabelled, 2 van" in html
    listed = re.findall(r"<li><bdi>(.*?)</bdi></li>", html.partition("Vanished with")[2])
    assert listed == [
        "Company 0001: Revenue as S-1 (all), FY2022: was 3 filed",
        "Company 0001: Gone as S-3 (all), FY2020: was 5 filed",
    ]


async def test_only_the_last_publication_counts_and_a_first_one_marks_nothing(night: Nights) -> None:
    """A night without a change, or a change of another company, leaves the marks as they are."""
    night.publish(ONE)
    night.publish(ONE, of=entity(2))
    await night.run(entity(1), entity(2))
    html = await night.answer()
    assert "the change feed begins with this publication" in html
    assert cells(html) == {}
    night.publish(TWO)
    await night.run(entity(1), entity(2))
    await night.run(entity(1), entity(2))
    night.publish(TWO, of=entity(2))
    await night.run(entity(1), entity(2))
    html = await night.answer(**{"with": entity(2)})
    assert html.count("changes here with the publication of") == 2
    assert cells(html)["Revenue", "FY2023"] == ("4 filed", "new")


async def test_changes_of_series_and_periods_elsewhere_are_counted(night: Nights) -> None:
    """The page shows a part of what the extraction has, and the other way round."""
    night.publish(ONE)
    await night.run()
    night.publish(TWO)
    await night.run()
    html = await night.answer(series=ROWS[0], rule="range", start="2023", end="2023")
    assert set(cells(html)) == {("Revenue", "FY2023")}
    assert "2 changes here" in html  # the other one has vanished
    assert "1 new, 1 vanished, and 4 other changes." in html
    assert "Revenue as S-1 (all), FY2022: was 3" in html
    # The feed has the values as first reported.
    assert cells(await night.answer(value_version="latest_restated")) == {}


async def test_what_the_feed_does_not_know_is_said(night: Nights) -> None:
    """A company that is not extracted or has left; a publication that no run has read yet; other series."""
    night.publish(ONE)
    night.publish(ONE, of=entity(2))
    await night.run(entity(1), select=Select(metric_ids="Revenue"))
    night.publish({**TWO, COST: {"FY2020": Cell(9)}})
    assert "ends with another publication" in await night.answer(max_age="0", **{"with": entity(2)})
    assert "Company 0002 is not in the change feed" in await night.answer(**{"with": entity(2)})
    await night.run(entity(1), select=Select(metric_ids="Revenue"))
    html = await night.answer(series=ROWS[1])
    assert cells(html) == {}
    assert "the change feed has no change of these values" in html
    assert "and 4 other changes" in html
    night.publish(ONE, of=entity(2))
    await night.run(entity(2), select=Select(metric_ids="Revenue"), prune=True)
    html = await night.answer()
    assert "Company 0001 is not in the change feed" in html
    assert cells(html) == {}


async def test_a_broken_or_missing_feed_is_said_and_breaks_nothing(
    night: Nights, caplog: pytest.LogCaptureFixture
) -> None:
    """The values are there; the path and the reason are for the log."""
    night.publish(ONE)
    missing = await night.answer()
    await night.run()
    night.publish(TWO)
    await night.run()
    first, second = sorted((night.to.parent / "_night.changes").glob("*.parquet"))
    second.write_bytes(second.read_bytes()[:-100])
    damaged = await night.answer()
    content = second.read_bytes()
    second.unlink()  # no other run names the last one
    lost = await night.answer()
    second.write_bytes(content)
    first.unlink()
    torn = await night.answer()
    for html in (missing, damaged, lost, torn):
        assert "the change feed can&#39;t be read" in html
        assert "_night.changes" not in html
    assert "1,250.5" in damaged
    assert "_night.changes" in caplog.text


@pytest.mark.parametrize(("name", "value"), [("change", "moved"), ("end_month", 13), ("year", None)])
async def test_rows_that_the_explorer_cannot_interpret_break_nothing(
    night: Nights, name: str, value: Any
) -> None:
    """As a later version, or another program, may write them."""
    night.publish(ONE)
    await night.run()
    night.publish(TWO)
    await night.run()
    last = max((night.to.parent / "_night.changes").glob("*.parquet"))
    table = parquet.read_table(last)
    kind, at = table.schema.field(name).type, table.schema.get_field_index(name)
    parquet.write_table(table.set_column(at, name, pa.array([value] * len(table), kind)), last)
    html = await night.answer()
    assert "the change feed can&#39;t be read" in html
    assert "1,250.5" in html


async def test_a_url_of_cached_values_shows_the_marks_without_a_request(night: Nights) -> None:
    """The feed is on a disk or in a store, and costs nothing of the allowance."""
    night.publish(ONE)
    await night.run()
    night.publish(TWO)
    await night.run()
    await night.answer()
    sent = len(night.sandbox.log)
    page = Page(explorer(night.client, [entity(1)], history=night.to), night.client, (entity(1),))
    series = "&".join(f"series={row}" for row in ROWS)
    html = (await page.http.get(f"/company/{entity(1)}?{series}&rule=all")).text
    assert cells(html)["Revenue", "FY2020"] == ("1,250.5 filed", "was 1,000 filed")
    assert len(night.sandbox.log) == sent


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
async def test_a_feed_that_hangs_neither_stops_the_loop_nor_the_page(
    night: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read in a thread, and given up after a while."""
    monkeypatch.setattr("asyncfin.web.history._SECONDS", 0.1)
    night.publish(ONE)
    await night.run()
    (first,) = (night.to.parent / "_night.changes").glob("*.parquet")
    content = first.read_bytes()
    first.unlink()
    os.mkfifo(first)  # opening it waits for a writer
    async with writing_later(first, content):
        html = await night.answer()
    assert "the change feed can&#39;t be read" in html
    assert "1,000 filed" in html


@asynccontextmanager
async def writing_later(path: Path, content: bytes) -> AsyncIterator[None]:
    """Let the threads that wait for a pipe end."""

    def write() -> None:
        with suppress(BrokenPipeError):  # a reader that finds no Parquet file in a pipe closes it
            path.write_bytes(content)

    yield
    threading.Thread(target=write, daemon=True).start()


def test_a_place_that_is_none_is_refused_at_once(night: Nights) -> None:
    """When the page is made, not at the first visit."""
    with pytest.raises(ArgumentError):
        explorer(night.client, [], history="ftp://host/night")


async def test_the_command_needs_what_reads_the_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, before anything is served."""
    from asyncfin.cli import explore, options

    def missing(name: str, extra: str, what: str) -> None:
        if name == "pyarrow.parquet":
            raise UsageError(f"{what} needs more")

    monkeypatch.setattr(options, "require", missing)
    with pytest.raises(UsageError, match="the change feed needs more"):
        await explore.explore(history="night")
