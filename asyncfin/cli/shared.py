"""What processes share, as documents: the bucket and the cache of the environment, and
extractions.
"""

import asyncio
import os
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from asyncfin.checks import without_password
from asyncfin.cli.environment import cached, paced, shared_place
from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import is_folder
from asyncfin.errors import ArgumentError, BucketUnavailableError
from asyncfin.extraction.last import read_status
from asyncfin.words import lasting

# An object store's client retries for up to a minute.
_PATIENCE = 10.0
_PER_PROCESS = "counted per process"
_STATS = (
    *("spent_today", "left_today", "daily_budget", "exhausted_until"),
    *("rate", "burst", "learned", "level"),
)
_BUCKET = (*_STATS, "paused_seconds", "waiting")

_HOLDER = ("host", "pid", "began", "renewed")

# The document of a bucket, a cache or an extraction. A field is None if it is unknown,
# and `reasons` (or `reason`) says why.
Document = dict[str, Any]


async def bucket_status(*, resume: bool = False) -> Document:
    """Return what the shared state of ASYNCFIN_BUCKET says; `resume`: after its pauses
    were ended.
    """
    if (place := shared_place()) is None:
        if resume:
            raise UsageError("--resume needs a shared bucket: set ASYNCFIN_BUCKET")
        return _unknown(None, _BUCKET, "ASYNCFIN_BUCKET is not set")
    shown = without_password(place)
    try:
        if ":/" not in place and not await asyncio.to_thread(os.path.exists, place):
            raise UsageError(
                f"{place} does not exist; the first process that sends a request "
                "creates it"
            )
        async with aclosing(paced(None, None)) as bucket:
            if resume:
                await bucket.resume()
            stats = await bucket.inspect()
    except (UsageError, BucketUnavailableError, OSError) as error:
        if resume:
            raise
        return _unknown(shown, _BUCKET, str(error))
    reasons = {"waiting": _PER_PROCESS}
    if stats.left_today is None:
        reasons["left_today"] = (
            "there is no daily budget, and responses do not state the allowance"
        )
    now = asyncio.get_running_loop().time()
    read = {name: getattr(stats, name) for name in _STATS}
    paused = max(0.0, (stats.paused_until or now) - now)
    return {
        "place": shown,
        **read,
        "paused_seconds": paused,
        "waiting": None,
        "reasons": reasons,
    }


async def cache_status() -> Document:
    """Return what the cache of ASYNCFIN_CACHE contains."""
    place = os.environ.get("ASYNCFIN_CACHE") or None
    reasons = {"hits": _PER_PROCESS}
    try:
        if (kept := cached()) is None or place is None:
            raise UsageError("ASYNCFIN_CACHE is not set")
        async with aclosing(kept):
            if not await asyncio.to_thread(is_folder, place):
                raise UsageError(f"{place} is not a folder")
            stats = await kept.inspect()
    except (UsageError, ArgumentError, OSError) as error:
        unread = _unknown(
            place and without_password(place), ("series", "bytes", "hits"), str(error)
        )
        return unread | {"reasons": unread["reasons"] | reasons}
    return {
        "place": place,
        "series": stats.series,
        "bytes": stats.bytes,
        "hits": None,
        "reasons": reasons,
    }


def _unknown(place: str | None, fields: Sequence[str], reason: str) -> Document:
    return {
        "place": place,
        **dict.fromkeys(fields),
        "reasons": dict.fromkeys(fields, reason),
    }


async def extraction_status(place: str) -> Document:
    """Return whether a run is at work on an extraction, which one, and how the last one
    ended.
    """
    document: Document = {
        "place": place,
        "running": None,
        "unfinished": None,
        "reason": None,
    }
    document |= {**dict.fromkeys(_HOLDER), "last": None, "feed": None}
    try:
        async with asyncio.timeout(_PATIENCE):
            return document | await asyncio.to_thread(read_status, place)
    except TimeoutError:
        reason = f"the store did not respond within {lasting(_PATIENCE)}"
    except (ValueError, ImportError, OSError) as error:
        reason = str(error)
        # An address that can contain a password is not shown.
        document["place"] = without_password(place)
    return document | {"reason": reason}
