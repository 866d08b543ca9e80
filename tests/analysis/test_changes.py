"""What changed between two panels, compared with an oracle that goes cell by cell."""

from random import Random
from typing import Any

import pytest

import asyncfin
from asyncfin import Annual, ArgumentError, Client, Exact, Panel, Select, SelectionError
from asyncfin.model.selection import PeriodSelection
from asyncfin.sandbox import Dialect, Sandbox
from tests.nights import (
    LABELS,
    Cell,
    Content,
    Key,
    changes_in,
    dataset_id,
    entity,
    expected_changes,
    nights,
    publication,
)

REVENUE, COST = Key("S-1"), Key("S-2", "Cost")


YEARS = Exact(LABELS)


async def panels(*contents: Content, periods: PeriodSelection = YEARS) -> list[Panel]:
    """A panel of each publication, one after the other."""
    found = []
    async with (
        Sandbox(publication({REVENUE: {"FY2019": Cell(1)}}, number=99)) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        for number, content in enumerate(contents, 1):
            sandbox.publish(publication(content, number=number, periods=("FY2020", "FY2021")))
            found.append(await client.query(entity(1), Select(), periods))
    return found


async def test_each_kind_of_change_is_named() -> None:
    """A source alone is no change; the vanished row is the old one."""
    old, new = await panels(
        {REVENUE: {"FY2020": Cell(1), "FY2021": Cell(2), "FY2022": Cell(3), "FY2023": Cell(4)}},
        {REVENUE: {
            "FY2020": Cell(1, source="other"), "FY2021": Cell(5), "FY2022": Cell(3, "amended"),
            "FY2024": Cell(0),
        }},
    )  # fmt: skip
    table = asyncfin.changes(old, new)
    assert table.select(["change", "period_label", "number", "before", "before_dataset_id"]).to_pylist() == [
        {"change": change, "period_label": label, "number": number, "before": before, "before_dataset_id": of}
        for change, label, number, before, of in (
            ("restated", "FY2021", 5.0, 2.0, dataset_id(1)),
            ("relabelled", "FY2022", 3.0, 3.0, dataset_id(1)),
            ("appeared", "FY2024", 0.0, None, None),
            ("vanished", "FY2023", 4.0, 4.0, dataset_id(1)),
        )
    ]
    assert table.column("before_text").to_pylist() == ["2 filed", "3 filed", None, "4 filed"]
    assert table.column("dataset_id").to_pylist() == [dataset_id(2)] * 3 + [dataset_id(1)]
    assert set(table.column("known_from").to_pylist()) == {new.dataset.created_timestamp}
    assert "run" not in table.column_names
    assert table.column_names[:30] == new.to_arrow().column_names


@pytest.mark.virtual
async def test_random_publications_differ_as_oracle_says() -> None:
    """Changes of numbers, labels, sources, periods, series and ids, one after the other."""
    for seed in range(6):
        contents = list(nights(Random(seed), 12))
        found = await panels(*contents)
        for at in range(1, len(contents)):
            table = asyncfin.changes(found[at - 1], found[at])
            assert changes_in(table) == expected_changes(contents[at - 1], contents[at]), (seed, at)


async def test_a_moved_window_reports_nothing_vanished() -> None:
    """`Annual(last=3)` of a later publication asks for other years; only the new year appeared."""
    three = {REVENUE: {f"FY202{at}": Cell(at) for at in range(3)}}
    old, new = await panels(three, {REVENUE: three[REVENUE] | {"FY2023": Cell(9)}}, periods=Annual(last=3))
    assert changes_in(asyncfin.changes(old, new)) == [("appeared", REVENUE.triple, "FY2023", 9, None)]


async def test_period_that_left_catalogue_vanishes() -> None:
    """The new rule resolves without it, but the catalogue does not have it any more."""
    old, new = await panels(
        {REVENUE: {"FY2022": Cell(1), "FY2023": Cell(2)}},
        {REVENUE: {"FY2023": Cell(2)}},
        periods=Annual(2022),
    )
    assert changes_in(asyncfin.changes(old, new)) == [("vanished", REVENUE.triple, "FY2022", 1, 1)]


async def test_series_in_unlisted_counts() -> None:
    """What it had vanishes, and appears when a response lists it again."""
    full = {REVENUE: {"FY2020": Cell(1)}, COST: {"FY2020": Cell(2)}}
    (old,) = await panels(full)
    bare = publication({REVENUE: {"FY2020": Cell(1)}, COST: {}}, number=2, periods=("FY2021",))
    async with (
        Sandbox(bare, dialect=Dialect(empty_series=False)) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        new = await client.query(entity(1), Select(), YEARS)
    assert new.unlisted == (COST.series_id,)
    assert changes_in(asyncfin.changes(old, new)) == [("vanished", COST.triple, "FY2020", 2, 2)]
    assert changes_in(asyncfin.changes(new, old)) == [("appeared", COST.triple, "FY2020", 2, None)]


@pytest.mark.parametrize("what", ["version", "selection", "entity"])
async def test_panels_of_different_questions_are_refused(what: str) -> None:
    """The message names what differs, and both."""
    async with (
        Sandbox(*(publication({REVENUE: {"FY2020": Cell(1)}}, of=entity(at)) for at in (1, 2))) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
    ):
        one = await client.query(entity(1), Select(), Annual())
        arguments: dict[str, Any] = {"value_version": "latest_restated"} if what == "version" else {}
        select = Select(metric_ids="Revenue") if what == "selection" else Select()
        of = entity(2 if what == "entity" else 1)
        other = await client.query(of, select, Annual(), **arguments)
    with pytest.raises(SelectionError, match=f"differ in their .*{what}: .*"):
        asyncfin.changes(one, other)
    with pytest.raises(ArgumentError, match="new must be a Panel"):
        asyncfin.changes(one, one.to_arrow())  # type: ignore[arg-type]
