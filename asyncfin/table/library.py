"""Optional libraries, imported when first needed."""

from importlib import import_module
from typing import Any


def library(name: str, extra: str) -> Any:
    """Return a module that one of the extras installs.

    Raises:
        ImportError: it is not installed; the message names the extra.
    """
    try:
        return import_module(name)
    except ImportError:
        missing = ImportError(f"{name} is not installed: pip install 'asyncfin[{extra}]'", name=name)
    raise missing
