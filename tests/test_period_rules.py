"""Each rule for periods means the same in a query, a cut, a comparison and an extraction."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import asyncfin
from asyncfin import (
    Annual,
    ArgumentError,
    Client,
    Exact,
    FiscalRange,
    HalfYearly,
    Period,
    Quarterly,
    Select,
    extract,
)
from asyncfin.sandbox import Sandbox
from asyncfin.typing import Rule
from tests.handmade import dataset

Key = tuple[int, int, int]

ONE, OTHER = "O-" + "1" * 32, "O-" + "2" * 32
# Year, end month and length. Some half-years, and a year of the other company, end in unusual months.
PERIODS: dict[str, list[Key]] = {
    ONE: [
        *((2022, month, 3) for month in (3, 6, 9, 12)),
        *((year, month, 6) for year in (2021, 2022, 2023) for month in (6, 12)),
        (2023, 3, 6),
        (2022, 9, 9),
        (2021, 12, 12),
        (2022, 12, 12),
        (2022, 12, 0),
    ],
    OTHER: [(2022, 2, 3), (2024, 6, 6), (2024, 12, 6), (2023, 12, 12), (2024, 12, 12), (2024, 11, 12)],
}
LENGTHS = {"annual": 12, "quarterly": 3, "half-yearly": 6}
CLASSES: dict[str, type[Rule]] = {"annual": Annual, "quarterly": Quarterly, "half-yearly": HalfYearly}
QUESTIONS = [(name, last) for name in LENGTHS for last in (None, 1, 2)]
SELECT = Select("Revenue")


def oracle(name: str, last: int | None, *entities: str) -> list[Key]:
    """Return the periods that a rule means over the catalogues of entities, oldest first."""
    known = sorted({key for each in entities for key in PERIODS[each]})
    meant = [key for key in known if key[2] == LENGTHS[name] and (key[2] != 12 or key[1] == 12)]
    return meant[-last:] if last else meant


def number(key: Key) -> float:
    return float(key[0] * 10_000 + key[1] * 100 + key[2])


def document(entity_id: str) -> dict[str, object]:
    numbers = {Period(*key).label: number(key) for key in PERIODS[entity_id]}
    return dataset({("Revenue", "all"): numbers}, entity_id=entity_id)


@pytest.fixture
async def service() -> AsyncIterator[Sandbox]:
    async with Sandbox(document(ONE), document(OTHER)) as sandbox:
        yield sandbox


@pytest.fixture
async def client(service: Sandbox) -> AsyncIterator[Client]:
    async with Client(service.base_url, service.token) as client:
        yield client


def keys(panel: asyncfin.Panel) -> list[Key]:
    """Return the periods of a panel, whose values are checked."""
    for period, value in panel.one().observations():
        assert value.number == number((period.year, period.end_month, period.duration_months))
    return [(each.year, each.end_month, each.duration_months) for each in panel.periods]


@pytest.mark.parametrize(("name", "last"), QUESTIONS)
async def test_rule_means_the_same_everywhere(client: Client, name: str, last: int | None) -> None:
    rule = CLASSES[name](last=last)
    panel = await client.query(ONE, SELECT, rule)
    assert keys(panel) == oracle(name, last, ONE)
    assert panel.during(CLASSES[name](last=1)).periods == panel.periods[-1:]
    whole = await client.query(ONE, SELECT, FiscalRange())
    assert keys(whole.during(rule)) == oracle(name, last, ONE)
    resolved = rule.resolve(await client.catalogue(ONE))
    assert [(each.year, each.end_month, each.duration_months) for each in resolved.periods] == keys(panel)


@pytest.mark.parametrize(("name", "last"), QUESTIONS)
async def test_rule_is_resolved_over_companies(client: Client, name: str, last: int | None) -> None:
    """A company that has none of these periods has a panel without periods."""
    union = oracle(name, last, ONE, OTHER)
    rule = CLASSES[name](last=last)
    resolved = rule.resolve([await client.catalogue(entity_id) for entity_id in (ONE, OTHER)])
    assert resolved == Exact([Period(*key) for key in union])
    compared = await client.compare([ONE, OTHER], SELECT, rule)
    assert [keys(panel) if len(panel) else [] for panel in compared] == [
        union if set(union).intersection(PERIODS[entity_id]) else [] for entity_id in (ONE, OTHER)
    ]


@pytest.mark.parametrize("name", LENGTHS)
async def test_feed_takes_rule_without_last_only(client: Client, tmp_path: Path, name: str) -> None:
    """The latest ones move with each new period: an old one would count as vanished."""
    to = tmp_path / "night"
    with pytest.raises(ArgumentError, match="history needs periods that stay"):
        await extract(client, [ONE], SELECT, CLASSES[name](last=2), to=to, history=True)
    assert not to.exists()
    report = await extract(client, [ONE], SELECT, CLASSES[name](), to=to, history=True)
    assert len(report.done) == 1


def test_rule_of_user_is_rule() -> None:
    """A subclass is enough; nothing is registered."""

    class NineMonths(Rule):
        months, kind, name = 9, "nine months", "nine-months"

    assert repr(NineMonths(last=2)) == "NineMonths(last=2)"
    assert NineMonths().among([Period(2024, 9, 9), Period(2024, 12, 12)]) == (Period(2024, 9, 9),)
