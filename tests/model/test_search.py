"""The search for series by words: which it finds, in which order, and what it says is only close."""

import itertools
import pickle

import pytest
from attrs import evolve
from hypothesis import given, strategies as st
from msgspec.structs import replace

from asyncfin import Client, Select
from asyncfin.errors import SelectionError
from asyncfin.model.catalogue import Catalogue, Scope, ScopeGroup
from asyncfin.model.period import Period
from asyncfin.model.scope import ScopeRef
from asyncfin.model.search import Rank, read_words, stem
from asyncfin.model.series import CatalogueSeries
from asyncfin.model.synonyms import MEANINGS
from asyncfin.sandbox import Sandbox
from asyncfin.typing import SearchResult
from tests.model.test_catalogue import CLOUD, CLOUD_EMEA, TOTAL, catalogue, series

LABELS = {
    "Revenue": "Revenue",
    "SalesAndMarketing": "Sales and marketing",
    "GrossProfit": "Gross profit",
    "us-gaap:NetIncomeLoss": "Net Income (Loss) Attributable to Parent",
    "ResearchAndDevelopment": "Research and development",
    "DilutedEPS": "Diluted earnings per share",
    "CurrentDebt": "Long-term debt due",
    "Liabilities": "Total liabilities",
    "Inventory": "Inventory",
    "Amortization": "Amortization",
    "Stepstone": "Stepstone loans",
    "OperatingCashFlow": "Cash from the operations",
    "x:PaymentsToAcquirePropertyPlantAndEquipment": "Paid for machines",
}


def company(*labels: str, **further: str) -> Catalogue:
    """Return a catalogue with a consolidated series for each label, metric ids being those of LABELS."""
    known = {label: metric for metric, label in LABELS.items()} | {label: m for m, label in further.items()}
    return catalogue(
        *(
            series(at, known.get(label, f"x:M{at}"), "group", TOTAL, label=label, basis="Consolidated")
            for at, label in enumerate(labels or LABELS.values())
        )
    )


COMPANY = company()


def found(listed: Catalogue, text: str) -> list[tuple[Rank, str]]:
    return [(match.rank, match.series.label) for match in listed.search(text).matches]


@pytest.mark.parametrize(
    ("text", "rank", "label"),
    [
        ("net income", Rank.EXACT, "Net Income (Loss) Attributable to Parent"),
        ("NetIncomeLoss", Rank.EXACT, "Net Income (Loss) Attributable to Parent"),
        ("S9", Rank.EXACT, "Amortization"),
        ("liabilities", Rank.EXACT, "Total liabilities"),
        ("total revenue", Rank.EXACT, "Revenue"),
        ("marketing & sales", Rank.EXACT, "Sales and marketing"),
        ("sales", Rank.MEANING, "Revenue"),
        ("profit", Rank.MEANING, "Net Income (Loss) Attributable to Parent"),
        ("capex", Rank.MEANING, "Paid for machines"),
        ("purchases of property, plant and equipment", Rank.MEANING, "Paid for machines"),
        ("long term debt", Rank.WORDS, "Long-term debt due"),
        ("diluted", Rank.WORDS, "Diluted earnings per share"),
        ("share earnings", Rank.WORDS, "Diluted earnings per share"),
        ("debt", Rank.WORDS, "Long-term debt due"),
        ("total debt", Rank.WORDS, "Long-term debt due"),
        ("R&D", Rank.EXACT, "Research and development"),
        ("amort", Rank.ALIAS, "Amortization"),
        ("stock", Rank.ALIAS, "Inventory"),
        ("borrowings due", Rank.ALIAS, "Long-term debt due"),
        ("usd", Rank.DESCRIPTION, "Revenue"),
        ("eps", Rank.WORDS, "Diluted earnings per share"),
    ],
)
def test_first_series_has_best_rank(text: str, rank: Rank, label: str) -> None:
    """A rank is the first that applies; of several words the worst counts."""
    assert found(COMPANY, text)[0] == (rank, label)
    assert not COMPANY.search(text).close


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("debt", "Total liabilities"),
        ("profit", "Retained profits"),
        ("operating profit", "Operating profit of segments sold"),
        ("EBIT", "Operating income"),
        ("pretax income", "Income from continuing operations before income taxes, foreign"),
        ("basic EPS", "Earnings per share, diluted"),
        ("SG&A", "General and administrative expense"),
        ("investing cash flow", "Net cash provided by (used in) financing activities"),
        ("inventory", "Inventory, gross"),
        ("book value per share", "Stockholders' equity"),
    ],
)
def test_a_synonym_means_a_whole_label(text: str, label: str) -> None:
    """It is never exact, and a label with further words has another meaning."""
    ranks = {rank for rank, _ in found(company(label), text)}
    assert not ranks & {Rank.EXACT, Rank.MEANING}


