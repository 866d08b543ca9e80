"""The command line: `asyncfin`. Each module here holds a command or a few; `app.py`
lists them.
"""

import os
import sys
from importlib.util import find_spec

if any(find_spec(name) is None for name in ("cyclopts", "rich")):
    sys.stderr.write(
        "asyncfin: the command line is an extra; install it with: pip install "
        '"asyncfin[cli]"\n'
    )
    raise SystemExit(2)


def main() -> int:
    """Run the command that the process's arguments name, and return its exit code
    (docs/cli.md).
    """
    try:
        # Here, so that Ctrl-C is quiet while libraries are read.
        from asyncfin.cli.app import run

        return run(sys.argv[1:])
    except KeyboardInterrupt as error:
        return int(error.args[0]) if error.args else 130
    finally:
        # What the reader of standard error has not taken would fail at exit, with exit
        # code 120.
        try:
            sys.stderr.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
