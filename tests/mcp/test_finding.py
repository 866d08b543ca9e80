"""Which series the tools find for words, and in which order."""

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from asyncfin.sandbox import Sandbox, load
from tests.handmade import dataset
from tests.mcp.assistant import assistant, text_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


async def test_words_rank_labels_before_descriptions_and_whole_before_parts(sandbox: Sandbox) -> None:
    """The whole company first; plurals, initials and other names of a metric are found; typing errors too."""

    async def first(words: str) -> tuple[str, str]:
        found = await call("find_series", entities=["Apple"], words=words)
        best = found.structured_content["series"][0]
        return best["metric"], best["scopes"]

    async with assistant(sandbox, max_age=60) as call:
        assert await first("Revenue") == ("Revenue", "Whole company")
        assert await first("sales") == ("Revenue", "Whole company")
        assert await first("Group revenue") == ("Revenue", "Whole company")  # an alias of the scope
        assert await first("diluted EPS") == ("DilutedEPS", "Whole company")
        assert await first("DPS") == ("DividendsPerShare", "Whole company")
        assert await first("inventories") == ("Inventory", "Whole company")
        assert await first("apple gross profits") == ("GrossProfit", "Whole company")
        assert await first("iphone") == ("Revenue", "iPhone")
        close = await call("find_series", entities=["Apple"], words="gros proft")
        nothing = await call("find_series", entities=["Apple"], words="zzzz qqqq")
    assert "nothing matches all words; close matches:" in text_of(close)
    assert close.structured_content["series"][0]["metric"] == "GrossProfit"
    assert nothing.structured_content["series"] == []


async def test_ended_series_come_after_current_ones() -> None:
    """A segment that was closed years ago is seldom meant."""
    data = dataset({("Revenue", "north"): {"FY2015": 1}, ("Revenue", "south"): {"FY2024": 2}})
    north, _ = data["publications"][0]["scope_groups"][0]["scopes"]
    north["active_end"] = {"year": 2016, "end_month": 12, "duration_months": 0}
    async with Sandbox(load(data)) as sandbox, assistant(sandbox) as call:
        found = await call("find_series", entities=sandbox.entities, words="revenue")
    assert [each["scopes"] for each in found.structured_content["series"]] == ["south", "north"]


async def test_words_find_the_usual_labels_of_filings() -> None:
    """Net earnings are "Net Income (Loss) Attributable to Parent", and services the product Service."""
    path = ("Revenue", "Service"), ("ServicesCost", "whole"), ("NetIncomeLoss", "whole")
    paths = (*path, ("NetIncomeLoss", "RetainedEarnings"), ("TaxesPaidNet", "whole"))
    data = dataset({each: {"FY2024": 1} for each in paths})
    group = data["publications"][0]["groups"][0]
    parts = {"Service", "RetainedEarnings"}
    for basis in ("consolidated", "product"):
        rows = [
            each
            for each in group["series"]
            if (each["scopes"][0]["scope_id"] in parts) == (basis == "product")
        ]
        added = {**group, "reporting_group_id": basis, "basis": basis, "series": rows}
        data["publications"][0]["groups"].append(added)
    del data["publications"][0]["groups"][0]
    async with Sandbox(load(data)) as sandbox, assistant(sandbox) as call:
        earnings = await call("find_series", entities=sandbox.entities, words="net earnings")
        services = await call("find_series", entities=sandbox.entities, words="services")
    found = [each.structured_content["series"][0] for each in (earnings, services)]
    assert [(each["metric"], each["scopes"]) for each in found] == [
        ("NetIncomeLoss", "whole"),
        ("Revenue", "Service"),
    ]


def described(**series: tuple[str, str, str]) -> Any:
    """Return a dataset of metrics, each with its scope, label and description."""
    data = dataset({(metric, scope): {"FY2024": 1} for metric, (scope, _, _) in series.items()})
    (group,) = data["publications"][0]["groups"]
    for each in group["series"]:
        _, each["label"], each["description"] = series[each["metric_id"]]
    return data


