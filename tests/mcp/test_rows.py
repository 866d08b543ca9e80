"""Which series of a company are one row of a result, and what notes call the rows."""

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from asyncfin import Client, FiscalRange, Panel, Select
from asyncfin.analysis.lines import lines_of
from asyncfin.sandbox import Sandbox, load
from tests.handmade import dataset, series_id
from tests.mcp.assistant import assistant, rows_of, text_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
DATA = sorted((Path(__file__).parents[3] / "shared" / "data").glob("*.json.gz"))

IFRS = {"FY2023": 5, "FY2024": 6}
PRO_FORMA = {"FY2021": 3000, "FY2022": 4000}


def company(
    numbers: Mapping[str, Mapping[str, float]], entity_id: str = "O-" + "7" * 32, **fields: str
) -> dict[str, Any]:
    """Return revenue of one scope in several reporting groups; a field is what the last one has instead."""
    file = dataset({("Revenue", name): found for name, found in numbers.items()}, entity_id=entity_id)
    (publication,) = file["publications"]
    (group,) = publication["groups"]
    for series in group["series"]:
        series |= {"description": "In USD.", "label": "Revenue", "basis": "consolidated"}
        series["scopes"] = [{"scope_group_id": "company", "scope_id": "whole"}]
    publication["scope_groups"][0]["scopes"] = [{"scope_id": "whole", "name": "Whole company"}]
    group["series"][-1].update(fields)
    publication["groups"] = [
        {**group, "reporting_group_id": name.partition("/")[0], "series": [series]}
        for name, series in zip(numbers, group["series"], strict=True)
    ]
    return file


async def rows(file: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    async with Sandbox(load(file)) as sandbox, assistant(sandbox) as call:
        answer = await call("query", entities=sandbox.entities, series=["Revenue"], periods="all periods")
    return [
        (each["series"], each["scopes"], each["group"], ", ".join(each["values"])) for each in rows_of(answer)
    ]


async def test_equal_series_of_several_groups_are_one_row() -> None:
    """Years of one group and quarters of another are one line; the row has no group."""
    annual = {"annual": {"FY2024": 6}, "quarterly": {"FY2024": 6, "FY2025": 2}}
    assert await rows(company(annual)) == [("r1", "Whole company", "", "FY2024, FY2025")]


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("label", "Revenues"),
        ("description", "In thousands of CNY."),
        ("basis", "pro forma"),
        ("number_format", "0.0"),
        ("period_meaning", "at the end"),
    ],
)
async def test_series_that_differ_in_a_text_are_a_row_each(field: str, text: str) -> None:
    """Thousands of CNY under USD would be wrong by a factor; the handle is that of metric and path."""
    assert await rows(company({"ifrs": IFRS, "proforma": PRO_FORMA}, **{field: text})) == [
        ("r1", "Whole company [ifrs]", "ifrs", "FY2023, FY2024"),
        ("r1", "Whole company [proforma]", "proforma", "FY2021, FY2022"),
    ]


async def test_series_with_different_numbers_are_a_row_each() -> None:
    """None of them is dropped, and two of one group have their ids too."""
    numbers = {"ifrs": {"FY2023": 5}, "gaap": {"FY2023": 6, "FY2024": 7}}
    assert [group for _, _, group, _ in await rows(company(numbers))] == ["ifrs", "gaap"]
    file = company({"ifrs": {"FY2023": 5}, "ifrs/2": {"FY2023": 6}})
    groups = file["publications"][0]["groups"]
    file["publications"][0]["groups"] = [{**groups[0], "series": [each["series"][0] for each in groups]}]
    found = await rows(file)
    assert [group for _, _, group, _ in found] == [
        f"ifrs, {series_id('Revenue', 'ifrs')}",
        f"ifrs, {series_id('Revenue', 'ifrs/2')}",
    ]
    assert found[0][1] == f"Whole company [{found[0][2]}]"


TEXTS = ("label", "description", "basis", "number_format", "period_meaning")


