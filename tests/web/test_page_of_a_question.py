"""The page of a question over HTTP: who sees values, what a view costs, cells and downloads."""

import re
from collections.abc import AsyncIterator
from html import unescape
from typing import Any

import pytest

from asyncfin import Annual, Client, FiscalRange, MemoryCache, Select
from asyncfin.sandbox import Account, Sandbox, Status
from asyncfin.web import explorer
from tests.demo import demo_id
from tests.web.conftest import Page
from tests.web.test_explorer import ROW, texts

PROFIT = "GrossProfit/annual.consolidated/company=consolidated"
FIELDS: dict[str, Any] = {"series": [ROW, PROFIT], "rule": "annual", "last": "3"}


def publications(html: str) -> list[str]:
    """Return what the page says of the publications that it shows."""
    return re.findall(r'name="publication" value="([^"]*)"', html)


@pytest.fixture
async def service() -> AsyncIterator[Sandbox]:
    async with Sandbox.demo() as sandbox:
        yield sandbox


@pytest.fixture
async def cached(service: Sandbox) -> AsyncIterator[Page]:
    """Give the explorer of a client with a cache whose values are at once too old to be shown by a GET."""
    async with Client(service.base_url, service.token, cache=MemoryCache()) as client:
        page = Page(explorer(client, service.entities), client, service.entities)
        with client.observed(page.note):
            yield page


async def test_another_view_costs_nothing(cached: Page) -> None:
    """Whatever the age of what is cached."""
    answer = await cached.post("answer", **FIELDS)
    shown, spent = publications(answer.text), cached.spent
    divided = await cached.post("view", **FIELDS, publication=shown, unit="billions")
    assert divided.status_code == 200
    assert publications(divided.text) == shown
    assert texts(divided.text)[1][1:] == ["383", "391", "416"]
    assert cached.spent == spent


@pytest.mark.parametrize("fragment", ["view", "cell", "csv"])
async def test_another_publication_is_a_conflict(cached: Page, fragment: str) -> None:
    """A view of it would show other values under the same heading."""
    await cached.post("answer", **FIELDS)
    spent = cached.spent
    other = f"{cached.entities[0]} 11111111-1111-4111-8111-111111111111"
    cell = {"cell_period": "FY2025"}
    for shown in ([other], [], ["x"]):
        refused = await cached.post(fragment, **FIELDS, **cell, publication=shown)
        assert refused.status_code == 409
    assert cached.spent == spent


@pytest.mark.parametrize("fragment", ["view", "cell", "csv"])
async def test_rejected_company_shows_nothing_cached(service: Sandbox, cached: Page, fragment: str) -> None:
    """The account lost access to the company since the page was opened."""
    shown = publications((await cached.post("answer", **FIELDS)).text)
    service.inject(Status(status=403, code="forbidden"))
    assert (await cached.post("answer", **FIELDS)).status_code == 502
    spent = cached.spent
    refused = await cached.post(fragment, **FIELDS, publication=shown, cell_period="FY2025")
    assert refused.status_code == 409
    assert cached.spent == spent


async def test_without_a_cache_nothing_is_spent(service: Sandbox) -> None:
    """A view, a cell and a download show what is cached, and otherwise say what to do."""
    async with Client(service.base_url, service.token) as client:
        page = Page(explorer(client, service.entities), client, service.entities)
        answer = await page.post("answer", **FIELDS)
        sent = len(service.log)
        for fragment in ("view", "cell", "csv"):
            shown = publications(answer.text)
            refused = await page.post(fragment, **FIELDS, publication=shown, cell_period="FY2025", spend="1")
            assert (refused.status_code, "show them again" in refused.text) == (409, True)
        assert len(service.log) == sent


async def test_cell_shows_its_value(cached: Page) -> None:
    """Or why there is none."""
    shown = publications((await cached.post("answer", **FIELDS)).text)
    entity_id = cached.entities[0]
    panel = await cached.client.query(entity_id, Select(series_ids=demo_id("Revenue/annual")), Annual(last=3))
    value = panel.one()["FY2025"]
    assert value is not None
    cell = {"cell_company": entity_id, "cell_series": demo_id("Revenue/annual")}
    found = await cached.post("cell", **FIELDS, **cell, publication=shown, cell_period="FY2025")
    said = unescape(re.sub(r"<[^>]+>", " ", found.text))
    for part in ("416161000000", value.text, value.number_format, value.fill_type, value.sources[0].item_id):
        assert part in said
    empty = await cached.post("cell", **FIELDS, **cell, publication=shown, cell_period="FY2031")
    assert panel.why(demo_id("Revenue/annual"), "FY2031") in unescape(empty.text)
    wrong = await cached.post("cell", **FIELDS, **cell, publication=shown, cell_period="2025")
    assert wrong.status_code == 400


async def test_download_is_that_of_the_comparison(cached: Page) -> None:
    """With the numbers as published, whatever the unit of the page."""
    fields = {**FIELDS, "with": cached.entities[1:]}
    shown = publications((await cached.post("answer", **fields)).text)
    received = await cached.post("csv", **fields, publication=shown, unit="billions")
    assert received.headers["Content-Disposition"].startswith("attachment")
    select = Select(metric_ids=["Revenue", "GrossProfit"], basis="consolidated", cadence="annual")
    comparison = await cached.client.compare(cached.entities, select, Annual(last=3))
    assert received.text == comparison.to_csv()


async def test_period_outside_of_a_window(cached: Page) -> None:
    """The windows of two companies end at different periods; what lies outside was read, but is not shown."""
    quarterly = "Revenue/quarterly.consolidated/company=consolidated"
    fields = {"series": quarterly, "rule": "trailing", "last": "12", "with": cached.entities[1]}
    answer = await cached.post("answer", **fields)
    company, series_id = re.findall(r'data-company="(.*?)" data-series="(.*?)"', answer.text)[1]
    head, *rows = texts(answer.text)
    label = head[rows[1].index("?")].split()[0]
    select = Select(series_ids=series_id)
    assert (await cached.client.query(company, select, FiscalRange())).one()[label] is not None
    said = await cached.post(
        "cell",
        **fields,
        publication=publications(answer.text),
        cell_company=company,
        cell_series=series_id,
        cell_period=label,
    )
    assert f"not requested: the query does not include {label}" in said.text


async def test_another_view_names_unread_companies(service: Sandbox, cached: Page) -> None:
    """Or else it would show fewer companies than the question has, without a word."""
    other = cached.entities[1]
    service.put_account(Account("sandbox", entities=cached.entities[0]))
    answer = await cached.post("answer", **FIELDS, **{"with": other})
    assert f"{other}: no published dataset is available for this entity." in answer.text
    given = {**FIELDS, "with": other, "publication": publications(answer.text)}
    again = await cached.post("view", **given, unit="billions")
    assert f"{other} could not be read when these values were requested." in again.text


async def test_company_without_the_periods_is_named(cached: Page) -> None:
    """Together, once, and in the words of the page."""
    fields = {"series": [ROW, PROFIT], "rule": "annual", "with": cached.entities[1:]}
    last_year = await cached.post("answer", **fields, last="1")
    assert "Apple, Alphabet have no FY2026" in last_year.text
    two_years = await cached.post("answer", **fields, last="2")
    assert two_years.text.count("Apple, Alphabet: no data for FY2026") == 1


async def test_empty_series_name_the_rule(cached: Page) -> None:
    """A visitor chooses periods on the page, and calls nothing."""
    answer = await cached.post("answer", series=[PROFIT], rule="quarterly", last="2")
    assert "last values of each series, query all periods." in answer.text
    assert "latest()" not in answer.text
