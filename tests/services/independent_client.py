"""Random questions to the service of `tests.services.independent`, by the library, and what came of them.

`python -m tests.services.independent_client BASE_URL CACHE SEED COUNT` writes one JSON line for each answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from asyncfin import (
    Annual,
    AsyncfinError,
    Client,
    FileCache,
    FiscalRange,
    MemoryCache,
    Panel,
    Quarterly,
    RedisCache,
    Retry,
    Select,
    TokenBucket,
    Trailing,
)
from tests.services.independent import METRICS, TOKEN, VERSIONS, Answer

QUICK = Retry(attempts=8, wait_initial=0.001, wait_max=0.01)
RULES = {
    "annual": lambda last: Annual(last=last),
    "quarterly": lambda last: Quarterly(last=last),
    "range": lambda first, last: FiscalRange(tuple(first), tuple(last)),
    "trailing": lambda months: Trailing(months),
}


def cache_of(text: str) -> MemoryCache | FileCache | RedisCache | None:
    """Return the cache that a text describes: none, memory, file:FOLDER, redis:URL."""
    kind, _, place = text.partition(":")
    match kind:
        case "memory":
            return MemoryCache()
        case "file":
            return FileCache(place)
        case "redis":
            return RedisCache(place, account="oracle")
    return None


def client_of(base_url: str, cache: Any) -> Client:
    return Client(base_url, TOKEN, cache=cache, retry=QUICK, bucket=TokenBucket(1e6, 1000), stale_if_error=0)


def question(rng: random.Random, entities: list[str]) -> dict[str, Any]:
    """Return a random question, as plain data."""
    select: dict[str, Any] = {}
    if rng.random() < 0.7:
        select["metric_ids"] = rng.sample(METRICS, rng.choice([1, 2, 5]))
    if rng.random() < 0.3:
        select["reporting_group_ids"] = [rng.choice(["annual", "quarterly"])]
    if rng.random() < 0.2:
        select["basis"] = [rng.choice(["consolidated", "segment"])]
    rule = rng.choice(
        [
            ("annual", rng.choice([1, 2])),
            ("quarterly", rng.choice([1, 5])),
            ("range", (2020, 1), (2099, 12)),
            ("range", (2021, 4), (2022, 6)),
            ("trailing", rng.choice([3, 12, 20])),
        ]
    )
    return {
        "entity_id": rng.choice(entities),
        "select": select,
        "rule": rule,
        "version": rng.choice(VERSIONS),
        "max_age": rng.choice([0.0, 0.0, 0.05, 60.0]),
    }


async def ask(client: Client, asked: dict[str, Any], *, stream: bool = False) -> Answer:
    """Ask one question, and return the answer or the class of its error."""
    select = Select(**asked["select"])
    kind, *arguments = asked["rule"]
    periods = RULES[kind](*arguments)
    options = {"value_version": asked["version"], "max_age": asked["max_age"]}
    began = time.time()
    try:
        if stream:
            async with client.stream(asked["entity_id"], select, periods, **options) as pieces:
                panels = [piece async for piece in pieces]
        else:
            panels = [await client.query(asked["entity_id"], select, periods, **options)]
    except AsyncfinError as error:
        return Answer(
            **asked, began=began, ended=time.time(), error=type(error).__name__, process=os.getpid()
        )
    ended = time.time()
    if stream and kind in ("range", "trailing"):
        shown = sorted({key_of(each) for panel in panels for each in panel.periods})
    else:
        shown = [key_of(each) for each in panels[0].periods]
    return Answer(
        **asked,
        began=began,
        ended=ended,
        dataset_id=panels[0].dataset.dataset_id,
        periods=shown,
        texts={one: row for panel in panels for one, row in texts_of(panel).items()},
        process=os.getpid(),
    )


def key_of(period: Any) -> tuple[int, int, int]:
    return period.year, period.end_month, period.duration_months


def texts_of(panel: Panel) -> dict[str, dict[tuple[int, int, int], str]]:
    return {
        series.series_id: {key_of(period): value.text for period, value in series.observations()}
        for series in panel
    }


def written(answer: Answer) -> str:
    """Return an answer as a JSON line; periods become lists."""
    plain = asdict(answer)
    plain["texts"] = [
        [one, [[list(key), text] for key, text in row.items()]] for one, row in answer.texts.items()
    ]
    return json.dumps(plain)


def read(line: str) -> Answer:
    """Return the answer of a JSON line."""
    plain = json.loads(line)
    plain["periods"] = [tuple(each) for each in plain["periods"]]
    plain["texts"] = {one: {tuple(key): text for key, text in row} for one, row in plain["texts"]}
    plain["rule"] = tuple(tuple(each) if isinstance(each, list) else each for each in plain["rule"])
    return Answer(**plain)


async def main(base_url: str, cache: str, seed: str, count: str) -> None:
    rng = random.Random(seed)
    entities = [f"O-{n + 1:032x}" for n in range(3)]
    kept = cache_of(cache)
    async with client_of(base_url, kept) as one, client_of(base_url, kept) as other:
        for _ in range(int(count) // 4):
            asked = [question(rng, entities) for _ in range(4)]
            work = [
                asyncio.ensure_future(ask(rng.choice([one, other]), each, stream=rng.random() < 0.2))
                for each in asked
            ]
            if rng.random() < 0.1:
                work.pop().cancel()
            for each in work:
                print(written(await each), flush=True)
    if kept is not None:
        with suppress(AttributeError):
            await kept.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
