"""The explorer's page and fragments, over HTTP."""

import asyncio
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from attrs import evolve

import asyncfin
from asyncfin import Annual, Client, MemoryCache, Select, SelectionError
from asyncfin.model.period import Period
from asyncfin.sandbox import Sandbox, Status, load
from asyncfin.sandbox.demo import demo_datasets
from asyncfin.web import explorer
from asyncfin.web.question import row_text
from tests.demo import demo_id, demo_row
from tests.generate import generate
from tests.handmade import dataset
from tests.web.conftest import OWN, Page

STATIC = Path(asyncfin.__file__).parent / "web" / "static"
NAMES = [f"{each}/annual" for each in ("Revenue", "CostOfRevenue", "GrossProfit", "OperatingIncome")]
REVENUE = list(map(demo_row, NAMES))


def texts(html: str) -> list[list[str]]:
    """Return the cells of the rows of a table, without its headings."""
    rows = re.findall(r'<tr(?! class="heading")[^>]*>(.*?)</tr>', html, re.S)
    cells = (re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S) for row in rows)
    return [[unescape(re.sub(r"<[^>]+>", " ", cell)).strip() for cell in row] for row in cells]


async def test_start_page_spends_no_request(page: Page) -> None:
    """Looking at the list, or following a link to a company, costs nothing."""
    start = await page.http.get("/")
    assert start.status_code == 200
    assert all(entity_id in start.text for entity_id in page.entities)
    assert (await page.http.get(f"/company/{page.entities[0]}")).status_code == 200
    assert page.spent == 0


async def test_tree_and_search_list_series(page: Page) -> None:
    """Best first, each with group and scopes; and what comes close, if no series has all words."""
    everything = await page.post("series")
    assert everything.text.count('name="series"') == 206
    found = await page.post("series", search="REVENUE americas annual")
    ids = re.findall(r'name="series" value="([^"]+)"', found.text)
    assert ids == [
        "Revenue/annual.segment/segment=Americas",
        "CostOfRevenue/annual.segment/segment=Americas",
        "SalesAndMarketing/annual.segment/segment=Americas",
    ]
    assert "Fiscal years: segment, Americas" in found.text
    assert "3 match the search" in found.text
    close = await page.post("series", search="revenue moonbase")
    assert "nothing has all these words; close to them:" in close.text
    assert 'value="Revenue/annual.consolidated/company=consolidated"' in close.text
    assert "No further series matches the search" in (await page.post("series", search="xyzzy")).text


@pytest.mark.parametrize(
    ("fragment", "fields", "said"),
    [
        ("series", {"search": "e " * 101}, "at most 200 characters"),
        (
            "cost",
            {"series": REVENUE, "rule": "annual", "last": "9" * 4000},
            "how many years must be a whole number from 1 to 9,999",
        ),
        ("cost", {"series": REVENUE, "rule": "annual", "last": "9" * 5000}, "at most 4,096 characters"),
        (
            "cost",
            {"series": [f"a/b/c=d{at}" for at in range(204)]},
            "at most 200 series, counted for each company, not 204",
        ),
        ("cost", {"series": ["x"] * 1001}, "at most 1,000 fields"),
        (
            "cost",
            {"series": REVENUE, "last": "99999"},
            "how many years must be a whole number from 1 to 9,999",
        ),
        ("cost", {"series": REVENUE, "last": "0"}, "how many years must be a whole number from 1 to 9,999"),
        ("cost", {"series": REVENUE, "rule": "range", "start": "9" * 4000}, "a whole number from 1 to 9,999"),
    ],
)
async def test_too_long_fields_are_rejected(
    page: Page, fragment: str, fields: dict[str, Any], said: str
) -> None:
    """A form can't make the page work for hours, and nothing in it is an unhandled error."""
    answer = await page.post(fragment, **fields)
    assert answer.status_code == 400
    assert said in answer.text


async def test_unknown_page_is_no_company(page: Page) -> None:
    """The advice is on the path that was typed."""
    advice = "Check the company&#39;s id"
    unknown_page, unknown_company = [await page.http.get(path) for path in ("/nothing", "/company/nothing")]
    assert (unknown_page.status_code, advice in unknown_page.text) == (404, False)
    assert "There is no such page" in unknown_page.text
    assert (unknown_company.status_code, advice in unknown_company.text) == (404, True)


