"""`asyncfin.check`: what it finds at services that keep the spec, and at those that do not."""

import json
import pickle
import re
from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve

from asyncfin import (
    ArgumentError,
    AsyncfinError,
    AuthenticationError,
    Client,
    NotFoundError,
    PermissionDeniedError,
    Retry,
    SelectionError,
    check,
)
from asyncfin.sandbox import Dialect, Drop, Sandbox, Status
from tests.generate import generate, generate_table
from tests.handmade import ENTITY_ID, dataset
from tests.services.altering import altered, capped
from tests.wire.test_missing_texts import EMPTY, HARMLESS, REFUSED, At

pytestmark = pytest.mark.virtual
DATASET = generate(3, series=130, publications=1)
WIDE = generate_table(5, metrics=60, paths=60, density=0.06)
ENTITY = DATASET.entity_id
CANARY = "CANARY"
DIALECTS = {
    "plain": Dialect(),
    "asked": Dialect(periods="asked", order="newest"),
    "by page": Dialect(periods="page", order="shuffled", last_cursor="null"),
    "never listed": Dialect(empty_series=False, never_valued=False),
    "some left out": Dialect(empty_series=False, never_valued=False, left_out_on="some"),
    "within": Dialect(trailing="within"),
    "short": Dialect(pages="short", scope_groups="first"),
    "empty": Dialect(pages="empty", scope_groups="used"),
    "ids first": Dialect(ids_before_pin=True, cursor_before_pin=True),
    "lag": Dialect(metadata_lag=2, unrestated="original"),
    "extras": Dialect(extras=True, gzip=True),
}


def words(report: Any, kind: str) -> list[str]:
    return [entry.what for entry in report.findings if entry.kind == kind]


