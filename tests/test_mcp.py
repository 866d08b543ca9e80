"""The assistants' tools, asked over stdio by the MCP SDK's own client, and in memory."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from asyncfin import Annual, Client, Retry, Select
from asyncfin.sandbox import Hang, Sandbox, Status, load

mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")

from asyncfin.mcp import MAX_CHARACTERS, server  # noqa: E402

DATA = Path(__file__).parents[2] / "shared" / "data"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with Sandbox.demo() as made:
        yield made


def text_of(result: Any) -> str:
    (content,) = result.content
    return str(content.text)


async def ask(sandbox: Sandbox, tool: str, token: str | None = None, **arguments: Any) -> Any:
    """Call one tool of a server in memory."""
    async with (
        Client(sandbox.base_url, token or sandbox.token) as client,
        mcp.Client(server(client, sandbox.entities)) as assistant,
    ):
        return await assistant.call_tool(tool, arguments)


async def test_over_stdio_an_assistant_gets_from_companies_to_values(sandbox: Sandbox) -> None:
    """The four tools in the order in which they are meant; nothing else stands on standard output."""
    env = {**os.environ, "ASYNCFIN_BASE_URL": sandbox.base_url, "ASYNCFIN_TOKEN": sandbox.token}
    command = mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "asyncfin", "mcp", *sandbox.entities], env=env
    )
    async with mcp.Client(command, read_timeout_seconds=60) as assistant:
        tools = (await assistant.list_tools()).tools
        assert {tool.name for tool in tools} == {"list_entities", "find_series", "plan_cost", "query"}
        assert all(tool.annotations.read_only_hint for tool in tools)
        listed = text_of(await assistant.call_tool("list_entities", {}))
        assert all(entity_id in listed for entity_id in sandbox.entities)
        apple = sandbox.entities[0]
        overview = text_of(await assistant.call_tool("find_series", {"entity_id": apple}))
        assert "206 series" in overview
        found = text_of(
            await assistant.call_tool("find_series", {"entity_id": apple, "words": "revenue annual americas"})
        )
        assert "Revenue/Americas/annual\tRevenue\tAmericas" in found
        question = {"entity_id": apple, "series_ids": ["Revenue/annual"], "periods": "last 5 years"}
        assert text_of(await assistant.call_tool("plan_cost", question)) == "1 series: 1 request"
        answer = text_of(await assistant.call_tool("query", question))
    async with Client(sandbox.base_url, sandbox.token) as client:
        panel = await client.query(apple, Select(series_ids="Revenue/annual"), Annual(last=5))
    assert "1 request spent" in answer.splitlines()[0]
    assert answer.splitlines()[1].split("\t")[1:] == [period.label for period in panel.periods]
    assert answer.splitlines()[2].split("\t")[1:] == [
        value.text if value else "" for value in panel.one().values
    ]
    assert sandbox.token not in listed + overview + found + answer


@pytest.mark.parametrize("asked", [False, True], ids=["idle", "while a call waits for the service"])
async def test_a_server_whose_host_is_gone_ends(asked: bool) -> None:
    """Closing its standard input, as the end of the host does, ends the process, also within a call."""
    async with Sandbox.demo(faults=[Hang(operation="catalogue")]) as sandbox:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "asyncfin", "mcp", *sandbox.entities),
            env={**os.environ, "ASYNCFIN_BASE_URL": sandbox.base_url, "ASYNCFIN_TOKEN": sandbox.token},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        if asked:
            info = {"name": "host", "version": "1"}
            hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
            call = {"name": "find_series", "arguments": {"entity_id": sandbox.entities[0]}}
            for message in (
                {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
                {"jsonrpc": "2.0", "method": "notifications/initialized"},
                {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
            ):
                process.stdin.write(json.dumps(message).encode() + b"\n")
            while not any(served.operation == "catalogue" for served in sandbox.log):  # noqa: ASYNC110
                await asyncio.sleep(0)
        process.stdin.close()
        async with asyncio.timeout(28):  # before the request that hangs would have timed out
            printed, complaint = await process.communicate()
    assert b"Traceback" not in complaint
    assert process.returncode == 0
    assert asked or printed == b""


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"entity_id": "O-" + "f" * 32}, "SelectionError"),
        ({"entity_id": "apple"}, "SelectionError"),
    ],
)
async def test_companies_not_on_offer_are_refused(
    sandbox: Sandbox, arguments: dict[str, Any], error: str
) -> None:
    """The operator says which companies an assistant may ask about."""
    result = await ask(sandbox, "find_series", **arguments)
    assert result.is_error
    assert result.structured_content["error"] == error
    assert "list_entities" in text_of(result)


@pytest.mark.parametrize(
    ("fault", "error", "wait"),
    [
        (Status(status=429, retry_after=7200, operation="query"), "AllowanceExhaustedError", True),
        (Status(status=404, code="not_found", operation="dataset"), "NotFoundError", False),
        (Status(status=503, operation="query"), "ServerFailureError", False),
    ],
)
async def test_failures_say_what_an_assistant_can_do(fault: Status, error: str, wait: bool) -> None:
    """A failure is structured content that says what to do, since the SDK hides the text of exceptions."""
    async with (
        Sandbox.demo(faults=[fault]) as sandbox,
        Client(sandbox.base_url, sandbox.token, retry=Retry(attempts=1)) as client,
        mcp.Client(server(client, sandbox.entities)) as assistant,
    ):
        asked = {"entity_id": sandbox.entities[0], "series_ids": ["Revenue/annual"]}
        result = await assistant.call_tool("query", asked)
    facts = result.structured_content
    assert result.is_error
    assert facts["error"] == error
    assert facts["do"]
    assert (facts["retry_after_seconds"] is not None) == wait
    assert (facts["resume_at"] is not None) == wait


async def test_a_refused_token_is_nowhere_in_the_answer(sandbox: Sandbox) -> None:
    """The user hears of it, the token stays out."""
    result = await ask(sandbox, "find_series", "a-wrong-token", entity_id=sandbox.entities[0])
    assert result.structured_content["error"] == "AuthenticationError"
    assert "a-wrong-token" not in str(result)


async def test_wrong_series_ids_are_named_and_nothing_is_asked(sandbox: Sandbox) -> None:
    """The error says what comes close."""
    result = await ask(sandbox, "query", entity_id=sandbox.entities[0], series_ids=["Revenue/anual"])
    assert result.structured_content["error"] == "SelectionError"
    assert "Revenue/annual" in text_of(result)


async def test_companies_beyond_an_answer_are_found_by_name(sandbox: Sandbox) -> None:
    """An operator may offer thousands: the answer says how to ask for those that it leaves out."""
    many = {f"O-{number:032}": f"Company {number}" for number in range(1000)}
    async with (
        Client(sandbox.base_url, sandbox.token) as client,
        mcp.Client(server(client, many)) as assistant,
    ):
        cut = text_of(await assistant.call_tool("list_entities", {}))
        found = text_of(await assistant.call_tool("list_entities", {"words": "company 999"}))
    assert "left out: give words of a name" in cut.splitlines()[-1]
    assert found.splitlines()[1:] == [f"O-{999:032}\tCompany 999"]


async def test_periods_are_a_closed_list_of_words(sandbox: Sandbox) -> None:
    """The schema lists the words; anything else is an error like all others, and spends nothing."""
    question = {"entity_id": sandbox.entities[0], "series_ids": ["Revenue/annual"], "periods": "since 1999"}
    async with (
        Client(sandbox.base_url, sandbox.token) as client,
        mcp.Client(server(client, sandbox.entities)) as assistant,
    ):
        tools = {tool.name: tool for tool in (await assistant.list_tools()).tools}
        for name in ("query", "plan_cost"):
            words = tools[name].input_schema["properties"]["periods"]["enum"]
            result = await assistant.call_tool(name, question)
            assert result.is_error
            assert result.structured_content["error"] == "SelectionError"
            assert "last 5 years" in words
            assert all(word in result.structured_content["message"] for word in words)
    assert not sandbox.log


async def test_a_call_spends_no_more_requests_than_it_may(sandbox: Sandbox) -> None:
    """An assistant in a loop can't ask for everything by accident."""
    async with Client(sandbox.base_url, sandbox.token) as client:
        ids = [series.series_id for series in await client.catalogue(sandbox.entities[0])]
        async with mcp.Client(server(client, sandbox.entities, max_requests=1)) as assistant:
            result = await assistant.call_tool("query", {"entity_id": sandbox.entities[0], "series_ids": ids})
    assert result.is_error
    assert "fewer series" in text_of(result)


