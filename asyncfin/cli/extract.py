"""`asyncfin extract`: many entities to Parquet files, with progress, or an estimate of
the requests.
"""

import re
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from attrs import asdict, frozen
from cyclopts import Parameter, Token

from asyncfin.cli.errors import (
    EntitiesFailedError,
    InterruptedRunError,
    UsageError,
    name_options,
    print_error,
)
from asyncfin.cli.options import (
    AsJson,
    IdsInput,
    IsRestated,
    Names,
    Pace,
    Periods,
    Selection,
    Service,
    require_place,
)
from asyncfin.cli.terminal import print_json, print_line, progress_console
from asyncfin.clock import utc_now
from asyncfin.extraction.exit import Exit
from asyncfin.words import counted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from asyncfin import ExtractCost, ExtractProgress, ExtractReport
    from asyncfin.extraction.last import Stop
    from asyncfin.typing import AskedVersion, OnProgress

# Seconds: a run with --wait outlasts any outage.
_NO_END = 1e9
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_LINE_SECONDS = 10.0


def _parse_duration(_: Any, tokens: Sequence[Token]) -> timedelta:
    text = tokens[-1].value
    if (parts := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)) is None:
        raise UsageError(
            f"--fresh-for must be a number with s, m, h or d, such as 20h, not {text!r}"
        )
    return timedelta(**{_UNITS[parts[2]]: float(parts[1])})


