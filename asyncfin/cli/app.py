"""The commands, and running one: from arguments to an exit code."""

import os
import re
import sys
from collections.abc import Sequence
from inspect import cleandoc
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TextIO

from cyclopts import App, Group, Parameter

from asyncfin.cli.errors import FAILURES, UsageError, exit_line, print_error
from asyncfin.errors import own_version
from asyncfin.extraction.exit import Exit

# A new command: a module with a function, and its line here. The first line of its help
# is repeated, so that the list of commands imports none of them. The module imports
# what help and checks of usage need. What the command runs with is imported in its
# function, after the checks: aiohttp and pyarrow take longer to import than everything
# else.
COMMANDS = {
    "Figures": {
        "catalogue:catalogue": "List the series of entities, or search them by words.",
        "query:query": "Query series and print their values as a table.",
        "explore:explore": "Show companies and their values on a page of this machine.",
    },
    "Many entities": {
        "extract:extract": "Write one query of many entities to Parquet files.",
        "account:status": "Show extractions, the shared bucket and the cache.",
        "feed:changes": "Show what changed in an extraction.",
        "feed:as_of": "Show an extraction as it was known at a time.",
        "catalogue:names": "Write a file of names for entity ids.",
    },
    "Service and account": {
        "account:usage": "Print the account's daily usage, or its limits.",
        "account:check": "Compare the service with its description.",
        "account:cache": "Show the size of the cache in a folder, or clear it.",
    },
    "Tests and assistants": {
        "sandbox:sandbox": "Run a local service, or show a demo of it.",
        "sandbox:record": "Write entities' datasets to files for the sandbox.",
        "explore:mcp": "Serve tools for an assistant (MCP).",
    },
}

# The commands as users write them.
NAMES: dict[str, str] = {}
for _group in COMMANDS.values():
    for _command in _group:
        NAMES[_command] = _command.partition(":")[2].replace("_", "-")
_HELP = """Read financial datasets: the series of each, and their values as tables.

Start with real figures from a local service; no account is needed:

  asyncfin sandbox --demo

ASYNCFIN_BASE_URL or --base-url gives the service's address, ASYNCFIN_TOKEN or
the file of --token-file the access token. The token is never an argument,
because other users of the machine can see arguments.

Exit codes:
    0  done                            6  the service fails or is not reached
    1  failure, or a partial result    7  a disk, store or bucket can't be used
    2  wrong usage or selection        8  another run is at work on the folder
    3  token or permission rejected   130  Ctrl-C
    4  no such entity or dataset     141  the reader of the output closed it
    5  the allowance is used up      143  SIGTERM; sandbox exits with 0
"""


# The end of a line within an argument's text.
_BREAK = re.compile(r"\n {8,}")


def _join_lines(command: Any) -> None:
    """Write each argument's text in one line of the docstrings of a command and of its
    options: cyclopts prints it in the lines in which it was written.
    """
    items = [command]
    for annotation in command.__annotations__.values():
        # Annotated[kind, ...] has an origin.
        kind = getattr(annotation, "__origin__", annotation)
        items += getattr(kind, "__mro__", ())
    for item in items:
        # Python 3.13 has removed the indent of the docstring already.
        doc = cleandoc(item.__doc__ or "")
        if _BREAK.search(doc):
            item.__doc__ = _BREAK.sub(" ", doc)


def application(command_name: str | None = None) -> App:
    """Return the application.

    Each command has its line of COMMANDS as help, for which it is not imported, except
    the one whose help is printed.
    """
    app = App(
        name="asyncfin",
        help=_HELP,
        help_format="plaintext",
        version=own_version,
        default_parameter=Parameter(
            negative_bool=(), negative_iterable=(), show_default=False
        ),
        # Errors are raised here, and each becomes an exit code and one line.
        exit_on_error=False,
        print_error=False,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    app.register_install_completion_command()
    for position, (title, commands) in enumerate(COMMANDS.items()):
        group = Group(title, sort_key=position)
        for command, line in commands.items():
            path = f"asyncfin.cli.{command}"
            if NAMES[command] == command_name:
                function = resolve_name(path)
                _join_lines(function)
                app.command(function, name=command_name, group=group)
            else:
                app.command(path, help=line, group=group)
    return app


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; a failure is one line on standard
    error.
    """
    _prepare_streams()
    try:
        _check_text(arguments)
        is_help = not {"--help", "-h"}.isdisjoint(arguments)
        match arguments:
            case [name, *_] if is_help and name in NAMES.values():
                application(name).help_print([name])
            case _:
                application()(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        return Exit.BROKEN_PIPE
    except FAILURES as failure:
        code, line = exit_line(failure)
        print_error(line)
        try:
            sys.stdout.flush()
        except OSError:
            _discard_output()
        return code
    return Exit.OK


def _check_text(arguments: Sequence[str]) -> None:
    """Reject arguments that are not UTF-8: Python decodes them to text that cannot be
    encoded.
    """
    for text in arguments:
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UsageError(f"arguments must be text in UTF-8, not {text!r}") from None


def _prepare_streams() -> None:
    """Write UTF-8 into files and pipes, whatever the locale; a terminal shows "?" for
    what it cannot encode.

    What is written to a closed standard output or error is discarded.
    """
    sys.stdout = sys.stdout or _make_null_stream()
    sys.stderr = sys.stderr or _make_null_stream()
    for stream, errors in ((sys.stdout, "strict"), (sys.stderr, "backslashreplace")):
        if stream.isatty():
            # A terminal's encoding is its own affair: UTF-8 would be unreadable on one
            # that has another.
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
        else:  # an error may quote bytes of an argument that are not text
            stream.reconfigure(encoding="utf-8", errors=errors)  # type: ignore[union-attr]


def _discard_output() -> None:
    """Redirect standard output to the null device, so that the interpreter's last flush
    does not fail.
    """
    # By descriptor: the buffer of sys.stdout is written at exit, into whatever the
    # descriptor then is.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _make_null_stream() -> TextIO:
    """Return a replacement for a closed standard output or error."""
    return Path(os.devnull).open("w")
