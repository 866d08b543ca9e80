"""Whether and when a failed attempt is repeated: the decision by itself."""

import random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from asyncfin.errors import (
    AsyncfinError,
    ConnectionFailedError,
    RateLimitedError,
    RequestTimeoutError,
    SelectionError,
    ServerFailureError,
    ServiceError,
    TruncatedAnswerError,
)
from asyncfin.wire.retry import Retry
from tests.wire.sending import seconds

retries = st.builds(
    Retry,
    attempts=st.integers(1, 10),
    max_elapsed=seconds,
    wait_initial=seconds,
    wait_max=seconds,
    max_retry_after=seconds,
)


PASSING = [
    ConnectionFailedError("x"),
    RequestTimeoutError("x"),
    TruncatedAnswerError("x"),
    *(ServerFailureError(status=status) for status in (500, 502, 503, 504, 506, 520, 522, 524, 529, 599)),
    ServiceError(status=408),
    RateLimitedError(status=429),
]


@given(retry=retries, attempt=st.integers(1, 500) | st.just(5000), seed=st.integers())
def test_own_wait_is_half_random(retry: Retry, attempt: int, seed: int) -> None:
    """However many attempts there were, the bound is never above wait_max."""
    bound = retry.wait_initial
    for _ in range(attempt - 1):
        bound = min(bound * 2, retry.wait_max)
    bound = min(bound, retry.wait_max)
    wait = retry.wait(attempt, None, random.Random(seed))
    assert wait == random.Random(seed).uniform(bound / 2, bound)


@given(retry=retries, attempt=st.integers(1, 20), asked=seconds, seed=st.integers())
def test_requested_wait_is_only_lengthened(retry: Retry, attempt: int, asked: float, seed: int) -> None:
    """A Retry-After is lengthened by at most wait_initial; above max_retry_after there is no wait."""
    wait = retry.wait(attempt, asked, random.Random(seed))
    if asked > retry.max_retry_after:
        assert wait is None
    else:
        assert wait is not None
        assert asked <= wait <= asked + retry.wait_initial


@pytest.mark.parametrize("error", PASSING, ids=repr)
@given(retry=retries, attempt=st.integers(1, 12), elapsed=seconds, wait=seconds)
def test_retries_stay_within_both_bounds(
    error: AsyncfinError, retry: Retry, attempt: int, elapsed: float, wait: float
) -> None:
    """It ends at the last attempt, or where a wait would pass max_elapsed; a 429's pause is everybody's."""
    own_wait = 0 if isinstance(error, RateLimitedError) else wait
    expected = attempt >= retry.attempts or elapsed + own_wait > retry.max_elapsed
    assert retry.gives_up(error, attempt=attempt, elapsed=elapsed, wait=wait) is expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("attempts", value) for value in (0, -1, 1.0, None, True, "5")),
        *(
            (name, value)
            for name in ("max_elapsed", "wait_initial", "wait_max", "max_retry_after")
            for value in (-0.1, float("nan"), float("inf"), None, True, "5")
        ),
    ],
)
def test_wrong_setting_is_rejected(name: str, value: Any) -> None:
    """The error names the setting and the value."""
    with pytest.raises(SelectionError, match=f"{name} .* {value!r}"):
        Retry(**{name: value})
