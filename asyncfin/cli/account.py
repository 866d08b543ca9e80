"""`asyncfin usage`, `check`, `cache` and `status`: the account, the service, and what
processes share.
"""

import json
import os
from collections.abc import Iterator
from contextlib import aclosing
from datetime import UTC, date, datetime
from typing import Annotated, Any

from cyclopts import Parameter
from msgspec.structs import asdict

from asyncfin.checks import without_password
from asyncfin.cli.errors import (
    ServiceDiffersError,
    UsageError,
    name_options,
    prefix_errors,
)
from asyncfin.cli.options import AsJson, Names, Service, has_path
from asyncfin.cli.terminal import print_json, print_line
from asyncfin.errors import ArgumentError, BucketUnavailableError, shorten_middle
from asyncfin.words import counted, lasting, size_text

_DEFAULT_DAYS = 30
_STATS = (
    *("spent_today", "left_today", "daily_budget", "exhausted_until"),
    *("rate", "burst", "learned", "level"),
)
# What makes a bucket or a cache unknown.
_UNREADABLE = (UsageError, ArgumentError, BucketUnavailableError, OSError)
_TIME = "%Y-%m-%d %H:%M:%S UTC"
# The length of a query.
_LONGEST = 300
_HOLDER = ("host", "pid", "began", "renewed")

# The document of a bucket, a cache or an extraction. A field is None if it is unknown,
# and `reason` tells why the whole is.
Document = dict[str, Any]


async def usage(
    *,
    first: Annotated[date | None, Parameter(name="--from")] = None,
    final: Annotated[date | None, Parameter(name="--to")] = None,
    limits: bool = False,
    service: Service = Service(),
) -> None:
    """Print the account's daily usage, or its limits.

    The service description shows neither body, so they are printed as JSON, as the
    service returns them. It costs one request for each 92 days, or one for limits.

      asyncfin usage --from 2026-01-01 --to 2026-06-30
      asyncfin usage --limits

    Args:
        first: The first day, as YYYY-MM-DD. [default: 29 days before --to]
        final: The last day. [default: today, UTC]
        limits: Print the account's credits and research-run limits instead.
    """
    if limits and (first or final):
        raise UsageError("--limits has no days: leave --from and --to out")
    end = final or datetime.now(UTC).date()
    # Not before the first day of the calendar.
    start = first or date.fromordinal(max(1, end.toordinal() - _DEFAULT_DAYS + 1))
    if end < start:
        raise UsageError(f"--to must not be before --from: {end} is before {start}")
    service.check()

    from asyncfin.cli.session import connect

    async with connect(service, "Reading") as (client, _):
        body = await (client.limits() if limits else client.usage(start, end))
    print_json(body)


async def check(
    entity_id: str,
    /,
    *,
    max_requests: int = 60,
    json: AsJson = False,
    names: Names = Names(),
    service: Service = Service(),
) -> None:
    """Compare the service with its description.

    It costs about 18 requests, and one for each 100 series of the dataset. It
    writes nothing. The report contains no values, texts or token, so it can be
    sent to the service's support. The exit code is 0 if nothing breaks the
    description and every check was made, else 1.

      asyncfin check ENTITY_ID

    Args:
        entity_id: The entity, O- and 32 characters, or its name.
        max_requests: The most requests that it may send, retries included.
    """
    (entity_id,) = names.require_ids([entity_id])
    service.check()

    from asyncfin import check as run_check
    from asyncfin.cli.session import connect

    async with connect(service, "Checking", names) as (client, _):
        report = await run_check(client, entity_id, max_requests=max_requests)
    print_line(report.to_json() if json else str(report))
    if report.breaks or not report.complete:
        findings = counted(len(report.breaks), "break")
        raise ServiceDiffersError(
            f"{findings} of the description; if not all checks were made, give more "
            "--max-requests"
        )


