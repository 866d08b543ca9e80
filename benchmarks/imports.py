"""What a start costs: importing asyncfin and its client, and the help of the commands.

Each import and each command runs in a separate process, in turns. Shown are the medians
of the CPU time.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from statistics import median

from asyncfin.cli.app import NAMES

BARE = "import asyncfin"
ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
FLOOR = f"import aiohttp, attrs, msgspec, yarl, {ZSTD}"
CLIENT = "from asyncfin import Client"
ROUNDS = 15
HELP = "asyncfin --help"


def seconds(arguments: Sequence[str]) -> float:
    """Return the CPU time that a fresh interpreter needs."""
    commands = {
        name: text
        for name, text in os.environ.items()
        if name != "PYTHONDONTWRITEBYTECODE"
    }
    usage_before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments],
        env=commands,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    usage_after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (
        usage_after.ru_utime
        + usage_after.ru_stime
        - usage_before.ru_utime
        - usage_before.ru_stime
    )


def medians(processes: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Return the median CPU time of each process, run in turns."""
    for arguments in processes.values():  # once for the byte code and the disk cache
        seconds(arguments)
    rounds = [
        [seconds(arguments) for arguments in processes.values()] for _ in range(ROUNDS)
    ]
    return dict(zip(processes, map(median, zip(*rounds, strict=True)), strict=True))


def imports() -> dict[str, float]:
    """Return what each import takes above the interpreter."""
    statements = ("pass", BARE, FLOOR, CLIENT)
    empty, *times = medians(
        {statement: ["-c", statement] for statement in statements}
    ).values()
    return {
        statement: time - empty
        for statement, time in zip(statements[1:], times, strict=True)
    }


def helps() -> dict[str, float]:
    """Return what the help of the program and of each command takes."""
    commands = {
        f"asyncfin {name} --help": ["-m", "asyncfin", name, "--help"]
        for name in NAMES.values()
    }
    return medians({HELP: ["-m", "asyncfin", "--help"], **commands})


def run() -> str:
    """Return a Markdown table with the goals."""
    import_times, help_times = imports(), helps()
    base, slowest = (
        help_times.pop(HELP),
        max(help_times, key=lambda name: help_times[name]),
    )
    floor, client, smallest = (
        import_times[FLOOR],
        import_times[CLIENT],
        min(help_times, key=lambda name: help_times[name]),
    )
    return "\n".join(
        [
            "| process | CPU | ratio | goal |",
            "| --- | ---: | ---: | ---: |",
            f"| `{BARE}` | {import_times[BARE] * 1e3:.1f} ms | | < 30 ms |",
            f"| `{FLOOR}` | {floor * 1e3:.0f} ms | 1.00x | |",
            f"| `{CLIENT}` | {client * 1e3:.0f} ms | {client / floor:.2f}x | < 1.1x |",
            f"| `{HELP}` | {base * 1e3:.0f} ms | 1.00x | |",
            f"| `{smallest}`, the fastest | {help_times[smallest] * 1e3:.0f} ms | "
            f"{help_times[smallest] / base:.2f}x | |",
            f"| `{slowest}`, the slowest | {help_times[slowest] * 1e3:.0f} ms | "
            f"{help_times[slowest] / base:.2f}x |"
            " < 1.2x |",
        ]
    )


if __name__ == "__main__":
    print(run())
