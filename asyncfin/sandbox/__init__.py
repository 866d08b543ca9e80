"""The local service: `Sandbox` serves datasets on this machine, by the service description."""

from asyncfin.sandbox.accounts import Account
from asyncfin.sandbox.dataset import DatasetFile, Publication, load
from asyncfin.sandbox.dialect import Dialect
from asyncfin.sandbox.errors import BrokenDatasetError, PortInUseError, SandboxError
from asyncfin.sandbox.faults import Drop, Fault, Hang, Latency, Slow, Status, Switch, Truncate
from asyncfin.sandbox.server import Sandbox, Served

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
