"""A bucket shared by the processes of one machine, without a server: its state is a file.

Each operation locks the file (`flock`), reads the state, applies one operation of `Ledger` and writes it
back: some 50 microseconds, with no await in between. A process that is killed leaves no lock behind, and a
state that is either the one before or the one after.
"""

from __future__ import annotations

import asyncio
import logging
import os
import struct
import time
import zlib
from collections.abc import Callable
from datetime import datetime
from operator import eq
from typing import TypeVar

from asyncfin import local
from asyncfin.clock import utc_now
from asyncfin.errors import ArgumentError, BucketUnavailableError
from asyncfin.local import SUPPORTED
from asyncfin.pacing.booking import SharedBucket, Store
from asyncfin.pacing.bucket import check_rate, check_size
from asyncfin.pacing.ledger import Booking, Ledger

T = TypeVar("T")

# Before the state: what the file is, its format's number included, the state's checksum, and its length. Of a
# longer state before it something may be left behind the end.
_HEAD = struct.Struct("<4sIH")
_MAGIC = b"AFB1"
_MOST = 4096
# A lock is held for microseconds; so long only by a process that was stopped in them.
_LOCKED_TOO_LONG = 5.0
_LOCK_POLL = 0.001

_log = logging.getLogger("asyncfin")


class FileBucket(SharedBucket):
    """Paces the requests of all processes of this machine that name the same file.

    Over any period they together send at most ``burst + rate * seconds + 2`` requests. Busy processes get
    equal shares. A pause, a used-up allowance and a learned rate apply to all of them. The file must be on a
    local disk, not on NFS; for several machines use `RedisBucket`.

    Args:
        path: the file, which is made if it is not there, for this user alone. Its folder must exist.
        rate: weight per second. None: no pace until the service first refuses (429); from then on the rate
            is learned from its refusals, by all together.
        burst: how much may be granted at once after a rest, at least 1.
        daily_budget: how much all processes together may grant between two midnights UTC (spec 8), at
            least 1; None: no bound but the service's own.
        clock: returns the wall time, aware UTC; for tests.
        monotonic: returns the seconds that all processes share; for tests.

    Where processes give different `rate`, `burst` or `daily_budget`, those of the last to start are in force
    for all, and a warning is logged that names both.

    Raises:
        ArgumentError: an argument is not as described, or the platform is Windows.
    """

    _kind = "FileBucket"

    def __init__(
        self,
        path: str | os.PathLike[str],
        rate: float | None = None,
        burst: float = 1,
        *,
        daily_budget: float | None = None,
        clock: Callable[[], datetime] = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not SUPPORTED:
            raise ArgumentError(
                "a FileBucket needs a POSIX system, not Windows: use a TokenBucket or a RedisBucket"
            )
        if (
            not isinstance(path, (str, os.PathLike))
            or not isinstance(os.fspath(path), str)
            or not os.fspath(path)
        ):
            raise ArgumentError(f"path must be the path of a file, not {path!r}")
        check_rate("rate", rate)
        check_size("burst", burst)
        check_size.optional()("daily_budget", daily_budget)
        self._path = os.path.abspath(path)
        super().__init__(
            FileStore(self._path, rate, burst, daily_budget, clock, monotonic), rate, burst, daily_budget
        )

    def __repr__(self) -> str:
        rate = "None" if self._rate is None else f"{self._rate:g}"
        budget = "" if self._daily_budget is None else f", daily_budget={self._daily_budget:g}"
        return f"FileBucket({self._path!r}, {rate}, {self._burst:g}{budget})"


class FileStore(Store):
    def __init__(
        self,
        path: str,
        rate: float | None,
        burst: float,
        daily_budget: float | None,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
    ) -> None:
        self._path = path
        self._parameters = (rate, burst, daily_budget)
        self._clock, self._monotonic = clock, monotonic
        self._descriptor: int | None = None
        self._pid = 0
        self._started = False

    def try_reserve(self, weight: float, counts: bool) -> Booking | None:
        return self._try(lambda ledger: ledger.reserve(weight, counts))

    def try_look(self) -> Booking | None:
        if self._descriptor is None:  # not used yet, or closed
            return None
        try:
            return self._try(lambda ledger: ledger.look())
        except BucketUnavailableError:
            return None

    async def reserve(self, weight: float, counts: bool) -> Booking:
        return await self._do(lambda ledger: ledger.reserve(weight, counts))

    async def confirm(self, booked: Booking, weight: float, counts: bool) -> Booking:
        return await self._do(lambda ledger: ledger.confirm(booked, weight, counts))

    async def cancel(self, booked: Booking, weight: float) -> Booking:
        return await self._look_after(lambda ledger: ledger.cancel(booked, weight))

    async def give_back(self, weight: float, counts: bool, granted_at: float) -> Booking:
        return await self._look_after(lambda ledger: ledger.give_back(weight, counts, granted_at))

    async def unspend(self, weight: float, granted_at: float) -> Booking:
        return await self._look_after(lambda ledger: ledger.budget.unspend(weight, granted_at))

    async def look(self) -> Booking:
        return await self._do(lambda ledger: ledger.look())

    async def pause(self, seconds: float) -> Booking:
        return await self._look_after(lambda ledger: ledger.pause(seconds))

    async def exhaust(self, seconds: float) -> Booking:
        return await self._look_after(lambda ledger: ledger.exhaust(seconds))

    async def learn(self, known: bytes, learned: bytes, rate: float | None) -> Booking | None:
        def replace(ledger: Ledger) -> tuple[bool, Booking]:
            if same := ledger.learned == known:
                ledger.learned = learned
                ledger.set_rate(rate, ledger.gcra.burst)
            return same, ledger.look()

        replaced, booking = await self._do(replace)
        return booking if replaced else None

    async def aclose(self) -> None:
        if self._descriptor is not None and self._pid == os.getpid():
            os.close(self._descriptor)
        self._descriptor = None

    async def _look_after(self, change: Callable[[Ledger], None]) -> Booking:
        def changed(ledger: Ledger) -> Booking:
            change(ledger)
            return ledger.look()

        return await self._do(changed)

    async def _do(self, operation: Callable[[Ledger], T]) -> T:
        """Apply one operation to the state, once nobody else has it locked."""
        polls = 0
        # Polled, since a blocking flock would need a thread, which takes longer than a lock is held.
        while (outcome := self._try(operation)) is None:
            polls += 1
            if polls * _LOCK_POLL > _LOCKED_TOO_LONG:
                raise BucketUnavailableError(f"{self._path} has been locked by another process for too long")
            await asyncio.sleep(_LOCK_POLL)
        return outcome

    def _try(self, operation: Callable[[Ledger], T]) -> T | None:
        """Apply one operation to the state, or return None if somebody else has it locked."""
        try:
            while True:
                descriptor = self._opened()
                if not local.try_lock(descriptor):
                    return None
                try:
                    # A lock of a file that is no longer in the folder would keep nobody else out.
                    if os.fstat(descriptor).st_nlink:
                        return self._apply(descriptor, operation)
                finally:
                    local.unlock(descriptor)
                # The file was deleted: others make a new one, and this process must take that too.
                os.close(descriptor)
                self._descriptor = None
        except OSError as error:
            raise BucketUnavailableError(f"{self._path} can't be used: {error.strerror or error}") from None

    def _opened(self) -> int:
        # At the first use, and again after a fork: a descriptor from before it shares the parent's lock.
        if self._descriptor is None or self._pid != os.getpid():
            try:
                # Other users may read the bucket's state: it contains no secret.
                descriptor = local.open_private(self._path, closed=0o022)
            except local.NotPrivateError as error:
                raise BucketUnavailableError(f"{self._path} can't be used: it {error}") from None
            if self._descriptor is not None:
                os.close(self._descriptor)
            self._descriptor, self._pid = descriptor, os.getpid()
        return self._descriptor

    def _apply(self, descriptor: int, operation: Callable[[Ledger], T]) -> T:
        now, wall = self._monotonic(), self._clock().timestamp()
        block = os.pread(descriptor, _MOST, 0)
        ledger = self._read(block, wall)
        # The monotonic clock starts over at a reboot, and the file outlasts it.
        if ledger.now > now:
            ledger.restart()
        ledger.at(now, wall)
        if not self._started:
            self._started = True
            if ledger.parameters != self._parameters:
                _log.warning(
                    "%s: (rate, burst, daily_budget) were %r and are %r now, as the last to start has them",
                    self._path,
                    ledger.parameters,
                    self._parameters,
                )
                ledger.configure(*self._parameters)
        outcome = operation(ledger)
        # One write of less than a page: a process that is killed leaves the old state or the new one.
        state = ledger.dump()
        os.pwrite(descriptor, _HEAD.pack(_MAGIC, zlib.crc32(state), len(state)) + state, 0)
        return outcome

    def _read(self, block: bytes, wall: float) -> Ledger:
        if len(block) >= _HEAD.size:
            magic, checksum, length = _HEAD.unpack(block[: _HEAD.size])
            state = block[_HEAD.size :][:length]
            if magic == _MAGIC and len(state) == length and zlib.crc32(state) == checksum:
                return Ledger.load(state)
        begin = block[: len(_MAGIC)]
        # Damage leaves most of a bucket's first bytes, or zeros: anything else is somebody's data.
        if any(begin) and sum(map(eq, begin, _MAGIC)) < len(begin) - 1:
            raise BucketUnavailableError(f"{self._path} can't be used: it is no bucket's file; name another")
        if block:
            _log.warning(
                "%s was damaged: the bucket starts over, its day's spending is not known", self._path
            )
        # An epoch that no booking of a state before this one has.
        return Ledger(*self._parameters, epoch=int(wall * 1e6))
