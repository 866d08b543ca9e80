"""Other processes that use a FileCache, and killing them: `python -m tests.cache.processes 100`."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def start(command: str, *arguments: object, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.cache.worker", command, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def run(command: str, *arguments: object, **environment: str) -> str:
    """Return what another process prints, which must end well."""
    with start(command, *arguments, **environment) as process:
        out, err = process.communicate(timeout=100)
    assert process.returncode == 0, err
    return out.strip()


def files_of(path: Path) -> list[Path]:
    """Return the records and parts of a cache."""
    return sorted(file for file in path.glob("*/**/*") if not file.is_dir())


def kill_writers(path: Path, times: int) -> None:
    """Kill a process at a random moment of its puts, and look at what it leaves; repeat."""
    source, series = random.Random(times), 0
    for _ in range(times):
        with start("fill_for_ever", path) as writer:
            assert writer.stdout
            for _ in range(source.randrange(1, 6)):
                writer.stdout.readline()
            time.sleep(source.random() * 0.01)  # anywhere in a put
            writer.send_signal(signal.SIGKILL)
            writer.communicate()
        right, wrong, broken = map(int, run("look", path).split())
        assert (wrong, broken) == (0, 0)
        series += right
    assert series > times


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory() as parent:
        kill_writers(Path(parent) / "cache", count)
    print(f"{count} writers of a cache were killed: nothing wrong, nothing broken")
