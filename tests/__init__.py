"""The tests of asyncfin: README.md of this folder has the map."""

import os


def examples(number: int) -> int:
    """Return how many random examples to run: a quarter of `number`, in `nox -s fuzz` all of them."""
    return number if os.environ.get("ASYNCFIN_EXAMPLES") == "all" else max(1, number // 4)