async def test_cost_is_shown_before_spending(page: Page) -> None:
    """After the catalogue was read, the plan needs no further request."""
    await page.post("series")
    spent = page.spent
    cost = await page.post("cost", series=REVENUE, rule="annual", last="5")
    assert "4 series will take <strong>1 request</strong>" in cost.text
    assert page.spent == spent


@pytest.mark.parametrize(
    ("fields", "periods"), [({"rule": "annual", "last": "5"}, Annual(last=5)), ({"rule": "all"}, None)]
)
async def test_table_has_the_panels_texts(page: Page, fields: dict, periods: Annual | None) -> None:  # type: ignore[type-arg]
    """The page shows the texts of the panel, and above them what it cost."""
    answer = await page.post("answer", series=REVENUE, **fields)
    assert f"{page.spent} requests spent." in answer.text
    panel = await page.client.query(
        page.entities[0], Select(series_ids=list(map(demo_id, NAMES))), periods or asyncfin.FiscalRange()
    )
    head, *rows = texts(answer.text)
    assert head == ["Series", *(period.label for period in panel.periods)]
    assert [row[1:] for row in rows] == [
        [value.text if value else "·" for value in series.values] for series in panel
    ]


async def test_page_is_limited_download_is_not() -> None:
    """Notes count what is not drawn of 14 metrics with seven scopes, in two companies."""
    numbers = {(f"M{metric:02}", f"s{scope}"): {"FY2024": 1} for metric in range(14) for scope in range(7)}
    made = [load(dataset(numbers, entity_id="O-" + digit * 32)) for digit in "12"]
    async with (
        Sandbox(*made) as sandbox,
        Client(sandbox.base_url, sandbox.token, cache=MemoryCache()) as client,
    ):
        page = Page(explorer(client, sandbox.entities), client, sandbox.entities)
        first, second = sandbox.entities
        catalogue = await client.catalogue(first)
        series = [row_text(catalogue, each) for each in catalogue]
        fields: dict[str, Any] = {"series": series, "rule": "all", "with": second}
        answer = await page.post("answer", **fields)
        publication = re.findall(r'name="publication" value="([^"]*)"', answer.text)
        download = await page.post("csv", **fields, publication=publication)
    charts = [json.loads(unescape(found)) for found in re.findall(r'data-chart="([^"]*)"', answer.text)]
    assert [len(chart["lines"]) for chart in charts] == [12] * 12
    assert answer.text.count("2 more lines not drawn.") == 12
    assert "2 more charts not drawn: M12, M13." in answer.text
    assert len(texts(answer.text)) == len(download.text.splitlines()) == 1 + 196


async def test_companies_of_one_name() -> None:
    """The lines are those of the same companies under different names."""

    async def lines(*names: str) -> list[list[float | str | None]]:
        renamed = [
            evolve(each, publications=tuple(evolve(one, name=name) for one in each.publications))
            for each, name in zip(demo_datasets(), names, strict=True)
        ]
        async with Sandbox(*renamed) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
            page = Page(explorer(client, sandbox.entities), client, sandbox.entities)
            fields = {"with": sandbox.entities[1:], "series": ROW, "rule": "trailing", "last": "60"}
            answer = await page.post("answer", **fields)
        found = re.findall(r'data-chart="([^"]*)"', answer.text)
        return [line["numbers"] for chart in map(json.loads, map(unescape, found)) for line in chart["lines"]]

    assert await lines("Same", "Same", "Same") == await lines("One", "Two", "Three")


async def test_quarter_without_value_is_a_gap(page: Page) -> None:
    """The panel does not list it, since no chosen series has a value in it; the table names it."""
    answer = await page.post("answer", series=[demo_row("Revenue/quarterly")], rule="trailing", last="24")
    (chart,) = [json.loads(unescape(found)) for found in re.findall(r'data-chart="([^"]*)"', answer.text)]
    assert "1 gap, where no series has a value: FY2026-Q2" in answer.text
    head, row = texts(answer.text)
    assert row[[cell.split()[0] for cell in head].index("FY2026-Q2")] == "·"
    (quarters,) = [line["numbers"] for line in chart["lines"] if line["label"].endswith("3 months")]
    assert Period(2026, 6, 3) in (await page.client.catalogue(page.entities[0])).periods
    at = chart["ends"].index(2026 * 12 + 6)
    assert quarters[at] is None
    assert None not in (quarters[at - 1], quarters[at + 1])


