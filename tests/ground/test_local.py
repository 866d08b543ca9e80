"""Private files and locks between processes."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from asyncfin import local

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither modes nor flock")


def test_new_file_is_closed(tmp_path: Path) -> None:
    """A created file has mode 0600, whatever the umask, and an existing one is opened again."""
    path = tmp_path / "file"
    for _ in range(2):
        os.close(local.open_private(path))
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        ("folder", "must be a file, not a folder"),
        ("symlink", "must be a file, not a symlink"),
        ("pipe", "must be a file, not a device or pipe"),
        ("open", "must be closed to other users .* not of mode 640"),
    ],
)
def test_open_file_is_rejected(tmp_path: Path, kind: str, complaint: str) -> None:
    """The error says what the file must be, and what it is."""
    path = tmp_path / "file"
    if kind == "folder":
        path.mkdir()
    elif kind == "symlink":
        path.symlink_to(tmp_path / "other")
    elif kind == "pipe":
        os.mkfifo(path, 0o600)
    else:
        path.touch()
        path.chmod(0o640)
    with pytest.raises(local.NotPrivateError, match=complaint):
        local.open_private(path)


def test_lock_excludes_another_process(tmp_path: Path) -> None:
    """Shared locks exclude exclusive ones, and not each other."""
    path = tmp_path / "file"
    code = (
        "import sys; from asyncfin import local\n"
        f"sys.exit(not local.try_lock(local.open_private({str(path)!r}), exclusive=sys.argv[1] == 'yes'))"
    )

    def locked_by_another(exclusive: str) -> bool:
        return subprocess.run([sys.executable, "-c", code, exclusive], check=False).returncode == 0

    descriptor = local.open_private(path)
    assert local.try_lock(descriptor, exclusive=False)
    assert locked_by_another("no")
    assert not locked_by_another("yes")
    assert local.try_lock(descriptor)
    assert not locked_by_another("no")
    local.unlock(descriptor)
    assert locked_by_another("yes")
    os.close(descriptor)


@pytest.mark.skipif(os.name != "posix", reason="Windows has no modes")
def test_parent_folders_are_not_writable(tmp_path: Path) -> None:
    """Whatever the umask leaves: another user could put a folder in their place."""
    before = os.umask(0)
    try:
        local.make_private_folder(tmp_path / "a" / "b" / "private")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a", tmp_path / "a" / "b")]
    assert modes == [0o755, 0o755]
    assert stat.S_IMODE((tmp_path / "a" / "b" / "private").stat().st_mode) == 0o700