def test_each_synonym_finds_the_others() -> None:
    """Also where a phrase has a word twice: "income before provision for income taxes" is pretax income."""
    for line in MEANINGS.strip().replace("\n =", " =").splitlines():
        phrases = [each.strip() for each in line.split("=")]
        for asked, label in itertools.permutations(phrases, 2):
            ranks = [rank for rank, _ in found(company(label), asked)]
            assert ranks, (asked, label)
            assert ranks[0] <= Rank.MEANING, (asked, label)


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("diluted EPS", "Earnings Per Share, Diluted"),
        ("earnings per share", "EPS"),
        ("PP&E", "Property, plant and equipment"),
        ("AOCI", "Accumulated Other Comprehensive Income (Loss)"),
    ],
)
def test_abbreviation_is_what_it_stands_for(text: str, label: str) -> None:
    """In labels and in what people search for."""
    assert found(company(label), text) == [(Rank.EXACT, label)]


def test_for_sale_is_not_sales() -> None:
    """Neither as a loose synonym of revenue; sales of a part still are, and the word itself is found."""
    listed = company("Debt securities, available-for-sale, amortized cost", "Net sales, Europe", "Cash")
    assert found(listed, "revenue") == [(Rank.ALIAS, "Net sales, Europe")]
    assert found(company("Sale of goods", "Assets held for sale"), "revenue") == [
        (Rank.ALIAS, "Sale of goods")
    ]
    assert listed.search("cost of revenue").close
    assert found(listed, "securities for sale")[0][0] == Rank.WORDS


def parts() -> Catalogue:
    """Return revenue and more of a company and of its parts, in an annual and a quarterly group."""
    ended = Scope("ended", "Ended business", "", "part", (), None, Period(2022, 12, 0))
    cloud = Scope("cloud", "Cloud", "", "part", ("AWS", "Web Services"))
    listed = catalogue(
        series(1, "Revenue", "q", (ScopeRef("segment", "ended"),), label="Revenue", basis="segment"),
        series(2, "Revenue", "q", CLOUD_EMEA, label="Revenue", basis="segment"),
        series(3, "Revenue", "q", CLOUD, label="Revenue", basis="segment"),
        series(4, "Revenue", "annual", TOTAL, label="Revenue", basis="consolidated"),
        series(5, "Revenue", "q", TOTAL, label="Revenue", basis="consolidated"),
        series(6, "Deferred", "q", TOTAL, label="Revenue deferred until later", basis="consolidated"),
        series(7, "Unbilled", "q", TOTAL, label="Revenue unbilled", basis="consolidated"),
        series(8, "Debt", "q", TOTAL, label="Debt of banks", basis="consolidated"),
        series(9, "TotalDebt", "q", TOTAL, label="Total debt of banks", basis="consolidated"),
        series(10, "Cloudy", "q", TOTAL, label="Cloud contracts", basis="consolidated"),
        name="Example Holdings",
    )
    groups = (
        *(each for each in listed.scope_groups if each.scope_group_id != "segment"),
        ScopeGroup(scope_group_id="segment", name="Segment", scopes=(cloud, ended)),
    )
    return evolve(listed, scope_groups=groups)


PARTS = parts()


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("revenue", ["s5", "s4", "s1", "s3", "s2", "s7", "s6"]),
        ("annual revenue", ["s4"]),
        ("quarterly revenue", ["s5", "s1", "s3", "s2", "s7", "s6"]),
        ("segment revenue", ["s1", "s3", "s2"]),
        ("revenue of Example Holdings, annual", ["s4"]),
        ("cloud revenue", ["s3", "s2"]),
        ("cloud emea revenue", ["s2"]),
        ("cloud", ["s3", "s2", "s10"]),
        ("total debt", ["s9", "s8"]),
        ("AWS revenue", ["s3", "s2"]),
        ("web services", ["s3", "s2"]),
        ("", [f"s{at}" for at in (1, 2, 3, 5, 6, 7, 8, 9, 10, 4)]),
        (" ,. ", [f"s{at}" for at in (1, 2, 3, 5, 6, 7, 8, 9, 10, 4)]),
        ("of the", []),
    ],
)
def test_series_of_one_rank_have_order(text: str, ids: list[str]) -> None:
    """Whole company, current, weak words, scopes, other words of the label, and the catalogue's order."""
    assert [each.series_id for each in PARTS.search(text)] == ids


