"""What `import asyncfin` costs, beside importing the libraries it stands on.

Each import runs in a process of its own, in turns; the CPU time counts, of which the medians are shown.
"""

import os
import subprocess
import sys
from statistics import median

FLOOR, OURS = "aiohttp, attrs, cattrs, msgspec", "asyncfin"
ROUNDS = 15
_SCRIPT = "from time import process_time as now; began = now(); import {}; print(now() - began)"


def seconds(modules: str) -> float:
    """Return the CPU time that a fresh interpreter needs to import these modules."""
    compiled = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", _SCRIPT.format(modules)]
    return float(subprocess.run(command, env=compiled, check=True, capture_output=True, text=True).stdout)


def run() -> str:
    """Return a Markdown table: the goal is a ratio below 1.2."""
    for modules in (FLOOR, OURS):  # once for the byte code and the disk cache
        seconds(modules)
    rounds = [(seconds(FLOOR), seconds(OURS)) for _ in range(ROUNDS)]
    floor, ours = (median(each) for each in zip(*rounds, strict=True))
    return "\n".join(
        [
            f"| import {FLOOR} | import {OURS} | ratio | goal |",
            "| ---: | ---: | ---: | ---: |",
            f"| {floor * 1e3:.0f} ms | {ours * 1e3:.0f} ms | {ours / floor:.2f}x | < 1.2x |",
        ]
    )


if __name__ == "__main__":
    print(run())
