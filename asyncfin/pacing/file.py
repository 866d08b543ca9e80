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
from pathlib import Path
from typing import TypeVar

from asyncfin import checks, local
from asyncfin.clock import utc_now
from asyncfin.errors import ArgumentError, BucketUnavailableError
from asyncfin.local import SUPPORTED
from asyncfin.pacing.booking import SharedBucket, SharedLedger
from asyncfin.pacing.bucket import Parameters
from asyncfin.pacing.ledger import Booking, Day, Ledger, State

T = TypeVar("T")

# The head of the file, which is the same in every format: a version of the library that writes another one
# knows what was spent. Kind of file, format, 0, day, spent, exhausted until, and the CRC of these.
_HEAD = struct.Struct("<4sHHqdd")
_CRC = struct.Struct("<I")
_HEAD_BYTES = _HEAD.size + _CRC.size
_MAGIC = b"AFBK"
FORMAT = 1
# In this format the CRC and the length of the state follow, and the state. A longer earlier state may leave
# bytes behind the end.
_STATE = struct.Struct("<IH")
# What was written before the head was fixed.
_UNRELEASED = (b"AFB1", b"AFB2")
_MOST = 4096
# A lock is held for microseconds; a process that was stopped during them holds it for longer.
_LOCK_POLL = 0.001
_LOCK_POLLS = 5_000
# A stamp further in the future than this, in seconds, is another clock's.
_OTHER_CLOCK = 1.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_log = logging.getLogger("asyncfin")


def _boot_id() -> str:
    """Return the id of this start of the machine, or "" where the system has none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


class FileBucket(SharedBucket):
    """Paces the requests of all processes of this machine that name the same file.

    Over any period in which the file keeps its state, they together send at most
    ``burst + rate * seconds + 2`` requests. Busy processes get equal shares. A pause, a used-up allowance and
    a learned rate apply to all of them. The file must be on a local disk, not on NFS; for several machines
    use `RedisBucket`.

    Args:
        path: the file, which is created if it is missing, for this user alone. Its folder must exist.
        rate: weight per second. None: no pace until the service first refuses (429); from then on all
            processes learn the rate together from its refusals.
        burst: how much may be granted at once after a rest, at least 1.
        daily_budget: how much all processes together may grant between two midnights UTC (spec 8), at
            least 1; None: no bound but the service's own.
        clock: returns the wall time, aware UTC; for tests.
        monotonic: returns the seconds that all processes share; for tests.
        boot_id: returns a text that is different after each start of the machine; for tests.

    If processes give different `rate`, `burst` or `daily_budget`, those of the last to start apply to all,
    and a warning is logged that names both.

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
        monotonic: Callable[[], float] = time.monotonic,
        boot_id: Callable[[], str] = _boot_id,
    ) -> None:
        if not SUPPORTED:
            raise ArgumentError(
                "a FileBucket needs a POSIX system, not Windows: use a TokenBucket or a RedisBucket"
            )
        given = checks.local_path("path", "file", path, "a Redis server is for a RedisBucket")
        parameters = Parameters.checked(rate, burst, daily_budget)
        self._path = os.path.abspath(given)
        super().__init__(FileLedger(self._path, parameters, clock, monotonic, boot_id), parameters)

    def __repr__(self) -> str:
        return f"FileBucket({self._path!r}, {self._given})"


