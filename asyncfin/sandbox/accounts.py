"""Who asks: accounts and tokens (spec 5) and what they may still spend today (spec 8)."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from asyncfin.sandbox.request import RefusedError

if TYPE_CHECKING:
    from asyncfin.sandbox.store import Store

DATASETS_READ = "datasets:read"
USAGE_READ = "usage:read"
PERMISSIONS = (DATASETS_READ, USAGE_READ)


@frozen
class Account:
    """An account: its tokens share one allowance (spec 5.5).

    allowance: data requests a UTC day; None: no limit.
    rate, burst: data requests a second, and how many at once; rate None: no limit.
    entities: those it can see; None: all. access: False when the account lacks access (403).
    """

    name: str
    allowance: int | None = None
    rate: float | None = None
    burst: int = 1
    entities: tuple[str, ...] | None = None
    access: bool = True


@frozen
class Token:
    """What a token stands for; audience "rest" is the REST API."""

    account: str
    permissions: tuple[str, ...]
    audience: str

    def grants(self, permission: str, base_url: str) -> bool:
        """A permission is known by its short name and by its full identifier (spec 4.4)."""
        return permission in self.permissions or f"{base_url}/{permission}" in self.permissions


@define
class Meter:
    """Counts an account's data requests and says when a limit is reached.

    clock: aware UTC wall time, for the day. time: seconds of the running loop, for the rate.
    """

    store: Store
    clock: Callable[[], datetime]
    time: Callable[[], float]
    _due: dict[str, float] = field(factory=dict)

    def now(self) -> datetime:
        """The wall time in UTC."""
        return self.clock().astimezone(UTC)

    def check(self, account: Account) -> None:
        """Raises RefusedError 429, Retry-After in whole seconds, when the allowance or the rate is spent."""
        now = self.now()
        spent = self.store.requests(account.name, now.date())
        if account.allowance is not None and spent >= account.allowance:
            midnight = datetime.combine(now.date() + timedelta(days=1), datetime.min.time(), UTC)
            raise _too_many(
                "daily_allowance_reached",
                "The account's data requests of today are spent.",
                (midnight - now).total_seconds(),
            )
        wait = self._wait(account)
        if wait > 0:
            raise _too_many("rate_limited", "Too many data requests in a short time.", wait)

    def count(self, account: Account, operation: str) -> None:
        """Take one data request from the account."""
        self.store.count(account.name, self.now().date(), operation)
        if account.rate is not None:
            now = self.time()
            self._due[account.name] = max(self._due.get(account.name, now), now) + 1 / account.rate

    def _wait(self, account: Account) -> float:
        """Seconds until the rate admits another request (GCRA: at `_due` a full burst has grown back)."""
        if account.rate is None:
            return 0.0
        earliest = self._due.get(account.name, -math.inf) - (account.burst - 1) / account.rate
        return earliest - self.time() - 1e-9


def _too_many(code: str, message: str, seconds: float) -> RefusedError:
    return RefusedError(429, code, message, headers={"Retry-After": str(max(1, math.ceil(seconds)))})
