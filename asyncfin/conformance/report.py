"""What a check has found, without the values of the service."""

from __future__ import annotations

import json
from typing import Literal, TypeAlias

from attrs import asdict, frozen

from asyncfin.words import counted

Kind: TypeAlias = Literal["break", "differs", "limit", "reading", "extra"]
# What each kind means, in the order of a report.
KINDS: dict[Kind, str] = {
    "break": "violates the spec in what numbers depend on; rejected where one response "
    "shows it",
    "differs": "violates the spec in a field that no number depends on; asyncfin "
    "reads it as empty",
    "limit": "a limit of the service or the account that the spec does not state",
    "reading": "what the check could not decide",
    "extra": "fields that the spec does not name; asyncfin ignores them",
}


@frozen(kw_only=True)
class Finding:
    """One thing that a check has found.

    Attributes:
        kind: ``"break"``, ``"differs"``, ``"limit"``, ``"reading"`` or ``"extra"``.
        spec: the section of the spec.
        what: the finding. It contains names of fields and counts; no text, value, id or
            token of the service. Unknown fields are named if they are like those of the
            spec, such as ``some_field``.
        count: how often it was seen.
        of: among how many, or None if that was not counted.
        request_id: the service's id of the first request that shows a break, or None.
    """

    kind: Kind
    spec: str
    what: str
    count: int = 1
    of: int | None = None
    request_id: str | None = None

    def __str__(self) -> str:
        text = f"{self.spec}: {self.what}"
        if self.of is not None:
            text += f" ({self.count:,} of {self.of:,})"
        if self.request_id:
            text += f" [request {self.request_id}]"
        return text


@frozen(kw_only=True)
class CheckReport:
    """The result of `asyncfin.check`.

    Attributes:
        entity_id: the entity whose dataset was read.
        findings: ordered by kind, then by section; at most 200.
        omitted: how many more findings there are, the last ones in that order.
        requests: how many were sent, retries included.
        complete: whether every check was made. False: `max_requests` or the allowance
            did not suffice, or the publication changed.
    """

    entity_id: str
    findings: tuple[Finding, ...]
    omitted: int
    requests: int
    complete: bool

    @property
    def breaks(self) -> tuple[Finding, ...]:
        """The findings of the kind ``"break"``."""
        return tuple(self._select("break"))

    def _select(self, kind: Kind) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind == kind]

    def to_json(self) -> str:
        """Write the report as a JSON object, with the attributes of this class and of
        `Finding`.
        """
        return json.dumps(asdict(self), ensure_ascii=False)

    def __str__(self) -> str:
        verdict = "no break of the spec"
        if self.breaks:
            verdict = counted(len(self.breaks), "break")
        if not self.complete:
            verdict += "; not all checks were made"
        lines = [f"{self.entity_id}: {counted(self.requests, 'request')}, {verdict}"]
        for kind, meaning in KINDS.items():
            findings = self._select(kind)
            if findings:
                lines += ["", f"{kind}: {meaning}"]
                lines += [f"  {finding}" for finding in findings]
        if self.omitted:
            lines += ["", counted(self.omitted, "more finding")]
        return "\n".join(lines)
