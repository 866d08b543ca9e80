"""An extraction in an object store: S3, Google Cloud Storage or Azure. obstore is imported inside.

Every object says itself what it is, in its metadata and in the footer of its Parquet file, so there is no
journal. The lock is an object beside the prefix, which is only written under conditions.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from attrs import evolve, frozen

from asyncfin.errors import ArgumentError, ManifestMismatchError
from asyncfin.errors import bounded as cut
from asyncfin.extraction.folder import file_name
from asyncfin.extraction.parquet import EntityFile, Footer, Written, read_footer
from asyncfin.extraction.question import Lacking, SharedQuestion, differences, text_hash
from asyncfin.extraction.report import Failure
from asyncfin.extraction.strict import structure
from asyncfin.model.catalogue import Dataset, is_same_publication
from asyncfin.table.optional import library
from asyncfin.wire.tasks import bounded, cancel_and_wait

SCHEMES = ("s3", "gs", "az")
# The lock is renewed each minute, and taken over when nobody has renewed it for five, by the monotonic clock
# of the run that waits: clocks are not compared.
RENEW_SECONDS = 60.0
STALE_SECONDS = 300.0
# How often who waits for a lock looks whether it is renewed.
_LOOK_SECONDS = 5.0
_ATTRIBUTE = "asyncfin"
# S3 takes 2 kB of metadata in all.
_MOST_METADATA = 1500
_TAIL = 65_536
_HEADS = 32
_RETRY = {
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
                f"a {parts.scheme}: address has no user, password, ? and #: credentials come from the"
                " environment (AWS_ACCESS_KEY_ID and the like)"
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
class _Described:
    """What the metadata of an object say. `lacking` is None where it would be too long."""

    entity_id: str
    dataset_id: str
    question: str
    rows: int
    requests: int
    sha256: str
    lacking: Lacking | None


@frozen
class _Found:
    """An object of an extraction. `question` is the hash of its question's text."""

    entity_id: str
    question: str
    written: Written


