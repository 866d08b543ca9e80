"""The protocol: which request asks for what, which error an answer is, and how long it asks to wait."""

import json
import pickle
from datetime import UTC, date, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given, strategies as st

from asyncfin.checks import check_entity_id
from asyncfin.errors import (
    AuthenticationError,
    DatasetChangedError,
    MalformedAnswerError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    SelectionError,
    ServerFailureError,
    ServiceError,
    ValidationFailedError,
)
from asyncfin.model.period import Period
from asyncfin.model.query import Query
from asyncfin.model.scope import ScopeRef
from asyncfin.model.selection import Exact, FiscalRange, PeriodSelection, Trailing
from asyncfin.wire.protocol import (
    Response,
    dataset_request,
    failure,
    query_request,
    read_dataset,
    retry_after,
    usage_windows,
)

ENTITY = "O-" + "a1" * 16
AT = datetime(2024, 5, 6, 12, 0, tzinfo=UTC)
DATASET_ID = "00000000-0000-4000-8000-000000000001"
METADATA = {
    "entity_id": ENTITY,
    "name": "Example",
    "dataset_id": DATASET_ID,
    "created_timestamp": "2024-05-01T00:00:00Z",
}
entity_ids = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=32, max_size=32).map(
    "O-{}".format
)


def answer(status: int = 200, body: Any = None, **headers: str) -> Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Response(status, {name.replace("_", "-"): text for name, text in headers.items()}, content, AT, AT)


@given(entity_ids)
def test_entity_id_is_one_segment(entity_id: str) -> None:
    """Whatever its 32 characters are, they are percent-encoded and come back as they were."""
    path = dataset_request(entity_id).target
    assert path.isascii()
    assert not set(path) & set("?#\\ \r\n")
    assert [unquote(part) for part in path.split("/")] == ["", "v1", "entities", entity_id, "dataset"]


@pytest.mark.parametrize(
    "entity_id",
    ["", ".", "..", "O-" + "\ud800" * 32, "a\nb", "a\x00", "a\x85", "x" * 513, None, 5, b"O-" + b"a" * 32],
)
def test_wrong_entity_id_is_rejected(entity_id: object) -> None:
    """It would lead to another path, or can't be in a URL."""
    with pytest.raises(SelectionError, match="entity_id must be an id such as 'O-' followed by") as caught:
        check_entity_id(entity_id)  # type: ignore[arg-type]
    assert repr(entity_id)[:20] in str(caught.value)


@pytest.mark.parametrize(
    ("periods", "sent"),
    [
        (
            Exact(["FY2024", "FY2024-Q1"]),
            {
                "mode": "exact",
                "exact": [
                    {"year": 2024, "end_month": 12, "duration_months": 12},
                    {"year": 2024, "end_month": 3, "duration_months": 3},
                ],
            },
        ),
        (
            FiscalRange((2023, 2), Period(2024, 6, 3)),
            {
                "mode": "fiscal_range",
                "from": {"year": 2023, "end_month": 2, "duration_months": 0},
                "to": {"year": 2024, "end_month": 6, "duration_months": 0},
            },
        ),
        (Trailing(18), {"mode": "trailing", "months": 18}),
    ],
)
def test_body_has_periods_by_mode(periods: PeriodSelection, sent: dict[str, Any]) -> None:
    """Spec 4.3: exact, from and to of duration 0, months."""
    body = query_request(ENTITY, Query("m", "g=s", periods), page_size=7, cursor=None).body
    assert json.loads(body or b"") == {
        "metric_ids": ["m"],
        "scope_combinations": [[{"scope_group_id": "g", "scope_id": "s"}]],
        "periods": sent,
        "value_version": "original",
        "limit": 7,
    }


def test_later_body_differs_by_cursor() -> None:
    """Spec 4.3 rule 3: selections and pin stay unchanged."""
    path = [ScopeRef("g", "s"), ScopeRef("h", "t")]
    query = Query(["m", "n"], path, Trailing(3), ["a"], "latest_restated", DATASET_ID)
    first, later = (
        json.loads(query_request(ENTITY, query, page_size=100, cursor=cursor).body or b"")
        for cursor in (None, "a/b+c=")
    )
    assert later == first | {"cursor": "a/b+c="}
    assert (first["reporting_group_ids"], first["value_version"]) == (["a"], "latest_restated")
    assert first["expected_dataset_id"] == DATASET_ID
    assert [ref["scope_group_id"] for ref in first["scope_combinations"][0]] == ["g", "h"]


