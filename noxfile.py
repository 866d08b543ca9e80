"""What can be run on this project: `nox -s demo`, `nox -s tests`, and what maintainers
run in addition.
"""

import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PROJECT = nox.project.load_toml("pyproject.toml")
PYTHONS = nox.project.python_versions(PROJECT)
GROUPS = {
    name: nox.project.dependency_groups(PROJECT, name)
    for name in PROJECT["dependency-groups"]
}

# Neighbouring tests share fixtures that are slow to make; a worker that has run its own
# takes over others'. One worker more than cores: tests wait for processes and servers.
PARALLEL = ("-n", str((os.cpu_count() or 1) + 1), "--dist", "worksteal")

# Hundreds of tests start Python anew: without bytecode each start would compile all
# that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("UV_SYSTEM_CERTS", "1")
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False
nox.options.sessions = ["tests"]


def install(session: nox.Session, *groups: str, extras: str = "all") -> None:
    """Install the project with extras, if any, and dependency groups."""
    requirements = [requirement for group in groups for requirement in GROUPS[group]]
    session.install("-e", f".[{extras}]" if extras else ".", *requirements)


def counted(session: nox.Session, default: int) -> tuple[str, list[str]]:
    """Return the count that a session is given first, or the default, and the other
    arguments.
    """
    arguments = session.posargs
    if arguments and arguments[0].isdecimal():
        return arguments[0], arguments[1:]
    return str(default), arguments


def scratch(session: nox.Session) -> Path:
    """Return a folder for what the session makes.

    `create_tmp` would also set TMPDIR to a folder below the checkout, where the pytest
    that a test starts would read the pyproject.toml of the project.
    """
    return Path(session.virtualenv.location).resolve() / "scratch"


def environment(
    session: nox.Session, name: str, *requirements: str, interpreter: str = "python"
) -> str:
    """Make another virtual environment in the session, install into it, and return its
    Python.
    """
    place = scratch(session) / name
    session.run(interpreter, "-m", "venv", "--clear", str(place), external=True)
    python = str(place / "bin" / "python")
    session.run(python, "-m", "pip", "install", "-q", *requirements, external=True)
    return python


@nox.session
def demo(session: nox.Session) -> None:
    """Show the library at work on real figures, over HTTP, against the sandbox."""
    install(session, extras="cli")
    session.run("asyncfin", "sandbox", "--demo", *session.posargs)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests that need only Python and its packages, on all cores, and name the
    slowest.
    """
    install(session, "test")
    session.run(
        "python",
        "-m",
        "pytest",
        *PARALLEL,
        "--more=without",
        "--durations=20",
        *session.posargs,
    )


@nox.session
def tests_all(session: nox.Session) -> None:
    """Run all tests, or `-- --more=only` those that `tests` leaves out; say which are
    skipped and why.
    """
    install(session, "test-all")
    session.run(
        "python", "-m", "pytest", *PARALLEL, "-rs", "--durations=20", *session.posargs
    )


@nox.session
def coverage(session: nox.Session) -> None:
    """Run all tests, and compare the branch coverage of each room with the floors of
    tests/coverage.toml.
    """
    install(session, "test-all", "coverage")
    command = (
        "pytest",
        *PARALLEL,
        "--cov=asyncfin",
        "--cov-branch",
        "--cov-report=json",
        *session.posargs,
    )
    session.run("python", "-m", *command)
    session.run("python", "tools/check_coverage.py", "coverage.json")


@nox.session
def eager(session: nox.Session) -> None:
    """Run pacing, cache and read with tasks that begin with their creation, on each
    Python that has these.
    """
    rooms = ("tests/pacing", "tests/cache", "tests/read")
    versions = [version for version in PYTHONS if version != "3.11"]
    on_each(session, versions, *rooms, env={"ASYNCFIN_EAGER": "1"})


@nox.session
def rooms(session: nox.Session) -> None:
    """Run the tests of each room, or of the named ones, in one process: in file order,
    then at random.
    """
    install(session, "test-all")
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")}
    for room in session.posargs or sorted(folders):
        # A room whose libraries are missing collects nothing, and says so.
        command = ("python", "-m", "pytest", f"tests/{room}", "-q")
        session.run(*command, "-p", "no:randomly", success_codes=[0, 5])
        seed = random.randrange(2**32)
        session.log(
            f"again in random order: pytest tests/{room} --randomly-seed={seed}"
        )
        session.run(*command, f"--randomly-seed={seed}", success_codes=[0, 5])


@nox.session
def matrix(session: nox.Session) -> None:
    """Run the tests on every supported Python that is found here, and say how many that
    were.
    """
    on_each(session, PYTHONS)


def on_each(
    session: nox.Session,
    versions: Sequence[str],
    *paths: str,
    env: Mapping[str, str | None] | None = None,
) -> None:
    """Run tests on each of these versions that is found here, in a fresh
    environment.
    """
    interpreters = {
        version: path for version in versions if (path := _interpreter(version))
    }
    env = {
        **(env or {}),
        "VIRTUAL_ENV": None,
    }  # it names the session's, of which IPython warns in others
    for version, path in interpreters.items():
        python = environment(
            session, version, "-e", ".[all]", *GROUPS["test-all"], interpreter=path
        )
        session.run(
            python,
            "-m",
            "pytest",
            *PARALLEL,
            *paths,
            *session.posargs,
            external=True,
            env=env,
        )
    missing = [version for version in versions if version not in interpreters]
    names = ", ".join(interpreters) or "none"
    session.log(f"passed on {len(interpreters)} of {len(versions)}: {names}")
    if missing:
        session.log(f"not found here, not run: {', '.join(missing)}")
    if not interpreters:
        session.error("no supported Python was found")


def _interpreter(version: str) -> str | None:
    """Return the path of a working interpreter of this version, among PATH and
    pyenv's.
    """
    candidates = [shutil.which(f"python{version}")]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates += sorted(map(str, pyenv.glob(f"{version}.*/bin/python")))
    if sys.version_info[:2] == tuple(map(int, version.split("."))):
        candidates.append(sys.executable)
    for path in filter(None, candidates):
        check = (
            "import sys; raise SystemExit('%d.%d' % sys.version_info[:2] != "
            f"{version!r})"
        )
        if subprocess.run([path, "-c", check], check=False).returncode == 0:
            return path
    return None


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and types: of the library, and of a user's program that touches every
    public name.
    """
    install(session, "lint", "test")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("mypy", "--strict", "tests/typing/program.py")
    session.run("python", "tools/write_limits.py", "--check")


