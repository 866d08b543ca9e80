"""Accounts and tokens (spec 5), and what an account may spend: limits (spec 8), usage
(spec 4.4).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Protocol

from attrs import define, field, frozen
from attrs.validators import ge, gt, optional

from asyncfin.sandbox.errors import RejectionError, invalid
from asyncfin.sandbox.reader import query_parameters, read_fields
from asyncfin.sandbox.schema import (
    MAX_DAYS,
    Credits,
    Limits,
    ResearchRuns,
    Usage,
    UsageDay,
    UsageParameters,
)

DATASETS_READ = "datasets:read"
USAGE_READ = "usage:read"
PERMISSIONS = (DATASETS_READ, USAGE_READ)


def _as_ids(ids: str | Iterable[str] | None) -> tuple[str, ...] | None:
    if ids is None:
        return None
    if isinstance(ids, str):  # one id, not its letters
        return (ids,)
    return tuple(ids)


@frozen
class Account:
    """An account: its tokens share one allowance (spec 5.5).

    Attributes:
        name: the account's name, by which `Sandbox.issue_token` finds it.
        allowance: data requests a UTC day, or None without a limit.
        rate: data requests a second, or None without a limit.
        burst: how many data requests may come at once.
        entities: the id or ids of the entities that it can see, or None for all.
        access: False: the account has no access (403).
    """

    name: str
    # Checked here: a wrong one would show up much later, as a strange 429.
    allowance: int | None = field(default=None, validator=optional(ge(0)))
    rate: float | None = field(default=None, validator=optional(gt(0)))
    burst: int = field(default=1, validator=ge(1))
    entities: tuple[str, ...] | None = field(default=None, converter=_as_ids)
    access: bool = True


@frozen
class Token:
    """What a token grants; audience "rest" is the REST API."""

    account: str
    permissions: tuple[str, ...]
    audience: str

    def has_permission(self, permission: str, base_url: str) -> bool:
        """Return whether a permission is held, by its short name or its full identifier
        (spec 4.4).
        """
        # The full identifier begins with the address of the service; the short name is
        # what people write.
        for identifier in self.permissions:
            name = identifier.removeprefix(base_url).lstrip("/")
            if name == permission:
                return True
        return False


# The store is one. A Protocol, since the store imports this module for Account and
# Token.
class Counts(Protocol):
    """Where the meter stores its counts."""

    def count(self, account: str, day: date, operation: str) -> None: ...

    def list_counts(
        self, account: str, start: date, end: date
    ) -> list[tuple[str, str, int]]: ...


@define
class Meter:
    """Counts the data requests of accounts, and rejects those over a limit."""

    counts: Counts
    clock: Callable[[], datetime]  # aware UTC wall time, for the day
    time: Callable[[], float]  # seconds of the running loop, for the rate
    # By account, since all tokens of one share its rate (spec 5 rule 5).
    _due: dict[str, float] = field(factory=dict)

    def now(self) -> datetime:
        """Return the wall time in UTC."""
        return self.clock().astimezone(UTC)

    def check(self, account: Account) -> None:
        """Check that the account may send another data request.

        Raises:
            RejectionError: 429, with Retry-After in whole seconds: its allowance or its
                rate is used up.
        """
        now = self.now()
        # Asked of the store each time: a store in a file may be used again on the same
        # day.
        requests_today = sum(
            requests
            for *_, requests in self.counts.list_counts(
                account.name, now.date(), now.date()
            )
        )
        if account.allowance is not None and requests_today >= account.allowance:
            # Allowances are of UTC days (spec 8).
            midnight = datetime.combine(
                now.date() + timedelta(days=1), datetime.min.time(), UTC
            )
            raise excess_error(
                "daily_allowance_reached",
                "The account's data requests of today are spent.",
                (midnight - now).total_seconds(),
            )
        if account.rate is None:
            return
        # GCRA: at `_due` a full burst has grown back.
        due = self._due.get(account.name, -math.inf)
        earliest = due - (account.burst - 1) / account.rate
        # For float arithmetic: a client that waits exactly Retry-After must not be
        # rejected again.
        wait = earliest - self.time() - 1e-9
        if wait > 0:
            raise excess_error(
                "rate_limited", "Too many data requests in a short time.", wait
            )

    def count(self, account: Account, operation: str) -> None:
        """Count a data request of the account."""
        self.counts.count(account.name, self.now().date(), operation)
        # A rejected request does not count, so the bucket is only filled here.
        if account.rate is not None:
            now = self.time()
            due = self._due.get(account.name, now)
            self._due[account.name] = max(due, now) + 1 / account.rate


def excess_error(code: str, message: str, seconds: float) -> RejectionError:
    # Whole seconds, rounded up (spec 8 rule 4): rounded down, it would name a moment of
    # one more rejection.
    whole_seconds = max(1, math.ceil(seconds))
    headers = {"Retry-After": str(whole_seconds)}
    return RejectionError(429, code, message, headers=headers)


def report_usage(query: str, account: Account, meter: Meter) -> Usage:
    """Return the account's data requests of every day of a range (spec 4.4)."""
    parameters = read_fields(query_parameters(query), UsageParameters)
    # What happens without a date is not shown in spec 4.4. Today is the smallest
    # choice.
    end = parameters.end_date or meter.now().date()
    start = parameters.start_date or end
    length = (end - start).days + 1
    if length < 1:
        raise invalid([("start_date", f"is {start}, after end_date {end}")])
    if length > MAX_DAYS:
        problem = f"makes a range of {length} days, not at most {MAX_DAYS}"
        raise invalid([("end_date", problem)])
    # Idle days are included, so that a missing day and a day without requests differ.
    days: dict[date, dict[str, int]] = {}
    for index in range(length):
        days[start + timedelta(days=index)] = {}
    for day, operation, requests in meter.counts.list_counts(account.name, start, end):
        days[date.fromisoformat(day)][operation] = requests
    usage_days = []
    for usage_day, counts in days.items():
        usage_days.append(UsageDay(usage_day, sum(counts.values()), counts))
    return Usage(start, end, usage_days)


def report_limits(account: Account) -> Limits:
    """Return credits and research runs (spec 4.5): fixed figures, for nothing here
    spends them.
    """
    return Limits(account.name, Credits(1000, 0, 1000), ResearchRuns(20, 0, 20, "day"))
