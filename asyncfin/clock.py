"""The wall time, for stamps and days. Everything that waits uses the event loop's
clock.
"""

from datetime import UTC, datetime, timedelta

EPOCH = datetime.fromtimestamp(0, UTC)
# A service can request a wait that ends after the last date that Python can represent.
LAST = datetime.max.replace(tzinfo=UTC)


def utc_now() -> datetime:
    """Return the wall time: the default of every `clock` argument, which a test
    replaces.
    """
    return datetime.now(UTC)


def utc_text(moment: datetime) -> str:
    """Return a moment as ISO 8601, with Z for UTC, as the service writes its own (spec
    2.2).
    """
    return moment.isoformat().replace("+00:00", "Z")


def later(moment: datetime, seconds: float) -> datetime:
    """Return the wall time `seconds` after `moment`; at most `LAST`."""
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return LAST


def wall_time(seconds: float) -> datetime:
    """Return Unix time as a datetime; at most `LAST`."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError):
        return LAST