@nox.session
def pyright(session: nox.Session) -> None:
    """Check that program with the other type checker that users have; it needs
    Node.js.
    """
    install(session, "test")
    session.install("pyright")
    session.run("pyright", "tests/typing/program.py")


@nox.session
def contract(session: nox.Session) -> None:
    """Let schemathesis judge the sandbox by its own OpenAPI document."""
    install(session, "contract", extras="")
    session.run("python", "-m", "tools.checks.contract_openapi", *session.posargs)


@nox.session
def nginx(session: nox.Session) -> None:
    """Check the pace of buckets and of workers against nginx, where it is installed."""
    install(session, extras="arrow,redis")
    session.run("python", "-m", "tools.checks.nginx_buckets", *session.posargs)
    session.run("python", "-m", "tools.checks.nginx_workers")


@nox.session
def release(session: nox.Session) -> None:
    """Prepare a release: `nox -s release -- 0.2.0`. Nothing is committed, tagged or
    uploaded.

    Writes the version and the changelog's entry, builds, checks both distributions
    against what git tracks, and runs the README's first program from each in a fresh
    environment. Without a version it shows the entry that the fragments would give, and
    does the rest for the present one.
    """
    session.install("build", "twine", "towncrier")
    session.run("python", "-m", "tools.checks.mutants", "--applies", "--release")
    version = session.posargs[0] if session.posargs else None
    if version is not None:
        text = (ROOT / "pyproject.toml").read_text()
        (ROOT / "pyproject.toml").write_text(
            re.sub(r'(?m)^version = ".*"', f'version = "{version}"', text)
        )
        changes = (ROOT / "CHANGELOG.md").read_text()
        dated = changes.replace(
            f"## {version} (unreleased)", f"## {version} ({date.today()})"
        )
        (ROOT / "CHANGELOG.md").write_text(dated)
        # An entry that was written by hand, as that of 0.1.0, is complete.
        if dated == changes:
            session.run("towncrier", "build", "--yes", "--version", version)
    else:
        session.run(
            "towncrier", "build", "--draft", "--version", PROJECT["project"]["version"]
        )
    place = scratch(session) / "dist"
    shutil.rmtree(place, ignore_errors=True)
    session.run("python", "-m", "build", "--outdir", str(place), ".")
    session.run("twine", "check", "--strict", *map(str, place.iterdir()))
    session.run("python", "tools/check_dist.py", str(place))
    for distribution in sorted(place.iterdir()):
        python = environment(
            session,
            "wheel" if distribution.suffix == ".whl" else "sdist",
            str(distribution),
        )
        with session.chdir(place):
            session.run(
                python,
                str(ROOT / "tools" / "first_program.py"),
                str(ROOT / "README.md"),
                external=True,
            )
            session.run(
                python, str(ROOT / "tools" / "checks" / "wheel_query.py"), external=True
            )
    if version is not None:
        session.log(
            f"next: git commit -am 'Release {version}' && git tag {version}; the files "
            f"are in {place}"
        )


@nox.session
def lowest(session: nox.Session) -> None:
    """Run the tests with the lowest direct versions that pyproject.toml allows."""
    session.install("uv")
    requirements = ["-e", ".[all]", *GROUPS["test-all"]]
    session.run("uv", "pip", "install", "--resolution", "lowest-direct", *requirements)
    session.run("python", "-m", "pytest", *PARALLEL, *session.posargs)


