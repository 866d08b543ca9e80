"""Private files, files written as a whole, and locks between the processes of a
machine.

A private file or folder belongs to this user and is closed to others. Locks are `flock`
locks: they end with the process that holds them, however it ends. A descriptor must not
cross a fork, since parent and child would share its lock.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import EACCES, EISDIR, ELOOP, ENXIO
from pathlib import Path
from typing import IO

# Writes the content of a file.
Fill = Callable[[IO[bytes]], object]

# Windows has no flock, no owners and no modes: buckets and caches of files are refused
# there.
SUPPORTED = sys.platform != "win32"
if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


class NotPrivateError(Exception):
    """A path can't be used as a private file or folder; the text says what it must be,
    without the path.
    """


def make_private_folder(folder: Path) -> None:
    """Create a folder with mode 0700 unless it exists; its parents are created too,
    with 0755 at most.

    NotPrivateError: it is not a folder, belongs to another user, or is open to others.
    """
    try:
        if not folder.is_symlink():  # refused below: its target may belong to anybody
            # Not `parents=True`, which gives them what the umask leaves.
            for parent in reversed(folder.parents):
                if not parent.is_dir():
                    with suppress(FileExistsError):
                        parent.mkdir(0o755)
            with suppress(FileExistsError):
                folder.mkdir(0o700)
    except (FileExistsError, NotADirectoryError):
        raise NotPrivateError(
            "must be a folder: a part of the path is a file"
        ) from None
    _check_private(os.lstat(folder), stat.S_ISDIR, "a folder", 0o077)


def open_private(path: str | Path, *, mode_bits: int = 0o077) -> int:
    """Open a file for reading and writing, and return its descriptor; it is created
    with mode 0600.

    NotPrivateError: it is not a regular file, belongs to another user, or has one of
    the `mode_bits`.
    """
    # No symlinks, which could lead anywhere, and no wait for the other end of a pipe.
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno in (ELOOP, EISDIR, ENXIO):
            raise NotPrivateError(
                f"must be a file, not {_name_kind(os.lstat(path))}"
            ) from None
        if error.errno == EACCES:  # such as a file of another user
            with suppress(FileNotFoundError):
                _check_private(os.lstat(path), stat.S_ISREG, "a file", mode_bits)
        raise
    try:
        _check_private(os.fstat(descriptor), stat.S_ISREG, "a file", mode_bits)
    except NotPrivateError:
        os.close(descriptor)
        raise
    return descriptor


def _check_private(
    status: os.stat_result, is_kind: Callable[[int], bool], kind: str, mode_bits: int
) -> None:
    if not is_kind(status.st_mode):
        raise NotPrivateError(f"must be {kind}, not {_name_kind(status)}")
    if status.st_uid != os.geteuid():
        raise NotPrivateError(f"must be this user's, not that of user {status.st_uid}")
    if status.st_mode & mode_bits:
        rights = "go=" if mode_bits == 0o077 else "go-w"
        mode = stat.S_IMODE(status.st_mode)
        raise NotPrivateError(
            f"must be closed to other users (chmod {rights} on it), not of mode "
            f"{mode:o}"
        )


def _name_kind(status: os.stat_result) -> str:
    kinds = {
        stat.S_ISLNK: "a symlink",
        stat.S_ISDIR: "a folder",
        stat.S_ISREG: "a file",
    }
    return next(
        (kind for is_kind, kind in kinds.items() if is_kind(status.st_mode)),
        "a device or pipe",
    )


def try_lock(descriptor: int, *, exclusive: bool = True) -> bool:
    """Lock a file, or exchange the lock held for the other kind; False: another process
    excludes this one.

    It never waits. On Windows every lock is exclusive.
    """
    # Not lockf: a process loses such a lock when it closes any descriptor of the file.
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(
                descriptor,
                (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB,
            )
    except (BlockingIOError, PermissionError):
        return False
    return True


def unlock(descriptor: int) -> None:
    """Release the lock of a file, also for children that share the descriptor."""
    if sys.platform == "win32":
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)
    else:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add this path to an OSError of the block that names no file."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from None


def write_whole(file: Path, part: Path, fill: Fill) -> None:
    """Write a durable file; until it is complete it is `part`, and readers see the
    previous file.
    """
    try:
        with naming(part), part.open("wb") as target:
            fill(target)
            target.flush()
            os.fsync(target.fileno())
        with naming(file):
            part.replace(file)
        flush_names(file.parent)
    finally:
        part.unlink(missing_ok=True)


def flush_names(folder: Path) -> None:
    """Make renamings and deletions in a folder durable, where directories can be
    flushed.
    """
    if os.name == "posix":
        with naming(folder):
            names = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(names)
            finally:
                os.close(names)
