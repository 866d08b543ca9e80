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
from asyncfin.cli.exits import EntitiesFailedError, Exit, InterruptedRunError, UsageError, prefix_errors
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
from asyncfin.extraction.collector import collect_rarely
from asyncfin.extraction.cost import ExtractCost, extract_cost
from asyncfin.extraction.extract import extract as run_extraction
from asyncfin.extraction.files import place_of
from asyncfin.extraction.last import Stop, failures_by_class, read_last
from asyncfin.extraction.prefix import Prefix
from asyncfin.extraction.question import AskedVersion, SharedQuestion
from asyncfin.extraction.report import EntityReport, ExtractReport, UnknownToAllError
from asyncfin.model.words import counted

_PACE = Group("Pace", sort_key=4)
# Of a large extraction the document has those that failed first.
_MOST_ENTITIES = 1_000


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
    max_outage: Annotated[float | None, Parameter(validator=Number(gte=0))] = None,
    grace: Annotated[float, Parameter(validator=Number(gte=0))] = 20.0,
    failed_of_last: bool = False,
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
    costs one request. Ctrl-C finishes what is in progress, and so does SIGTERM,
    for --grace seconds; a second one ends at once.

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
        wait: Sleep until a used-up allowance returns, and while the service fails, instead of ending.
        max_outage: End after so many seconds in which the service has failed. [900]
        grace: After SIGTERM, drop what is still in progress after so many seconds. [20]
        failed_of_last: Read only the entities that failed in the last run of --into.
        no_lock: Take no lock in an object store; no other run may use the same prefix.
        history: Keep what changes from run to run in a feed next to the folder; later runs continue it.
        prune: Delete the files of entities that are not given.
        restated: The latest restated values instead of the original ones.
        both: Both versions, which the column asked_version distinguishes.
        quiet: Show no progress.
    """
    require("pyarrow.parquet", "arrow", "extract")
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
    of = None
    if failed_of_last:
        if entity_ids or ids is not None or prune or dry_run:
            given = "entities, --ids, --prune and --dry-run"
            raise UsageError(f"--failed-of-last reads what failed in the last run: leave out {given}")
        last = _last_of(into, question)
        entities = failed_entities(last)
        if not entities:
            screen().print(f"none failed in the run that ended {last['ended']}")
            return
        of = str(last["began"])
    else:
        entities = tuple(names.given(entity_ids, ids))
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
        if max_outage is not None:
            if wait:
                raise UsageError("--wait waits for any outage: leave out --max-outage")
            arguments["max_outage"] = max_outage
        stop = Stop()
        stop.of = of
        collect_rarely()
        report = asyncio.run(_report(arguments, pace, service, names, quiet, stop, grace))
        _end(report, pace, names, json, stop)


def _last_of(into: str, question: SharedQuestion) -> dict[str, Any]:
    """Return what the last run has left behind, if its failed entities can be read by themselves."""
    last = read_last(place_of(into))
    if last is None:
        raise UsageError(f"--failed-of-last: {into} has no last run: run the whole list")
    if last["question"] != question.hash:
        raise UsageError(f"--failed-of-last: the last run of {into} had another question: give that")
    if left := last["left"]:
        raise UsageError(
            f"--failed-of-last: {counted(left, 'entity was', 'entities were')} left: run the whole list"
        )
    return last


def failed_entities(last: dict[str, Any]) -> tuple[str, ...]:
    """Return the entities that failed in a run."""
    return tuple(each for of_class in last["failures"].values() for each in of_class["entity_ids"])


async def _report(
    arguments: dict[str, Any],
    pace: Pace,
    service: Service,
    names: Names,
    quiet: bool,
    stop: Stop,
    grace: float,
) -> ExtractReport:
    with shown_progress(names, quiet=quiet) as show:
        async with pace.client(service) as client, interruptible(stop, grace) as drop:
            try:
                return await run_extraction(client, **arguments, stop=stop, drop=drop, progress=show)
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
async def interruptible(stop: Stop, grace: float) -> AsyncIterator[asyncio.Event]:
    """Let the first Ctrl-C or SIGTERM set `stop`, and the second end the command; yield `drop`.

    SIGTERM sets `drop` after `grace` seconds.
    """
    drop, task, loop = asyncio.Event(), asyncio.current_task(), asyncio.get_running_loop()
    ended = False

    def interrupt(received: signal.Signals) -> None:
        nonlocal ended
        # Kept in a flag: other code may cancel the task too, and that is not a signal.
        if stop.is_set() and task is not None:
            ended = True
            task.cancel()
            return
        if received == signal.SIGTERM:
            stop.exit_code = Exit.TERMINATED
            loop.call_later(grace, drop.set)
        stop.set()
        again = "Ctrl-C again" if received == signal.SIGINT else "a second signal"
        print_error(f"asyncfin: finishing what is in progress; {again} ends at once")

    signals = (signal.SIGINT, signal.SIGTERM)
    with suppress(NotImplementedError):  # on Windows the first Ctrl-C ends it
        for each in signals:
            loop.add_signal_handler(each, interrupt, each)
    try:
        yield drop
    except asyncio.CancelledError:
        if ended:
            raise InterruptedRunError(stop.exit_code) from None
        raise
    finally:
        with suppress(NotImplementedError):
            for each in signals:
                loop.remove_signal_handler(each)


def _end_estimate(cost: ExtractCost, names: Names, json: bool) -> None:
    if json:
        print_json({**asdict(cost), "seconds": cost.seconds, "fits": cost.fits})
    else:
        screen().print(names.add_names(str(cost)))
    raise_failed(cost.failed, cost.entities)


def _end(report: ExtractReport, pace: Pace, names: Names, json: bool, stop: Stop) -> None:
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
        by = "SIGTERM" if stop.exit_code == Exit.TERMINATED else "Ctrl-C"
        print_error(f"asyncfin: ended by {by}; the same command goes on from there")
        raise InterruptedRunError(stop.exit_code)
    raise_failed(report.failed, len(report.entities))
    report.raise_for_unknown()


def raise_failed(failed: Sequence[EntityReport], entities: int) -> None:
    if failed:
        raise EntitiesFailedError([each.failure for each in failed if each.failure], entities)


def document(report: ExtractReport) -> dict[str, Any]:
    """Return a report as plain data (docs/cli.md)."""
    entities = [*report.failed, *report.left, *report.done, *report.unchanged]
    figures = ("requests", "rows", "bytes", "deviations", "unlisted", "seconds", "waits")
    return {
        **{state: len(getattr(report, state)) for state in ("done", "unchanged", "failed", "left")},
        **{name: getattr(report, name) for name in figures},
        "stopped": None if report.stopped is None else str(report.stopped),
        "resume_at": report.resume_at,
        "unknown": dict(report.unknown),
        "others": report.others,
        "failures": failures_by_class(report.failed),
        "entities": [asdict(each) for each in entities[:_MOST_ENTITIES]],
        "more_entities": max(0, len(entities) - _MOST_ENTITIES),
    }
