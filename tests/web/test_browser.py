"""The explorer in a real Chromium: choose, look, compare, on a large screen and a small one."""

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from asyncfin import Annual, Client, Select
from asyncfin.sandbox import Sandbox
from asyncfin.web import explorer

playwright_api = pytest.importorskip("playwright.async_api")
uvicorn = pytest.importorskip("uvicorn")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
    pytest.mark.skipif(sys.platform == "win32", reason="uses the Chromium of a Unix system"),
]

QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture
async def explored() -> AsyncIterator[tuple[str, Client, tuple[str, ...]]]:
    """Serve the explorer of the demo companies on a free port of this machine."""
    async with Sandbox.demo() as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        config = uvicorn.Config(
            explorer(client, sandbox.entities), host="127.0.0.1", port=0, log_level="warning"
        )
        server = uvicorn.Server(config)
        serving = asyncio.ensure_future(server.serve())
        while not server.started:  # noqa: ASYNC110  uvicorn has no event for it
            await asyncio.sleep(0)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", client, sandbox.entities
        server.should_exit = True
        await serving


@pytest.fixture
async def tab(explored: Any) -> AsyncIterator[Any]:
    """Give a tab of a browser, which must ask no other host and report no error of the page."""
    base_url, *_ = explored
    faults: list[str] = []
    async with playwright_api.async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        page = await browser.new_page(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
        page.on("pageerror", lambda error: faults.append(str(error)))

        def note(message: Any) -> None:
            # A refused question is an error to the browser too, but none of the page's.
            if message.type == "error" and "status of 400" not in message.text:
                faults.append(message.text)

        def check_host(sent: Any) -> None:
            if not sent.url.startswith(base_url):
                faults.append(f"asked {sent.url}")

        page.on("console", note)
        page.on("request", check_host)
        yield page
        await browser.close()
    assert faults == []


async def choose(tab: Any, base_url: str, entity_id: str, words: str, count: int) -> list[str]:
    """Open a company, search, tick the first series found, and return their ids."""
    await tab.goto(f"{base_url}/")
    await tab.click(f'a[href$="{entity_id}"]')
    await tab.wait_for_selector(".tree")
    async with tab.expect_response("**/series"):
        await tab.fill("#search", words)
    await tab.wait_for_selector("#series .note:has-text('match')")
    boxes = tab.locator(".tree input[type=checkbox]")
    ids = [await boxes.nth(at).get_attribute("value") for at in range(count)]
    for at in range(count):
        await boxes.nth(at).check()
    await tab.wait_for_selector("#cost strong")
    return ids


async def test_four_series_are_found_chosen_and_shown_as_the_panel_has_them(explored: Any, tab: Any) -> None:
    """Company, search, four series, the table, and the lines of the chart by their colours."""
    base_url, client, entities = explored
    ids = await choose(tab, base_url, entities[0], "annual company", 4)
    await tab.click("#ask")
    await tab.wait_for_selector(".chart canvas")
    rows = await tab.eval_on_selector_all(
        ".scroll tbody tr",
        "rows => rows.map(row => [...row.querySelectorAll('td')].map(cell => cell.innerText))",
    )
    panel = await client.query(entities[0], Select(series_ids=ids), Annual(last=5))
    assert rows == [[value.text if value else "" for value in series.values] for series in panel]
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
    assert await tab.locator("nav").count() == 1, "the page stands in itself"


async def test_the_page_works_by_keyboard_alone(explored: Any, tab: Any) -> None:
    """Tab, blank and Enter reach every step, and the focus can be seen."""
    base_url, _, entities = explored
    await tab.goto(f"{base_url}/company/{entities[0]}")
    await tab.wait_for_selector(".tree")
    await tab.focus("#search")
    async with tab.expect_response("**/series"):
        await tab.keyboard.type("revenue annual company")
    await tab.wait_for_selector("#series .note:has-text('match')")
    for _ in range(20):
        await tab.keyboard.press("Tab")
        if await tab.evaluate("document.activeElement.type === 'checkbox'"):
            break
    assert await tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    await tab.keyboard.press("Space")
    await tab.wait_for_selector("#cost strong")
    for _ in range(60):
        await tab.keyboard.press("Tab")
        if await tab.evaluate("document.activeElement.id === 'ask'"):
            break
    await tab.keyboard.press("Enter")
    await tab.wait_for_selector(".scroll tbody td")


async def test_a_small_screen_scrolls_tables_and_code_but_never_the_page(explored: Any, tab: Any) -> None:
    """At 360 pixels nothing stands outside of the page, and the chart fits."""
    base_url, _, entities = explored
    await tab.set_viewport_size({"width": 360, "height": 740})
    await choose(tab, base_url, entities[0], "annual", 3)
    await tab.click("#ask")
    await tab.wait_for_selector(".chart canvas")
    assert await tab.evaluate("document.documentElement.scrollWidth") <= 360
    assert await tab.evaluate("document.querySelector('.chart canvas').getBoundingClientRect().right") <= 360


async def test_a_wrong_question_is_said_on_the_page(explored: Any, tab: Any) -> None:
    """The sentence takes the place of the answer, and the next answer takes its place."""
    base_url, _, entities = explored
    await choose(tab, base_url, entities[0], "revenue annual", 1)
    await tab.fill("[name=last]", "0")
    await tab.click("#ask")
    await tab.wait_for_selector("#answer [role=alert]")
    await tab.fill("[name=last]", "3")
    await tab.click("#ask")
    await tab.wait_for_selector(".scroll tbody td")
    assert await tab.locator("#answer [role=alert]").count() == 0
