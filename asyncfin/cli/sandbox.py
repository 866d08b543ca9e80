"""`asyncfin sandbox`: the local service as a separate process, and a demo of it."""

import signal
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from asyncfin.cli.errors import UsageError
from asyncfin.sandbox import Dialect
from asyncfin.words import counted

_DIALECT = Group("What the service description leaves open", sort_key=1)
# In files and pipes; the usual width of a terminal.
_WIDTH = 80
_YEARS = 5
_METRICS = (
    "Revenue",
    "GrossProfit",
    "ResearchAndDevelopment",
    "OperatingIncome",
    "NetIncome",
    "OperatingCashFlow",
)
_NEXT = """
Next
  pip install ".[cli]"    install the command `asyncfin`, if it is not yet
  asyncfin sandbox        keep such a service running for your own programs
  asyncfin query --help   query it, or the real service, for any series"""


async def sandbox(
    *datasets: Path,
    demo: bool = False,
    host: Annotated[str, Parameter(show_default=True)] = "127.0.0.1",
    public_url: str | None = None,
    port: Annotated[
        int, Parameter(show_default=True, validator=Number(gte=0, lte=65535))
    ] = 8765,
    store: str = ":memory:",
    allowance: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    rate: Annotated[float | None, Parameter(validator=Number(gt=0))] = None,
    burst: Annotated[int, Parameter(validator=Number(gte=1))] = 1,
    dialect: Annotated[
        Dialect, Parameter(group=_DIALECT, negative_bool="no-")
    ] = Dialect(),
) -> None:
    """Run a local service, or show a demo of it.

    It serves the given dataset files, or the demo companies, until Ctrl-C. On
    standard output it prints one line to paste into another shell, where the other
    commands and your own programs then find the service. Each start issues a new
    token. With --demo it reads real figures from the service, prints them, and ends.

      asyncfin sandbox --demo
      asyncfin sandbox
      asyncfin sandbox company.json.gz --port 0 --allowance 100
      asyncfin sandbox --dialect.gzip
      asyncfin sandbox --host 0.0.0.0 --public-url http://sandbox:8765

    Args:
        datasets: Dataset files, JSON or gzipped JSON, of the format asyncfin-dataset/1.
        demo: Show real figures, read over HTTP from the service, and end.
        host: The address to listen on; 0.0.0.0 or :: for all addresses of this machine,
            with --public-url.
        public_url: The URL under which others reach it, such as http://sandbox:8765.
            [default: this machine]
        port: The port; 0 for a free one.
        store: A SQLite file for publications, tokens and counts. [default: in memory]
        allowance: Data requests per day. [default: no limit]
        rate: Data requests per second. [default: no limit]
        burst: How many data requests the rate permits at once.
    """
    if demo and datasets:
        raise UsageError("--demo shows the demo companies: leave dataset files out")
    if demo:
        await _show_demo()
        return
    if host in ("0.0.0.0", "::", "") and public_url is None:  # noqa: S104
        raise UsageError(
            f"--host {host} listens at all addresses: give the URL under which others "
            "reach it as --public-url http://NAME:PORT"
        )

    from asyncfin.sandbox import BrokenDatasetError, Sandbox, SandboxError

    try:
        make = partial(Sandbox, *datasets) if datasets else Sandbox.demo
        service = make(
            host=host,
            public_url=public_url,
            port=port,
            store=store,
            allowance=allowance,
            rate=rate,
            burst=burst,
            dialect=dialect,
        )
        await _serve(service)
    except (SandboxError, BrokenDatasetError) as error:
        raise UsageError(str(error)) from None


async def _serve(service: Any) -> None:
    """Run the sandbox until Ctrl-C or SIGTERM, and print where it is."""
    import asyncio

    from asyncfin.cli.terminal import progress_console, screen

    async with service:
        address = service.base_url
        line = f"export ASYNCFIN_BASE_URL={address} ASYNCFIN_TOKEN={service.token}"
        screen().print(line, soft_wrap=True)  # wrapped, it could not be pasted
        console = progress_console()
        listens = ""
        if not address.endswith(f":{service.port}"):
            listens = f", and listens at port {service.port}"
        lines = [f"The sandbox serves at {address}{listens}:"]
        lines += [f"  {item}  {name}".rstrip() for item, name in service.names.items()]
        loopback = ("http://127.", "http://[::1]", "http://localhost", "https:")
        if not address.startswith(loopback):
            lines.append("Clients need --allow-http or allow_http=True.")
        console.print("\n".join([*lines, "Ctrl-C ends it."]), style="dim")
        # Ctrl-C cancels the task; what a container gets is a termination signal.
        ended = asyncio.Event()
        with suppress(NotImplementedError):  # on Windows
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
        with suppress(asyncio.CancelledError):
            await ended.wait()
        console.print("\nThe sandbox has ended.", style="dim")


async def _show_demo() -> None:
    """Read real figures of companies, and print them, their cost, and what can be run
    next.
    """
    from asyncfin import Annual, Client, Select
    from asyncfin.cli.session import show_progress
    from asyncfin.sandbox import Sandbox

    select = Select(metric_ids=_METRICS, basis="consolidated", cadence="annual")
    # Over HTTP and not from the files: the demo is to show what a user's own program
    # does.
    with show_progress("Reading from the sandbox") as shown:
        async with Sandbox.demo() as service:
            address = service.base_url
            async with Client(address, service.token, observers=[shown]) as client:
                catalogues = [
                    await client.catalogue(entity_id) for entity_id in service.entities
                ]
                plan = await client.plan(catalogues[0], select, Annual(last=_YEARS))
                panel = await client.run(plan)
    _print_demo(catalogues, address, panel)
    costs = client.stats().by_operation.items()
    series = counted(len(plan.series), "series", "series")
    requests = ", ".join(f"{cost.requests} {operation}" for operation, cost in costs)
    print(  # noqa: T201
        f"\nAll of it came over HTTP, in {counted(shown.requests, 'request')}: "
        f"{requests}.\nThe question means {series} and was planned into "
        f"{counted(plan.requests, 'request')}.\n{_NEXT}"
    )


def _print_demo(catalogues: Sequence[Any], address: str, panel: Any) -> None:
    from asyncfin.cli.terminal import print_table, screen

    console = screen(_WIDTH)
    title = f"Read over HTTP from a sandbox of the service, at {address}\n"
    console.print(title, style="bold")
    rows = [
        [
            *(item.entity_id, item.name),
            *map(str, (len(item), len(item.by_path), len(item.periods))),
            item.periods[-1].label,
        ]
        for item in catalogues
    ]
    heads = ("entity", "name", "series", "scopes", "periods", "latest")
    print_table(console, heads, rows)
    console.print()
    console.print(str(panel.show("billions", console.width)))
