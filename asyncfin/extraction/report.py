"""The outcome of an extraction, by entity and in total."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

from attrs import field, frozen

from asyncfin import errors
from asyncfin.errors import (
    AllowanceExhaustedError,
    AsyncfinError,
    Concern,
    SelectionError,
    printable,
    shorten,
)
from asyncfin.extraction.exit import Exit
from asyncfin.typing import Missing
from asyncfin.words import counted, lasting, listed, size_text

EntityState: TypeAlias = Literal["done", "unchanged", "failed", "left"]
Outcome: TypeAlias = Literal["complete", "partial", "failed", "stopped", "interrupted"]

# The exit code of an error: the first class that matches decides, else what it
# concerns.
_EXIT_CODES: tuple[tuple[type[BaseException], Exit], ...] = (
    (errors.AuthenticationError, Exit.DENIED),
    (errors.PermissionDeniedError, Exit.DENIED),
    (errors.NotFoundError, Exit.NOT_FOUND),
    (errors.RateLimitedError, Exit.ALLOWANCE),
    (errors.RunInProgressError, Exit.RUNNING),
    (OSError, Exit.LOCAL),
    (KeyboardInterrupt, Exit.INTERRUPTED),
    (asyncio.CancelledError, Exit.INTERRUPTED),
)
_BY_CONCERN: Mapping[Concern | None, Exit] = MappingProxyType(
    {"question": Exit.USAGE, "service": Exit.SERVICE, "local": Exit.LOCAL}
)


def exit_code_of(kind: type[BaseException], concerns: Concern | None) -> Exit:
    """Return the exit code of a program that ends with an error of a class
    (docs/cli.md).

    `concerns` is what the error concerns, or None if it is not an `AsyncfinError`.
    """
    for error_class, code in _EXIT_CODES:
        if issubclass(kind, error_class):
            return code
    return _BY_CONCERN.get(concerns, Exit.FAILED)


def exit_code_of_failures(failures: Collection[Failure], entities: int) -> Exit:
    """Return the exit code where entities failed, of so many in all."""
    # If all failed for one reason, its exit code is the more precise one.
    codes = set()
    for failure in failures:
        kind = getattr(errors, failure.error, AsyncfinError)
        codes.add(exit_code_of(kind, failure.concerns))
    if len(codes) == 1 and len(failures) == entities:
        return codes.pop()
    return Exit.FAILED if codes else Exit.OK


@frozen
class Failure:
    """How an attempt failed: the error's class and message (at most 2,000 characters),
    and its facts.

    `concerns` is that of the error: what follows from it (`AsyncfinError.concerns`), or
    None for an error of Python.
    """

    error: str
    message: str
    concerns: Concern | None
    status: int | None = None
    code: str | None = None
    request_id: str | None = None

    @property
    def is_rejection(self) -> bool:
        """Whether it is a 403, or a 404 that is not the service's: if all entities
        have one, the account or the base URL is wrong.
        """
        if self.status == 404:
            return self.code is None
        return self.status == 403

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """The record of an error."""
        names = ("concerns", "status", "code", "request_id")
        facts = {name: getattr(error, name, None) for name in names}
        message = printable(shorten(str(error)))
        return cls(type(error).__name__, message, **facts)


@frozen
class EntityReport:
    """The outcome of one entity.

    Attributes:
        entity_id: the entity.
        state: ``"done"``: its file was written; ``"unchanged"``: its file is of the
            current publication already; ``"failed"``: see `failure`; ``"left"``: the
            run ended before it.
        dataset_id: the publication of the file that this run has written or found
            unchanged; None otherwise, also where an earlier file stays.
        rows: the rows of that file; 0 without one.
        bytes: its size; 0 without one.
        requests: how many this run spent on it.
        missing: the ids and words of the question that the entity does not have, by
            field.
        failure: the error's class, message, what it concerns, status, code and request
            id.
        unlisted: how many series the service left out of its responses, in at least one
            of the requested versions; 0 if this run has not read the entity.
    """

    entity_id: str
    state: EntityState
    dataset_id: str | None = None
    rows: int = 0
    bytes: int = 0
    requests: int = 0
    missing: Missing = field(factory=dict)
    failure: Failure | None = None
    unlisted: int = 0


@frozen(repr=False)
class ExtractReport:
    """How an extraction ended.

    Attributes:
        entities: one report each, in the order of the call.
        seconds: how long it took.
        stopped: the error that ended it early because it fails every other entity too:
            a rejected token, a used-up allowance, an outage, a shared bucket out of
            reach, a rejection of all entities. None: it came to its end, was stopped if
            any entity is left, or ended because of `unknown`.
        unknown: the names in the question that no entity has, by field: none of all, or
            none of the first 25 that were read, if those have nothing of the question
            at all.
        complaint: what one of the entities has in place of names that it does not have;
            None where no catalogue was read.
        others: how many files there are of entities that are not in the list.
        repeated: how many requests were sent again, by the reason: a status, or the
            class of an error.
        uncounted: how often the executor broke, with chunks in progress whose requests
            nobody has counted.
    """

    entities: tuple[EntityReport, ...]
    seconds: float
    stopped: AsyncfinError | None = None
    unknown: Missing = field(factory=dict)
    complaint: str | None = None
    others: int = 0
    repeated: Mapping[str, int] = field(factory=dict)
    uncounted: int = 0

    @property
    def done(self) -> tuple[EntityReport, ...]:
        """Those whose files were written."""
        return self._of("done")

    @property
    def unchanged(self) -> tuple[EntityReport, ...]:
        """Those whose files were of the current publication already."""
        return self._of("unchanged")

    @property
    def failed(self) -> tuple[EntityReport, ...]:
        """Those that failed; the next run retries them."""
        return self._of("failed")

    @property
    def left(self) -> tuple[EntityReport, ...]:
        """Those that the run did not reach; the next run continues with them."""
        return self._of("left")

    def _of(self, state: EntityState) -> tuple[EntityReport, ...]:
        return tuple(entity for entity in self.entities if entity.state == state)

    def _sum(self, name: str) -> int:
        return sum(getattr(entity, name) for entity in self.entities)

    @property
    def counts(self) -> dict[str, int]:
        """How many entities are in each state."""
        return {state: len(self._of(state)) for state in get_args(EntityState)}

    @property
    def figures(self) -> dict[str, Any]:
        """The outcome as plain data, which `last.json` and the command's JSON share."""
        return {
            **self.counts,
            "requests": self.requests,
            "repeated": dict(self.repeated),
            "uncounted": self.uncounted,
            "rows": self.rows,
            "bytes": self.bytes,
            "unlisted": self.unlisted,
            "seconds": self.seconds,
            "unknown": dict(self.unknown),
            "others": self.others,
            "failures": self._group_failures(),
        }

    def _list_failures(self) -> list[tuple[str, Failure]]:
        """Return the failures, with their entities."""
        failures = []
        for entity in self.failed:
            if entity.failure is not None:
                failures.append((entity.entity_id, entity.failure))
        return failures

    def _group_failures(self) -> dict[str, dict[str, Any]]:
        """Return failures by the class of the error: how many, the first message, and
        all entities.
        """
        by_class: dict[str, dict[str, Any]] = {}
        for entity_id, failure in self._list_failures():
            start = {"count": 0, "message": failure.message, "entity_ids": []}
            group = by_class.setdefault(failure.error, start)
            group["count"] += 1
            group["entity_ids"].append(entity_id)
        return by_class

    @property
    def requests(self) -> int:
        """How many requests were spent, everything counted apart from
        `uncounted`.
        """
        return self._sum("requests")

    @property
    def rows(self) -> int:
        """The rows of the files written or found unchanged."""
        return self._sum("rows")

    @property
    def bytes(self) -> int:
        """The size of those files."""
        return self._sum("bytes")

    @property
    def unlisted(self) -> int:
        """How many series the service left out of its responses."""
        return self._sum("unlisted")

    @property
    def error(self) -> AsyncfinError | None:
        """The error that ended the run: `stopped`, or else that of `unknown`."""
        if self.stopped is not None or not self.unknown:
            return self.stopped
        count = len(self.done) + len(self.unchanged)
        message = describe_unknown(self.unknown, count, self.complaint)
        if self.left:
            message += (
                "; the others are not read: the option `allow_missing` reads them"
            )
        return UnknownToAllError(message, report=self)

    @property
    def outcome(self) -> Outcome:
        """How the run ended.

        ``"stopped"``: see `stopped`, or `unknown`; ``"interrupted"``: it was to stop
        before its end; ``"partial"``: entities failed; ``"failed"``: all did;
        ``"complete"``: every entity is done or unchanged.
        """
        if self.error is not None:
            return "stopped"
        if self.left:
            return "interrupted"
        if len(self.failed) == len(self.entities) > 0:
            return "failed"
        return "partial" if self.failed else "complete"

    @property
    def exit_code(self) -> int:
        """The exit code of a program that makes the run its own (docs/cli.md); 0:
        nothing is left to do.
        """
        if self.error is not None:
            return exit_code_of(type(self.error), self.error.concerns)
        if self.left:
            return Exit.INTERRUPTED
        failures = [failure for _, failure in self._list_failures()]
        return exit_code_of_failures(failures, len(self.entities))

    @property
    def resume_at(self) -> datetime | None:
        """When the allowance returns, aware UTC, if it was used up."""
        if isinstance(self.stopped, AllowanceExhaustedError):
            return self.stopped.resume_at
        return None

    def raise_for_unknown(self) -> None:
        """Raise if no entity has some id or word of the query, or anything of it.

        Raises:
            UnknownToAllError: there are some, and no other error has stopped the run;
                the message names them and what comes close.
        """
        if isinstance(self.error, UnknownToAllError):
            raise self.error

    def __str__(self) -> str:
        counts = [f"{count:,} {state}" for state, count in self.counts.items()]
        cost = describe_spending(self.requests, self.repeated, self.uncounted)
        lines = [
            f"entities: {', '.join(counts)}",
            f"{cost} in {lasting(self.seconds)}",
            f"{counted(self.rows, 'row')}, {size_text(self.bytes)}",
            *_describe_missing(self.entities),
        ]
        if self.unlisted:
            count = sum(bool(entity.unlisted) for entity in self.entities)
            lines.append(
                "series that the service left out of its responses: "
                f"{self.unlisted:,} (in {counted(count, 'entity', 'entities')})"
            )
        failures = []
        for entity_id, failure in self._list_failures():
            text = f"{entity_id} failed: {failure.error}: {failure.message}"
            failures.append(text)
        if failures:
            lines.append(listed(failures, 20, between="\n"))
        if self.others:
            lines.append(
                f"files of entities that are not in the list: {self.others:,} (the "
                "option `prune` deletes them)"
            )
        if self.stopped is not None:
            lines.append(f"ended early: {self.stopped}")
        return "\n".join(lines)

    __repr__ = __str__  # in a notebook, and of thousands of entities


