"""Settings of attempts and retries, and the decisions that follow from them; no I/O."""

from __future__ import annotations

import random
from copy import copy
from typing import TypeVar

from attrs import field, frozen

from asyncfin import checks
from asyncfin.errors import (
    AsyncfinError,
    MalformedAnswerError,
    RateLimitedError,
    ServerFailureError,
    ServiceError,
    TransportError,
)

E = TypeVar("E", bound=AsyncfinError)
# Not Implemented, and HTTP Version Not Supported: a retry does not change them.
LASTING_STATUSES = (501, 505)


def growing_wait(count: int) -> float:
    """Return the seconds to wait after so many tries without success: 1, 2, 4, 8, 16,
    then 30.
    """
    return min(2.0 ** min(count, 5), 30.0)


def copy_unsent(error: E) -> E:
    """Return the error for a request that is not sent because an earlier one failed."""
    error = copy(error)
    error.attempts = 0
    error.__dict__.pop("__notes__", None)
    if isinstance(error, ServiceError):
        error.answered = error.has_error_object = False
    elif isinstance(error, TransportError):
        error.sent = False
    return error


@frozen(kw_only=True)
class Retry:
    """Whether and when to retry a request.

    Retryable are lost, late and incomplete responses, 408, 429, every 5xx except 501
    and 505, and what something in front of the service sends in its place: a redirect,
    or a 2xx that is not JSON. A certificate that does not verify is not retryable, nor
    is a proxy's rejection other than 5xx.

    Args:
        attempts: how often a request is sent at most, including the first time. A retry
            with a renewed token after a 401 does not count, nor does an attempt while
            the service fails as a whole.
        max_elapsed: the number of seconds after the first attempt within which the last
            one must begin. Waits for a connection, for the bucket and for the end of
            shared pauses are not counted.
        wait_initial: the longest wait before the second attempt, in seconds. It doubles
            with each further attempt. The actual wait is random, in the upper half of
            it, so that waits lengthen (spec 7).
        wait_max: the limit of that doubling, in seconds.
        max_retry_after: the longest Retry-After to wait for, in seconds. A longer one,
            of a day at most, raises `AllowanceExhaustedError` after a 429, and ends the
            retries after a 5xx.
        max_outage: while the service fails as a whole, one request at a time is sent.
            For so many seconds after the first failure the others wait if they are of
            the bulk lane. Those of the interactive lane wait within
            `max_elapsed` if they began before that; later ones raise the last failure
            at once.

    Raises:
        ArgumentError: a number is out of its range.
    """

    attempts: int = field(default=5, validator=checks.positive_int.field)
    max_elapsed: float = field(default=120.0, validator=checks.seconds.field)
    wait_initial: float = field(default=0.5, validator=checks.seconds.field)
    wait_max: float = field(default=20.0, validator=checks.seconds.field)
    max_retry_after: float = field(default=60.0, validator=checks.seconds.field)
    max_outage: float = field(default=900.0, validator=checks.seconds.field)

    def wait(
        self, attempt: int, retry_after: float | None, source: random.Random
    ) -> float | None:
        """Return the seconds between attempt number `attempt` and the next, at least
        `retry_after`.

        None: the service's `retry_after` is longer than `max_retry_after`.
        """
        if retry_after is None:
            # The exponent is bounded, since a float has no 2.0 ** 1024.
            longest = min(
                self.wait_max, self.wait_initial * 2.0 ** min(attempt - 1, 1000)
            )
            # From the upper half: drawn from all of it, a later wait could be shorter
            # than an earlier one.
            return source.uniform(longest / 2, longest)
        if retry_after > self.max_retry_after:
            return None
        # A little longer: requests that were rejected together would otherwise be sent
        # together.
        return retry_after + source.uniform(0, self.wait_initial)

    def gives_up(
        self, error: Exception, *, attempt: int, elapsed: float, wait: float
    ) -> bool:
        """Return whether attempt number `attempt`, which ended in `error`, is the last.

        Args:
            elapsed: seconds since the first attempt, as `max_elapsed` counts them.
            wait: what the method `wait` returned.
        """
        is_pause = isinstance(
            error, RateLimitedError
        )  # then the wait is a pause of the bucket
        if attempt >= self.attempts or not (is_pause or is_retryable(error)):
            return True
        return elapsed + (0 if is_pause else wait) > self.max_elapsed


def is_retryable(error: Exception) -> bool:
    """Return whether a failure other than a 429 may pass."""
    match error:
        case TransportError():
            return error.retryable
        case MalformedAnswerError():
            return not error.is_json
        case ServerFailureError():
            return error.status not in LASTING_STATUSES
    # Exactly this class: a known code decides before the status (spec 7).
    return type(error) is ServiceError and (error.status == 408 or error.status < 400)


@frozen(kw_only=True)
class Timeouts:
    """How long one attempt may take, in seconds.

    Args:
        connect: until there is a connection, TLS included.
        read: between two chunks of the response.
        total: until the last byte of the response. Waiting for the bucket, for a token
            and between attempts is not counted.

    Raises:
        ArgumentError: one is not a finite number above 0.
    """

    connect: float = field(default=10.0, validator=checks.positive_seconds.field)
    read: float = field(default=30.0, validator=checks.positive_seconds.field)
    total: float = field(default=60.0, validator=checks.positive_seconds.field)
