"""The one line that says what went wrong and what to do, and its exit code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cyclopts import CycloptsError

import asyncfin.errors
from asyncfin.cli.mistakes import CommandsWith, described
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
)
from asyncfin.extraction.exit import Exit
from asyncfin.words import counted, either

if TYPE_CHECKING:
    from asyncfin.extraction.report import Failure


class UsageError(Exception):
    """The command line, or a file that it names, is wrong; the message says what to
    do.
    """


class EntitiesFailedError(Exception):
    """Some of many entities failed, or all of them.

    Args:
        failed: the failure of each failed one.
        entities: how many there are in all.
    """

    def __init__(self, failed: Sequence[Failure], entities: int) -> None:
        super().__init__(
            f"{len(failed):,} of {counted(entities, 'entity', 'entities')} failed"
        )
        self.failed = tuple(failed)
        self.entities = entities


class InterruptedRunError(KeyboardInterrupt):
    """A signal ended an extraction before its end; the argument is the exit code."""


class ServiceDiffersError(Exception):
    """A check of the service found breaks of its description, or was not complete."""

    def __init__(self, breaks: int) -> None:
        found = (
            f"the service breaks its description: {counted(breaks, 'finding')}"
            if breaks
            else ""
        )
        super().__init__(
            found
            or "not all checks were made: give more --max-requests, or run it again"
        )


@contextmanager
def prefix_errors(option: str) -> Iterator[None]:
    """Name the option in a SelectionError: the library does not know the options."""
    try:
        yield
    except SelectionError as error:
        complaint = with_options(error)
    else:
        return
    # Out here, so that it has no context: one mistake of the user's is one error, not
    # two.
    raise UsageError(f"{option}: {complaint}")


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

# The options that take ids, by the field of a Select: each option takes one.
_OPTIONS = {
    "metric_ids": "--metric",
    "reporting_group_ids": "--group",
    "scope_group_ids": "--scope-group",
    "series_ids": "--series",
    "basis": "--basis",
    "cadence": "--cadence",
}

# What to do about an error: the first class that matches decides, else what it
# concerns.
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
        "check the entity id, and that the account has access to its dataset",
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


def exit_line(
    failure: Exception,
    arguments: Sequence[str] = (),
    commands_with: CommandsWith = lambda _: [],
) -> tuple[Exit, str]:
    """Return the exit code of one of FAILURES and its line for standard error.

    `arguments` are those of the command; `commands_with` returns the commands that have
    an option.
    """
    if isinstance(failure, EntitiesFailedError):
        advice = _advice_of_several(failure.failed)
    else:
        advice = _advice_for(type(failure))
    said = (
        described(failure, commands_with)
        if isinstance(failure, CycloptsError)
        else str(failure)
    )
    if isinstance(failure, SelectionError):
        said = with_options(failure, arguments)
    if isinstance(failure, NotFoundError) and failure.is_name:
        advice = "give the id, or a file that has the name as --names FILE"
    # In an object store the reason can be a long text about an address that the user
    # has never seen.
    if isinstance(failure, OSError) and "://" in str(failure.filename):
        said, advice = (
            f"{failure.filename} can't be used: {_of_store(failure)} "
            f"({failure.strerror})",
            "",
        )
    elif isinstance(failure, SelectionError) and failure.missing:
        advice = _repeated(failure.missing) or _SEE_CATALOGUE
    # Notes are the names of the entities that it is about.
    # One line, whatever the message holds: standard error is read by scripts too.
    line = " ".join(": ".join([*getattr(failure, "__notes__", ()), said]).split())
    # The service's message often ends with a full stop.
    code = exit_code_for(failure)
    return (
        code,
        f"asyncfin: {line.removesuffix('.')}; {advice}"
        if advice
        else f"asyncfin: {line}",
    )


def _of_store(failure: OSError) -> str:
    """Return what to do about a failure of an object store."""
    if isinstance(failure, PermissionError):
        return "check the credentials in the environment"
    if isinstance(failure, FileNotFoundError):
        return "check the address"
    return "the store fails: run it again later"


def with_options(error: SelectionError, arguments: Sequence[str] = ()) -> str:
    """Return an error's text with the options that select the proposed periods, instead
    of Python.
    """
    # Here, since the list of commands needs no model.
    from asyncfin import Exact, FiscalRange, Trailing
    from asyncfin.typing import RULES, Rule

    match error.instead:
        case Exact(periods=periods):
            options = [f"--exact {period}" for period in periods]
        case Trailing(months=months):
            options = [f"--trailing {months}"]
        case (
            FiscalRange(start=start, end=end) | Rule(start=start, end=end) as selection
        ):
            options = [f"--{selection.name}"] if isinstance(selection, Rule) else []
            for option, bound in (("--from", start), ("--to", end)):
                if bound:
                    options.append(f"{option} FY{bound.year}-{bound.end_month:02d}")
            options += (
                [f"--last {last}"] if (last := getattr(selection, "last", None)) else []
            )
        case str(label):
            return f'{error.problem}; write "{label}"'
        case _:
            return error.problem
    if options:
        return f"{error.problem}; write {' '.join(options)}"
    # All periods: what is given selects some.
    selecting = [
        *(f"--{name}" for name in RULES),
        "--trailing",
        "--exact",
        "--from",
        "--to",
        "--last",
    ]
    given = [option for option in selecting if option in arguments]
    return f"{error.problem}; leave {either(given, 'and')} out"


def _repeated(missing: Mapping[str, tuple[str, ...]]) -> str:
    """Return the advice for an unknown id that is a comma-separated list; "" for other
    ids.
    """
    for field, ids in missing.items():
        for each in ids:
            if "," in each and (option := _OPTIONS.get(field)):
                again = " ".join(f"{option} {part.strip()}" for part in each.split(","))
                return f"{option} is repeated: {again}"
    return ""


def exit_code_for(failure: Exception) -> Exit:
    """Return the exit code of one of FAILURES: those of the library's errors are its
    own.
    """
    if isinstance(failure, (UsageError, CycloptsError)):
        return Exit.USAGE
    # Here, since the list of commands needs no report.
    from asyncfin.extraction.report import exit_code_of, exit_code_of_failures

    if isinstance(failure, EntitiesFailedError):
        return exit_code_of_failures(failure.failed, failure.entities)
    return exit_code_of(type(failure), getattr(failure, "concerns", None))


def _advice_of_several(failed: Sequence[Failure]) -> str:
    kinds = dict.fromkeys(getattr(asyncfin.errors, each.error) for each in failed)
    return "; ".join(
        dict.fromkeys(
            _advice_for(kind) or "the report says what to correct" for kind in kinds
        )
    )


def _advice_for(kind: type[Exception]) -> str:
    # Subclasses are listed before their bases.
    return next(
        (advice for each, advice in _ADVICE if issubclass(kind, each)), "run it again"
    )
