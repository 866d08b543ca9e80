"""One query against the sandbox with the bare wheel, no extra installed. Run by `nox -s
release`.
"""

import asyncio
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import asyncfin
from asyncfin import Annual, Client, Select
from asyncfin.sandbox import Sandbox

EXTRAS = (
    "cyclopts",
    "matplotlib",
    "numpy",
    "opentelemetry",
    "pandas",
    "polars",
    "pyarrow",
    "rich",
)
REFUSAL = (
    "asyncfin: the command line is an extra; install it with: pip install "
    '"asyncfin[cli]"\n'
)


async def revenue() -> None:
    """Print Apple's yearly revenue, as it comes over HTTP."""
    async with (
        Sandbox.demo() as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        select = Select(metric_ids="Revenue", basis="consolidated", cadence="annual")
        panel = await client.query(sandbox.entities[0], select, Annual(last=3))
        assert len(panel.periods) == 3
        print(
            panel.dataset.name,
            *(
                f"{period}: {value.number:,}"
                for period, value in panel.one().observations()
            ),
        )


def command() -> None:
    """Call `asyncfin`, which without its extra has one line to say."""
    name = Path(sys.executable).with_name("asyncfin")
    refused = subprocess.run([name, "demo"], capture_output=True, text=True)
    assert (refused.returncode, refused.stdout, refused.stderr) == (2, "", REFUSAL), (
        refused
    )
    print(refused.stderr, end="")


if __name__ == "__main__":
    place = Path(asyncfin.__file__).parent
    assert place.is_relative_to(sys.prefix), f"{place} is not the installed package"
    assert place.joinpath("py.typed").is_file()
    assert not any(map(find_spec, EXTRAS)), "an extra is installed"
    asyncio.run(revenue())
    command()
