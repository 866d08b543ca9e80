"""`asyncfin sandbox`: the local service as a separate process."""

import asyncio
import ipaddress
import json
import signal
import socket
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from attrs import NOTHING, fields_dict
from cyclopts import Group, Parameter
from cyclopts.validators import Number
from rich.console import Console

from asyncfin.cli.exits import UsageError
from asyncfin.cli.output import progress_console, screen
from asyncfin.sandbox import (
    BrokenDatasetError,
    Dialect,
    Drop,
    Fault,
    Hang,
    Latency,
    Sandbox,
    SandboxError,
    Slow,
    Status,
    Switch,
    Truncate,
    load,
)

_DIALECT = Group("What the service description leaves open", sort_key=1)
_FAULTS: dict[str, type[Fault]] = {
    kind.__name__.lower(): kind for kind in (Latency, Status, Drop, Truncate, Slow, Hang, Switch)
}


async def sandbox(
    *datasets: Path,
    host: Annotated[str, Parameter(show_default=True)] = "127.0.0.1",
    public_url: str | None = None,
    port: Annotated[int, Parameter(show_default=True, validator=Number(gte=0, lte=65535))] = 8765,
    store: str = ":memory:",
    allowance: Annotated[int | None, Parameter(validator=Number(gte=0))] = None,
    rate: Annotated[float | None, Parameter(validator=Number(gt=0))] = None,
    burst: Annotated[int, Parameter(validator=Number(gte=1))] = 1,
    fault: tuple[str, ...] = (),
    dialect: Annotated[Dialect, Parameter(group=_DIALECT, negative_bool="no-")] = Dialect(),
) -> None:
    """Run the local service until Ctrl-C.

    It serves the given dataset files, or the demo companies. On standard
    output it prints one line to paste into another shell, where the other commands
    and your own programs then find the service. Each start issues a new token.

      asyncfin sandbox
      asyncfin sandbox company.json.gz --port 0 --allowance 100
      asyncfin sandbox --fault status:status=503,share=0.1 --dialect.gzip
      asyncfin sandbox --host 0.0.0.0 --public-url http://sandbox:8765

    Faults, and the arguments of each:

      latency   the response is delayed: seconds
      status    this response instead: status, retry_after, code, body
      drop      the connection is reset: after (a share of the body)
      truncate  the connection is closed within the body: after
      slow      the body is sent in pieces: seconds
      hang      no response is sent
      switch    a publication becomes current: publication (a dataset file)

    All take operation (dataset, catalogue, query, usage, limits), nth (only
    the nth of those requests), share (0 to 1, of those) and seed.

    Args:
        datasets: Dataset files, JSON or gzipped JSON, of the format asyncfin-dataset/1.
        host: The address to listen on; 0.0.0.0 or :: for all addresses of this machine.
        public_url: The URL under which others reach it, such as http://sandbox:8765. [default: this machine]
        port: The port; 0 for a free one.
        store: A SQLite file for publications, tokens and counts. [default: in memory]
        allowance: Data requests per day. [default: no limit]
        rate: Data requests per second. [default: no limit]
        burst: How many data requests the rate permits at once.
        fault: A fault, as KIND:name=value,...; repeatable; see above.
    """
    try:
        make = partial(Sandbox, *datasets) if datasets else Sandbox.demo
        service = make(
            dialect=dialect,
            faults=[_fault(each) for each in fault],
            allowance=allowance,
            rate=rate,
            burst=burst,
            store=store,
            host=host,
            public_url=public_url,
            port=port,
        )
        async with service:
            console = progress_console()
            announce(service, service.base_url if public_url else reachable(service, host), console)
            # Ctrl-C cancels the task; what a container gets is a termination signal.
            ended = asyncio.Event()
            with suppress(NotImplementedError):  # on Windows
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
            with suppress(asyncio.CancelledError):
                await ended.wait()
            console.print("\nThe sandbox has ended.", style="dim")
    except (SandboxError, BrokenDatasetError) as error:
        raise UsageError(str(error)) from None


def reachable(service: Sandbox, host: str) -> str:
    """Return where others reach a service that listens at this host."""
    if host not in ("0.0.0.0", "::", ""):  # noqa: S104
        return service.base_url
    name = socket.gethostname()
    with suppress(OSError):
        found = [ipaddress.ip_address(each[4][0]) for each in socket.getaddrinfo(name, service.port)]
        # Many machines know their own name only as 127.0.1.1, which leads others to themselves.
        if any(not address.is_loopback for address in found):
            return f"http://{name}:{service.port}"
    raise UsageError(
        f"--host {host} listens at all addresses, but {name!r} is not a name that others can look up:"
        f" give --public-url http://NAME:{service.port} with one that is"
    )


def announce(service: Sandbox, base_url: str, console: Console) -> None:
    line = f"export ASYNCFIN_BASE_URL={base_url} ASYNCFIN_TOKEN={service.token}"
    screen().print(line, soft_wrap=True)  # wrapped, it could not be pasted
    entities = "\n".join(f"  {each}  {name}".rstrip() for each, name in service.names.items())
    listens = "" if base_url.endswith(f":{service.port}") else f", and listens at port {service.port}"
    console.print(f"The sandbox serves at {base_url}{listens}:\n{entities}", style="dim")
    loopback = ("http://127.", "http://[::1]", "http://localhost", "https:")
    hint = "" if base_url.startswith(loopback) else "Clients need --allow-http or allow_http=True. "
    console.print(f"{hint}Ctrl-C ends it.", style="dim")


def _fault(text: str) -> Fault:
    """Return the fault that an option describes, such as ``status:status=503,nth=2``."""
    name, _, given = text.partition(":")
    kind = _FAULTS.get(name)
    if kind is None:
        raise UsageError(f"--fault {text!r} is of no known kind: it must be one of {', '.join(_FAULTS)}")
    pairs = [pair.partition("=") for pair in given.split(",") if pair]
    values = {field: value for field, _, value in pairs}
    reason = misnamed(kind, values)
    if not reason:
        try:
            return kind(**{field: fault_value(field, value) for field, value in values.items()})
        # Its message names the file and the place in it, which is more than "not understood" says.
        except BrokenDatasetError:
            raise
        except ValueError as error:
            reason = str(error.args[0])
        except TypeError:
            reason = "a value is of the wrong kind"
    pattern = f"{name}:name=value,... with the names {', '.join(fields_dict(kind))}"
    raise UsageError(f"--fault {text!r} is not understood ({reason}): write {pattern}")


def misnamed(kind: type[Fault], values: dict[str, str]) -> str:
    """Return what is wrong with the names of a fault's values; "" if nothing is."""
    known = fields_dict(kind)
    if unknown := [name for name in values if name not in known]:
        return f"it has no name {unknown[0]!r}"
    missing = [name for name, each in known.items() if each.default is NOTHING and name not in values]
    return f"{' and '.join(missing)} must be given" if missing else ""


def fault_value(field: str, value: str) -> Any:
    if field == "publication":
        return load(value)
    if field == "body":
        return value.encode()
    try:
        # As JSON, so that 503 is a number and [1,2] several; a bare word is a text.
        return json.loads(value)
    except ValueError:
        return value
