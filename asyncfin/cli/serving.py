"""Running the sandbox as a process: its faults, and where others reach it."""

import asyncio
import ipaddress
import json
import signal
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from attrs import NOTHING, fields_dict
from rich.console import Console

from asyncfin.cli.exits import UsageError
from asyncfin.cli.output import progress_console, screen
from asyncfin.sandbox import BrokenDatasetError, Sandbox, SandboxError, load
from asyncfin.sandbox.faults import (
    Drop,
    Fault,
    Hang,
    Latency,
    Slow,
    Status,
    Switch,
    Truncate,
)

_FAULTS: dict[str, type[Fault]] = {
    kind.__name__.lower(): kind
    for kind in (Latency, Status, Drop, Truncate, Slow, Hang, Switch)
}


async def serve(
    datasets: Sequence[Path],
    given: Iterable[str],
    *,
    host: str,
    public_url: str | None,
    **options: Any,
) -> None:
    """Run the sandbox until Ctrl-C or SIGTERM, and print where it is.

    Args:
        datasets: dataset files. Empty: the demo companies.
        given: the faults, as --fault describes them.
        options: further arguments of `Sandbox`.
    """
    try:
        make = partial(Sandbox, *datasets) if datasets else Sandbox.demo
        service = make(
            faults=[_fault(each) for each in given],
            host=host,
            public_url=public_url,
            **options,
        )
        async with service:
            console = progress_console()
            announce(
                service,
                service.base_url if public_url else reachable(service, host),
                console,
            )
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
        found = [
            ipaddress.ip_address(each[4][0])
            for each in socket.getaddrinfo(name, service.port)
        ]
        # Many machines know their own name only as 127.0.1.1, which leads others to
        # themselves.
        if any(not address.is_loopback for address in found):
            return f"http://{name}:{service.port}"
    raise UsageError(
        f"--host {host} listens at all addresses, but {name!r} is not a name that "
        "others can look up:"
        f" give --public-url http://NAME:{service.port} with one that is"
    )


def announce(service: Sandbox, base_url: str, console: Console) -> None:
    line = f"export ASYNCFIN_BASE_URL={base_url} ASYNCFIN_TOKEN={service.token}"
    screen().print(line, soft_wrap=True)  # wrapped, it could not be pasted
    entities = "\n".join(
        f"  {each}  {name}".rstrip() for each, name in service.names.items()
    )
    listens = (
        ""
        if base_url.endswith(f":{service.port}")
        else f", and listens at port {service.port}"
    )
    console.print(
        f"The sandbox serves at {base_url}{listens}:\n{entities}", style="dim"
    )
    loopback = ("http://127.", "http://[::1]", "http://localhost", "https:")
    hint = (
        ""
        if base_url.startswith(loopback)
        else "Clients need --allow-http or allow_http=True. "
    )
    console.print(f"{hint}Ctrl-C ends it.", style="dim")


def _fault(text: str) -> Fault:
    """Return the fault that an option describes, such as
    ``status:status=503,nth=2``.
    """
    name, _, given = text.partition(":")
    kind = _FAULTS.get(name)
    if kind is None:
        raise UsageError(
            f"--fault {text!r} is of no known kind: it must be one of "
            f"{', '.join(_FAULTS)}"
        )
    pairs = [pair.partition("=") for pair in given.split(",") if pair]
    values = {field: value for field, _, value in pairs}
    reason = misnamed(kind, values)
    if not reason:
        try:
            return kind(
                **{field: fault_value(field, value) for field, value in values.items()}
            )
        # Its message names the file and the place in it, which is more than "not
        # understood" says.
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
    missing = [
        name
        for name, each in known.items()
        if each.default is NOTHING and name not in values
    ]
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
