"""The drawings of the site, made by the library itself from the sandbox's demo
companies.
"""

import asyncio
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from asyncfin import Annual, Client, FiscalRange, Panel, Plan, Select, Trailing
from asyncfin.pacing.pace import GCRA
from asyncfin.sandbox import Sandbox

# The same file for the same drawing, whenever it is made.
matplotlib.rcParams["svg.hashsalt"] = "asyncfin"


# For pages of either scheme: the style of matplotlib, and what it adds to the name of a
# file.
SCHEMES = {"default": "", "dark_background": "-dark"}


def draw_all(folder: Path) -> None:
    """Draw everything into a folder, for light pages and for dark ones."""
    folder.mkdir(exist_ok=True)
    for style, suffix in SCHEMES.items():
        with plt.style.context(style):
            asyncio.run(_draw(folder, suffix))


async def _draw(folder: Path, suffix: str) -> None:
    async with (
        Sandbox.demo() as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        panels = [
            await client.query(
                entity,
                Select(metric_ids="Revenue", basis="consolidated", cadence="annual"),
                Annual(),
            )
            for entity in sandbox.entities
        ]
        _, axes = plt.subplots(figsize=(8, 4))
        for panel in panels:
            panel.plot(axes)
        _save(axes.figure, folder / f"companies{suffix}.svg")
        catalogue = await client.catalogue(sandbox.entities[0])
        _planning(
            await client.plan(catalogue, Select(), FiscalRange()),
            folder / f"planning{suffix}.svg",
        )
        revenue = Select(
            metric_ids=["Revenue", "NetIncome"],
            cadence="quarterly",
            basis="consolidated",
        )
        panel = await client.query(sandbox.entities[0], revenue, FiscalRange())
        _exactness(panel, folder / f"exactness{suffix}.svg")
    _pacing(folder / f"pacing{suffix}.svg")


def _planning(plan: Plan, path: Path) -> None:
    """Draw the table of metrics and scope paths, each cell in the colour of the batch
    that brings it.
    """
    metrics = {
        name: at
        for at, name in enumerate(
            dict.fromkeys(series.metric_id for series in plan.series)
        )
    }
    paths = {
        name: at
        for at, name in enumerate(
            dict.fromkeys(series.scopes for series in plan.series)
        )
    }
    batch_of = {
        series_id: at
        for at, batch in enumerate(plan.batches)
        for series_id in batch.home
    }
    figure, axes = plt.subplots(figsize=(8, 5))
    for at in range(len(plan.batches)):
        cells = [series for series in plan.series if batch_of[series.series_id] == at]
        axes.scatter(
            [paths[series.scopes] for series in cells],
            [metrics[series.metric_id] for series in cells],
            s=14,
            marker="s",
            label=f"batch {at + 1}: {len(cells)} series",
        )
    axes.set(
        xlabel=f"{len(paths)} scope paths",
        ylabel=f"{len(metrics)} metrics",
        xticks=[],
        yticks=[],
        title=f"All {len(plan.series)} series of Apple in {plan.requests} requests",
    )
    axes.invert_yaxis()
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.08),
        ncols=len(plan.batches),
        frameon=False,
    )
    _save(figure, path)


def _exactness(panel: Panel, path: Path) -> None:
    """Draw which periods a window of twelve months holds: by where they end, whatever
    their length.
    """
    periods = panel.periods[-12:]
    anchor = periods[-1]
    window = Trailing(12)
    figure, axes = plt.subplots(figsize=(8, 4))
    for at, period in enumerate(periods):
        inside = window.contains(period, anchor)
        axes.barh(
            at,
            period.duration_months,
            left=period.fiscal_end - period.duration_months,
            color="#3f8fd2" if inside else "#999999",
        )
    axes.axvspan(anchor.fiscal_end - 12, anchor.fiscal_end, alpha=0.2, color="#e69f00")
    axes.set_yticks(range(len(periods)), [period.label for period in periods])
    axes.set_xticks([])
    axes.set_xlabel("fiscal months")
    axes.set_title(
        f"Trailing(12) anchored at {anchor.label}: the periods that end in the window"
    )
    _save(figure, path)


def _pacing(path: Path) -> None:
    """Draw when 40 requests are granted that all come at once, with a pause in
    between.
    """
    bucket = GCRA(5.0, 5)
    now, grants = 0.0, []
    for request in range(40):
        if request == 20:
            bucket.pause(now, now + 3)
        now = max(now, bucket.moment())
        bucket.spend(now)
        grants.append(now)
    figure, axes = plt.subplots(figsize=(8, 4))
    axes.step(grants, range(1, 41), where="post", label="granted")
    axes.plot(
        [0, grants[-1]],
        [5, 5 + 5 * grants[-1]],
        "--",
        color="#888888",
        label="burst + rate · seconds",
    )
    axes.set(
        xlabel="seconds",
        ylabel="requests",
        title="40 requests at rate 5 and burst 5; the 20th is refused with "
        "Retry-After: 3",
    )
    axes.legend()
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None}, transparent=True)
    plt.close(figure)
