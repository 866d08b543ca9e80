"""A prefix of a bucket, and its objects: S3, Google Cloud Storage or Azure. obstore is imported inside."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from io import BufferedReader, RawIOBase
from itertools import count
from math import inf
from tempfile import TemporaryFile
from time import monotonic, sleep
from typing import IO, Any, Literal, TypeVar
from urllib.parse import unquote

from attrs import define, field, frozen

from asyncfin.checks import without_password
from asyncfin.errors import ArgumentError, shorten
from asyncfin.extraction.folder import file_name
from asyncfin.local import Fill
from asyncfin.optional import library
from asyncfin.tasks import in_thread

# Bytes of a range; most files of a change feed are smaller.
_READ_AT_ONCE = 1 << 20
SCHEMES = ("s3", "gs", "az")
# A call is repeated for a minute: a store that fails must not fail an entity that cost requests.
RETRY_SECONDS = 60.0
# All calls together, once what is in progress is dropped.
LAST_SECONDS = 5.0
# The store's own client repeats the requests of a call, of which a large file takes many. It can't know that
# the run is to end, so it gives up early, and the call is repeated.
RETRY: dict[str, Any] = {
    "max_retries": 1_000,  # never reached: the time bounds the attempts
    "retry_timeout": timedelta(seconds=LAST_SECONDS),
    "backoff": {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=2), "base": 2},
}
T = TypeVar("T")


@define
class Retries:
    """For how long the calls of a run to its store are repeated."""

    # By the monotonic clock: calls are repeated in threads too, which have no loop.
    _until: float = inf

    @property
    def are_ending(self) -> bool:
        return self._until < inf

    def end(self) -> None:
        """Let calls be repeated for 5 s from now, all together, also those that have begun."""
        self._until = min(self._until, monotonic() + LAST_SECONDS)

    def waits(self, now: Callable[[], float] = monotonic) -> Iterator[float]:
        """Yield the seconds to wait after each failed attempt, growing and jittered; at least one."""
        began = now()
        for attempt in count():
            left = min(began + RETRY_SECONDS, self._until) - now()
            if left <= 0 and attempt:
                return
            longest = min(0.1 * 2 ** min(attempt, 6), 5.0)
            seconds = random.uniform(longest / 2, longest)  # noqa: S311  a wait needs no secret
            yield max(0.0, min(seconds, left))


@frozen
class Prefix:
    """The place of an extraction in an object store: its keys are ``<prefix>/<entity_id>.parquet``."""

    bucket: str
    prefix: str
    retries: Retries = field(factory=Retries, eq=False, repr=False)

    @classmethod
    def at(cls, address: str) -> Prefix:
        """Return the place of an address: ``s3://bucket/prefix``, or the same with ``gs`` or ``az``."""
        scheme = address.partition(":")[0].lower()
        # No bucket's name contains other characters. What precedes the "/" of s3://key:sec/ret@bucket does.
        parts = re.fullmatch(r"\w+://([\w.-]*)(/[^?#]*)?", address, re.ASCII)
        if parts is None:
            # Not shown: it may hold a secret.
            raise ArgumentError(
                f"a {scheme}: address must not hold a user, a password, ? or #: credentials come from"
                " the environment (AWS_ACCESS_KEY_ID and the like)"
            )
        bucket, path = parts.groups()
        segments = unquote(path or "").strip("/").split("/")
        if not bucket or not all(segments) or {".", ".."} & set(segments):
            raise ArgumentError(
                f"{without_password(address)!r} is not a prefix of a bucket; give"
                f" {scheme}://bucket/prefix: the lock is next to the prefix"
            )
        return cls(f"{scheme}://{bucket}", "/".join(segments))

    def __str__(self) -> str:
        return f"{self.bucket}/{self.prefix}"

    def key(self, entity_id: str) -> str:
        """Return the key of an entity's object."""
        return f"{self.prefix}/{file_name(entity_id)}.parquet"

    @property
    def lock(self) -> str:
        """The key of the lock."""
        return f"{self.prefix}.journal/lock"


