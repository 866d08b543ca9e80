"""What people wait for: the wall time of a question, and stops of the loop; and what a
stream holds.
"""

import tempfile
from pathlib import Path

from benchmarks._shapes import dense, full, one_chain
from benchmarks.answers import goals, rounds

Row = tuple[str, float, str, float]

# Wall times vary more than CPU times do.
TURNS = 5


def _dense(folder: Path) -> list[Row]:
    rows = []
    for sandbox, server in (
        (False, "replayed after 20 ms"),
        (True, "from the sandbox"),
    ):
        floor, asked = rounds(
            ["floor", "asked"], dense(), folder, TURNS, sandbox=sandbox
        ).values()
        took = f"{asked['wall'] * 1e3:,.0f} of {floor['wall'] * 1e3:,.0f} ms"
        name = (
            f"24 dense pages, {server}, planned and read: wall time of their bytes "
            f"({took})"
        )
        rows.append((name, asked["wall"] / floor["wall"], "<=", 1.4))
    return rows


def _chain(folder: Path) -> list[Row]:
    names = ["floor", "numbers", "every_value"]
    floor, numbers, values = (
        each["wall"] for each in rounds(names, one_chain(), folder, TURNS).values()
    )
    return [
        (
            "1 query x 40 pages, next one asked for ahead: wall time of bytes",
            numbers / floor,
            "<=",
            1.15,
        ),
        ("the same, every value looked at", values / floor, "<=", 1.4),
    ]


def _streams(folder: Path) -> list[Row]:
    few, many = (
        rounds(["streaming"], full(queries, 2, 12), folder) for queries in (24, 240)
    )
    # It returns its bytes in place of its values.
    ratio = many["streaming"]["values"] / few["streaming"]["values"]
    return [
        (
            "a stream over ten times the pages, its plan left out: peak of the smaller",
            ratio,
            "<=",
            1.2,
        )
    ]


def _heartbeat(folder: Path) -> list[Row]:
    shape = full(140, 1)
    stop = rounds(["numbers"], shape, folder)["numbers"]["stop"]
    return [
        (f"a panel of {shape.values:,} values: longest stop, ms", stop * 1e3, "<=", 10)
    ]


def _panel(folder: Path) -> list[Row]:
    shape = full(8)
    held = rounds(["traced"], shape, folder, 1)["traced"]["values"]
    return [
        ("what Python holds for a panel, B a value", held / shape.values, "<=", 100)
    ]


def run() -> str:
    """Return a table of goals."""
    with tempfile.TemporaryDirectory() as name:
        parts = (_dense, _chain, _streams, _panel, _heartbeat)
        return "\n".join(goals(row for part in parts for row in part(Path(name))))
