"""What the tools return: text, the same as structured content, and errors that say what
to do.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from attrs import frozen
from mcp.types import CallToolResult, TextContent
from pydantic import BaseModel

from asyncfin.clock import utc_text
from asyncfin.errors import (
    AllowanceExhaustedError,
    AsyncfinError,
    AuthenticationError,
    BucketUnavailableError,
    Concern,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    SelectionError,
    ServerFailureError,
    TransportError,
    printable,
)
from asyncfin.words import counted

# A result shares an assistant's context with everything else that it has read.
MAX_CHARACTERS = 20_000
MAX_NOTES = 40
_MAX_NOTE = 600
# Seconds: while the service fails, a client finds out at least this often whether it
# responds again.
_OUTAGE = 30.0
# For the line that says how many rows are omitted, and for the braces of structured
# content.
_REST = 600


class RequestLimitError(AsyncfinError):
    """A call of a tool has sent as many requests as it may."""

    concerns: Concern = "entity"


# What an assistant can do about an error.
_ADVICE: tuple[tuple[type[Exception], str], ...] = (
    (RequestLimitError, "Call again with the same arguments to go on."),
    (AllowanceExhaustedError, "Do not call again before resume_at."),
    (RateLimitedError, "Wait retry_after_seconds, then call again."),
    (BucketUnavailableError, "Call again in a minute."),
    (SelectionError, "Correct the arguments; find_series gives the handles of series."),
    (NotFoundError, "Choose a company from list_entities."),
    (AuthenticationError, "Tell the user that the service refused the access token."),
    (PermissionDeniedError, "Tell the user that the account may not read this."),
    (ServerFailureError, "Call again in a minute."),
    (TransportError, "Call again in a minute."),
)


class Companies(BaseModel):
    companies: list[dict[str, str]]
    notes: list[str]


class Matches(BaseModel):
    series: list[dict[str, Any]]
    notes: list[str]


class Cost(BaseModel):
    requests: int
    max_requests: int
    notes: list[str]


class Values(BaseModel):
    requests: int
    value_version: str
    companies: list[dict[str, str]]
    rows: list[dict[str, Any]]
    notes: list[str]


@frozen
class Row:
    """A row of a result.

    Attributes:
        cells: its texts, for the tab-separated line.
        fields: the same, for the structured content.
        head: the lines that come before it, e.g. the columns of a company.
    """

    cells: Sequence[str]
    fields: dict[str, Any]
    head: tuple[str, ...] = ()


def quoted(name: str) -> str:
    """Return a name of the service in quotes, in one line: it is data, and not a part
    of the sentence.
    """
    return json.dumps(printable(name), ensure_ascii=False)


def company_names(names: Mapping[str, str]) -> dict[str, str]:
    """Return what notes call the companies of a call, by entity id, given their names;
    "" means no name.

    A name that two of them share has the id behind it.
    """
    shared = Counter(names.values())
    return {
        entity_id: f"company {quoted(name)}"
        + (f" ({entity_id})" if shared[name] > 1 else "")
        if name
        else f"company {entity_id}"
        for entity_id, name in names.items()
    }


def line(cells: Iterable[str]) -> str:
    """Return cells as a tab-separated line. Each is escaped by itself: a tab in a text
    is not a border.
    """
    return "\t".join(map(printable, cells))


def result(
    head: Sequence[str],
    rows: Sequence[Row],
    notes: Sequence[str],
    advice: str,
    *,
    rows_as: str | None = None,
    **structured: Any,
) -> CallToolResult:
    """Return a head, and as many whole rows and notes as a result holds; say what is
    omitted.

    Args:
        advice: how to request what is omitted.
        rows_as: the name of the rows in the structured content; None: it has no rows.
        structured: the structured content without rows and notes.
    """
    # In both forms each character counts once.
    text = sum(len(each) + 1 for each in head) + _REST
    content = len(_json(structured)) + _REST
    # At most half of what the head leaves: the rest is for rows.
    room = (MAX_CHARACTERS - max(text, content)) // 2
    kept: list[str] = []
    for note in map(_shortened, notes[:MAX_NOTES]):
        room -= len(_json(note)) + 2
        if room < 0:
            break
        kept.append(note)
    if len(kept) < len(notes):
        # A query makes only slightly more notes than are shown: for thousands of rows
        # it takes seconds.
        more = counted(len(notes) - len(kept), "more note")
        kept.append(f"at least {more}: name fewer companies or series")
    text += sum(len(each) + 1 for each in kept)
    content += len(_json(kept))
    shown: list[Row] = []
    for row in rows:
        text += len(line(row.cells)) + 1 + sum(len(each) + 1 for each in row.head)
        content += len(_json(row.fields)) + 1
        if max(text, content) > MAX_CHARACTERS:
            break
        shown.append(row)
    if len(shown) < len(rows):
        kept.insert(
            0,
            f"[{len(rows) - len(shown):,} of {len(rows):,} lines are omitted: "
            f"{advice}]",
        )
    lines = [
        *head,
        *(each for row in shown for each in (*row.head, line(row.cells))),
        *kept,
    ]
    if rows_as is not None:
        structured[rows_as] = [row.fields for row in shown]
    return CallToolResult(
        # The last cut is for a head that is too long by itself.
        content=[TextContent(text="\n".join(lines)[:MAX_CHARACTERS])],
        structured_content={**structured, "notes": kept},
    )


def _shortened(note: str) -> str:
    note = printable(note)
    return note if len(note) <= _MAX_NOTE else note[: _MAX_NOTE - 1] + "…"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def error_result(error: AsyncfinError, message: str) -> CallToolResult:
    """Return an error as a result: the SDK would hide what an exception says."""
    resume_at = getattr(error, "resume_at", None)
    wait = getattr(error, "retry_after", None)
    if wait is None and resume_at is not None:
        wait = max(0.0, (resume_at - datetime.now(UTC)).total_seconds())
    do = next(
        (advice for kind, advice in _ADVICE if isinstance(error, kind)),
        "Tell the user what the message says.",
    )
    if error.concerns == "service" and error.attempts == 0:
        wait, since = (
            _OUTAGE,
            f" since {utc_text(error.at.replace(microsecond=0))}" if error.at else "",
        )
        do = (
            f"The service has failed{since}: do not call again at once, but after "
            "retry_after_seconds."
        )
    facts: dict[str, Any] = {
        "error": type(error).__name__,
        "message": printable(message)[:2000],
        "retry_after_seconds": wait,
        "resume_at": utc_text(resume_at) if resume_at else None,
        "do": do,
    }
    text = f"{facts['error']}: {facts['message']} {do}"
    return CallToolResult(
        content=[TextContent(text=text)], structured_content=facts, is_error=True
    )
