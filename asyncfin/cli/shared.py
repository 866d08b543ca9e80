"""What processes share, as documents: the bucket and the cache of the environment, and extractions."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

from asyncfin.checks import without_password
from asyncfin.cli.environment import cached, paced, shared_place
from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import is_folder
from asyncfin.errors import ArgumentError, BucketUnavailableError
from asyncfin.extraction.files import place_of
from asyncfin.extraction.folder import Folder
from asyncfin.extraction.holder import RENEW_SECONDS, Holder, holder_in
from asyncfin.extraction.last import read_last
from asyncfin.extraction.prefix import Objects, Prefix
from asyncfin.local import try_lock, unlock
from asyncfin.model.words import lasting

# An object store's client retries for up to a minute.
_PATIENCE = 10.0
_PER_PROCESS = "counted per process"
_STATS = (
    *("spent_today", "left_today", "daily_budget", "exhausted_until"),
    *("rate", "burst", "learned", "level"),
)
_BUCKET = (*_STATS, "paused_seconds", "waiting")

# A lock that was not renewed for two minutes may be that of a killed run.
_RENEWED_WITHIN = timedelta(seconds=2 * RENEW_SECONDS)
_HOLDER = ("host", "pid", "began", "renewed")

# The document of a bucket, a cache or an extraction. A field is None if it is unknown, and `reasons` (or
# `reason`) says why.
Document = dict[str, Any]


async def bucket_status(*, resume: bool = False) -> Document:
    """Return what the shared state of ASYNCFIN_BUCKET says; `resume`: after its pauses were ended."""
    if (place := shared_place()) is None:
        if resume:
            raise UsageError("--resume needs a shared bucket: set ASYNCFIN_BUCKET")
        return _unknown(None, _BUCKET, "ASYNCFIN_BUCKET is not set")
    shown = without_password(place)
    try:
        if ":/" not in place and not await asyncio.to_thread(os.path.exists, place):
            raise UsageError(f"{place} does not exist; the first process that sends a request creates it")
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
        reasons["left_today"] = "there is no daily budget, and responses do not state the allowance"
    now = asyncio.get_running_loop().time()
    read = {name: getattr(stats, name) for name in _STATS}
    paused = max(0.0, (stats.paused_until or now) - now)
    return {"place": shown, **read, "paused_seconds": paused, "waiting": None, "reasons": reasons}


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
        unread = _unknown(place and without_password(place), ("series", "bytes", "hits"), str(error))
        return unread | {"reasons": unread["reasons"] | reasons}
    return {"place": place, "series": stats.series, "bytes": stats.bytes, "hits": None, "reasons": reasons}


def _unknown(place: str | None, fields: Sequence[str], reason: str) -> Document:
    return {"place": place, **dict.fromkeys(fields), "reasons": dict.fromkeys(fields, reason)}


async def extraction_status(place: str) -> Document:
    """Return whether a run holds the lock of an extraction, and which."""
    try:
        at = place_of(place)
    except (ValueError, OSError) as error:
        return {**_lock_document(without_password(place), None, str(error), None), "last": None}
    # As it is: an address that can contain a password is refused above.
    return {**_lock_document(place, *await _running(at)), "last": await _last(at)}


async def _last(at: Folder | Prefix) -> Document | None:
    """Return what the last run has left behind; None: there is none, or it can't be read."""
    try:
        async with asyncio.timeout(_PATIENCE):
            return await asyncio.to_thread(read_last, at)
    except (TimeoutError, ValueError, ImportError, OSError):
        return None


def _lock_document(place: str, running: bool | None, reason: str | None, holder: Holder | None) -> Document:
    held: Document = dict.fromkeys(_HOLDER)
    if holder is not None:
        held = {name: getattr(holder, name) for name in _HOLDER}
    return {"place": place, "running": running, "reason": reason, **held}


async def _running(at: Folder | Prefix) -> tuple[bool | None, str | None, Holder | None]:
    """Return whether a run is at work on a place, why that is not known, and what its lock says of it."""
    try:
        if isinstance(at, Folder):
            running = await asyncio.to_thread(_is_locked, at)
            return running, None, at.holder if running else None
        async with asyncio.timeout(_PATIENCE):
            found = await Objects(at).get(at.lock)
    except FileNotFoundError:
        return False, None, None
    except TimeoutError:
        return None, f"the store did not respond within {lasting(_PATIENCE)}", None
    except (ValueError, ImportError, OSError) as error:  # a ValueError by obstore too, for a key
        return None, str(error), None
    holder = holder_in(found.content)
    renewed = found.modified if holder is None else datetime.fromisoformat(holder.renewed)
    if datetime.now(UTC) - renewed < _RENEWED_WITHIN:
        return True, None, holder
    reason = f"its lock was renewed last at {renewed:%Y-%m-%d %H:%M:%S} UTC: was its run killed?"
    return None, reason, holder


def _is_locked(folder: Folder) -> bool:
    if not folder.data.is_dir():
        raise ArgumentError(f"{folder.data} is not a folder")
    with folder.lock.open("rb") as lock:
        # Shared, and only for this moment.
        if not try_lock(lock.fileno(), exclusive=False):
            return True
        unlock(lock.fileno())
        return False