async def test_python_prints_the_same_texts(page: Page) -> None:
    """It takes service and token from the environment, and names neither."""
    answer = await page.post("answer", series=REVENUE, rule="annual", last="3")
    code = unescape(re.search(r'<pre id="python"[^>]*><code>(.*?)</code>', answer.text, re.S)[1])  # type: ignore[index]
    async with Sandbox.demo() as sandbox:
        assert sandbox.token not in answer.text
        env = {"ASYNCFIN_BASE_URL": sandbox.base_url, "ASYNCFIN_TOKEN": sandbox.token, "PATH": ""}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        printed, complaints = await process.communicate()
    assert not complaints
    shown = {text for row in texts(answer.text) for text in row[1:]}
    assert shown <= set(re.split(r"\s{2,}|\n", printed.decode()))


@pytest.mark.parametrize(
    "code",
    [
        {"rule": "quarterly", "last": "8"},
        {"rule": "trailing", "last": "12"},
        {"rule": "range", "start": "2020", "end": ""},
        {"rule": "range", "start": "2020", "end": "2022"},
        {"rule": "all"},
        {"rule": "annual", "last": "2", "value_version": "latest_restated"},
    ],
)
async def test_python_of_every_rule(page: Page, code: dict[str, str]) -> None:
    """Every rule is written as the library's own name for it."""
    answer = await page.post(
        "answer",
        series=demo_row("Revenue/annual") if code["rule"] != "quarterly" else demo_row("Revenue/quarterly"),
        **code,
    )
    assert answer.status_code == 200, answer.text
    python = unescape(re.search(r'<pre id="python"[^>]*><code>(.*?)</code>', answer.text, re.S)[1])  # type: ignore[index]
    compile(python, "pasted", "exec")
    assert ("value_version='latest_restated'" in python) == ("value_version" in code)


ROW = "Revenue/annual.consolidated/company=consolidated"


def url(entities: tuple[str, ...], **fields: str) -> str:
    """Return the path and query of a question about companies."""
    first, *others = entities
    query = {"with": others, "series": ROW, "rule": "annual", "last": "3", **fields}
    return f"/company/{first}?{urlencode(query, doseq=True)}"


@asynccontextmanager
async def caching(max_age: float) -> AsyncIterator[Page]:
    """Give the explorer over a client with a cache."""
    async with (
        Sandbox.demo() as sandbox,
        Client(sandbox.base_url, sandbox.token, cache=MemoryCache(), max_age=max_age) as client,
    ):
        cached = Page(explorer(client, sandbox.entities), client, sandbox.entities)
        with client.observed(cached.note):
            yield cached


@pytest.mark.parametrize("companies", [1, 3])
async def test_url_shows_cached_values(companies: int) -> None:
    """It spends no request in any case: what is not cached has a button that says what it costs."""
    async with caching(max_age=3600) as page:
        entities = page.entities[:companies]
        cold = await page.http.get(url(entities))
        assert page.spent == 0
        assert "<table" not in cold.text
        assert "must be read" in cold.text
        for each in entities:
            await page.client.catalogue(each)
        spent = page.spent
        planned = await page.http.get(url(entities))
        assert "<table" not in planned.text
        assert f"{companies} series will take <strong>{companies} request" in planned.text
        answer = await page.post("answer", entities[0], **{"with": entities[1:], "series": ROW, "last": "3"})
        assert page.spent == spent + companies
        warm = await page.http.get(url(entities))
        assert texts(warm.text) == texts(answer.text)
        assert len(texts(warm.text)) == 1 + companies
        assert 'class="unasked"' not in warm.text, "the companies' periods differ"
        assert page.spent == spent + companies
    for field in (
        'value="3"',
        f'value="{ROW}" checked',
        *(f'value="{each}" checked' for each in entities[1:]),
    ):
        assert field in warm.text


