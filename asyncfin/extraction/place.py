"""Where an extraction's files are: a folder, or a prefix of a bucket, behind six calls
that block.

Paths are relative to the folder or bucket that contains the data, and use slashes:

    night/<entity_id>.parquet      the data, and nothing else
    _night.journal/                the lock, the outcomes of runs, and on disks unfinished files
    _night.changes/                the change feed

Readers of Parquet skip names that begin with an underscore.
"""

from __future__ import annotations

import json
import os
import socket
from datetime import datetime
from hashlib import sha256
from typing import IO, Annotated, Any, Protocol, TypeVar
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
            machine's clock.
        version: the library's.
        renewals: how often it has written the lock: two of its locks never have equal
            contents.
    """

    owner: str = field(factory=lambda: uuid4().hex)
    host: str = field(factory=socket.gethostname)
    pid: int = field(factory=os.getpid)
    began: Moment = field(factory=utc_now)
    renewed: Moment = field(factory=utc_now)
    version: str = field(factory=own_version)
    renewals: int = 0

    def renew(self) -> Holder:
        """Return the holder as it is to be written next."""
        return evolve(self, renewed=utc_now(), renewals=self.renewals + 1)

    @property
    def content(self) -> bytes:
        """The content of its lock."""
        times = {"began": utc_text(self.began), "renewed": utc_text(self.renewed)}
        return json.dumps(asdict(self) | times).encode()


def holder_in(content: bytes) -> Holder | None:
    """Return the holder that a lock names, or None if it names none."""
    try:
        return structure(json.loads(content), Holder)
    except ValueError:
        return None


def structure(value: Any, kind: type[T]) -> T:
    """Return plain data as an object; unknown keys pass.

    Raises:
        ValueError: the data do not fit: no type is coerced.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"not a {kind.__name__}: {error}") from None


class Lock(Protocol):
    """A lock that this run holds."""

    def renew(self) -> None:
        """Note that the run is still at work."""

    def check(self) -> None:
        """Raise RunInProgressError if another run has taken the lock over, or may have
        done so.
        """

    def release(self) -> None:
        """End the lock; it does nothing the second time."""


class Place(Protocol):
    """The files of an extraction and of its change feed.

    Attributes:
        root: the folder or the bucket's URL.
        name: the path of the data.
    """

    @property
    def root(self) -> str: ...

    @property
    def name(self) -> str: ...

    def names(self, folder: str) -> list[str]:
        """Return the paths of the Parquet files below a folder, relative to it and
        sorted.
        """

    def open(self, path: str) -> IO[bytes]:
        """Open a file for reading.

        Raises:
            FileNotFoundError: it does not exist.
            OSError: it can't be read; it has an `errno`, unlike pyarrow's errors of
                damaged files.
        """

    def write(self, path: str, fill: Fill) -> None:
        """Write a file that appears when it is complete and durable; `fill` writes its
        content.

        Raises:
            OSError: it can't be written; nothing has changed.
        """

    def remove(self, path: str) -> None:
        """Delete a file, if it exists."""

    def lock(self, holder: Holder, stale: str | None = None) -> Lock | str:
        """Take the lock, or return what identifies the lock of another run.

        `stale` is what was returned for a lock that has not changed for
        `STALE_SECONDS`: it is taken over.

        Raises:
            RunInProgressError: another run is certainly at work.
            ArgumentError: the store has no conditional writes.
            OSError: the lock can't be written.
        """

    def sweep(self) -> None:
        """Delete the unfinished files that killed runs have left."""


def beside(place: Place, kind: str) -> str:
    """Return the path of a folder next to the data: its ``journal`` or its
    ``changes``.
    """
    head, slash, tail = place.name.rpartition("/")
    return f"{head}{slash}_{tail}.{kind}"


def lock_path(place: Place) -> str:
    """Return the path of the lock."""
    return f"{beside(place, 'journal')}/lock"


def entity_path(place: Place, entity_id: str) -> str:
    """Return the path of an entity's file."""
    return f"{place.name}/{file_name(entity_id)}.parquet"


def url(place: Place, path: str) -> str:
    """Return the full path or URL of a file."""
    return f"{place.root.rstrip('/')}/{path}"


def file_name(entity_id: str) -> str:
    """Return an id as part of a file name or key: with %XX, a long one as its beginning
    and its hash.
    """
    name = quote(entity_id, safe="")
    if len(name) <= _LONGEST:
        return name
    # No other name has a plus sign, so the two kinds stay apart.
    return f"{name[: _LONGEST - 65]}+{sha256(entity_id.encode()).hexdigest()}"


def read_bytes(place: Place, path: str) -> bytes | None:
    """Return the content of a small file, or None if it does not exist."""
    try:
        with place.open(path) as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def read_holder(place: Place) -> Holder | None:
    """Return the run that took the lock last, or None if no lock names one."""
    content = read_bytes(place, lock_path(place))
    return None if content is None else holder_in(content)


def check_owner(place: Place, owner: str | None) -> None:
    """Raise RunInProgressError unless the lock is still that of a run, as its workers
    have to know it.
    """
    holder = read_holder(place) if owner is not None else None
    if (
        holder is not None and holder.owner != owner
    ):  # without one it is just being written
        raise taken_over(place)


def taken_over(place: Place) -> RunInProgressError:
    """Return the error of a run that has lost its lock."""
    return RunInProgressError(
        f"another run has taken over {place}, and nothing more is written"
    )
