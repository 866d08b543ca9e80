"""`asyncfin changes` and `asyncfin as-of`: what changed in an extraction, and what was
known when.
"""

from asyncfin.cli.entities import Names
from asyncfin.cli.form import FeedForm
from asyncfin.cli.options import Several, choose_one, require_place
from asyncfin.cli.streams import print_error


def changes(
    place: str,
    /,
    *entities: str,
    since: str | None = None,
    last: bool = False,
    change: Several = (),
    metric: Several = (),
    names: Names = Names(),
    form: FeedForm = FeedForm(),
) -> None:
    """Show what changed in an extraction.

    `asyncfin extract --history` begins a feed, and later runs continue it. No
    request is sent.

      asyncfin changes night --last --change restated
      asyncfin changes night nvidia --since 2025-01-31 --names names.csv
      asyncfin changes s3://bucket/night --csv > changes.csv

    Args:
        place: The folder or URL of the extraction.
        entities: Only these entities, O- and 32 characters each, or their names.
        since: Only runs later than this run, or runs that began on this date or at this
            time (UTC) or later.
        last: Only the newest run.
        change: Only appeared, restated, relabelled or vanished rows; repeat it for any
            of several.
        metric: Only this metric id; repeat it for any of several.
    """
    choose_one({"--since": since is not None, "--last": last})
    entity_ids = [names.entity_id(each) for each in entities]
    require_place(place, "the change feed", place)

    from asyncfin.analysis.changes import CHANGES
    from asyncfin.cli.feed import check_known, filtered, print_changes, write
    from asyncfin.extraction.as_of import read_changes
    from asyncfin.extraction.contents import feed_contents

    check_known("--change ", change, dict.fromkeys(CHANGES, ""), place)
    table = read_changes(place, since=since, last=last)
    # After the rows: an entity of a run that finishes in between is then in the
    # contents only.
    contents = feed_contents(place)
    check_known("", entity_ids, contents.names, place)
    check_known("--metric ", metric, dict.fromkeys(contents.metrics, ""), place)
    table = filtered(
        table, {"entity_id": entity_ids, "metric_id": metric, "change": change}
    )
    if not write(table, form):
        # The rows of an entity that enters the feed would hide the others, unless they
        # are asked for.
        print_changes(table, contents, entries=bool(change))


def as_of(
    place: str,
    when: str,
    /,
    *entities: str,
    names: Names = Names(),
    form: FeedForm = FeedForm(),
) -> None:
    """Show an extraction as it was known at a time.

    It needs the change feed that `asyncfin extract --history` begins. No request
    is sent.

      asyncfin as-of night 2025-01-31
      asyncfin as-of night 2025-01-31T06:00 nvidia --to then.parquet

    Args:
        place: The folder or URL of the extraction.
        when: A date or time (UTC); a date is its first moment.
        entities: Only these entities, O- and 32 characters each, or their names.
    """
    entity_ids = [names.entity_id(each) for each in entities]
    require_place(place, "the change feed", place)

    from asyncfin.cli.feed import (
        check_known,
        filtered,
        lines_not_kept,
        print_state,
        write,
    )
    from asyncfin.extraction.as_of import as_of as state_as_of
    from asyncfin.extraction.contents import feed_contents

    table = state_as_of(place, when)
    if entity_ids:
        check_known("", entity_ids, feed_contents(place).names, place)
        table = filtered(table, {"entity_id": entity_ids})
    lines = lines_not_kept(table, entity_ids)
    if write(table, form):
        for line in lines:
            print_error(line)
    else:
        print_state(table, lines)