@nox.session
def wheel(session: nox.Session) -> None:
    """Run the tests that need only Python and its packages with the built wheel."""
    session.install("build", *GROUPS["test"])
    place = scratch(session)
    shutil.rmtree(place, ignore_errors=True)
    session.run("python", "-m", "build", "--wheel", "--outdir", str(place), ".")
    (built,) = place.glob("*.whl")
    session.install(f"{built}[all]")
    # Without the checkout's package, which would be found first.
    tree = place / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns("asyncfin", ".*"))
    with session.chdir(tree):
        command = ("pytest", *PARALLEL, "--more=without", *session.posargs)
        session.run("python", "-m", *command)


@nox.session
def next(session: nox.Session) -> None:
    """Run the tests of what depends most on aiohttp and pandas with their newest
    pre-releases.
    """
    install(session, "test")
    session.install("--pre", "--upgrade", "aiohttp", "pandas")
    paths = [
        "tests/wire",
        "tests/read/test_cancellation.py",
        "tests/table/test_frames.py",
    ]
    session.run("python", "-X", "dev", "-m", "pytest", *(session.posargs or paths))


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site of the documents into docs/_build/html; a warning is an error."""
    install(session, "docs")
    session.run("python", "docs/screenshots.py")
    session.run(
        "python",
        "-m",
        "sphinx",
        "-W",
        "--keep-going",
        "-b",
        "html",
        "docs",
        "docs/_build/html",
        *session.posargs,
    )


@nox.session
def fuzz(session: nox.Session) -> None:
    """Run random examples four times as long, and compare so many queries with the
    oracle and so many mutated responses: `nox -s fuzz -- 100000`.
    """
    install(session, "test-all")
    count, rest = counted(session, 10_000)
    paths = ("tests/read/test_schedules.py", "tests/read/test_oracle.py")
    examples = {"ASYNCFIN_EXAMPLES": "all"}
    counts = examples | {"ASYNCFIN_ORACLE": count}
    session.run("python", "-m", "pytest", *paths, *rest, env=counts)
    session.run(
        "python", "-m", "pytest", *PARALLEL, "-m", "hypothesis", *rest, env=examples
    )
    session.run(
        "python",
        "-m",
        "pytest",
        "tests/wire/test_fuzz.py",
        *rest,
        env={"ASYNCFIN_FUZZ": count},
    )


@nox.session
def chaos(session: nox.Session) -> None:
    """Query a service that fails in every way; `nox -s chaos -- 20000` says how many
    requests.
    """
    install(session, "test-all")
    count, rest = counted(session, 5_000)
    session.run(
        "python",
        "-m",
        "pytest",
        "tests/client/test_chaos.py",
        *rest,
        env={"ASYNCFIN_CHAOS": count},
    )
    session.run("python", "-m", "tools.checks.soak", count)


@nox.session
def crash(session: nox.Session) -> None:
    """Kill extractions and writers of a cache at random moments: `nox -s crash --
    200`.
    """
    install(session, "test-all")
    session.run("python", "-m", "tools.checks.crash", *session.posargs)
    kills = {"ASYNCFIN_KILLS": session.posargs[0] if session.posargs else "100"}
    folder = ("python", "-m", "pytest", "tests/cache/test_folder.py")
    session.run(*folder, "--timeout=14400", env=kills)
    every = {"ASYNCFIN_STEPS": "1"}
    session.run(
        "python", "-m", "pytest", "tests/extraction/test_feed_faults.py", env=every
    )


@nox.session
def crash_workers(session: nox.Session) -> None:
    """Kill drivers and workers of extractions over executors: `nox -s crash_workers --
    dask 40`.
    """
    session.install("-e", ".[arrow,store]", *GROUPS["test-all"], *GROUPS["recipes"])
    session.run("python", "-m", "tools.checks.crash_workers", *session.posargs)


@nox.session
def damage(session: nox.Session) -> None:
    """Damage finished extractions at random and run them again: `nox -s damage --
    1000`.
    """
    install(session, "test-all")
    session.run("python", "-m", "tools.checks.damage", *session.posargs)


@nox.session
def rows(session: nox.Session) -> None:
    """Compare what every face shows, in a real browser too, with plain arithmetic:
    `nox -s rows -- 500`.
    """
    install(session, "test-all")
    session.run("python", "-m", "tools.checks.rows", *session.posargs)


@nox.session
def mutants(session: nox.Session) -> None:
    """Plant the defects of tests/mutants.toml, or of named rooms, or `-- --changed`:
    tests must fail.
    """
    install(session, "test-all")
    session.run("python", "-m", "tools.checks.mutants", *session.posargs)


@nox.session
def dask(session: nox.Session) -> None:
    """Run the recipes under examples/ with Dask, dlt, Delta Lake and Prefect."""
    session.install("-e", ".[arrow,store]", *GROUPS["test-all"], *GROUPS["recipes"])
    session.run("python", "-m", "pytest", "tests/test_examples.py", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measure, as ratios within a run; `nox -s bench -- goals` prints the table of
    benchmarks/RESULTS.md.
    """
    install(session, "bench")
    session.run("python", "-m", "benchmarks", *session.posargs)
