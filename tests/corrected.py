"""A service made by hand whose publication keeps its `dataset_id` while its content changes."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

from asyncfin import Period
from tests.nights import BEGIN, Cell, Content, Key, dataset_id, entity, publication
from tests.scripted import Received, answer, judged, refusal

ID, DATASET_ID, TOKEN = entity(1), dataset_id(1), "a-token"
REVENUE, COST, NEW = Key("S-1"), Key("S-2", "Cost"), Key("S-3", "New")
OLD_CONTENT: Content = {REVENUE: {"FY2020": Cell(1), "FY2021": Cell(2)}, COST: {"FY2020": Cell(3)}}
NEW_CONTENT: Content = {REVENUE: {"FY2020": Cell(9), "FY2022": Cell(4)}, NEW: {"FY2021": Cell(5)}}


def day(number: float) -> datetime:
    return BEGIN + timedelta(days=number)


def keys(period: tuple[int, int, int]) -> dict[str, int]:
    return dict(zip(("year", "end_month", "duration_months"), period, strict=True))


class Corrected:
    """What the service has now, and the operations that it was sent."""

    def __init__(self) -> None:
        self.operations: list[str] = []
        self.base_url = ""
        # The `created_timestamp` of a response, by its operation.
        self.created: Callable[[str], datetime] = lambda operation: day(0)
        self.correct(OLD_CONTENT, day(1))

    def correct(self, content: Content, created: datetime) -> None:
        self.content = content
        self.publication = publication(content, created=created)
        self.created = lambda operation: created

    @property
    def values(self) -> dict[tuple[str, str], float]:
        """The numbers by series and period."""
        found = self.content.items()
        return {(key.series_id, label): each.number for key, row in found for label, each in row.items()}

    def respond(self, request: Received) -> bytes:
        url = urlsplit(request.target)
        operation = url.path.rsplit("/", 1)[-1]
        self.operations.append(operation)
        sent = json.loads(request.body or b"{}") | {
            name: text for name, (text,) in parse_qs(url.query).items()
        }
        if f"/{ID}/" not in url.path:
            return refusal(404, "not_found")
        if sent.get("expected_dataset_id", DATASET_ID) != DATASET_ID:
            return refusal(409, "dataset_changed")
        body: dict[str, Any] = {
            "entity_id": ID,
            "name": "Example",
            "dataset_id": DATASET_ID,
            "created_timestamp": self.created(operation).isoformat(),
        }
        periods = self.publication.periods
        if operation == "catalogue":
            body |= {
                "periods": [keys(each) for each in periods],
                "scope_groups": list(self.publication.scope_groups),
                "groups": list(self.publication.groups),
            }
        elif operation == "query":
            listed = [each for group in self.publication.groups for each in group["series"]]
            if not set(sent["metric_ids"]) <= {each["metric_id"] for each in listed}:
                return refusal(400, "validation_failed")
            matching = [each for each in listed if each["metric_id"] in sent["metric_ids"]]
            places = [place for place, each in enumerate(periods) if _selects(sent["periods"], each)]
            body |= {
                "periods": [keys(periods[place]) for place in places],
                "series": [self._series(each, places, sent) for each in matching],
            }
        return answer(body=json.dumps(body).encode())

    def _series(self, listed: dict[str, Any], places: list[int], sent: dict[str, Any]) -> dict[str, Any]:
        version = sent.get("value_version", "original")
        values = {}
        for place, original, restated in self.publication.values[listed["series_id"]]:
            if value := original if version == "original" else restated or original:
                values[place] = value | {"value_version": version}
        return {name: each for name, each in listed.items() if name != "description"} | {
            "values": [values.get(place) for place in places]
        }


def _selects(selection: dict[str, Any], period: tuple[int, int, int]) -> bool:
    if selection["mode"] == "exact":
        return keys(period) in selection["exact"]
    first, last = (Period(**(selection[end] | {"duration_months": 1})).fiscal_end for end in ("from", "to"))
    return bool(first <= Period(*period).fiscal_end <= last)


@asynccontextmanager
async def corrected() -> AsyncIterator[Corrected]:
    """Serve on a free port; each request is answered from what the service has at that moment."""
    service = Corrected()
    async with judged(service.respond) as script:
        service.base_url = script.base_url
        yield service
