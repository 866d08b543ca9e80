"""`asyncfin status`: what processes share, as it is now, and the end of a pause that
was not meant.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from cyclopts import Parameter

from asyncfin.cli.options import AsJson
from asyncfin.words import counted, lasting


async def status(
    *places: Annotated[
        str, Parameter(help="The folder or s3:, gs: or az: prefix of an extraction.")
    ],
    resume: Annotated[
        bool,
        Parameter(
            help="First end a pause and a used-up allowance of ASYNCFIN_BUCKET.",
            negative="",
        ),
    ] = False,
    json: AsJson = False,
) -> None:
    """Show extractions, the shared bucket and the cache.

    The bucket is that of ASYNCFIN_BUCKET, the cache that of ASYNCFIN_CACHE. It
    costs no request, and books and changes nothing, except with --resume: that
    ends a pause and a used-up allowance, and leaves spending and rate. What
    cannot be read is unknown, with a reason; the exit code is 0.

      asyncfin status prices/ s3://figures/prices
    """
    from asyncfin.cli.output import print_json, screen
    from asyncfin.cli.shared import bucket_status, cache_status, extraction_status

    bucket, kept = await bucket_status(resume=resume), await cache_status()
    extractions = [await extraction_status(place) for place in places]
    if json:
        print_json({"bucket": bucket, "cache": kept, "extractions": extractions})
        return
    console = screen()
    lines = (line for each in extractions for line in extraction_lines(each))
    for line in [*bucket_lines(bucket), cache_line(kept), *lines]:
        console.print(line)


def bucket_lines(bucket: Mapping[str, Any]) -> list[str]:
    place = f"bucket {bucket['place']}" if bucket["place"] else "bucket"
    reasons = bucket["reasons"]
    if bucket["spent_today"] is None:
        return [f"{place}: unknown ({reasons['spent_today']})"]
    budget = (
        "" if bucket["daily_budget"] is None else f" of {bucket['daily_budget']:,g}"
    )
    left = bucket["left_today"]
    shown_left = f"unknown ({reasons['left_today']})" if left is None else f"{left:,g}"
    until = bucket["exhausted_until"]
    used_up = f", used up until {until:%Y-%m-%d %H:%M:%S} UTC" if until else ""
    rate = (
        "none yet"
        if bucket["rate"] is None
        else f"{bucket['rate']:,.4g} a second, burst {bucket['burst']:g}"
    )
    learned = " (learned)" if bucket["learned"] else ""
    paused = (
        f"for {lasting(bucket['paused_seconds'])}" if bucket["paused_seconds"] else "no"
    )
    return [
        place,
        f"  spent today: {bucket['spent_today']:,g}{budget}",
        f"  left today: {shown_left}{used_up}",
        f"  rate: {rate}{learned}",
        f"  paused: {paused}",
        f"  waiting: unknown ({reasons['waiting']})",
    ]


def cache_line(cache: Mapping[str, Any]) -> str:
    place = f"cache {cache['place']}" if cache["place"] else "cache"
    if cache["series"] is None:
        return f"{place}: unknown ({cache['reasons']['series']})"
    return (
        f"{place}: {counted(cache['series'], 'series', 'series')}, "
        f"{cache['bytes'] / 1e6:,.1f} MB"
    )


def extraction_lines(extraction: Mapping[str, Any]) -> list[str]:
    state = {
        True: "running",
        False: "not running",
        None: f"unknown ({extraction['reason']})",
    }[extraction["running"]]
    if extraction["running"]:
        began, renewed = (
            datetime.fromisoformat(extraction[name]) for name in ("began", "renewed")
        )
        ago = lasting(max(0.0, (datetime.now(UTC) - renewed).total_seconds()))
        state += (
            f", locked by {extraction['host']} pid {extraction['pid']},"
            f" began {began:%Y-%m-%d %H:%M:%S} UTC, renewed {ago} ago"
        )
    lines = [f"extraction {extraction['place']}: {state}"]
    if extraction["unfinished"]:
        began = datetime.fromisoformat(extraction["began"])
        lines.append(
            f"  the run begun {began:%Y-%m-%d %H:%M:%S} UTC by {extraction['host']} "
            f"pid {extraction['pid']}"
            " ended without an outcome; the same command continues it"
        )
    if (last := extraction["last"]) is not None:
        counts = ", ".join(
            f"{last[state]:,} {state}"
            for state in ("unchanged", "done", "failed", "left")
        )
        before = "the run before it" if extraction["unfinished"] else "last run"
        from asyncfin.extraction.report import (
            spent,
        )  # here, since help needs no event loop

        cost = spent(last["requests"], last["repeated"], last["uncounted"])
        lines.append(
            f"  {before}: ended {last['ended']}, {last['outcome']}: {counts}; {cost}"
        )
        if last["stopped"] is not None:
            lines.append(
                f"    {last['stopped']['error']}: {last['stopped']['message']}"
            )
        lines += [
            f"    {of_class['count']:,} x {name}, first: {of_class['message']}"
            for name, of_class in last["failures"].items()
        ]
    return lines