async def test_own_link_reads_the_catalogue(page: Page) -> None:
    """A foreign page can open a company's page, which must not request anything by itself."""
    path = f"/company/{page.entities[0]}"
    for site in ({}, {"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "none"}):
        html = (await page.http.get(path, headers=site)).text
        assert 'hx-trigger="load"' not in html
        assert "Read the catalogue" in html
    own = await page.http.get(path, headers={"Sec-Fetch-Site": "same-origin"})
    assert 'hx-trigger="load"' in own.text
    assert page.spent == 0


async def test_company_without_the_series_is_named(page: Page) -> None:
    """The others are shown."""
    row = "Revenue/annual.segment/segment=Americas"
    answer = await page.post("answer", **{"with": page.entities[1], "series": [row, ROW], "last": "2"})
    assert answer.status_code == 200
    assert "NVIDIA has no series '(Revenue, annual.segment, segment=Americas)'." in unescape(answer.text)
    assert len(texts(answer.text)) == 4


async def test_restated_values_are_shown(page: Page) -> None:
    """Instead of those first reported, with their version in words."""
    answer = await page.post("answer", series=ROW, rule="annual", last="4", value_version="latest_restated")
    _, row = texts(answer.text)
    select = Select(metric_ids="Revenue", basis="consolidated", cadence="annual")
    panel = await page.client.query(page.entities[0], select, Annual(last=4), value_version="latest_restated")
    assert row[1:] == [value.text if value else "" for value in panel.one().values]
    assert "as last restated" in answer.text


async def test_python_selects_by_triple(page: Page) -> None:
    """Series ids belong to one publication, so they are not in it."""
    answer = await page.post("answer", series=demo_row("Revenue/annual"), rule="annual", last="2")
    code = unescape(re.search(r'<pre id="python"[^>]*><code>(.*?)</code>', answer.text, re.S)[1])  # type: ignore[index]
    assert demo_id("Revenue/annual") not in code
    select = Select.from_json(re.search(r"from_json\(\s*'(.*)'", code)[1])  # type: ignore[index]
    (series,) = (await page.client.catalogue(page.entities[0])).select(select)
    assert series.series_id == demo_id("Revenue/annual")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("unit=pie", "unit must be one of thousands, millions"),
        ("value_version=newest", "value_version must be one of"),
        ("&".join(f"with={number}" for number in range(30)), "at most 20 companies"),
    ],
)
async def test_a_wrong_url_is_a_sentence(page: Page, query: str, said: str) -> None:
    """As a page, with what to do."""
    answer = await page.http.get(f"/company/{page.entities[0]}?{query}")
    assert answer.status_code == 400
    assert said in unescape(answer.text)


@pytest.mark.parametrize(
    ("hosts", "headers"),
    [
        (["127.0.0.1"], {"Sec-Fetch-Site": "same-origin"}),
        (["127.0.0.1"], {"Origin": "http://127.0.0.1:8766"}),
        (["figures.example"], {"Host": "figures.example", "Origin": "http://figures.example"}),
        (["Figures.example"], {"Host": "figures.example", "Origin": "https://figures.example"}),
        (["figures.example"], {"Host": "figures.example:81", "Origin": "http://figures.example:81"}),
    ],
    ids=str,
)
async def test_own_page_under_a_host_name(page: Page, hosts: list[str], headers: dict[str, str]) -> None:
    """Browsers do not send Sec-Fetch-Site there, but Origin with each POST."""
    named = Page(explorer(page.client, page.entities, hosts=hosts), page.client, page.entities)
    answer = await named.post("cost", series=demo_row("Revenue/annual"), headers=headers)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"client": "http://host"}, "client must be a Client, or a function that returns it, not 'http"),
        ({"entities": "O-1"}, r"entities must be an iterable .* not 'O-1'; write \['O-1'\]"),
        ({"entities": "O-1, O-2,"}, r"not 'O-1, O-2,'; write \['O-1', 'O-2'\]"),
        ({"entities": 5}, "entities must be an iterable of entity ids, such as a list, not 5$"),
        ({"entities": [None]}, "entity_id must be an id such as .* not None"),
        ({"hosts": "figures.example"}, r"hosts must be .*; write \['figures.example'\]"),
        ({"hosts": ["http://figures.example"]}, "hosts must be host names .*, not 'http://figures.example'"),
        ({"hosts": ["figures.example:8000"]}, "without scheme and port, not 'figures.example:8000'"),
    ],
    ids=str,
)
async def test_wrong_arguments_are_rejected(page: Page, wrong: dict[str, Any], said: str) -> None:
    """Not at the first visit, as a 500, a 400 or an empty list."""
    arguments = {"client": page.client, "entities": page.entities, **wrong}
    with pytest.raises(SelectionError, match=said):
        explorer(arguments.pop("client"), arguments.pop("entities"), **arguments)


