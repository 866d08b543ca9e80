"""A prefix of a bucket as the place of an extraction: S3, Google Cloud Storage or
Azure, over obstore.

Every failure is an OSError that names the prefix: FileNotFoundError where the bucket or
object does not exist, PermissionError where the credentials are wrong or insufficient.
The coroutines of obstore are not used: the thread that delivers a result into the loop
can still be about to leave it when the interpreter ends, which aborts the process.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cached_property
from io import BufferedReader, BytesIO, RawIOBase
from tempfile import TemporaryFile
from time import monotonic
from typing import IO, Any, Literal

from attrs import define, field, frozen

from asyncfin.clock import utc_now
from asyncfin.errors import ArgumentError, RunInProgressError, shorten
from asyncfin.extraction.place import (
    RENEW_SECONDS,
    STALE_SECONDS,
    Holder,
    Lock,
    Place,
    parse,
)
from asyncfin.local import Fill
from asyncfin.optional import library

# Bytes of a range: a footer is read by one request.
_READ_AT_ONCE = 1 << 16
# The store's client repeats a request for so long: a failing store must not fail an
# entity.
_RETRY: dict[str, Any] = {
    "max_retries": 1_000,  # never reached: the time bounds the attempts
    "retry_timeout": timedelta(seconds=60),
    "backoff": {
        "init_backoff": timedelta(seconds=0.2),
        "max_backoff": timedelta(seconds=2),
        "base": 2,
    },
}

Condition = Literal["create"] | dict[str, Any]


@frozen(slots=False)
class Prefix(Place):
    """The place of an extraction in an object store; see `Place`."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Prefix, (self.root, self.name)

    @cached_property
    def _store(self) -> Any:
        try:
            return library("obstore.store", "store").from_url(
                self.root, retry_config=_RETRY
            )
        except ImportError:
            raise
        except Exception as error:  # noqa: BLE001  of any class, about the configuration
            message = _cut_message(error)
        raise ArgumentError(f"to: {self}: {message}")

    @contextmanager
    def _failing(self) -> Iterator[Any]:
        """Yield obstore, and raise its errors as OSErrors."""
        obstore = library("obstore", "store")
        kinds = library("obstore.exceptions", "store")
        try:
            yield obstore
        except (FileNotFoundError, kinds.BaseError) as error:
            raise self._as_os_error(error, kinds) from None

    def parquet_paths(self, folder: str) -> list[str]:
        paths: list[str] = []
        with self._failing() as obstore:
            for chunk in obstore.list(self._store, f"{folder}/"):
                paths += (entry["path"] for entry in chunk)
        return sorted(path for path in paths if path.endswith(".parquet"))

    def open(self, path: str) -> IO[bytes]:
        with self._failing() as obstore:
            size = obstore.head(self._store, path)["size"]
            # In one request: it may be written again in between.
            if size <= _READ_AT_ONCE:
                response = obstore.get(self._store, path)
                return BytesIO(bytes(response.bytes()))

        def read(start: int, end: int) -> bytes:
            with self._failing() as obstore:
                return bytes(obstore.get_range(self._store, path, start=start, end=end))

        return BufferedReader(_Ranges(read, size), _READ_AT_ONCE)

    def write(self, path: str, fill: Fill) -> None:
        # On disk first: a run's file can be larger than memory.
        with TemporaryFile() as content, self._failing() as obstore:
            fill(content)
            content.seek(0)
            obstore.put(self._store, path, content)

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError), self._failing() as obstore:
            obstore.delete(self._store, path)

    def lock(self, holder: Holder, stale: str | None = None) -> Lock | str:
        lock = PrefixLock(holder.owner, place=self, holder=holder)
        condition: Condition = "create" if stale is None else {"e_tag": stale}
        if not lock.put(condition):
            # An attempt whose response was lost may have written it.
            lock.renew()
            if not lock.is_held:
                # Without a tag it was released in between: the next attempt takes it.
                return self.read_lock()[1] or "released"
        elif stale is None and lock.put("create"):
            # The second one must fail: this store ignores conditions without a word.
            lock.release()
            raise self._reject_store()
        return lock

    def is_running(self) -> bool:
        holder = self.read_journal("lock", Holder)
        if holder is None:
            return False
        # One that was not renewed twice may be the lock of a killed run.
        age = (utc_now() - holder.renewed).total_seconds()
        return age < 2 * RENEW_SECONDS

    def sweep(self) -> None:
        """Do nothing: an object is never there in part."""

    def read_lock(self) -> tuple[str | None, str | None]:
        """Return the owner of the lock, if it names one, and its tag, which changes
        with it.
        """
        try:
            with self._failing() as obstore:
                lock = obstore.get(self._store, self.journal_path("lock"))
                tag = lock.meta["e_tag"]
                content = bytes(lock.bytes())
        except FileNotFoundError:
            return None, None
        holder = parse(content, Holder)
        return None if holder is None else holder.owner, tag

    def put_lock(self, content: bytes, condition: Condition) -> bool:
        """Write the lock if there is none, or if its tag is the one of the condition.

        Returns:
            whether that is certain: an attempt whose response was lost may have reached
            the store.
        """
        kinds = library("obstore.exceptions", "store")
        with self._failing() as obstore:
            try:
                obstore.put(
                    self._store,
                    self.journal_path("lock"),
                    content,
                    mode=condition,
                    use_multipart=False,
                )
            except (kinds.AlreadyExistsError, kinds.PreconditionError):
                return False
            except (kinds.NotSupportedError, NotImplementedError):
                raise self._reject_store() from None
            except kinds.BaseError as error:
                if "status code: 501 " in str(error):
                    raise self._reject_store() from None
                if re.search(r"status code: (409|412) ", str(error)):
                    return False
                raise
        return True

    def _reject_store(self) -> ArgumentError:
        return ArgumentError(
            f"to: {self}: this store has no conditional writes, which keep two runs "
            "apart: lock=False (--no-lock) if there is certainly no other"
        )

    def _as_os_error(self, error: Exception, kinds: Any) -> OSError:
        text = str(error)
        place = str(self)
        # obstore has one class for both, and the user must do something else about a
        # bucket.
        if "NoSuchBucket" in text or "ContainerNotFound" in text:
            return FileNotFoundError(errno.ENOENT, "there is no such bucket", place)
        if isinstance(error, (FileNotFoundError, kinds.NotFoundError)):
            return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), place)
        reason = _cut_message(error)
        # Listings that are rejected raise the general class.
        if re.search("40[13] (Forbidden|Unauthorized)", text) or isinstance(
            error, (kinds.PermissionDeniedError, kinds.UnauthenticatedError)
        ):
            return PermissionError(
                errno.EACCES, f"the store rejects these credentials ({reason})", place
            )
        return OSError(errno.EIO, f"the store failed ({reason})", place)


