"""Which series of a company are rows of a result, and what notes call the rows."""

from typing import Any

import pytest

from asyncfin.sandbox import Sandbox, load
from tests.handmade import SECOND, dataset
from tests.mcp.assistant import assistant, rows_of, text_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

IFRS = {"FY2023": 5, "FY2024": 6}
PRO_FORMA = {"FY2021": 3000, "FY2022": 4000}


def company(numbers: dict[str, dict[str, float]], entity_id: str = "O-" + "7" * 32) -> dict[str, Any]:
    """Return a dataset of revenue of one scope in multiple reporting groups."""
    file = dataset({("Revenue", name): row for name, row in numbers.items()}, entity_id=entity_id)
    (publication,) = file["publications"]
    (group,) = publication["groups"]
    for series in group["series"]:
        series |= {"description": "In USD.", "label": "Revenue", "basis": "consolidated"}
        series["scopes"] = [{"scope_group_id": "company", "scope_id": "whole"}]
    publication["scope_groups"][0]["scopes"] = [{"scope_id": "whole", "name": "Whole company"}]
    publication["groups"] = [
        {**group, "reporting_group_id": name, "series": [series]}
        for name, series in zip(numbers, group["series"], strict=True)
    ]
    return file


@pytest.mark.parametrize(
    ("periods", "rows"),
    [
        ("FY2023, FY2024", [("Whole company", "", ["FY2023", "FY2024"])]),
        ("FY2030, FY2021", [("Whole company", "", ["FY2021"])]),
        (
            "all periods",
            [
                ("Whole company [ifrs]", "ifrs", ["FY2023", "FY2024"]),
                ("Whole company [proforma]", "proforma", ["FY2021", "FY2022"]),
            ],
        ),
    ],
)
async def test_groups_with_values_are_rows(periods: str, rows: list[Any]) -> None:
    """A group is named only beside another one; one without a value in the periods is no row."""
    file = company({"ifrs": IFRS, "proforma": PRO_FORMA})
    async with Sandbox(load(file)) as sandbox, assistant(sandbox) as call:
        answer = await call("query", entities=sandbox.entities, series=["Revenue"], periods=periods)
    assert [(row["scopes"], row["group"], list(row["values"])) for row in rows_of(answer)] == rows


async def test_metric_means_whole_company_first() -> None:
    """Else at most twelve paths, and a note counts the others; a name with a path is one of them."""
    paths = [f"part {number}" for number in range(14)]
    file = dataset({("Revenue", path): {"FY2024": 1} for path in paths})
    async with Sandbox(load(file)) as sandbox, assistant(sandbox) as call:
        parts = await call("query", entities=sandbox.entities, series=["Revenue"], periods=2024)
        found = await call("find_series", entities=sandbox.entities, words="revenue part 13")
        (name,) = {row["series"] for row in found.structured_content["series"] if row["scopes"] == "part 13"}
        part = await call("query", entities=sandbox.entities, series=name, periods=2024)
        wrong = await call("query", entities=sandbox.entities, series="Revenue @ company=part 99")
        series = file["publications"][0]["groups"][0]["series"]
        series[5]["basis"] = "consolidated"
        sandbox.publish(load({**file, "publications": [{**file["publications"][0], "dataset_id": SECOND}]}))
        whole = await call("query", entities=sandbox.entities, series=["Revenue"], periods=2024)
    assert [row["scopes"] for row in rows_of(parts)] == paths[:12]
    assert "Revenue: 2 more scope paths" in text_of(parts)
    assert [row["scopes"] for row in rows_of(part)] == ["part 13"]
    assert wrong.structured_content["error"] == "SelectionError"
    assert len(rows_of(whole)) in (1, 12)


async def test_notes_name_rows_and_companies() -> None:
    """Companies of one name have their ids; two rows of a company have their groups."""
    ids = ["O-" + "1" * 32, "O-" + "2" * 32]
    first, second = company({"ifrs": IFRS, "proforma": PRO_FORMA}, ids[0]), company({"ifrs": IFRS}, ids[1])
    async with Sandbox(load(first), load(second)) as sandbox, assistant(sandbox) as call:
        answer = await call("query", entities=ids, series=["Revenue"], periods="FY2022, FY2023, FY2030")
        alone = await call("query", entities=ids[1:], series=["Revenue"], periods="FY2023, FY2030")
    notes = answer.structured_content["notes"]
    assert f'company "Example ({ids[0]})" does not have the periods FY2030' in notes
    assert 'company "Example" does not have the periods FY2030' in text_of(alone)
    assert any(
        note.startswith(f'company "Example ({ids[0]})": Revenue') and "[proforma]" in note for note in notes
    )
