"""What a command failed of: one line that says what to do, and its exit code."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from cyclopts import (
    CycloptsError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

import asyncfin.errors
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

# What the library calls a part of the question, by what the command line does.
OPTIONS = {
    "user_agent": "ASYNCFIN_USER_AGENT",
    "account": "ASYNCFIN_ACCOUNT",
    "months": "--trailing",
    "start": "--from",
    "end": "--to",
    "to": "--into",
    "n": "--latest",
    "when": "the time",
    "hosts": "--host",
}
_SAME_NAMES = (
    *("base_url", "rate", "last", "history", "since", "port", "daily_budget"),
    *("max_in_flight", "max_outage", "max_requests", "max_age", "fresh_for"),
)
for _field in (*SELECT_OPTIONS, *_SAME_NAMES):
    OPTIONS[_field] = f"--{SELECT_OPTIONS.get(_field, _field).replace('_', '-')}"
# The options of periods, of which an error names the one that was typed.
_PERIOD_OPTIONS = (
    *("--exact", "--trailing", "--from", "--to"),
    *("--annual", "--quarterly", "--half-yearly"),
)
_MISSING_ARGUMENT = re.compile(r'Command "[^"]*" parameter (\S+) requires an argument')
# The names that are no words, wherever a message has them.
_ARGUMENT = re.compile(r"\b[a-z]+_[a-z_]+\b")

# What to do about an error: the first class that matches decides.
_ADVICE: tuple[tuple[type[Exception], str], ...] = (
    (UsageError, ""),
    (CycloptsError, "see --help"),
    (ServiceDiffersError, ""),
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


def exit_line(failure: Exception, arguments: Sequence[str] = ()) -> tuple[Exit, str]:
    """Return the exit code of one of FAILURES and its line for standard error.

    Args:
        arguments: those of the command; the line names an option as it was typed.
    """
    complaint, advice = str(failure), _find_advice(type(failure))
    match failure:
        case EntitiesFailedError():
            lines = dict[str, None]()
            for item in failure.failures:
                line = _find_advice(getattr(asyncfin.errors, item.error))
                if item.status == 404 and item.is_rejection:
                    line = "check the base URL"
                lines[line or "the report says what to correct"] = None
            advice = "; ".join(lines)
        case CycloptsError():
            complaint = _describe(failure).strip()
            if complaint.endswith("?"):  # it proposes something itself
                advice = ""
        case NotFoundError(has_error_object=False):
            advice = ""
        case NotFoundError(is_name=True):
            advice = "give the id, or a file that has the name as --names FILE"
        case SelectionError():
            options = {word.partition("=")[0] for word in arguments}
            complaint = with_options(failure, options)
            if failure.missing:
                advice = _propose_repeating(failure.missing) or _SEE_CATALOGUE
        case OSError() if "://" in str(failure.filename):
            # The reason can be a long text about an address that the user has never
            # seen.
            complaint = f"{failure.filename} can't be used ({failure.strerror})"
            advice = "the store fails: run it again later"
            if isinstance(failure, PermissionError):
                advice = "check the credentials in the environment"
            elif isinstance(failure, FileNotFoundError):
                advice = "check the address"
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


def with_options(error: SelectionError, options: Collection[str] = ()) -> str:
    """Return an error's text with options in place of Python.

    Args:
        options: those that were typed.
    """
    complaint = error.problem
    argument = re.split("[ :]", complaint, maxsplit=1)[0]
    names = dict(OPTIONS)
    if "--base-url" not in options:
        names["base_url"] = "ASYNCFIN_BASE_URL"
    if period_options := list(filter(options.__contains__, _PERIOD_OPTIONS)):
        names["period"] = names["periods"] = period_options[0]
        bounds = filter(options.__contains__, ("--from", "--to"))
        names["end_month"] = f"the month of {' or '.join(bounds)}"
    complaint = re.sub(r",? or None\b[^,;]*,", ",", complaint)
    if argument in names:
        complaint = names[argument] + complaint.removeprefix(argument)
    complaint = _ARGUMENT.sub(lambda match: names.get(match[0], match[0]), complaint)
    if isinstance(error.instead, str):  # the label of a period
        return f'{complaint}; write "{error.instead}"'
    return complaint


def _propose_repeating(missing: Mapping[str, tuple[str, ...]]) -> str:
    """Return the advice for an unknown id that is a comma-separated list, else ""."""
    for field, ids in missing.items():
        for name in ids:
            if "," in name and (option := OPTIONS.get(field)):
                parts = re.sub(r"\s*,\s*", f" {option} ", name.strip())
                return f"{option} is repeated: {option} {parts}"
    return ""


def _find_advice(kind: type[Exception]) -> str:
    # Subclasses are listed before their bases.
    for base, text in _ADVICE:
        if issubclass(kind, base):
            return text
    return "run it again"


# Words for what is elsewhere, by what is written instead.
_ELSEWHERE = {
    "known-by": "asyncfin as-of FOLDER WHEN",
    "compare": "asyncfin query ENTITY_ID ENTITY_ID",
    "dataset": "asyncfin catalogue --publication ENTITY_ID",
    "demo": "asyncfin sandbox --demo",
    "limits": "asyncfin usage --limits",
    "search": "asyncfin catalogue --search WORDS ENTITY_ID",
    "serve": "asyncfin explore",
    "--entity": "asyncfin query ENTITY_ID",
    "--output": "> FILE, or --into FOLDER",
    "-o": "> FILE, or --into FOLDER",
    "--latest": "asyncfin query --latest N, or --annual --last N",
    "--ttm": "asyncfin query --ttm, or --trailing 12",
    "--token": "--token-file",
    "--start": "--from",
    "--yearly": "--annual",
    "--end": "--to",
    "--format": "--json or --csv",
    "--csv": "asyncfin query --csv",
    "--force": "--replace",
    "--overwrite": "--replace",
}


def _describe(error: CycloptsError) -> str:
    """Return what is wrong with a command line: cyclopts's words, unless ours help
    more.
    """
    word = ""
    match error:
        case UnknownCommandError(unused_tokens=[word, *_]):
            pass
        case UnknownOptionError(token=token):
            word = (token.keyword or token.value).partition("=")[0]
        case UnusedCliTokensError(unused_tokens=[*words]):
            texts = ", ".join(map(repr, words))
            complaint = f"more arguments than the command takes: {texts}"
            if re.search(r"\.\w{2,7}$", words[0]):
                complaint += f"; to write a file, > {words[0]}"
            return complaint
    if word in _ELSEWHERE:
        return f"there is no {word}: did you mean {_ELSEWHERE[word]}?"
    complaint = str(error).partition(" Available")[0]
    complaint = _MISSING_ARGUMENT.sub(r"\1 is missing, or has no value", complaint)
    return complaint.replace('" into date', '" into a date YYYY-MM-DD')