@pytest.mark.virtual
@pytest.mark.parametrize("leaves", [True, False])
async def test_a_slow_form_has_ten_seconds(page: Page, leaves: bool) -> None:
    """Of a visitor who leaves in between, no error reaches the server; another one gets 408."""
    entity_id = page.entities[0]
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(4)
        if leaves and asyncio.get_running_loop().time() - began > 6:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": b"series=a&", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1"), (b"origin", b"http://127.0.0.1")]
    path = f"/company/{entity_id}/cost"
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
    began = asyncio.get_running_loop().time()
    await explorer(page.client, page.entities)({**scope, "http_version": "1.1"}, receive, send)
    assert sent[0]["status"] == (499 if leaves else 408)
    assert asyncio.get_running_loop().time() - began == pytest.approx(8 if leaves else 10, abs=0.1)
    assert page.spent == 0


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8766", ""]
)
async def test_a_foreign_host_name_is_refused(page: Page, host: str) -> None:
    """A foreign name that points at this machine does not reach the page."""
    answer = await page.post("series", headers={**OWN, "Host": host})
    assert answer.status_code == 400
    assert page.spent == 0


async def test_other_companies_are_not_found(page: Page) -> None:
    """The page offers what its operator lists, and nothing else of the account."""
    other = "O-" + "f" * 32
    assert (await page.http.get(f"/company/{other}")).status_code == 404
    for fragment in ("series", "cost", "answer"):
        assert (await page.post(fragment, other)).status_code == 404
    assert page.spent == 0


async def test_responses_forbid_inline_code(page: Page) -> None:
    """The policy has no unsafe word, and the page has no inline script, style or handler."""
    answers = [
        await page.http.get("/"),
        await page.http.get(f"/company/{page.entities[0]}"),
        await page.post("series"),
        await page.post("answer", series=REVENUE),
    ]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert not re.search(
            r"<script(?![^>]* src=)|<style|\sstyle=|\son[a-z]+=|hx-on|javascript:|hx-vals=.js", answer.text
        )
        assert not re.search(r'(?:src|href|action)="(?:https?:)?//', answer.text)


