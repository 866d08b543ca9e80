"""`asyncfin extract`: many entities to Parquet files, with progress, or an estimate of the requests."""

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any

from attrs import asdict, evolve, frozen
from cyclopts import Group, Parameter, Token
from cyclopts.validators import Number

from asyncfin.cli.entities import Names
from asyncfin.cli.exits import EntitiesFailedError, UsageError, prefix_errors
from asyncfin.cli.extract_progress import shown_progress
from asyncfin.cli.options import (
    STDIN,
    AsJson,
    Periods,
    Selection,
    Service,
    entity_group,
    refuse_bytes,
    require,
)
from asyncfin.cli.output import print_json, screen
from asyncfin.cli.session import Progress, progress
from asyncfin.cli.streams import print_error
from asyncfin.client import Client
from asyncfin.errors import AllowanceExhaustedError
from asyncfin.events import Observer
from asyncfin.extraction.cost import ExtractCost, extract_cost
from asyncfin.extraction.extract import extract as run_extraction
from asyncfin.extraction.files import place_of
from asyncfin.extraction.prefix import Prefix
from asyncfin.extraction.question import AskedVersion, SharedQuestion
from asyncfin.extraction.report import EntityReport, ExtractReport, UnknownToAllError

_PACE = Group("Pace", sort_key=4)


@Parameter(name="*", group=_PACE)
@frozen(kw_only=True)
class Pace:
    """How fast requests are sent."""

    rate: Annotated[
        float | None,
        Parameter(help="Requests a second. [learned from refusals if left out]", validator=Number(gt=0)),
    ] = None
    daily_budget: Annotated[
        int | None,
        Parameter(help="Requests that this command may send in a day, UTC.", validator=Number(gte=1)),
    ] = None
    max_in_flight: Annotated[
        int,
        Parameter(
            help="Requests in flight at once, and entities.", validator=Number(gte=1), show_default=True
        ),
    ] = 8

    def client(
        self, service: Service, observers: tuple[Observer, ...] = ()
    ) -> AbstractAsyncContextManager[Client]:
        """Return a context manager that gives a client of the service with this pace."""
        return service.client(observers=observers, **asdict(self))


def _folder(_: Any, tokens: Sequence[Token]) -> str:
    """Return the folder that --into names; refuse, in the words of the option, where no files can be put."""
    text = tokens[-1].value
    refuse_bytes("--into", text)
    if not text:  # as a path it would be the current folder
        raise UsageError("--into must be the path of a folder, not ''")
    with prefix_errors("--into"):
        place_of(text)
    return text


