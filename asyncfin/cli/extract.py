"""`asyncfin extract`: many entities to Parquet files, with progress, or an estimate of
the requests.
"""

import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from attrs import frozen
from cyclopts import Parameter, Token
from cyclopts.validators import Number

from asyncfin.cli.entities import Names
from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import (
    STDIN,
    AsJson,
    entity_group,
    refuse_bytes,
    require_place,
)
from asyncfin.cli.question import Periods, Selection
from asyncfin.cli.service import Pace, Service

if TYPE_CHECKING:
    from asyncfin.typing import AskedVersion


# Seconds: a run with --wait outlasts any outage.
_NO_END = 1e9


@Parameter(name="*")
@frozen(kw_only=True)
class Run:
    """What a run does about files, the lock, outages and signals."""

    refresh: Annotated[bool, Parameter(help="Read unchanged entities again.")] = False
    replace: Annotated[
        bool, Parameter(help="Delete the folder's files of another question first.")
    ] = False
    fresh_for: Annotated[
        str | None,
        Parameter(
            help="Do not ask for entities confirmed less than so long ago, such as "
            "20h, 90m or 3d."
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
    grace: Annotated[
        float,
        Parameter(
            help="After SIGTERM, cancel what is still in progress after so many "
            "seconds. [20]",
            validator=Number(gte=0),
        ),
    ] = 20.0
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
        if self.max_outage is not None and self.wait:
            raise UsageError("--wait waits for any outage: leave out --max-outage")
        return {
            "refresh": self.refresh,
            "replace": self.replace,
            "wait": self.wait,
            "lock": not self.no_lock,
            "history": self.history or None,
            "prune": self.prune,
            "allow_missing": self.allow_missing,
            "fresh_for": None if self.fresh_for is None else _duration(self.fresh_for),
        }

    @property
    def patience(self) -> float:
        """For how many seconds an outage of the service is waited for."""
        if self.wait:
            return _NO_END
        return 900.0 if self.max_outage is None else self.max_outage


def _duration(text: str) -> timedelta:
    """Return a duration such as 20h."""
    if (parts := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)) is None:
        raise UsageError(
            f"--fresh-for must be a number with s, m, h or d, such as 20h, not {text!r}"
        )
    units = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
    return timedelta(**{units[parts[2]]: float(parts[1])})


def _folder(_: Any, tokens: Sequence[Token]) -> str:
    """Return the folder that --into names; refuse, in the words of the option, where no
    files can be put.
    """
    from asyncfin.errors import ArgumentError
    from asyncfin.extraction.places import place_of

    text = tokens[-1].value
    refuse_bytes("--into", text)
    if not text:  # as a path it would be the current folder
        raise UsageError("--into must be the path of a folder, not ''")
    try:
        place_of(text)
    except ArgumentError as error:
        raise UsageError(f"--into{str(error).removeprefix('to')}") from None
    return text


def extract(
    *entity_ids: str,
    into: Annotated[str, Parameter(converter=_folder)],
    ids: Annotated[
        Path | None, Parameter(allow_leading_hyphen=True, group=entity_group)
    ] = None,
    dry_run: bool = False,
    failed_of_last: bool = False,
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
    costs one request. Ctrl-C finishes what is in progress, and so does SIGTERM,
    for --grace seconds; a second one ends at once.

      asyncfin extract --ids ids.txt --into night --annual --dry-run
      asyncfin extract --ids ids.txt --into night --annual

    Args:
        entity_ids: The entities, O- and 32 characters each, or their names.
        into: The folder for the files, or a URL such as s3://bucket/prefix; the lock is
            next to it.
        ids: A file of more entity ids or names, one a line; - for standard input.
        dry_run: Only estimate the cost.
        failed_of_last: Read only the entities that failed in the last run of --into.
        restated: The latest restated values instead of the original ones.
        both: Both versions, which the column asked_version distinguishes.
        quiet: Show no progress.
    """
    if run.wait and dry_run:
        raise UsageError(
            "--wait is not for a --dry-run, which waits for nothing: leave out one of "
            "them"
        )
    if ids == service.token_file == STDIN:
        raise UsageError(
            "--ids and --token-file can't both be standard input: name a file for one "
            "of them"
        )
    if both and restated:
        raise UsageError("--both includes the restated values: leave out --restated")
    if failed_of_last and (entity_ids or ids is not None or run.prune or dry_run):
        given = "entities, --ids, --prune and --dry-run"
        raise UsageError(
            f"--failed-of-last reads what failed in the last run: leave out {given}"
        )
    version: AskedVersion = (
        "both" if both else "latest_restated" if restated else "original"
    )
    options = run.arguments()

    from asyncfin.cli.asked import select_of, selection_of

    select, chosen = select_of(selection), selection_of(periods)
    # Read before the event loop runs, where Ctrl-C would not end a wait for standard
    # input.
    entities = () if failed_of_last else tuple(names.given(entity_ids, ids))
    require_place(into, "extract", f"--into {into}")
    service.check()

    from asyncfin.cli.extraction import Extraction
    from asyncfin.extraction.question import SharedQuestion

    question = SharedQuestion(select, chosen, version)
    extraction = Extraction(
        question, into, service, pace, names, run.patience, quiet=quiet, json=json
    )
    if dry_run:
        extraction.estimate(entities, options)
    elif failed_of_last:
        extraction.run_failed(options, run.grace)
    else:
        extraction.run(entities, options, run.grace)
