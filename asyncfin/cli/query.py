"""`asyncfin query`: one question to one entity or several, its result in several forms,
or only its plan.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    import pyarrow

    from asyncfin import Client, Comparison, Panel, Select, Value
    from asyncfin.typing import PeriodSelection, Shown, ValueVersion

_LEAST_WIDTH = 40
# The length of a description. Many end with the unit, so the middle is cut.
_LONGEST = 160
# A table of latest values has all of them.
_ALL = 10**9
# How to see what a table leaves out, by the end of its note.
_HINTS = {
    "periods are shown": ": name periods, such as --annual, or take --csv or --json",
    "left out": " (--all shows them)",
}
_SIGNS = {"year to date": ("", "+ ", "- ")}


async def query(
    *entity_ids: str,
    selection: Selection = Selection(),
    periods: Periods = Periods(),
    restated: bool = False,
    latest: Annotated[
        int | None,
        Parameter(
            group=period_group,
            help="Only the last N values of each series, with their own periods.",
            converter=parse_whole,
        ),
    ] = None,
    ttm: Annotated[
        bool,
        Parameter(
            group=period_group,
            help="The last twelve months, added up of published values.",
        ),
    ] = False,
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
    entities = names.entity_ids(entity_ids)
    if not entities:
        raise UsageError(
            "no entity is given: give an entity id, or several to compare them"
        )
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
    for line in _explain_missing(result, has_table=has_table):
        print_error(f"asyncfin: {line}")
    if not isinstance(result, Panel):
        check_failed(result.failed, result.ended, len(entities), names)
        if unknown := result.unknown:
            first = next(iter(result)).catalogue
            raise SelectionError(
                f"none of the {len(entities)} entities has all of the question; "
                f"{first.explain(unknown)}",
                missing=unknown,
            )


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

    if len(entities) == 1:
        plans = [await client.plan(entities[0], select, periods, value_version=version)]
    else:
        answers = await read_each(client, entities, client.catalogue)
        catalogues = list(answers.found.values())
        if isinstance(periods, Rule) and catalogues:
            periods = periods.resolve(catalogues)
        plans = [
            await client.plan(
                catalogue, select, periods, value_version=version, allow_missing=True
            )
            for catalogue in catalogues
        ]
    screen().print("\n\n".join(map(str, plans)))
    if len(entities) > 1:
        check_failed(answers.failed, answers.ended, len(entities), names)


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
        shown = result.show(
            form.unit,
            max(_LEAST_WIDTH, screen().width),
            all_series=True,
            all_periods=not latest,
            empty=form.all,
        )
        _print_shown(shown, [counted(result.requests, "request")], _HINTS)


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
    _print_shown(latest.show(form.unit, width, most=_ALL), notes)


def _print_shown(
    shown: "Shown", notes: Sequence[str], hints: Mapping[str, str] = {}
) -> None:
    """Print the parts of a table for people, and further notes."""
    from asyncfin.cli.terminal import print_lines, screen

    console = screen()
    title, *above = shown.heading.splitlines()
    console.print(title, style="bold")
    console.print("\n".join([*above, ""]))
    for table in shown.tables:
        print_lines(console, table.split("\n"))
        console.print()
    for note in dict.fromkeys([*shown.notes, *notes]):
        ends = [text for end, text in hints.items() if note.endswith(end)]
        console.print("".join([note, *ends]), style="dim")


def _explain_missing(result: "Panel | Comparison", *, has_table: bool) -> list[str]:
    """Return what entities do not have, and why there is no value if no table shows
    it.
    """
    from asyncfin import Panel

    if not isinstance(result, Panel):
        return list(result.lacking(periods=not has_table))
    if has_table or result.value_count:
        return []
    return [f"{result.dataset.name}: {note}" for note in result.notes]


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
    result: "Panel | Comparison",
    meanings: Sequence[str],
    form: QueryForm,
) -> None:
    """Print the last twelve months of the series of panels.

    Args:
        meanings: the period meanings of values that add up. Empty: `OVER_PERIOD`.
    """
    from asyncfin import Panel
    from asyncfin.analysis.twelve_months import OVER_PERIOD, last_twelve_months
    from asyncfin.cli.terminal import print_arrow

    panels = [result] if isinstance(result, Panel) else list(result)
    table = last_twelve_months(panels, period_meanings=meanings or OVER_PERIOD)
    if form.json or form.csv:
        print_arrow(table, as_json=form.json)
    else:
        _print_latest_months(table, panels, form.unit)


def _print_latest_months(
    table: "pyarrow.Table", panels: Sequence["Panel"], unit: Unit | None
) -> None:
    """Print the latest twelve months of each line: label, number, and its operands or
    why there is none.
    """
    from asyncfin.cli.terminal import print_table, screen
    from asyncfin.text import GAP
    from asyncfin.typing import Scale

    console = screen()
    for panel in panels:
        title = f"{named_entity(panel.catalogue)}, {panel.value_version} values"
        console.print(title, style="bold")
    lines: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in table.to_pylist():
        lines.setdefault((row["entity_id"], *row["series_ids"]), []).append(row)
    latest = [rows[-1] for rows in lines.values()]
    values = [
        [_make_value(row) for row in rows if row["number"] is not None]
        for rows in lines.values()
    ]
    scales = Scale.of_rows(values, unit)
    if units := {scale.unit for scale in scales if scale.unit}:
        console.print(f"in {units.pop()}")
    console.print()
    rows = []
    for row, name, scale in zip(latest, _name_lines(latest), scales, strict=True):
        number = GAP if row["number"] is None else scale.text(_make_value(row))
        cells = [name + scale.suffix, " / ".join(row["scope_names"])]
        rows.append(
            [
                row["entity_name"],
                *cells,
                row["period_label"],
                number,
                _list_operands(row),
            ]
        )
    heads = ["entity", "series", "scopes", "to", "number", "how"]
    # The entity is in the title already where there is one.
    first = 0 if len({row["entity_id"] for row in latest}) > 1 else 1
    width = max((len(row[4]) for row in rows), default=0)
    for cells in rows:
        cells[4] = cells[4].rjust(width)
    if rows:
        print_table(console, heads[first:], [cells[first:] for cells in rows])
    else:
        console.print("no series has a value")
    # They state the unit.
    for text in dict.fromkeys(_describe_lines(latest)):
        console.print(text, style="dim")
    for note in json.loads(table.schema.metadata[b"asyncfin"])["notes"]:
        console.print(note, style="dim")


def _name_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the labels of lines, with the series ids where groups report different
    numbers.
    """
    keys = [(row["entity_id"], row["series_label"], row["scope_path"]) for row in rows]
    for row, key in zip(rows, keys, strict=True):
        label = row["series_label"].strip() or row["metric_id"]
        is_distinct = keys.count(key) == 1
        yield label if is_distinct else f"{label}, {', '.join(row['series_ids'])}"


def _describe_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for row in rows:
        label, description = row["series_label"], row["description"].strip()
        if description and description != label:
            yield f"{label}: {shorten_middle(description, _LONGEST)}"


def _list_operands(row: Mapping[str, Any]) -> str:
    """Return what a number is made of, or why there is none."""
    if row["how"] is None:
        return str(row["reason"])
    signs = _SIGNS.get(row["how"], ("", "+ ", "+ ", "+ "))
    terms = map(str.__add__, signs, row["operands"])
    return f"{row['how']}: {' '.join(terms)}"


def _make_value(row: Mapping[str, Any]) -> "Value":
    """Return a number of the table with the text and the format that decide how it is
    written.
    """
    from asyncfin import Value

    return Value(
        number=row["number"],
        text=row["text"] or number_text(row["number"]),
        number_format=row["series_number_format"],
        value_version="",
    )