async def test_hostile_names_are_text() -> None:
    """Markup in a company's name, a label, an id or a scope is shown, not obeyed."""
    hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\x1b[31m\u202e"
    dataset = evolve(generate(1, series=6, publications=1), name=hostile)
    dataset = evolve(dataset, publications=tuple(evolve(p, name=hostile) for p in dataset.publications))
    group: Any = dataset.publications[-1].groups[0]
    first = group["series"][0]
    path = "|".join(f"{scope['scope_group_id']}={scope['scope_id']}" for scope in first["scopes"])
    row = f"{first['metric_id']}/{first['reporting_group_id']}/{path}"
    group["name"] = group["series"][0]["label"] = group["series"][0]["description"] = hostile
    async with Sandbox(dataset) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        hostile_page = Page(explorer(client, sandbox.entities), client, sandbox.entities)
        tree = await hostile_page.post("series")
        answer = await hostile_page.post("answer", series=row, rule="all")
        again = await hostile_page.http.get("/")
    for each in (tree, answer, again):
        assert each.status_code == 200
        assert "<script>alert" not in each.text
        assert "<img" not in each.text
        assert "\x1b" not in each.text


@pytest.mark.parametrize(
    ("fields", "status", "said"),
    [
        ({"rule": "annual"}, 400, "no series is chosen"),
        (
            {"series": demo_row("Revenue/annual"), "rule": "annual", "last": "many"},
            400,
            "many years must be a whole number",
        ),
        (
            {"series": demo_row("Revenue/annual"), "rule": "annual", "last": "0"},
            400,
            "how many years must be a whole number from 1",
        ),
        ({"series": demo_row("Revenue/annual"), "rule": "never"}, 400, "rule must be one of"),
        ({"series": "No/such", "rule": "annual"}, 400, "No/such"),
        ({"series": demo_row("Revenue/annual"), "rule": "annual", "value_version": "newest"}, 400, "newest"),
    ],
)
async def test_wrong_question_is_a_sentence(
    page: Page, fields: dict[str, str], status: int, said: str
) -> None:
    """A wrong question is answered with what is wrong, in the answer's place, and spends no query."""
    answer = await page.post("answer", **fields)
    assert answer.status_code == status
    assert said in unescape(answer.text)
    assert "Change the query" in answer.text


async def test_service_failures_are_sentences() -> None:
    """A used-up allowance says when to come back; a refused account is the operator's matter."""
    async with Sandbox.demo(faults=[Status(status=429, retry_after=3600, operation="query")]) as sandbox:
        async with Client(sandbox.base_url, sandbox.token) as client:
            spent = Page(explorer(client, sandbox.entities), client, sandbox.entities)
            answer = await spent.post("answer", series=demo_row("Revenue/annual"), rule="annual")
            assert answer.status_code == 503
            assert int(answer.headers["retry-after"]) > 3000
            assert "Come back later" in answer.text
        async with Client(sandbox.base_url, "another-token") as client:
            refused = Page(explorer(client, sandbox.entities), client, sandbox.entities)
            answer = await refused.post("series")
            assert answer.status_code == 502
            assert "another-token" not in answer.text


async def test_mounted_explorer_uses_the_hosts_client(page: Page) -> None:
    """The links hold under whatever path the host has given it, and no client is needed to mount it."""
    from starlette.applications import Starlette
    from starlette.routing import Mount

    clients: list[Client] = []
    app = Starlette(routes=[Mount("/explore", explorer(lambda: clients[0], page.entities))])
    mounted = Page(app, page.client, page.entities)
    clients.append(page.client)
    html = (await mounted.http.get("/explore/")).text
    assert f'href="/explore/company/{quote(page.entities[0])}"' in html
    assert (await mounted.http.get("/explore/static/explorer.js")).status_code == 200
    tree = await mounted.http.post(f"/explore/company/{page.entities[0]}/series", headers=OWN, content=b"")
    assert tree.status_code == 200


async def test_start_page_names_companies(page: Page) -> None:
    """By a mapping, or by a cached catalogue; a note tells how names come if there are neither."""
    note = "is listed by its id until its catalogue has been read"
    named = Page(explorer(page.client, dict.fromkeys(page.entities, "A name")), page.client, page.entities)
    start = (await named.http.get("/")).text
    assert (start.count(">A name<"), note in start) == (3, False)
    async with caching(max_age=3600) as cached:
        assert note in (await cached.http.get("/")).text
        for entity_id in cached.entities:
            await cached.client.catalogue(entity_id)
        spent = cached.spent
        start = (await cached.http.get("/")).text
        assert (">NVIDIA<" in start, note in start, cached.spent) == (True, False, spent)


async def test_names_follow_the_catalogues(page: Page) -> None:
    """A catalogue that was read for its cost alone names its company too."""
    first, second, _ = page.entities
    assert (await page.http.get("/")).text.count(f"<bdi>{second}</bdi>") == 1
    form = {"series": "Revenue/annual.consolidated/company=consolidated", "with": second}
    assert (await page.http.post(f"/company/{first}/cost", data=form, headers=OWN)).status_code == 200
    assert f"<bdi>{second}</bdi>" not in (await page.http.get("/")).text


async def test_a_form_too_large_is_refused(page: Page) -> None:
    """The process does not hold a body without end."""
    answer = await page.http.post(
        f"/company/{page.entities[0]}/cost", content=b"series=" + b"x" * 1_100_000, headers=OWN
    )
    assert answer.status_code == 413


def test_vendored_files_are_published_ones() -> None:
    """The vendored files have the published hashes, and their licences beside them."""
    for line in (STATIC / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == digest
    assert {path.name for path in STATIC.glob("*.LICENSE")} == {"htmx.LICENSE", "uPlot.LICENSE"}


async def test_latest_of_many_periods_are_shown() -> None:
    """A table of 130 periods has the last 120 as columns, and a note about the others."""
    labels = [Period(1990 + at // 4, 3 * (at % 4 + 1), 3).label for at in range(130)]
    made = dataset({("Sales", "all"): {label: at for at, label in enumerate(labels)}})
    async with Sandbox(load(made)) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        page = Page(explorer(client, sandbox.entities), client, sandbox.entities)
        answer = await page.post("answer", series="Sales/all/company=all", rule="all")
        panel = await client.query(sandbox.entities[0], asyncfin.Select(), asyncfin.FiscalRange())
    (head, row) = texts(answer.text)
    assert head[1:] == [period.label for period in panel.periods[-120:]]
    assert row[1:] == [value.text if value else "" for value in panel.one().values[-120:]]
    assert "10 earlier periods not shown." in answer.text


@pytest.mark.parametrize("fragment", ["series", "cost", "answer"])
async def test_foreign_picture_spends_no_request(page: Page, fragment: str) -> None:
    """What spends is asked for with POST, which no picture sends."""
    answer = await page.http.get(f"/company/{page.entities[0]}/{fragment}", headers=OWN)
    assert (answer.status_code, answer.headers.get("allow")) == (405, "POST")
    assert page.spent == 0
