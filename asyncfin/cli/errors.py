"""What a command failed of: one line that says what to do, and its exit code."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING

from cyclopts import CycloptsError

from asyncfin.errors import (
    AllowanceExhaustedError,
    AsyncfinError,
    AuthenticationError,
    BucketUnavailableError,
    IncompleteResultError,
    MalformedAnswerError,
    ManifestMismatchError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    SelectionError,
    ServerFailureError,
    TransportError,
    ValidationFailedError,
    printable,
)
from asyncfin.extraction.exit import Exit
from asyncfin.words import counted

if TYPE_CHECKING:
    from asyncfin.extraction.report import Failure


class UsageError(Exception):
    """The command line, or a file that it names, is wrong; the message says what to
    do.
    """


class EntitiesFailedError(Exception):
    """Some of many entities failed, or all of them.

    Args:
        failures: the failures, one for each entity that failed.
        total: how many entities there are in all.
    """

    def __init__(self, failures: Sequence[Failure], total: int) -> None:
        entities = counted(total, "entity", "entities")
        super().__init__(f"{len(failures):,} of {entities} failed")
        self.failures, self.total = failures, total


class InterruptedRunError(KeyboardInterrupt):
    """A signal ended an extraction before its end; the argument is the exit code."""


class ServiceDiffersError(Exception):
    """`asyncfin check` has found something that breaks the description, or has not made
    every check.
    """


# What ends a command with an exit code and one line.
FAILURES = (
    CycloptsError,
    UsageError,
    EntitiesFailedError,
    ServiceDiffersError,
    AsyncfinError,
    OSError,
)

# For unknown ids and words. The messages of other selection errors say what would be
# right.
_SEE_CATALOGUE = "`asyncfin catalogue` shows what can be asked for"

# The options that select series, by the field of a Select.
SELECT_OPTIONS = {
    "metric_ids": "metric",
    "reporting_group_ids": "group",
    "scope_combinations": "scope",
    "scope_group_ids": "scope_group",
    "basis": "basis",
    "cadence": "cadence",
    "period_meaning": "period_meaning",
    "series_ids": "series",
}

# What the library calls a part of the query, by what the command line does.
OPTIONS = {
    "base_url": "--base-url or ASYNCFIN_BASE_URL",
    "token": "the token",
    "user_agent": "ASYNCFIN_USER_AGENT",
    "account": "ASYNCFIN_ACCOUNT",
    "months": "--trailing",
    "period": "--exact",
    "end_month": "the fiscal month",
    "start": "--from",
    "end": "--to",
    "to": "--into",
    "n": "--latest",
    "when": "the time",
}
_SAME_NAMES = (
    *("rate", "last", "history", "since", "port", "daily_budget"),
    *("max_in_flight", "max_outage", "max_requests", "max_age", "fresh_for"),
)
for _field in (*SELECT_OPTIONS, *_SAME_NAMES):
    OPTIONS[_field] = f"--{SELECT_OPTIONS.get(_field, _field).replace('_', '-')}"
# The names that are no words, wherever a message has them.
_ARGUMENT = re.compile(r"\b[a-z]+_[a-z_]+\b")
# What cyclopts writes about an unknown word, and its guess.
_UNKNOWN = re.compile(
    r'(Unknown (?:command|option:) "?([\w-]+)"?\.)(?: Did you mean "?([\w-]+))?'
)
_NO_VALUE = re.compile(r'Command "\S+" parameter (\S+) requires an argument')
# The share of common letters from which the guess is close.
_ALIKE = 0.65
# The names that are gone, and what replaces them.
_SUCCESSORS = {
    "completion": "asyncfin --install-completion",
    "dataset": "asyncfin catalogue --publication ENTITY_ID",
    "demo": "asyncfin sandbox --demo",
    "limits": "asyncfin usage --limits",
    "search": "asyncfin catalogue --search WORDS ENTITY_ID",
    "--plot": "panel.plot() in Python, or asyncfin explore",
    "--ttm": "asyncfin.last_twelve_months in Python",
    "--host": "asyncfin mcp --http, or mount asyncfin.web.explorer in a program",
    "--root-path": "a program that mounts asyncfin.web.explorer",
}

# What to do about an error: the first class that matches decides.
_ADVICE: tuple[tuple[type[Exception], str], ...] = (
    (UsageError, ""),
    (CycloptsError, ""),
    (ServiceDiffersError, ""),
    (EntitiesFailedError, "the error of each shows what to correct"),
    (SelectionError, ""),
    (ValidationFailedError, "correct the command; it fails again unchanged"),
    (AuthenticationError, "put a token issued for the REST API into ASYNCFIN_TOKEN"),
    (PermissionDeniedError, "check the token's permissions and the account's access"),
    (
        NotFoundError,
        "check the entity id, its letter case too, and that the account has access to "
        "its dataset",
    ),
    (AllowanceExhaustedError, "run it again then"),
    (RateLimitedError, "run it again later"),
    (ServerFailureError, "run it again later"),
    (TransportError, "check the base URL and the network, then run it again"),
    (
        IncompleteResultError,
        "run it again, and report it to the service's support if it stays",
    ),
    (MalformedAnswerError, "report it to the service's support"),
    (
        BucketUnavailableError,
        "check the file or the server of the bucket, then run it again",
    ),
    (ManifestMismatchError, ""),
    (OSError, "check the file and its folder"),
)


def print_error(line: str) -> None:
    """Write a line to standard error, if it is open."""
    with suppress(OSError):
        print(printable(line), file=sys.stderr, flush=True)  # noqa: T201


@contextmanager
def prefix_errors(option: str) -> Iterator[None]:
    """Name the option in a SelectionError: the library does not know the options."""
    try:
        yield
    except SelectionError as error:
        complaint = with_options(error)
    else:
        return
    # In place of an argument's name.
    complaint = re.sub(rf"^([a-z_]+ (?=must )|{re.escape(option)}:? )", "", complaint)
    between = " " if complaint.startswith("must ") else ": "
    # Out here, so that it has no context: one mistake of the user's is one error, not
    # two.
    raise UsageError(f"{option}{between}{complaint}")


def exit_line(failure: Exception) -> tuple[Exit, str]:
    """Return the exit code of one of FAILURES and its line for standard error."""
    complaint, advice = str(failure), _find_advice(type(failure))
    match failure:
        case CycloptsError():
            complaint = _describe(failure)
        case NotFoundError(has_error_object=False):
            advice = ""
        case SelectionError():
            complaint = with_options(failure)
            if failure.missing:
                advice = _SEE_CATALOGUE
        case OSError() if "://" in str(failure.filename):
            # The reason can be a long text about an address that the user has never
            # seen.
            complaint = f"{failure.filename} can't be used ({failure.strerror})"
            advice = "check the address and the credentials, or run it again later"
    # Notes are the names of the entities that it is about. One line, whatever the
    # message holds: standard error is read by scripts too.
    texts = [*getattr(failure, "__notes__", ()), complaint]
    line = " ".join(": ".join(texts).split())
    line = name_options(line)
    # The service's message often ends with a full stop.
    if advice:
        line = f"{line.removesuffix('.')}; {advice}"
    return exit_code_for(failure), f"asyncfin: {line}"


def name_options(text: str) -> str:
    """Return a text with options in place of Python's names."""
    text = re.sub(r"the option `(\w+)`", _write_option, text)
    return _ARGUMENT.sub(lambda match: OPTIONS.get(match[0], match[0]), text)


