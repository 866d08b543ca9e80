"""The error tree: its shape, what each error says, and that it survives pickling."""

import copy
import pickle
from datetime import UTC, datetime, timedelta

import pytest

from asyncfin import errors
from asyncfin.errors import (
    AllowanceExhaustedError,
    ArgumentError,
    AsyncfinError,
    AuthenticationError,
    BucketUnavailableError,
    ConnectionFailedError,
    DatasetChangedError,
    IncompleteResultError,
    MalformedAnswerError,
    ManifestMismatchError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    RequestTimeoutError,
    RunInProgressError,
    SelectionError,
    ServerFailureError,
    ServiceError,
    TransportError,
    TruncatedAnswerError,
    ValidationFailedError,
    complete_error,
    ends_all,
)
from asyncfin.extraction.report import ExtractReport, Failure, UnknownToAllError

AT = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
ENTITY = "O-" + "a1" * 16
ATTEMPT = {"operation": "query", "entity_id": ENTITY, "at": AT, "attempts": 3}
ANSWER = {"status": 400, "code": "some_code", "message": "a text", "request_id": "r-1", **ATTEMPT}

TREE = {
    AsyncfinError: Exception,
    SelectionError: AsyncfinError,
    ArgumentError: SelectionError,
    BucketUnavailableError: AsyncfinError,
    TransportError: AsyncfinError,
    ConnectionFailedError: TransportError,
    RequestTimeoutError: TransportError,
    TruncatedAnswerError: TransportError,
    ServiceError: AsyncfinError,
    ValidationFailedError: ServiceError,
    AuthenticationError: ServiceError,
    PermissionDeniedError: ServiceError,
    NotFoundError: ServiceError,
    DatasetChangedError: ServiceError,
    RateLimitedError: ServiceError,
    AllowanceExhaustedError: RateLimitedError,
    ServerFailureError: ServiceError,
    MalformedAnswerError: AsyncfinError,
    IncompleteResultError: AsyncfinError,
    ManifestMismatchError: AsyncfinError,
    RunInProgressError: ManifestMismatchError,
}


def example(kind: type[AsyncfinError]) -> AsyncfinError:
    """Return an error of a kind with every field given."""
    if issubclass(kind, AllowanceExhaustedError):
        return kind(resume_at=AT, retry_after=3600.5, **ANSWER)
    if issubclass(kind, RateLimitedError):
        return kind(retry_after=2.5, **ANSWER)
    if issubclass(kind, ServiceError):
        return kind(**ANSWER)
    if issubclass(kind, TransportError):
        return kind("no answer", **ATTEMPT)
    if issubclass(kind, MalformedAnswerError):
        return kind(["first @ $.a", "second @ $.b"], request_id="r-1", **ATTEMPT)
    if issubclass(kind, IncompleteResultError):
        return kind("two are missing", series_ids=["s1", "s2"], request_id="r-1", **ATTEMPT)
    return kind("a text")


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize("kind", TREE)
def test_an_error_survives_pickling_and_copying(kind: type[AsyncfinError], again) -> None:
    """Every field, the text, and notes added on the way come back."""
    error = example(kind)
    error.add_note("of batch 3")
    restored = again(error)
    assert type(restored) is kind
    assert (str(restored), repr(restored), vars(restored)) == (str(error), repr(error), vars(error))
    assert restored.args == error.args
    assert restored.__notes__ == ["of batch 3"]
    assert restored is not error


@pytest.mark.parametrize("own", [None, AT])
def test_error_is_completed_by_its_request(own: datetime | None) -> None:
    """An error keeps its time and request id; it gets those of its request if it has none."""
    origin = NotFoundError(status=404, at=AT + timedelta(hours=1), request_id="r-2", attempts=3)
    error = NotFoundError(status=404, at=own, request_id=own and "r-1")
    complete_error(error, "query", "O-1", origin)
    assert (error.at, error.request_id) == ((AT, "r-1") if own else (AT + timedelta(hours=1), "r-2"))
    assert (error.operation, error.entity_id, error.attempts) == ("query", "O-1", 3)


QUESTION = [AsyncfinError, SelectionError, ArgumentError, BucketUnavailableError]
QUESTION += [ManifestMismatchError, RunInProgressError]


@pytest.mark.parametrize("kind", [kind for kind in TREE if kind not in QUESTION])
def test_report_holds_what_support_asks_for(kind: type[AsyncfinError]) -> None:
    """It contains the request id, the time and the operation, one fact a line (spec 7)."""
    facts = dict(line.split(": ", 1) for line in example(kind).report().splitlines())
    known = {
        "error": kind.__name__,
        "operation": "query",
        "entity": ENTITY,
        "time": "2024-05-06T07:08:09Z",
        "attempts": "3",
    }
    if issubclass(kind, ServiceError):
        known |= {"status": "400", "code": "some_code"}
    else:
        known |= {"message": str(example(kind))}
    if not issubclass(kind, TransportError):
        known |= {"request id": "r-1"}
    assert facts.pop("versions").startswith("asyncfin ")
    assert facts == known