async def test_the_words_of_a_label_go_before_its_parts_and_its_description() -> None:
    """Words in descriptions are for what is not found otherwise."""
    data = described(
        Sales=("whole", "Sales", "Sales."),
        DeferredSales=("whole", "Deferred sales of next year", "Deferred."),
        Pledges=("whole", "Commitments", "Like sales, but on leaseback."),
        **{"us-gaap:Hyperinflation": ("whole", "Hyperinflation", "Hyperinflation")},
    )
    async with Sandbox(load(data)) as sandbox, assistant(sandbox, max_age=60) as call:

        async def found(words: str) -> list[str]:
            result = await call("find_series", entities=sandbox.entities, words=words)
            assert "nothing matches all words" not in text_of(result)
            return [each["metric"] for each in result.structured_content["series"]]

        assert await found("sales") == ["Sales", "DeferredSales"]
        assert await found("the values of deferred sales by year") == ["DeferredSales"]
        assert await found("leaseback") == ["Pledges"]
        assert await found("hyperinfl") == ["us-gaap:Hyperinflation"]
        for words in ("sales hyperinflation", "us gaap"):  # the taxonomy says nothing of a metric
            result = await call("find_series", entities=sandbox.entities, words=words)
            assert "nothing matches all words" in text_of(result)
        result = await call("find_series", entities=sandbox.entities, words="hyperinflation")
    (row,) = result.structured_content["series"]
    assert row["description"] == "", "a description that is the label says nothing"


async def test_other_words_for_a_series_are_noted(sandbox: Sandbox) -> None:
    """They may mean something else; a label, initials and beginnings of words need no note."""
    async with assistant(sandbox, max_age=60) as call:

        async def notes(words: str) -> list[str]:
            found = await call("find_series", entities=["Alphabet"], words=words)
            return [note for note in found.structured_content["notes"] if "is called" in note]

        for words in ("revenue", "annual total R&D of Alphabet", "amort"):
            assert await notes(words) == []
        assert await notes("turnover") == ['no series is called "turnover"; r1 has the same meaning']
        (described,) = await notes("depreciation")
        assert re.fullmatch(r'no series is called "depreciation"; r\d+ has it in its description', described)


async def test_whole_companies_go_before_parts_even_of_ended_scopes() -> None:
    """And of equal matches the one with the fewest other words is first."""
    data = dataset({("Sales", scope): {"FY2015": 1, "FY2024": 2} for scope in ("part", "whole")})
    publication = data["publications"][0]
    _, whole = publication["scope_groups"][0]["scopes"]
    whole["active_end"] = {"year": 2016, "end_month": 12, "duration_months": 0}
    (group,) = publication["groups"]
    part, own = group["series"]
    publication["groups"] = [
        {**group, "reporting_group_id": "parts", "basis": "segment", "series": [part]},
        {**group, "reporting_group_id": "own", "basis": "consolidated", "series": [own]},
    ]
    async with Sandbox(load(data)) as sandbox, assistant(sandbox) as call:
        result = await call("find_series", entities=sandbox.entities, words="sales")
    assert [each["scopes"] for each in result.structured_content["series"]] == ["whole", "part"]
    data = described(
        LongSales=("whole", "Sales and services to others", ""), ShortSales=("whole", "Sales services", "")
    )
    async with Sandbox(load(data)) as sandbox, assistant(sandbox) as call:
        result = await call("find_series", entities=sandbox.entities, words="services")
    assert [each["metric"] for each in result.structured_content["series"]] == ["ShortSales", "LongSales"]


async def test_ranking_leaves_the_event_loop_to_others(sandbox: Sandbox) -> None:
    """Of ten large companies it takes a second: it runs in a thread, and not in the loop."""

    class Counted(ThreadPoolExecutor):
        def submit(self, *work: Any, **more: Any) -> Any:
            submitted.append(work)
            return super().submit(*work, **more)

    submitted: list[Any] = []
    async with assistant(sandbox, max_age=60) as call:
        await call("find_series", entities=["Apple"])
        asyncio.get_running_loop().set_default_executor(Counted())
        await call("find_series", entities=["Apple"], words="revenue")
    assert len(submitted) == 1


async def test_a_company_keeps_the_name_that_it_is_offered_by(sandbox: Sandbox) -> None:
    """The service's own name is another one, which is found in results."""
    entity_id = sandbox.entities[0]
    async with assistant(sandbox, offered={entity_id: "Fruit", sandbox.entities[1]: ""}) as call:
        for name in ("Fruit", "fruit", entity_id):
            found = await call("find_series", entities=[name], words="revenue")
            assert not found.is_error, name
        title = text_of(found).splitlines()[0]
        own = json.loads(title[title.index('"') : title.rindex('"') + 1])
        assert own.casefold() != "fruit"
        assert not (await call("find_series", entities=[own], words="revenue")).is_error
        await call("find_series", entities=[sandbox.entities[1]], words="revenue")
        lines = text_of(await call("list_entities")).splitlines()
    assert lines[1] == f"{entity_id}\tFruit"
    # One that was offered by its id alone has the service's name, once that is known.
    assert lines[2].startswith(f"{sandbox.entities[1]}\tNVIDIA")
