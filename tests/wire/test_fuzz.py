"""Answers changed in structure, types and bytes: an AsyncfinError, or just what they say."""

import asyncio
import copy
import json
import os
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from asyncfin import AsyncfinError, Client, FiscalRange, Panel, Retry, Select
from asyncfin.sandbox import Sandbox
from tests import examples
from tests.conftest import VirtualTimeLoop
from tests.generate import generate
from tests.services.altering import altered
from tests.services.raw import Received, answer, judged

CASES = int(os.environ.get("ASYNCFIN_FUZZ", examples(300)))
DATASET = generate(5, series=14, publications=1)
OPERATIONS = ("dataset", "catalogue", "query")
ODD: list[Any] = [None, True, False, "", "x", "2024", "\ud800", "O-", 0, -1, 13, 1.5, 1e300, 10**30]
ODD += [[], {}, [None], {"year": 2024}]


@cache
def recorded() -> dict[str, bytes]:
    """Return the sound answer of each operation, as JSON."""
    bodies: dict[str, bytes] = {}

    def keep(operation: str, sent: Any, content: Any) -> None:
        bodies[operation] = json.dumps(content).encode()

    async def read() -> None:
        async with (
            Sandbox(DATASET) as sandbox,
            altered(sandbox, keep) as base_url,
            Client(base_url, sandbox.token) as client,
        ):
            await client.dataset(DATASET.entity_id)
            await client.query(DATASET.entity_id, Select(), FiscalRange())

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(read())
    return bodies


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every (container, key) within a JSON value."""
    found: list[tuple[Any, Any]] = []
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        found += [(value, key), *places(value[key])]
    return found


def restructured(body: bytes, source: random.Random) -> bytes:
    """Change some places of a JSON body: replace, remove, double, swap, rename."""
    content = json.loads(body)
    for _ in range(source.choice([1, 1, 1, 2, 5])):
        container, key = source.choice(places(content))
        way = source.choice(["replace", "replace", "remove", "double", "swap", "rename"])
        if way == "replace":
            container[key] = copy.deepcopy(source.choice(ODD))
        elif way == "remove":
            del container[key]
        elif way == "double" and isinstance(container, list):
            container.insert(key, json.loads(json.dumps(container[key])))
        elif way == "swap" and isinstance(container, list):
            other = source.randrange(len(container))
            container[key], container[other] = container[other], container[key]
        elif way == "rename" and isinstance(container, dict):
            container[f"{key}_"] = container.pop(key)
        if not places(content):
            break
    return json.dumps(content).encode()


def bytes_changed(body: bytes, source: random.Random) -> bytes:
    """Overwrite, insert, cut or repeat some bytes."""
    changed = bytearray(body)
    at = source.randrange(len(changed))
    way = source.choice(["overwrite", "insert", "cut", "repeat", "end"])
    if way == "overwrite":
        changed[at] = source.randrange(256)
    elif way == "insert":
        changed[at:at] = source.randbytes(source.randint(1, 4))
    elif way == "cut":
        del changed[at : at + source.randint(1, 40)]
    elif way == "repeat":
        changed[at:at] = changed[at : at + source.randint(1, 60)]
    else:
        del changed[at:]
    return bytes(changed)


CHANGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "structure": lambda body, source: answer(200, restructured(body, source)),
    "bytes": lambda body, source: answer(200, bytes_changed(body, source)),
}


async def ask(changed: str, sent: bytes) -> Panel | AsyncfinError:
    """Ask for everything of a service that answers one operation with these bytes."""

    def judge(request: Received) -> bytes:
        operation = request.target.partition("?")[0].rsplit("/", 1)[-1]
        return sent if operation == changed else answer(200, recorded()[operation])

    async with judged(judge) as server, Client(server.base_url, "token", retry=Retry(attempts=2)) as client:
        try:
            async with asyncio.timeout(10_000):
                if changed == "dataset":  # else no metadata are requested
                    await client.dataset(DATASET.entity_id)
                panel = await client.query(DATASET.entity_id, Select(), FiscalRange())
                panel.check()
        except AsyncfinError as error:
            return error
        return panel


def told(body: bytes) -> dict[str, dict[tuple[int, int, int], tuple[Any, str]]]:
    """Read a response to the query by brute force."""
    # A field of another name is unknown, and ignored, whatever its bytes.
    content = json.loads(body.decode(errors="replace"))
    periods = [(each["year"], each["end_month"], each["duration_months"]) for each in content["periods"]]
    return {
        series["series_id"]: {
            period: (value["number"], value.get("text") or "")  # a missing text is repaired
            for period, value in zip(periods, series["values"], strict=True)
            if value is not None
        }
        for series in content["series"]
    }


def shown(panel: Panel) -> dict[str, dict[tuple[int, int, int], tuple[Any, str]]]:
    return {
        series.series_id: {
            (period.year, period.end_month, period.duration_months): (value.number, value.text)
            for period, value in series.observations()
        }
        for series in panel
        if series.series_id not in panel.unlisted
    }


@pytest.mark.timeout(600 + CASES // 10)
@settings(max_examples=CASES)
@given(st.sampled_from(OPERATIONS), st.sampled_from(sorted(CHANGES)), st.integers(0, 2**32))
def test_changed_response_is_read_or_rejected(operation: str, way: str, seed: int) -> None:
    """Nothing but an AsyncfinError comes out, never a hang, and never a panel that no response contains."""
    sent = CHANGES[way](recorded()[operation], random.Random(seed))
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        outcome = runner.run(ask(operation, sent))
    if isinstance(outcome, Panel):
        body = sent.partition(b"\r\n\r\n")[2] if operation == "query" else recorded()["query"]
        # A catalogue can do without series, and one without periods has no values to ask for.
        listed = {
            name: row for name, row in told(body).items() if operation != "catalogue" or name in outcome
        }
        assert shown(outcome) == (listed if outcome.catalogue.periods else {name: {} for name in listed})
        assert outcome.dataset.entity_id == DATASET.entity_id


def test_the_unchanged_answers_give_a_panel() -> None:
    """The recorded answers are sound, so that an error can only come from a change."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        outcome = runner.run(ask("query", answer(200, recorded()["query"])))
    assert isinstance(outcome, Panel)
    assert shown(outcome) == told(recorded()["query"])
    assert outcome.value_count > 0
