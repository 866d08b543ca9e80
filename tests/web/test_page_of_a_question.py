"""The page of a question over HTTP: who sees values, what a view costs, cells and downloads."""

import csv
import io
import re
from collections.abc import AsyncIterator
from html import unescape
from typing import Any

import pytest

from asyncfin import Annual, Client, FiscalRange, MemoryCache, Select
from asyncfin.sandbox import Account, Sandbox, Status
from asyncfin.web import explorer
from tests.demo import demo_id
from tests.web.conftest import OWN, Page
from tests.web.test_explorer import ROW, texts, url

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


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Dest": "iframe"},
        {"Sec-Fetch-Dest": "document", "Sec-Purpose": "prefetch;prerender"},
        {"Purpose": "prefetch"},
    ],
)
async def test_what_a_foreign_page_can_trigger_gets_no_value_and_reads_no_cache(
    service: Sandbox, headers: dict[str, str]
) -> None:
    """It gets the form with the row texts; a visit of the same URL shows the values."""
    async with Client(service.base_url, service.token, cache=MemoryCache(), max_age=3600) as client:
        page = Page(explorer(client, service.entities), client, service.entities)
        await page.post("answer", **FIELDS)
        address = url(service.entities[:1])
        foreign = await page.http.get(address, headers=headers)
        assert foreign.status_code == 200
        assert "<table" not in foreign.text
        assert ROW in unescape(foreign.text)
        assert 'class="tree' not in foreign.text
        assert "request</strong>" not in foreign.text
        for visit in ({}, {"Sec-Fetch-Dest": "document", "Sec-Fetch-Site": "cross-site"}):
            assert "<table" in (await page.http.get(address, headers=visit)).text


async def test_another_view_is_of_the_publication_shown_and_costs_nothing(cached: Page) -> None:
    """Whatever the age of what is cached."""
    answer = await cached.post("answer", **FIELDS)
    shown, spent = publications(answer.text), cached.spent
    growth = await cached.post("view", **FIELDS, publication=shown, view="growth")
    assert growth.status_code == 200
    assert publications(growth.text) == shown
    assert texts(growth.text)[1][1:] == ["-2.8%", "+2.0%", "+6.4%"]
    assert "ratio divides" not in answer.text + growth.text
    assert cached.spent == spent


async def test_another_view_names_the_company_that_could_not_be_read_too(
    service: Sandbox, cached: Page
) -> None:
    """Or else it would show fewer companies than the question has, without a word."""
    other = cached.entities[1]
    service.put_account(Account("sandbox", entities=cached.entities[0]))
    answer = await cached.post("answer", **FIELDS, **{"with": other})
    assert f"{other}: no published dataset is available for this entity." in answer.text
    given = {**FIELDS, "with": other, "publication": publications(answer.text)}
    growth = await cached.post("view", **given, view="growth")
    assert f"{other} could not be read when these values were requested." in growth.text


@pytest.mark.parametrize("fragment", ["view", "cell", "csv"])
async def test_values_of_another_publication_are_a_conflict(cached: Page, fragment: str) -> None:
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
async def test_after_a_refusal_nothing_is_shown_from_the_cache(
    service: Sandbox, cached: Page, fragment: str
) -> None:
    """The account lost access to the company since the page was opened."""
    shown = publications((await cached.post("answer", **FIELDS)).text)
    service.inject(Status(status=403, code="forbidden"))
    assert (await cached.post("answer", **FIELDS)).status_code == 502
    spent = cached.spent
    refused = await cached.post(fragment, **FIELDS, publication=shown, cell_period="FY2025")
    assert refused.status_code == 409
    assert cached.spent == spent


async def test_a_cell_and_a_download_spend_only_what_was_allowed(page: Page) -> None:
    """Without a cache there is nothing to show; `spend` requests it, and says what that took."""
    answer = await page.post("answer", **FIELDS)
    given = {**FIELDS, "publication": publications(answer.text)}
    spent = page.spent
    assert (await page.post("csv", **given)).status_code == 409
    assert (await page.post("view", **given, spend="1")).status_code == 409
    assert page.spent == spent
    received = await page.post("csv", **given, spend="1")
    assert received.status_code == 200
    assert int(received.headers["X-Requests-Spent"]) == page.spent - spent > 0


async def test_a_cell_says_what_its_value_is(cached: Page) -> None:
    """Or why there is none."""
    shown = publications((await cached.post("answer", **FIELDS)).text)
    entity_id = cached.entities[0]
    panel = await cached.client.query(entity_id, Select(series_ids=demo_id("Revenue/annual")), Annual(last=3))
    value = panel.one()["FY2025"]
    assert value is not None
    cell = {"cell_company": entity_id, "cell_version": "original", "cell_series": demo_id("Revenue/annual")}
    found = await cached.post("cell", **FIELDS, **cell, publication=shown, cell_period="FY2025")
    said = unescape(re.sub(r"<[^>]+>", " ", found.text))
    for part in ("416161000000", value.text, value.number_format, value.fill_type, value.sources[0].item_id):
        assert part in said
    empty = await cached.post("cell", **FIELDS, **cell, publication=shown, cell_period="FY2031")
    assert panel.why(demo_id("Revenue/annual"), "FY2031") in unescape(empty.text)
    wrong = await cached.post("cell", **FIELDS, **cell, publication=shown, cell_period="2025")
    assert wrong.status_code == 400


