"""Where an extraction's files are: a folder, or a prefix of a bucket, behind six calls
that block.

Paths are relative to the folder or bucket that contains the data, and use slashes:

    night/<entity_id>.parquet      the data, and nothing else
    _night.journal/                the lock, the outcomes of runs, on disks parts
    _night.changes/                the change feed

Readers of Parquet skip names that begin with an underscore.
"""

from __future__ import annotations

import json
import os
import socket
from abc import ABC, abstractmethod
from datetime import datetime
from hashlib import sha256
from typing import IO, Annotated, Any, TypeVar
from urllib.parse import quote
from uuid import uuid4

import msgspec
from attrs import asdict, evolve, field, frozen

from asyncfin.clock import utc_now, utc_text
from asyncfin.errors import RunInProgressError, own_version
from asyncfin.local import Fill

T = TypeVar("T")
# A time with an offset from UTC.
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
# A run renews its lock each minute; one that was not renewed for five minutes is that
# of a killed run.
RENEW_SECONDS = 60.0
STALE_SECONDS = 300.0
# File systems take 255 bytes, of which ".parquet" is a part.
_LONGEST = 247


@frozen
class Holder:
    """The run that holds a lock, as the lock names it in JSON.

    Attributes:
        owner: a random text: two runs of one process id differ in it.
        host, pid: its machine and process.
        began, renewed: when it took the lock, and renewed it last, as ISO text by its
            machine's clock. No two contents of its locks have an equal `renewed`.
        version: the library's.
    """

    owner: str = field(factory=lambda: uuid4().hex)
    host: str = field(factory=socket.gethostname)
    pid: int = field(factory=os.getpid)
    began: Moment = field(factory=utc_now)
    renewed: Moment = field(factory=utc_now)
    version: str = field(factory=own_version)

    def renew(self) -> Holder:
        """Return the holder as it is to be written next."""
        return evolve(self, renewed=utc_now())

    @property
    def content(self) -> bytes:
        """The content of its lock."""
        times = {"began": utc_text(self.began), "renewed": utc_text(self.renewed)}
        return json.dumps(asdict(self) | times).encode()


def structure(value: Any, kind: type[T]) -> T:
    """Return plain data as an object; unknown keys pass.

    Raises:
        ValueError: the data do not fit: no type is coerced.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"not a {kind.__name__}: {error}") from None


class Lock(ABC):
    """A lock that this run holds."""

    @abstractmethod
    def renew(self) -> None:
        """Note that the run is still at work."""

    @abstractmethod
    def check(self) -> None:
        """Raise RunInProgressError if another run may have taken the lock over."""

    @abstractmethod
    def release(self) -> None:
        """End the lock; it does nothing the second time."""


@frozen(slots=False)
class Place(ABC):
    """The files of an extraction and of its change feed.

    Attributes:
        root: the folder or the bucket's URL.
        name: the path of the data.
    """

    root: str
    name: str

    def __str__(self) -> str:
        return self.url(self.name)

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Return the paths of the Parquet files below a folder, relative to it and
        sorted.
        """

    @abstractmethod
    def open(self, path: str) -> IO[bytes]:
        """Open a file for reading.

        Raises:
            FileNotFoundError: it does not exist.
            OSError: it can't be read; it has an `errno`, unlike pyarrow's errors of
                damaged files.
        """

    @abstractmethod
    def write(self, path: str, fill: Fill) -> None:
        """Write a file that appears when it is complete and durable; `fill` writes its
        content.

        Raises:
            OSError: it can't be written; nothing has changed.
        """

    @abstractmethod
    def remove(self, path: str) -> None:
        """Delete a file, if it exists."""

    @abstractmethod
    def lock(self, holder: Holder, stale: str | None = None) -> Lock | str:
        """Take the lock, or return what identifies the lock of another run.

        `stale` is what was returned for a lock that has not changed for
        `STALE_SECONDS`: it is taken over.

        Raises:
            RunInProgressError: another run is certainly at work.
            ArgumentError: the store has no conditional writes.
            OSError: the lock can't be written.
        """

    @abstractmethod
    def sweep(self) -> None:
        """Delete the unfinished files that killed runs have left."""

    @abstractmethod
    def is_running(self) -> bool:
        """Return whether a run holds the lock, as far as can be seen."""

    def url(self, path: str) -> str:
        """Return the full path or URL of a file."""
        return f"{self.root.rstrip('/')}/{path}"

    def beside(self, kind: str) -> str:
        """Return the path of a folder next to the data: ``journal`` or ``changes``."""
        head, slash, tail = self.name.rpartition("/")
        return f"{head}{slash}_{tail}.{kind}"

    @property
    def lock_path(self) -> str:
        """The path of the lock."""
        return f"{self.beside('journal')}/lock"

    def entity_path(self, entity_id: str) -> str:
        """Return the path of an entity's file."""
        return f"{self.name}/{file_name(entity_id)}.parquet"

    def read_bytes(self, path: str) -> bytes | None:
        """Return the content of a small file, or None if it does not exist."""
        try:
            with self.open(path) as stream:
                return stream.read()
        except FileNotFoundError:
            return None

    def read_holder(self) -> Holder | None:
        """Return the run that took the lock last, or None if no lock names one."""
        content = self.read_bytes(self.lock_path)
        try:
            return None if content is None else structure(json.loads(content), Holder)
        except ValueError:
            return None

    def check_owner(self, owner: str) -> None:
        """Raise RunInProgressError if the lock is that of another run."""
        holder = self.read_holder()
        if holder is not None and holder.owner != owner:
            raise RunInProgressError(
                f"another run has taken over {self}, and nothing more is written"
            )


def file_name(entity_id: str) -> str:
    """Return an id as part of a file name or key: with %XX, a long one as its beginning
    and its hash.
    """
    name = quote(entity_id, safe="")
    if len(name) <= _LONGEST:
        return name
    # No other name has a plus sign, so the two kinds stay apart.
    return f"{name[: _LONGEST - 65]}+{sha256(entity_id.encode()).hexdigest()}"
