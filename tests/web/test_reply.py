"""Panels as HTTP responses: what a visitor gets, and what a visitor who has it already does not get."""

import csv
import io
import json
import re
import threading
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import pyarrow.ipc
import pytest
from attrs import evolve
from hypothesis import example, given, strategies as st

from asyncfin import Annual, ArgumentError, Client, FiscalRange, MemoryCache, Panel, Select
from asyncfin.sandbox import Sandbox
from asyncfin.web import csv_cell, http_error, reply, unless_gone
from tests.generate import generate

JSON, CSV, ARROW = "application/json", "text/csv", "application/vnd.apache.arrow.stream"
pytestmark = pytest.mark.virtual


async def panels(*questions: Any) -> list[Panel]:
    async with (
        Sandbox.demo() as sandbox,
        Client(sandbox.base_url, sandbox.token, cache=MemoryCache(), max_age=60) as client,
    ):
        select = Select(metric_ids="Revenue", basis="segment")
        return [await client.query(sandbox.entities[0], select, each) for each in questions]


@pytest.fixture
async def panel() -> Panel:
    (found,) = await panels(Annual(last=5))
    return found


async def test_panel_is_json_csv_or_arrow(panel: Panel) -> None:
    """Each body is what the panel's own methods give."""
    as_json = await reply(panel, accept=JSON)
    assert (as_json.status, as_json.headers["Content-Type"]) == (200, JSON)
    assert json.loads(as_json.body) == json.loads(panel.to_json())
    as_csv = await reply(panel, accept=CSV)
    assert as_csv.headers["Content-Type"] == "text/csv; charset=utf-8"
    head, *rows = csv.reader(io.StringIO(as_csv.body.decode()))
    assert head[-5:] == [period.label for period in panel.periods]
    assert [row[0] for row in rows] == list(panel.series_ids)
    numbers = [[value.number if value else None for value in series.values] for series in panel]
    assert [[float(each) if each else None for each in row[-5:]] for row in rows] == numbers
    as_arrow = await reply(panel, accept=ARROW)
    assert as_arrow.headers["Content-Type"] == ARROW
    assert pyarrow.ipc.open_stream(as_arrow.body).read_all().equals(panel.to_arrow())


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (None, JSON),
        ("", JSON),
        ("*/*", JSON),
        ("text/html, */*;q=0.1", JSON),
        ("text/*", CSV),
        ("application/*", JSON),
        ("application/json;q=0.5, text/csv", CSV),
        ("application/json;q=0, */*", CSV),
        ("TEXT/CSV", CSV),
        ("application/vnd.apache.arrow.stream, application/json;q=0.9", ARROW),
        ("text/csv;q=0.3, application/vnd.apache.arrow.stream;q=0.7", ARROW),
    ],
)
async def test_preferred_format_is_chosen(panel: Panel, accept: str | None, wanted: str) -> None:
    """RFC 9110, section 12.5.1: the most specific range decides, and q=0 excludes."""
    answer = await reply(panel, accept=accept)
    assert answer.headers["Content-Type"].partition(";")[0] == wanted
    assert answer.headers["Vary"] == "Accept"


@pytest.mark.parametrize("accept", ["text/html", "image/*", "application/json;q=0", "*/*;q=0", "nonsense"])
async def test_no_accepted_format_is_406(panel: Panel, accept: str) -> None:
    """The body lists what there is."""
    answer = await reply(panel, accept=accept)
    assert answer.status == 406
    assert answer.body.decode().split() == [JSON, CSV, ARROW]


