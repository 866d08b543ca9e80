"""`asyncfin query`: one query of one entity or more, its result in several forms,
or only its plan.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from asyncfin.cli.errors import UsageError, name_options, print_error
from asyncfin.cli.options import (
    IsRestated,
    Names,
    Periods,
    QueryForm,
    Selection,
    Service,
    Whole,
    choose_one,
    period_group,
)
from asyncfin.cli.terminal import (
    print_csv,
    print_line,
    print_lines,
    print_rows,
    print_text,
    screen,
)
from asyncfin.errors import SelectionError
from asyncfin.words import counted

if TYPE_CHECKING:
    from asyncfin import Comparison, Panel
    from asyncfin.typing import Shown, ValueVersion

_LEAST_WIDTH = 40
# A table of latest values has all of them.
_ALL = 10**9


async def query(
    *entity_ids: str,
    selection: Selection = Selection(),
    periods: Periods = Periods(),
    is_restated: IsRestated = False,
    latest: Annotated[Whole, Parameter(group=period_group)] = None,
    form: QueryForm = QueryForm(),
    names: Names = Names(),
    service: Service = Service(),
) -> None:
    """Query series and print their values as a table.

    The query is planned, so that it costs few requests. In the table a dot
    marks a period without a value; a reported zero is 0. Where no periods are
    named and there are more than 12, it shows the latest; CSV and JSON have all.

      asyncfin query ENTITY_ID --metric Revenue --annual --last 5
      asyncfin query ENTITY_ID --basis product --quarterly --csv > products.csv
      asyncfin query ENTITY_ID ENTITY_ID --metric Revenue --latest 1

    Args:
        entity_ids: The entities, O- and 32 characters each, or their names. Two
            or more are compared.
        is_restated: The latest restated values instead of the original ones.
        latest: Only the last N values of each series, with their own periods.
    """
    # All that can be checked before a request is spent is checked first.
    choose_one(
        {
            "--latest": latest is not None,
            "--explain": form.explain,
            "--all": form.empty and not form.csv,
        }
    )
    if latest is not None and (periods.last is not None or latest < 1):
        raise UsageError(
            "--latest N has the last N values, 1 or more, of each series: leave --last "
            "out"
        )
    entities = names.require_ids(entity_ids)
    if form.explain and len(entities) > 1:
        raise UsageError("--explain is for one entity")
    version: ValueVersion = "latest_restated" if is_restated else "original"
    question = selection.select(), periods.selection()
    service.check()

    from asyncfin import Panel
    from asyncfin.cli.session import check_failed, connect

    async with connect(service, "Reading", names) as (client, progress):
        result: Panel | Comparison
        if form.explain:
            plan = await client.plan(entities[0], *question, value_version=version)
        elif len(entities) > 1:
            result = await client.compare(entities, *question, value_version=version)
        else:
            result = await client.query(entities[0], *question, value_version=version)
    if form.explain:
        cost = counted(progress.requests, "request")
        print_line(f"{plan}\nplanning has spent {cost}")
        return
    # The notes below a table show why it is empty, and what entities do not have.
    has_table = not any(form.options().values())
    if latest is not None:
        _print_latest(result, latest, form)
    else:
        _print_result(result, form, latest=periods == Periods())
    if isinstance(result, Panel):
        if not has_table and not result.value_count:
            for note in map(_write_options, result.notes):
                print_error(f"asyncfin: {result.dataset.name}: {note}")
        return
    if not has_table:
        for line in result.lacking():
            print_error(f"asyncfin: {line}")
    check_failed(result.failed, len(entities), names)
    if unknown := result.unknown:
        first = next(iter(result)).catalogue
        problem = first.explain(unknown, "no entity")
        raise SelectionError(problem, missing=unknown)


def _print_result(
    result: "Panel | Comparison", form: QueryForm, *, latest: bool
) -> None:
    """Print a panel or a comparison in the form of the options.

    Args:
        latest: only the latest periods that fit into one table.
    """
    if form.json:
        print_text(result.to_json(indent=2))
    elif form.csv:
        # All rows first: a value that breaks the spec must not leave half a file.
        print_csv(result.to_csv(empty=form.empty))
    else:
        layout = result.show(
            form.unit,
            max(_LEAST_WIDTH, screen().width),
            all_series=True,
            all_periods=not latest,
            empty=form.empty,
        )
        notes = [
            f"{note} (--all shows them)" if note.endswith("left out") else note
            for note in layout.notes
        ]
        _print_layout(layout, [*notes, counted(result.requests, "request")])


def _print_latest(result: "Panel | Comparison", count: int, form: QueryForm) -> None:
    """Print the last values of each series in the form of the options."""
    latest = result.latest(count)
    if form.json or form.csv:
        print_rows(latest.to_dicts(), as_json=form.json)
        return
    width = max(_LEAST_WIDTH, screen().width)
    layout = latest.show(form.unit, width, limit=_ALL)
    notes = [*layout.notes, *result.notes, counted(result.requests, "request")]
    _print_layout(layout, notes)


def _write_options(note: str) -> str:
    """Return a note with options in place of Python."""
    remedy = "write --latest 1 in place of --last"
    note = note.replace("query all periods and call latest()", remedy)
    # The class of an error is Python too.
    return name_options(re.sub(r": [A-Z]\w+Error: ", ": ", note))


def _print_layout(layout: "Shown", notes: Iterable[str]) -> None:
    """Print the heading and the tables for people, and notes."""
    title, *subtitles = layout.heading.splitlines()
    print_line(title, "bold")
    print_line("\n".join([*subtitles, ""]))
    for table in layout.tables:
        print_lines(table.split("\n"))
        print_line("")
    print_line("\n".join(dict.fromkeys(map(_write_options, notes))), "dim")
