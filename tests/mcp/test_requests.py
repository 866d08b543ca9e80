"""How many requests a call of the tools spends, and what it returns where they fail or end."""

import asyncio

import pytest

from asyncfin import Client, Retry
from asyncfin.mcp import server
from asyncfin.sandbox import Sandbox, Status
from tests.generate import generate
from tests.mcp.assistant import assistant, mcp, rows_of, text_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


async def test_failing_company_is_a_note(sandbox: Sandbox) -> None:
    """Its failure is a note; the rows of the others are there."""
    async with assistant(sandbox, max_age=600, retry=Retry(attempts=1)) as call:
        await call("find_series", entities=["Apple", "NVIDIA"], words="revenue")
        sandbox.inject(Status(status=503, operation="query", nth=1))
        answer = await call("query", entities=["Apple", "NVIDIA"], series=["Revenue"])
    assert not answer.is_error
    assert len({row["company"] for row in rows_of(answer)}) == 1
    assert "could not be read: ServerFailureError" in text_of(answer)


def used_up(operation: str, nth: int) -> Status:
    """Return a fault: from this request on, the allowance of the day is used up."""
    return Status(status=429, retry_after=7200, operation=operation, nth=nth)


async def test_values_before_the_allowance_ended_stay(sandbox: Sandbox) -> None:
    """Notes name the other one, when requests are possible again, and that the versions are not compared."""
    async with assistant(sandbox, max_in_flight=1) as call:
        sandbox.inject(used_up("query", 2))
        answer = await call("query", entities=["Apple", "NVIDIA"], series=["Revenue"])
    assert {row["company"] for row in rows_of(answer)} == {sandbox.entities[0]}
    assert [each["id"] for each in answer.structured_content["companies"]] == [sandbox.entities[0]]
    assert answer.structured_content["requests"] == len(sandbox.log)
    notes = answer.structured_content["notes"]
    (unread,) = [each for each in notes if each.startswith('company "NVIDIA')]
    assert "could not be read: AllowanceExhaustedError" in unread
    assert "requests are possible again at 2" in unread


@pytest.mark.parametrize(
    ("tool", "faults"),
    [
        ("query", [used_up("query", 1)]),
        ("query", [used_up("catalogue", 4)]),
        ("plan_cost", [used_up("catalogue", 4)]),
        ("find_series", [used_up("catalogue", 1)]),
        ("find_series", [Status(status=404, operation="catalogue", nth=1), used_up("catalogue", 2)]),
    ],
)
async def test_ended_allowance_is_an_error(sandbox: Sandbox, tool: str, faults: list[Status]) -> None:
    """Nothing was read, or not all catalogues, which say what the question is."""
    arguments = {} if tool == "find_series" else {"series": ["Revenue"]}
    async with assistant(sandbox, max_in_flight=1) as call:
        sandbox.inject(*faults)
        result = await call(tool, entities=["Apple", "NVIDIA"], **arguments)
    assert result.is_error
    assert result.structured_content["error"] == "AllowanceExhaustedError"
    assert result.structured_content["resume_at"]


async def test_failing_service_is_left_alone(sandbox: Sandbox) -> None:
    """Nothing is sent for it."""
    async with assistant(sandbox, retry=Retry(attempts=1)) as call:
        sandbox.inject(Status(status=503))
        for _ in range(8):
            await call("find_series", entities=["Apple", "NVIDIA"], words="revenue")
        before = len(sandbox.log)
        answer = await call("find_series", entities=["Apple"], words="revenue")
        assert len(sandbox.log) == before
    facts = answer.structured_content
    assert (facts["error"], facts["do"]) == ("ServerFailureError", "Call again in a minute.")


async def test_catalogues_go_on_in_next_call(sandbox: Sandbox) -> None:
    """None is begun once the call has sent as many requests as it may; those that were read are cached."""
    async with assistant(sandbox, max_requests=3, max_age=600) as call:
        first = await call("find_series", entities=["Apple", "NVIDIA"], words="revenue")
        assert len(sandbox.log) == 3
        second = await call("find_series", entities=["Apple", "NVIDIA"], words="revenue")
    assert first.structured_content["error"] == "RequestLimitError"
    assert "Call again" in first.structured_content["do"]
    assert second.structured_content["series"][0]["metric"] == "Revenue"
    assert [served.operation for served in sandbox.log] == ["catalogue"] * len(sandbox.log)


@pytest.mark.parametrize("over", [0, 1])
async def test_query_spends_at_most_the_limit(over: int) -> None:
    """A call of as many as it may is sent, one of a request more is refused before it sends any."""
    async with (
        Sandbox(generate(2, series=300, publications=1)) as sandbox,
        Client(sandbox.base_url, sandbox.token, max_age=600) as client,
    ):
        catalogue = await client.catalogue(sandbox.entities[0])
        metrics = sorted(catalogue.by_metric)
        async with mcp.Client(server(client, sandbox.entities, max_requests=1_000)) as session:
            arguments = {"entities": sandbox.entities, "series": metrics, "periods": "all periods"}
            cost = (await session.call_tool("plan_cost", arguments)).structured_content["requests"]
            before = len(sandbox.log)
            await session.call_tool("query", arguments)
            assert len(sandbox.log) - before == cost
        limit = cost - over
        async with mcp.Client(server(client, sandbox.entities, max_requests=limit)) as session:
            before = len(sandbox.log)
            result = await session.call_tool("query", arguments)
            sent = len(sandbox.log) - before
    assert result.is_error == bool(over)
    assert sent == (0 if over else limit)
    assert ("this would spend" in text_of(result)) == bool(over)


@pytest.mark.parametrize(
    ("fault", "error", "wait"),
    [
        (Status(status=429, retry_after=7200, operation="query"), "AllowanceExhaustedError", True),
        (Status(status=404, code="not_found", operation="catalogue"), "NotFoundError", False),
        (Status(status=503, operation="query"), "ServerFailureError", False),
    ],
)
async def test_failures_have_advice(sandbox: Sandbox, fault: Status, error: str, wait: bool) -> None:
    """A failure is structured content that says what to do, since the SDK hides the text of exceptions."""
    sandbox.inject(fault)
    async with assistant(sandbox, retry=Retry(attempts=1)) as call:
        result = await call("query", entities=["Apple"], series=["Revenue"])
    facts = result.structured_content
    assert result.is_error
    assert facts["error"] == error
    assert facts["do"]
    assert (facts["retry_after_seconds"] is not None) == wait
    assert (facts["resume_at"] is not None) == wait


async def test_calls_at_once_count_apart(sandbox: Sandbox) -> None:
    """Each call counts its own requests, although both use one client."""
    async with assistant(sandbox, max_requests=3, max_age=600) as call:
        answers = await asyncio.gather(
            call("find_series", entities=["Apple"], words="revenue"),
            call("find_series", entities=["NVIDIA", "Alphabet"], words="revenue"),
        )
    assert not any(answer.is_error for answer in answers)


async def test_rejected_token_is_not_shown(sandbox: Sandbox) -> None:
    """The error names the refusal, not the token."""
    async with (
        Client(sandbox.base_url, "a-wrong-token") as client,
        mcp.Client(server(client, sandbox.entities)) as session,
    ):
        result = await session.call_tool("find_series", {"entities": sandbox.entities[0]})
    assert result.structured_content["error"] == "AuthenticationError"
    assert "a-wrong-token" not in str(result)