@frozen
class Head:
    """The metadata of an object."""

    size: int
    attributes: Mapping[str, str]


@frozen
class Content:
    """An object, its tag, which is another one after each change, and the store's time of the last one."""

    content: bytes
    tag: str | None
    modified: datetime


class NoConditionsError(Exception):
    """The store cannot write under conditions."""


class Objects:
    """The objects of a bucket; ArgumentError: the environment does not say how to reach it.

    Every failure is an OSError that names the prefix: FileNotFoundError where the bucket or object does
    not exist, PermissionError where the credentials are wrong or insufficient.

    The coroutines of obstore are not used: the thread that delivers a result into the loop can still be about
    to leave it when the interpreter ends, which aborts the process.
    """

    def __init__(self, prefix: Prefix) -> None:
        self._prefix = prefix
        self._obstore = library("obstore", "store")
        self._errors = library("obstore.exceptions", "store")
        from_url = library("obstore.store", "store").from_url
        try:
            self._patient = from_url(prefix.bucket, retry_config=RETRY)
            # A run that writes under a condition must look at the object before the next attempt.
            self._once = from_url(prefix.bucket, retry_config=RETRY | {"max_retries": 0})
        except Exception as error:  # noqa: BLE001  of any class, about the configuration
            message = _first_line(error)
        else:
            return
        raise ArgumentError(f"to: {prefix}: {message}")

    @property
    def _store(self) -> Any:
        return self._once if self._prefix.retries.are_ending else self._patient

    async def keys(self) -> list[str]:
        """Return the keys below the prefix."""

        return await self._retried(partial(self._listed, f"{self._prefix.prefix}/"))

    async def head(self, key: str) -> Head:
        """Return the metadata of an object."""

        def read() -> Head:
            found = self._obstore.get(self._store, key, options={"head": True})
            return Head(found.meta["size"], found.attributes)

        return await self._retried(read)

    async def get(self, key: str) -> Content:
        """Return an object with its tag."""

        def read() -> Content:
            found = self._obstore.get(self._store, key)
            return Content(bytes(found.bytes()), found.meta["e_tag"], found.meta["last_modified"])

        return await self._retried(read)

    async def read(self, key: str, start: int, end: int) -> bytes:
        """Return a part of an object."""
        return await self._retried(partial(self._range, key, start, end))

    async def put(self, key: str, content: bytes, attributes: Mapping[str, str]) -> None:
        """Write an object in one request, so that there is never a part of one."""

        def write() -> None:
            self._obstore.put(self._store, key, content, attributes=dict(attributes), use_multipart=False)

        await self._retried(write)

    async def put_if(
        self, key: str, content: bytes, condition: Literal["create"] | dict[str, Any]
    ) -> str | None:
        """Write an object if there is none, or if its tag is the given ``{"e_tag": tag}``; return its tag.

        None: the condition does not hold, or that is not certain, since an attempt whose response was lost
        may have reached the store.
        """

        def write() -> str | None:
            written = self._obstore.put(self._once, key, content, mode=condition, use_multipart=False)
            tag: str | None = written["e_tag"]
            return tag

        try:
            return await in_thread(write)
        except (self._errors.NotSupportedError, NotImplementedError):
            raise NoConditionsError from None
        except (FileNotFoundError, self._errors.BaseError) as error:
            if "status code: 501 " in str(error):
                raise NoConditionsError from None
            self._final_failure(error)
            return None

    async def delete(self, key: str) -> None:
        """Delete an object, if it exists."""

        with suppress(FileNotFoundError):  # a repeated attempt finds what the first has done
            await self._retried(lambda: self._obstore.delete(self._store, key))

    async def _retried(self, call: Callable[[], T]) -> T:
        """Return what a call without a condition returns; repeat it if that may help."""
        for seconds in self._prefix.retries.waits():
            try:
                return await in_thread(call)
            except (FileNotFoundError, self._errors.BaseError) as error:
                failure = self._final_failure(error)
            await asyncio.sleep(seconds)
        raise failure

    def _retried_here(self, call: Callable[[], T]) -> T:
        """Do the same as `_retried`, blocking."""
        for seconds in self._prefix.retries.waits():
            try:
                return call()
            except (FileNotFoundError, self._errors.BaseError) as error:
                failure = self._final_failure(error)
            sleep(seconds)
        raise failure

    def _final_failure(self, error: Exception) -> OSError:
        """Return the failure that an error means, if repeating the call may help; else raise it."""
        failure = self._as_os_error(error)
        refused = isinstance(error, (self._errors.AlreadyExistsError, self._errors.PreconditionError))
        # obstore has no class for these. It does not repeat refusals of listings and cut responses itself.
        failed = r"status code: (409|412|429|5\d\d) |response body|error sending request"
        if refused or re.search(failed, str(error)):
            return failure
        raise failure from None

    # The same for threads and programs without an event loop; these calls block.

    @property
    def name(self) -> str:
        """The prefix."""
        return self._prefix.prefix

    def __str__(self) -> str:
        return str(self._prefix)

    def names(self, folder: str) -> list[str]:
        """Return the names of the Parquet files in a folder; see `Tree`, of which this is one."""
        keys = self._retried_here(partial(self._listed, f"{folder}/"))
        names = [key[len(folder) + 1 :] for key in keys]
        return sorted(name for name in names if name.endswith(".parquet") and "/" not in name)

    def open(self, key: str) -> IO[bytes]:
        """Return an object as a file that is read in ranges."""
        size = self._retried_here(lambda: self._obstore.head(self._store, key)["size"])

        def read(start: int, end: int) -> bytes:
            return self._retried_here(partial(self._range, key, start, end))

        return BufferedReader(_Ranges(read, size), _READ_AT_ONCE)

    def _listed(self, start: str) -> list[str]:
        return [each["path"] for chunk in self._obstore.list(self._store, start) for each in chunk]

    def _range(self, key: str, start: int, end: int) -> bytes:
        return bytes(self._obstore.get_range(self._store, key, start=start, end=end))

    def write(self, key: str, fill: Fill) -> None:
        """Write an object, which appears when it is complete."""

        def put() -> None:
            content.seek(0)
            self._obstore.put(self._store, key, content)

        # On disk first: a run's file can be larger than memory.
        with TemporaryFile() as content:
            fill(content)
            self._retried_here(put)

    def remove(self, key: str) -> None:
        """Delete an object, if it exists."""
        with suppress(FileNotFoundError):
            self._retried_here(lambda: self._obstore.delete(self._store, key))

    def sweep(self, folder: str) -> None:
        """Do nothing: an object is never there in part."""

    def _as_os_error(self, error: Exception) -> OSError:
        text, place = str(error), str(self._prefix)
        # obstore has one class for both, and the user must do something else about a bucket.
        if "NoSuchBucket" in text or "ContainerNotFound" in text:
            return FileNotFoundError(errno.ENOENT, "there is no such bucket", place)
        if isinstance(error, (FileNotFoundError, self._errors.NotFoundError)):
            return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), place)
        said = _first_line(error)
        # Listings that are refused raise the general class.
        refused = "403 Forbidden" in text or "401 Unauthorized" in text
        if refused or isinstance(
            error, (self._errors.PermissionDeniedError, self._errors.UnauthenticatedError)
        ):
            return PermissionError(errno.EACCES, f"the store refuses these credentials ({said})", place)
        return OSError(errno.EIO, f"the store failed ({said})", place)


class _Ranges(RawIOBase):
    """An object that is read in ranges."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read, self._size, self._at = read, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:  # a range of no bytes is an error
            return 0
        content = self._read(self._at, end)
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)


def _first_line(error: Exception) -> str:
    """Return what a store's error says, without the parameters of addresses: they may be signed."""
    return shorten(re.sub(r"\?\S+", "?...", str(error).partition("\n")[0]), 300)
