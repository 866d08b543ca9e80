"""What all tests share: the virtual clock, and which tests need more than Python."""

import asyncio
import gc
import logging
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Generator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from hypothesis import HealthCheck, settings

from tests import examples

ROOT = Path(__file__).parent
# About FileBucket and FileCache, which Windows does not have, at least in part.
POSIX_ONLY = [
    *("cache/test_cache_writer.py", "cache/test_cached_questions.py", "cache/test_cached_workers.py"),
    *("cache/test_folder.py", "cache/test_stores.py", "cache/test_trouble.py", "cli/test_cache_command.py"),
    *("cli/test_cli_bucket.py", "cli/test_names.py", "cli/test_status_command.py", "extraction/test_cost.py"),
    *("pacing/test_bucket_file.py", "pacing/test_bucket_processes.py", "read/test_current_publication.py"),
    "read/test_oracle.py",
]
collect_ignore = POSIX_ONLY if sys.platform == "win32" else []

# A shell that starts the tests in the background makes them ignore Ctrl-C, and with them the commands that
# they start, some of which are ended by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "default",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    max_examples=examples(100),
)
settings.load_profile("default")


# What all tests of a room need; elsewhere `pytest.importorskip` skips single tests.
ROOM_NEEDS = {
    "extraction": ("pyarrow", "duckdb"),
    "mcp": ("mcp",),
    "telemetry": ("opentelemetry.sdk", "opentelemetry.exporter.prometheus", "prometheus_client"),
    "web": ("httpx", "starlette", "jinja2", "uvicorn"),
}


def missing_of(room: str) -> list[str]:
    """Return the libraries that a room needs and that are not installed."""
    return [library for library in ROOM_NEEDS[room] if not is_installed(library)]


def is_installed(library: str) -> bool:
    try:
        return find_spec(library) is not None
    except ModuleNotFoundError:  # of a package that contains it
        return False


def ignored_without(room: str) -> list[str]:
    """Return the `collect_ignore_glob` of a room: a skip within its conftest.py would be an error."""
    return ["test_*.py"] if missing_of(room) else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for room in ROOM_NEEDS:
        if missing := missing_of(room):
            terminalreporter.write_line(f"skipped: tests/{room}, which needs {', '.join(missing)}")
    if config.getoption("more") == "without":
        reasons = ", ".join(MORE)
        terminalreporter.write_line(f"left to nox -s tests_all: tests with {reasons}")


# Whether tasks begin with their creation, as an application may choose on Python 3.12 and later.
EAGER = bool(os.environ.get("ASYNCFIN_EAGER")) and sys.version_info >= (3, 12)


def eager(loop: asyncio.AbstractEventLoop) -> asyncio.AbstractEventLoop:
    """Let a loop's tasks begin with their creation."""
    if sys.version_info >= (3, 12):
        loop.set_task_factory(asyncio.eager_task_factory)
    return loop


class _SkippingSelector:
    """Polls the real sockets, and where nothing is ready moves the loop's clock on to the next timer."""

    def __init__(self, loop: "VirtualTimeLoop") -> None:
        self._loop, self._real = loop, selectors.DefaultSelector()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def select(self, timeout: float | None = None) -> Any:
        self._loop.now += 1e-9  # a timer re-armed for "now" by float rounding must not spin for ever
        ready = self._real.select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None or self._loop.threads:
            return self._real.select(None)
        self._loop.now += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps over every wait. Servers must run in the same loop."""

    def __init__(self) -> None:
        self.now = 0.0
        self.threads = 0  # at work for the loop: the clock stops during that
        super().__init__(_SkippingSelector(self))  # type: ignore[arg-type]
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self.now

    def run_in_executor(self, *args: Any) -> Any:
        future = super().run_in_executor(*args)
        self.threads += 1
        future.add_done_callback(self._count_down)
        return future

    def _count_down(self, _: Any) -> None:
        self.threads -= 1

    async def shutdown_default_executor(self, *args: Any) -> None:
        self.threads += 1  # it has a timeout since Python 3.12
        await super().shutdown_default_executor(*args)
        self.threads -= 1


_run_sync = anyio.to_thread.run_sync


async def _counted(*args: Any, **options: Any) -> Any:
    """Run a call in a thread; a virtual clock does not move until it has returned."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualTimeLoop):
        return await _run_sync(*args, **options)
    loop.threads += 1
    try:
        return await _run_sync(*args, **options)
    finally:
        loop.threads -= 1


