"""Queries by the tools: two calls give the rows, with fiscal labels."""

from typing import Any

import pytest

from asyncfin.sandbox import Sandbox
from tests.handmade import dataset
from tests.mcp.assistant import assistant, rows_of, text_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


# Companies, words, the question, and the rows that are right: company, metric, scopes, and some values.
QUESTIONS: dict[str, tuple[list[str], str, dict[str, Any], list[tuple[str, str, str, dict[str, str]]]]] = {
    "EPS": (
        ["Apple"],
        "EPS",
        {"periods": "last 5 years"},
        [("Apple", "EPS", "Whole company", {"FY2024": "6.11", "FY2025": "7.49"})],
    ),
    "two companies": (
        ["Apple", "NVIDIA"],
        "revenue",
        {"periods": "FY2023, FY2024"},
        [
            ("Apple", "Revenue", "Whole company", {"FY2024": "391,035,000,000"}),
            ("NVIDIA", "Revenue", "Whole company", {"FY2024": "60,922,000,000"}),
        ],
    ),
    "a segment": (
        ["Alphabet"],
        "google cloud operating income",
        {"periods": "last 5 years"},
        [("Alphabet", "OperatingIncome", "Google Cloud", {"FY2023": "1,716,000,000"})],
    ),
    "quarters": (
        ["NVIDIA"],
        "data center revenue",
        {"periods": "last 4 quarters"},
        [("NVIDIA", "Revenue", "Data center", {})],
    ),
}


@pytest.mark.parametrize("name", QUESTIONS)
async def test_questions_take_two_calls(sandbox: Sandbox, name: str) -> None:
    """The first series found is the right one, every row is right, and the cost is the planned one."""
    companies, words, question, expected = QUESTIONS[name]
    async with assistant(sandbox, max_age=60) as call:
        found = await call("find_series", entities=companies, words=words)
        first = found.structured_content["series"][0]["series"]
        question = {"entities": companies, "series": [first], **question}
        before = len(sandbox.log)
        answer = await call("query", **question)
        spent = len(sandbox.log) - before
    assert (len(text_of(found)) + len(text_of(answer))) / 4 <= 800
    assert answer.structured_content["requests"] == spent
    assert "more scope path" not in text_of(answer)
    by_id = {each["id"]: each["name"] for each in answer.structured_content["companies"]}
    rows = rows_of(answer)
    assert [(by_id[row["company"]], row["metric"], row["scopes"]) for row in rows] == [
        each[:3] for each in expected
    ]
    for row, (*_, values) in zip(rows, expected, strict=True):
        assert {label: row["values"].get(label, "") for label in values} == values
        assert len(row["values"]) >= 1


async def test_companies_have_their_fiscal_labels(sandbox: Sandbox) -> None:
    """The same years for all of them; what a company does not list is not shown as empty."""
    async with assistant(sandbox, max_age=60) as call:
        answer = await call("query", entities=["Apple", "NVIDIA"], series=["Revenue"], periods="latest year")
        both = await call("query", entities=["Apple", "NVIDIA"], series=["Revenue"], periods="last 5 years")
    lines = text_of(both).splitlines()
    heads = [line.split("\t")[4:] for line in lines if line.startswith("series\t")]
    years = ["FY2022", "FY2023", "FY2024", "FY2025"]
    assert heads == [years, [*years, "FY2026"]]
    assert 'company "Apple" has none of these periods' in text_of(answer)


async def test_company_may_have_a_row_twice() -> None:
    """One company has two series of a metric, group and path; the rows of both companies are there."""
    ids = ["O-" + digit * 32 for digit in "12"]
    first, second = (dataset({("Revenue", "all"): {"FY2024": 1}}, entity_id=each) for each in ids)
    publication = second["publications"][0]
    (series,) = publication["groups"][0]["series"]
    # The ids are the company's own, so those of the other company do not choose one.
    publication["groups"][0]["series"] = [series | {"series_id": name} for name in ("one", "two")]
    publication["values"] = {"one": [[0, 3]], "two": [[0, 4]]}
    offered = dict(zip(ids, ("First", "Second"), strict=True))
    async with Sandbox(first, second) as service, assistant(service, offered=offered) as call:
        answer = await call("query", entities=ids, series=["Revenue"], periods=["FY2024"])
    assert len(rows_of(answer)) == 3