@pytest.mark.parametrize("seed", range(12))
async def test_a_row_joins_only_what_is_equal_in_all_its_texts_and_numbers(seed: int) -> None:
    """Of two to four series at random, against plain comparison; a row shows no number of another one."""
    rng = random.Random(seed)
    names = ["ifrs", "gaap", "proforma", "segments"][: rng.randint(2, 4)]
    labels = [f"FY{year}" for year in range(2019, 2025)]
    numbers = {name: {label: rng.randint(1, 3) for label in rng.sample(labels, 3)} for name in names}
    if rng.random() < 0.5:  # without a conflict
        numbers = {name: {label: int(label[-1]) for label in found} for name, found in numbers.items()}
    file = company(numbers)
    (publication,) = file["publications"]
    for group in publication["groups"]:
        for text in TEXTS:
            if rng.random() < 0.12:
                group["series"][0][text] = f"another {text}"
    async with (
        Sandbox(load(file)) as sandbox,
        assistant(sandbox) as call,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        answer = await call("query", entities=sandbox.entities, series=["Revenue"], periods="all periods")
        panel = await client.query(sandbox.entities[0], Select(), FiscalRange())
    check_rows(rows_of(answer), panel)


def check_rows(shown: Sequence[Mapping[str, Any]], panel: Panel) -> int:
    """Check the rows of a company against the series of its panel, and return how many are of several."""
    joined = 0
    by_meaning: dict[tuple[str, str], list[Any]] = {}
    for series in panel:
        if any(True for _ in series.observations()):
            scopes = " / ".join(panel.catalogue.scope_names(series.scopes))
            by_meaning.setdefault((series.metric_id, scopes), []).append(series)
    for (metric, scopes), several in by_meaning.items():
        rows = [
            row for row in shown if row["metric"] == metric and row["scopes"].partition(" [")[0] == scopes
        ]
        texts = {
            tuple(getattr(panel.catalogue[series.series_id], text) for text in TEXTS) for series in several
        }
        numbers: dict[Any, set[float]] = {}
        for series in several:
            for period, value in series.observations():
                numbers.setdefault(period, set()).add(value.number)
        is_one = len(texts) == 1 and all(len(each) == 1 for each in numbers.values())
        assert len(rows) == (1 if is_one else len(several)), (metric, scopes)
        joined += is_one and len(several) > 1
        for row, found in zip(rows, [several] if is_one else [[each] for each in several], strict=True):
            wanted = {period.label: str(value) for each in found for period, value in each.observations()}
            assert row["values"] == wanted
            first = panel.catalogue[found[0].series_id]
            assert row["label"] == first.label
            assert (row["group"] == "") == is_one or len(several) == 1
    return joined


@pytest.mark.skipif(not DATA, reason="../shared/data is not there")
async def test_no_row_of_a_real_company_joins_what_differs() -> None:
    """Of random metrics; the annual and the quarterly group of most are one row."""
    rng = random.Random(20)
    files = rng.sample(DATA, 3)
    joined = 0
    async with Sandbox(*map(load, files)) as sandbox:
        offered = dict.fromkeys(sandbox.entities, "")
        async with (
            assistant(sandbox, offered=offered, max_requests=1_000, max_age=3600) as call,
            Client(sandbox.base_url, sandbox.token) as client,
        ):
            for entity_id in sandbox.entities:
                catalogue = await client.catalogue(entity_id)
                for metric in rng.sample(sorted(catalogue.by_metric), 6):
                    answer = await call("query", entities=entity_id, series=metric, periods="all periods")
                    if answer.is_error or "omitted" in text_of(answer):
                        continue
                    panel = await client.query(entity_id, Select(metric_ids=metric), FiscalRange())
                    meant = {each["scopes"].partition(" [")[0] for each in rows_of(answer)}
                    ids = [
                        each.series_id
                        for each in panel
                        if " / ".join(catalogue.scope_names(each.scopes)) in meant
                    ]
                    panel = await client.query(entity_id, Select(series_ids=ids), FiscalRange())
                    joined += check_rows(rows_of(answer), panel)
    assert joined > 0


async def test_notes_name_a_row_by_its_handle_and_group() -> None:
    """So that a reader knows which of two rows has which unit, and which of them was restated."""
    file = company({"ifrs": IFRS, "proforma": PRO_FORMA}, description="In thousands of CNY.")
    async with Sandbox(load(file)) as sandbox, assistant(sandbox) as call:
        answer = await call("query", entities=sandbox.entities, series=["Revenue"], periods="all periods")
    notes = answer.structured_content["notes"]
    assert (
        'Revenue has different descriptions: r1 [ifrs]: "In USD."; r1 [proforma]: "In thousands of CNY."'
        in notes
    )
    assert any(
        each.startswith('company "Example": r1 [proforma] is empty in FY2023, FY2024') for each in notes
    )


async def test_companies_of_one_name_are_told_apart_by_their_ids() -> None:
    """Elsewhere a name alone is shorter; between companies a description belongs to a company."""
    ids = ["O-" + "1" * 32, "O-" + "2" * 32]
    first = company({"ifrs": IFRS, "proforma": PRO_FORMA}, ids[0], description="In thousands of CNY.")
    second = company({"ifrs": IFRS}, ids[1])
    async with Sandbox(load(first), load(second)) as sandbox, assistant(sandbox) as call:
        answer = await call("query", entities=ids, series=["Revenue"], periods="FY2022, FY2023, FY2030")
        alone = await call("query", entities=ids[1:], series=["Revenue"], periods="FY2023, FY2030")
    assert f'company "Example" ({ids[0]}) does not have the periods FY2030' in text_of(answer)
    assert 'company "Example" does not have the periods FY2030' in text_of(alone)
    (note,) = [each for each in answer.structured_content["notes"] if "different" in each]
    usd = f'company "Example" ({ids[0]}): r1 [ifrs], company "Example" ({ids[1]}): "In USD."'
    cny = f'company "Example" ({ids[0]}): r1 [proforma]: "In thousands of CNY."'
    assert note == f"Revenue has different descriptions: {usd}; {cny}"


async def test_a_scope_in_a_sentence_is_quoted() -> None:
    """It is data of the service, and could read like a sentence."""
    file = company({"ifrs": IFRS})
    (scope,) = file["publications"][0]["scope_groups"][0]["scopes"]
    scope |= {"name": "All. Ignore this", "active_end": {"year": 2022, "end_month": 12, "duration_months": 0}}
    file["publications"][0]["periods"].append([2025, 12, 12])
    async with Sandbox(load(file)) as sandbox, assistant(sandbox) as call:
        answer = await call("query", entities=sandbox.entities, series=["Revenue"], periods="all periods")
    assert any('inactive scope: "All. Ignore this" was active until' in each for each in notes_of(answer))


def notes_of(answer: Any) -> list[str]:
    return list(answer.structured_content["notes"])


async def test_the_rows_of_the_demo_are_joined(sandbox: Sandbox) -> None:
    """275 of 275 metrics and paths: the annual and the quarterly group are one line."""
    pytest.importorskip("pyarrow")
    lines, meanings = 0, set()
    async with Client(sandbox.base_url, sandbox.token) as client:
        for entity_id in sandbox.entities:
            panel = await client.query(entity_id, Select(), FiscalRange())
            lines += len(lines_of([panel]))
            meanings |= {(entity_id, each.metric_id, each.scopes) for each in panel}
    assert lines == len(meanings)


async def test_the_schemas_fit_into_a_small_context(sandbox: Sandbox) -> None:
    """Every session of an assistant pays for them: four characters are about one token."""
    async with assistant(sandbox) as call:
        tools = (await call.__closure__[0].cell_contents.list_tools()).tools
    schemas = ([tool.name, tool.description, tool.input_schema] for tool in tools)
    texts = [json.dumps(each, separators=(",", ":")) for each in schemas]
    assert len(tools) == 4
    assert sum(map(len, texts)) / 4 <= 850
