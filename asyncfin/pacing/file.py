"""A bucket shared by the processes of a machine: its state is a file.

Each operation opens and locks the file (`flock`), reads the state, and writes it back:
some 60 microseconds, with no await in between. So a renamed file, a fork and a killed
process need no care. The pace follows the machine's clock.
"""

from __future__ import annotations

import asyncio
import logging
import os
import struct
import zlib
from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from asyncfin import checks, local
from asyncfin.clock import utc_now
from asyncfin.errors import ArgumentError, BucketUnavailableError
from asyncfin.pacing.bucket import Parameters
from asyncfin.pacing.shared import Change, Fields, SharedBucket, SharedState

T = TypeVar("T")

_log = logging.getLogger("asyncfin")

# Kind of file and format, the fields, and the checksum of these.
_MAGIC = b"AFBK\x02\0\0\0"
_BODY = struct.Struct(f"<8s{len(Fields._fields)}d")
_CHECKSUM = struct.Struct("<I")
_SIZE = _BODY.size + _CHECKSUM.size
# A lock is held for microseconds; a process that was stopped during them holds it for
# longer.
_LOCK_POLL = 0.001
_LOCK_POLLS = 5_000


class FileBucket(SharedBucket):
    """Paces the requests of all processes of this machine that name the same file.

    Over any period in which the file keeps its state, they together send at most
    ``burst + rate * seconds`` requests. Busy processes get equal shares. A pause, a
    used-up allowance and the day's spending apply to all of them. The file must be on a
    local disk, not on NFS; for several machines use `RedisBucket`.

    Args:
        path: the file, which is created if it is missing, for this user alone. Its
            folder must exist.
        rate: weight per second, the same in all processes. None: each process learns it
            from the service's refusals (429).
        burst: how much may be granted at once after a rest, at least 1.
        daily_budget: how much all processes together may grant between two midnights
            UTC (spec 8), at least 1; None: no bound but the service's own.
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
                "a FileBucket needs a POSIX system, not Windows: use a TokenBucket or a RedisBucket"
            )
        text = checks.local_path("path", "file", path, "a Redis server is for a RedisBucket")
        super().__init__(Parameters.checked(rate, burst, daily_budget))
        self._path = os.path.abspath(text)
        self._clock = clock
        self._fields: Fields | None = None  # as this process last wrote them

    def __repr__(self) -> str:
        return f"FileBucket({self._path!r}, {self._parameters})"

    async def _take(self, weight: float, counts: bool, most: int) -> tuple[int, SharedState]:
        return await self._wait_for(lambda: self._try_take(weight, counts, most))

    def _take_now(self, weight: float, counts: bool) -> tuple[int, SharedState] | None:
        return self._try_take(weight, counts, 1)

    async def _change(self, change: Change) -> SharedState:
        def apply(fields: Fields) -> tuple[Fields, SharedState]:
            state = SharedState(fields, self._parameters, self._now())
            state.change(change)
            return state.fields(fields.parameters), state

        return await self._wait_for(lambda: self._locked(apply))

    async def _look(self) -> SharedState:
        def look(fields: Fields) -> tuple[None, SharedState]:
            return None, SharedState(fields, fields.parameters or self._parameters, self._now())

        return await self._wait_for(lambda: self._locked(look, create=False))

    def _try_take(self, weight: float, counts: bool, most: int) -> tuple[int, SharedState] | None:
        def take(fields: Fields) -> tuple[Fields, tuple[int, SharedState]]:
            self._check_parameters(fields.parameters)
            state = SharedState(fields, self._parameters, self._now())
            granted = state.take(weight, counts, most)
            return state.fields(self._parameters), (granted, state)

        return self._locked(take)

    def _now(self) -> float:
        return self._clock().timestamp()

    async def _wait_for(self, operation: Callable[[], T | None]) -> T:
        """Return the result of an operation once it can lock the file."""
        # Polled, since a blocking flock would need a thread, which takes longer than a
        # lock is held.
        for _ in range(_LOCK_POLLS):
            if (result := operation()) is not None:
                return result
            await asyncio.sleep(_LOCK_POLL)
        raise self._unavailable("another process has locked it for too long")

    def _locked(
        self, operation: Callable[[Fields], tuple[Fields | None, T]], *, create: bool = True
    ) -> T | None:
        """Apply an operation to the state, and store the state that it returns.

        None: another process has the file locked.
        Without `create` a missing file is an unused bucket.
        """
        try:
            descriptor = local.open_private(self._path, closed=0o022, create=create)
        except FileNotFoundError as error:
            if create or not os.path.isdir(os.path.dirname(self._path)):
                raise self._unavailable(error.strerror) from None
            return operation(Fields())[1]
        except (OSError, local.NotPrivateError) as error:
            raise self._unavailable(_reason(error)) from None
        try:
            if not local.try_lock(descriptor):
                return None
            try:
                stored = self._read(descriptor, is_kept=create)
                fields, result = operation(stored)
                # Also where nothing was granted: what was clipped would be clipped for
                # ever.
                if fields not in (None, stored):
                    self._write(descriptor, fields)
                return result
            finally:
                local.unlock(descriptor)  # also for a child that was forked meanwhile
        except OSError as error:
            raise self._unavailable(_reason(error)) from None
        finally:
            os.close(descriptor)

    def _read(self, descriptor: int, *, is_kept: bool) -> Fields:
        """Return the state; from a damaged file, the one that this process wrote."""
        block = os.pread(descriptor, _SIZE, 0)
        body = block[: _BODY.size]
        checksum = _CHECKSUM.pack(zlib.crc32(body))
        if len(block) == _SIZE and block == body + checksum and body.startswith(_MAGIC):
            return Fields(*_BODY.unpack(body)[1:])
        if any(block) and not (block.startswith(_MAGIC) or _MAGIC.startswith(block)):
            raise self._unavailable(
                "it is not a bucket's file of this version: use another path, or delete it"
            )
        if block or self._fields is not None:
            if not is_kept:
                raise self._unavailable("it is damaged")
            if self._is_first("damaged"):
                _log.warning("%r was damaged: it continues from what this process last stored there", self)
        return self._fields or Fields()

    def _write(self, descriptor: int, fields: Fields) -> None:
        body = _BODY.pack(_MAGIC, *fields)
        # One write of less than a page: a process that is killed leaves the old state
        # or the new one.
        written = os.pwrite(descriptor, body + _CHECKSUM.pack(zlib.crc32(body)), 0)
        if written < _SIZE:
            raise self._unavailable(f"only {written} of {_SIZE} bytes were written")
        self._fields = fields

    def _unavailable(self, reason: str | None) -> BucketUnavailableError:
        if self._is_first("unavailable"):
            _log.warning("%r can't be used: %s", self, reason)
        return BucketUnavailableError(f"{self._path} can't be used: {reason}")


def _reason(error: OSError | local.NotPrivateError) -> str:
    if isinstance(error, local.NotPrivateError):
        return f"it {error}"
    return error.strerror or str(error)
