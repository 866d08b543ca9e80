"""A bucket shared by the processes of a machine: its state is a file.

Each operation opens and locks the file (`flock`), reads the state, and writes it back:
some 60 microseconds, with no await in between. So a renamed file and a killed process
need no care; a forked child makes a bucket of its own. The pace follows the machine's
clock.
"""

from __future__ import annotations

import asyncio
import os
import struct
import zlib
from collections.abc import Callable, Sequence
from datetime import datetime

from asyncfin import checks, local
from asyncfin.clock import utc_now
from asyncfin.errors import ArgumentError, BucketUnavailableError
from asyncfin.pacing.bucket import Parameters
from asyncfin.pacing.pace import Change
from asyncfin.pacing.shared import (
    NUMBERS,
    Outcome,
    SharedBucket,
    SharedState,
)

# Kind of file and format, the fields, and the checksum of these.
_MAGIC = b"AFBK\x02\0\0\0"
_BODY = struct.Struct(f"<8s{NUMBERS}d")
_CHECKSUM = struct.Struct("<I")
_SIZE = _BODY.size + _CHECKSUM.size
_UNUSED = (0.0,) * NUMBERS
# A lock is held for microseconds; a process that was stopped during them holds it for
# longer.
_LOCK_POLL = 0.001
_LOCK_POLLS = 5_000


class FileBucket(SharedBucket):
    """Paces the requests of all processes of this machine that name the same file.

    Over any period in which the file keeps its state, they together send at most
    ``burst + rate * seconds`` requests. With a `rate`, busy processes get equal shares;
    without one, what each learns may differ. A pause, a used-up allowance and the day's
    spending apply to all of them. The file must be on a local disk, not on NFS; for
    several machines use `RedisBucket`.

    Args:
        path: the file, which is created if it is missing, for this user alone. Its
            folder must exist.
        rate: requests per second, the same in all processes. None: each process learns
            it from the service's rejections (429).
        burst: how many may be granted at once after a rest, at least 1.
        daily_budget: how many all processes together may grant between two midnights
            UTC (spec 8), at least 1, or None for the service's own bound.
        clock: returns the wall time, aware UTC; for tests.

    Raises:
        ArgumentError: an argument is not as described, or the platform is Windows.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        rate: float | None = None,
        burst: float = 1,
        *,
        daily_budget: float | None = None,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        if not local.SUPPORTED:
            raise ArgumentError(
                "a FileBucket needs a POSIX system, not Windows: use a TokenBucket or "
                "a RedisBucket"
            )
        text = checks.local_path(
            "path", "file", path, "a Redis server is for a RedisBucket"
        )
        super().__init__(Parameters.check(rate, burst, daily_budget))
        self._path = os.path.abspath(text)
        self._clock = clock
        self._stored: Sequence[float] = _UNUSED  # as this process last wrote it

    def __repr__(self) -> str:
        return f"FileBucket({self._path!r}, {self._parameters})"

    async def _run(self, change: Change) -> Outcome:
        # Polled, since a blocking flock would need a thread, which takes longer than a
        # lock is held.
        for _ in range(_LOCK_POLLS):
            if (outcome := self._apply(change)) is not None:
                return outcome
            await asyncio.sleep(_LOCK_POLL)
        raise self._report_unavailable("another process has locked it for too long")

    def _apply(self, change: Change) -> Outcome | None:
        """Make a change, or return None if another process has the file locked."""
        if change.kind == "look" and not os.path.lexists(self._path):
            return False, SharedState(
                _UNUSED, self._parameters, self._clock().timestamp()
            )
        try:
            descriptor = local.open_private(self._path, mode_bits=0o022)
            try:
                if not local.try_lock(descriptor):
                    return None
                try:
                    return self._apply_locked(descriptor, change)
                finally:
                    # Closing is not enough where a child was forked meanwhile.
                    local.unlock(descriptor)
            finally:
                os.close(descriptor)
        except (OSError, local.NotPrivateError) as error:
            raise self._report_unavailable(error) from None

    def _apply_locked(self, descriptor: int, change: Change) -> Outcome:
        now, is_look = self._clock().timestamp(), change.kind == "look"
        numbers = self._read(descriptor, is_look=is_look)
        state = SharedState(numbers, self._parameters, now, is_look=is_look)
        if is_look:
            return False, state
        is_granted = state.apply(change)
        # Also where nothing was granted: what was clipped would be clipped for ever.
        self._write(descriptor, state.numbers())
        return is_granted, state

    def _read(self, descriptor: int, *, is_look: bool) -> Sequence[float]:
        """Read the state; from a damaged file, the one that this process wrote."""
        block = os.pread(descriptor, _SIZE, 0)
        body = block[: _BODY.size]
        magic = block[: len(_MAGIC)]
        if magic == _MAGIC and block == body + _CHECKSUM.pack(zlib.crc32(body)):
            return _BODY.unpack(body)[1:]
        # A write leaves a part, or zeros, if the machine stops during it.
        if not _MAGIC.startswith(magic) and any(block):
            raise self._report_unavailable(
                "it is not a bucket's file of this version: use another path, or "
                "delete it"
            )
        if block:
            if is_look:
                raise self._report_unavailable("it is damaged")
            self._warn_once(
                "%r was damaged: it continues from what this process last stored there"
            )
        return self._stored

    def _write(self, descriptor: int, numbers: Sequence[float]) -> None:
        body = _BODY.pack(_MAGIC, *numbers)
        # One write of less than a page: a process that is killed leaves the old state
        # or the new one.
        byte_count = os.pwrite(descriptor, body + _CHECKSUM.pack(zlib.crc32(body)), 0)
        if byte_count < _SIZE:
            raise self._report_unavailable(
                f"only {byte_count} of {_SIZE} bytes were written"
            )
        self._stored = numbers

    def _report_unavailable(self, reason: object) -> BucketUnavailableError:
        reason = getattr(reason, "strerror", None) or reason
        self._warn_once("%r can't be used: %s", reason)
        return BucketUnavailableError(f"{self._path} can't be used: {reason}")