class UnknownToAllError(SelectionError):
    """No entity has an id or word of the question, or anything of it at all.

    `missing` names what that is, by field; `extract_report` is the report of the
    extraction.
    """

    def __init__(self, *args: object, report: ExtractReport) -> None:
        super().__init__(*args, missing=report.unknown)
        self.extract_report = report


def describe_spending(
    requests: int, repeats: Mapping[str, int], uncounted_chunks: int
) -> str:
    """Return requests for people: ``395 requests, 90 of them repeated: 90 x 503``."""
    text = counted(requests, "request")
    reasons = [f"{count:,} x {reason}" for reason, count in sorted(repeats.items())]
    if reasons:
        count = sum(repeats.values())
        text += f", {count:,} of them repeated: {', '.join(reasons)}"
    if uncounted_chunks:
        times = counted(uncounted_chunks, "time")
        text += f", and those of workers that were killed ({times})"
    return text


def find_unknown(missing: Sequence[Missing]) -> dict[str, tuple[str, ...]]:
    """Return the names that are missing everywhere, by field."""
    unknown = {}
    for field_name, names in missing[0].items():
        for of_entity in missing:
            names_of_entity = of_entity.get(field_name, ())
            names = tuple(filter(names_of_entity.__contains__, names))
        if names:
            unknown[field_name] = names
    return unknown


def describe_unknown(unknown: Missing, count: int, complaint: str | None) -> str:
    """Return names that none of so many entities has, for people, and what one of them
    has in place of these names.
    """
    if count == 1 and complaint:
        return complaint
    texts = [f"{name} {', '.join(map(repr, names))}" for name, names in unknown.items()]
    entities = counted(count, "entity", "entities")
    message = f"none of {entities} has {shorten('; '.join(texts))}"
    return f"{message}; {complaint}" if complaint else message


def _describe_missing(entities: Iterable[EntityReport]) -> list[str]:
    """Return a line for each id or word that entities do not have, the most frequent
    ones first.
    """
    counts = Counter[str]()
    for entity in entities:
        for field_name, names in entity.missing.items():
            for name in names:
                counts[f"{field_name} {name!r}"] += 1
    lines = []
    for text, count in counts.most_common():
        entities_text = counted(count, "entity", "entities")
        lines.append(f"missing: {text} in {entities_text}")
    return [listed(lines, 5, between="\n")] if lines else []
