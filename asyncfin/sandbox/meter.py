"""What an account may still spend: the day's allowance (spec 8) and its rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from attrs import define, field

from asyncfin.sandbox.accounts import Account
from asyncfin.sandbox.request import RefusedError
from asyncfin.sandbox.store import Store


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