async def test_a_download_has_each_series_at_each_period_of_the_panels(cached: Page) -> None:
    """With the numbers as published, also where a view shows a reason."""
    shown = publications((await cached.post("answer", **FIELDS)).text)
    received = await cached.post(
        "csv", **FIELDS, publication=shown, view="ratio", over=ROW, headers={**OWN, "HX-Request": "true"}
    )
    assert received.headers["Content-Disposition"] == 'attachment; filename="Apple-ratio.csv"'
    rows = list(csv.DictReader(io.StringIO(received.text)))
    assert {row["view"] for row in rows} == {"ratio to Revenue"}
    panel = await cached.client.query(
        cached.entities[0],
        Select(series_ids=[demo_id("Revenue/annual"), demo_id("GrossProfit/annual")]),
        Annual(last=3),
    )
    profit, revenue = panel[demo_id("GrossProfit/annual")].values, panel[demo_id("Revenue/annual")].values
    for row, period, one, other in zip(rows, panel.periods, profit, revenue, strict=True):
        assert one is not None
        assert other is not None
        assert row["period_label"] == period.label
        assert row["number"] == str(int(one.number))
        assert float(row["shown"]) == pytest.approx(one.number / other.number * 100, rel=1e-11)
        assert row["text"] == f"{one.number / other.number * 100:.1f}%"


async def test_a_download_of_nothing_but_the_divisor_has_the_names_of_columns_only(cached: Page) -> None:
    """The company does not have the series that would be divided."""
    fields = {**FIELDS, "series": [ROW, ROW.replace("Revenue", "Nonsense")], "view": "ratio", "over": ROW}
    shown = publications((await cached.post("answer", **fields)).text)
    received = await cached.post("csv", **fields, publication=shown, headers={**OWN, "HX-Request": "true"})
    assert received.headers["Content-Disposition"] == 'attachment; filename="company-ratio.csv"'
    assert list(csv.DictReader(io.StringIO(received.text))) == []


async def test_a_company_without_the_divisor_is_named(page: Page) -> None:
    """The others have their ratio."""
    americas = "Revenue/annual.segment/segment=Americas"
    fields = {
        **FIELDS,
        "series": [ROW, americas],
        "view": "ratio",
        "over": americas,
        "with": page.entities[1],
    }
    answer = await page.post("answer", **fields)
    assert "NVIDIA does not have what the ratio divides by." in answer.text
    assert "Apple does not have what" not in answer.text


@pytest.mark.parametrize("over", ["", "Cash/annual.consolidated/company=consolidated"])
@pytest.mark.parametrize("fragment", ["answer", "view", "csv"])
async def test_a_ratio_needs_one_of_the_series(cached: Page, over: str, fragment: str) -> None:
    """Nothing is requested before that is known."""
    refused = await cached.post(fragment, **FIELDS, view="ratio", over=over)
    assert refused.status_code == 400
    assert "choose what to divide by" in refused.text
    assert cached.spent == 0


async def test_a_ratio_needs_a_second_series(cached: Page) -> None:
    """What it divides by is not shown, so that nothing would be."""
    fields = {**FIELDS, "series": [ROW], "view": "ratio", "over": ROW}
    refused = await cached.post("answer", **fields)
    assert (refused.status_code, cached.spent) == (400, 0)
    assert "choose a series besides the one to divide by" in refused.text


async def test_series_of_one_label_are_told_apart_where_one_divides(cached: Page) -> None:
    """By group and scopes; the one chosen is marked."""
    parts = [f"Revenue/annual.segment/segment={each}" for each in ("Americas", "Europe")]
    answer = await cached.post("answer", series=[*parts, PROFIT], view="ratio", over=parts[1])
    options = re.findall(r'<option value="([^"]*)"( selected)?>([^<]*)<', answer.text)
    assert options == [
        (parts[0], "", "Revenue: Fiscal years: segment, Americas"),
        (parts[1], " selected", "Revenue: Fiscal years: segment, Europe"),
        (PROFIT, "", "Gross profit"),
    ]


async def test_a_period_outside_a_companys_window_says_that_it_was_not_requested(cached: Page) -> None:
    """The windows of two companies end at different periods; what lies outside was read, but is not shown."""
    quarterly = "Revenue/quarterly.consolidated/company=consolidated"
    fields = {"series": quarterly, "rule": "trailing", "last": "12", "with": cached.entities[1]}
    answer = await cached.post("answer", **fields)
    company, version, series_id = re.findall(
        r'data-company="(.*?)" data-version="(.*?)" data-series="(.*?)"', answer.text
    )[1]
    head, *rows = texts(answer.text)
    label = head[rows[1].index("?")].split()[0]
    select = Select(series_ids=series_id)
    assert (await cached.client.query(company, select, FiscalRange())).one()[label] is not None
    said = await cached.post(
        "cell",
        **fields,
        publication=publications(answer.text),
        cell_company=company,
        cell_version=version,
        cell_series=series_id,
        cell_period=label,
    )
    assert f"not requested: the question does not include {label}" in said.text


@pytest.mark.parametrize("view", ["values", "growth"])
async def test_a_company_that_has_none_of_the_periods_is_named(cached: Page, view: str) -> None:
    """In each view; growth may have read its year before. Files are named after the companies shown."""
    fields = {
        "series": [ROW, PROFIT],
        "rule": "annual",
        "last": "1",
        "with": cached.entities[1],
        "view": view,
    }
    answer = await cached.post("answer", **fields)
    rows = [row[0] for row in texts(answer.text)[1:]]
    (missing,) = {"Apple", "NVIDIA"} - {name.split()[0] for name in rows}
    assert f"{missing} has none of these periods" in answer.text
    received = await cached.post("csv", **fields, publication=publications(answer.text))
    assert "more" not in received.headers["Content-Disposition"]
