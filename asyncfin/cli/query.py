"""`asyncfin query`: one question to one entity or several, its result in several forms,
or only its plan.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from asyncfin.cli.errors import UsageError, print_error
from asyncfin.cli.options import (
    Names,
    Periods,
    QueryForm,
    Selection,
    Service,
    choose_one,
    parse_whole,
    period_group,
    require,
)
from asyncfin.errors import SelectionError, shorten_middle
from asyncfin.words import Unit, counted, named_entity, number_text

if TYPE_CHECKING:
    from asyncfin import Client, Comparison, Panel, Select, Value
    from asyncfin.typing import PeriodSelection, Shown, ValueVersion

_LEAST_WIDTH = 40
# The length of a description. Many end with the unit, so the middle is cut.
_LONGEST = 160
# A table of latest values has all of them.
_ALL = 10**9
# What the ends of notes are on the command line.
_HINTS = {
    "periods are shown": "periods are shown: name periods, such as --annual, or take "
    "--csv or --json",
    "left out": "left out (--all shows them)",
    "query all periods and call latest()": "write --latest 1",
}
_SIGNS = {"year to date": ("", "+ ", "- ")}


async def query(
    *entity_ids: str,
    selection: Selection = Selection(),
    periods: Periods = Periods(),
    restated: bool = False,
    latest: Annotated[
        int | None, Parameter(group=period_group, converter=parse_whole)
    ] = None,
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
        restated: The latest restated values instead of the original ones.
        latest: Only the last N values of each series, with their own periods.
        ttm: The last twelve months, added up of published values.
    """
    # All that can be known before a request is spent is checked first.
    choose_one(
        {
            "--ttm": ttm,
            "--latest": latest is not None,
            "--plot": form.plot is not None,
            "--explain": form.explain,
        }
    )
    if ttm and periods != Periods():
        raise UsageError("--ttm requests all periods: leave the other options out")
    if latest is not None and (periods.last is not None or latest < 1):
        raise UsageError(
            "--latest N has the last N values, 1 or more, of each series: leave --last "
            "out"
        )
    if ttm:
        require("pyarrow", "arrow", "--ttm")
    if form.plot is not None:
        _check_picture(form.plot)
    entities = names.required(entity_ids)
    version: ValueVersion = "latest_restated" if restated else "original"
    question = selection.select(), periods.selection()
    service.check()

    from asyncfin import Panel
    from asyncfin.cli.session import check_failed, connect

    async with connect(service, "Reading", names) as (client, progress):
        if form.explain:
            await _explain(client, entities, *question, version, names)
            cost = counted(progress.requests, "request")
            print(f"planning has spent {cost}")  # noqa: T201
            return
        result: Panel | Comparison
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
    # A table says itself why it is empty.
    has_table = not any(form.options().values()) and not ttm
    if isinstance(result, Panel):
        if not has_table and not result.value_count:
            for note in map(_write_options, result.notes):
                print_error(f"asyncfin: {result.dataset.name}: {note}")
        return
    for line in result.lacking(periods=not has_table):
        print_error(f"asyncfin: {line}")
    check_failed(result, len(entities), names)
    if unknown := result.unknown:
        first = next(iter(result)).catalogue
        raise SelectionError(first.explain(unknown), missing=unknown)


async def _explain(
    client: "Client",
    entities: Sequence[str],
    select: "Select",
    periods: "PeriodSelection",
    version: "ValueVersion",
    names: Names,
) -> None:
    """Print the plans of a question in place of reading it."""
    from asyncfin.cli.session import check_failed, read_each
    from asyncfin.cli.terminal import screen
    from asyncfin.typing import Rule

    answers = await read_each(client, entities, client.catalogue)
    catalogues = list(answers.results.values())
    is_comparison = len(entities) > 1
    if is_comparison and isinstance(periods, Rule) and catalogues:
        periods = periods.resolve(catalogues)
    plans = [
        await client.plan(
            catalogue,
            select,
            periods,
            value_version=version,
            allow_missing=is_comparison,
        )
        for catalogue in catalogues
    ]
    if plans:
        screen().print("\n\n".join(map(str, plans)))
    check_failed(answers, len(entities), names)


def _print_result(
    result: "Panel | Comparison", form: QueryForm, *, latest: bool
) -> None:
    """Print a panel or a comparison in the form of the options.

    Args:
        latest: only the latest periods that fit into one table.
    """
    from asyncfin.cli.terminal import print_csv, print_text, screen

    if form.json:
        print_text(result.to_json(indent=2))
    elif form.csv:
        # All rows first: a value that breaks the spec must not leave half a file.
        print_csv(result.to_csv(empty=form.all))
    elif form.plot is not None:
        _draw(result, form.plot)
    else:
        layout = result.show(
            form.unit,
            max(_LEAST_WIDTH, screen().width),
            all_series=True,
            all_periods=not latest,
            empty=form.all,
        )
        notes = map(_write_options, layout.notes)
        _print_shown(layout, [*notes, counted(result.requests, "request")])


def _print_latest(result: "Panel | Comparison", count: int, form: QueryForm) -> None:
    """Print the last values of each series in the form of the options."""
    from asyncfin import Panel
    from asyncfin.cli.terminal import print_rows, screen

    latest = result.latest(count)
    if form.json or form.csv:
        print_rows(latest.to_dicts(), as_json=form.json)
        return
    panels = [result] if isinstance(result, Panel) else list(result)
    notes = [
        f"publication {catalogue.dataset_id} of "
        f"{catalogue.created_timestamp:%Y-%m-%d %H:%M} UTC"
        for catalogue in (panel.catalogue for panel in panels)
    ]
    notes += [*result.notes, counted(result.requests, "request")]
    width = max(_LEAST_WIDTH, screen().width)
    layout = latest.show(form.unit, width, most=_ALL)
    _print_shown(layout, [*layout.notes, *notes])


