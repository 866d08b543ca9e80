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
            st.lists(st.sampled_from([*LABELS, "FY1999"]), min_size=1, unique=True).map(Exact)
            | (st.integers(1, 30) | st.just(600)).map(Trailing)
            | st.tuples(st.integers(1, 12), st.integers(1, 12)).map(
                lambda m: FiscalRange((2023, m[0]), (2024, m[1]))
            )
            | st.sampled_from([FiscalRange((1, 1), (2, 1)), FiscalRange((2024, 12), (2030, 1))])
        ),
        data.draw(st.none() | st.lists(st.sampled_from(["annual", "quarterly"]), min_size=1, unique=True)),
        data.draw(st.sampled_from(["original", "latest_restated"])),
    )
    options = {"page_size": data.draw(st.integers(1, 8)), "prefetch": data.draw(st.booleans())}
    assert await numbers(client, asked, **options) == meant(asked)


async def test_body_has_every_selection(client: Client, sandbox: Sandbox) -> None:
    """As it was given, and 100 series a page: the default of 25 would cost four times the allowance."""
    asked = query(
        metric_ids=["staff", "profit"], scope_combinations=[EMEA, CLOUD], reporting_group_ids="annual"
    )
    body = await body_of(client, sandbox, asked)
    assert (body["metric_ids"], body["reporting_group_ids"]) == (["staff", "profit"], ["annual"])
    assert body["scope_combinations"] == [references(EMEA), references(CLOUD)]
    assert (body["limit"], body["value_version"]) == (100, "original")
    body = await body_of(client, sandbox, query(value_version="latest_restated"))
    assert (body["value_version"], "reporting_group_ids" in body) == ("latest_restated", False)


async def test_rule_3_next_page_adds_cursor(client: Client, sandbox: Sandbox) -> None:
    """Selections and pin unchanged; nothing is asked after the last page."""
    asked = query(expected_dataset_id=FIRST, reporting_group_ids="quarterly", periods=Trailing(24))
    given = [page.next_cursor async for page in client.query_pages(ENTITY, asked, page_size=2)]
    first, *later = (sent.body for sent in sandbox.log)
    assert later == [first | {"cursor": cursor} for cursor in given[:-1]]
    assert len(later) == 1


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
