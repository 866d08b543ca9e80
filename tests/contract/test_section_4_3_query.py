"""Section 4.3: query the dataset."""

from copy import deepcopy
from typing import Any

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings, strategies as st

from asyncfin import (
    Client,
    Exact,
    FiscalRange,
    Query,
    Select,
    Trailing,
    ValidationFailedError,
)
from asyncfin.sandbox import Dialect, Sandbox
from tests import examples
from tests.contract.conftest import (
    CLOUD,
    EMEA,
    ENTITY,
    EVERYTHING,
    FIRST,
    LABELS,
    LATER,
    METRICS,
    PATHS,
    PUBLICATION,
    SECOND,
    SERIES,
    TOTAL,
    asking,
    each_dialect,
    meant,
    numbers,
    period,
    query,
    references,
)


async def body_of(client: Client, sandbox: Sandbox, asked: Query) -> dict[str, Any]:
    """Return the body that one page of a query sends."""
    await anext(client.query_pages(ENTITY, asked))
    body: dict[str, Any] = sandbox.log[-1].body
    return body


async def test_the_request_is_a_post(client: Client, sandbox: Sandbox) -> None:
    """At /v1/entities/{entity_id}/dataset/query, all that is asked in its body."""
    await body_of(client, sandbox, query())
    (sent,) = sandbox.log
    assert (sent.method, sent.path, sent.params) == ("POST", f"/v1/entities/{ENTITY}/dataset/query", {})


async def test_body_metric_ids(client: Client, sandbox: Sandbox) -> None:
    """metric_ids narrow the result, and are sent in the order given."""
    asked = query(metric_ids=["staff", "profit"])
    assert (await body_of(client, sandbox, asked))["metric_ids"] == ["staff", "profit"]
    assert {series_id for series_id, _ in await numbers(client, asked)} == {"A-profit", "Q-profit"}


async def test_body_scope_combinations(client: Client, sandbox: Sandbox) -> None:
    """Complete, ordered paths narrow the result; a prefix of a path is another path."""
    asked = query(scope_combinations=[EMEA, CLOUD])
    assert (await body_of(client, sandbox, asked))["scope_combinations"] == [
        references(EMEA),
        references(CLOUD),
    ]
    assert {series_id for series_id, _ in await numbers(client, query(scope_combinations=CLOUD))} == {
        "Q-cloud"
    }


async def test_body_reporting_group_ids(client: Client, sandbox: Sandbox) -> None:
    """reporting_group_ids narrow the result; without them all matching groups are included."""
    assert "reporting_group_ids" not in await body_of(client, sandbox, query())
    asked = query(reporting_group_ids="annual")
    assert (await body_of(client, sandbox, asked))["reporting_group_ids"] == ["annual"]
    assert {series_id for series_id, _ in await numbers(client, asked)} == {"A-sales", "A-profit"}


@each_dialect
@pytest.mark.parametrize("version", ["original", "latest_restated"])
async def test_body_value_version(client: Client, sandbox: Sandbox, version: str) -> None:
    """The numbers are those of the version; a value without restatement keeps its original one."""
    asked = query(value_version=version)
    assert await numbers(client, asked) == meant(asked)
    assert sandbox.log[-1].body["value_version"] == version


async def test_body_limit_is_100_unless_given(client: Client, sandbox: Sandbox) -> None:
    """The service's default of 25 would cost four times the allowance."""
    assert (await body_of(client, sandbox, query()))["limit"] == 100


@each_dialect
@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("size", [1, 3, 7])
async def test_limit_does_not_change_result(client: Client, size: int, prefetch: bool) -> None:
    """The page size changes the pages and not the result, with and without prefetch."""
    assert await numbers(client, query(), page_size=size, prefetch=prefetch) == meant(query())


@each_dialect
@pytest.mark.parametrize(
    "labels", [["FY2023"], ["FY2024", "FY2023-H1"], ["FY2024-Q2", "FY2023-Q1", "FY2023"], ["FY1999"]]
)
async def test_mode_exact_selects_exactly_those_periods(client: Client, labels: list[str]) -> None:
    """None of another duration that ends in the same month comes along."""
    asked = query(periods=Exact(labels))
    assert await numbers(client, asked) == meant(asked)


@each_dialect
@pytest.mark.parametrize(
    "bounds", [((2023, 6), (2023, 6)), ((2023, 4), (2024, 3)), ((2024, 12), (2030, 1)), ((1, 1), (2, 1))]
)
async def test_mode_fiscal_range_includes_both_ends(client: Client, bounds: Any) -> None:
    """All observations whose fiscal ends lie between."""
    asked = query(periods=FiscalRange(*bounds))
    assert await numbers(client, asked) == meant(asked)


@each_dialect
@pytest.mark.parametrize("months", [1, 6, 7, 12, 13, 24, 600])
@pytest.mark.parametrize("groups", [None, ["quarterly"]])
async def test_mode_trailing_ends_at_latest_period(
    client: Client, months: int, groups: list[str] | None
) -> None:
    """A trailing window ends at the latest period of the matching series, so other series have another."""
    asked = query(periods=Trailing(months), reporting_group_ids=groups)
    assert await numbers(client, asked) == meant(asked)