class ObjectStore:
    """A prefix of a bucket; see `Store`.

    Args:
        prefix: where the objects stand.
        question: what they answer.
        lock: whether other runs are to be kept away.
    """

    def __init__(self, prefix: Prefix, question: SharedQuestion, *, lock: bool) -> None:
        self._prefix, self._question = prefix, question
        self._locks = lock
        self._lock: _Lock | None = None
        self._store: Any = None
        self.known: dict[str, Written] = {}
        self.repaired: str | None = None

    async def open(self, *, replace: bool) -> None:
        self._connect()
        if self._locks:
            self._lock = _Lock(self._store, self._prefix)
            await self._lock.take()
        others = await self._read()
        if not replace:
            await self._refuse_others(others)
            return
        obstore = library("obstore", "store")
        for found in others:
            with _naming(self._prefix):
                await obstore.delete_async(self._store, self._prefix.key(found.entity_id))

    async def look(self, *, replace: bool) -> None:
        self._connect()
        others = await self._read()
        if not replace:
            await self._refuse_others(others)

    async def join(self, known: dict[str, Written], entity_ids: Iterable[str]) -> None:
        self._connect()
        self.known = known
        obstore = library("obstore", "store")
        for entity_id in entity_ids:
            if entity_id not in known:
                with suppress(FileNotFoundError), _naming(self._prefix):
                    key = self._prefix.key(entity_id)
                    found = await self._described(await obstore.head_async(self._store, key))
                    if found.question == self._question.hash:
                        self.known[entity_id] = found.written

    def path(self, entity_id: str) -> str:
        return f"{self._prefix.bucket}/{self._prefix.key(entity_id)}"

    def check(self) -> None:
        if self._lock is not None and self._lock.lost is not None:
            raise self._lock.lost

    async def is_current(self, dataset: Dataset) -> bool:
        # An object is never there in part.
        return is_same_publication(self.known[dataset.entity_id].dataset_id, dataset.dataset_id)

    async def put(self, file: EntityFile, began: datetime) -> None:
        self.check()
        obstore = library("obstore", "store")
        described = {
            "entity_id": file.entity_id,
            "dataset_id": file.written.dataset_id,
            "question": self._question.hash,
            "rows": file.written.rows,
            "requests": file.written.requests,
            "sha256": file.written.sha256,
            "lacking": dict(file.written.lacking),
        }
        if len(text := json.dumps(described)) > _MOST_METADATA:  # the footer has the names all the same
            text = json.dumps(described | {"lacking": None})
        with _naming(self._prefix):
            await obstore.put_async(
                self._store,
                self._prefix.key(file.entity_id),
                file.content,
                attributes={_ATTRIBUTE: text, "Content-Type": "application/vnd.apache.parquet"},
                use_multipart=False,  # one request, so that there is never a part of an object
            )
        self.known[file.entity_id] = file.written

    async def note_written(self, entity_id: str, written: Written, began: datetime) -> None:
        self.known[entity_id] = written

    async def note_unchanged(self, entity_id: str, began: datetime) -> None:
        pass

    async def note_failed(self, entity_id: str, failure: Failure, requests: int, began: datetime) -> None:
        pass

    async def aclose(self) -> None:
        if self._lock is not None:
            await self._lock.release()

    def _connect(self) -> None:
        library("pyarrow.parquet", "arrow")
        library("obstore", "store")
        from_url = library("obstore.store", "store").from_url
        try:
            self._store = from_url(self._prefix.bucket, retry_config=_RETRY)
        except Exception as error:  # noqa: BLE001  of any class, about the configuration
            message = _first_line(error)
        else:
            return
        raise ArgumentError(f"to: {self._prefix}: {message}")

    async def _read(self) -> list[_Found]:
        """Read what the objects say of themselves, and return those of other questions.

        Raises:
            ManifestMismatchError: an object is of no extraction.
        """
        obstore = library("obstore", "store")
        listed: list[Any] = []
        with _naming(self._prefix):
            async for chunk in obstore.list(self._store, f"{self._prefix.prefix}/"):
                listed += [each for each in chunk if each["path"].endswith(".parquet")]
        others = []
        async with bounded([partial(self._described, each) for each in listed], _HEADS) as described:
            async for found in described:
                if found.question == self._question.hash:
                    self.known[found.entity_id] = found.written
                else:
                    others.append(found)
        return others

    async def _described(self, listed: Any) -> _Found:
        """Return what an object says of itself: its metadata, or the footer of its file.

        Raises:
            ManifestMismatchError: it is of no extraction.
        """
        obstore = library("obstore", "store")
        key, size = listed["path"], listed["size"]
        with _naming(self._prefix):
            # Metadata cost a request for each object and no bytes; a footer is read only where they lack.
            head = await obstore.get_async(self._store, key, options={"head": True})
        found = None
        with suppress(ValueError):
            said = structure(json.loads(head.attributes.get(_ATTRIBUTE, "")), _Described)
            lacking = said.lacking
            if lacking is None:
                footer = await self._footer(key, size)
                lacking = footer.written.lacking if footer is not None else {}
            written = Written(said.dataset_id, said.rows, size, said.sha256, said.requests, lacking)
            found = _Found(said.entity_id, said.question, written)
        if found is None and (footer := await self._footer(key, size)) is not None:
            # A copy of an object may have lost its metadata.
            written = evolve(footer.written, bytes=size)
            found = _Found(footer.entity_id, text_hash(footer.question), written)
        if found is None or self._prefix.key(found.entity_id) != key:
            raise ManifestMismatchError(
                f"{self._prefix.bucket}/{key} is of no extraction, and readers would take it for part of the"
                " table: remove it, or name another prefix"
            )
        return found

    async def _footer(self, key: str, size: int) -> Footer | None:
        """Return what the end of an object's file says of it."""
        obstore = library("obstore", "store")
        length = _TAIL
        for _ in range(2):
            start = max(0, size - length)
            with _naming(self._prefix):
                tail = bytes(await obstore.get_range_async(self._store, key, start=start, end=size))
            # The last eight bytes: the length of the metadata before them, and a magic word.
            length = int.from_bytes(tail[-8:-4], "little") + 8
            if length <= len(tail) or start == 0:
                break
        return await asyncio.to_thread(read_footer, tail)

    async def _refuse_others(self, others: list[_Found]) -> None:
        """Refuse a prefix with objects of another question; those without rows keep no question out.

        Raises:
            ManifestMismatchError: there are some; the message says how the questions differ.
        """
        for found in others:
            if found.written.rows == 0:
                continue
            key = self._prefix.key(found.entity_id)
            footer = await self._footer(key, found.written.bytes)
            differing = differences(self._question.text, footer.question) if footer is not None else key
            raise ManifestMismatchError(
                f"{self._prefix} belongs to another question, which differs in {differing}: name another"
                " prefix, or have its objects deleted (replace=True; --replace on the command line)"
            )


