"""The garbage collector of processes that only extract: the command, and workers of an
executor.
"""

import gc

# Of the young, the middle and the old generation. The usual ones of CPython are (700,
# 10, 10).
_THRESHOLDS = (50_000, 20, 50)


def collect_rarely() -> None:
    """Leave what is imported out of garbage collections, and collect more rarely; once
    in a process.

    Pages and tables are released without the collector, so it looks in vain at all that
    the libraries hold.
    """
    if gc.get_threshold() != _THRESHOLDS:
        gc.freeze()
        gc.set_threshold(*_THRESHOLDS)