def test_meaning_comes_before_scope_names() -> None:
    """A line "Sales" in a table about derivatives is not what "sales" means first."""
    scope = ScopeGroup(scope_group_id="segment", name="Lines", scopes=(Scope("cloud", "Sales"),))
    listed = catalogue(
        series(1, "Gains", "q", CLOUD, label="Gains", basis="Consolidated"),
        series(2, "Revenue", "q", TOTAL, label="Revenue", basis="Consolidated"),
    )
    listed = evolve(listed, scope_groups=(*(g for g in listed.scope_groups if g.name != "segment"), scope))
    assert found(listed, "sales") == [(Rank.MEANING, "Revenue"), (Rank.WORDS, "Gains")]


def test_labels_come_before_descriptions() -> None:
    """Where no series has all words, one whose label has a word precedes one whose description has two."""
    described = catalogue(
        series(0, "x:M0", "group", TOTAL, label="Operating income", basis="Consolidated"),
        replace(
            series(1, "x:M1", "group", TOTAL, label="Turnover"),
            description="The margin of goods after operating costs.",
        ),
    )
    assert found(described, "operating margin lease") == [(Rank.CLOSE, "Operating income")]
    assert found(described, "operating margin") == [(Rank.DESCRIPTION, "Turnover")]


def test_names_in_camel_case_are_found() -> None:
    """Nobody writes the name of a product as its company does."""
    scope = ScopeGroup(scope_group_id="segment", name="Products", scopes=(Scope("cloud", "iPhone"),))
    listed = catalogue(series(1, "Revenue", "q", CLOUD, label="Revenue"))
    listed = evolve(listed, scope_groups=(scope,))
    for text in ("iphone", "iPhone", "IPHONE revenue", "iPhones"):
        assert found(listed, text) == [(Rank.EXACT, "Revenue")], text


def test_matches_of_catalogues_are_grouped() -> None:
    """A metric and path is found once, with its series in each catalogue; ranks are compared over all."""
    first = company("Gross profit", "Revenue")
    second = company("Cash", "Net Income (Loss) Attributable to Parent", "Gross profit")

    def grouped(text: str, *catalogues: Catalogue) -> list[tuple[str, list[int]]]:
        groups = SearchResult.group(listed.search(text) for listed in catalogues)
        return [(group[0][1].series.metric_id, sorted(dict(group))) for group in groups]

    assert grouped("profit", first, second) == [("us-gaap:NetIncomeLoss", [1]), ("GrossProfit", [0, 1])]
    assert grouped("cash", first, second) == [("x:M0", [1])]
    assert grouped("xyzzy", first, second) == []


def test_close_matches_of_catalogues_are_ordered() -> None:
    """By how close they come, whichever catalogue is the first."""
    parts, close = company("Revenue"), company("Cash", "Cloud revenue")
    for catalogues in ((parts, close), (close, parts)):
        groups = SearchResult.group(listed.search("cloud revemue") for listed in catalogues)
        assert [group[0][1].series.label for group in groups] == ["Cloud revenue", "Revenue"]


def test_ended_series_rank_behind() -> None:
    """A year before most others; within what is called so or means the same. The row shows since when."""
    listed = company("Sales", "Revenue", "Net sales", "Cash", "Revenue, other")
    ends = {"s0": 2021, "s1": 2023, "s2": 2024, "s3": 2024, "s4": 2026}
    last = {series_id: Period(year, 12, 12) for series_id, year in ends.items()}
    result = listed.search("revenue", last_periods=last)
    assert [series.series_id for series in listed.search("revenue")] == ["s1", "s0", "s2", "s4"]
    assert [series.series_id for series in result] == ["s2", "s1", "s0", "s4"]
    assert [str(match.ended) for match in result.matches] == ["None", "FY2023", "FY2021", "None"]
    assert "Sales (no value since FY2021)" in str(result)