async def cache(
    *,
    folder: Annotated[
        str | None, Parameter(name="--cache", env_var="ASYNCFIN_CACHE")
    ] = None,
    clear: bool = False,
    json: AsJson = False,
) -> None:
    """Show the size of the cache in a folder, or clear it.

    It costs no request. Other processes may continue to use the folder.

      asyncfin cache --cache ~/.cache/asyncfin --clear

    Args:
        folder: The cache's folder.
        clear: Clear it, for all accounts of the folder.
    """
    if folder is None:
        raise UsageError("no cache is given: set ASYNCFIN_CACHE or give --cache FOLDER")

    from asyncfin import FileCache

    with prefix_errors("--cache"):
        # No account is needed: `inspect` and `clear` are about the whole folder.
        async with aclosing(FileCache(folder)) as file_cache:
            # A mistyped path must not look like an empty cache.
            if not has_path(folder, folder=True):
                raise UsageError(
                    f"--cache {folder}: there is no such folder; commands that read "
                    "make it"
                )
            if clear:
                await file_cache.clear()
            stats = await file_cache.inspect()
    if json:
        print_json({"folder": folder, **asdict(stats)})
    else:
        series = counted(stats.series, "series", "series")
        print_line(f"{folder}: {series}, {size_text(stats.bytes)}")


async def status(
    *places: str,
    resume: bool = False,
    json: AsJson = False,
) -> None:
    """Show extractions, the shared bucket and the cache.

    The bucket is that of ASYNCFIN_BUCKET, the cache that of ASYNCFIN_CACHE. It
    costs no request, and books and changes nothing, except with --resume: that
    ends a pause and a used-up allowance, and leaves spending and rate. A bucket,
    a cache or a store that does not exist or cannot be read is unknown, with a
    reason, and the exit code is 0. Only an extraction's folder that does not
    exist is an error.

      asyncfin status prices/ s3://figures/prices

    Args:
        places: The folder or s3:, gs: or az: prefix of an extraction.
        resume: First end a pause and a used-up allowance of ASYNCFIN_BUCKET.
    """
    for place in places:
        if ":/" not in place and not has_path(place, folder=True):
            raise UsageError(f"{place} is not the folder of an extraction")
    bucket, cache = await _read_bucket(resume=resume), await _read_cache()
    extractions = [await _read_extraction(place) for place in places]
    if json:
        print_json({"bucket": bucket, "cache": cache, "extractions": extractions})
        return
    lines = [*_list_bucket(bucket), _describe_cache(cache)]
    for extraction in extractions:
        lines += _list_extraction(extraction)
    print_line("\n".join(lines))


async def _read_bucket(*, resume: bool) -> Document:
    """Return the shared state of ASYNCFIN_BUCKET, after its pauses were ended if
    `resume` is set.
    """
    import asyncio

    from asyncfin.cli.session import make_shared_bucket, read_bucket_place

    place = read_bucket_place()
    document = _make_document(place, *_STATS, "paused_seconds")
    try:
        if place is None:
            advice = "--resume needs a shared bucket: " if resume else ""
            raise UsageError(f"{advice}ASYNCFIN_BUCKET is not set")
        if ":/" not in place and not has_path(place, folder=False):
            raise UsageError(
                f"{place} does not exist; the first process that sends a request "
                "creates it"
            )
        async with aclosing(make_shared_bucket(place)) as bucket:
            if resume:
                await bucket.resume()
            stats = await bucket.inspect()
    except _UNREADABLE as error:
        if resume:
            raise
        return document | {"reason": str(error)}
    now = asyncio.get_running_loop().time()
    document["paused_seconds"] = max(0.0, (stats.paused_until or now) - now)
    return document | {name: getattr(stats, name) for name in _STATS}


async def _read_cache() -> Document:
    """Describe the cache of ASYNCFIN_CACHE."""
    from asyncfin.cli.session import make_shared_cache

    place = os.environ.get("ASYNCFIN_CACHE") or None
    document = _make_document(place, "series", "bytes")
    try:
        cache = make_shared_cache()
        if place is None or cache is None:
            raise UsageError("ASYNCFIN_CACHE is not set")
        if not has_path(place, folder=True):
            raise UsageError(f"{place} is not a folder")
        async with aclosing(cache):
            stats = await cache.inspect()
    except _UNREADABLE as error:
        return document | {"reason": str(error)}
    return document | {"series": stats.series, "bytes": stats.bytes}


