"""The tools while publications change, and with cached catalogues."""

import pytest

from asyncfin.sandbox import Sandbox, Switch, load
from tests.handmade import FIRST, SECOND, dataset
from tests.mcp.assistant import assistant, rows_of, text_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


async def test_a_metric_that_a_kept_catalogue_lacks_is_looked_for_in_the_current_one() -> None:
    """A new publication may have it; the catalogue is read again only if it is older than allowed."""
    old = load(dataset({("Old", "whole"): {"FY2024": 1}}))
    new = load(dataset({("New", "whole"): {"FY2025": 2}}, dataset_id=SECOND))
    async with Sandbox(old) as sandbox, assistant(sandbox, max_age=0) as call:
        await call("find_series", entities=sandbox.entities)
        sandbox.publish(new)
        answer = await call("query", entities=sandbox.entities, series=["New"], periods="FY2025")
    assert [row["values"] for row in rows_of(answer)] == [{"FY2025": "2"}]


@pytest.mark.parametrize(
    ("periods", "shown"),
    [("latest year", ["FY2025"]), ("last 5 years", ["FY2024", "FY2025"]), ("FY2024", ["FY2024"])],
)
async def test_words_for_periods_mean_those_of_the_publication_that_was_read(
    periods: str, shown: list[str]
) -> None:
    """The catalogue that was kept is of an older one, whose latest year is no longer the latest."""
    old = load(dataset({("Revenue", "whole"): {"FY2024": 1}}))
    new = load(dataset({("Revenue", "whole"): {"FY2024": 1, "FY2025": 2}}, dataset_id=SECOND))
    async with Sandbox(old) as sandbox, assistant(sandbox) as call:
        await call("find_series", entities=sandbox.entities)
        sandbox.publish(new)
        answer = await call("query", entities=sandbox.entities, series=["Revenue"], periods=periods)
    assert [list(row["values"]) for row in rows_of(answer)] == [shown]


@pytest.mark.parametrize(("limit", "spent"), [(20, [5]), (4, [4]), (3, [3, 2])])
async def test_a_metric_means_the_paths_of_the_publication_that_was_read(
    limit: int, spent: list[int]
) -> None:
    """The catalogue that was kept is of an older one, in which it has another path; the limit still holds."""
    old = load(dataset({("Revenue", "group"): {"FY2024": 1}}))
    new = load(dataset({("Revenue", "whole"): {"FY2024": 2}}, dataset_id=SECOND))
    async with Sandbox(old) as sandbox, assistant(sandbox, max_requests=limit, max_age=600) as call:
        await call("find_series", entities=sandbox.entities)
        sandbox.publish(new)
        for number, expected in enumerate(spent, start=1):
            before = len(sandbox.log)
            answer = await call("query", entities=sandbox.entities, series=["Revenue"], periods="FY2024")
            assert len(sandbox.log) - before == expected
            assert answer.is_error == (number < len(spent))
            assert ("call again" in text_of(answer)) == (number < len(spent))
    assert [(row["scopes"], row["values"]) for row in rows_of(answer)] == [("whole", {"FY2024": "2"})]
    assert ("are not compared" in text_of(answer)) == (limit == 4)


async def test_paths_of_the_publication_that_was_read_are_all_there_or_counted() -> None:
    """Of the older one, which had some of them, nothing is said."""
    paths = [f"part {number}" for number in range(14)]
    old, new = (
        load(dataset({("Revenue", path): {"FY2024": 1} for path in known}, dataset_id=each))
        for known, each in ((paths[:5], FIRST), (paths, SECOND))
    )
    async with Sandbox(old) as sandbox, assistant(sandbox) as call:
        await call("find_series", entities=sandbox.entities)
        sandbox.publish(new)
        answer = await call("query", entities=sandbox.entities, series=["Revenue"], periods="FY2024")
    assert [row["scopes"] for row in rows_of(answer)] == paths[:12]
    assert "Revenue: 2 more scope paths" in text_of(answer)


async def test_a_metric_that_the_publication_that_was_read_lacks_is_refused() -> None:
    """As it would be if the catalogue were not kept."""
    old = load(dataset({("Old", "whole"): {"FY2024": 1}}))
    new = load(dataset({("New", "whole"): {"FY2024": 2}}, dataset_id=SECOND))
    async with Sandbox(old) as sandbox, assistant(sandbox) as call:
        await call("find_series", entities=sandbox.entities)
        sandbox.publish(new)
        answer = await call("query", entities=sandbox.entities, series=["Old"], periods="FY2024")
    assert answer.is_error
    assert "no company has the metric 'Old'" in text_of(answer)


async def test_values_of_different_publications_are_not_compared() -> None:
    """A publication that changes between the two versions restates nothing."""
    old, new = (
        load(dataset({("Revenue", "all"): {"FY2024": number}}, dataset_id=each))
        for number, each in ((1, FIRST), (2, SECOND))
    )
    switch = Switch(operation="query", nth=2, publication=new.publications[0])
    async with Sandbox(old, faults=[switch]) as sandbox, assistant(sandbox) as call:
        answer = await call("query", entities=sandbox.entities, series=["Revenue"])
        assert sandbox.log[-1].status == 200
        assert any(served.status == 409 for served in sandbox.log)
    assert [row["values"] for row in rows_of(answer)] == [{"FY2024": "1"}]
    assert "was restated" not in text_of(answer)
    assert "are not compared: the publication was replaced" in text_of(answer)
