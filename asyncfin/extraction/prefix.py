"""A prefix of a bucket, and its objects: S3, Google Cloud Storage or Azure. obstore is imported inside."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import IO, Any, Literal
from urllib.parse import unquote, urlsplit

from attrs import frozen

from asyncfin.errors import ArgumentError, bounded
from asyncfin.extraction.folder import file_name
from asyncfin.optional import library

SCHEMES = ("s3", "gs", "az")
# The store's own client retries, over a minute: a busy bucket must not fail an entity that cost requests.
RETRY = {
    "max_retries": 10,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=5), "base": 2},
}


@frozen
class Prefix:
    """Where an extraction stands in an object store: its keys are ``<prefix>/<entity_id>.parquet``."""

    bucket: str
    prefix: str

    @classmethod
    def at(cls, address: str) -> Prefix:
        """Return the place that an address names.

        Raises:
            ArgumentError: it is no ``s3://bucket/prefix``, or the like with ``gs`` or ``az``.
        """
        parts = urlsplit(address)
        if "@" in parts.netloc or parts.query or parts.fragment:
            # Not shown: it may hold a secret.
            raise ArgumentError(
                f"a {parts.scheme}: address must not hold a user, a password, ? or #: credentials come from"
                " the environment (AWS_ACCESS_KEY_ID and the like)"
            )
        segments = unquote(parts.path).strip("/").split("/")
        if not parts.netloc or not all(segments) or {".", ".."} & set(segments):
            raise ArgumentError(
                f"{address!r} is no prefix of a bucket: name {parts.scheme}://bucket/prefix, since the lock"
                " stands beside the prefix"
            )
        return cls(f"{parts.scheme}://{parts.netloc}", "/".join(segments))

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
    """What the store says of an object. `tag` is another one after each change."""

    key: str
    size: int
    tag: str | None
    attributes: Mapping[str, str]


class NoConditionsError(Exception):
    """The store cannot write under conditions."""


class Objects:
    """The objects of a bucket.

    Every failure is an OSError that names the prefix: FileNotFoundError where there is no such bucket or
    object, PermissionError where the credentials are wrong or insufficient.

    Raises:
        ImportError: obstore is not installed.
        ArgumentError: the environment does not tell how to reach the bucket.
    """

    def __init__(self, prefix: Prefix) -> None:
        self._prefix = prefix
        self._obstore = library("obstore", "store")
        self._errors = library("obstore.exceptions", "store")
        from_url = library("obstore.store", "store").from_url
        try:
            self._store = from_url(prefix.bucket, retry_config=RETRY)
        except Exception as error:  # noqa: BLE001  of any class, about the configuration
            message = _first_line(error)
        else:
            return
        raise ArgumentError(f"to: {prefix}: {message}")

    async def keys(self) -> list[str]:
        """Return the keys below the prefix."""
        with self._named_failures():
            found = self._obstore.list(self._store, f"{self._prefix.prefix}/")
            return [each["path"] async for chunk in found for each in chunk]

    async def head(self, key: str) -> Head:
        """Return what the store says of an object."""
        with self._named_failures():
            found = await self._obstore.get_async(self._store, key, options={"head": True})
        return Head(key, found.meta["size"], found.meta["e_tag"], found.attributes)

    async def read(self, key: str, start: int, end: int) -> bytes:
        """Return a part of an object."""
        with self._named_failures():
            return bytes(await self._obstore.get_range_async(self._store, key, start=start, end=end))

    async def put(self, key: str, content: bytes, attributes: Mapping[str, str]) -> None:
        """Write an object in one request, so that there is never a part of one."""
        with self._named_failures():
            await self._obstore.put_async(
                self._store, key, content, attributes=dict(attributes), use_multipart=False
            )

    async def put_if(
        self, key: str, content: bytes, condition: Literal["create"] | dict[str, Any]
    ) -> str | None:
        """Write an object if there is none, or if its tag is the given ``{"e_tag": tag}``.

        Returns:
            Its tag now; None where the condition does not hold.

        Raises:
            NoConditionsError: the store has none.
        """
        try:
            with self._named_failures():
                written = await self._obstore.put_async(
                    self._store, key, content, mode=condition, use_multipart=False
                )
        except (self._errors.AlreadyExistsError, self._errors.PreconditionError):
            return None
        except (self._errors.NotSupportedError, NotImplementedError):
            raise NoConditionsError from None
        tag: str | None = written["e_tag"]
        return tag

    async def delete(self, key: str) -> None:
        """Delete an object."""
        with self._named_failures():
            await self._obstore.delete_async(self._store, key)

    # The same for threads and programs without an event loop; these calls block.

    def keys_in(self, folder: str) -> list[str]:
        """Return the keys that begin with a folder."""
        with self._named_failures():
            return [each["path"] for chunk in self._obstore.list(self._store, folder) for each in chunk]

    def open(self, key: str) -> Any:
        """Return an object as a file that is read in ranges."""
        with self._named_failures():
            return self._obstore.open_reader(self._store, key)

    def upload(self, key: str, content: IO[bytes]) -> None:
        """Write an object, which appears when it is complete."""
        with self._named_failures():
            self._obstore.put(self._store, key, content)

    def remove(self, key: str) -> None:
        """Delete an object, if it exists."""
        with suppress(FileNotFoundError), self._named_failures():
            self._obstore.delete(self._store, key)

    @contextmanager
    def _named_failures(self) -> Iterator[None]:
        errors = self._errors
        try:
            yield
        except (errors.AlreadyExistsError, errors.PreconditionError, errors.NotSupportedError):
            raise
        except (FileNotFoundError, errors.BaseError) as error:
            failure = self._meant(error)
        else:
            return
        raise failure

    def _meant(self, error: Exception) -> OSError:
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


def _first_line(error: Exception) -> str:
    """Return what a store's error says, without the parameters of addresses: they may be signed."""
    return bounded(re.sub(r"\?\S+", "?...", str(error).partition("\n")[0]), 300)