def extract(
    *entity_ids: str,
    into: Annotated[str, Parameter(converter=_folder)],
    ids: Annotated[Path | None, Parameter(allow_leading_hyphen=True, group=entity_group)] = None,
    dry_run: bool = False,
    read_catalogues: bool = False,
    refresh: bool = False,
    replace: bool = False,
    wait: bool = False,
    no_lock: bool = False,
    history: bool = False,
    prune: bool = False,
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
    """Request one question of many entities, and write the results to Parquet files.

    Each entity gets a file in the folder, of one publication. The same command
    again continues where the last one ended, and an entity that has not changed
    costs one request. Ctrl-C finishes what is in progress; a second
    one ends at once.

      asyncfin extract --ids ids.txt --into night --annual --dry-run
      asyncfin extract --ids ids.txt --into night --annual

    Args:
        entity_ids: The entities, O- and 32 characters each, or their names.
        into: The folder for the files, or a URL such as s3://bucket/prefix; the lock is next to it.
        ids: A file of more entity ids or names, one a line; - for standard input.
        dry_run: Only estimate the cost.
        read_catalogues: With --dry-run: read the catalogues, so that nothing is guessed.
        refresh: Read unchanged entities again.
        replace: Delete the folder's files of another question first.
        wait: Sleep until a used-up allowance returns, instead of ending.
        no_lock: Take no lock in an object store; no other run may use the same prefix.
        history: Keep what changes from run to run in a feed next to the folder; later runs continue it.
        prune: Delete the files of entities that are not given.
        restated: The latest restated values instead of the original ones.
        both: Both versions, which the column asked_version distinguishes.
        quiet: Show no progress.
    """
    require("pyarrow", "arrow", "extract")
    if isinstance(place_of(into), Prefix):
        require("obstore", "store", f"--into {into}")
    if read_catalogues and not dry_run:
        raise UsageError("--read-catalogues goes with --dry-run: add it")
    if wait and dry_run:
        raise UsageError("--wait is not for a --dry-run, which waits for nothing: leave out one of them")
    if ids == service.token_file == STDIN:
        raise UsageError("--ids and --token-file can't both be standard input: name a file for one of them")
    if both and restated:
        raise UsageError("--both includes the restated values: leave out --restated")
    value_version: AskedVersion = "both" if both else "latest_restated" if restated else "original"
    question = SharedQuestion(selection.select(), periods.selection(), value_version)
    # Read before the event loop runs, where Ctrl-C would not end a wait for standard input.
    entities = names.given(entity_ids, ids)
    # What `extract` and `extract_cost` take alike.
    arguments: dict[str, Any] = {
        "entity_ids": entities,
        **asdict(question, recurse=False),
        "to": into,
        "refresh": refresh,
        "replace": replace,
    }
    if dry_run:
        arguments["read_catalogues"] = read_catalogues
        _end_estimate(asyncio.run(_cost(arguments, pace, service, quiet)), names, json)
    else:
        arguments |= {"wait": wait, "lock": not no_lock, "history": history or None, "prune": prune}
        _end(asyncio.run(_report(arguments, pace, service, names, quiet)), pace, names, json)


async def _report(
    arguments: dict[str, Any], pace: Pace, service: Service, names: Names, quiet: bool
) -> ExtractReport:
    with shown_progress(names, quiet=quiet) as show:
        async with pace.client(service) as client, interruptible() as stop:
            try:
                return await run_extraction(client, **arguments, stop=stop, progress=show)
            except UnknownToAllError as error:
                return error.extract_report  # it is printed first; `_end` raises the error


async def _cost(arguments: dict[str, Any], pace: Pace, service: Service, quiet: bool) -> ExtractCost:
    # The estimate is neither compared with the budget nor bound by it.
    unbound = evolve(pace, daily_budget=None)
    with nullcontext(Progress("")) if quiet else progress("Estimating") as shown:
        async with unbound.client(service, (shown,)) as client:
            cost = await extract_cost(client, **arguments)
    return evolve(cost, budget=pace.daily_budget)


@asynccontextmanager
async def interruptible() -> AsyncIterator[asyncio.Event]:
    """Return the event that the first Ctrl-C sets; the second Ctrl-C ends the command."""
    stop, task, loop = asyncio.Event(), asyncio.current_task(), asyncio.get_running_loop()
    ended = False

    def interrupt() -> None:
        nonlocal ended
        # Kept in a flag: other code may cancel the task too, and that is not a Ctrl-C.
        if stop.is_set() and task is not None:
            ended = True
            task.cancel()
        else:
            stop.set()
            print_error("asyncfin: finishing what is in progress; Ctrl-C again ends at once")

    with suppress(NotImplementedError):  # on Windows the first Ctrl-C ends it
        loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield stop
    except asyncio.CancelledError:
        if ended:
            raise KeyboardInterrupt from None
        raise
    finally:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)


def _end_estimate(cost: ExtractCost, names: Names, json: bool) -> None:
    if json:
        print_json({**asdict(cost), "seconds": cost.seconds, "fits": cost.fits})
    else:
        screen().print(names.add_names(str(cost)))
    raise_failed(cost.failed, cost.entities)


def _end(report: ExtractReport, pace: Pace, names: Names, json: bool) -> None:
    """Print the report, and raise the error that decides the exit code."""
    if json:
        print_json(document(report))
    else:
        screen().print(names.add_names(str(report)))
    if (stopped := report.stopped) is not None:
        own = isinstance(stopped, AllowanceExhaustedError) and not stopped.answered
        # A budget that is too small for any entity: repeating the command would never finish.
        if own and pace.daily_budget is not None and not report.done and not report.unchanged:
            raise UsageError(
                f"no entity could be finished within --daily-budget {pace.daily_budget}: give more,"
                " as --dry-run --read-catalogues says how much one takes"
            )
        raise stopped
    if report.left and not report.unknown:
        print_error("asyncfin: ended by Ctrl-C; the same command goes on from there")
        raise KeyboardInterrupt
    raise_failed(report.failed, len(report.entities))
    report.raise_for_unknown()


def raise_failed(failed: Sequence[EntityReport], entities: int) -> None:
    if failed:
        raise EntitiesFailedError([each.failure.error for each in failed if each.failure], entities)


def document(report: ExtractReport) -> dict[str, Any]:
    """Return a report as plain data (docs/cli.md)."""
    figures = ("requests", "rows", "bytes", "deviations", "seconds", "waits")
    return {
        **{state: len(getattr(report, state)) for state in ("done", "unchanged", "failed", "left")},
        **{name: getattr(report, name) for name in figures},
        "stopped": None if report.stopped is None else str(report.stopped),
        "resume_at": report.resume_at,
        "unknown": dict(report.unknown),
        "others": report.others,
        "entities": [asdict(each) for each in report.entities],
    }
