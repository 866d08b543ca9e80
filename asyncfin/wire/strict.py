"""Strict decoding: msgspec stops at the first problem and names its JSON path."""

import re
from codecs import BOM_UTF8
from typing import TypeAlias, TypeVar

import msgspec

from asyncfin.errors import MalformedAnswerError

T = TypeVar("T")
JsonBytes: TypeAlias = bytes | memoryview | msgspec.Raw
# How much an error shows of a response that does not come from the service.
_SHOWN_CHARACTERS = 80


def decode(body: JsonBytes, decoder: "msgspec.json.Decoder[T]", at: str = "$") -> T:
    """Return the value that a decoder reads from JSON, or raise MalformedAnswerError with the first problem.

    `at` is the JSON path of that JSON in its response, to name the place of the problem.
    """
    try:
        return decoder.decode(json_text(body) if isinstance(body, bytes) else body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        # UnicodeDecodeError is a ValueError. Arrays nested without end are a RecursionError.
        message, _, path = str(error).partition(" - at `$")
    # From here on, so that the error has no context: its text could contain what the service echoed.
    if isinstance(body, bytes) and (problem := not_json(body)):
        raise MalformedAnswerError(f"{problem} @ {at}")
    path = at + path.removesuffix("`")  # msgspec's path begins where this JSON does
    if missing := re.fullmatch("Object missing required field `(.*)`", message):
        raise MalformedAnswerError(f"a required field is missing @ {path}.{missing[1]}")
    raise MalformedAnswerError(f"{message.replace('`', '')} @ {path}")


def not_json(body: bytes) -> str:
    """Return the problem of a body that is empty or a page of a proxy, and "" for any other."""
    content = json_text(body).lstrip()
    if not content:
        return "the body is empty"
    return not_from_service("the body is not JSON", body) if content.startswith(b"<") else ""


def not_from_service(problem: str, body: bytes) -> str:
    """Return the message for a response that does not come from the service, with the start of its body."""
    start = json_text(body).lstrip()[: 4 * _SHOWN_CHARACTERS].decode(errors="replace")
    start = start.strip()[:_SHOWN_CHARACTERS]
    shown = f": {start!r}" if start else ""
    return f"{problem} and probably comes from something in front of the service{shown}"


def json_text(body: bytes) -> bytes:
    """Return a body without a byte order mark, which a reader may ignore (RFC 8259, section 8.1)."""
    return body.removeprefix(BOM_UTF8)
