"""The wall time. What waits goes by the event loop's clock; this one stamps, and reckons with days."""

from datetime import UTC, datetime, timedelta
from functools import partial

# Every `clock` argument defaults to it, and a test gives another.
utc_now = partial(datetime.now, UTC)


def later(moment: datetime, seconds: float) -> datetime:
    """Return the wall time `seconds` after `moment`; the calendar's last where there is none so late."""
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)
