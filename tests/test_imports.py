"""What `import asyncfin` brings in: its sorted names, and none of the optional libraries."""

import subprocess
import sys
from types import ModuleType

import pytest

import asyncfin

OPTIONAL = ["cyclopts", "matplotlib", "numpy", "opentelemetry", "pandas", "polars", "pyarrow", "rich"]
APART = ["asyncfin.sandbox", "asyncfin.cli", "asyncfin.extraction", "asyncfin.telemetry"]


@pytest.fixture(scope="module")
def imported() -> set[str]:
    """The modules of a new interpreter that has imported asyncfin."""
    code = "import sys, asyncfin; print(*sys.modules)"
    child = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert child.returncode == 0, child.stderr
    return set(child.stdout.split())


@pytest.mark.parametrize("name", [*OPTIONAL, *APART])
def test_importing_the_package_leaves_what_is_optional_alone(imported: set[str], name: str) -> None:
    """Frames, plots, commands, extraction, telemetry and the sandbox are imported when they are used."""
    assert "asyncfin.client" in imported
    assert name not in imported


def test_the_public_names_are_sorted_and_complete() -> None:
    """`__all__` is in order, and the package holds these names, its modules and nothing else."""
    assert asyncfin.__all__ == sorted(asyncfin.__all__)
    held = {
        name
        for name in dir(asyncfin)
        if not name.startswith("_") and not isinstance(getattr(asyncfin, name), ModuleType)
    }
    assert held == set(asyncfin.__all__)