async def test_every_answer_fits_and_says_what_it_leaves_out(sandbox: Sandbox) -> None:
    """Whole lines only."""
    async with Client(sandbox.base_url, sandbox.token) as client:
        ids = [series.series_id for series in await client.catalogue(sandbox.entities[0])]
        async with mcp.Client(server(client, sandbox.entities)) as assistant:
            asked = {"entity_id": sandbox.entities[0], "series_ids": ids, "periods": "all periods"}
            text = text_of(await assistant.call_tool("query", asked))
    assert len(text) <= MAX_CHARACTERS
    _, *rows, last = text.splitlines()
    assert "lines are left out" in last
    assert "fewer series" in last
    assert len({len(row.split("\t")) for row in rows}) == 1


@pytest.mark.skipif(not DATA.is_dir(), reason="../shared/data is not there")
async def test_every_answer_about_a_real_company_fits() -> None:
    """Thousands of series, metrics and scopes, and their values, are told in 20,000 characters."""
    for file in sorted(DATA.glob("*.json.gz")):
        async with (
            Sandbox(load(file)) as real,
            Client(real.base_url, real.token) as client,
            mcp.Client(server(client, real.entities)) as assistant,
        ):
            for words in ("", "a", "revenue"):
                asked = {"entity_id": real.entities[0], "words": words}
                answer = await assistant.call_tool("find_series", asked)
                assert not answer.is_error
                assert len(text_of(answer)) <= MAX_CHARACTERS
            catalogue = await client.catalogue(real.entities[0])
            asked = {
                "entity_id": real.entities[0],
                "series_ids": [series.series_id for series in catalogue.series[:300]],
                "periods": "all periods",
            }
            for tool in ("plan_cost", "query"):
                answer = await assistant.call_tool(tool, asked)
                assert not answer.is_error
                assert len(text_of(answer)) <= MAX_CHARACTERS