async def test_304_builds_nothing(panel: Panel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tag is known before anything is built; a list, weak tags and `*` match."""
    whole = await reply(panel, accept=JSON)
    tag = whole.headers["ETag"]

    def build(self: Panel, **_: Any) -> str:
        raise AssertionError("built for a visitor who has it")

    monkeypatch.setattr(Panel, "to_json", build)
    for header in (tag, f'"other", {tag}', f"W/{tag}", f'W/"a",W/{tag}', "*", " * "):
        answer = await reply(panel, accept=JSON, if_none_match=header)
        assert (answer.status, answer.body) == (304, b"")
        assert "Content-Type" not in answer.headers
        for name in ("ETag", "Last-Modified", "Cache-Control", "Vary"):
            assert answer.headers[name] == whole.headers[name]
    for header in ('"other"', tag.strip('"'), ""):
        with pytest.raises(AssertionError, match="built"):
            await reply(evolve(panel), accept=JSON, if_none_match=header)


async def test_body_is_built_once(panel: Panel) -> None:
    """An equal panel has another one; so have its parts, and a copy at other requests."""
    for kind in (JSON, CSV, ARROW):
        first, again = await reply(panel, accept=kind), await reply(panel, accept=kind)
        assert again == first
        assert again.body is first.body
        assert (await reply(evolve(panel), accept=kind)).body is not first.body
    for other in (evolve(panel, requests=9), panel.during(["FY2024"]), panel.drop_empty()):
        assert json.loads((await reply(other, accept=JSON)).body) == json.loads(other.to_json())


async def test_large_bodies_are_not_stored() -> None:
    """Whatever the format; a smaller one of the same panel is kept."""
    dataset = generate(5, series=300, publications=1)
    async with Sandbox(dataset) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        panel = await client.query(dataset.entity_id, Select(), Annual())
    for kind in (JSON, CSV, ARROW):
        body, again = [(await reply(panel, accept=kind)).body for _ in range(2)]
        assert body == again
        assert (body is again) == (len(body) <= 64 * 1024)
    assert (
        len((await reply(panel, accept=JSON)).body) > 64 * 1024 > len((await reply(panel, accept=CSV)).body)
    )


async def test_tag_depends_on_the_body(panel: Panel) -> None:
    """Format, publication, version, series, periods and unlisted series."""
    (other,) = await panels(FiscalRange())
    dataset = "00000000-0000-4000-8000-000000000009"
    later = panel.catalogue.created_timestamp + timedelta(seconds=1)
    changed = [
        panel,
        other,
        panel.during(["FY2024"]),
        panel.where(lambda series: series.series_id != panel.series_ids[0]),
        evolve(panel, grid=evolve(panel._grid, unlisted_ids=panel.series_ids[:1])),
        evolve(panel, grid=evolve(panel._grid, anchor=panel.periods[-1])),
        evolve(panel, grid=evolve(panel._grid, catalogue=evolve(panel.catalogue, dataset_id=dataset))),
        evolve(panel, grid=evolve(panel._grid, catalogue=evolve(panel.catalogue, created_timestamp=later))),
        evolve(panel, grid=evolve(panel._grid, value_version="latest_restated")),
    ]
    tags = {(await reply(each, accept=kind)).headers["ETag"] for each in changed for kind in (JSON, CSV)}
    assert len(tags) == 2 * len(changed)
    (again,) = await panels(Annual(last=5))
    assert (await reply(again, accept=JSON)).headers["ETag"] == (await reply(panel, accept=JSON)).headers[
        "ETag"
    ]


async def test_max_age_since_the_confirmation(panel: Panel) -> None:
    """Counted from the confirmation; without `max_age` or a confirmation it asks each time."""
    fresh = evolve(panel, confirmed_at=datetime.now(UTC) - timedelta(seconds=20))
    answer = await reply(fresh, accept=JSON, max_age=60)
    assert answer.headers["Cache-Control"] in ("private, max-age=39", "private, max-age=40")
    old = evolve(panel, confirmed_at=datetime.now(UTC) - timedelta(seconds=90))
    assert (await reply(old, accept=JSON, max_age=60)).headers["Cache-Control"] == "private, max-age=0"
    ahead = evolve(panel, confirmed_at=datetime.now(UTC) + timedelta(hours=1))
    assert (await reply(ahead, accept=JSON, max_age=60)).headers["Cache-Control"] == "private, max-age=60"
    for each, max_age in ((panel, None), (evolve(panel, confirmed_at=None), 60)):
        headers = (await reply(each, accept=JSON, max_age=max_age)).headers
        assert headers["Cache-Control"] == "private, no-cache"
    modified = parsedate_to_datetime(answer.headers["Last-Modified"])
    assert modified == panel.dataset.created_timestamp.replace(microsecond=0)
    with pytest.raises(ArgumentError, match="max_age"):
        await reply(panel, accept=JSON, max_age=-1)


async def test_wrong_arguments_of_reply(panel: Panel) -> None:
    """A query that was not awaited, and headers as a server has them."""
    question = panels(Annual())
    wrong: Any = question
    with pytest.raises(ArgumentError, match=r"^panel must be a Panel, not <coroutine .*; await it$"):
        await reply(wrong, accept=JSON)
    question.close()
    wrong = b"text/csv"
    with pytest.raises(ArgumentError, match=r"^accept must be a str or None, not b'text/csv'$"):
        await reply(panel, accept=wrong)
    with pytest.raises(ArgumentError, match=r"^if_none_match must be a str or None"):
        await reply(panel, accept=JSON, if_none_match=wrong)


async def test_large_bodies_build_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop serves other visitors in between; small ones do not pay for a thread."""
    built: list[bool] = []
    original = Panel.to_json

    def to_json(self: Panel, **options: Any) -> str:
        built.append(threading.current_thread() is threading.main_thread())
        return original(self, **options)

    monkeypatch.setattr(Panel, "to_json", to_json)
    dataset = generate(5, series=300, publications=1)
    async with Sandbox(dataset) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        large = await client.query(dataset.entity_id, Select(), FiscalRange())
        small = await client.query(dataset.entity_id, Select.of(large.series[:3]), FiscalRange())
        for each in (large, small):
            answer = await reply(each, accept=JSON)
            assert json.loads(answer.body) == json.loads(original(each))
    assert built == [False, True]


def unsafe(text: str) -> bool:
    """Whether a spreadsheet takes a cell for a formula: it begins so, and is not a number."""
    try:
        float(text)
    except ValueError:
        return text.lstrip(" ").startswith((*"=+-@\t\r\uff1d\uff0b\uff0d\uff20",))
    return False


@example("-1\r1")
@given(st.text("=+-@\t\r\n 1.a'\uff1d\uff0b\uff0d\uff20", max_size=6))
def test_no_cell_is_a_formula(text: str) -> None:
    """At most an apostrophe is put before each line."""
    cell = csv_cell(text)
    lines = re.split("[\r\n]", cell)
    assert not any(map(unsafe, [cell, *lines]))
    before = re.split("[\r\n]", text)
    assert all(line in (whole, f"'{whole}") for line, whole in zip(lines[1:], before[1:], strict=True))
    assert lines[0] in (before[0], f"'{before[0]}")


def test_visitors_see_no_internals() -> None:
    """Neither names of ours nor the service's message are in the text, except where it is their question."""
    from asyncfin import errors

    secret = "the Redis server of asyncfin:bucket:{figures}"
    facts: dict[str, Any] = {"message": secret}
    for error in (
        errors.ArgumentError(secret),
        errors.BucketUnavailableError(secret),
        errors.RateLimitedError(status=429, retry_after=3, **facts),
        errors.AllowanceExhaustedError(status=429, resume_at=datetime.now(UTC), **facts),
        errors.NotFoundError(status=404, **facts),
        errors.PermissionDeniedError(status=403, **facts),
        errors.ServerFailureError(status=500, **facts),
        errors.ConnectionFailedError(secret),
        errors.RequestTimeoutError(secret),
        errors.MalformedAnswerError(secret),
    ):
        text = http_error(error).text
        assert "asyncfin" not in text
        assert "Redis" not in text
    assert (
        http_error(errors.SelectionError("metric_ids has no 'Revenu'")).text == "metric_ids has no 'Revenu'"
    )


async def test_request_without_receive() -> None:
    """Before the work begins; the work leaves no warning behind."""

    async def work() -> None:
        raise AssertionError("begun")

    for request in (object(), None, "request"):
        with pytest.raises(
            TypeError, match=r"Starlette, FastAPI or Litestar.*Quart, Django and aiohttp\.web"
        ):
            await unless_gone(request, work(), 1)  # type: ignore[arg-type]
