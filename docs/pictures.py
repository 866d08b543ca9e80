"""Draw the README's table and plot: `python docs/pictures.py` writes them into
docs/_static.
"""

import asyncio
import shutil
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot
from playwright.async_api import async_playwright

from asyncfin import Annual, Client, Panel, Select
from asyncfin.sandbox import Sandbox

FOLDER = Path(__file__).parent / "_static"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ font: 14px/1.4 sans-serif; margin: 0; padding: 16px;
  width: max-content; background: #fff }}
td {{ text-align: right; padding: 2px 8px }} /* as notebooks do */
</style>{}"""


async def revenue() -> Panel:
    """Return Apple's yearly revenue by segment."""
    async with (
        Sandbox.demo() as service,
        Client(service.base_url, service.token) as client,
    ):
        question = Select(metric_ids="Revenue", basis="segment", cadence="annual")
        return await client.query(service.entities[0], question, Annual(last=8))


async def photograph(markup: str, file: Path) -> None:
    """Write a picture of some HTML."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        page = await browser.new_page(device_scale_factor=2)
        await page.set_content(PAGE.format(markup))
        await page.locator("body").screenshot(path=file)
        await browser.close()


def main() -> None:
    """Draw both."""
    panel = asyncio.run(revenue())
    asyncio.run(
        photograph(panel.during(Annual(last=4))._repr_html_(), FOLDER / "table.png")
    )
    mpl.use("Agg")
    figure, axes = pyplot.subplots(figsize=(6.4, 4), layout="constrained")
    panel.plot(axes)
    figure.savefig(FOLDER / "plot.png", dpi=160)


if __name__ == "__main__":
    main()
