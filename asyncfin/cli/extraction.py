"""Running an extraction or its estimate until a signal ends it, and what is printed of
it (docs/cli.md).
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import Any

from attrs import asdict, evolve, frozen

from asyncfin import Retry
from asyncfin.cli.entities import Names
from asyncfin.cli.environment import shared_place
from asyncfin.cli.exits import EntitiesFailedError, InterruptedRunError, UsageError
from asyncfin.cli.extract_progress import shown_progress
from asyncfin.cli.output import print_json, screen
from asyncfin.cli.service import Pace, Service
from asyncfin.cli.session import Progress, client_of, progress
from asyncfin.cli.streams import print_error
from asyncfin.errors import AllowanceExhaustedError
from asyncfin.extraction.collector import collect_rarely
from asyncfin.extraction.cost import ExtractCost, extract_cost
from asyncfin.extraction.exit import Exit
from asyncfin.extraction.extract import extract
from asyncfin.extraction.last import Stop, failures_by_class, read_last
from asyncfin.extraction.places import place_of
from asyncfin.extraction.question import SharedQuestion
from asyncfin.extraction.report import EntityReport, ExtractReport, UnknownToAllError
from asyncfin.words import counted

# Of a large extraction the document has those that failed first.
_MOST_ENTITIES = 1_000
# The arguments that an estimate takes too.
_OF_BOTH = ("refresh", "replace")


@frozen
class Extraction:
    """A question to many entities for one place, and how its progress and its report
    are shown.

    `patience` is for how many seconds an outage of the service is waited for.
    """

    question: SharedQuestion
    into: str
    service: Service
    pace: Pace
    names: Names
    patience: float
    quiet: bool
    json: bool

    def estimate(self, entity_ids: Sequence[str], options: Mapping[str, Any]) -> None:
        """Print what a run with these options of `asyncfin.extract` would cost."""
        of_both = {name: options[name] for name in _OF_BOTH}
        cost = asyncio.run(self._cost({**self._arguments(entity_ids), **of_both}))
        if self.json:
            print_json({**asdict(cost), "fits": cost.fits})
        else:
            screen().print(self.names.add_names(str(cost)))

    def run(
        self, entity_ids: Iterable[str], options: Mapping[str, Any], grace: float
    ) -> None:
        """Run the extraction with these options of `asyncfin.extract`, and print its
        report.

        What is in progress is cancelled `grace` seconds after SIGTERM.
        """
        stop = Stop()
        collect_rarely()
        arguments = {**self._arguments(entity_ids), **options}
        self._end(asyncio.run(self._report(arguments, stop, grace)), stop)

    def run_failed(self, options: Mapping[str, Any], grace: float) -> None:
        """Run the extraction of the entities that failed in the last run; if none
        failed, say so.
        """
        last = self._last()
        failed = [
            each
            for of_class in last["failures"].values()
            for each in of_class["entity_ids"]
        ]
        if failed:
            self.run(failed, options, grace)
        else:
            screen().print(f"none failed in the run that ended {last['ended']}")

    def _arguments(self, entity_ids: Iterable[str]) -> dict[str, Any]:
        return {
            "entity_ids": tuple(entity_ids),
            **asdict(self.question, recurse=False),
            "to": self.into,
        }

    def _last(self) -> dict[str, Any]:
        """Return what the last run has left behind, if its failed entities can be read
        by themselves.
        """
        last = read_last(place_of(self.into))
        if last is None:
            raise UsageError(
                f"--failed-of-last: {self.into} has no last run: run the whole list"
            )
        if last["question"] != self.question.hash:
            raise UsageError(
                f"--failed-of-last: the last run of {self.into} had another question: "
                "give that"
            )
        if left := last["left"]:
            raise UsageError(
                f"--failed-of-last: {counted(left, 'entity was', 'entities were')} "
                "left: run the whole list"
            )
        return last

    async def _report(
        self, arguments: dict[str, Any], stop: Stop, grace: float
    ) -> ExtractReport:
        with shown_progress(self.names, quiet=self.quiet) as show:
            async with (
                client_of(
                    self.service,
                    lane="bulk",
                    retry=Retry(max_outage=self.patience),
                    **asdict(self.pace),
                ) as client,
                interruptible(stop, grace),
            ):
                try:
                    return await extract(client, **arguments, stop=stop, progress=show)
                except UnknownToAllError as error:
                    return (
                        error.extract_report
                    )  # it is printed first; `_end` raises the error

    async def _cost(self, arguments: dict[str, Any]) -> ExtractCost:
        # The budget is the run's, and does not bind the estimate. A shared bucket's
        # binds all processes: an estimate without it would lift it for those at work.
        budget, is_shared = self.pace.daily_budget, shared_place() is not None
        pace = self.pace if is_shared else evolve(self.pace, daily_budget=None)
        with (
            nullcontext(Progress("")) if self.quiet else progress("Estimating") as shown
        ):
            async with client_of(
                self.service, observers=(shown,), **asdict(pace)
            ) as client:
                cost = await extract_cost(client, **arguments)
                spent = client.bucket.stats().spent_today or 0.0
        if budget is not None and is_shared:
            return evolve(cost, budget=max(0.0, budget - spent))
        return evolve(cost, budget=budget)

    def _end(self, report: ExtractReport, stop: Stop) -> None:
        """Print the report, and raise the error that decides the exit code."""
        if self.json:
            print_json(document(report))
        else:
            screen().print(self.names.add_names(str(report)))
        if (stopped := report.stopped) is not None:
            own = isinstance(stopped, AllowanceExhaustedError) and not stopped.answered
            # A budget that is too small for any entity: repeating the command would
            # never finish.
            if (
                own
                and self.pace.daily_budget is not None
                and not report.done
                and not report.unchanged
            ):
                raise UsageError(
                    "no entity could be finished within --daily-budget "
                    f"{self.pace.daily_budget}: give more,"
                    " as --dry-run says how much one takes"
                )
            raise stopped
        if report.left and not report.unknown:
            by = "SIGTERM" if stop.exit_code == Exit.TERMINATED else "Ctrl-C"
            print_error(f"asyncfin: ended by {by}; the same command goes on from there")
            raise InterruptedRunError(stop.exit_code)
        raise_failed(report.failed, len(report.entities))
        report.raise_for_unknown()


@asynccontextmanager
async def interruptible(stop: Stop, grace: float) -> AsyncIterator[None]:
    """Let the first Ctrl-C or SIGTERM set `stop`, and the second end the command.

    SIGTERM ends it after `grace` seconds.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    ended = False

    def end() -> None:
        nonlocal ended
        # Kept in a flag: other code may cancel the task too, and that is not a signal.
        if task is not None:
            ended = True
            task.cancel()

    def end_after_grace() -> None:
        print_error("asyncfin: ended by SIGTERM; the same command goes on from there")
        end()

    def interrupt(received: signal.Signals) -> None:
        if stop.is_set():
            end()
            return
        if received == signal.SIGTERM:
            stop.exit_code = Exit.TERMINATED
            loop.call_later(grace, end_after_grace)
        stop.set()
        again = "Ctrl-C again" if received == signal.SIGINT else "a second signal"
        print_error(f"asyncfin: finishing what is in progress; {again} ends at once")

    signals = (signal.SIGINT, signal.SIGTERM)
    with suppress(NotImplementedError):  # on Windows the first Ctrl-C ends it
        for each in signals:
            loop.add_signal_handler(each, interrupt, each)
    try:
        yield
    except asyncio.CancelledError:
        if ended:
            raise InterruptedRunError(stop.exit_code) from None
        raise
    finally:
        with suppress(NotImplementedError):
            for each in signals:
                loop.remove_signal_handler(each)


def raise_failed(failed: Sequence[EntityReport], entities: int) -> None:
    if failed:
        raise EntitiesFailedError(
            [each.failure for each in failed if each.failure], entities
        )


def document(report: ExtractReport) -> dict[str, Any]:
    """Return a report as plain data (docs/cli.md)."""
    entities = [*report.failed, *report.left, *report.done, *report.unchanged]
    figures = ("requests", "uncounted", "rows", "bytes", "unlisted", "seconds", "waits")
    return {
        **{
            state: len(getattr(report, state))
            for state in ("done", "unchanged", "failed", "left")
        },
        **{name: getattr(report, name) for name in figures},
        "repeated": dict(report.repeated),
        "stopped": None if report.stopped is None else str(report.stopped),
        "resume_at": report.resume_at,
        "unknown": dict(report.unknown),
        "others": report.others,
        "failures": failures_by_class(report.failed),
        "entities": [asdict(each) for each in entities[:_MOST_ENTITIES]],
        "more_entities": max(0, len(entities) - _MOST_ENTITIES),
    }
