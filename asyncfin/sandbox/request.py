"""What goes into the rules and what comes out: request, reply, refusal with its error object (spec 7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from attrs import frozen

from asyncfin.sandbox.accounts import Account

JSON_TYPE = "application/json"


@frozen
class Request:
    """One request as it came: path and query string still percent-encoded, header names in lower case.

    body: None when it is larger than the service takes.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes | None
    request_id: str


@frozen
class Reply:
    """One answer, with what the service notes about it.

    operation: None for a path of no operation. account: None when no valid token came.
    charged: the account and operation that the request counts for (spec 8); None: it does not count.
    """

    status: int
    body: bytes
    headers: Mapping[str, str]
    operation: str | None = None
    account: Account | None = None
    charged: tuple[Account, str] | None = None


class RefusedError(Exception):
    """A request refused with a status and a code of spec 7; `issues` are pairs of field and message."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        issues: tuple[tuple[str, str], ...] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, code, message)
        self.status, self.code, self.message = status, code, message
        self.issues = issues
        self.headers = dict(headers or {})

    def body(self, request_id: str) -> bytes:
        """The JSON of the answer: an `error` object with code, message and request_id."""
        error: dict[str, Any] = {
            "code": self.code,
            "message": _encodable(self.message),
            "request_id": request_id,
        }
        if self.issues:
            error["issues"] = [
                {"field": _encodable(field), "message": _encodable(text)} for field, text in self.issues
            ]
        return encode({"error": error})


def _encodable(text: str) -> str:
    """The text with its half characters escaped: JSON can bring them in, and UTF-8 cannot take them out."""
    return text.encode(errors="backslashreplace").decode()


def encode(value: Any) -> bytes:
    """Compact JSON in UTF-8."""
    return msgspec.json.encode(value)
