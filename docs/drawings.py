"""The drawings of the site, made by the library itself from the sandbox's demo companies."""

import asyncio
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from asyncfin import Annual, Client, FiscalRange, Panel, Plan, Select, Trailing
from asyncfin.sandbox import Sandbox
from asyncfin.wire.pace import GCRA

# The same file for the same drawing, whenever it is made.
matplotlib.rcParams["svg.hashsalt"] = "asyncfin"


def draw_all(folder: Path) -> None:
    """Draw everything into a folder."""
    folder.mkdir(exist_ok=True)
    asyncio.run(_draw(folder))


async def _draw(folder: Path) -> None:
    async with Sandbox.demo() as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        panels = [
            await client.query(
                entity, Select(metric_ids="Revenue", basis="consolidated", cadence="annual"), Annual()
            )
            for entity in sandbox.entities
        ]
        _, axes = plt.subplots(figsize=(8, 4))
        for panel in panels:
            panel.plot(axes)
        _save(axes.figure, folder / "companies.svg")
        catalogue = await client.catalogue(sandbox.entities[0])
        _planning(await client.plan(catalogue, Select(), FiscalRange()), folder / "planning.svg")
        revenue = Select(metric_ids=["Revenue", "NetIncome"], cadence="quarterly", basis="consolidated")
        _exactness(await client.query(sandbox.entities[0], revenue, FiscalRange()), folder / "exactness.svg")
    _pacing(folder / "pacing.svg")


def _planning(plan: Plan, path: Path) -> None:
    """Draw the table of metrics and scope paths, each cell in the colour of the batch that brings it."""
    metrics = {name: at for at, name in enumerate(dict.fromkeys(series.metric_id for series in plan.series))}
    paths = {name: at for at, name in enumerate(dict.fromkeys(series.scopes for series in plan.series))}
    batch_of = {series_id: at for at, batch in enumerate(plan.batches) for series_id in batch.home}
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
        xlabel="scope path", ylabel="metric", title=f"{len(plan.series)} series in {plan.requests} requests"
    )
    axes.invert_yaxis()
    axes.legend(loc="lower right")
    _save(figure, path)


def _exactness(panel: Panel, path: Path) -> None:
    """Draw which periods a window of twelve months holds: by where they end, whatever their length."""
    periods = panel.periods[-12:]
    anchor = periods[-1]
    window = Trailing(12)
    figure, axes = plt.subplots(figsize=(8, 4))
    for at, period in enumerate(periods):
        inside = window.reaches(period, anchor)
        axes.barh(
            at,
            period.duration_months,
            left=period.fiscal_end - period.duration_months,
            color="#1f5f99" if inside else "#bbbbbb",
        )
    axes.axvspan(anchor.fiscal_end - 12, anchor.fiscal_end, alpha=0.12, color="#e69f00")
    axes.set_yticks(range(len(periods)), [period.label for period in periods])
    axes.set_xticks([])
    axes.set_title(f"Trailing(12), anchored at {anchor.label}: what ends in the window is in it")
    _save(figure, path)


def _pacing(path: Path) -> None:
    """Draw when 40 requests are granted that all come at once, with a pause in between."""
    bucket = GCRA(5.0, 5)
    now, grants = 0.0, []
    for request in range(40):
        if request == 20:
            bucket.pause(now, now + 3)
        now = max(now, bucket.moment(1))
        bucket.spend(1, now)
        grants.append(now)
    figure, axes = plt.subplots(figsize=(8, 4))
    axes.step(grants, range(1, 41), where="post", label="granted")
    axes.plot([0, grants[-1]], [5, 5 + 5 * grants[-1]], "--", color="#888888", label="burst + rate x time")
    axes.set(
        xlabel="seconds",
        ylabel="requests",
        title="5 requests a second, burst 5, a Retry-After of 3 s after 20",
    )
    axes.legend()
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
