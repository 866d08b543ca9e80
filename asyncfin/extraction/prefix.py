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
from time import monotonic, sleep
from typing import IO, Any, Literal

from attrs import frozen

from asyncfin.checks import without_password
from asyncfin.errors import ArgumentError, RunInProgressError, shorten
from asyncfin.extraction.place import (
    RENEW_SECONDS,
    STALE_SECONDS,
    Holder,
    holder_in,
    lock_path,
    read_bytes,
    taken_over,
)
from asyncfin.local import Fill
from asyncfin.optional import library

SCHEMES = ("s3", "gs", "az")
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
# How often a write of the lock is tried whose outcome is not certain.
_CLAIMS = 6

Condition = Literal["create"] | dict[str, Any]


class _NoConditionsError(Exception):
    """The store cannot write under conditions."""


@frozen(slots=False)
class Prefix:
    """The place of an extraction in an object store; see `Place`."""

    root: str
    name: str

    def __str__(self) -> str:
        return f"{self.root}/{self.name}"

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
            message = _first_line(error)
        raise ArgumentError(f"to: {self}: {message}")

    @contextmanager
    def _failing(self) -> Iterator[Any]:
        """Yield obstore, and raise its errors as OSErrors."""
        obstore, kinds = (
            library("obstore", "store"),
            library("obstore.exceptions", "store"),
        )
        try:
            yield obstore
        except (FileNotFoundError, kinds.BaseError) as error:
            raise self._as_os_error(error, kinds) from None

    def names(self, folder: str) -> list[str]:
        with self._failing() as obstore:
            keys = [
                entry["path"]
                for chunk in obstore.list(self._store, f"{folder}/")
                for entry in chunk
            ]
        return sorted(
            key[len(folder) + 1 :] for key in keys if key.endswith(".parquet")
        )

    def open(self, path: str) -> IO[bytes]:
        with self._failing() as obstore:
            size = obstore.head(self._store, path)["size"]
            if (
                size <= _READ_AT_ONCE
            ):  # in one request: it may be written again in between
                return BytesIO(bytes(obstore.get(self._store, path).bytes()))

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

    def lock(self, holder: Holder, stale: str | None = None) -> PrefixLock | str:
        lock = PrefixLock(self, holder)
        if not lock.claim({"e_tag": stale} if stale is not None else "create"):
            # None: it was released in between, and is taken at the next attempt.
            return self.tag() or stale or "released"
        if stale is None and lock.put("create"):
            # The second one must fail: this store ignores conditions without a word.
            lock.release()
            raise _unconditional(self)
        return lock

    def sweep(self) -> None:
        """Do nothing: an object is never there in part."""

    def tag(self) -> str | None:
        """Return the tag of the lock, which is another one after each change, or None
        without a lock.
        """
        with suppress(FileNotFoundError), self._failing() as obstore:
            tag: str | None = obstore.head(self._store, lock_path(self))["e_tag"]
            return tag
        return None

    def put_if(self, content: bytes, condition: Condition) -> str | None:
        """Write the lock if there is none, or if its tag is the given one; return its
        new tag.

        None: the condition does not hold, or that is not certain, since an attempt
        whose response was lost may have reached the store.
        """
        kinds = library("obstore.exceptions", "store")
        with self._failing() as obstore:
            try:
                written = obstore.put(
                    self._store,
                    lock_path(self),
                    content,
                    mode=condition,
                    use_multipart=False,
                )
            except (kinds.NotSupportedError, NotImplementedError):
                raise _NoConditionsError from None
            except (kinds.AlreadyExistsError, kinds.PreconditionError):
                return None
            except kinds.BaseError as error:
                if "status code: 501 " in str(error):
                    raise _NoConditionsError from None
                if re.search(r"status code: (409|412) ", str(error)):
                    return None
                raise
        tag: str | None = written["e_tag"]
        return tag

    def _as_os_error(self, error: Exception, kinds: Any) -> OSError:
        text, place = str(error), str(self)
        # obstore has one class for both, and the user must do something else about a
        # bucket.
        if "NoSuchBucket" in text or "ContainerNotFound" in text:
            return FileNotFoundError(errno.ENOENT, "there is no such bucket", place)
        if isinstance(error, (FileNotFoundError, kinds.NotFoundError)):
            return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), place)
        reason = _first_line(error)
        # Listings that are rejected raise the general class.
        rejected = "403 Forbidden" in text or "401 Unauthorized" in text
        if rejected or isinstance(
            error, (kinds.PermissionDeniedError, kinds.UnauthenticatedError)
        ):
            return PermissionError(
                errno.EACCES, f"the store rejects these credentials ({reason})", place
            )
        return OSError(errno.EIO, f"the store failed ({reason})", place)