class FileLedger(SharedLedger):
    def __init__(
        self,
        path: str,
        parameters: Parameters,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float],
        boot_id: Callable[[], str],
    ) -> None:
        self._path = path
        self._parameters = parameters
        self._clock, self._monotonic, self._boot_id = clock, monotonic, boot_id
        self._descriptor: int | None = None
        self._pid = 0
        self._known_boot: str | None = None  # of the machine whose clock the processes share
        self._ahead = 0.0  # how far that clock is ahead of this process's
        self._warned = False
        self._warned_of_format = False
        self._started = False
        self._used = False  # by this process
        self._written = False  # by this process, to the file that is open

    def try_reserve(self, weight: float, counts: bool) -> tuple[Booking, State] | None:
        return self._try(lambda ledger: ledger.reserve(weight, counts))

    def try_look(self) -> State | None:
        if self._descriptor is None:  # not used yet, or closed
            return None
        try:
            seen = self._try(_nothing, write=False)
        except BucketUnavailableError:
            return None
        return seen and seen[1]

    async def reserve(self, weight: float, counts: bool, most: int) -> tuple[Booking, State]:
        return await self._do(lambda ledger: ledger.reserve(weight, counts, most))

    async def confirm(self, booked: Booking, weight: float, counts: bool) -> tuple[Booking, State]:
        return await self._do(lambda ledger: ledger.confirm(booked, weight, counts))

    async def cancel(self, booked: Booking, weight: float) -> State:
        return (await self._do(lambda ledger: ledger.cancel(booked, weight)))[1]

    async def give_back(self, weight: float, counts: bool, moment: float | None) -> State:
        assert moment is not None
        return (await self._do(lambda ledger: ledger.give_back(weight, counts, moment)))[1]

    async def unspend(self, weight: float, moment: float | None) -> State:
        assert moment is not None
        return (await self._do(lambda ledger: ledger.unspend(weight, moment)))[1]

    async def state(self, *, now: bool = False) -> State:
        return (await self._do(_nothing))[1]

    async def inspect(self) -> State:
        return (await self._do(_nothing, write=False))[1]

    async def pause(self, seconds: float) -> State:
        return (await self._do(lambda ledger: ledger.pause(seconds)))[1]

    async def exhaust(self, seconds: float) -> State:
        return (await self._do(lambda ledger: ledger.exhaust(seconds)))[1]

    async def resume(self) -> State:
        return (await self._do(Ledger.resume, configure=False))[1]

    async def learn(self, known: bytes, learned: bytes, rate: float | None, pause: float) -> State | None:
        replaced, state = await self._do(lambda ledger: ledger.learn(known, learned, rate, pause))
        return state if replaced else None

    async def aclose(self) -> None:
        if self._descriptor is not None and self._pid == os.getpid():
            os.close(self._descriptor)
        self._descriptor = None

    async def _do(
        self, operation: Callable[[Ledger], T], *, write: bool = True, configure: bool = True
    ) -> tuple[T, State]:
        """Apply one operation to the state, once no other process has it locked."""
        # Polled, since a blocking flock would need a thread, which takes longer than a lock is held.
        for _ in range(_LOCK_POLLS):
            if (outcome := self._try(operation, write=write, configure=configure)) is not None:
                return outcome
            await asyncio.sleep(_LOCK_POLL)
        raise BucketUnavailableError(f"{self._path} has been locked by another process for too long")

    def _try(
        self, operation: Callable[[Ledger], T], *, write: bool = True, configure: bool = True
    ) -> tuple[T, State] | None:
        """Return the result of one operation and the state after it; None: another process has it locked.

        Without `write` the state is not stored, and a missing file is an unused bucket, which is not created.
        `configure`: whether the first operation of a process applies its parameters.
        """
        try:
            while True:
                try:
                    descriptor = self._opened(create=write)
                except FileNotFoundError:
                    if write or not os.path.isdir(os.path.dirname(self._path)):
                        raise
                    return self._apply(None, operation)
                if not local.try_lock(descriptor):
                    return None
                try:
                    if self._is_current(descriptor):
                        return self._apply(descriptor, operation, write=write, configure=configure)
                finally:
                    local.unlock(descriptor)
                # The file was deleted, renamed or replaced: other processes use the one at the path.
                os.close(descriptor)
                self._descriptor = None
        except OSError as error:
            raise BucketUnavailableError(f"{self._path} can't be used: {error.strerror or error}") from None

    def _opened(self, *, create: bool) -> int:
        # At first use, and again after a fork: an older descriptor shares the parent's lock.
        if self._descriptor is None or self._pid != os.getpid():
            try:
                # Other users may read it: the state contains no secret.
                descriptor = local.open_private(self._path, closed=0o022, create=create)
            except local.NotPrivateError as error:
                raise BucketUnavailableError(f"{self._path} can't be used: it {error}") from None
            if self._descriptor is not None:
                os.close(self._descriptor)
            self._descriptor, self._pid, self._written = descriptor, os.getpid(), False
        return self._descriptor

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(descriptor))
        except FileNotFoundError:
            return False

    def _apply(
        self,
        descriptor: int | None,
        operation: Callable[[Ledger], T],
        *,
        write: bool = False,
        configure: bool = False,
    ) -> tuple[T, State]:
        wall = self._clock().timestamp()
        block = b"" if descriptor is None else os.pread(descriptor, _MOST, 0)
        if (ledger := self._read(block, wall)) is None:
            if block or self._written:
                if not write:
                    raise BucketUnavailableError(f"{self._path} can't be read: it is damaged")
                _log.warning("%s was damaged: state reset; today's spending is unknown", self._path)
            ledger = self._new(wall)
        ledger.at(self._now(ledger), wall)
        if descriptor is None or not write:
            return operation(ledger), ledger.state()
        if configure and not self._started:
            self._started = True
            if ledger.parameters != self._parameters:
                _log.warning(
                    "%s: (rate, burst, daily_budget) were %r and are now %r, from the last process to start",
                    self._path,
                    ledger.parameters,
                    tuple(self._parameters),
                )
                ledger.configure(*self._parameters)
        outcome = operation(ledger)
        # One write of less than a page: a process that is killed leaves the old state or the new one.
        head, state = _HEAD.pack(_MAGIC, FORMAT, 0, *ledger.day), ledger.dump()
        crc = _CRC.pack(zlib.crc32(head))
        os.pwrite(descriptor, head + crc + _STATE.pack(zlib.crc32(state), len(state)) + state, 0)
        self._written = self._used = True
        return outcome, ledger.state()

    def _now(self, ledger: Ledger) -> float:
        """Return the time of the clock that the processes share."""
        now = self._monotonic() + self._ahead
        if ledger.boot != self._boot():
            if not self._used:  # the machine was restarted, and its clock too; the file outlasted it
                ledger.restart(self._boot())
                return now
            # No process outlasts a restart: the file is another machine's too.
            self._known_boot = ledger.boot
        elif ledger.now <= now + _OTHER_CLOCK:
            if self._ahead and ledger.now > now:
                # The stamp that this process has followed was an old one: this one is closer.
                self._ahead += ledger.now - now
                return ledger.now
            return now
        # From here on both clocks advance alike, so what is booked and held stays true.
        self._ahead += ledger.now - now
        if not self._warned:
            self._warned = True
            _log.warning(
                "%s is used by processes with different monotonic clocks, as in time namespaces or on several"
                " machines: this process follows the others' clock; use a RedisBucket for several machines",
                self._path,
            )
        return ledger.now

    def _boot(self) -> str:
        if self._known_boot is None:
            self._known_boot = self._boot_id()
        return self._known_boot

    def _new(self, wall: float) -> Ledger:
        # An epoch that no booking of an earlier state has.
        return Ledger(*self._parameters, epoch=int(wall * 1e6), boot=self._boot())

    def _read(self, block: bytes, wall: float) -> Ledger | None:
        """Return the state in a file's first bytes, or None if it is empty or damaged."""
        if (head := _head(block)) is not None:
            found, day = head
            if found == FORMAT and (state := _state(block)) is not None:
                return Ledger.load(state, day)
            if found == FORMAT:
                _log.warning("%s was damaged: the pace starts over; today's spending is kept", self._path)
            elif not self._warned_of_format:
                self._warned_of_format = True
                _log.warning(
                    "%s has format %d, and this version of asyncfin writes format %d: today's spending is"
                    " kept, and the pace starts over; use one version",
                    *(self._path, found, FORMAT),
                )
            return self._continued(day, wall)
        magic = block[: len(_MAGIC)]
        if magic in _UNRELEASED:
            raise BucketUnavailableError(
                f"{self._path} can't be used: it was written before asyncfin 0.1.0; delete it"
            )
        # Damage leaves most of a bucket's first bytes, or zeros: anything else is other data.
        if any(magic) and sum(map(eq, magic, _MAGIC)) < len(magic) - 1:
            raise BucketUnavailableError(
                f"{self._path} can't be used: it is not a bucket's file; give another path"
            )
        return None

    def _continued(self, day: Day, wall: float) -> Ledger:
        """Return a new bucket that is empty, and knows what was spent."""
        ledger = self._new(wall)
        ledger.day = day
        ledger.at(self._now(ledger), wall)
        ledger.gcra.spend(ledger.gcra.burst, ledger.now)
        return ledger


def _head(block: bytes) -> tuple[int, Day] | None:
    """Return the format of a file and what was spent; None: its head is damaged, or it is another file."""
    if len(block) < _HEAD_BYTES or not block.startswith(_MAGIC):
        return None
    head, crc = block[: _HEAD.size], block[_HEAD.size : _HEAD_BYTES]
    if _CRC.unpack(crc) != (zlib.crc32(head),):
        return None
    _, format_number, _, *day = _HEAD.unpack(head)
    return format_number, Day(*day)


def _state(block: bytes) -> bytes | None:
    """Return the state that follows the head; None: it is damaged."""
    begin = _HEAD_BYTES + _STATE.size
    if len(block) <= begin:
        return None
    checksum, length = _STATE.unpack(block[_HEAD_BYTES:begin])
    state = block[begin:][:length]
    return state if len(state) == length and zlib.crc32(state) == checksum else None


def _nothing(ledger: Ledger) -> None:
    """Change nothing: the state is all that is wanted."""
