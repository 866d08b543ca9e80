"""Optional libraries, which threads may need for the first time at one moment."""

import sys
from pathlib import Path
from threading import Thread

import pytest

from asyncfin.optional import library

# While it is imported, another thread needs it too.
MODULE = """
import sys

other = sys.start_thread()
other.join(timeout=0.2)
value = 1
"""


def test_half_imported_library_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread never sees a module that another one is still importing."""
    (tmp_path / "slow_library.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    values: list[object] = []

    def read() -> None:
        values.append(getattr(library("slow_library", "slow"), "value", "half imported"))

    def start_thread() -> Thread:
        thread = Thread(target=read)
        thread.start()
        threads.append(thread)
        return thread

    threads: list[Thread] = []
    monkeypatch.setattr(sys, "start_thread", start_thread, raising=False)
    assert library("slow_library", "slow").value == 1
    threads[0].join()
    assert values == [1]
