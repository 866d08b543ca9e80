"""Take the pictures of the explorer. Without Chromium the site shows those of
`docs/_static`.

`python docs/screenshots.py docs/_static` renews those, which the repository shows.
"""

import asyncio
import shutil
import sys
from pathlib import Path

import uvicorn
from playwright.async_api import Page, async_playwright

from asyncfin import Client
from asyncfin.sandbox import Sandbox
from asyncfin.sandbox.demo import demo_datasets
from asyncfin.web import explorer

FOLDER = Path(*sys.argv[1:2] or [Path(__file__).parent / "_generated"])
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]


async def main() -> None:
    datasets = demo_datasets()
    names = {each.entity_id: each.name for each in datasets}
    async with (
        Sandbox(*datasets) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        config = uvicorn.Config(
            explorer(client, names), host="127.0.0.1", port=0, log_level="warning"
        )
        server = uvicorn.Server(config)
        serving = asyncio.ensure_future(server.serve())
        while not server.started:  # noqa: ASYNC110  uvicorn has no event for it
            await asyncio.sleep(0.01)
        base_url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=CHROMIUM, args=QUIET
            )
            await _take(
                await browser.new_page(viewport={"width": 1000, "height": 760}),
                base_url,
            )
            await browser.close()
        server.should_exit = True
        await serving


async def _take(page: Page, base_url: str) -> None:
    await page.goto(base_url)
    await page.click("nav a >> nth=0")
    await page.wait_for_selector(".tree")
    await page.fill("#search", "revenue annual")
    await page.wait_for_selector("#series .note:has-text('match')")
    await page.locator(".tree input[type=checkbox]").first.check()
    for at in (0, 1):
        await page.locator("#compared input").nth(at).check()
    await page.wait_for_selector("#cost strong")
    await page.screenshot(path=FOLDER / "explorer-question.png")
    await page.click("#ask")
    await page.wait_for_selector(".chart canvas")
    await _take_answer(page, "explorer-answer.png")
    await page.fill("[name=last]", "0")
    await page.locator("[name=last]").blur()
    await page.wait_for_selector("#cost [role=alert]")
    await page.click("#ask")
    await page.wait_for_selector("#answer [role=alert]")
    await _take_answer(page, "explorer-error.png")
    await page.fill("[name=last]", "5")
    await page.set_viewport_size({"width": 360, "height": 740})
    await page.click("#ask")
    await page.wait_for_selector(".chart canvas")
    await page.evaluate("document.querySelector('#answer').scrollIntoView()")
    await page.screenshot(path=FOLDER / "explorer-small.png")


async def _take_answer(page: Page, name: str) -> None:
    # With a margin: borders and focus would be cut off.
    box = await page.locator("#answer").evaluate(
        "answer => { const box = answer.getBoundingClientRect();"
        " return [box.x - 12, box.y + scrollY - 12, box.width + 24, box.height + 24]; }"
    )
    clip = dict(zip(("x", "y", "width", "height"), box, strict=True))
    await page.mouse.move(0, 0)
    await page.screenshot(path=FOLDER / name, full_page=True, clip=clip)


if __name__ == "__main__":
    if CHROMIUM is None:
        print("Chromium is not installed: the site shows the pictures of docs/_static")
    else:
        FOLDER.mkdir(exist_ok=True)
        asyncio.run(main())