@given(st.dates(), st.integers(0, 800))
def test_usage_windows_cover_each_day(start: date, days: int) -> None:
    """In order, none longer than 92 days (spec 4.4), up to the calendar's very end."""
    end = date.fromordinal(min(start.toordinal() + days, date.max.toordinal()))
    windows = list(usage_windows(start, end))
    covered = [day for first, last in windows for day in range(first.toordinal(), last.toordinal() + 1)]
    assert covered == list(range(start.toordinal(), end.toordinal() + 1))
    assert all((last - first).days < 92 for first, last in windows)
    assert len(windows) == -(-len(covered) // 92)


STATUSES = {
    400: ValidationFailedError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    429: RateLimitedError,
    **dict.fromkeys((500, 502, 503, 599), ServerFailureError),
    **dict.fromkeys((301, 409, 418), ServiceError),
}


@pytest.mark.parametrize(("status", "kind"), STATUSES.items())
@pytest.mark.parametrize("body", [{"error": {"code": "another_code"}}, {}, b"", b"<html>", b"\xff", b"null"])
def test_status_decides_without_code(status: int, kind: type, body: Any) -> None:
    """An error is an error whatever its body; a 409 is no changed dataset unless its code says so."""
    assert type(failure(dataset_request(ENTITY), answer(status, body))) is kind


@pytest.mark.parametrize(
    ("code", "kind"), [("dataset_changed", DatasetChangedError), ("validation_failed", ValidationFailedError)]
)
@pytest.mark.parametrize("status", STATUSES)
def test_code_decides_before_status(code: str, kind: type, status: int) -> None:
    """Spec 7: clients decide on the code."""
    assert type(failure(dataset_request(ENTITY), answer(status, {"error": {"code": code}}))) is kind


HTML = b"<html><head><title>Forbidden</title></head><body>" + b"x" * 500


@pytest.mark.parametrize("status", [400, 401, 403, 404, 502])
def test_bare_error_shows_its_beginning(status: int) -> None:
    """A proxy's page is not the service's error: the message has its first 80 characters, blanks aside."""
    error = failure(dataset_request(ENTITY), answer(status, b"\n" * 400 + HTML))
    assert type(error) is STATUSES.get(status, ServiceError)
    assert not error.has_error_object
    assert "has no error object and probably comes from something in front of the service" in str(error)
    assert error.message.endswith(repr(HTML.decode()[:80]))
    assert error.message in error.report()


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"error": "forbidden"}', b'{"error": {}}', b"[1]", b"\xff\xfe"]
)
def test_error_object_has_one_text(body: bytes) -> None:
    """Other JSON is not the error object of spec 7."""
    error = failure(dataset_request(ENTITY), answer(403, body))
    assert not error.has_error_object
    assert "has no error object" in error.message


@given(
    st.integers(-(10**6), 86_700),
    st.datetimes(datetime(2000, 1, 1), datetime(2090, 1, 1), timezones=st.just(UTC)),
)
def test_dated_wait_uses_response_date(seconds: int, sent: datetime) -> None:
    """A wait until a date is counted from the answer's own Date; a date gone by is no wait."""
    sent = sent.replace(microsecond=0)
    until = format_datetime(sent + timedelta(seconds=seconds), usegmt=True)
    assert retry_after(answer(429, {}, retry_after=until, date=format_datetime(sent, usegmt=True))) == max(
        0, seconds
    )


@pytest.mark.parametrize(
    "until", ["Mon, 06 May 2024 12:01:00 GMT", "Monday, 06-May-24 12:01:00 GMT", "Mon May  6 12:01:00 2024"]
)
@pytest.mark.parametrize("headers", [{}, {"date": "yesterday"}])
def test_without_a_date_the_arrival_counts(until: str, headers: dict[str, str]) -> None:
    """All three forms of an HTTP date are read."""
    assert retry_after(answer(429, {}, retry_after=until, **headers)) == 60


@pytest.mark.parametrize(
    "text",
    [
        *("", "soon", "-5", "1e3", "0x10", "NaN", "inf", "1_000", "٣", "5 seconds", "Mon, 99 Foo 2024"),
        f"Mon, 06 May {'9' * 30} 12:01:00 GMT",
        f"Mon, 06 May 2024 12:01:00 +{'9' * 30}",
    ],
)
def test_senseless_wait_is_none(text: str) -> None:
    """No error comes of it, and no endless wait."""
    assert retry_after(answer(429, {}, retry_after=text)) is None


@pytest.mark.parametrize("text", ["86700.1", "172800", "9" * 400])
def test_longest_wait_is_a_day(text: str) -> None:
    """The service that wants the longest pause gets it."""
    assert retry_after(answer(429, {}, retry_after=text)) == 86_700


def test_metadata_of_another_entity_are_refused() -> None:
    """The error says what was expected, where, and of which request."""
    other = "O-" + "b2" * 16
    with pytest.raises(MalformedAnswerError) as caught:
        read_dataset(
            dataset_request(ENTITY), answer(200, METADATA | {"entity_id": other}, x_request_id="req-9")
        )
    assert caught.value.problems == (
        f"expected {ENTITY!r}, got {other!r} @ $.entity_id; request {other!r}, the id that the service uses",
    )
    assert (caught.value.operation, caught.value.at, caught.value.request_id) == ("dataset", AT, "req-9")
    assert vars(pickle.loads(pickle.dumps(caught.value))) == vars(caught.value)
