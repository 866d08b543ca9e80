"""What can go wrong, as one tree.

    AsyncfinError
    |- SelectionError (also ValueError)   rejected before anything was sent
    |  |- ArgumentError                   an argument of the library is wrong
    |  `- UnknownToAllError               no entity of an extraction has the names
    |- TransportError                     no complete response was received
    |  |- ConnectionFailedError
    |  |- RequestTimeoutError
    |  `- TruncatedAnswerError
    |- ServiceError                       an error response of the service (spec 7)
    |  |- ValidationFailedError           400 validation_failed
    |  |- AuthenticationError             401
    |  |- PermissionDeniedError           403
    |  |- NotFoundError                   404
    |  |- DatasetChangedError             409 dataset_changed
    |  |- RateLimitedError                429
    |  |  `- AllowanceExhaustedError      429, and the wait is longer than allowed
    |  `- ServerFailureError              5xx
    |- MalformedAnswerError               a 2xx response that violates the spec
    |- IncompleteResultError              planned series are missing
    |- BucketUnavailableError             the shared bucket can't be reached
    `- ManifestMismatchError              the place belongs to another query
       `- RunInProgressError              another run uses it

Every error can be pickled, and none contains the access token. What it concerns,
`AsyncfinError.concerns`, follows from its class and its entity:

- question: SelectionError, ManifestMismatchError, ValidationFailedError, and other
  responses below 500 that have the service's error object.
- entity: PermissionDeniedError, NotFoundError, DatasetChangedError,
  MalformedAnswerError, IncompleteResultError and other responses below 500, of an
  entity.
- account: AuthenticationError, RateLimitedError; PermissionDeniedError and
  NotFoundError without an entity.
- service: ServerFailureError, 408, TransportError; MalformedAnswerError without an
  entity, or of a response that asks for a later retry; other responses below 500
  without an entity.
- local: BucketUnavailableError, RunInProgressError, and any other subclass of
  AsyncfinError.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from copyreg import __newobj__  # type: ignore[attr-defined]
from datetime import datetime
from functools import cache
from itertools import islice
from types import MappingProxyType
from typing import (
    Any,
    Literal,
    Protocol,
    Required,
    TypeAlias,
    TypedDict,
    Unpack,
)
from unicodedata import category

from asyncfin.clock import later, utc_text

# What an error concerns, and so what else fails too.
Concern: TypeAlias = Literal["question", "entity", "account", "service", "local"]

# The size of one text of an error, and how many problems or details one error has: a
# service can send millions of either, and errors are logged, pickled and written to
# reports.
MAX_TEXT = 2_000
MAX_ITEMS = 100
# How much of the Python that an error proposes its text has.
_MAX_CODE = 400
# How many details the text of an error names, and how much of each.
_NAMED_DETAILS = 3
_NAMED_DETAIL = 200


def has_id_form(text: str) -> bool:
    """Return whether a text has the form of an entity id: O- and 32 characters without
    blanks.
    """
    return re.fullmatch(r"O-\S{32}", text) is not None


def printable(text: str) -> str:
    """Return a text, which may be the service's, in one line that does nothing to a
    terminal or a log.

    Whatever prints a service's text passes it through here. Controls (ESC, NUL, C1,
    line ends), marks of direction and joining, surrogates and unassigned characters
    become escapes; spaces of any width stay.
    """
    if text.isprintable():
        return text
    return "".join(
        character
        if character.isprintable() or category(character) == "Zs"
        else character.encode("unicode_escape").decode()
        for character in text
    )


def shorten(text: str, limit: int = MAX_TEXT) -> str:
    """Return a text of at most `limit` characters; a longer one ends in an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "\N{HORIZONTAL ELLIPSIS}"