@Parameter(name="*")
@frozen(kw_only=True)
class Run:
    """What a run does about files, the lock, outages and signals.

    Args:
        refresh: Read unchanged entities again.
        replace: Delete the folder's files of another query first.
        fresh_for: Do not ask for entities confirmed less than so long ago, such as 20h,
            90m or 3d.
        allow_missing: Accept names that no entity has, or that few have.
        wait: Sleep until a used-up allowance returns, and while the service fails,
            instead of ending.
        max_outage: For how many seconds the service may fail before the run ends. [900]
        no_lock: Take no lock in an object store; no other run may use the same prefix.
        history: Keep what changes from run to run in a feed next to the folder; later
            runs continue it.
        prune: Delete the files of entities that are not given.
    """

    refresh: bool = False
    replace: bool = False
    fresh_for: Annotated[timedelta | None, Parameter(converter=_parse_duration)] = None
    allow_missing: bool = False
    wait: bool = False
    max_outage: float | None = None
    no_lock: bool = False
    history: bool = False
    prune: bool = False

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `asyncfin.extract`."""
        arguments = asdict(self)
        del arguments["max_outage"]
        arguments["lock"] = not arguments.pop("no_lock")
        return arguments

    @property
    def patience(self) -> float:
        """For how many seconds an outage of the service is waited for."""
        if self.wait:
            return _NO_END
        return 900.0 if self.max_outage is None else self.max_outage


def extract(
    *entity_ids: str,
    folder: Annotated[str, Parameter(name="--into")],
    ids: IdsInput = None,
    dry_run: bool = False,
    run: Run = Run(),
    is_restated: IsRestated = False,
    has_both: Annotated[bool, Parameter(name="--both")] = False,
    quiet: bool = False,
    json: AsJson = False,
    selection: Selection = Selection(),
    periods: Periods = Periods(),
    names: Names = Names(),
    service: Service = Service(),
    pace: Pace = Pace(),
) -> None:
    """Write one query of many entities to Parquet files.

    Each entity gets a file in the folder, of one publication. The same command
    again continues where the last one ended, and an entity that has not changed
    costs one request. Ctrl-C finishes what is in progress; a second one, or
    SIGTERM, ends at once.

      asyncfin extract --ids ids.txt --into night --annual --dry-run
      asyncfin extract --ids ids.txt --into night --annual

    Args:
        entity_ids: The entities, O- and 32 characters each, or their names.
        folder: The folder for the files, or a URL such as s3://bucket/prefix; the lock
            is next to it.
        ids: A file of more entity ids or names, one a line; - for standard input.
        dry_run: Only estimate the cost. Where no file shows it, that reads the
            catalogues of three entities, within --daily-budget.
        is_restated: The latest restated values instead of the original ones.
        has_both: Both versions, which the column asked_version distinguishes.
        quiet: Show no progress.
    """
    version: AskedVersion = "latest_restated" if is_restated else "original"
    arguments: dict[str, Any] = {
        "select": selection.select(),
        "periods": periods.selection(),
        "value_version": "both" if has_both else version,
        "to": folder,
        # Read before the event loop runs, where Ctrl-C would not end a wait for
        # standard input.
        "entity_ids": names.require_ids(entity_ids, ids),
    }
    require_place(folder, "extract")
    service.check()

    import asyncio

    from asyncfin import Retry
    from asyncfin.extraction.collector import collect_rarely
    from asyncfin.extraction.last import Stop

    if dry_run:
        arguments |= {"refresh": run.refresh, "replace": run.replace}
        cost = asyncio.run(_read_cost(service, pace, arguments))
        if json:
            print_json(asdict(cost))
        else:
            print_line(names.add_names(name_options(str(cost))))
        return
    options = {"lane": "bulk", "retry": Retry(max_outage=run.patience), **asdict(pace)}
    stop = Stop()
    collect_rarely()
    with _show_progress(quiet=quiet) as show:
        arguments |= {**run.arguments(), "stop": stop, "progress": show}
        report = asyncio.run(_extract(service, options, arguments))
    if json:
        print_json(report_document(report))
    elif not report.unknown:  # otherwise the error has it all
        print_line(names.add_names(name_options(str(report))))
    _raise_failure(report, stop)


async def _extract(
    service: Service, options: dict[str, Any], arguments: dict[str, Any]
) -> "ExtractReport":
    from asyncfin import UnknownToAllError, extract
    from asyncfin.cli.session import open_client

    async with (
        open_client(service, **options) as client,
        _handle_signals(arguments["stop"]),
    ):
        try:
            return await extract(client, **arguments)
        except UnknownToAllError as error:
            return error.extract_report  # whose error `_raise_failure` raises


async def _read_cost(
    service: Service, pace: Pace, arguments: dict[str, Any]
) -> "ExtractCost":
    from asyncfin import extract_cost
    from asyncfin.cli.session import open_client, show_progress

    with show_progress("Estimating") as progress:
        observers = (progress,)
        async with open_client(service, observers=observers, **asdict(pace)) as client:
            return await extract_cost(client, **arguments)


def _raise_failure(report: "ExtractReport", stop: "Stop") -> None:
    """Raise the error that decides the exit code, if there is one."""
    if report.error is not None:
        raise report.error
    if report.left:
        print_error("asyncfin: ended by Ctrl-C; the same command goes on from there")
        raise InterruptedRunError(stop.exit_code)
    if report.failed:
        failures = [item.failure for item in report.failed if item.failure]
        raise EntitiesFailedError(failures, len(report.entities))


@asynccontextmanager
async def _handle_signals(stop: "Stop") -> AsyncIterator[None]:
    """Let Ctrl-C set `stop`; let a second one, or SIGTERM, end the command at once."""
    import asyncio

    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    has_ended = False

    def interrupt(signal_number: signal.Signals) -> None:
        nonlocal has_ended
        if signal_number == signal.SIGTERM:
            stop.exit_code = Exit.TERMINATED
            print_error(
                "asyncfin: ended by SIGTERM; the same command goes on from there"
            )
        elif not stop.is_set():
            stop.set()
            print_error(
                "asyncfin: finishing what is in progress; Ctrl-C again ends at once"
            )
            return
        # In a flag: other code may cancel the task too, and that is not a signal.
        stop.set()
        has_ended = True
        task.cancel()

    signals = (signal.SIGINT, signal.SIGTERM)
    with suppress(NotImplementedError):  # on Windows the first Ctrl-C ends it
        for number in signals:
            loop.add_signal_handler(number, interrupt, number)
    try:
        yield
    except asyncio.CancelledError:
        if has_ended:
            raise InterruptedRunError(stop.exit_code) from None
        raise
    finally:
        with suppress(NotImplementedError):
            for number in signals:
                loop.remove_signal_handler(number)


def report_document(report: "ExtractReport") -> dict[str, Any]:
    """Return a report as plain data (docs/cli.md)."""
    return {
        **report.figures,
        "stopped": None if report.stopped is None else str(report.stopped),
        "resume_at": report.resume_at,
        "entities": [asdict(item) for item in report.entities],
    }


@contextmanager
def _show_progress(*, quiet: bool) -> "Iterator[OnProgress | None]":
    """Yield the callback that shows progress on standard error, if not quiet: a line
    that changes on a terminal, otherwise a line every ten seconds.
    """
    console = progress_console()
    if quiet:
        yield None
    elif console.is_terminal:
        with console.status("Extracting") as status:
            yield partial(_update_status, status)
    else:
        # rich would wrap at 80 columns in a log file.
        console.width = 100_000
        yield _Lines(console)


def _update_status(status: "Status", progress: "ExtractProgress") -> None:
    status.update(_describe_cost(progress).replace(", waiting:", "\nwaiting:"))


class _Lines:
    """Prints a line when the run begins, and one every ten seconds, with the time."""

    def __init__(self, console: "Console") -> None:
        self._console = console
        self._next = 0.0

    def __call__(self, progress: "ExtractProgress") -> None:
        if progress.seconds < self._next:
            return
        line = _describe_cost(progress)
        if not self._next:
            entities = counted(progress.entities, "entity", "entities")
            line = f"begins: {entities}, {progress.files:,} with a file"
        # Ten seconds after this one and not on a grid: after a pause there would be
        # several at once.
        self._next = progress.seconds + _LINE_SECONDS
        self._console.print(f"{utc_now():%Y-%m-%dT%H:%M:%SZ} {line}")


def _describe_cost(progress: "ExtractProgress") -> str:
    end_count = progress.done + progress.unchanged + progress.failed
    pace = progress.requests / (progress.seconds or 1.0)
    facts = [
        f"{end_count:,} of {counted(progress.entities, 'entity', 'entities')}",
        counted(progress.requests, "request"),
        f"{pace:,.1f} a second",
    ]
    if progress.unchanged:
        facts.append(f"{progress.unchanged:,} unchanged")
    if progress.failed:
        facts.append(f"{progress.failed:,} failed")
    if progress.waiting:
        facts.append(f"waiting: {progress.waiting}")
    return ", ".join(facts)
