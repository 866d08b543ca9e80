"""A service of many small companies, written from its description alone, which refuses some of them."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

TOKEN = "token-of-the-gate"
PERIOD = {"year": 2024, "end_month": 12, "duration_months": 12}
SCOPES = [{"scope_group_id": "company", "scope_id": "all"}]
SERIES = {
    "series_id": "S-1",
    "reporting_group_id": "annual",
    "metric_id": "Revenue",
    "label": "Revenue",
    "basis": "consolidated",
    "scopes": SCOPES,
    "number_format": "#,##0",
    "period_meaning": "over_period",
}
# Returns the status of a request: of an entity, an operation, and which request of that entity it is, from 1.
Status = Callable[[str, str, int], int]


def entity(number: int) -> str:
    return f"O-{number:032d}"


class Gate:
    """The service. `requests` are those received, by entity id; `order` has the entities as first met."""

    def __init__(self, status: Status) -> None:
        self._status = status
        self.requests: Counter[str] = Counter()
        self.order: dict[str, None] = {}

    async def respond(self, request: web.Request) -> web.Response:
        entity_id, operation = request.match_info["entity_id"], request.match_info["operation"]
        self.order[entity_id] = None
        self.requests[entity_id] += 1
        status = self._status(entity_id, operation, self.requests[entity_id])
        if status != 200:
            error = {"code": "staged", "message": "staged", "request_id": "r-1"}
            return web.json_response({"error": error}, status=status)
        return web.json_response(dataset_body(entity_id, operation))


def dataset_body(entity_id: str, operation: str) -> dict[str, Any]:
    """Return the response to a request about a company."""
    return {
        "entity_id": entity_id,
        "name": f"Company {int(entity_id[2:])}",
        "dataset_id": "11111111-1111-4111-8111-111111111111",
        "created_timestamp": "2025-02-01T06:00:00Z",
        **_rest(operation),
    }


def _rest(operation: str) -> dict[str, Any]:
    if operation.endswith("catalogue"):
        group = {
            "reporting_group_id": "annual",
            "name": "Annual",
            "description": "",
            "basis": "consolidated",
            "cadence": "annual",
            "series": [{**SERIES, "description": ""}],
        }
        scope = {"scope_id": "all", "name": "All", "description": "", "role": "company", "aliases": []}
        groups = {"scope_group_id": "company", "name": "Company", "description": "", "scopes": [scope]}
        return {"periods": [PERIOD], "scope_groups": [groups], "groups": [group]}
    if operation.endswith("query"):
        value = {
            "number": 1,
            "text": "1",
            "number_format": "#,##0",
            "fill_type": "reported",
            "value_version": "original",
            "report_period": {**PERIOD, "duration_months": 0},
            "sources": [],
        }
        return {"periods": [PERIOD], "series": [{**SERIES, "values": [value]}]}
    return {}


@asynccontextmanager
async def gate(status: Status) -> AsyncIterator[tuple[Gate, str]]:
    """Serve on a free port of this machine; yield the service and its address."""
    served = Gate(status)
    app = web.Application()
    app.router.add_route("*", "/v1/entities/{entity_id}/{operation:dataset.*}", served.respond)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield served, f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
