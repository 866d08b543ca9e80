"""`asyncfin extract`: many entities to Parquet files, with progress, or an estimate of
the requests.
"""

import re
import signal
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from attrs import asdict, evolve, frozen
from cyclopts import Parameter, Token
from cyclopts.validators import Number

from asyncfin.cli.errors import (
    EntitiesFailedError,
    InterruptedRunError,
    UsageError,
    print_error,
    with_options,
)
from asyncfin.cli.options import (
    STDIN,
    AsJson,
    Names,
    Pace,
    Periods,
    Selection,
    Service,
    entity_group,
    require_place,
)
from asyncfin.clock import utc_now
from asyncfin.extraction.exit import Exit
from asyncfin.words import counted

if TYPE_CHECKING:
    from rich.console import Console

    from asyncfin import ExtractCost, ExtractProgress, ExtractReport
    from asyncfin.extraction.last import Stop
    from asyncfin.extraction.question import SharedQuestion
    from asyncfin.typing import AskedVersion, OnProgress

# Seconds: a run with --wait outlasts any outage.
_NO_END = 1e9
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
# Of a large extraction the document has those that failed first.
_MOST_ENTITIES = 1_000
_LINE_SECONDS = 10.0


def _parse_folder(_: Any, tokens: Sequence[Token]) -> str:
    """Return the folder that --into names; reject, in the words of the option, where no
    files can be put.
    """
    from asyncfin.errors import ArgumentError
    from asyncfin.extraction.places import place_of

    text = tokens[-1].value
    try:
        place_of(text)
    except ArgumentError as error:
        raise UsageError(with_options(error)) from None
    return text


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
    """What a run does about files, the lock, outages and signals."""

    refresh: Annotated[bool, Parameter(help="Read unchanged entities again.")] = False
    replace: Annotated[
        bool, Parameter(help="Delete the folder's files of another question first.")
    ] = False
    fresh_for: Annotated[
        timedelta | None,
        Parameter(
            help="Do not ask for entities confirmed less than so long ago, such as "
            "20h, 90m or 3d.",
            converter=_parse_duration,
        ),
    ] = None
    allow_missing: Annotated[
        bool,
        Parameter(
            help="Accept names that no entity has, or that few have.", negative=""
        ),
    ] = False
    wait: Annotated[
        bool,
        Parameter(
            help="Sleep until a used-up allowance returns, and while the service "
            "fails, instead of ending."
        ),
    ] = False
    max_outage: Annotated[
        float | None,
        Parameter(
            help="End after so many seconds in which the service has failed. [900]",
            validator=Number(gte=0),
        ),
    ] = None
    no_lock: Annotated[
        bool,
        Parameter(
            help="Take no lock in an object store; no other run may use the same "
            "prefix."
        ),
    ] = False
    history: Annotated[
        bool,
        Parameter(
            help="Keep what changes from run to run in a feed next to the folder; "
            "later runs continue it."
        ),
    ] = False
    prune: Annotated[
        bool, Parameter(help="Delete the files of entities that are not given.")
    ] = False

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `asyncfin.extract`."""
        names = ("refresh", "replace", "wait", "prune", "allow_missing", "fresh_for")
        return {
            **{name: getattr(self, name) for name in names},
            "lock": not self.no_lock,
            "history": self.history or None,
        }

    @property
    def patience(self) -> float:
        """For how many seconds an outage of the service is waited for."""
        if self.wait:
            return _NO_END
        return 900.0 if self.max_outage is None else self.max_outage


def extract(
    *entity_ids: str,
    into: Annotated[str, Parameter(converter=_parse_folder)],
    ids: Annotated[
        Path | None, Parameter(allow_leading_hyphen=True, group=entity_group)
    ] = None,
    dry_run: bool = False,
    run: Run = Run(),
    restated: bool = False,
    both: bool = False,
    quiet: bool = False,
    json: AsJson = False,
    selection: Selection = Selection(),
    periods: Periods = Periods(),
    names: Names = Names(),
    service: Service = Service(),
    pace: Pace = Pace(),
) -> None:
    """Write one question of many entities to Parquet files.

    Each entity gets a file in the folder, of one publication. The same command
    again continues where the last one ended, and an entity that has not changed
    costs one request. Ctrl-C finishes what is in progress; a second one, or
    SIGTERM, ends at once.

      asyncfin extract --ids ids.txt --into night --annual --dry-run
      asyncfin extract --ids ids.txt --into night --annual

    Args:
        entity_ids: The entities, O- and 32 characters each, or their names.
        into: The folder for the files, or a URL such as s3://bucket/prefix; the lock is
            next to it.
        ids: A file of more entity ids or names, one a line; - for standard input.
        dry_run: Only estimate the cost.
        restated: The latest restated values instead of the original ones.
        both: Both versions, which the column asked_version distinguishes.
        quiet: Show no progress.
    """
    if ids == service.token_file == STDIN:
        raise UsageError(
            "--ids and --token-file can't both be standard input: name a file for one "
            "of them"
        )
    if both and restated:
        raise UsageError("--both includes the restated values: leave out --restated")
    version: AskedVersion = "latest_restated" if restated else "original"
    if both:
        version = "both"
    select, chosen = selection.select(), periods.selection()
    # Read before the event loop runs, where Ctrl-C would not end a wait for standard
    # input.
    entities = names.required(entity_ids, ids)
    require_place(into, "extract", f"--into {into}")
    service.check()

    from asyncfin.extraction.question import SharedQuestion

    question = SharedQuestion(select, chosen, version)
    extraction = _Extraction(question, into, service, pace, run, names, quiet, json)
    if dry_run:
        extraction.estimate(entities)
    else:
        extraction.run(entities)


@frozen
class _Extraction:
    """A question to many entities for one place, and how its progress and its report
    are shown.
    """

    question: "SharedQuestion"
    into: str
    service: Service
    pace: Pace
    options: Run
    names: Names
    quiet: bool
    json: bool

    def estimate(self, entity_ids: Sequence[str]) -> None:
        """Print what a run would cost."""
        import asyncio

        from asyncfin.cli.terminal import print_json, screen

        cost = asyncio.run(self._read_cost(entity_ids))
        if self.json:
            print_json({**asdict(cost), "fits": cost.fits})
        else:
            screen().print(self.names.add_names(str(cost)))

    def run(self, entity_ids: Sequence[str]) -> None:
        """Run the extraction, and print its report."""
        import asyncio

        from asyncfin.extraction.collector import collect_rarely
        from asyncfin.extraction.last import Stop

        stop = Stop()
        collect_rarely()
        self._end(asyncio.run(self._extract(entity_ids, stop)), stop)

    def _arguments(self, entity_ids: Sequence[str]) -> dict[str, Any]:
        question = asdict(self.question, recurse=False)
        return {"entity_ids": tuple(entity_ids), **question, "to": self.into}

    async def _extract(
        self, entity_ids: Sequence[str], stop: "Stop"
    ) -> "ExtractReport":
        from asyncfin import Retry, UnknownToAllError, extract
        from asyncfin.cli.session import open_client

        arguments = self._arguments(entity_ids) | self.options.arguments()
        retry = Retry(max_outage=self.options.patience)
        with _show_progress(self.names, quiet=self.quiet) as show:
            async with (
                open_client(
                    self.service, lane="bulk", retry=retry, **asdict(self.pace)
                ) as client,
                _handle_signals(stop),
            ):
                try:
                    return await extract(client, **arguments, stop=stop, progress=show)
                except UnknownToAllError as error:
                    # It is printed first; `_end` raises the error.
                    return error.extract_report

    async def _read_cost(self, entity_ids: Sequence[str]) -> "ExtractCost":
        from asyncfin import extract_cost
        from asyncfin.cli.session import (
            Progress,
            open_client,
            shared_place,
            show_progress,
        )

        arguments = self._arguments(entity_ids)
        arguments |= {"refresh": self.options.refresh, "replace": self.options.replace}
        # The budget is the run's, and does not bind the estimate. A shared bucket's
        # binds all processes: an estimate without it would lift it for those at work.
        budget, is_shared = self.pace.daily_budget, shared_place() is not None
        pace = self.pace if is_shared else evolve(self.pace, daily_budget=None)
        quiet = nullcontext(Progress(""))
        with quiet if self.quiet else show_progress("Estimating") as shown:
            async with open_client(
                self.service, observers=(shown,), **asdict(pace)
            ) as client:
                cost = await extract_cost(client, **arguments)
                spent = client.bucket.stats().spent_today or 0.0
        if budget is not None and is_shared:
            return evolve(cost, budget=max(0.0, budget - spent))
        return evolve(cost, budget=budget)

    def _end(self, report: "ExtractReport", stop: "Stop") -> None:
        """Print the report, and raise the error that decides the exit code."""
        from asyncfin.cli.terminal import print_json, screen

        if self.json:
            print_json(report_document(report))
        elif not report.unknown:  # otherwise the error has it all
            screen().print(self.names.add_names(str(report)))
        if (stopped := report.stopped) is not None:
            raise stopped
        if report.left and not report.unknown:
            print_error(
                "asyncfin: ended by Ctrl-C; the same command goes on from there"
            )
            raise InterruptedRunError(stop.exit_code)
        if report.failed:
            failures = [item.failure for item in report.failed if item.failure]
            raise EntitiesFailedError(failures, len(report.entities))
        report.raise_for_unknown()


@asynccontextmanager
async def _handle_signals(stop: "Stop") -> AsyncIterator[None]:
    """Let Ctrl-C set `stop`; let a second one, or SIGTERM, end the command at once."""
    import asyncio

    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    has_ended = False

    def interrupt(received: signal.Signals) -> None:
        nonlocal has_ended
        if received == signal.SIGTERM:
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
    from asyncfin.extraction.last import failures_by_class

    entities = [*report.failed, *report.left, *report.done, *report.unchanged]
    figures = ("requests", "uncounted", "rows", "bytes", "unlisted", "seconds", "waits")
    states = ("done", "unchanged", "failed", "left")
    return {
        **{state: len(getattr(report, state)) for state in states},
        **{name: getattr(report, name) for name in figures},
        "repeated": dict(report.repeated),
        "stopped": None if report.stopped is None else str(report.stopped),
        "resume_at": report.resume_at,
        "unknown": dict(report.unknown),
        "others": report.others,
        "failures": failures_by_class(report.failed),
        "entities": [asdict(item) for item in entities[:_MOST_ENTITIES]],
        "more_entities": max(0, len(entities) - _MOST_ENTITIES),
    }


@contextmanager
def _show_progress(names: Names, *, quiet: bool) -> "Iterator[OnProgress | None]":
    """Yield the callback that shows progress on standard error, if not quiet: a bar on
    a terminal, otherwise a line every ten seconds.
    """
    from rich.console import Group
    from rich.live import Live
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    from asyncfin.cli.terminal import progress_console

    console = progress_console()
    if quiet:
        yield None
    elif not console.is_terminal:
        # rich would wrap at 80 columns in a log file.
        console.width = 100_000
        yield _Lines(console, names)
    else:
        below = Text(style="dim", no_wrap=True, overflow="ellipsis")
        bar = Progress(
            TextColumn("entities"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            expand=True,
        )
        # The number of entities comes with the first report; until then the bar only
        # pulses.
        task = bar.add_task("", total=None)

        def show(progress: "ExtractProgress") -> None:
            if failure := _describe_failure(progress, names):
                console.print(failure)
            bar.update(task, completed=_count_ended(progress), total=progress.entities)
            below.plain = _describe_cost(progress).replace(", waiting:", "\nwaiting:")

        with Live(
            get_renderable=lambda: Group(bar.get_renderable(), below),
            console=console,
            refresh_per_second=4,
            transient=True,
        ):
            yield show


class _Lines:
    """Prints a line when the run begins, one every ten seconds, and one for each
    failure, with the time.
    """

    def __init__(self, console: "Console", names: Names) -> None:
        self._console, self._names = console, names
        self._next: float | None = None

    def __call__(self, progress: "ExtractProgress") -> None:
        entities = counted(progress.entities, "entity", "entities")
        if self._next is None:
            self._next = progress.seconds + _LINE_SECONDS
            self._print(f"begins: {entities}, {progress.files:,} with a file")
        if failure := _describe_failure(progress, self._names):
            self._print(failure)
        # Ten seconds after this one and not on a grid: after a pause there would be
        # several at once.
        if progress.seconds >= self._next:
            self._next = progress.seconds + _LINE_SECONDS
            ended = _count_ended(progress)
            self._print(f"{ended:,} of {entities}, {_describe_cost(progress)}")

    def _print(self, line: str) -> None:
        self._console.print(f"{utc_now():%Y-%m-%dT%H:%M:%SZ} {line}")


def _describe_failure(progress: "ExtractProgress", names: Names) -> str:
    """Return a line for the entity that has just failed, or nothing if none has."""
    if progress.ended is None or (failure := progress.ended.failure) is None:
        return ""
    name = names.add_name(progress.ended.entity_id)
    return f"{name} failed: {failure.error}: {failure.message}"


def _count_ended(progress: "ExtractProgress") -> int:
    return progress.done + progress.unchanged + progress.failed


def _describe_cost(progress: "ExtractProgress") -> str:
    pace = progress.requests / progress.seconds if progress.seconds else 0.0
    facts = [counted(progress.requests, "request"), f"{pace:,.1f} a second"]
    if progress.unchanged:
        facts.append(f"{progress.unchanged:,} unchanged")
    if progress.failed:
        facts.append(f"{progress.failed:,} failed")
    if progress.waiting:
        facts.append(f"waiting: {progress.waiting}")
    return ", ".join(facts)