@define
class PrefixLock(Lock):
    """Excludes other runs from a prefix by an object that is only written under
    conditions.
    """

    _place: Prefix = field(kw_only=True)
    _holder: Holder = field(kw_only=True)
    _renewal: float = 0.0
    is_held: bool = False

    def put(self, condition: Condition) -> bool:
        """Write the lock under a condition, and return whether that certainly held."""
        # Before the request: other runs count from when it reaches the store, which is
        # not earlier.
        moment = monotonic()
        # Different each time: the ETag of S3 is that of the content.
        self._holder = self._holder.renew()
        if not self._place.put_lock(self._holder.content, condition):
            return False
        self._renewal = moment
        self.is_held = True
        return True

    def renew(self) -> None:
        # While the store is away, no other run can take the lock; `check` raises when
        # it is stale.
        with suppress(OSError):
            owner, tag = self._place.read_lock()
            if owner == self.owner:
                self.put({"e_tag": tag})
            else:
                self.is_held = False

    def check(self) -> None:
        # A minute before the others may think so: what is being written then gets there
        # in time.
        age = monotonic() - self._renewal
        if not self.is_held or age >= STALE_SECONDS - RENEW_SECONDS:
            raise RunInProgressError(
                f"another run has taken over {self._place}, or may have, as its lock "
                "could not be renewed in time: nothing more is written"
            )

    def release(self) -> None:
        """Delete the lock, unless another run has it. One that can't be deleted becomes
        stale.
        """
        with suppress(OSError):
            if self.is_held and self._place.read_lock()[0] == self.owner:
                self._place.remove(self._place.journal_path("lock"))
        self.is_held = False


class _Ranges(RawIOBase):
    """An object that is read in ranges."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read = read
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        end = min(self._position + len(buffer), self._size)
        if end <= self._position:  # a range of no bytes is an error
            return 0
        content = self._read(self._position, end)
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)


def _cut_message(error: Exception) -> str:
    """Return the first line of a store's error without the parameters of addresses:
    they may be signed.
    """
    line = str(error).partition("\n")[0]
    return shorten(re.sub(r"\?\S+", "?...", line), 300)