# anyio starts its threads without `run_in_executor`.
anyio.to_thread.run_sync = _counted


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    name, make = "real", asyncio.new_event_loop
    if item.get_closest_marker("virtual"):
        name, make = "virtual", VirtualTimeLoop
    if EAGER:
        return {f"eager {name}": lambda: eager(make())}
    return {name: make}


# A tenth of the suite's time went into looking for garbage.
THRESHOLDS = (10_000, 10, 10)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what is collected out of every collection of garbage: it lives as long as the run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


# What `nox -s tests` leaves to `nox -s tests_all`: beginnings of paths, parts of names, and fixtures.
MORE = {
    "browsers and web frameworks": (
        *("web/test_browser.py", "web/test_fastapi_example.py", "web/test_foreign.py", "chromium"),
        *("web/test_frameworks.py", "web/test_servers.py"),
    ),
    "object stores": ("cli/test_extract_store.py", "extraction/test_objects.py"),
    "a Redis server": (
        "cache/test_trouble.py",
        "pacing/test_bucket_outages.py",
        *("redis", "redis_url"),
    ),
    "real figures": ("real_compan",),
    "processes that are killed": (
        *("extraction/test_kills.py", "extraction/test_workers.py"),
        *("killed", "ctrl_c", "sigterm", "that_leaves", "outlives_reader", "processes_of", "cold_processes"),
    ),
    "notebooks, examples and the site": ("test_examples.py", "test_notebooks.py", "test_site.py"),
}


def more_of(item: pytest.Item) -> str | None:
    """Return what more than Python a test needs, or None."""
    path = item.path.relative_to(ROOT).as_posix()
    fixtures = getattr(item, "fixturenames", ())
    for reason, parts in MORE.items():
        if any(part == path or part in item.name or part in fixtures for part in parts):
            return reason
    return None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--more",
        choices=("with", "without", "only"),
        default="with",
        help="tests that need more than Python and its packages, or more time",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose tests, and begin with the longest: one of these at the end would run alone."""
    more = config.getoption("more")
    if more != "with":
        chosen = [item for item in items if (more_of(item) is None) == (more == "without")]
        config.hook.pytest_deselected(items=[item for item in items if item not in {*chosen}])
        items[:] = chosen
    items.sort(key=lambda item: item.get_closest_marker("timeout") is None)


def pytest_sessionfinish() -> None:
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _as_before_other_tests() -> None:
    reset_process()


@pytest.fixture(autouse=True, scope="session")
def _no_name_server() -> Generator[None]:
    """Answer for hosts under ``.invalid`` here: a name server of the machine may take ten seconds."""
    look_up = socket.getaddrinfo

    def refuse_invalid(host: Any, *arguments: Any, **options: Any) -> Any:
        if str(host).endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "name or service not known")
        return look_up(host, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", refuse_invalid)
        yield


def reset_process() -> None:
    """Reset what commands, programs and other libraries set: garbage collection, levels of loggers, handlers.

    A handler's stream ends with its test.
    """
    gc.set_threshold(*THRESHOLDS)
    for logger, level in ((logging.root, logging.WARNING), (logging.getLogger("asyncfin"), logging.NOTSET)):
        logger.setLevel(level)
        for handler in logger.handlers[:]:
            if not type(handler).__module__.startswith("_pytest"):
                logger.removeHandler(handler)
