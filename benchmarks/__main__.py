"""Run the benchmarks named on the command line, or all: ``python -m benchmarks [name
...]``.
"""

import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules


def main() -> None:
    known = [
        each.name
        for each in iter_modules([str(Path(__file__).parent)])
        if not each.name.startswith("_")
    ]
    if unknown := set(sys.argv[1:]) - set(known):
        sys.exit(
            f"there is no benchmark {', '.join(sorted(unknown))}: choose of "
            f"{', '.join(known)}"
        )
    for name in sys.argv[1:] or known:
        print(f"## {name}\n\n{import_module(f'benchmarks.{name}').run()}\n", flush=True)


if __name__ == "__main__":
    main()
