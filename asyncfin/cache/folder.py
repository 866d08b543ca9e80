"""The folder of a FileCache: whose it must be, the salt of its account keys, and the locks of processes.

Unix only: it stands on `flock` and on the owners and modes of files.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import EACCES, EISDIR, ELOOP, ENXIO
from pathlib import Path
from time import monotonic, sleep

from asyncfin.errors import ArgumentError

try:
    import fcntl
except ImportError:  # Windows, where a FileCache is refused when it is made
    SUPPORTED = False
else:
    SUPPORTED = True

# Entities share this many files for their claims, made when they are needed: a file an entity would never be
# deleted. Two that share one wait for each other's requests, so there are many: of 8 entities asked for at
# once, some two share one of 4,096 in 0.7 % of cases, and one of 64 in 36 %.
_STRIPES = 4_096
_SALT_BYTES = 32


def prepare(folder: Path) -> None:
    """Make the folder if it is not there.

    Raises:
        ArgumentError: it is not a folder, or not this user's alone.
        OSError: it can't be made.
    """
    try:
        # Refused below, as what it leads to may be anybody's.
        if not folder.is_symlink():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                folder.mkdir(0o700)
    except (FileExistsError, NotADirectoryError):
        raise ArgumentError(f"the cache's {folder} must be a folder: a part of the path is a file") from None
    _refuse(folder, os.lstat(folder), stat.S_ISDIR, "a folder")


def open_private(path: Path) -> int:
    """Open a file of the folder for reading and writing, made if it is not there, and return its descriptor.

    Raises:
        ArgumentError: it is not a file, or not this user's alone.
        OSError: it can't be opened.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno in (ELOOP, EISDIR, ENXIO):
            raise ArgumentError(f"the cache's {path} must be a file, not {_kind(path)}") from None
        if error.errno == EACCES:  # as of another user, who keeps it from this one
            with suppress(FileNotFoundError):
                _refuse(path, os.lstat(path), stat.S_ISREG, "a file")
        raise
    try:
        _refuse(path, os.fstat(descriptor), stat.S_ISREG, "a file")
    except ArgumentError:
        os.close(descriptor)
        raise
    return descriptor


def _refuse(path: Path, found: os.stat_result, is_kind: Callable[[int], bool], wanted: str) -> None:
    if not is_kind(found.st_mode):
        raise ArgumentError(f"the cache's {path} must be {wanted}, not {_kind(path)}")
    if found.st_uid != os.geteuid():
        raise ArgumentError(f"the cache's {path} must be this user's, not that of user {found.st_uid}")
    if found.st_mode & 0o077:
        raise ArgumentError(
            f"the cache's {path} must be closed to other users (chmod go= on it), not of mode"
            f" {stat.S_IMODE(found.st_mode):o}"
        )


def _kind(path: Path) -> str:
    kinds = {stat.S_ISLNK: "a symlink", stat.S_ISDIR: "a folder", stat.S_ISREG: "a file"}
    mode = os.lstat(path).st_mode
    return next((kind for is_kind, kind in kinds.items() if is_kind(mode)), "a device or pipe")


def salt(folder: Path) -> bytes:
    """Return the salt of the folder's account keys; the first process makes it."""
    path = folder / "salt"
    for _ in range(3):
        descriptor = open_private(path)
        try:
            with lock(descriptor, exclusive=True, seconds=10):
                if len(known := os.read(descriptor, _SALT_BYTES)) == _SALT_BYTES:
                    return known
                # New, or cut off: what was kept under the old one is not found any more, and evicted.
                os.lseek(descriptor, 0, os.SEEK_SET)
                made = secrets.token_bytes(_SALT_BYTES)
                if os.write(descriptor, made) == len(made):
                    return made
        finally:
            os.close(descriptor)
    raise OSError(f"{path} can't be written")


@contextmanager
def lock(descriptor: int, *, exclusive: bool, seconds: float = 0) -> Iterator[None]:
    """Hold a lock between processes while the block lasts.

    Raises:
        BlockingIOError: another process holds it, even after `seconds`.
    """
    take_lock(descriptor, exclusive=exclusive, seconds=seconds)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def take_lock(descriptor: int, *, exclusive: bool, seconds: float = 0) -> None:
    """Take a lock between processes, or exchange a shared one for an exclusive one or back.

    Raises:
        BlockingIOError: another process holds it, even after `seconds`.
    """
    # flock and not lockf: a lock of lockf is gone as soon as any descriptor of the file is closed.
    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    until = monotonic() + seconds
    while True:
        try:
            return fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() >= until:
                raise
        sleep(0.02)


class Claim:
    """A claim on an entity between processes, which is given up when the process ends, however it ends."""

    def __init__(self, folder: Path, stripe: int) -> None:
        self._path = folder / f"claim-{stripe % _STRIPES:04d}"
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Take the claim if nobody else has it; never waits."""
        if self._descriptor is None:
            self._descriptor = open_private(self._path)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Give the claim up, or the attempt to take it."""
        if self._descriptor is not None:
            # Unlocked and not only closed: a child made meanwhile shares the lock, and may live for long.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None