def shorten_middle(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters; a longer one loses its middle.

    Names that begin alike differ at their end.
    """
    if len(text) <= limit:
        return text
    end = (limit - 1) // 2
    return text[: limit - 1 - end] + "\N{HORIZONTAL ELLIPSIS}" + text[len(text) - end :]


class _Facts(TypedDict, total=False):
    operation: str | None
    entity_id: str | None
    request_id: str | None
    at: datetime | None
    attempts: int | None


class _Refusal(_Facts, total=False):
    status: Required[int]
    code: str | None
    message: str
    answered: bool
    has_error_object: bool
    details: Mapping[str, Any] | None


class AsyncfinError(Exception):
    """The root of the errors that concern a question, a request, a shared bucket or an
    extraction's place.

    Disks and object stores that fail raise OSError, a missing extra ImportError, and
    what Python's protocols ask for, such as KeyError for a subscript, is raised too.

    Attributes:
        operation: the operation that failed, such as ``"query"``; None if the error is
            not about a request.
        entity_id: the entity; None for usage and limits.
        request_id: the service's id of the request, if it gave one.
        at: when the error occurred, aware UTC; with 0 `attempts`, of an error that
            concerns the service, since when it fails.
        attempts: how often the request was sent; None if that is not known. 0: not at
            all, because of another request's failure.
    """

    attempts: int | None = None

    def __init__(
        self,
        *args: object,
        operation: str | None = None,
        entity_id: str | None = None,
        request_id: str | None = None,
        at: datetime | None = None,
        attempts: int | None = None,
    ) -> None:
        super().__init__(*args)
        self.operation = operation
        self.entity_id = entity_id
        self.request_id = request_id
        self.at = at
        if attempts is not None:
            self.attempts = attempts

    @property
    def concerns(self) -> Concern:
        """What the error concerns, which decides what follows.

        - ``"question"``: correct the question or the arguments; the same one fails
          again.
        - ``"entity"``: this entity; others can still be read.
        - ``"account"``: the token or the allowance: wait, or use another token.
        - ``"service"``: the service, or the way to it: try again later.
        - ``"local"``: this machine, a store or a place that it uses.
        """
        return "local"

    def __str__(self) -> str:
        operation = f" ({self._write_operation()})" if self.operation else ""
        return printable(f"{super().__str__()}{operation}{self._write_outage()}")

    def __reduce__(self) -> tuple[Any, ...]:
        state = self.__dict__.copy()
        if "__notes__" in state:  # a copy has notes of its own
            state["__notes__"] = list(state["__notes__"])
        # Not by the constructor, whose arguments are keyword-only.
        return __newobj__, (type(self), *self.args), state

    def report(self) -> str:
        """Write what the service's support needs (spec 7), one fact per line and
        nothing secret.

        The lines are the error, operation, entity, time, HTTP status and code, request
        id, attempts and versions, and the message if it is not the service's own.
        Unknown facts are left out.
        """
        import platform  # slow to import, rarely needed

        is_response = getattr(self, "answered", False)
        facts: dict[str, object] = {
            "error": type(self).__name__,
            "message": None if getattr(self, "has_error_object", False) else str(self),
            "operation": self.operation,
            "entity": self.entity_id,
            "time": utc_text(self.at) if self.at else None,
            "status": getattr(self, "status", None) if is_response else None,
            "code": getattr(self, "code", None),
            "request id": self.request_id,
            "details": len(_list_details(getattr(self, "details", {}))) or None,
            "attempts": self.attempts,
            "versions": f"asyncfin {own_version()}, Python {platform.python_version()}",
        }
        return "\n".join(
            f"{name}: {printable(str(fact))}"
            for name, fact in facts.items()
            if fact is not None
        )

    def _write_outage(self) -> str:
        """Return since when the service fails, for the text; nothing unless that is why
        it was not sent.
        """
        if self.attempts != 0 or self.concerns != "service" or self.at is None:
            return ""
        return (
            "; not sent: the service has failed since "
            f"{utc_text(self.at.replace(microsecond=0))}"
        )

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows in place of a traceback: the caller's,
        and the message.
        """
        from traceback import extract_tb  # rarely needed

        frames = extract_tb(self.__traceback__)
        package = os.path.join(os.path.dirname(__file__), "")
        lines = [f"{type(self).__name__}: {self}"]
        # The caller's is the last frame before the first one of the library.
        for frame in reversed(frames):
            if not frame.filename.startswith(package):
                return [f"line {frame.lineno}: {frame.line}", *lines]
        return lines

    def _write_operation(self) -> str:
        """Return the operation and the entity, for the text; nothing if they are not
        known.
        """
        entity = f" of {self.entity_id}" if self.entity_id else ""
        return f"in {self.operation}{entity}" if self.operation else ""


def ends_all(error: AsyncfinError, *, waits: bool) -> bool:
    """Return whether what failed one of several entities fails all others too.

    Args:
        waits: whether requests wait through an outage of the service, as on the bulk
            lane. One that was not sent because of an outage has then waited long
            enough.
    """
    match error.concerns:
        case "account":
            # After a short refusal, requests are possible again soon.
            return isinstance(error, AllowanceExhaustedError) or not isinstance(
                error, RateLimitedError
            )
        case "service":
            return waits and error.attempts == 0
        case concerns:
            return concerns == "local"


class SelectionError(AsyncfinError, ValueError):
    """The question is wrong. Raised before any query is sent for it.

    The text is `problem`, and the Python of `instead` if there is one.

    Attributes:
        missing: the requested ids and words that do not exist, by field, as
            `Catalogue.missing` returns them; empty if something else is wrong.
        instead: the period selection or the label of a period that was probably meant,
            which the same call accepts. None if that is not clear, or if something else
            is wrong.
    """

    concerns: Concern = "question"

    def __init__(
        self,
        *args: object,
        missing: Mapping[str, tuple[str, ...]] | None = None,
        instead: Any = None,
        **facts: Unpack[_Facts],
    ) -> None:
        super().__init__(*args, **facts)
        self.missing: Mapping[str, tuple[str, ...]] = missing or {}
        self.instead = instead

    @property
    def problem(self) -> str:
        """What is wrong, without `instead`: a program proposes that in its own
        words.
        """
        return super().__str__()

    def __str__(self) -> str:
        if self.instead is None:
            return self.problem
        is_label = isinstance(self.instead, str)
        code = f'"{self.instead}"' if is_label else repr(self.instead)
        return f"{self.problem}; write {shorten(code, _MAX_CODE)}"


class ArgumentError(SelectionError):
    """An argument that is not part of a question is wrong, such as a timeout, a URL or
    a rate.
    """


@cache
def own_version() -> str:
    """Return the installed version of this library; "unknown" if it is not
    installed.
    """
    # Slow to import, rarely needed.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("asyncfin")
    except PackageNotFoundError:
        return "unknown"


class Origin(Protocol):
    """What completes the errors about a request: its response, a page read from it, or
    its progress.
    """

    @property
    def at(self) -> datetime | None: ...
    @property
    def request_id(self) -> str | None: ...
    @property
    def attempts(self) -> int | None: ...


def complete_error(
    error: AsyncfinError,
    operation: str,
    entity_id: str | None,
    origin: Origin | None = None,
) -> None:
    """Complete an error by the facts of its request; the error's own facts stay."""
    # The caller that wraps a request knows these two best, so they are replaced.
    error.operation, error.entity_id = operation, entity_id
    if origin is not None:
        error.at = error.at or origin.at
        error.request_id = error.request_id or origin.request_id
        error.attempts = origin.attempts


class TransportError(AsyncfinError):
    """No complete response was received. `at` is when the last of `attempts` failed.

    Attributes:
        sent: whether the service may have received the request.
        retryable: whether a retry can help.
    """

    concerns: Concern = "service"
    # Until the sender says otherwise: an error that is raised elsewhere is of one
    # attempt.
    attempts = 1

    def __init__(
        self,
        message: str,
        *,
        sent: bool = True,
        retryable: bool = True,
        **facts: Unpack[_Facts],
    ) -> None:
        super().__init__(message, **facts)
        self.sent = sent
        self.retryable = retryable


class ConnectionFailedError(TransportError):
    """No connection could be made, or it broke before a response began."""


class RequestTimeoutError(TransportError):
    """One of the `Timeouts` of an attempt has expired."""


class TruncatedAnswerError(TransportError):
    """The response began, but the connection ended before it was complete."""


class ServiceError(AsyncfinError):
    """An error response of the service (spec 7).

    Attributes:
        status: the HTTP status.
        code: the service's error code, on which to base decisions; None if the response
            had none.
        message: the service's text for people, which may change at any time.
        sent_at: when the attempt was sent that it responds to, aware UTC.
        at: when the response was received, aware UTC.
        answered: whether it is a response. False: no request was sent, because the
            token callable failed, the bucket's allowance is used up, or the service
            fails.
        has_error_object: whether the response has the error object of the spec. False:
            it probably comes from something in front of the service, such as a proxy,
            and `message` is this library's.

    Texts are cut at 2,000 characters. See `details` for the other fields of the error
    object.
    """

    attempts = 1
    sent_at: datetime | None = None

    def __init__(
        self,
        *,
        status: int,
        code: str | None = None,
        message: str = "",
        answered: bool = True,
        has_error_object: bool = True,
        details: Mapping[str, Any] | None = None,
        **facts: Unpack[_Facts],
    ) -> None:
        # Ids and codes are bounded too: something in front of the service may send
        # anything.
        self.code = code and shorten(code)
        self.message = shorten(message)
        if request_id := facts.get("request_id"):
            facts["request_id"] = shorten(request_id)
        super().__init__(
            status, self.code, self.message, facts.get("request_id"), **facts
        )
        self.status = status
        self.answered = answered
        self.has_error_object = answered and has_error_object
        self.details = details or {}

    @property
    def concerns(self) -> Concern:
        """Redirects, 408 and from 500 on: the service. Others: the question, if the
        service says so.
        """
        if self.status >= 500 or self.status < 400 or self.status == 408:
            return "service"
        if self.has_error_object:
            return "question"
        return "service" if self.entity_id is None else "entity"

    def facts(self) -> Any:
        """Return the arguments for another error about the same response."""
        return {name: getattr(self, name) for name in _Refusal.__annotations__}

    @property
    def details(self) -> Mapping[str, Any]:
        """The other fields of the service's error object, unchanged; read-only.

        For ``validation_failed`` these are the issues of single fields (spec 7, which
        does not show their structure). Texts are cut at 2,000 characters, arrays and
        objects at 100 entries in total.
        """
        return MappingProxyType(self._details)

    @details.setter
    def details(self, details: Mapping[str, Any]) -> None:
        # This bound is for all entries together.
        self._details = _copy_bounded(details, iter(range(MAX_ITEMS)))

    def __str__(self) -> str:
        head = f"{self.status} {self.code}" if self.code else str(self.status)
        request = f" (request {self.request_id})" if self.request_id else ""
        operation = f" {self._write_operation()}" if self.operation else ""
        issues = _list_details(self._details)
        texts = [shorten(issue, _NAMED_DETAIL) for issue in issues[:_NAMED_DETAILS]]
        if len(issues) > len(texts):
            texts.append(f"and {len(issues) - len(texts)} more")
        details = f" [{'; '.join(texts)}]" if texts else ""
        return printable(
            f"{head}{operation}{request}: "
            f"{self.message or 'no message'}{details}{self._write_outage()}"
        )


def _copy_bounded(value: Any, room: Iterator[int]) -> Any:
    """Copy what a service sent as JSON, with at most as many entries as `room` has."""
    match value:
        case str():
            return shorten(value)
        case Mapping():
            fields = zip(islice(value.items(), MAX_ITEMS), room, strict=False)
            return {
                shorten(name): _copy_bounded(entry, room) for (name, entry), _ in fields
            }
        case list() | tuple():
            entries = zip(islice(value, MAX_ITEMS), room, strict=False)
            return [_copy_bounded(entry, room) for entry, _ in entries]
    return value


def _list_details(details: Mapping[str, Any]) -> list[str]:
    """Return a line for each detail; an array, as of field issues, has one for each
    entry.
    """
    lines = []
    for name, value in details.items():
        for entry in value if isinstance(value, list) else [value]:
            text = entry
            if not isinstance(entry, str):
                text = json.dumps(entry, ensure_ascii=False, default=str)
            lines.append(f"{name}: {text}")
    return lines


class ValidationFailedError(ServiceError):
    """400: the service found the request invalid. Sending it again unchanged does not
    help.
    """

    concerns: Concern = "question"


class AuthenticationError(ServiceError):
    """401: the access token is missing, invalid, or not issued for the REST API."""

    concerns: Concern = "account"


class PermissionDeniedError(ServiceError):
    """403: the token does not have the permission, or the account does not have
    access.
    """

    @property
    def concerns(self) -> Concern:
        """The entity, also without the service's error object; the account for usage
        and limits.
        """
        return "account" if self.entity_id is None else "entity"


class NotFoundError(ServiceError):
    """404: the item is missing, or not available to the account.

    An entity is requested by its id. For a name, a file of names has the id:
    ``read_names(FILE).id(NAME)``.

    Attributes:
        is_name: whether the requested entity is probably a name: not O- and 32
            characters.
    """

    @property
    def is_name(self) -> bool:
        return self.entity_id is not None and not has_id_form(self.entity_id)

    def __str__(self) -> str:
        text = super().__str__().removesuffix(".")
        if self.answered and not self.has_error_object:
            advice = "it is not the service's response: the base URL is probably wrong"
            return f"{text}; {advice}"
        if self.entity_id is None or self.code is None:
            return text
        text = f"{text}; entity ids come from the operator of the service"
        return f"{text}; check the base URL too" if self.answered else text

    concerns = PermissionDeniedError.concerns


class DatasetChangedError(ServiceError):
    """409 dataset_changed: the pinned publication was replaced."""

    concerns: Concern = "entity"


class RateLimitedError(ServiceError):
    """429: a request limit is reached.

    Attributes:
        retry_after: the requested wait in seconds; None if the response had none.
    """

    concerns: Concern = "account"

    def __init__(
        self, *, retry_after: float | None = None, **facts: Unpack[_Refusal]
    ) -> None:
        super().__init__(**facts)
        self.retry_after = retry_after


class AllowanceExhaustedError(RateLimitedError):
    """The allowance is used up for longer than `Retry.max_retry_after`, or the bucket's
    daily budget is.

    Attributes:
        resume_at: when requests are possible again, aware UTC.
        answered: False: the bucket refused, because of its budget or a response to
            another request. An earlier failure of this request is the error's cause.
    """

    def __init__(
        self,
        *,
        resume_at: datetime,
        retry_after: float | None = None,
        **facts: Unpack[_Refusal],
    ) -> None:
        super().__init__(retry_after=retry_after, **facts)
        self.resume_at = resume_at

    def __str__(self) -> str:
        # Rounded up: a moment before it is one at which the request is still rejected.
        moment = later(self.resume_at, 0.999_999).replace(microsecond=0)
        end = f"requests are possible again at {utc_text(moment)}"
        if self.answered:
            return f"{super().__str__()} ({end})"
        return f"{self.message}, {end}"


class ServerFailureError(ServiceError):
    """5xx: a failure on the service's side, which retries did not overcome."""

    concerns: Concern = "service"


class MalformedAnswerError(AsyncfinError):
    """A 2xx response that violates the spec.

    Attributes:
        problems: one line each, with its JSON path if it has one; at most 100, each of
            at most 2,000 characters.
        omitted: how many more there were.
        is_json: whether it is JSON. False: it probably comes from something in front of
            the service, such as a gateway that serves its own page.
    """

    def __init__(
        self,
        problems: str | Iterable[str],
        *,
        is_json: bool = True,
        **facts: Unpack[_Facts],
    ) -> None:
        lines = iter((problems,) if isinstance(problems, str) else problems)
        self.problems = tuple(shorten(line) for line in islice(lines, MAX_ITEMS))
        self.omitted = sum(1 for _ in lines)
        self.is_json = is_json
        # Bounded as a whole, but how many more there were stays at its end.
        end = f" (and {self.omitted:,} more)" if self.omitted else ""
        text = shorten("; ".join(self.problems), MAX_TEXT - len(end))
        super().__init__(text + end, **facts)

    @property
    def concerns(self) -> Concern:
        """The entity; the service for usage and limits, and if it is not JSON."""
        return "service" if self.entity_id is None or not self.is_json else "entity"


class IncompleteResultError(AsyncfinError):
    """Planned series are missing; `series_ids` names them.

    `at` is when the last response was received.
    """

    concerns: Concern = "entity"

    def __init__(
        self, message: str, *, series_ids: Iterable[str] = (), **facts: Unpack[_Facts]
    ) -> None:
        super().__init__(message, **facts)
        self.series_ids = tuple(series_ids)


class BucketUnavailableError(AsyncfinError):
    """The shared bucket can't be reached, and has no fallback: nothing was sent."""


class ManifestMismatchError(AsyncfinError):
    """The folder or prefix of an extraction belongs to another query, or contains
    other files.
    """

    concerns: Concern = "question"


class RunInProgressError(ManifestMismatchError):
    """Another run is writing to the folder or prefix, or has taken it over: nothing
    more is written.
    """

    concerns: Concern = "local"