WORDS = {
    "revenue": "Revenue",
    "sales": "Revenue",
    "net income": "NetIncome",
    "profit": "NetIncome",
    "operating income": "OperatingIncome",
    "EPS": "EPS",
    "R&D": "ResearchAndDevelopment",
    "capex": "CapitalExpenditure",
    "debt": "Debt",
    "total assets": "Assets",
    "cash": "Cash",
    "dividends": "Dividends",
    "buybacks": "Buybacks",
    "cash flow from operations": "OperatingCashFlow",
    "equity": "Equity",
}


async def test_words_find_metrics_of_the_demo() -> None:
    """45 of 45, each first in its list, of the whole company; the error over an unknown metric agrees."""
    async with Sandbox.demo() as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        catalogues = [await client.catalogue(each) for each in sandbox.entities]
    for listed in catalogues:
        for text, metric in WORDS.items():
            first = listed.search(text)[0]
            assert first.metric_id.startswith(metric), (listed.name, text)
            assert first.basis == "consolidated"
            if text not in listed.by_metric:
                with pytest.raises(SelectionError, match=rf"close: {first.metric_id}\b"):
                    listed.select(Select(text))
    assert len(catalogues) * len(WORDS) == 45


def test_unknown_metric_has_close_matches() -> None:
    """The metrics that a search for its words finds."""
    listed = company("Revenue", "Sales and marketing", "Amortization")
    for unknown, close in [
        ("AMORTIZATION", "Amortization"),
        ("SalesAndMarketin", "SalesAndMarketing"),
        ("sales", "Revenue, SalesAndMarketing"),
        ("us-gaap:Amort", "Amortization"),
    ]:
        with pytest.raises(SelectionError, match=rf"has no metric '{unknown}' \(close: {close}\)$"):
            listed.select(Select(unknown))
    with pytest.raises(SelectionError, match=r"has no metric 'Qqqq'$"):
        listed.select(Select("Qqqq"))


def test_result_is_tuple_that_shows_itself() -> None:
    """As text and in notebooks: metric, label, scope path and group, and how many more there are."""
    result = PARTS.search("revenue")
    assert isinstance(result, tuple)
    assert str(result) == repr(result)
    heads, _, first, *_ = (line.split() for line in str(result).splitlines())
    assert heads == ["metric", "label", "scopes", "group"]
    assert first == ["Revenue", "Revenue", "Total", "q"]
    assert "<td>" not in result._repr_html_()
    assert result._repr_html_().count("<tr>") == 8
    many = catalogue(*(series(at, f"m{at}", "g", TOTAL, label="Revenue") for at in range(98)))
    assert str(many.search("revenue")).endswith("\nand 78 more")
    assert "and 78 more" in many.search("revenue")._repr_html_()
    assert "close to them" in str(PARTS.search("revenue moonbase"))
    assert "close to them" in PARTS.search("revenue moonbase")._repr_html_()


def test_result_is_selected_and_pickled() -> None:
    result = PARTS.search("cloud revenue")
    assert set(PARTS.select(Select.of(result))) == set(result)
    copy = pickle.loads(pickle.dumps(PARTS.search("revenue moonbase")))
    assert (copy, copy.close) == (PARTS.search("revenue moonbase"), True)


def plain(each: CatalogueSeries, listed: Catalogue) -> set[str]:
    """Return the words of label, metric and scopes, as an oracle finds them."""
    texts = [each.label, each.metric_id.split(":")[-1], *listed.scope_names(each.scopes)]
    return {stem(word) for text in texts for word in read_words(text)}


@given(
    st.lists(
        st.sampled_from(["revenue", "cash", "deferred", "cloud", "emea", "debt", "banks", "unbilled"]),
        min_size=1,
    )
)
def test_found_series_have_all_words(words: list[str]) -> None:
    """And the other way round: a series that has all words is found, and is not called close."""
    have = {
        each.series_id
        for each in PARTS
        if {stem(word) for word in words} <= plain(each, PARTS) | {"q", "annual", "quarterly"}
    }
    result = PARTS.search(" ".join(words))
    ranks = {match.series.series_id: match.rank for match in result.matches}
    if have:
        assert not result.close
        assert have <= set(ranks)
        assert all(rank != Rank.WORDS for series_id, rank in ranks.items() if series_id not in have)
