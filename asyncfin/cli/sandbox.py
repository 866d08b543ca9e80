"""`asyncfin sandbox`: the local service as a separate process, and a demo of it; and
`asyncfin record`: entities' datasets as files that it serves.
"""

import signal
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from cyclopts import Parameter
from cyclopts.validators import Number

from asyncfin.checks import expand_user
from asyncfin.cli.errors import UsageError
from asyncfin.cli.options import Names, Service
from asyncfin.cli.terminal import (
    print_line,
    progress_console,
    replace_file,
    screen,
)
from asyncfin.clock import utc_text
from asyncfin.errors import AsyncfinError
from asyncfin.words import counted, listed

if TYPE_CHECKING:
    from asyncfin import Catalogue, Client, Panel, Period, Value
    from asyncfin.sandbox import DatasetFile

# In files and pipes; the usual width of a terminal.
_WIDTH = 80
_YEARS = 5
_PORT = 8765
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
  pip install ".[cli]"    install the command `asyncfin`, if it is missing
  asyncfin sandbox        keep such a service running for your own programs
  asyncfin query --help   query it, or the real service, for any series"""


async def sandbox(
    *datasets: Path,
    demo: bool = False,
    host: Annotated[str, Parameter(show_default=True)] = "127.0.0.1",
    public_url: str | None = None,
    port: Annotated[int | None, Parameter(validator=Number(gte=0, lte=65535))] = None,
    allowance: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    rate: Annotated[float | None, Parameter(validator=Number(gt=0))] = None,
) -> None:
    """Run a local service, or show a demo of it.

    It serves the given dataset files, or the demo companies, until Ctrl-C. On
    standard output it prints one line to paste into another shell, where the
    other commands and your own programs then find the service. Each start issues
    a new token. With --demo it reads real figures from the service, prints them,
    and ends.

      asyncfin sandbox --demo
      asyncfin sandbox
      asyncfin sandbox company.json.gz --port 0 --allowance 100
      asyncfin sandbox --host 0.0.0.0 --public-url http://sandbox:8765

    Args:
        datasets: Dataset files, JSON or gzipped JSON, of the format asyncfin-dataset/1.
        demo: Show real figures, read over HTTP from the service, and end.
        host: The address to listen on; 0.0.0.0 or :: for all addresses of this machine,
            with --public-url.
        public_url: The URL under which others reach it, such as http://sandbox:8765.
            [default: this machine]
        port: The port; 0 for a free one. [default: 8765; of a demo, a free one]
        allowance: Data requests per day. [default: no limit]
        rate: Data requests per second. [default: no limit]
    """
    if demo and datasets:
        raise UsageError("--demo shows the demo companies: leave dataset files out")
    if host in ("0.0.0.0", "::", "") and public_url is None:  # noqa: S104
        raise UsageError(
            f"--host {host} listens at all addresses: give the URL under which others "
            "reach it as --public-url http://NAME:PORT"
        )

    from asyncfin.sandbox import BrokenDatasetError, Sandbox, SandboxError

    if port is None and not demo:
        port = _PORT
    make: Any = Sandbox.demo
    if datasets:
        make = partial(Sandbox, *datasets)
    try:
        service = make(
            host=host,
            public_url=public_url,
            port=port or 0,
            allowance=allowance,
            rate=rate,
        )
        await (_show_demo(service) if demo else _serve(service))
    except (SandboxError, BrokenDatasetError) as error:
        raise UsageError(str(error)) from None


async def _serve(service: Any) -> None:
    """Run the sandbox until Ctrl-C or SIGTERM, and print where it is."""
    import asyncio

    async with service:
        address = service.base_url
        line = f"export ASYNCFIN_BASE_URL={address} ASYNCFIN_TOKEN={service.token}"
        screen().print(line, soft_wrap=True)  # wrapped, it could not be pasted
        console = progress_console()
        lines = [f"The sandbox serves at {address}:"]
        for entity_id, name in service.names.items():
            lines.append(f"  {entity_id}  {name}")
        console.print("\n".join([*lines, "Ctrl-C ends it."]), style="dim")
        # Ctrl-C cancels the task; what a container gets is a termination signal.
        end = asyncio.Event()
        with suppress(NotImplementedError):  # on Windows
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
        with suppress(asyncio.CancelledError):
            await end.wait()


async def _show_demo(sandbox: Any) -> None:
    """Read real figures of a company, and print them, their cost, and what can be run
    next.
    """
    from asyncfin import Annual, Client, Select

    select = Select(metric_ids=_METRICS, basis="consolidated", cadence="annual")
    # Over HTTP and not from the files: the demo is to show what a user's own program
    # does.
    async with sandbox as service, Client(service.base_url, service.token) as client:
        address = service.base_url
        companies = listed(list(service.names.values()))
        entity_id = service.entities[0]
        panel = await client.query(entity_id, select, Annual(last=_YEARS))
    print_line(f"From a sandbox of {companies}, at {address}\n", "bold")
    table = panel.show("billions", min(screen().width, _WIDTH))
    print_line(f"{table}\n{counted(panel.requests, 'request')} over HTTP\n{_NEXT}")


async def record(
    *entity_ids: str,
    folder: Annotated[Path, Parameter(name="--into")],
    names: Names = Names(),
    service: Service = Service(),
) -> None:
    """Write entities' datasets to files for the sandbox.

    A file contains the catalogue and all values of both versions, with their
    sources: `Sandbox("ID.json.gz")` and `asyncfin sandbox ID.json.gz` serve it.
    It costs one request for each 100 series, and two for each 100 series of
    which values are read.

      asyncfin record ENTITY_ID ENTITY_ID --into FOLDER

    Args:
        entity_ids: The entities, O- and 32 characters each, or their names.
        folder: The folder for a file of each entity, ID.json.gz. Files are replaced as
            a whole.
    """
    entities = names.require_ids(entity_ids)
    folder = Path(expand_user(str(folder)))
    if folder.exists() and not folder.is_dir():
        raise UsageError(
            f"--into {folder} is not a folder: give a folder or a new path"
        )
    service.check()

    from asyncfin.cli.session import connect

    folder.mkdir(parents=True, exist_ok=True)
    async with connect(service, "Recording", names) as (client, _):
        for entity_id in entities:
            content = encode_dataset(await read_dataset(client, entity_id))
            file = folder / f"{quote(entity_id, safe='')}.json.gz"
            replace_file(file, content)
    print_line(f"{folder}: {counted(len(entities), 'file')}")


async def read_dataset(client: "Client", entity_id: str) -> "DatasetFile":
    """Return the current publication of an entity, read as a whole."""
    from msgspec.structs import astuple

    from asyncfin import FiscalRange, Select, read_entity
    from asyncfin.sandbox import DatasetFile, Publication

    answer = await read_entity(
        client, entity_id, Select(), FiscalRange(), value_version="both"
    )
    assert answer.panel is not None
    assert answer.restated is not None
    panels = answer.panel, answer.restated
    catalogue = answer.panel.catalogue
    # A value can be at a period that the catalogue does not list.
    periods = sorted({*catalogue.periods, *panels[0].periods, *panels[1].periods})
    rows_by_id = {}
    for series_id in map(attrgetter("series_id"), answer.panel):
        rows_by_id[series_id] = _make_rows(series_id, periods, panels)
    publication = Publication(
        catalogue.entity_id,
        catalogue.name,
        catalogue.dataset_id,
        utc_text(catalogue.created_timestamp),
        tuple(map(astuple, periods)),
        _make_scope_groups(catalogue),
        _make_plain(catalogue.groups),
        rows_by_id,
    )
    return DatasetFile(catalogue.entity_id, catalogue.name, (publication,))


def encode_dataset(dataset: "DatasetFile") -> bytes:
    """Return the file of a dataset, after reading it as the sandbox does.

    Raises:
        AsyncfinError: the sandbox would reject it, or serve something else.
    """
    import msgspec

    from asyncfin.sandbox import BrokenDatasetError, load
    from asyncfin.sandbox.dataset import dump

    try:
        content = dump(dataset)
        # In a form in which lists equal tuples, and the order of keys does not matter.
        encode = partial(msgspec.json.encode, order="sorted")
        if encode(load(content)) == encode(dataset):
            return content
        reason = "the file differs from what was read"
    except (BrokenDatasetError, ValueError) as error:
        reason = str(error)
    raise AsyncfinError(f"{dataset.entity_id} can't be recorded: {reason}")


def _make_scope_groups(catalogue: "Catalogue") -> tuple[Any, ...]:
    """Return the scope groups in the shape of the wire, with the scopes that only a
    series' path names.
    """
    from msgspec.structs import astuple

    texts = {"name": "", "description": ""}
    groups = {}
    for group in _make_plain(catalogue.scope_groups):
        groups[group["scope_group_id"]] = group
    for series in catalogue.series:
        for group_id, scope_id in map(astuple, series.scopes):
            empty = {"scope_group_id": group_id, **texts, "scopes": []}
            scopes = groups.setdefault(group_id, empty)["scopes"]
            if scope_id not in map(itemgetter("scope_id"), scopes):
                scope = {"scope_id": scope_id, **texts, "role": "", "aliases": []}
                scopes.append(scope)
    return tuple(groups.values())


def _make_plain(item: Any) -> Any:
    """Return an object in the shape of the wire, without the fields that are None."""
    import msgspec

    if not isinstance(item, dict | list | tuple):
        item = msgspec.to_builtins(item)
    if isinstance(item, dict):
        fields = item.items()
        return {name: _make_plain(part) for name, part in fields if part is not None}
    if isinstance(item, list | tuple):
        return list(map(_make_plain, item))
    return item


def _make_rows(
    series_id: str, periods: Sequence["Period"], panels: Iterable["Panel"]
) -> tuple[Any, ...]:
    """Return the rows of a series: the period's index, the original value, and the
    restated one.
    """
    originals, restatements = (
        dict(panel[series_id].observations()) for panel in panels
    )
    rows = []
    for index, period in enumerate(periods):
        first = _make_value(originals.get(period), period)
        last = _make_value(restatements.get(period), period)
        if first or last:
            # The same value in both versions was never restated.
            restatement = last or "withdrawn"
            rows.append((index, first, None if last == first else restatement))
    return tuple(rows)


def _make_value(value: "Value | None", period: "Period") -> dict[str, Any] | None:
    """Return a value in the shape of the wire; what the service does not state is as
    for a reported value.
    """
    from msgspec.structs import replace

    if value is None:
        return None
    fields: dict[str, Any] = _make_plain(value)
    del fields["value_version"]  # whether it is the original one, or the restated one
    report_period = replace(value.report_period or period, duration_months=0)
    fields["report_period"] = _make_plain(report_period)
    for source in fields["sources"]:
        source.setdefault("row_index", 0)
        source.setdefault("column_index", 0)
    return fields