def _make_document(place: str | None, *fields: str) -> Document:
    """Return the document of a place of which nothing is read yet."""
    # An address can contain a password.
    address = place and without_password(place)
    return {"place": address, **dict.fromkeys(fields), "reason": None}


async def _read_extraction(place: str) -> Document:
    """Return whether a run is at work on an extraction, which one, and how the last one
    ended.
    """
    import asyncio

    from asyncfin.extraction.last import read_status

    fields = ("running", "unfinished", *_HOLDER, "last", "feed")
    document = _make_document(place, *fields)
    try:
        return document | await asyncio.to_thread(read_status, place)
    except (ValueError, ImportError, OSError) as error:
        return document | {"reason": str(error)}


def _list_bucket(bucket: Document) -> list[str]:
    place = f"bucket {bucket['place']}" if bucket["place"] else "bucket"
    if bucket["reason"] is not None:
        return [f"{place}: unknown ({bucket['reason']})"]
    spending = f"{bucket['spent_today']:,g}"
    if bucket["daily_budget"] is not None:
        spending += f" of {bucket['daily_budget']:,g}"
    remainder = "unknown (no daily budget, and responses do not state the allowance)"
    if bucket["left_today"] is not None:
        remainder = f"{bucket['left_today']:,g}"
    if until := bucket["exhausted_until"]:
        remainder += f", used up until {until:{_TIME}}"
    rate = "none yet"
    if bucket["rate"] is not None:
        rate = f"{bucket['rate']:,.4g} a second, burst {bucket['burst']:g}"
    if bucket["learned"]:
        rate += " (learned)"
    seconds = bucket["paused_seconds"]
    return [
        place,
        f"  spent today: {spending}",
        f"  left today: {remainder}",
        f"  rate: {rate}",
        f"  paused: {f'for {lasting(seconds)}' if seconds else 'no'}",
    ]


def _describe_cache(cache: Document) -> str:
    place = f"cache {cache['place']}" if cache["place"] else "cache"
    if cache["reason"] is not None:
        return f"{place}: unknown ({cache['reason']})"
    series = counted(cache["series"], "series", "series")
    return f"{place}: {series}, {size_text(cache['bytes'])}"


def _list_extraction(extraction: Document) -> Iterator[str]:
    # Here, since help needs no event loop.
    from asyncfin.extraction.report import describe_spending

    began, holder = "", f"{extraction['host']} pid {extraction['pid']}"
    if extraction["began"] is not None:
        began = _write_time(extraction["began"])
    state = "running" if extraction["running"] else "not running"
    if extraction["running"] is None:
        state = f"unknown ({extraction['reason']})"
    elif extraction["running"]:
        state += f", locked by {holder}, began {began}"
    yield f"extraction {extraction['place']}: {state}"
    if extraction["unfinished"]:
        yield (
            f"  the run begun {began} by {holder} ended without an outcome; the same "
            "command continues it"
        )
    if (last := extraction["last"]) is None:
        return
    # As `Select.from_json` reads it.
    series = "all series"
    if last["select"]:
        series = shorten_middle(json.dumps(last["select"]), _LONGEST)
    yield f"  query: {series}, {last['periods']}, {last['value_version']} values"
    size = f"{counted(last['file_rows'], 'row')}, {size_text(last['file_bytes'])}"
    runs = "no feed"
    if feed := extraction["feed"]:
        runs = f"{counted(feed['runs'], 'run')} in the feed"
    yield f"  {counted(last['files'], 'file')}: {size}; {runs}"
    states = ("unchanged", "done", "failed", "left")
    counts = ", ".join(f"{last[state]:,} {state}" for state in states)
    run = "the run before it" if extraction["unfinished"] else "last run"
    cost = describe_spending(last["requests"], last["repeated"], last["uncounted"])
    end = _write_time(last["ended"])
    yield f"  {run}: ended {end}, {last['outcome']}: {counts}; {cost}"
    if last["stopped"] is not None:
        message = name_options(last["stopped"]["message"])
        yield f"    {last['stopped']['error']}: {message}"
    for name, failures in last["failures"].items():
        message = name_options(failures["message"])
        yield f"    {failures['count']:,} x {name}, first: {message}"


def _write_time(text: str) -> str:
    return f"{datetime.fromisoformat(text):{_TIME}}"
