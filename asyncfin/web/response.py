"""Panels as HTTP responses: content negotiation, validators, and a 304 before anything
is built.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import format_datetime
from inspect import isawaitable
from math import floor
from threading import Lock
from typing import NamedTuple
from weakref import WeakKeyDictionary

import anyio.to_thread
from attrs import evolve

from asyncfin import Panel, checks
from asyncfin.cache.checksum import checksum
from asyncfin.optional import ipc, pa

JSON, CSV, ARROW = "application/json", "text/csv", "application/vnd.apache.arrow.stream"
# The version of the bodies' format. A new one invalidates what visitors keep.
_FORMAT = 2
_BUILT_INLINE = 256 * 1024
# The bodies that panels keep are at most this large, and all of a process together.
_KEPT_BYTES, _ALL_KEPT_BYTES = 64 * 1024, 16 * 1024 * 1024
# Bytes of a value in each format, generously.
_VALUE_BYTES = {JSON: 400, CSV: 24, ARROW: 200}
_panel = evolve(
    checks.instance_of(Panel), hint=lambda value: "; await it" * isawaitable(value)
)
_text_or_none = checks.instance_of(str).optional()


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
    """Return the response that shows a panel to a visitor.

    The body is JSON (`Panel.to_json`), CSV with a line for each series, or an Arrow
    stream (`Panel.to_arrow`, which needs the extra ``arrow``). Nothing is built for a
    visitor who has it already. Large bodies are built in a thread.

    Args:
        panel: what to show.
        accept: the visitor's ``Accept`` header. None: JSON.
        if_none_match: the visitor's ``If-None-Match`` header.
        max_age: for how many seconds after `Panel.confirmed_at` a browser may show it
            without asking. None: it asks each time, and gets a 304 as long as nothing
            has changed.

    Raises:
        ArgumentError: an argument is not as described; a coroutine is not a panel
            before it is awaited.
        MalformedAnswerError: a value violates the spec; values are decoded here.
    """
    _panel("panel", panel)
    _text_or_none("accept", accept)
    _text_or_none("if_none_match", if_none_match)
    checks.seconds_or_none("max_age", max_age)
    media_type = chosen(accept)
    if media_type is None:
        offered = "".join(f"{each}\n" for each in (JSON, CSV, ARROW))
        return Reply(
            406,
            {"Content-Type": "text/plain; charset=utf-8", "Vary": "Accept"},
            offered.encode(),
        )
    if (built := panel._replies.get(media_type)) is None:
        built = panel._replies.setdefault(media_type, _Built(panel, media_type))
    headers = {
        "ETag": built.tag,
        "Last-Modified": built.last_modified,
        "Cache-Control": _cache_control(panel, max_age),
        "Vary": "Accept",
    }
    if if_none_match is not None and is_match(if_none_match, built.tag):
        return Reply(304, headers, b"")
    if (body := built.body) is None:
        build = _BUILDERS[media_type]
        if panel.value_count * _VALUE_BYTES[media_type] > _BUILT_INLINE:
            body = await anyio.to_thread.run_sync(build, panel)
        else:
            body = build(panel)
        _bodies.keep(built, body)
    content_type = media_type if media_type != CSV else f"{CSV}; charset=utf-8"
    return Reply(200, {"Content-Type": content_type, **headers}, body)


class _Built:
    """What a panel keeps of its response in a format; the body is dropped after others,
    or too large.
    """

    def __init__(self, panel: Panel, media_type: str) -> None:
        self.tag = _tag(panel, media_type)
        self.last_modified = format_datetime(
            panel.dataset.created_timestamp, usegmt=True
        )
        self.body: bytes | None = None


class _Bodies:
    """The bodies that panels of this process keep, oldest first, for any number of
    threads.
    """

    def __init__(self) -> None:
        self._sizes: WeakKeyDictionary[_Built, int] = WeakKeyDictionary()
        self._total = 0  # at least that of those that still exist
        self._lock = Lock()

    def keep(self, built: _Built, body: bytes) -> None:
        """Keep a body unless it is too large; drop the oldest ones while there are too
        many.
        """
        if len(body) > _KEPT_BYTES:
            return
        with self._lock:
            built.body = body
            self._sizes[built] = len(body)
            self._total += len(body)
            if self._total <= _ALL_KEPT_BYTES:
                return
            self._total = sum(
                self._sizes.values()
            )  # without those of panels that are gone
            for oldest in list(self._sizes):
                # A part more, since this looks at all of them.
                if self._total <= _ALL_KEPT_BYTES - _ALL_KEPT_BYTES // 16:
                    break
                oldest.body = None
                self._total -= self._sizes.pop(oldest)


_bodies = _Bodies()


def chosen(accept: str | None) -> str | None:
    """Return the media type for an ``Accept`` header (RFC 9110, section 12.5.1); None:
    no offered one.

    Among types of equal quality, JSON goes before CSV, and CSV before Arrow.
    """
    if accept is None or not accept.strip():
        return JSON
    ranges: dict[str, float] = {}
    for part in accept.split(","):
        name, *parameters = (each.strip().lower() for each in part.split(";"))
        quality = next(
            (each[2:].strip() for each in parameters if each.startswith("q=")), "1"
        )
        ranges[name] = (
            float(quality) if re.fullmatch(r"[01](\.\d{0,3})?", quality) else 0.0
        )
    qualities = {each: _quality(each, ranges) for each in (JSON, CSV, ARROW)}
    best = max(qualities, key=qualities.__getitem__)
    return best if qualities[best] > 0 else None


def _quality(media_type: str, ranges: Mapping[str, float]) -> float:
    """Return the quality of a media type: that of the most specific range that contains
    it.
    """
    kind = media_type.partition("/")[0]
    return next(
        (ranges[each] for each in (media_type, f"{kind}/*", "*/*") if each in ranges),
        0.0,
    )


def is_match(if_none_match: str, tag: str) -> bool:
    """Return whether an ``If-None-Match`` header contains a tag, by weak comparison
    (RFC 9110, 13.1.2).
    """
    tags = re.findall(r'(?:W/)?("[^"]*")', if_none_match)
    return if_none_match.strip() == "*" or tag.removeprefix("W/") in tags


def _tag(panel: Panel, media_type: str) -> str:
    """Return the entity tag of a panel in a format, known before anything is built.

    A publication does not change, so the numbers need not be looked at. One that is
    changed in place has a later timestamp. The tag is weak, since the JSON says how
    many requests the panel has cost.
    """
    parts = [
        str(_FORMAT),
        media_type,
        panel.dataset.entity_id,
        panel.dataset.dataset_id,
        panel.dataset.created_timestamp.isoformat(timespec="seconds"),
        panel.value_version,
        *panel.series_ids,
        "periods",
        *(each.label for each in panel.periods),
        "gaps",
        # Only the other formats show them, and finding them takes as long as the
        # question.
        *(each.label for each in (panel.gaps if media_type != JSON else ())),
        "unlisted",
        *panel.unlisted,
        "anchor",
        panel.anchor.label if panel.anchor else "",
    ]
    return f'W/"{checksum(*parts).hex()}"'


def _cache_control(panel: Panel, max_age: float | None) -> str:
    if max_age is None or panel.confirmed_at is None:
        return "private, no-cache"
    age = (datetime.now(UTC) - panel.confirmed_at).total_seconds()
    return f"private, max-age={max(0, floor(max_age - max(0.0, age)))}"


def _stream(panel: Panel) -> bytes:
    """Write the long table as an Arrow stream."""
    table = panel.to_arrow()
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


_BUILDERS: Mapping[str, Callable[[Panel], bytes]] = {
    JSON: lambda panel: panel.to_json().encode(),
    CSV: lambda panel: panel.to_csv().encode(),
    # The table is complete before the first byte: an error within a stream could not be
    # reported.
    ARROW: _stream,
}
