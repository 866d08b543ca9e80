"""The sandbox's errors: those that its user sees, and those that its clients get (spec
7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec


class SandboxError(Exception):
    """The sandbox cannot do it; the message shows what to do."""


class PortInUseError(SandboxError):
    """Something else listens at the sandbox's address."""


class BrokenDatasetError(ValueError):
    """A dataset file that cannot be used.

    source: the file. place: where in its JSON (`$.publications[0].periods[3]`).
    problem: the value there, and what would be right.
    """

    def __init__(self, source: str, place: str, problem: str) -> None:
        super().__init__(source, place, problem)
        self.source, self.place, self.problem = source, place, problem

    def __str__(self) -> str:
        return f"{self.source}: {self.place}: {self.problem}"


class RejectionError(Exception):
    """A request that is answered with an error object (spec 7); `issues` are pairs of
    field and message.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        issues: Sequence[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, code, message)
        self.status, self.code, self.message = status, code, message
        self.issues = tuple(issues)
        self.headers = dict(headers or {})

    def body(self, request_id: str) -> bytes:
        """Return the JSON of the response."""
        error: dict[str, Any] = {
            "code": self.code,
            "message": escape_halves(self.message),
            "request_id": request_id,
        }
        if self.issues:
            # The spec names field issues, not their structure (spec 7); `field` and
            # `message` are our choice.
            issues = []
            for field, text in self.issues:
                place = escape_halves(field)
                issues.append({"field": place, "message": escape_halves(text)})
            error["issues"] = issues
        return msgspec.json.encode({"error": error})


def invalid(issues: Sequence[tuple[str, str]]) -> RejectionError:
    """Return the rejection of a request with these wrong fields: 400
    `validation_failed`.
    """
    # Five are enough for a reader; the issues have all of them, for programs.
    text = "; ".join(f"{place} {message}" for place, message in issues[:5])
    return RejectionError(400, "validation_failed", f"{text}.", issues=issues)


def dataset_changed(dataset_id: str) -> RejectionError:
    """Return the rejection of an old pin (spec 4.2 rule 3, 4.3 rule 6)."""
    return RejectionError(
        409, "dataset_changed", f"The current publication is {dataset_id}."
    )


def escape_halves(text: str) -> str:
    # JSON can contain a lone half of a surrogate pair, and UTF-8 cannot.
    return text.encode(errors="backslashreplace").decode()
