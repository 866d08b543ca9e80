"""What importing asyncfin costs: by itself, and its client next to the libraries that it uses.

Each import runs in a separate process, in turns; the CPU time counts, of which the medians are shown.
"""

import os
import subprocess
import sys
from statistics import median

BARE = "import asyncfin"
ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
FLOOR = f"import aiohttp, attrs, msgspec, yarl, {ZSTD}"
CLIENT = "from asyncfin import Client"
ROUNDS = 15
_SCRIPT = "from time import process_time as now; began = now(); {}; print(now() - began)"


def seconds(statement: str) -> float:
    """Return the CPU time that a fresh interpreter needs for an import."""
    compiled = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", _SCRIPT.format(statement)]
    return float(subprocess.run(command, env=compiled, check=True, capture_output=True, text=True).stdout)


def run() -> str:
    """Return a Markdown table with the goals."""
    statements = (BARE, FLOOR, CLIENT)
    for statement in statements:  # once for the byte code and the disk cache
        seconds(statement)
    rounds = [[seconds(statement) for statement in statements] for _ in range(ROUNDS)]
    bare, floor, client = (median(each) for each in zip(*rounds, strict=True))
    return "\n".join(
        [
            "| import | CPU | ratio | goal |",
            "| --- | ---: | ---: | ---: |",
            f"| `{BARE}` | {bare * 1e3:.1f} ms | | < 30 ms |",
            f"| `{FLOOR}` | {floor * 1e3:.0f} ms | 1.00x | |",
            f"| `{CLIENT}` | {client * 1e3:.0f} ms | {client / floor:.2f}x | < 1.1x |",
        ]
    )


if __name__ == "__main__":
    print(run())