@pytest.mark.parametrize("name", DIALECTS)
async def test_no_dialect_is_a_break(name: str) -> None:
    """What the spec leaves open is never a break."""
    async with (
        Sandbox(WIDE, dialect=DIALECTS[name]) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        report = await check(client, WIDE.entity_id)
        assert report.requests == len(sandbox.log)
    assert (report.breaks, report.complete) == ((), True)
    assert not words(report, "differs")
    assert report.requests <= 60


async def test_cost_is_18_requests_and_pages() -> None:
    """As the documents state."""
    async with Sandbox.demo() as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        for entity_id in sandbox.entities:
            pages = -(-len(await client.catalogue(entity_id)) // 100)
            report = await check(client, entity_id)
            assert report.requests == 18 + pages


async def test_caps_are_probed_with_one_more() -> None:
    """50 metrics and paths are accepted, and 51 of them refused."""
    async with Sandbox(WIDE) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        report = await check(client, WIDE.entity_id)
        sent = [entry.body for entry in sandbox.log if entry.operation == "query" and entry.body]
    assert not [entry for entry in report.findings if entry.spec == "8" and entry.kind in ("break", "limit")]
    for name in ("metric_ids", "scope_combinations"):
        assert {50, 51} <= {len(entry[name]) for entry in sent}


@pytest.mark.parametrize("fault", [Status(status=503, share=0.2, seed=1), Drop(share=0.2, seed=2)], ids=repr)
async def test_passing_failures_are_no_finding(fault: Any) -> None:
    """A retried request says nothing about the spec; entry attempt counts."""
    async with (
        Sandbox(DATASET, faults=[fault]) as sandbox,
        Client(sandbox.base_url, sandbox.token, retry=Retry(attempts=9)) as client,
    ):
        report = await check(client, ENTITY, max_requests=200)
        assert report.requests == len(sandbox.log)
    assert (report.breaks, report.complete) == ((), True)


async def _checked(alter: Any, **options: Any) -> Any:
    async with (
        Sandbox(DATASET) as sandbox,
        altered(sandbox, lambda operation, _, body: alter(operation, body)) as url,
        Client(url, sandbox.token, **options) as client,
    ):
        return await check(client, ENTITY)


@pytest.mark.parametrize("alter", EMPTY, ids=repr)
async def test_missing_text_is_named(alter: At) -> None:
    """The finding names the field and the problem, and counts the places."""
    path, problem = alter.finding
    report = await _checked(alter)
    named = [entry for entry in report.findings if entry.kind == "differs"]
    assert f"{path} is {problem}" in [entry.what for entry in named]
    assert not report.breaks
    assert all(entry.of is None or entry.count <= entry.of for entry in named)


@pytest.mark.parametrize("alter", HARMLESS, ids=repr)
async def test_timestamp_forms_are_no_finding(alter: At) -> None:
    """They work."""
    report = await _checked(alter)
    assert not [entry for entry in report.findings if entry.kind in ("break", "differs")]


@pytest.mark.parametrize("alter", REFUSED, ids=repr)
async def test_malformed_bodies_break(alter: At) -> None:
    """A finding names the field; metadata that cannot be decoded end the report, and not the call."""
    report = await _checked(alter)
    assert report.breaks
    if alter.operation == "dataset":
        assert (report.complete, report.requests) == (False, 1)
    if alter.change in ("null", "missing"):
        assert any(alter.name in entry.what for entry in report.breaks)


async def test_every_break_is_named() -> None:
    """Not only the first, which a decoder would stop at."""

    def spoil(operation: str, body: dict[str, Any]) -> None:
        for series in body.get("series", ()):
            series["label"] = 5
            del series["metric_id"]
            series["values"] = {}

    breaks = words(await _checked(spoil), "break")
    assert "$.series[*].label cannot be read: Expected `str`, got `int`" in breaks
    assert "$.series[*].metric_id cannot be read: it is missing" in breaks
    assert "$.series[*].values cannot be read: it is not an array" in breaks


def _strings(value: Any, path: str = "") -> Iterator[tuple[dict[str, Any], str]]:
    """Yield every text or number of a body, with the object that has it."""
    if isinstance(value, list):
        for entry in value:
            yield from _strings(entry, path)
    elif isinstance(value, dict):
        for name, member in value.items():
            if isinstance(member, str | float):
                yield value, name
            yield from _strings(member, name)


@pytest.mark.parametrize("broken", [False, True])
async def test_report_contains_nothing_private(broken: bool) -> None:
    """A report can be sent to strangers, also if the bodies are malformed."""

    def alter(operation: str, body: dict[str, Any]) -> None:
        for owner, name in list(_strings(body)):
            if name in ("name", "label", "description", "text", "item_id"):
                owner[name] = f"{CANARY} {owner[name]}"
            elif name == "number":
                owner[name] = 987654.5
        if broken and operation == "query":
            for entry in body["series"]:
                entry["label"] = {"CANARY": CANARY}

    async with (
        Sandbox(DATASET) as sandbox,
        altered(sandbox, lambda operation, _, body: alter(operation, body)) as url,
        Client(url, sandbox.token) as client,
    ):
        report = await check(client, ENTITY)
        ids = {entry["series_id"] for group in DATASET.publications[0].groups for entry in group["series"]}
        metrics = {
            entry["metric_id"] for group in DATASET.publications[0].groups for entry in group["series"]
        }
        for text in (str(report), report.to_json(), repr(report)):
            assert CANARY not in text
            assert "987654" not in text
            assert sandbox.token not in text
            assert not [entry for entry in ids | metrics if entry in text]
    assert bool(report.breaks) == broken


async def test_unknown_fields_are_listed() -> None:
    """A field's name is printed only if it is a plain word."""

    def alter(operation: str, body: dict[str, Any]) -> None:
        body["currency"] = "USD"
        body["<script>"] = body["Canary Label"] = body["Canary.field"] = 1

    report = await _checked(alter)
    assert "$.currency" in words(report, "extra")
    assert any("not shown" in entry for entry in words(report, "extra"))
    assert "<script>" not in str(report)
    assert "Canary" not in str(report)


async def test_findings_beyond_200_are_counted() -> None:
    """A report that did not say so would look complete."""

    def alter(_: str, body: dict[str, Any]) -> None:
        body.update({f"extra_{number}": True for number in range(250)})

    report = await _checked(alter)
    others = [entry for entry in report.findings if entry.kind != "extra"]
    omitted = len(others) + 250 - 200
    assert (len(report.findings), report.omitted) == (200, omitted)
    assert str(report).endswith(f"\n\n{omitted} more findings")
    assert json.loads(report.to_json())["omitted"] == omitted
    assert "more finding" not in str(await _checked(lambda *_: None))


async def test_too_few_requests_are_incomplete() -> None:
    """It spends at most `max_requests`, whatever it is."""
    for most in (2, 3, 7, 17):
        async with Sandbox(DATASET) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
            report = await check(client, ENTITY, max_requests=most)
            assert (report.complete, report.requests, len(sandbox.log)) == (False, most, most)
            assert not report.breaks
            assert any("more than 1 page;" in text for text in words(report, "limit")) == (most < 4)


async def test_exhausted_allowance_is_a_finding() -> None:
    """Ten requests are left: what they show is reported."""
    async with Sandbox(DATASET, allowance=10) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        report = await check(client, ENTITY)
    assert not report.complete
    assert any("allowance was used up" in entry for entry in words(report, "limit"))


async def test_token_without_usage_is_a_finding() -> None:
    """The rest is checked."""
    async with Sandbox(DATASET) as sandbox:
        token = sandbox.issue_token(permissions=["datasets:read"])
        async with Client(sandbox.base_url, token) as client:
            report = await check(client, ENTITY)
    assert report.complete
    assert any("/v1/usage" in entry for entry in words(report, "limit"))


@pytest.mark.parametrize("most", [0, -1, True, 2.5, "60"])
async def test_wrong_max_requests_is_rejected(most: Any) -> None:
    """Before anything is sent."""
    async with Sandbox(DATASET) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        with pytest.raises(ArgumentError, match="max_requests"):
            await check(client, ENTITY, max_requests=most)
        with pytest.raises(SelectionError, match="entity_id"):
            await check(client, "..")
        assert not list(sandbox.log)


async def test_unreadable_metadata_raise() -> None:
    """No entity, no token, no access, no service."""
    async with Sandbox(DATASET) as sandbox:
        async with Client(sandbox.base_url, sandbox.token) as client:
            with pytest.raises(NotFoundError):
                await check(client, "O-" + "f" * 32)
        async with Client(sandbox.base_url, "wrong-token") as client:
            with pytest.raises(AuthenticationError):
                await check(client, ENTITY)
        async with Client(sandbox.base_url, sandbox.issue_token(permissions=["usage:read"])) as client:
            with pytest.raises(PermissionDeniedError):
                await check(client, ENTITY)
        async with Client(sandbox.base_url + "/elsewhere", sandbox.token) as client:
            with pytest.raises(AsyncfinError):
                await check(client, ENTITY)


@pytest.mark.parametrize("status", [401, 403])
async def test_token_rejected_for_the_account(status: int) -> None:
    """They are checked last, with a token that was accepted for the dataset."""
    faults = [Status(status=status, operation=name, nth=1) for name in ("usage", "limits")]
    async with (
        Sandbox(DATASET, faults=faults) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        report = await check(client, ENTITY)
    paths = ("/v1/usage", "/v1/limits")
    assert words(report, "limit") == [f"the token has no permission for {path}" for path in paths]
    assert (report.breaks, report.complete) == ((), True)


async def test_report_is_ordered_and_serialized() -> None:
    """Kinds in their order; JSON has every attribute."""
    async with (
        Sandbox(WIDE, dialect=Dialect(pages="short")) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        report = await check(client, WIDE.entity_id)
    assert pickle.loads(pickle.dumps(report)) == report
    written = json.loads(report.to_json())
    assert written["entity_id"] == WIDE.entity_id
    assert len(written["findings"]) == len(report.findings)
    order = ["break", "differs", "limit", "reading", "extra"]
    kinds = [order.index(entry.kind) for entry in report.findings]
    assert kinds == sorted(kinds)
    assert re.match(rf"{WIDE.entity_id}: \d+ requests, no break of the spec", str(report))
    assert evolve(report, complete=False).breaks == ()


@pytest.mark.parametrize(
    ("most", "refused", "accepted"), [(29, 30, 24), (24, 30, 24), (5, 30, 1), (1, 30, 1)]
)
async def test_cap_on_exact_is_a_limit(most: int, refused: int, accepted: int) -> None:
    """The spec states none; and what is said to be accepted is."""
    thirty_years = dataset({("Sales", "all"): {f"FY{year}": year for year in range(1990, 2020)}})
    async with (
        Sandbox(thirty_years) as sandbox,
        capped(sandbox, exact=most) as (url, _),
        Client(url, sandbox.token) as client,
    ):
        report = await check(client, ENTITY_ID)
    assert (report.breaks, report.complete) == ((), True)
    assert words(report, "limit") == [f"exact rejects {refused} periods, and accepts {accepted}"]


async def test_series_listed_twice_breaks() -> None:
    """As one that is on two pages."""

    def repeat(operation: str, body: Any) -> None:
        if operation == "catalogue":
            body["groups"][0]["series"].append(body["groups"][0]["series"][0])

    assert "a series is listed twice" in words(await _checked(repeat), "break")
