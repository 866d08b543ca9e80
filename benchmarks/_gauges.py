"""What is read off the process that is measured: its memory, and the longest stop of
its loop.
"""

import asyncio
import resource
import time
from pathlib import Path


class Heartbeat:
    """How long the loop was kept from its other work: CPU time between two beats, so
    that other processes of the machine do not count.
    """

    def __init__(self) -> None:
        self.longest, self.beats = 0.0, 0
        self._loop = asyncio.get_running_loop()
        self._beat(time.thread_time())

    def _beat(self, last: float) -> None:
        now = time.thread_time()
        self.longest = max(self.longest, now - last)
        self.beats += 1
        self._loop.call_later(0.0005, self._beat, now)


def memory() -> int:
    """Return the resident bytes now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def peak() -> int:
    """Return the most resident bytes since the mark was last reset."""
    line = next(
        entry
        for entry in Path("/proc/self/status").read_text().splitlines()
        if "VmHWM" in entry
    )
    return int(line.split()[1]) * 1024