class _Lock:
    """An object that says that a run is at work; `lost` is set once another run may be."""

    def __init__(self, store: Any, prefix: Prefix) -> None:
        self._store, self._prefix = store, prefix
        self._owner, self._count = uuid4().hex, 0
        self._tag: str | None = None
        self._renewing: asyncio.Task[None] | None = None
        self.lost: ManifestMismatchError | None = None

    async def take(self) -> None:
        """Take the lock, also one that has not been renewed for five minutes.

        Raises:
            ManifestMismatchError: another run is at work.
            ArgumentError: the store has no conditional writes.
        """
        loop = asyncio.get_running_loop()
        if not await self._put("create"):
            await self.await_stale(loop.time)
        elif await self._put("create"):
            # The second one must fail: this store says nothing of conditions, and keeps none.
            raise self.unconditional()
        self._renewing = asyncio.ensure_future(self.renew(loop.time))

    async def release(self) -> None:
        """Delete the lock, unless it is another run's by now."""
        if self._renewing is not None:
            await cancel_and_wait([self._renewing])
            if self.lost is None:
                obstore = library("obstore", "store")
                with suppress(OSError), _naming(self._prefix):  # it becomes stale by itself
                    await obstore.delete_async(self._store, self._prefix.lock)

    async def _put(self, mode: Any) -> bool:
        """Write the lock under a condition, and return whether that held."""
        obstore = library("obstore", "store")
        exceptions = library("obstore.exceptions", "store")
        # Different each time: the ETag of S3 is that of the content.
        self._count += 1
        body = f"{self._owner} {self._count}".encode()
        try:
            with _naming(self._prefix):
                written = await obstore.put_async(
                    self._store, self._prefix.lock, body, mode=mode, use_multipart=False
                )
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            return False
        except (exceptions.NotSupportedError, NotImplementedError):
            raise self.unconditional() from None
        self._tag = written["e_tag"]
        return True

    async def await_stale(self, time: Any) -> None:
        # A lock that is renewed has another tag each time. One that keeps its tag for five minutes is
        # nobody's: the run that replaces just that tag has taken it over, and all others fail.
        seen, since = await self.current_tag(), time()
        while seen is not None and time() - since < STALE_SECONDS:
            await asyncio.sleep(min(_LOOK_SECONDS, STALE_SECONDS / 10))
            if (tag := await self.current_tag()) not in (seen, None):
                raise self.at_work()
            if tag is None:
                seen = None
        if not await self._put("create" if seen is None else {"e_tag": seen}):
            raise self.at_work()

    async def renew(self, time: Any) -> None:
        renewed = time()
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            try:
                # The order matters: only where the write fails is it worth a request to see whose the lock
                # is.
                if await self._put({"e_tag": self._tag}) or await self.is_ours():
                    renewed = time()
                    continue
            except OSError:
                # The store is away. Nobody else can take the lock before it is stale, counted from then.
                if time() - renewed < STALE_SECONDS - RENEW_SECONDS:
                    continue
            self.lost = ManifestMismatchError(
                f"another run has taken over {self._prefix}: its lock was not renewed in time, and nothing"
                " more is written"
            )
            return

    async def is_ours(self) -> bool:
        """Return whether the lock is this run's: a 409, or a write that was sent twice, leaves it open."""
        obstore = library("obstore", "store")
        try:
            with _naming(self._prefix):
                found = await obstore.get_async(self._store, self._prefix.lock)
                content = bytes(await found.bytes_async())
        except FileNotFoundError:
            return False
        self._tag = found.meta["e_tag"]
        return content.startswith(self._owner.encode())

    async def current_tag(self) -> str | None:
        obstore = library("obstore", "store")
        try:
            with _naming(self._prefix):
                tag: str | None = (await obstore.head_async(self._store, self._prefix.lock))["e_tag"]
        except FileNotFoundError:
            return None
        return tag

    def at_work(self) -> ManifestMismatchError:
        return ManifestMismatchError(f"another run is at work on {self._prefix}: let it end, or stop it")

    def unconditional(self) -> ArgumentError:
        return ArgumentError(
            f"to: {self._prefix}: this store has no conditional writes, which keep two runs apart:"
            " lock=False (--no-lock) if there is certainly no other"
        )


@contextmanager
def _naming(prefix: Prefix) -> Iterator[None]:
    """Turn a failure of the store into an OSError that names the place.

    Raises:
        FileNotFoundError: there is no such bucket, or no such object.
        PermissionError: the credentials are wrong, or allow it not.
        OSError: the store cannot be reached, or failed.
    """
    exceptions = library("obstore.exceptions", "store")
    try:
        yield
    except (FileNotFoundError, exceptions.BaseError) as error:
        if isinstance(
            error, (exceptions.AlreadyExistsError, exceptions.PreconditionError, exceptions.NotSupportedError)
        ):
            raise
        failure = _meant(prefix, error)
    else:
        return
    raise failure


def _meant(prefix: Prefix, error: Exception) -> OSError:
    exceptions = library("obstore.exceptions", "store")
    text = str(error)
    if "NoSuchBucket" in text or "ContainerNotFound" in text:
        return FileNotFoundError(errno.ENOENT, "there is no such bucket", str(prefix))
    if isinstance(error, (FileNotFoundError, exceptions.NotFoundError)):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(prefix))
    if isinstance(error, (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError)):
        return PermissionError(
            errno.EACCES, f"the store refuses these credentials ({_first_line(error)})", str(prefix)
        )
    return OSError(errno.EIO, f"the store failed ({_first_line(error)})", str(prefix))


def _first_line(error: Exception) -> str:
    """Return what a store's error says, without the parameters of addresses: they may be signed."""
    return cut(re.sub(r"\?\S+", "?...", str(error).partition("\n")[0]), 300)
