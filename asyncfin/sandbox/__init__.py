"""The local service: `Sandbox` serves datasets on this machine, by the service
description.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncfin.sandbox.accounts import Account
    from asyncfin.sandbox.dataset import DatasetFile, Publication, load
    from asyncfin.sandbox.dialect import Dialect
    from asyncfin.sandbox.errors import BrokenDatasetError, PortInUseError, SandboxError
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
    from asyncfin.sandbox.server import Sandbox, Served

# The public names by module. A module is imported at the first use of a name: the
# server needs aiohttp, and the options of `asyncfin sandbox` do not.
_NAMES = {
    "accounts": "Account",
    "dataset": "DatasetFile Publication load",
    "dialect": "Dialect",
    "errors": "BrokenDatasetError PortInUseError SandboxError",
    "faults": "Drop Fault Hang Latency Slow Status Switch Truncate",
    "server": "Sandbox Served",
}
_MODULES = {
    name: f"{__name__}.{module}"
    for module, names in _NAMES.items()
    for name in names.split()
}

__all__ = [
    "Account",
    "BrokenDatasetError",
    "DatasetFile",
    "Dialect",
    "Drop",
    "Fault",
    "Hang",
    "Latency",
    "PortInUseError",
    "Publication",
    "Sandbox",
    "SandboxError",
    "Served",
    "Slow",
    "Status",
    "Switch",
    "Truncate",
    "load",
]


def __getattr__(name: str) -> object:
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
