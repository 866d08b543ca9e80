"""The explorer in a real Chromium: choose, look, compare, on a large screen and a small one."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio

from asyncfin import Annual, Client, MemoryCache, Quarterly, Select
from asyncfin.events import QuestionFinished
from asyncfin.sandbox import Hang, Sandbox
from asyncfin.web import explorer
from tests.demo import demo_id

uvicorn = pytest.importorskip("uvicorn")
pytestmark = pytest.mark.asyncio(loop_scope="session")
fixture = pytest_asyncio.fixture(loop_scope="session")


@fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox.demo() as made:
        yield made


@asynccontextmanager
async def serving(client: Client, sandbox: Sandbox) -> AsyncIterator[str]:
    """Serve the explorer of the demo companies on a free port of this machine; yield its address."""
    config = uvicorn.Config(explorer(client, sandbox.entities), host="127.0.0.1", port=0, log_level="warning")
    server = uvicorn.Server(config)
    served = asyncio.ensure_future(server.serve())
    while not server.started:  # noqa: ASYNC110  uvicorn has no event for it
        await asyncio.sleep(0)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    await served


@fixture
async def explored(sandbox: Sandbox) -> AsyncIterator[tuple[str, Client, tuple[str, ...]]]:
    """Give the address of an explorer whose client has a cache."""
    async with (
        Client(sandbox.base_url, sandbox.token, cache=MemoryCache(), max_age=3600) as client,
        serving(client, sandbox) as base_url,
    ):
        yield base_url, client, sandbox.entities


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def window(chromium: Any) -> AsyncIterator[Any]:
    """Give a window for the tabs of all tests; what a page keeps is that of its port."""
    made = await chromium.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    await made.new_page()
    yield made
    await made.close()


@fixture
async def tab(explored: Any, window: Any) -> AsyncIterator[Any]:
    """Give a tab of a browser, which must ask no other host and report no error of the page."""
    base_url, *_ = explored
    faults: list[str] = []
    page = await window.new_page()
    page.on("pageerror", lambda error: faults.append(str(error)))

    def note(message: Any) -> None:
        # A refused question and a lost response are errors to the browser too, but none of the page's.
        if message.type == "error" and not re.search(
            "status of 400|net::ERR_FAILED|Failed to fetch", message.text
        ):
            faults.append(message.text)

    def check_host(sent: Any) -> None:
        if not sent.url.startswith(base_url):
            faults.append(f"asked {sent.url}")

    page.on("console", note)
    page.on("request", check_host)
    yield page
    await page.close()
    assert faults == []


async def choose(tab: Any, base_url: str, entity_id: str, words: str, count: int) -> list[str]:
    """Open a company, search, tick the first series found, and return the texts of their rows."""
    await tab.goto(f"{base_url}/")
    await tab.click(f'a[href$="{entity_id}"]')
    await tab.wait_for_selector(".tree")
    async with tab.expect_response("**/series"):
        await tab.fill("#search", words)
    await tab.wait_for_selector("#series .note:has-text('match')")
    boxes = tab.locator(".tree input[type=checkbox]")
    texts = [await boxes.nth(at).get_attribute("value") for at in range(count)]
    for at in range(count):
        await boxes.nth(at).check()
    await tab.wait_for_selector("#cost strong")
    return texts


def selected(texts: list[str]) -> Select:
    """Return the Select of series given as metric/group/path."""
    return Select.from_json(json.dumps({"series": [text.split("/") for text in texts]}))


async def test_four_series_are_shown(explored: Any, tab: Any) -> None:
    """Company, search, four series, the table, and the lines of the chart by their colours."""
    base_url, client, entities = explored
    texts = await choose(tab, base_url, entities[0], "annual company", 4)
    await tab.click("#ask")
    await tab.wait_for_selector(".chart canvas")
    panel = await client.query(entities[0], selected(texts), Annual(last=5))
    assert await cells(tab) == [[value.text if value else "·" for value in series.values] for series in panel]
    colours = await tab.evaluate(
        """() => {
            const canvas = document.querySelector(".chart canvas");
            const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            const counts = {};
            for (let at = 0; at < pixels.length; at += 4) {
                const colour = [pixels[at], pixels[at + 1], pixels[at + 2]].join();
                if (pixels[at + 3] === 255) counts[colour] = (counts[colour] || 0) + 1;
            }
            return counts;
        }"""
    )
    for line in ("0,114,178", "213,94,0", "0,158,115", "204,121,167"):
        assert colours.get(line, 0) > 100, f"no line of {line}"
    assert await tab.locator("nav").count() == 1, "the page is nested in itself"


async def test_long_read_can_be_cancelled(sandbox: Sandbox, explored: Any, tab: Any) -> None:
    """The button asks once, the page says that it reads, and cancelling ends the request to the service."""
    base_url, client, entities = explored
    await choose(tab, base_url, entities[0], "revenue annual", 1)
    sandbox.inject(Hang(operation="query", nth=1))
    before, ended = client.stats().requests, asyncio.Event()
    await tab.focus("#ask")
    await tab.keyboard.press("Enter")
    await tab.wait_for_selector("#cancel")
    await tab.keyboard.press("Enter")
    assert await tab.inner_text("#busy") == "Reading ..."
    assert await tab.evaluate("document.activeElement.id") == "ask"
    await tab.wait_for_selector("#waited:has-text('s')")
    await tab.keyboard.press("Tab")
    with client.observed(lambda event: isinstance(event, QuestionFinished) and event.failure and ended.set()):
        await tab.keyboard.press("Enter")
        await tab.wait_for_selector("#busy:has-text('Cancelled.')")
        async with asyncio.timeout(60):
            await ended.wait()
    assert await tab.evaluate("document.activeElement.id") == "ask"
    assert not await tab.is_visible("#cancel")
    assert client.stats().requests == before + 1
    await tab.keyboard.press("Enter")
    await tab.wait_for_selector(".scroll tbody td")
    assert await tab.inner_text("#busy") == ""


async def test_small_screen_cuts_no_number(explored: Any, tab: Any) -> None:
    """At 360 pixels nothing is wider than the page, the chart fits, and each number is beside its period."""
    base_url, _, entities = explored
    await tab.set_viewport_size({"width": 360, "height": 740})
    await choose(tab, base_url, entities[0], "annual", 3)
    await tab.click("#ask")
    await tab.wait_for_selector(".chart canvas")
    assert await tab.evaluate("document.documentElement.scrollWidth") <= 360
    assert await tab.evaluate("document.querySelector('.chart canvas').getBoundingClientRect().right") <= 360
    assert await tab.evaluate("document.querySelector('.heading bdi').getBoundingClientRect().left") >= 0
    cells = await tab.evaluate(
        """() => [...document.querySelectorAll(".scroll td bdi")].map((text) => {
            const { left, right, top, bottom } = text.getBoundingClientRect();
            const seen = document.elementFromPoint(left + 1, (top + bottom) / 2);
            return [left, right, top > innerHeight || seen === null || text.contains(seen)];
        })"""
    )
    assert cells
    assert all(left > 0 and right < 360 and seen for left, right, seen in cells)
    before = await tab.evaluate("getComputedStyle(document.querySelector('.scroll td'), '::before').content")
    assert before.startswith('"FY')


REVENUE = "Revenue/annual.consolidated/company=consolidated"


async def compared(tab: Any, base_url: str, entities: tuple[str, ...], extra: str = "") -> str:
    """Show the revenue of three companies from a URL, and return the URL."""
    series = quote(REVENUE, safe="")
    companies = "&".join(f"with={each}" for each in entities[1:])
    url = f"{base_url}/company/{entities[0]}?{companies}&series={series}&rule=annual&last=4{extra}"
    await tab.goto(url)
    await tab.click("#ask")
    await tab.wait_for_selector(".scroll tbody td")
    return url


async def holds(tab: Any, condition: str) -> None:
    """Wait until a condition in JavaScript holds.

    Playwright's own wait evaluates it within the page, which the page's Content-Security-Policy forbids.
    """
    while not await tab.evaluate(condition):  # noqa: ASYNC110  the page has no event for it
        await asyncio.sleep(0.01)


async def cells(tab: Any) -> list[list[str]]:
    return await tab.eval_on_selector_all(
        ".scroll tr[data-series]",
        "rows => rows.map(row => [...row.querySelectorAll('td')].map(cell => cell.innerText))",
    )


async def test_companies_are_compared(explored: Any, tab: Any) -> None:
    """Each value is that of the company; a reload shows the same without a request."""
    base_url, client, entities = explored
    await compared(tab, base_url, entities, "&unit=billions")
    assert await tab.input_value("[name=unit]") == "billions"
    assert await tab.inner_text("h1") == "Apple, NVIDIA, Alphabet"
    await viewed(tab, unit="")
    table = await cells(tab)
    catalogues = [await client.catalogue(each) for each in entities]
    periods = Annual(last=4).resolve(catalogues)
    for row, catalogue in zip(table, catalogues, strict=True):
        select = Select(metric_ids="Revenue", basis="consolidated", cadence="annual")
        panel = await client.query(catalogue, select, periods)
        assert row == [value.text if value else "·" for value in panel.one().values]
    sent = client.stats().requests
    await tab.reload()
    await tab.wait_for_selector(".chart canvas")
    assert await cells(tab) == table
    assert await tab.locator("[name=with]:checked").count() == 2
    assert client.stats().requests == sent


async def viewed(tab: Any, **fields: str) -> None:
    """Choose a view, and wait for the page to show it."""
    for name, value in fields.items():
        async with tab.expect_response("**/view") as response:
            await tab.select_option(f"[name={name}]", value)
        await (await response.value).finished()
        await tab.wait_for_selector(".chart canvas")


async def test_reading_under_the_cursor(explored: Any, tab: Any) -> None:
    """Text and label are those of the value; where the cursor leaves, the latest ones."""
    base_url, client, entities = explored
    series = REVENUE.replace("annual", "quarterly")
    await tab.goto(f"{base_url}/company/{entities[0]}?series={series}&rule=quarterly&last=4")
    await tab.click("#ask")
    await tab.wait_for_selector(".chart canvas")
    panel = await client.query(
        entities[0], Select(series_ids=demo_id("Revenue/quarterly")), Quarterly(last=4)
    )
    readings = [
        f"{period.label}: {value.text if value else '·'}"
        for period, value in zip(panel.periods, panel.one().values, strict=True)
    ]
    box = await tab.locator(".u-over").bounding_box()
    for at, reading in enumerate(readings):
        await tab.mouse.move(box["x"] + 1 + (box["width"] - 2) * at / 3, box["y"] + 20)
        assert await tab.inner_text(".legend .value") == reading
    await tab.mouse.move(box["x"] - 60, box["y"] - 60)
    assert await tab.inner_text(".legend .value") == readings[-1]


async def test_cell_opens_to_its_sources(explored: Any, tab: Any) -> None:
    """By click or Enter; Escape closes it, and the focus returns; an empty cell says why it is empty."""
    base_url, client, entities = explored
    await compared(tab, base_url, entities)
    sent = client.stats().requests
    await tab.focus(".scroll td")
    await tab.keyboard.press("ArrowRight")
    await tab.keyboard.press("ArrowDown")
    await tab.keyboard.press("Enter")
    await tab.wait_for_selector("dialog[open] dl")
    said = await tab.inner_text("dialog")
    select = Select(metric_ids="Revenue", basis="consolidated", cadence="annual")
    catalogues = [await client.catalogue(each) for each in entities]
    period = Annual(last=4).resolve(catalogues).periods[1]
    value = (await client.query(catalogues[1], select, Annual())).one()[period]
    for part in (
        value.text,
        f"{value.number:.0f}",
        value.number_format,
        value.fill_type,
        value.sources[0].item_id,
    ):
        assert part in said
    assert f"{period.label}: 12 months to fiscal month 12 of {period.year}" in said
    await tab.keyboard.press("Escape")
    assert await tab.evaluate("document.activeElement.cellIndex + document.activeElement.tagName") == "2TD"
    assert await tab.locator('.scroll td[tabindex="0"]').count() == 1
    await tab.click(".scroll td.gap")
    await tab.wait_for_selector("dialog[open] dt:has-text('No value')")
    assert client.stats().requests == sent


async def test_chart_follows_the_dark_mode(explored: Any, tab: Any) -> None:
    """Neither page nor chart stays white."""
    base_url, _, entities = explored
    await compared(tab, base_url, entities)
    await tab.emulate_media(color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    assert await tab.evaluate(background) == "rgb(20, 24, 29)"
    transparent = "getComputedStyle(document.querySelector('.chart')).backgroundColor"
    assert await tab.evaluate(transparent) == "rgba(0, 0, 0, 0)"
    swatch = "getComputedStyle(document.querySelector('.swatch')).backgroundColor"
    # The chart is drawn again by an event.
    await holds(tab, f"{swatch} === 'rgb(74, 168, 224)'")
