"""A sender to a scripted server, and the events that it announces."""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from asyncfin.events import Event
from asyncfin.pacing.bucket import Lane, TokenBucket
from asyncfin.wire.protocol import Request
from asyncfin.wire.retry import Retry
from asyncfin.wire.sender import Sender
from asyncfin.wire.transport import Transport
from tests.services.raw import Received, Scripted, judged, scripted

ENTITY = "O-" + "1" * 32
READ = Request("dataset", "GET", f"/v1/entities/{ENTITY}/dataset", entity_id=ENTITY)
QUERY = Request("query", "POST", f"/v1/entities/{ENTITY}/dataset/query", body=b"{}", entity_id=ENTITY)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
seconds = st.just(0.0) | st.floats(0.001, 1000)


@asynccontextmanager
async def sending(
    *steps: Any,
    judge: Callable[[Received], bytes] | None = None,
    bucket: TokenBucket | None = None,
    retry: Retry | None = None,
    token: Any = "some-token",
    lane: Lane = "interactive",
    **options: Any,
) -> AsyncIterator[tuple[Scripted, Sender, list[Event]]]:
    """A sender to a scripted server, and the events it announces."""
    events: list[Event] = []
    async with judged(judge) if judge else scripted(*steps) as server:
        transport = Transport(server.base_url, **{"clock": lambda: NOON, **options})
        sender = Sender(
            transport,
            token,
            bucket=bucket or TokenBucket(rate=1e6, burst=1e3, clock=lambda: NOON),
            retry=retry or Retry(),
            lane=lane,
            observers=[events.append],
        )
        sender.source = random.Random(1)
        try:
            yield server, sender, events
        finally:
            await sender.aclose()


def of_kind(events: list[Event], kind: type[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]