@pytest.mark.parametrize(
    ("periods", "sent"),
    [
        (Exact(["FY2023"]), {"mode": "exact", "exact": [period("FY2023")]}),
        (
            FiscalRange(2023, (2024, 3)),
            {
                "mode": "fiscal_range",
                "from": {"year": 2023, "end_month": 1, "duration_months": 0},
                "to": {"year": 2024, "end_month": 3, "duration_months": 0},
            },
        ),
        (Trailing(18), {"mode": "trailing", "months": 18}),
    ],
)
async def test_period_selection_is_sent_by_mode(
    client: Client, sandbox: Sandbox, periods: Any, sent: dict[str, Any]
) -> None:
    """Each period selection is sent with the fields of its mode and no others."""
    assert (await body_of(client, sandbox, query(periods=periods)))["periods"] == sent


@each_dialect
@settings(max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_rule_1_result_is_what_matches(client: Client, data: st.DataObject) -> None:
    """Any selection gives the values that the dataset holds for it, groups kept apart."""
    asked = Query(
        data.draw(st.lists(st.sampled_from(METRICS), min_size=1, unique=True)),
        data.draw(st.lists(st.sampled_from(PATHS), min_size=1, unique=True)),
        data.draw(
            st.lists(st.sampled_from(LABELS), min_size=1, unique=True).map(Exact)
            | st.integers(1, 30).map(Trailing)
            | st.tuples(st.integers(1, 12), st.integers(1, 12)).map(
                lambda m: FiscalRange((2023, m[0]), (2024, m[1]))
            )
        ),
        data.draw(st.none() | st.lists(st.sampled_from(["annual", "quarterly"]), min_size=1, unique=True)),
        data.draw(st.sampled_from(["original", "latest_restated"])),
    )
    assert await numbers(client, asked, page_size=data.draw(st.integers(1, 8))) == meant(asked)


async def test_rule_3_next_page_adds_cursor(client: Client, sandbox: Sandbox) -> None:
    """Selections and pin unchanged; nothing is asked after the last page."""
    asked = query(expected_dataset_id=FIRST, reporting_group_ids="quarterly", periods=Trailing(24))
    given = [page.next_cursor async for page in client.query_pages(ENTITY, asked, page_size=2)]
    first, *later = (sent.body for sent in sandbox.log)
    assert later == [first | {"cursor": cursor} for cursor in given[:-1]]
    assert len(later) == 1


@each_dialect
@pytest.mark.parametrize(
    "asked",
    [
        query(metric_ids="staff", scope_combinations=CLOUD),
        query(metric_ids="staff"),
        query(periods=Exact("FY1999")),
        query(metric_ids="staff", periods=Trailing(12)),
    ],
)
async def test_rule_4_empty_match_is_fine(client: Client, asked: Query) -> None:
    """No series, or series without values."""
    assert await numbers(client, asked) == {}


@each_dialect
@pytest.mark.parametrize("asked", [Exact("FY2023"), Exact(["FY2023", "FY2024"]), EVERYTHING, Trailing(12)])
async def test_rule_4_dataset_without_periods(dialect: Dialect, asked: Any) -> None:
    """A dataset without periods has its series, and no values whatever is asked."""
    empty = evolve(PUBLICATION, periods=(), values={})
    async with Sandbox(empty, dialect=dialect) as sandbox, asking(sandbox) as client:
        assert await numbers(client, query(periods=asked)) == {}


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"metric_ids": ["sales", "nonsense"]}, "nonsense"),
        ({"reporting_group_ids": ["nonsense"]}, "nonsense"),
        ({"scope_combinations": [TOTAL, "company=nonsense"]}, "nonsense"),
    ],
)
async def test_rule_5_unknown_is_validation_failed(
    client: Client, fields: dict[str, Any], place: str
) -> None:
    """400, and the service's text, which names it, is in the error."""
    with pytest.raises(ValidationFailedError) as caught:
        await anext(client.query_pages(ENTITY, query(**fields)))
    assert (caught.value.status, caught.value.code) == (400, "validation_failed")
    assert place in str(caught.value)


@each_dialect
async def test_rule_6_whole_read_starts_over(client: Client, sandbox: Sandbox) -> None:
    """A kept catalogue has become stale; the answer is of the new publication alone."""
    await client.catalogue(ENTITY)
    sandbox.publish(LATER)
    panel = await client.query(ENTITY, Select(), EVERYTHING)
    assert panel.dataset.dataset_id == SECOND
    assert len(panel) == len(SERIES)


async def test_a_path_may_have_no_entries() -> None:
    """Rule 4: up to 20. A series of no scope is asked for like all others, by its empty path."""
    annual, quarterly = deepcopy(PUBLICATION.groups)
    annual["series"][1]["scopes"] = []
    async with Sandbox(evolve(PUBLICATION, groups=(annual, quarterly))) as sandbox, asking(sandbox) as client:
        whole = await client.query(ENTITY, Select(), FiscalRange())
        alone = await client.query(ENTITY, Select(scope_combinations=[()]), FiscalRange())
    assert {each.series_id for each in whole} == set(SERIES)
    assert [each.series_id for each in alone] == ["A-profit"]
    assert alone.one().scopes == ()


async def test_empty_id_is_an_id() -> None:
    """The spec bounds no id from below; such a series is asked for alone, and with all others."""
    annual, quarterly = deepcopy(PUBLICATION.groups)
    annual["reporting_group_id"] = ""
    for series in annual["series"]:
        series["reporting_group_id"] = ""
    annual["series"][0]["metric_id"] = ""
    async with Sandbox(evolve(PUBLICATION, groups=(annual, quarterly))) as sandbox, asking(sandbox) as client:
        whole = await client.query(ENTITY, Select(), FiscalRange())
        alone = await client.query(ENTITY, Select(metric_ids="", reporting_group_ids=""), FiscalRange())
    assert {each.series_id for each in whole} == set(SERIES)
    assert [each.series_id for each in alone] == [annual["series"][0]["series_id"]]
