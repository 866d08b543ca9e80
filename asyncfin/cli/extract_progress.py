"""Progress of an extraction on standard error: a bar on a terminal, otherwise a line
every ten seconds.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from asyncfin.cli.entities import Names
from asyncfin.cli.output import progress_console
from asyncfin.clock import utc_now
from asyncfin.extraction.progress import ExtractProgress, OnProgress
from asyncfin.words import counted

_LINE_SECONDS = 10.0


@contextmanager
def shown_progress(names: Names, *, quiet: bool) -> Iterator[OnProgress | None]:
    """Return the callback that shows progress; None if it is to be quiet."""
    console = progress_console()
    if quiet:
        yield None
    elif not console.is_terminal:
        # rich would wrap at 80 columns in a log file.
        console.width = 100_000
        yield _Lines(console, names)
    else:
        bar = _Bar(console, names)
        with Live(bar, console=console, refresh_per_second=4, transient=True):
            yield bar


def describe_failure(progress: ExtractProgress, names: Names) -> str:
    """Return a line for the entity that has just failed, or nothing if none has."""
    if progress.ended is None or (failure := progress.ended.failure) is None:
        return ""
    return (
        f"{names.named(progress.ended.entity_id)} failed: {failure.error}: "
        f"{failure.message}"
    )


def _ended(progress: ExtractProgress) -> int:
    return progress.done + progress.unchanged + progress.failed


def cost(progress: ExtractProgress) -> str:
    pace = progress.requests / progress.seconds if progress.seconds else 0.0
    facts = [counted(progress.requests, "request"), f"{pace:,.1f} a second"]
    if progress.unchanged:
        facts.append(f"{progress.unchanged:,} unchanged")
    if progress.failed:
        facts.append(f"{progress.failed:,} failed")
    return ", ".join(facts)


def _waiting(progress: ExtractProgress, before: str) -> str:
    return f"{before}waiting: {progress.waiting}" if progress.waiting else ""


class _Lines:
    """Prints a line when the run begins, one every ten seconds, and one for each
    failure, with the time.
    """

    def __init__(self, console: Console, names: Names) -> None:
        self._console, self._names = console, names
        self._next: float | None = None

    def __call__(self, progress: ExtractProgress) -> None:
        of = counted(progress.entities, "entity", "entities")
        if self._next is None:
            self._next = progress.seconds + _LINE_SECONDS
            self._print(f"begins: {of}, {progress.files:,} with a file")
        if failed := describe_failure(progress, self._names):
            self._print(failed)
        # Ten seconds after this one and not on a grid: after a pause there would be
        # several at once.
        if progress.seconds >= self._next:
            self._next = progress.seconds + _LINE_SECONDS
            self._print(
                f"{_ended(progress):,} of {of}, "
                f"{cost(progress)}{_waiting(progress, ', ')}"
            )

    def _print(self, line: str) -> None:
        self._console.print(f"{utc_now():%Y-%m-%dT%H:%M:%SZ} {line}")


class _Bar:
    """Shows a bar of the entities, and below it the requests and the reason for
    waiting.
    """

    def __init__(self, console: Console, names: Names) -> None:
        self._console, self._names = console, names
        self._below = Text(style="dim", no_wrap=True, overflow="ellipsis")
        self._bar = Progress(
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
        self._task = self._bar.add_task("", total=None)

    def __call__(self, progress: ExtractProgress) -> None:
        if failed := describe_failure(progress, self._names):
            self._console.print(failed)
        self._bar.update(
            self._task, completed=_ended(progress), total=progress.entities
        )
        self._below.plain = cost(progress) + _waiting(progress, "\n")

    def __rich__(self) -> Group:
        return Group(self._bar.get_renderable(), self._below)
