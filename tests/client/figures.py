"""A service of raw bytes with one series for each entity, which a test can make silent, slow or wrong."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from attrs import define

from tests.services.raw import Received, Step, answer, refusal, writing

PERIODS = [{"year": year, "end_month": 12, "duration_months": 12} for year in (2023, 2024)]
SCOPES = [{"scope_group_id": "company", "scope_id": "all"}]


def entity(number: int) -> str:
    return f"O-{number:032}"


@define
class Figures:
    """Responds with its figures of any entity, unless a test says otherwise."""

    publication: int = 1
    latency: float = 0.0  # seconds before each response
    step: Step | bytes | None = None  # what happens to all requests
    judge: Callable[[Received], bytes | None] = lambda request: None  # what happens to one

    def __call__(self, request: Received) -> Step | bytes:
        if self.step is not None:
            return self.step
        if (judgement := self.judge(request)) is not None:
            return judgement
        response = self.response(request)
        if not self.latency:
            return response

        async def late(writer: asyncio.StreamWriter) -> bool:
            await asyncio.sleep(self.latency)
            return await writing(response)(writer)

        return late

    def response(self, request: Received) -> bytes:
        path, _, parameters = request.target.partition("?")
        entity_id, operation = path.split("/")[3], path.rsplit("/", 1)[-1]
        dataset_id = f"00000000-0000-4000-8000-{self.publication:012}"
        sent = json.loads(request.body or b"{}")
        if sent.get("expected_dataset_id", dataset_id) != dataset_id or (
            "expected_dataset_id" in parameters and dataset_id not in parameters
        ):
            return refusal(409, "dataset_changed")
        head = {
            "entity_id": entity_id,
            "name": "Example",
            "dataset_id": dataset_id,
            "created_timestamp": "2026-01-01T00:00:00Z",
        }
        content = {"dataset": {}, "catalogue": self._catalogue(), "query": self._page()}[operation]
        return answer(body=json.dumps(head | content).encode())

    def _series(self) -> dict[str, Any]:
        return {
            "series_id": "S",
            "reporting_group_id": "annual",
            "metric_id": "Revenue",
            "label": "Revenue",
            "basis": "consolidated",
            "scopes": SCOPES,
            "number_format": "#,##0",
            "period_meaning": "over_period",
        }

    def _catalogue(self) -> dict[str, Any]:
        scope = {"scope_id": "all", "name": "All", "description": "", "role": "company", "aliases": []}
        group = {"reporting_group_id": "annual", "name": "Annual", "description": "", "basis": "b"}
        return {
            "periods": PERIODS,
            "scope_groups": [
                {"scope_group_id": "company", "name": "Company", "description": "", "scopes": [scope]}
            ],
            "groups": [group | {"cadence": "annual", "series": [self._series() | {"description": ""}]}],
        }

    def _page(self) -> dict[str, Any]:
        values = [
            {
                "number": self.publication,
                "text": str(self.publication),
                "number_format": "#,##0",
                "fill_type": "reported",
                "value_version": "original",
                "report_period": period | {"duration_months": 0},
                "sources": [],
            }
            for period in PERIODS
        ]
        return {"periods": PERIODS, "series": [self._series() | {"values": values}]}
