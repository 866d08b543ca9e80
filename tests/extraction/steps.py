"""Every change that a run makes to the disk, as a step at which it can be killed, or the disk be full."""

import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Act = Callable[[], None]
_watched: list[tuple[str, int, Act]] = []  # below this path, at this step, do this
_seen = 0
_hooked = False


def _is_writing(event: str, arguments: tuple[Any, ...]) -> Any:
    """Return the path that is about to be changed; None for other events."""
    if (
        event == "open"
        and isinstance(arguments[0], (str, bytes))
        and arguments[2] & (os.O_WRONLY | os.O_RDWR)
    ):
        return arguments[0]
    if event in ("os.rename", "os.remove", "os.mkdir"):
        return arguments[0]
    return None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    global _seen
    if not _watched or (path := _is_writing(event, arguments)) is None:
        return
    below, at, act = _watched[-1]
    if os.fsdecode(path).startswith(below):
        _seen += 1
        if _seen == at:
            act()


@contextmanager
def at_step(folder: Path, step: int, act: Act) -> Iterator[Callable[[], int]]:
    """Do something just before the given step below a folder; yield a function that counts the steps."""
    global _seen, _hooked
    if not _hooked:
        sys.addaudithook(_hook)
        _hooked = True
    _seen = 0
    _watched.append((str(folder), step, act))
    try:
        yield lambda: _seen
    finally:
        _watched.pop()


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def in_child(work: Callable[[], int]) -> int:
    """Run something in a forked process, and return its exit code: 1 for an error, negative for a signal."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = work()
        except OSError:
            pass
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
