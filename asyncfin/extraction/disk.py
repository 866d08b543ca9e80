"""What goes wrong on disk, in one form: an OSError that names the file, or no journal of ours."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from asyncfin.errors import ManifestMismatchError


@contextmanager
def failing(path: Path) -> Iterator[None]:
    """Say which file a failure of SQLite or of pyarrow is about, and what it means.

    Raises:
        OSError: it can't be read or written, with the errno that says why.
        ManifestMismatchError: it is no SQLite file of ours.
    """
    try:
        yield
    except sqlite3.DatabaseError as error:
        failure = _meant(path, error)
    except OSError as error:
        if error.filename is not None or error.errno is None:
            raise
        failure = OSError(error.errno, os.strerror(error.errno), str(path))
    else:
        return
    raise failure


def _meant(path: Path, error: sqlite3.DatabaseError) -> Exception:
    match getattr(error, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_FULL:
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
            return PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        case sqlite3.SQLITE_NOTADB | sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_ERROR:
            return ManifestMismatchError(
                f"{path} is no journal of an extraction ({error}): name another folder"
            )
    return OSError(errno.EIO, f"{os.strerror(errno.EIO)} ({error})", str(path))
