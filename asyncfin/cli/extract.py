"""`asyncfin extract`: many entities to Parquet files, with progress, or an estimate of the requests."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from attrs import frozen
from cyclopts import Parameter, Token
from cyclopts.validators import Number

from asyncfin.cli.entities import Names
from asyncfin.cli.exits import UsageError, prefix_errors
from asyncfin.cli.options import STDIN, AsJson, entity_group, refuse_bytes, require_place
from asyncfin.cli.question import Periods, Selection
from asyncfin.cli.service import Pace, Service

if TYPE_CHECKING:
    from asyncfin.extraction.question import AskedVersion


@Parameter(name="*")
@frozen(kw_only=True)
class Run:
    """What a run does about files, the lock, outages and signals."""

    refresh: Annotated[bool, Parameter(help="Read unchanged entities again.")] = False
    replace: Annotated[bool, Parameter(help="Delete the folder's files of another question first.")] = False
    wait: Annotated[
        bool,
        Parameter(
            help="Sleep until a used-up allowance returns, and while the service fails, instead of ending."
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
            help="After SIGTERM, drop what is still in progress after so many seconds. [20]",
            validator=Number(gte=0),
        ),
    ] = 20.0
    no_lock: Annotated[
        bool, Parameter(help="Take no lock in an object store; no other run may use the same prefix.")
    ] = False
    history: Annotated[
        bool,
        Parameter(
            help="Keep what changes from run to run in a feed next to the folder; later runs continue it."
        ),
    ] = False
    prune: Annotated[bool, Parameter(help="Delete the files of entities that are not given.")] = False

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
            **({} if self.max_outage is None else {"max_outage": self.max_outage}),
        }


def _folder(_: Any, tokens: Sequence[Token]) -> str:
    """Return the folder that --into names; refuse, in the words of the option, where no files can be put."""
    from asyncfin.extraction.files import place_of

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
        into: The folder for the files, or a URL such as s3://bucket/prefix; the lock is next to it.
        ids: A file of more entity ids or names, one a line; - for standard input.
        dry_run: Only estimate the cost.
        read_catalogues: With --dry-run: read the catalogues instead of guessing.
        failed_of_last: Read only the entities that failed in the last run of --into.
        restated: The latest restated values instead of the original ones.
        both: Both versions, which the column asked_version distinguishes.
        quiet: Show no progress.
    """
    if read_catalogues and not dry_run:
        raise UsageError("--read-catalogues goes with --dry-run: add it")
    if run.wait and dry_run:
        raise UsageError("--wait is not for a --dry-run, which waits for nothing: leave out one of them")
    if ids == service.token_file == STDIN:
        raise UsageError("--ids and --token-file can't both be standard input: name a file for one of them")
    if both and restated:
        raise UsageError("--both includes the restated values: leave out --restated")
    if failed_of_last and (entity_ids or ids is not None or run.prune or dry_run):
        given = "entities, --ids, --prune and --dry-run"
        raise UsageError(f"--failed-of-last reads what failed in the last run: leave out {given}")
    version: AskedVersion = "both" if both else "latest_restated" if restated else "original"
    options = run.arguments()

    from asyncfin.cli.asked import select_of, selection_of

    select, chosen = select_of(selection), selection_of(periods)
    # Read before the event loop runs, where Ctrl-C would not end a wait for standard input.
    entities = () if failed_of_last else tuple(names.given(entity_ids, ids))
    require_place(into, "extract", f"--into {into}")
    service.check()

    from asyncfin.cli.extraction import Extraction
    from asyncfin.extraction.question import SharedQuestion

    question = SharedQuestion(select, chosen, version)
    extraction = Extraction(question, into, service, pace, names, quiet=quiet, json=json)
    if dry_run:
        extraction.estimate(entities, options, read_catalogues=read_catalogues)
    elif failed_of_last:
        extraction.run_failed(options, run.grace)
    else:
        extraction.run(entities, options, run.grace)