def _write_options(note: str) -> str:
    """Return a note with options in place of Python."""
    for end, text in _HINTS.items():
        if note.endswith(end):
            return note.removesuffix(end) + text
    return note


def _print_shown(shown: "Shown", notes: Sequence[str]) -> None:
    """Print the heading and the tables for people, and notes."""
    from asyncfin.cli.terminal import print_lines, screen

    console = screen()
    title, *subtitles = shown.heading.splitlines()
    console.print(title, style="bold")
    console.print("\n".join([*subtitles, ""]))
    for table in shown.tables:
        print_lines(console, table.split("\n"))
        console.print()
    for note in dict.fromkeys(notes):
        console.print(note, style="dim")


def _check_picture(file: Path) -> None:
    """Reject, before a request is spent, a file that could not be written."""
    require("matplotlib", "plot", "--plot")
    from matplotlib.backend_bases import FigureCanvasBase

    suffixes = sorted(FigureCanvasBase.get_supported_filetypes())
    if file.suffix.lower()[1:] not in suffixes:
        raise UsageError(
            f"--plot {file} must end in one of .{', .'.join(suffixes)}: the suffix "
            "chooses the format"
        )
    if not file.parent.is_dir():
        raise UsageError(f"--plot {file}: {file.parent} is not a folder")


def _draw(result: "Panel | Comparison", file: Path) -> None:
    """Draw the series into a file."""
    from matplotlib import pyplot

    from asyncfin.cli.terminal import replace_file, screen

    figure: Any = result.plot().figure
    try:
        form = file.suffix.lower()[1:]
        replace_file(file, lambda stream: figure.savefig(stream, dpi=150, format=form))
    finally:
        pyplot.close(figure)
    screen().print(f"wrote {file}")


def _print_twelve_months(
    result: "Panel | Comparison", meanings: Sequence[str], form: QueryForm
) -> None:
    """Print the last twelve months of the series of panels.

    Args:
        meanings: the period meanings of values that add up. Empty: `OVER_PERIOD`.
    """
    from asyncfin import Panel
    from asyncfin.analysis.twelve_months import OVER_PERIOD, last_twelve_months
    from asyncfin.cli.terminal import print_arrow, screen

    panels = [result] if isinstance(result, Panel) else list(result)
    table = last_twelve_months(panels, period_meanings=meanings or OVER_PERIOD)
    if form.json or form.csv:
        print_arrow(table, as_json=form.json)
        return
    console = screen()
    for panel in panels:
        title = f"{named_entity(panel.catalogue)}, {panel.value_version} values"
        console.print(title, style="bold")
    # The last row of a line is its latest end.
    latest = {(row["entity_id"], *row["series_ids"]): row for row in table.to_pylist()}
    _print_latest_months(list(latest.values()), form.unit)
    for note in json.loads(table.schema.metadata[b"asyncfin"])["notes"]:
        console.print(note, style="dim")


def _print_latest_months(rows: Sequence[Mapping[str, Any]], unit: Unit | None) -> None:
    """Print rows of twelve months: end, number, and its operands or why there is
    none.
    """
    from asyncfin.cli.terminal import print_table, screen
    from asyncfin.text import GAP
    from asyncfin.typing import Scale

    console = screen()
    values = [_make_value(row) for row in rows]
    scales = Scale.of_rows([[value] if value else [] for value in values], unit)
    units = {scale.unit for scale in scales if scale.unit}
    console.print(f"in {units.pop()}\n" if units else "")
    if not rows:
        console.print("no series has a value")
        return
    numbers = [
        GAP if value is None else scale.text(value)
        for value, scale in zip(values, scales, strict=True)
    ]
    width = max(map(len, numbers))
    lines = Counter(map(_name_line, rows))
    cells = []
    for row, scale, number in zip(rows, scales, numbers, strict=True):
        entity, label, scopes = _name_line(row)
        # Groups that report different numbers differ in the ids of their series.
        if lines[entity, label, scopes] > 1:
            label += f", {', '.join(row['series_ids'])}"
        operands = row["reason"]
        if row["how"] is not None:
            signs = _SIGNS.get(row["how"], ("", "+ ", "+ ", "+ "))
            operands = f"{row['how']}: {' '.join(map(add, signs, row['operands']))}"
        label += scale.suffix
        end = row["period_label"]
        cells.append([entity, label, scopes, end, number.rjust(width), operands])
    heads = ["entity", "series", "scopes", "to", "number", "how"]
    # The entity is in the title already where there is one.
    first = 0 if len({row["entity_id"] for row in rows}) > 1 else 1
    print_table(console, heads[first:], [line[first:] for line in cells])
    # Descriptions state the unit.
    texts = {row["description"].strip(): row["series_label"] for row in rows}
    for text, label in texts.items():
        if text not in ("", label):
            line = f"{label}: {shorten_middle(text, _LONGEST)}"
            console.print(line, style="dim")


def _name_line(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the entity, the label and the scopes of a row."""
    label = row["series_label"].strip() or row["metric_id"]
    return row["entity_name"], label, " / ".join(row["scope_names"])


def _make_value(row: Mapping[str, Any]) -> "Value | None":
    """Return the number of a row with the text and the format that decide how it is
    written.
    """
    from asyncfin import Value

    if row["number"] is None:
        return None
    return Value(
        number=row["number"],
        text=row["text"] or number_text(row["number"]),
        number_format=row["series_number_format"],
        value_version="",
    )