class PrefixLock:
    """Excludes other runs from a prefix by an object that is only written under
    conditions.
    """

    def __init__(self, place: Prefix, holder: Holder) -> None:
        self._place, self._holder = place, holder
        self._tag: str | None = None  # of the lock as this run wrote it
        self._renewed = 0.0
        self._lost = False

    def claim(self, condition: Condition) -> bool:
        """Write the lock under a condition; return whether this run holds it."""
        for attempt in range(_CLAIMS):
            # Before the request: other runs count from when it reaches the store, which
            # is not earlier.
            sent = monotonic()
            if self.put(condition):
                self._renewed = sent
                return True
            # A rejection proves nothing: an earlier attempt of this write may have
            # reached the store, or the store may be busy. Only the object shows whose
            # lock it is.
            tag = self._place.tag()
            content = read_bytes(self._place, lock_path(self._place))
            if content is None:
                if condition != "create":
                    return False
            elif not self._is_own(content):
                return False
            else:
                self._tag = tag
                if content == self._holder.content:
                    self._renewed = sent
                    return True
                condition = {"e_tag": tag}
            sleep(0.1 * 2**attempt)
        raise OSError(
            errno.EIO, "the store rejects each write of the lock", str(self._place)
        )

    def put(self, condition: Condition) -> bool:
        """Write the lock under a condition, and return whether that certainly held."""
        # Different each time: the ETag of S3 is that of the content.
        self._holder = self._holder.renew()
        try:
            tag = self._place.put_if(self._holder.content, condition)
        except _NoConditionsError:
            raise _unconditional(self._place) from None
        self._tag = tag or self._tag
        return tag is not None

    def renew(self) -> None:
        if not self._lost:
            # While the store is away, no other run can take the lock; `check` raises
            # when it is stale.
            with suppress(OSError):
                self._lost = not self.claim({"e_tag": self._tag})

    def check(self) -> None:
        if self._lost:
            raise taken_over(self._place)
        # A minute before the others may think so: what is being written then gets there
        # in time.
        if monotonic() - self._renewed >= STALE_SECONDS - RENEW_SECONDS:
            raise RunInProgressError(
                f"{self._place}: its lock could not be renewed in time, so another run "
                "may have taken over,"
                " and nothing more is written"
            )

    def release(self) -> None:
        """Delete the lock, unless another run has it. One that can't be deleted becomes
        stale.
        """
        with suppress(OSError):
            if not self._lost and self._is_own(
                read_bytes(self._place, lock_path(self._place)) or b""
            ):
                self._place.remove(lock_path(self._place))
        self._lost = True

    def _is_own(self, content: bytes) -> bool:
        holder = holder_in(content)
        return holder is not None and holder.owner == self._holder.owner


class _Ranges(RawIOBase):
    """An object that is read in ranges."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read, self._size, self._position = read, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[
            whence
        ]
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        end = min(self._position + len(buffer), self._size)
        if end <= self._position:  # a range of no bytes is an error
            return 0
        content = self._read(self._position, end)
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)


def prefix_at(scheme: str, address: str) -> Prefix:
    """Return the place of an address: ``s3://bucket/prefix``, or the same with ``gs``
    or ``az``.
    """
    # No bucket's name contains other characters. What precedes the "/" of
    # s3://key:sec/ret@bucket does.
    parts = re.fullmatch(r"\w+://([\w.-]*)(/[^?#]*)?", address, re.ASCII)
    if parts is None:
        # Not shown: it may hold a secret.
        raise ArgumentError(
            f"to: a {scheme}: address must not hold a user, a password, ? or #: "
            "credentials come from"
            " the environment (AWS_ACCESS_KEY_ID and the like)"
        )
    bucket, path = parts.groups()
    segments = (path or "").strip("/").split("/")
    if not bucket or not all(segments) or {".", ".."} & set(segments):
        raise ArgumentError(
            f"to: {without_password(address)!r} is not a prefix of a bucket; give"
            f" {scheme}://bucket/prefix: the lock is next to the prefix"
        )
    return Prefix(f"{scheme}://{bucket}", "/".join(segments))


def _unconditional(place: Prefix) -> ArgumentError:
    return ArgumentError(
        f"to: {place}: this store has no conditional writes, which keep two runs apart:"
        " lock=False (--no-lock) if there is certainly no other"
    )


def _first_line(error: Exception) -> str:
    """Return what a store's error reports, without the parameters of addresses: they
    may be signed.
    """
    return shorten(re.sub(r"\?\S+", "?...", str(error).partition("\n")[0]), 300)
