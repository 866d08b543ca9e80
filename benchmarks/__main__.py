"""Run the named benchmarks, or all: ``python -m benchmarks [NAME ...]``.

``python -m benchmarks goals --write`` writes the table of RESULTS.md.
"""

import argparse
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "RESULTS.md"
BEGIN, END = "<!-- python -m benchmarks goals --write -->\n", "<!-- end of goals -->\n"


def main() -> None:
    modules = [module.name for module in iter_modules([str(FOLDER)])]
    names = [name for name in modules if not name.startswith("_")]
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument(
        "--write", action="store_true", help="write the table of goals into RESULTS.md"
    )
    arguments = parser.parse_args()
    if unknown := sorted({*arguments.names} - {*names}):
        parser.error(f"there is no {', '.join(unknown)}: choose of {', '.join(names)}")
    for name in arguments.names or names:
        table = import_module(f"benchmarks.{name}").run()
        print(f"## {name}\n\n{table}\n", flush=True)
        if name == "goals" and arguments.write:
            write_results(table)


def write_results(table: str) -> None:
    """Replace the table of RESULTS.md, which stands between two comments."""
    head, _, rest_of_file = RESULTS.read_text(encoding="utf-8").partition(BEGIN)
    tail = rest_of_file.partition(END)[2]
    RESULTS.write_text(f"{head}{BEGIN}\n{table}\n\n{END}{tail}", encoding="utf-8")


if __name__ == "__main__":
    main()