def _write_option(match: re.Match[str]) -> str:
    return f"--{match[1].replace('_', '-')}"


def exit_code_for(failure: Exception) -> Exit:
    """Return the exit code of one of FAILURES."""
    if isinstance(failure, (UsageError, CycloptsError)):
        return Exit.USAGE
    # Here, since the list of commands needs no report.
    from asyncfin.extraction.report import exit_code_of, exit_code_of_failures

    if isinstance(failure, EntitiesFailedError):
        return exit_code_of_failures(failure.failures, failure.total)
    return exit_code_of(type(failure), getattr(failure, "concerns", None))


def with_options(error: SelectionError) -> str:
    """Return an error's text with options in place of Python."""
    complaint = re.sub(r",? or None\b[^,;]*,", ",", error.problem)
    argument = re.split("[ :]", complaint, maxsplit=1)[0]
    complaint = OPTIONS.get(argument, argument) + complaint.removeprefix(argument)
    if isinstance(error.instead, str):  # the label of a period
        complaint += f'; write "{error.instead}"'
    return name_options(complaint)


def _find_advice(kind: type[Exception]) -> str:
    # Subclasses are listed before their bases.
    for base, text in _ADVICE:
        if issubclass(kind, base):
            return text
    return "run it again"


def _describe(error: CycloptsError) -> str:
    """Describe the mistake of a command line: the successor of a removed name, or
    what cyclopts reports, with its guess only if that is close.
    """
    complaint = str(error).partition(" Available")[0].strip()
    if match := _UNKNOWN.match(complaint):
        report, word, guess = match.groups("")
        if word in _SUCCESSORS:
            return f"there is no {word}: write {_SUCCESSORS[word]}"
        if get_close_matches(word.strip("-"), [guess.strip("-")], cutoff=_ALIKE):
            return complaint
        complaint = report
    # It is left out, or its value is.
    complaint = _NO_VALUE.sub(r"\1 needs a value", complaint)
    return f"{complaint.removesuffix('.')}; see --help"
