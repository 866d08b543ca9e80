"""Compare the branch coverage of each room with its floor: `python
tools/check_coverage.py coverage.json`.

The floors are whole percents in tests/coverage.toml. A commit that cuts may lower one
and says why. With `--write` the present figures, rounded down, become the floors.
"""

import json
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

FLOORS = Path(__file__).parents[1] / "tests" / "coverage.toml"


def measure(report: dict[str, dict[str, dict[str, dict[str, int]]]]) -> dict[str, int]:
    """Return how many percent of the lines and branches of each room run, rounded
    down.
    """
    covered, total = defaultdict[str, int](int), defaultdict[str, int](int)
    for path, file in report["files"].items():
        parts = Path(path.replace("\\", "/")).parts
        parts_below = parts[parts.index("asyncfin") + 1 :]
        room = parts_below[0] if len(parts_below) > 1 else "ground"
        summary = file["summary"]
        covered[room] += summary["covered_lines"] + summary["covered_branches"]
        total[room] += summary["num_statements"] + summary["num_branches"]
    return {
        room: 100 * covered[room] // total[room]
        for room in sorted(total)
        if total[room]
    }


def main(report: str, *options: str) -> int:
    percents = measure(json.loads(Path(report).read_text()))
    if "--write" in options:
        lines = [f"{room} = {percent}\n" for room, percent in percents.items()]
        FLOORS.write_text(
            "# Percent of lines and branches of each room that tests run, at least.\n"
            + "".join(lines)
        )
    floors = tomllib.loads(FLOORS.read_text())
    for room, percent in percents.items():
        print(f"{room:12} {percent:3} (at least {floors.get(room, 0)})")
    return (
        1 if any(percents.get(room, 0) < floor for room, floor in floors.items()) else 0
    )


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
