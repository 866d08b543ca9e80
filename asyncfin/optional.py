"""Optional libraries, imported when first needed."""

import sys
from importlib import import_module
from typing import Any

# By name, once they are imported: while one thread imports a module, others see a part.
_modules: dict[str, Any] = {}


def library(name: str, extra: str) -> Any:
    """Return a module of a package that one of the extras installs, or raise
    ImportError with its name.
    """
    # A table takes hundreds of them, and the machinery of imports half a microsecond
    # for each.
    package = name.partition(".")[0]
    if name in _modules and sys.modules.get(package):
        return _modules[name]
    try:
        import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:  # it is there, and broken
            raise
        missing = ImportError(
            f"{package} is not installed: pip install 'asyncfin[{extra}]'", name=package
        )
    else:
        _modules[name] = import_module(name)
        return _modules[name]
    raise missing


class OptionalModule:
    """A module of such a package, imported when one of its names is first used.

    Raises:
        ImportError: on use, as for `library`.
    """

    def __init__(self, name: str, extra: str) -> None:
        self._name, self._extra = name, extra

    def __getattr__(self, name: str) -> Any:
        return getattr(library(self._name, self._extra), name)


pa = OptionalModule("pyarrow", "arrow")
compute = OptionalModule("pyarrow.compute", "arrow")
ipc = OptionalModule("pyarrow.ipc", "arrow")
parquet = OptionalModule("pyarrow.parquet", "arrow")
