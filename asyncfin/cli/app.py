"""The commands, and running one: from arguments to an exit code."""

import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Parameter

from asyncfin.cli.exits import EntitiesFailedError, Exit, UsageError, ending
from asyncfin.cli.output import open_devnull, print_error
from asyncfin.errors import AsyncfinError, own_version

# A new command: a module with a function, and its line here. It is imported when it is called.
COMMANDS = (
    "asyncfin.cli.demo:demo",
    "asyncfin.cli.sandbox:sandbox",
    "asyncfin.cli.dataset:dataset",
    "asyncfin.cli.dataset:catalogue",
    "asyncfin.cli.query:query",
    "asyncfin.cli.extract:extract",
    "asyncfin.cli.explore:explore",
    "asyncfin.cli.mcp:mcp",
    "asyncfin.cli.account:usage",
    "asyncfin.cli.account:limits",
    "asyncfin.cli.cache:cache",
    "asyncfin.cli.names:names",
    "asyncfin.cli.completion:completion",
)

_HELP = """Read financial datasets: what one holds, and any of its series as a table.

Start with real figures from a local service; no account is needed:

  asyncfin demo

The service is named by ASYNCFIN_BASE_URL or --base-url. The access token comes
from ASYNCFIN_TOKEN, or from a file by --token-file. It is never an argument,
since others on this machine can see those.

Exit codes:
    0  done                               4  no such entity or dataset
    1  failed on the way, or partial      5  the request allowance is used up
    2  wrong usage, selection or file   130  Ctrl-C
    3  token or permission refused      141  the output's reader went away
"""

app = App(
    name="asyncfin",
    help=_HELP,
    help_format="plaintext",
    version=own_version,
    default_parameter=Parameter(negative_bool=(), negative_iterable=(), show_default=False),
    exit_on_error=False,
    print_error=False,
    result_action="return_value",
    suppress_keyboard_interrupt=False,
)
for command in COMMANDS:
    app.command(command)


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; a failure is one line on standard error."""
    use_utf8()
    if not arguments or arguments[0] in ("--help", "-h"):
        app.resolved_commands()  # else the list of commands has no descriptions
    try:
        app(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
        return Exit.BROKEN_PIPE
    except (CycloptsError, UsageError, EntitiesFailedError, AsyncfinError, OSError) as failure:
        code, line = ending(failure)
        print_error(line)
        try:
            sys.stdout.flush()
        except OSError:
            discard_output()
        return code
    return Exit.OK


def use_utf8() -> None:
    """Write UTF-8 into files and pipes, whatever the locale; a terminal shows "?" for what it cannot encode.

    What is written to a closed standard output or error is discarded.
    """
    sys.stdout, sys.stderr = sys.stdout or open_devnull(), sys.stderr or open_devnull()
    for stream, errors in ((sys.stdout, "strict"), (sys.stderr, "backslashreplace")):
        if stream.isatty():
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
        else:  # an error may quote bytes of an argument that are not text
            stream.reconfigure(encoding="utf-8", errors=errors)  # type: ignore[union-attr]


def discard_output() -> None:
    """Redirect standard output to the null device, so that the interpreter's last flush does not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
