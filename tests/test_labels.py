"""Labels of periods in all outputs: what reads one as a date must fail, and not take another month."""

import re
from collections.abc import AsyncIterator

import pytest

from asyncfin import Client, FiscalRange, Panel, Period, Select, SelectionError, concat
from asyncfin.sandbox import Sandbox
from tests.handmade import ENTITY_ID, dataset

pandas = pytest.importorskip("pandas")

# One period of each kind of label, and of each kind of gap.
PERIODS = [
    *(Period(2020, month, 3) for month in (3, 6, 12)),
    *(Period(2020, month, 6) for month in (6, 12)),
    Period(2020, 9, 9),
    Period(2020, 12, 12),
    Period(2022, 12, 12),
    Period(2020, 11, 5),
    Period(2020, 12, 0),
    Period(2020, 12, 120),
]
KINDS = {"FY2020", "FY2020-Q1", "FY2020-H2", "FY2020-9M", "FY2020-11-05M", "FY2020-12-120M"}


def labels_in(text: str) -> set[str]:
    """Return the words that are labels of periods or fiscal months, with or without FY."""
    words = re.findall(r"(?<![\w:.-])(?:FY)?\d{4}(?:-[\w-]+)?(?![\w-])", text)
    found = set()
    for word in words:
        month = re.fullmatch(r"(?:FY)?\d{4}-(?:0[1-9]|1[0-2])", word)
        try:
            Period.parse(word)
        except SelectionError:
            if not month:
                continue
        found.add(word)
    return found


def refuse_dates(text: str, *kinds: str) -> None:
    """Check that no label in a text is a date to pandas, and that the text has labels of these kinds."""
    found = labels_in(text)
    assert found >= set(kinds)
    for label in found:
        with pytest.raises(ValueError):
            pandas.Period(label)


@pytest.fixture
async def service() -> AsyncIterator[Sandbox]:
    numbers = {("Revenue", "all"): {period.label: 5.0 for period in PERIODS}}
    async with Sandbox(dataset(numbers)) as sandbox:
        yield sandbox


@pytest.fixture
async def panel(service: Sandbox) -> Panel:
    async with Client(service.base_url, service.token) as client:
        return await client.query(ENTITY_ID, Select(), FiscalRange())


def test_no_label_of_table_is_date(panel: Panel) -> None:
    long = panel.to_arrow()
    wide = panel.to_arrow("wide", labels=True)
    joined = concat([panel], columns=["period_label"]).to_pandas()
    for table in (long["period_label"].to_pylist(), wide["period"].to_pylist(), joined["period_label"]):
        refuse_dates("\n".join(table), *KINDS)


def test_no_label_of_text_is_date(panel: Panel) -> None:
    refuse_dates(str(panel) + panel._repr_html_(), "FY2020", "FY2020-Q1")
    refuse_dates(str(panel.one()) + repr(panel.one().values) + str(panel.gaps))
    refuse_dates(str(panel.catalogue) + panel.catalogue._repr_html_(), "FY2022")
