"""`asyncfin status`: what processes share, as it is now; nothing is booked or changed."""

import asyncio
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

from attrs import asdict, field, frozen
from cyclopts import Parameter

from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import AsJson, cached, paced
from asyncfin.cli.output import print_json, screen
from asyncfin.errors import ArgumentError, BucketUnavailableError
from asyncfin.extraction.folder import Folder
from asyncfin.extraction.lock import STALE_SECONDS
from asyncfin.extraction.prefix import Objects
from asyncfin.extraction.store import place_of
from asyncfin.local import try_lock, unlock
from asyncfin.model.words import counted, lasting

# An object store may not respond for a minute of its client's retries.
_PATIENCE = 10.0
_PER_PROCESS = "counted per process"


@frozen(kw_only=True)
class BucketStatus:
    """The shared bucket; None: unknown, and `reasons` says why, by field."""

    place: str | None
    spent_today: float | None = None
    left_today: float | None = None
    daily_budget: float | None = None
    exhausted_until: datetime | None = None
    rate: float | None = None
    burst: float | None = None
    learned: bool | None = None
    level: float | None = None
    paused_seconds: float | None = None
    waiting: int | None = None
    reasons: dict[str, str] = field(factory=dict)


@frozen(kw_only=True)
class CacheStatus:
    """The shared cache; None: unknown, and `reasons` says why, by field."""

    place: str | None
    series: int | None = None
    bytes: int | None = None
    hits: int | None = None
    reasons: dict[str, str] = field(factory=dict)


@frozen(kw_only=True)
class ExtractionStatus:
    """An extraction; `running` is None if that is unknown, and `reason` says why."""

    place: str
    running: bool | None = None
    reason: str | None = None


async def status(
    *places: Annotated[str, Parameter(help="The folder or s3:, gs: or az: prefix of an extraction.")],
    json: AsJson = False,
) -> None:
    """Show the shared bucket and cache, and whether extractions are running.

    The bucket is that of ASYNCFIN_BUCKET, the cache that of ASYNCFIN_CACHE. It costs no request, and books
    and changes nothing. What cannot be read is unknown, with a reason; the exit code is 0.

      asyncfin status prices/ s3://figures/prices
    """
    bucket, kept = await bucket_status(), await cache_status()
    extractions = [await extraction_status(place) for place in places]
    if json:
        print_json(
            {
                "bucket": asdict(bucket),
                "cache": asdict(kept),
                "extractions": [asdict(each) for each in extractions],
            }
        )
        return
    console = screen()
    for line in [*bucket_lines(bucket), cache_line(kept), *map(extraction_line, extractions)]:
        console.print(line)


async def bucket_status() -> BucketStatus:
    """Return what the shared state of ASYNCFIN_BUCKET says."""
    place = os.environ.get("ASYNCFIN_BUCKET") or None
    unread = [each.name for each in BucketStatus.__attrs_attrs__ if each.name not in ("place", "reasons")]
    if place is None:
        return BucketStatus(place=None, reasons=dict.fromkeys(unread, "ASYNCFIN_BUCKET is not set"))
    shown = place.rpartition("@")[2]  # a URL may contain a password
    try:
        if "://" not in place and not await asyncio.to_thread(os.path.exists, place):
            raise UsageError(f"{place} does not exist; the first process that sends a request creates it")
        bucket = paced(None, None)
        try:
            stats = await bucket.inspect()
        finally:
            await bucket.aclose()
    except (UsageError, BucketUnavailableError, OSError) as error:
        return BucketStatus(place=shown, reasons=dict.fromkeys(unread, str(error)))
    reasons = {"waiting": _PER_PROCESS}
    left = None
    if stats.exhausted_until is not None:
        left = 0.0
    elif stats.daily_budget is None:
        reasons["left_today"] = "there is no daily budget, and responses do not state the allowance"
    elif stats.spent_today is not None:
        left = max(0.0, stats.daily_budget - stats.spent_today)
    paused = 0.0
    if stats.paused_until is not None:
        paused = max(0.0, stats.paused_until - asyncio.get_running_loop().time())
    return BucketStatus(
        place=shown,
        spent_today=stats.spent_today,
        left_today=left,
        daily_budget=stats.daily_budget,
        exhausted_until=stats.exhausted_until,
        rate=stats.rate,
        burst=stats.burst,
        learned=stats.learned,
        level=stats.level,
        paused_seconds=paused,
        reasons=reasons,
    )


