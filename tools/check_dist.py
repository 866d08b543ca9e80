"""Compare built distributions with what git tracks: `python tools/check_dist.py DIST`.

The wheel contains the tracked files of the package and its metadata, the sdist the
tracked files of the project. Anything else, or anything missing, is an error.
"""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Not of use to those who build from the sdist.
ONLY_IN_THE_REPOSITORY = (
    ".ci/",
    ".gitattributes",
    ".github/",
    ".pre-commit-config.yaml",
    "changelog.d/",
)
# The build backend adds it.
ONLY_IN_THE_SDIST = {"PKG-INFO"}


def tracked() -> set[str]:
    """Return the files that git tracks."""
    process = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(process.stdout.splitlines())


def difference(names: set[str], expected: set[str]) -> list[str]:
    """Return a line for each file that is in one of the two sets only."""
    return [f"not expected: {name}" for name in sorted(names - expected)] + [
        f"missing: {name}" for name in sorted(expected - names)
    ]


def main(dist: Path) -> int:
    """Print what the distributions in `dist` contain; return 1 if they differ from the
    tracked files.
    """
    [wheel], [sdist] = dist.glob("*.whl"), dist.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = {name for name in archive.namelist() if ".dist-info/" not in name}
    with tarfile.open(sdist) as archive_:
        in_sdist = {
            name.partition("/")[2] for name in archive_.getnames()
        } - ONLY_IN_THE_SDIST
    files = tracked()
    package = {name for name in files if name.startswith("asyncfin/")}
    project = {name for name in files if not name.startswith(ONLY_IN_THE_REPOSITORY)}
    problems = [f"{wheel.name}: {line}" for line in difference(in_wheel, package)]
    problems += [f"{sdist.name}: {line}" for line in difference(in_sdist, project)]
    print(f"{wheel.name}: {len(in_wheel)} files, {wheel.stat().st_size:,} bytes")
    print(f"{sdist.name}: {len(in_sdist)} files, {sdist.stat().st_size:,} bytes")
    print(*problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
