"""Arguments that the tools refuse, before a request is spent."""

import json
from typing import Any

import pytest

import asyncfin
from asyncfin import Client
from asyncfin.mcp import server
from asyncfin.sandbox import Sandbox
from tests.mcp.assistant import assistant, mcp, text_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


@pytest.mark.parametrize("tool", ["find_series", "plan_cost", "query"])
async def test_other_companies_are_rejected(sandbox: Sandbox, tool: str) -> None:
    """The operator says which companies an assistant may read; nothing is sent for others."""
    series = {} if tool == "find_series" else {"series": ["Revenue"]}
    async with assistant(sandbox, offered=sandbox.entities[:1]) as call:
        for wrong in (sandbox.entities[1], "O-" + "f" * 32, "apple"):
            result = await call(tool, entities=[sandbox.entities[0], wrong], **series)
            assert result.is_error
            assert result.structured_content["error"] == "SelectionError"
            assert wrong in text_of(result)
            assert "list_entities" in text_of(result)
    assert not sandbox.log


@pytest.mark.parametrize("periods", ["since 1999", "FY2023; FY2024", ""])
async def test_mistaken_periods_are_rejected(sandbox: Sandbox, periods: str) -> None:
    """Other texts than words and labels are errors like all others, and no query is sent."""
    async with assistant(sandbox) as call:
        for tool in ("query", "plan_cost"):
            result = await call(tool, entities=["Apple"], series=["Revenue"], periods=periods)
            assert result.structured_content["error"] == "SelectionError"
            assert "last 5 years" in text_of(result)
    assert all(served.operation != "query" for served in sandbox.log)


@pytest.mark.parametrize(
    "periods", [2024, "2024", ["FY2024"], [2024], "FY2024", ["2024", "FY2024"], " 2024 ,FY2024", "FY24"]
)
async def test_year_means_its_fiscal_year(sandbox: Sandbox, periods: Any) -> None:
    """As a number, a text or in a list of labels; its quarters are other periods."""
    async with assistant(sandbox) as call:
        result = await call("query", entities=sandbox.entities[:1], series=["NetIncome"], periods=periods)
    (row,) = result.structured_content["rows"]
    assert list(row["values"]) == ["FY2024"]


@pytest.mark.parametrize(
    ("tool", "arguments", "problem"),
    [
        ("query", {"entities": 5, "series": ["Revenue"]}, "entities: "),
        ("find_series", {"entities": []}, "entities: "),
        ("find_series", {"entities": ["Apple"] * 11}, "entities: "),
        ("query", {"entities": ["Apple"], "series": []}, "series: "),
        ("query", {"entities": ["Apple"]}, "series: field required"),
        ("query", {"entities": ["Apple"], "series": ["Revenue"], "restated": "maybe"}, "restated: "),
        ("query", {"entities": ["Apple"], "series": ["x" * 100_000, 5]}, "series: "),
        ("find_series", {"entities": ["Apple"], "words": ["revenue"]}, "words: "),
    ],
)
async def test_wrong_types_are_structured_errors(
    sandbox: Sandbox, tool: str, arguments: dict[str, Any], problem: str
) -> None:
    """Like all other errors, in a few words, before a request."""
    async with assistant(sandbox) as call:
        result = await call(tool, **arguments)
    assert result.is_error
    content = result.structured_content
    assert (content["error"], content["retry_after_seconds"]) == ("SelectionError", None)
    assert content["message"].startswith(problem)
    assert len(text_of(result)) < 1_000
    assert not sandbox.log


async def test_schemas_list_periods_and_results(sandbox: Sandbox) -> None:
    """Four read-only tools, each with the schema of its structured content, of a server with a version."""
    async with (
        Client(sandbox.base_url, sandbox.token) as client,
        mcp.Client(server(client, sandbox.entities)) as session,
    ):
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert (session.server_info.name, session.server_info.version) == ("asyncfin", asyncfin.__version__)
    assert set(tools) == {"list_entities", "find_series", "plan_cost", "query"}
    assert all(tool.annotations.read_only_hint and tool.output_schema for tool in tools.values())
    assert "last 8 quarters" in json.dumps(tools["query"].input_schema)
    assert set(tools["plan_cost"].input_schema["properties"]) == set(
        tools["query"].input_schema["properties"]
    )


async def test_unknown_metric_has_close_matches(sandbox: Sandbox) -> None:
    """No query is sent."""
    async with assistant(sandbox) as call:
        result = await call("query", entities=["Apple"], series=["Revenues"])
    assert "has no metric 'Revenues' (close: Revenue" in text_of(result)
    assert all(served.operation != "query" for served in sandbox.log)
