"""A small dataset written out by hand, and a desk that puts requests to the rules without any network.

Beside the desk there is a caller, who asks a running sandbox over HTTP.
"""

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import pytest
from attrs import evolve

from asyncfin.sandbox import Account, Dialect, Publication, Sandbox
from asyncfin.sandbox.accounts import PERMISSIONS, Meter, Token
from asyncfin.sandbox.request import Reply, Request
from asyncfin.sandbox.rules import Service, answer
from asyncfin.sandbox.store import Store

ENTITY = "O-" + "1" * 32
FIRST, SECOND = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
COMPANY = [{"scope_group_id": "company", "scope_id": "all"}]
CLOUD = [*COMPANY, {"scope_group_id": "segment", "scope_id": "cloud"}]
PERIODS = (
    (2023, 9, 3),
    (2023, 12, 3),
    (2023, 12, 12),
    (2024, 3, 3),
    (2024, 6, 3),
    (2024, 6, 6),
    (2024, 12, 12),
)


def value(number: float, year: int = 2024, end_month: int = 12) -> dict[str, Any]:
    return {
        "number": number,
        "text": f"{number:,}",
        "number_format": "#,##0",
        "fill_type": "reported",
        "report_period": {"year": year, "end_month": end_month, "duration_months": 0},
        "sources": [{"item_id": "10-K", "row_index": 1, "column_index": 2}],
    }


def _series(series_id: str, group: str, metric: str, scopes: list[dict[str, str]]) -> dict[str, Any]:
    return {
        "series_id": series_id,
        "reporting_group_id": group,
        "metric_id": metric,
        "label": metric.title(),
        "description": f"{metric} — in full. Unit: USD.",
        "basis": "consolidated",
        "scopes": scopes,
        "number_format": "#,##0",
        "period_meaning": "over_period",
    }


def _group(group_id: str, *series: dict[str, Any]) -> dict[str, Any]:
    texts = {"name": group_id, "description": group_id, "basis": "consolidated", "cadence": group_id}
    return {"reporting_group_id": group_id, **texts, "series": list(series)}


def _scope_group(group_id: str, scope_id: str) -> dict[str, Any]:
    scope = {"scope_id": scope_id, "name": scope_id, "description": "", "role": "company", "aliases": []}
    return {"scope_group_id": group_id, "name": group_id, "description": "", "scopes": [scope]}


GROUPS = (
    _group(
        "annual",
        _series("A-sales", "annual", "sales", COMPANY),
        _series("A-profit", "annual", "profit", COMPANY),
        _series("A-empty", "annual", "staff", COMPANY),
    ),
    _group(
        "quarterly",
        _series("Q-sales", "quarterly", "sales", COMPANY),
        _series("Q-cloud", "quarterly", "sales", CLOUD),
    ),
)
VALUES = {
    "A-sales": [(2, value(100), value(101)), (6, value(120), None)],
    "A-profit": [(2, value(0), None)],
    "A-empty": [],
    "Q-sales": [(0, value(20), None), (1, value(30), value(31)), (3, value(25), None), (5, value(55), None)],
    "Q-cloud": [(3, value(5), None), (4, value(6), None)],
}


@pytest.fixture
def publication() -> Publication:
    return Publication(
        entity_id=ENTITY,
        name="Ünited Sample",
        dataset_id=FIRST,
        created_timestamp="2025-02-01T06:00:00Z",
        periods=PERIODS,
        scope_groups=(
            _scope_group("company", "all"),
            _scope_group("segment", "cloud"),
            _scope_group("unused", "x"),
        ),
        groups=GROUPS,
        values=VALUES,
    )


@pytest.fixture
def later(publication: Publication) -> Publication:
    """The next publication, with one number more."""
    values = {**VALUES, "A-empty": [(6, value(7), None)]}
    return evolve(publication, dataset_id=SECOND, values=values)


class Desk:
    """The rules over a store with one publication; time does not pass unless moved."""

    base_url = "http://service.test"

    def __init__(self, publication: Publication) -> None:
        self.store = Store()
        self.store.publish(publication)
        self.now, self.time = datetime(2026, 3, 1, 22, 30, tzinfo=UTC), 0.0
        self.meter = Meter(self.store, lambda: self.now, lambda: self.time)
        self.dialect = Dialect()
        self.headers: dict[str, str] = {}
        self.account(Account("main"))
        self.token = self.issue("token", "main")

    def account(self, account: Account) -> None:
        self.store.put_account(account)

    def issue(self, text: str, account: str, *permissions: str, audience: str = "rest") -> str:
        self.store.put_token(text, Token(account, permissions or PERMISSIONS, audience))
        return text

    def reply(self, method: str, path: str, query: str = "", body: bytes | None = b"") -> Reply:
        """The answer; one that is charge is counted, as the server does."""
        headers = {
            "authorization": f"Bearer {self.token}",
            "content-type": "application/json",
            **self.headers,
        }
        request = Request(method, path, query, headers, body, "req-1")
        reply = answer(request, Service(self.store, self.meter, self.dialect, self.base_url))
        if reply.charge:
            self.meter.count(*reply.charge)
        return reply

    def get(self, path: str, **params: Any) -> tuple[int, Any]:
        reply = self.reply("GET", path, urlencode(params))
        return reply.status, json.loads(reply.body)

    def dataset(self, entity_id: str = ENTITY) -> tuple[int, Any]:
        return self.get(f"/v1/entities/{quote(entity_id, safe='')}/dataset")

    def catalogue(self, **params: Any) -> tuple[int, Any]:
        return self.get(f"/v1/entities/{ENTITY}/dataset/catalogue", **params)

    def post(self, body: Any) -> tuple[int, Any]:
        """A query with this body, whatever it is."""
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        reply = self.reply("POST", f"/v1/entities/{ENTITY}/dataset/query", body=text)
        return reply.status, json.loads(reply.body)

    def query(self, **fields: Any) -> tuple[int, Any]:
        """A query that is right but for what is given; None leaves a field out."""
        body = {
            "metric_ids": ["sales", "profit", "staff"],
            "scope_combinations": [COMPANY],
            "periods": {"mode": "trailing", "months": 1200},
            **fields,
        }
        return self.post({name: field for name, field in body.items() if field is not None})


@pytest.fixture
def desk(publication: Publication) -> Iterator[Desk]:
    desk = Desk(publication)
    yield desk
    desk.store.close()


class Caller:
    """Asks a sandbox over HTTP."""

    def __init__(self, session: aiohttp.ClientSession, sandbox: Sandbox) -> None:
        self.session, self.sandbox = session, sandbox

    async def get(self, path: str = "/dataset", **params: str) -> tuple[int, bytes]:
        url = f"{self.sandbox.base_url}/v1/entities/{ENTITY}{path}"
        headers = {"Authorization": f"Bearer {self.sandbox.token}"}
        async with self.session.get(url, params=params, headers=headers) as response:
            return response.status, await response.read()

    async def post(self) -> None:
        """Any POST: aiohttp would send a dropped GET again."""
        async with self.session.post(f"{self.sandbox.base_url}/v1/limits") as response:
            await response.read()

    async def statuses(self, count: int, path: str = "/dataset") -> list[int]:
        return [(await self.get(path))[0] for _ in range(count)]


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout()) as session:
        yield session


@pytest.fixture
async def sandbox(publication: Publication) -> AsyncIterator[Sandbox]:
    async with Sandbox(publication) as sandbox:
        yield sandbox


@pytest.fixture
def caller(session: aiohttp.ClientSession, sandbox: Sandbox) -> Caller:
    return Caller(session, sandbox)
