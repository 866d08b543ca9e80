"""The exit codes of the command line, and of programs that end with an extraction
(docs/cli.md).
"""

from enum import IntEnum


class Exit(IntEnum):
    """The exit codes of programs."""

    OK = 0
    FAILED = 1
    USAGE = 2
    DENIED = 3
    NOT_FOUND = 4
    ALLOWANCE = 5
    SERVICE = 6
    LOCAL = 7
    RUNNING = 8
    # 128 and the number of the signal, as shells have it: SIGINT is 2, SIGPIPE 13,
    # SIGTERM 15.
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    TERMINATED = 143
