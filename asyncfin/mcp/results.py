"""What the tools return: text, the same as structured content, and errors that say what
to do.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
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
    shorten,
    shorten_middle,
)
from asyncfin.words import counted

# A result shares an assistant's context with everything else that it has read.
MAX_CHARACTERS = 20_000
MAX_NOTES = 15
MAX_NAME = 160
_MAX_NOTE = 600
# For the line that says how many rows are omitted, and for the braces of structured
# content.
_RESERVED = 600


class RequestLimitError(AsyncfinError):
    """A call of a tool has sent as many requests as it may."""

    concerns: Concern = "entity"


# What an assistant can do about an error.
_ADVICE: dict[type[Exception], str] = {
    RequestLimitError: "Call again with the same arguments to go on.",
    AllowanceExhaustedError: "Do not call again before resume_at.",
    RateLimitedError: "Wait retry_after_seconds, then call again.",
    SelectionError: "Correct the arguments; list_entities has the names of companies, "
    "find_series those of series.",
    NotFoundError: "Choose a company from list_entities.",
    AuthenticationError: "Tell the user that the service rejected the access token.",
    PermissionDeniedError: "Tell the user that the account may not read this.",
    **dict.fromkeys(
        (BucketUnavailableError, ServerFailureError, TransportError),
        "Call again in a minute.",
    ),
}


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
        head: the lines that come before it, such as the columns of a company.
    """

    cells: Sequence[str]
    fields: dict[str, Any]
    head: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """The head and the line; a tab in a cell is escaped, as it is not a border."""
        return [*self.head, "\t".join(map(printable, self.cells))]

    @property
    def size(self) -> int:
        """The characters in the longer of the two forms."""
        return max(len("\n".join(self.lines)), len(_to_json(self.fields))) + 1


def quote(name: str) -> str:
    """Quote a name of the service in one line: it is data, not a part of the
    sentence.
    """
    return _to_json(printable(shorten_middle(name, MAX_NAME)))


def make_result(
    head: Sequence[str],
    rows: Sequence[Row],
    notes: Sequence[str],
    advice: str = "",
    *,
    rows_as: str = "",
    **facts: Any,
) -> CallToolResult:
    """Make a result of a head, and of as many whole rows and notes as it holds.

    Args:
        advice: how to request what is omitted.
        rows_as: the name of the rows in the structured content.
        facts: the structured content without rows and notes.
    """
    lines = list(head)
    room = MAX_CHARACTERS - _RESERVED
    room -= max(len("\n".join([*head, ""])), len(_to_json(facts)))
    shown_notes = [shorten(printable(note), _MAX_NOTE) for note in notes[:MAX_NOTES]]
    if len(shown_notes) < len(notes):
        note_count = counted(len(notes) - len(shown_notes), "more note")
        shown_notes.append(f"at least {note_count}: name fewer companies or series")
    room -= len(_to_json(shown_notes))
    shown_fields: list[dict[str, Any]] = []
    for row in rows:
        room -= row.size
        if room < 0:
            omission = f"{len(rows) - len(shown_fields):,} of {len(rows):,} lines"
            shown_notes.insert(0, f"[{omission} are omitted: {advice}]")
            break
        lines += row.lines
        shown_fields.append(row.fields)
    if rows_as:
        facts[rows_as] = shown_fields
    text = "\n".join(lines + shown_notes)
    return CallToolResult(
        # The last cut is for a head that is too long by itself.
        content=[TextContent(text=text[:MAX_CHARACTERS])],
        structured_content={**facts, "notes": shown_notes},
    )


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def error_result(error: AsyncfinError) -> CallToolResult:
    """Make a result of an error: the SDK would hide what an exception says."""
    resume_at = getattr(error, "resume_at", None)
    wait = getattr(error, "retry_after", None)
    if wait is None and resume_at is not None:
        wait = max(0.0, (resume_at - datetime.now(UTC)).total_seconds())
    advice = "Tell the user what the message says."
    for kind, text in _ADVICE.items():
        if isinstance(error, kind):
            advice = text
            break
    # Without the Python that an error proposes.
    message = error.problem if isinstance(error, SelectionError) else str(error)
    message = shorten(printable(message), 2000)
    facts: dict[str, Any] = {
        "error": type(error).__name__,
        "message": message,
        "retry_after_seconds": wait,
        "resume_at": None if resume_at is None else utc_text(resume_at),
        "do": advice,
    }
    text = f"{type(error).__name__}: {message.rstrip('.')}. {advice}"
    return CallToolResult(
        content=[TextContent(text=text)], structured_content=facts, is_error=True
    )
