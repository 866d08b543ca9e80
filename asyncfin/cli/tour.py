"""What `asyncfin sandbox --demo` reads from the sandbox and prints."""

import os
import shutil
from collections.abc import Sequence
from itertools import combinations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from asyncfin import Panel
from asyncfin.cli.output import screen, spark
from asyncfin.cli.session import progress
from asyncfin.client import Client
from asyncfin.events import Stats
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.period import Period
from asyncfin.model.select import Select
from asyncfin.model.selection import Annual
from asyncfin.model.series import Series
from asyncfin.plan.plan import Plan
from asyncfin.sandbox import Sandbox
from asyncfin.text import GAP
from asyncfin.words import counted

# In files and pipes; the usual width of a terminal.
_WIDTH = 80
_NAME_WIDTH = 26
_YEARS = 10
_SHOWN_YEARS = 5
_METRICS = (
    "Revenue",
    "GrossProfit",
    "ResearchAndDevelopment",
    "OperatingIncome",
    "NetIncome",
    "OperatingCashFlow",
)
_SELECT = Select(
    metric_ids=_METRICS, basis=("consolidated", "product"), cadence=("annual",)
)


async def show() -> None:
    """Read real figures of two companies or more, and print them, their cost, and what
    can be run next.
    """
    # Over HTTP and not from the files: the demo is to show what a user's own program
    # does.
    with progress("Reading from the sandbox") as shown:
        async with Sandbox.demo() as sandbox:
            address = sandbox.base_url
            async with Client(address, sandbox.token, observers=[shown]) as client:
                catalogues = [
                    await client.catalogue(entity_id) for entity_id in sandbox.entities
                ]
                plan = await client.plan(catalogues[0], _SELECT, Annual(last=_YEARS))
                panel = await client.run(plan)
    console = screen(_WIDTH)
    print_entities(catalogues, address, console)
    print_figures(panel, console)
    print_cost(client.stats(), plan, console)
    print_next(console)


def print_entities(
    catalogues: Sequence[Catalogue], address: str, console: Console
) -> None:
    console.print(
        f"Read over HTTP from a sandbox of the service, at {address}\n", style="bold"
    )
    table = _table("entity", "name", right=("series", "scopes", "periods", "latest"))
    for each in catalogues:
        counts = (len(each), len(each.by_path), len(each.periods))
        table.add_row(
            each.entity_id, each.name, *map(str, counts), each.periods[-1].label
        )
    console.print(table)


def print_figures(panel: Panel, console: Console) -> None:
    title = (
        f"{panel.dataset.name}, fiscal years, in billions of US dollars, as first "
        "reported;"
        f" sparklines from {panel.periods[0]}"
    )
    console.print(f"\n{title}\n", style="bold")
    shown = [period.label for period in panel.periods[-_SHOWN_YEARS:]]
    table = _table("", right=shown)
    names = table.columns[0]
    names.max_width, names.no_wrap, names.overflow = _NAME_WIDTH, True, "ellipsis"
    table.add_column("sparkline", style="cyan", no_wrap=True)
    for series in panel:
        if series.basis == "consolidated":
            _add_row(table, series.label, series)
    table.add_row()
    table.add_row(Text("Revenue by product", "italic"))
    products = [
        each
        for each in panel
        if each.basis == "product" and each.metric_id == "Revenue"
    ]
    for series in products:
        if not _is_sum(series, [each for each in products if each is not series]):
            _add_row(
                table, f"  {panel.catalogue.scope_names(series.scopes)[-1]}", series
            )
    console.print(table)


def _is_sum(series: Series, others: Sequence[Series]) -> bool:
    """Return whether a series is the sum of some of the others, in each period in which
    all have values.
    """
    total = _numbers(series)
    for count in range(2, len(others) + 1):
        for parts in combinations(map(_numbers, others), count):
            common = total.keys() & set.intersection(*({*part} for part in parts))
            if len(common) > 1 and all(
                total[at] == sum(part[at] for part in parts) for at in common
            ):
                return True
    return False


def _numbers(series: Series) -> dict[Period, float]:
    return {period: value.number for period, value in series.observations()}


def _add_row(table: Table, name: str, series: Series) -> None:
    # The bars show all the years that were read, and the columns the latest of them.
    numbers = [None if value is None else value.number for value in series.values]
    cells = (
        GAP if number is None else f"{number / 1e9:,.1f}"
        for number in numbers[-_SHOWN_YEARS:]
    )
    table.add_row(name, *cells, spark(numbers))


def _table(*left: str, right: Sequence[str] = ()) -> Table:
    """Return an empty table with a rule under its head; `left` and `right` name the
    columns.
    """
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="bold",
    )
    for name in left:
        table.add_column(Text(name), overflow="fold")
    for name in right:
        table.add_column(Text(name), justify="right", no_wrap=True)
    return table


def print_cost(stats: Stats, plan: Plan, console: Console) -> None:
    spent = ", ".join(
        f"{counts.requests} {operation}"
        for operation, counts in stats.by_operation.items()
    )
    console.print(
        f"\nAll of it came over HTTP, in {counted(stats.requests, 'request')}: "
        f"{spent}.\n"
        f"The question means {counted(len(plan.series), 'series', 'series')} and was "
        "planned into"
        f" {counted(plan.requests, 'request')}."
    )


def print_next(console: Console) -> None:
    """Print what can be run after the demo."""
    console.print("\nNext", style="bold")
    # nox puts its environment on the path, which the user's shell does not have.
    if shutil.which("asyncfin") is None or "NOX_CURRENT_SESSION" in os.environ:
        console.print(
            '  python -m pip install -e ".[all]"   install the command `asyncfin`, '
            "then:"
        )
    console.print(
        "  asyncfin sandbox        keep such a service running for your own programs\n"
        "  asyncfin query --help   query it, or the real service, for any series"
    )