ISSUES = {
    "fields": [{"field": "metric_ids", "issue": "unknown"}, *("again" for _ in range(4))],
    "hint": "a\x1bb",
}


def test_details_are_unchanged_and_read_only() -> None:
    """Details stay as they came, after pickling too; the text has the first few and their number."""
    error = ValidationFailedError(status=400, message="no", details=ISSUES)
    for each in (error, pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
        assert each.details == ISSUES
        with pytest.raises(TypeError):
            each.details["fields"] = []
        assert 'no [fields: {"field": "metric_ids", "issue": "unknown"}; fields: again;' in str(each)
        assert str(each).endswith("; and 3 more]")
        assert "details: 6" in each.report().splitlines()
    assert ValidationFailedError(status=400).details == {}
    assert "details" not in ValidationFailedError(status=400).report()


@pytest.mark.parametrize(
    "details",
    [
        {"a": "x" * 5_000_000},
        {str(n): "x" * 3_000 for n in range(9_000)},
        {"a": [[["x" * 900] * 99] * 99] * 99},
        {"a": list(range(5_000)), **dict.fromkeys(map(str, range(5_000)))},
    ],
)
def test_service_texts_are_bounded(details: dict[str, object]) -> None:
    """An error is logged, pickled and journaled: megabytes of text must not follow it there."""
    error = ValidationFailedError(
        status=400, code="c" * 9_999, message="m" * 5_000_000, request_id="r" * 9_999, details=details
    )
    assert (len(error.code), len(error.message), len(error.request_id)) == (2_000, 2_000, 2_000)
    assert len(pickle.dumps(error)) < 250_000
    assert all(
        len(each) <= 100
        for each in (error.details, *error.details.values())
        if isinstance(each, (dict, list))
    )
    assert len(str(error)) < 8_000


def test_problems_are_at_most_hundred() -> None:
    """Each is cut at 2,000 characters, and so is the text of all."""
    error = MalformedAnswerError(f"{n} {'x' * 3_000}" for n in range(120_007))
    assert (len(error.problems), error.omitted) == (100, 119_907)
    assert {len(each) for each in error.problems} == {2_000}
    assert len(str(error)) == 2_000
    assert str(error).endswith(" (and 119,907 more)")
    assert MalformedAnswerError(["a", "b"]).omitted == 0


@pytest.mark.parametrize(
    "text", ["\x1b[2J", "\x9b1m", "\u202eabc", "\u2066", "\0", "\u2028", "\ud800", "\u200f"]
)
def test_printable_text_is_harmless(text: str) -> None:
    """ESC, C1, marks of direction, NUL, line ends and lone surrogates come out as escapes."""
    shown = errors.printable(f"a{text}b")
    assert shown.isprintable()
    assert shown.startswith("a\\")
    assert errors.printable("\u00e9 \u00a0\u4f60") == "\u00e9 \u00a0\u4f60"


def test_error_text_is_harmless() -> None:
    """A service's text stays in one line, with controls escaped; the attributes have it as it came."""
    code, message = "for\x1b[31mbidden", "\x1b[2J\nr\u00e9sum\u00e9"
    error = PermissionDeniedError(status=403, code=code, message=message, request_id="r\r1", attempts=1)
    assert str(error) == "403 for\\x1b[31mbidden (request r\\r1): \\x1b[2J\\nr\u00e9sum\u00e9"
    assert str(MalformedAnswerError("S-\x1b1\u00a0!")) == "S-\\x1b1\u00a0!"
    report = error.report().split("\n")
    assert (len(report), all(map(str.isprintable, report))) == (6, True)
    assert (error.code, error.message, error.request_id) == (code, message, "r\r1")


def refusal(kind: type[ServiceError], status: int, **facts) -> ServiceError:
    extra = {"resume_at": AT} if kind is AllowanceExhaustedError else {}
    return kind(status=status, message="a text", **extra, **facts)


class OfAUserError(AsyncfinError):
    """A subclass that says nothing of what it concerns."""


UNKNOWN_TO_ALL = UnknownToAllError("none", report=ExtractReport((), 0.0, 0.0))
IN_FRONT = {"has_error_object": False}
OF_ENTITY = {"entity_id": ENTITY}
# The error, what it concerns, and whether it ends a question to several entities: always, only where
# requests wait through an outage, or never.
CONCERNS = [
    (SelectionError("no"), "question", "never"),
    (ArgumentError("no"), "question", "never"),
    (UNKNOWN_TO_ALL, "question", "never"),
    (ManifestMismatchError("no"), "question", "never"),
    (refusal(ValidationFailedError, 400, **OF_ENTITY), "question", "never"),
    (refusal(ServiceError, 422, **OF_ENTITY), "question", "never"),
    (refusal(ServiceError, 413), "question", "never"),
    (refusal(ServiceError, 413, **IN_FRONT, **OF_ENTITY), "entity", "never"),
    (refusal(ServiceError, 302, **IN_FRONT), "service", "never"),
    (refusal(PermissionDeniedError, 403, **OF_ENTITY), "entity", "never"),
    (refusal(PermissionDeniedError, 403, **IN_FRONT, **OF_ENTITY), "entity", "never"),
    (refusal(NotFoundError, 404, **OF_ENTITY), "entity", "never"),
    (refusal(NotFoundError, 404, **IN_FRONT, **OF_ENTITY), "entity", "never"),
    (refusal(DatasetChangedError, 409, **OF_ENTITY), "entity", "never"),
    (MalformedAnswerError("no", **OF_ENTITY), "entity", "never"),
    (IncompleteResultError("no", **OF_ENTITY), "entity", "never"),
    (refusal(AuthenticationError, 401, **OF_ENTITY), "account", "always"),
    (refusal(RateLimitedError, 429, **OF_ENTITY), "account", "never"),
    (refusal(AllowanceExhaustedError, 429, **OF_ENTITY), "account", "always"),
    (refusal(PermissionDeniedError, 403), "account", "always"),
    (refusal(NotFoundError, 404), "account", "always"),
    (refusal(ServerFailureError, 503, **OF_ENTITY), "service", "never"),
    (refusal(ServerFailureError, 503, attempts=0, **OF_ENTITY), "service", "waiting"),
    (refusal(ServiceError, 408, **OF_ENTITY), "service", "never"),
    (refusal(ServiceError, 408, **IN_FRONT, **OF_ENTITY), "service", "never"),
    (ConnectionFailedError("no", **OF_ENTITY), "service", "never"),
    (RequestTimeoutError("no", attempts=0, **OF_ENTITY), "service", "waiting"),
    (TruncatedAnswerError("no"), "service", "never"),
    (MalformedAnswerError("no"), "service", "never"),
    (MalformedAnswerError("no", is_json=False, **OF_ENTITY), "service", "never"),
    (BucketUnavailableError("no", **OF_ENTITY), "local", "always"),
    (RunInProgressError("no"), "local", "always"),
    (OfAUserError("no"), "local", "always"),
    (AsyncfinError("no"), "local", "always"),
]
NAMES = [f"{type(each).__name__}-{concerns}-{number}" for number, (each, concerns, _) in enumerate(CONCERNS)]


@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize(("error", "concerns", "ends"), CONCERNS, ids=NAMES)
def test_an_error_says_what_it_concerns(error: AsyncfinError, concerns: str, ends: str, again) -> None:
    """Pickling keeps it, and a report of the failure has it."""
    assert (error.concerns, again(error).concerns) == (concerns, concerns)
    assert Failure.of(error).concerns == concerns


@pytest.mark.parametrize(("error", "concerns", "ends"), CONCERNS, ids=NAMES)
def test_account_error_ends_all_entities(error: AsyncfinError, concerns: str, ends: str) -> None:
    """A short refusal does not; nor does an outage, unless requests have waited through it."""
    assert ends_all(error, waits=False) == (ends == "always")
    assert ends_all(error, waits=True) == (ends != "never")


@pytest.mark.parametrize("kind", [NotFoundError, RequestTimeoutError, SelectionError])
def test_notebook_shows_line_and_message(kind: type[AsyncfinError]) -> None:
    """A bad id printed 131 lines."""
    with pytest.raises(AsyncfinError) as caught:
        raise example(kind)
    line, message = caught.value._render_traceback_()
    assert line.endswith(": raise example(kind)")
    assert message == f"{kind.__name__}: {caught.value}"


@pytest.mark.parametrize(
    ("fields", "ending"),
    [
        ({"has_error_object": False}, "the base URL is probably wrong"),
        ({"answered": False}, "not offered by this backend"),
        ({"answered": False, "code": "not_found"}, "come from the operator of the service"),
        ({"code": "not_found"}, "check the base URL too"),
    ],
)
def test_foreign_404_doubts_base_url(fields: dict[str, object], ending: str) -> None:
    """A rejection that was not sent, or is remembered, says nothing of the address."""
    error = NotFoundError(status=404, message="not offered by this backend", entity_id=ENTITY, **fields)
    assert str(error).endswith(ending)
