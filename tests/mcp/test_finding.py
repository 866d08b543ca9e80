"""Which series the tools find for words, and in which order."""

import pytest

from asyncfin import MemoryCache
from asyncfin.sandbox import Sandbox, load
from tests.handmade import dataset
from tests.mcp.assistant import assistant, text_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


async def test_words_find_the_best_series(sandbox: Sandbox) -> None:
    """The whole company first; plurals, abbreviations, other names, typing errors."""

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


async def test_ended_series_rank_behind() -> None:
    """By the cached values of this publication; with an empty cache the order is by text alone."""
    years = {f"FY{year}": year for year in range(2015, 2025)}
    numbers = {("Revenue", "north"): {"FY2015": 1}, ("Revenue", "south"): years, ("Revenue", "west"): years}
    async with Sandbox(load(dataset(numbers))) as sandbox, assistant(sandbox, cache=MemoryCache()) as call:
        before = await call("find_series", entities=sandbox.entities, words="revenue")
        await call("query", entities=sandbox.entities, series="Revenue")
        spent = len(sandbox.log)
        after = await call("find_series", entities=sandbox.entities, words="revenue")
        assert all(served.operation == "dataset" for served in sandbox.log[spent:])
    rows = before.structured_content["series"], after.structured_content["series"]
    scopes = [[row["scopes"] for row in found] for found in rows]
    assert scopes == [["north", "south", "west"], ["south", "west", "north"]]
    assert rows[1][-1]["label"].endswith("(no value since FY2015)")
