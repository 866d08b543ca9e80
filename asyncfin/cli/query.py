"""`asyncfin query`: one question to one entity or several, its result in several forms,
or only its plan.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    require,
)
from asyncfin.cli.terminal import (
    print_arrow,
    print_csv,
    print_line,
    print_lines,
    print_rows,
    print_table,
    print_text,
    replace_file,
    screen,
)
from asyncfin.errors import SelectionError, shorten_middle
from asyncfin.words import (
    counted,
    either,
    entity_names,
    named_entity,
    number_text,
)

if TYPE_CHECKING:
    from asyncfin import Comparison, Panel
    from asyncfin.typing import Shown, ValueVersion

_LEAST_WIDTH = 40
# The length of a description. Many end with the unit, so the middle is cut.
_LONGEST = 160
# A table of latest values has all of them.
_ALL = 10**9
_TIME = "%Y-%m-%d %H:%M UTC"
_PICTURES = (".png", ".pdf", ".svg")
# The ways to twelve months, and the sign of each operand.
_SIGNS = {"year": ("",), "year to date": ("", "+ ", "- ")}
_SUM = ("", "+ ", "+ ", "+ ")


async def query(
    *entity_ids: str,
    selection: Selection = Selection(),
    periods: Periods = Periods(),
    is_restated: IsRestated = False,
    latest: Annotated[Whole, Parameter(group=period_group)] = None,
    ttm: Annotated[bool, Parameter(group=period_group)] = False,
    form: QueryForm = QueryForm(),
    names: Names = Names(),
    service: Service = Service(),
) -> None:
    """Query series and print their values as a table.

    The question is planned, so that it costs few requests. In the table a dot
    marks a period without a value; a reported zero is 0. Where no periods are
    named and there are more than 12, it shows the latest; CSV and JSON have all.

      asyncfin query ENTITY_ID --metric Revenue --annual --last 5
      asyncfin query ENTITY_ID --basis product --quarterly --csv > products.csv
      asyncfin query ENTITY_ID ENTITY_ID --metric EPS --annual --plot two.pdf
      asyncfin query ENTITY_ID ENTITY_ID --metric Revenue --ttm

    Args:
        entity_ids: The entities, O- and 32 characters each, or their names. Several are
            compared.
        is_restated: The latest restated values instead of the original ones.
        latest: Only the last N values of each series, with their own periods.
        ttm: The last twelve months, added up of published values.
    """
    # All that can be checked before a request is spent is checked first.
    choose_one(
        {
            "--ttm": ttm,
            "--latest": latest is not None,
            "--plot": form.plot is not None,
            "--explain": form.explain,
            "--all": form.empty and not form.csv,
        }
    )
    if ttm:
        if periods != Periods() or form.unit is not None:
            raise UsageError(
                "--ttm requests all periods and divides no number: leave the options "
                "of periods and --unit out"
            )
        require("pyarrow", "arrow", "--ttm")
    if latest is not None and (periods.last is not None or latest < 1):
        raise UsageError(
            "--latest N has the last N values, 1 or more, of each series: leave --last "
            "out"
        )
    if form.plot is not None:
        _check_picture(form.plot)
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
            cost = counted(progress.requests, "request")
            print_line(f"{plan}\nplanning has spent {cost}")
            return
        if len(entities) > 1:
            result = await client.compare(entities, *question, value_version=version)
        else:
            result = await client.query(entities[0], *question, value_version=version)
    if ttm:
        _print_twelve_months(result, selection.period_meaning, form)
    elif latest is not None:
        _print_latest(result, latest, form)
    else:
        _print_result(result, form, latest=periods == Periods())
    # A table shows itself why it is empty.
    has_table = not any(form.options().values()) and not ttm
    if isinstance(result, Panel):
        if not has_table and not result.value_count:
            for note in map(_write_options, result.notes):
                print_error(f"asyncfin: {result.dataset.name}: {note}")
        return
    for line in result.lacking(periods=not has_table):
        print_error(f"asyncfin: {line}")
    check_failed(result.failed, result.ended, len(entities), names)
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
    elif form.plot is not None:
        _draw(result, form.plot)
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
    from asyncfin import Panel

    latest = result.latest(count)
    if form.json or form.csv:
        print_rows(latest.to_dicts(), as_json=form.json)
        return
    width = max(_LEAST_WIDTH, screen().width)
    layout = latest.show(form.unit, width, limit=_ALL)
    panels = [result] if isinstance(result, Panel) else list(result)
    notes = [*layout.notes, *_describe_publications(panels), *result.notes]
    _print_layout(layout, [*notes, counted(result.requests, "request")])


def _describe_publications(panels: Sequence["Panel"]) -> list[str]:
    """Return a line for each publication. It names the company where there are more."""
    names = entity_names(panel.catalogue for panel in panels)
    lines = []
    for panel in panels:
        dataset = panel.dataset
        name = f"{names[dataset.entity_id]}: " if len(panels) > 1 else ""
        time = f"{dataset.created_timestamp:{_TIME}}"
        lines.append(f"{name}publication {dataset.dataset_id} of {time}")
    return lines


def _write_options(note: str) -> str:
    """Return a note with options in place of Python."""
    note = note.replace("query all periods and call latest()", "write --latest 1")
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


def _check_picture(file: Path) -> None:
    """Reject, before a request is spent, a file that could not be written."""
    require("matplotlib", "plot", "--plot")
    if file.suffix.lower() not in _PICTURES:
        raise UsageError(f"--plot {file} must end in {either(_PICTURES)}")
    if not file.parent.is_dir():
        raise UsageError(f"--plot {file}: {file.parent} is not a folder")


def _draw(result: "Panel | Comparison", file: Path) -> None:
    """Draw the series into a file."""
    from matplotlib import pyplot

    figure: Any = result.plot().figure
    try:
        form = file.suffix.lower()[1:]
        replace_file(file, lambda stream: figure.savefig(stream, dpi=150, format=form))
    finally:
        pyplot.close(figure)
    print_line(f"wrote {file}")


def _print_twelve_months(
    result: "Panel | Comparison", meanings: Sequence[str], form: QueryForm
) -> None:
    """Print the last twelve months of the series of panels.

    Args:
        meanings: the period meanings of values that add up. Empty: `OVER_PERIOD`.
    """
    from asyncfin import Panel
    from asyncfin.analysis.twelve_months import OVER_PERIOD, last_twelve_months

    panels = [result] if isinstance(result, Panel) else list(result)
    table = last_twelve_months(panels, period_meanings=meanings or OVER_PERIOD)
    if form.json or form.csv:
        print_arrow(table, as_json=form.json)
        return
    title = counted(len(panels), "company", "companies")
    if len(panels) == 1:
        title = named_entity(panels[0].catalogue)
    if panels:
        print_line(f"{title}, {panels[0].value_version} values", "bold")
    # The last row of a line is its latest end.
    latest = {(row["entity_id"], *row["series_ids"]): row for row in table.to_pylist()}
    _print_latest_months(list(latest.values()))
    # Not the table's note on ends that are not added up: most are not shown, and a row
    # without a number shows why.
    notes = _describe_publications(panels)
    notes.append(counted(result.requests, "request"))
    print_line("\n".join(map(_write_options, notes)), "dim")


def _print_latest_months(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows of twelve months: end, number, and its operands or why there is
    none.
    """
    from asyncfin.text import GAP

    if not rows:
        print_line("\nno series has a value")
        return
    print_line("")
    names = Counter(map(_name_line, rows))
    cells = []
    for row in rows:
        number = GAP if row["number"] is None else number_text(row["number"])
        entity, label, scopes = name = _name_line(row)
        # Groups that report different numbers differ in the ids of their series.
        if names[name] > 1:
            label += f", {', '.join(row['series_ids'])}"
        reason = row["reason"]
        if (way := row["how"]) is not None:
            operands = map(add, _SIGNS.get(way, _SUM), row["operands"])
            # Only a fiscal year is a published number.
            title = "fiscal year, as published" if way == "year" else f"sum, {way}"
            reason = f"{title}: {' '.join(operands)}"
        cells.append([entity, label, scopes, row["period_label"], number, reason])
    width = max(len(line[4]) for line in cells)
    for line in cells:
        line[4] = line[4].rjust(width)
    heads = ["entity", "series", "scopes", "twelve months", "number", "how"]
    print_table(heads, cells)
    print_line("")
    # Descriptions state the unit.
    texts = {row["description"].strip(): row["series_label"] for row in rows}
    for text, label in texts.items():
        if text not in ("", label):
            print_line(f"{label}: {shorten_middle(text, _LONGEST)}", "dim")


def _name_line(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the entity, the label and the scopes of a row."""
    label = row["series_label"].strip() or row["metric_id"]
    return row["entity_name"], label, " / ".join(row["scope_names"])