async def cache_status() -> CacheStatus:
    """Return what the cache of ASYNCFIN_CACHE contains."""
    place = os.environ.get("ASYNCFIN_CACHE") or None
    try:
        kept = cached()
        if kept is None or place is None:
            raise UsageError("ASYNCFIN_CACHE is not set")
        try:
            if not await asyncio.to_thread(lambda: Path(place).expanduser().is_dir()):
                raise UsageError(f"{place} is not a folder")
            stats = await kept.inspect()
        finally:
            await kept.aclose()
    except (UsageError, ArgumentError, OSError) as error:
        reasons = dict.fromkeys(("series", "bytes"), str(error))
        return CacheStatus(place=place, reasons=reasons | {"hits": _PER_PROCESS})
    return CacheStatus(place=place, series=stats.series, bytes=stats.bytes, reasons={"hits": _PER_PROCESS})


async def extraction_status(place: str) -> ExtractionStatus:
    """Return whether a run holds the lock of an extraction."""
    try:
        at = place_of(place)
        if isinstance(at, Folder):
            return ExtractionStatus(place=place, running=await asyncio.to_thread(_is_locked, at))
        async with asyncio.timeout(_PATIENCE):
            renewed = (await Objects(at).head(at.lock)).modified
    except FileNotFoundError:
        return ExtractionStatus(place=place, running=False)
    except TimeoutError:
        reason = f"the store did not respond within {lasting(_PATIENCE)}"
    except (ArgumentError, ImportError, OSError) as error:
        reason = str(error)
    else:
        if datetime.now(UTC) - renewed < timedelta(seconds=STALE_SECONDS):
            return ExtractionStatus(place=place, running=True)
        reason = f"its lock was renewed last at {renewed:%Y-%m-%d %H:%M:%S} UTC: was its run killed?"
    return ExtractionStatus(place=place, reason=reason)


def _is_locked(folder: Folder) -> bool:
    if not folder.data.is_dir():
        raise ArgumentError(f"{folder.data} is not a folder")
    with folder.lock.open("rb") as lock:
        # Shared, and only for this moment.
        if not try_lock(lock.fileno(), exclusive=False):
            return True
        unlock(lock.fileno())
        return False


def bucket_lines(bucket: BucketStatus) -> list[str]:
    """Return the lines about a bucket."""
    place = f"bucket {bucket.place}" if bucket.place else "bucket"
    if bucket.spent_today is None:
        return [f"{place}: unknown ({bucket.reasons['spent_today']})"]
    budget = "" if bucket.daily_budget is None else f" of {bucket.daily_budget:,g}"
    left = (
        f"unknown ({bucket.reasons['left_today']})"
        if bucket.left_today is None
        else f"{bucket.left_today:,g}"
    )
    until = (
        f", used up until {bucket.exhausted_until:%Y-%m-%d %H:%M:%S} UTC" if bucket.exhausted_until else ""
    )
    rate = "none yet" if bucket.rate is None else f"{bucket.rate:,.4g} a second, burst {bucket.burst:g}"
    learned = " (learned)" if bucket.learned else ""
    paused = f"for {lasting(bucket.paused_seconds)}" if bucket.paused_seconds else "no"
    return [
        place,
        f"  spent today: {bucket.spent_today:,g}{budget}",
        f"  left today: {left}{until}",
        f"  rate: {rate}{learned}",
        f"  paused: {paused}",
        f"  waiting: unknown ({bucket.reasons['waiting']})",
    ]


def cache_line(cache: CacheStatus) -> str:
    """Return the line about a cache."""
    place = f"cache {cache.place}" if cache.place else "cache"
    if cache.series is None or cache.bytes is None:
        return f"{place}: unknown ({cache.reasons['series']})"
    return f"{place}: {counted(cache.series, 'series', 'series')}, {cache.bytes / 1e6:,.1f} MB"


def extraction_line(extraction: ExtractionStatus) -> str:
    """Return the line about an extraction."""
    words = {True: "running", False: "not running", None: f"unknown ({extraction.reason})"}
    return f"extraction {extraction.place}: {words[extraction.running]}"
