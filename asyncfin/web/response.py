"""Panels as HTTP responses: content negotiation, validators, and a 304 before anything
is built.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from hashlib import sha256
from inspect import isawaitable
from math import floor
from typing import NamedTuple

import anyio.to_thread

from asyncfin import Panel, checks
from asyncfin.optional import ipc, pa

JSON, CSV, ARROW = "application/json", "text/csv", "application/vnd.apache.arrow.stream"
# The version of the bodies' format. A new one invalidates what visitors store.
_FORMAT = 2
_BUILT_INLINE = 256 * 1024
# The bodies that panels store are at most this large.
_STORED_BYTES = 64 * 1024
# Bytes of a value in each format, generously.
_VALUE_BYTES = {JSON: 400, CSV: 24, ARROW: 200}
_check_panel = checks.Check(
    "a Panel",
    lambda value: isinstance(value, Panel),
    hint=lambda value: "; await it" if isawaitable(value) else "",
)
_check_header = checks.instance_of(str).optional()


class Reply(NamedTuple):
    """A response to a visitor, for any framework.

    Attributes:
        status: 200, 304 or 406.
        headers: ``Content-Type`` with a body, ``ETag``, ``Last-Modified``,
            ``Cache-Control`` and ``Vary``.
        body: empty with a 304.
    """

    status: int
    headers: dict[str, str]
    body: bytes


async def reply(
    panel: Panel,
    *,
    accept: str | None,
    if_none_match: str | None = None,
    max_age: float | None = None,
) -> Reply:
    """Make the response that shows a panel to a visitor.

    The body is JSON (`Panel.to_json`), CSV with a line for each series, or an Arrow
    stream (`Panel.to_arrow`, which needs the extra ``arrow``). Nothing is built for a
    visitor who has it already. Large bodies are built in a thread.

    Args:
        panel: what to show.
        accept: the visitor's ``Accept`` header, or None for JSON.
        if_none_match: the visitor's ``If-None-Match`` header.
        max_age: for how many seconds after `Panel.confirmed_at` a browser may show it
            without asking. With None it asks each time, and gets a 304 as long as
            nothing has changed.

    Raises:
        ArgumentError: an argument is not as described; a coroutine is not a panel
            before it is awaited.
        MalformedAnswerError: a value violates the spec; values are decoded here.
    """
    _check_panel("panel", panel)
    _check_header("accept", accept)
    _check_header("if_none_match", if_none_match)
    checks.seconds_or_none("max_age", max_age)
    media_type = choose_format(accept)
    if media_type is None:
        formats = f"{JSON}\n{CSV}\n{ARROW}\n"
        headers = {"Content-Type": "text/plain; charset=utf-8", "Vary": "Accept"}
        return Reply(406, headers, formats.encode())
    response = panel.replies.get(media_type)
    if response is None:
        response = panel.replies.setdefault(media_type, _Built(panel, media_type))
    headers = {
        "ETag": response.tag,
        "Last-Modified": response.last_modified,
        "Cache-Control": _cache_control(panel, max_age),
        "Vary": "Accept",
    }
    if if_none_match is not None and is_match(if_none_match, response.tag):
        return Reply(304, headers, b"")
    body = response.body
    if body is None:
        if panel.value_count * _VALUE_BYTES[media_type] > _BUILT_INLINE:
            body = await anyio.to_thread.run_sync(_build, panel, media_type)
        else:
            body = _build(panel, media_type)
        if len(body) <= _STORED_BYTES:
            response.body = body
    content_type = media_type if media_type != CSV else f"{CSV}; charset=utf-8"
    return Reply(200, {"Content-Type": content_type, **headers}, body)


class _Built:
    """What a panel stores of its response in a format."""

    def __init__(self, panel: Panel, media_type: str) -> None:
        timestamp = panel.dataset.created_timestamp
        self.tag = _tag(panel, media_type)
        self.last_modified = format_datetime(timestamp, usegmt=True)
        self.body: bytes | None = None


def choose_format(accept: str | None) -> str | None:
    """Choose the media type for an ``Accept`` header (RFC 9110, section 12.5.1), or
    None if no offered one is accepted.

    Among types of equal quality, JSON goes before CSV, and CSV before Arrow.
    """
    if accept is None or not accept.strip():
        return JSON
    ranges: dict[str, float] = {}
    for part in accept.split(","):
        name, *parameters = map(str.strip, part.lower().split(";"))
        quality = "1"
        for parameter in parameters:
            if parameter.startswith("q="):
                quality = parameter[2:].strip()
                break
        ranges[name] = 0.0
        if re.fullmatch(r"[01](\.\d{0,3})?", quality):
            ranges[name] = float(quality)
    best = None
    best_quality = 0.0
    for media_type in (JSON, CSV, ARROW):
        media_quality = _quality(media_type, ranges)
        if media_quality > best_quality:
            best = media_type
            best_quality = media_quality
    return best


def _quality(media_type: str, ranges: Mapping[str, float]) -> float:
    """The quality of a media type: that of the most specific range that contains it."""
    for name in (media_type, f"{media_type.partition('/')[0]}/*", "*/*"):
        if name in ranges:
            return ranges[name]
    return 0.0


def is_match(if_none_match: str, tag: str) -> bool:
    """Whether an ``If-None-Match`` header contains a tag, by weak comparison (RFC 9110,
    13.1.2).
    """
    tags = re.findall(r'(?:W/)?("[^"]*")', if_none_match)
    return if_none_match.strip() == "*" or tag.removeprefix("W/") in tags


def _tag(panel: Panel, media_type: str) -> str:
    """The entity tag of a panel in a format, before anything is built.

    A publication does not change, so the numbers need not be looked at. One that is
    changed in place has a later timestamp. The tag is weak, since the JSON states how
    many requests the panel has cost.
    """
    # Only the other formats show gaps, and finding them takes as long as the query.
    gaps = panel.gaps if media_type != JSON else ()
    parts = [
        _FORMAT,
        media_type,
        panel.dataset.entity_id,
        panel.dataset.dataset_id,
        panel.dataset.created_timestamp.isoformat(timespec="seconds"),
        panel.value_version,
        panel.series_ids,
        list(map(str, panel.periods)),
        list(map(str, gaps)),
        panel.unlisted,
        panel.anchor and panel.anchor.label,
    ]
    return f'W/"{sha256(json.dumps(parts).encode()).hexdigest()[:32]}"'


def _cache_control(panel: Panel, max_age: float | None) -> str:
    if max_age is None or panel.confirmed_at is None:
        return "private, no-cache"
    age = (datetime.now(UTC) - panel.confirmed_at).total_seconds()
    return f"private, max-age={max(0, floor(max_age - max(0.0, age)))}"


def _build(panel: Panel, media_type: str) -> bytes:
    if media_type == JSON:
        return panel.to_json().encode()
    if media_type == CSV:
        return panel.to_csv().encode()
    # The table is complete before the first byte: an error within a stream could not be
    # reported.
    table, sink = panel.to_arrow(), pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
