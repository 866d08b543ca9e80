"""`asyncfin query --ttm`: the last twelve months of each line, and what they are added
up of.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from asyncfin import Panel
from asyncfin.analysis.twelve_months import OVER_PERIOD, last_twelve_months
from asyncfin.cli.form import QueryForm
from asyncfin.cli.output import print_rows, print_table, screen
from asyncfin.model.value import Value
from asyncfin.text import GAP, table_lines
from asyncfin.typing import Scale
from asyncfin.words import Unit, named_entity, number_text

if TYPE_CHECKING:
    import pyarrow

_SIGNS = {"year to date": ("", "+ ", "- ")}


def print_twelve_months(
    panels: Sequence[Panel], meanings: Sequence[str], form: QueryForm
) -> None:
    """Print the last twelve months of the series of panels, in the form that is wanted.

    Args:
        meanings: the period meanings of values that add up. Empty: `OVER_PERIOD`.
    """
    table = last_twelve_months(panels, period_meanings=meanings or OVER_PERIOD)
    if form.json or form.is_csv:
        print_rows(table, as_json=form.json, raw=form.csv_raw)
    else:
        _print_latest(table, panels, screen(), form.unit)


def _print_latest(
    table: "pyarrow.Table", panels: Sequence[Panel], console: Console, unit: Unit | None
) -> None:
    """Print the latest twelve months of each line: label, number, and its operands or
    why there is none.
    """
    for panel in panels:
        console.print(
            f"{named_entity(panel.catalogue)}, {panel.value_version} values",
            style="bold",
        )
    lines: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in table.to_pylist():
        lines.setdefault((row["entity_id"], *row["series_ids"]), []).append(row)
    latest = [rows[-1] for rows in lines.values()]
    values = [
        [_value(row) for row in rows if row["number"] is not None]
        for rows in lines.values()
    ]
    scales = Scale.of_rows(values, unit)
    if units := {scale.unit for scale in scales if scale.unit}:
        console.print(f"in {units.pop()}")
    console.print()
    numbers = [
        GAP if row["number"] is None else scale.text(_value(row))
        for row, scale in zip(latest, scales, strict=True)
    ]
    width = max(map(len, numbers), default=0)
    several = len({row["entity_id"] for row in latest}) > 1
    heads = (
        *(["entity"] if several else []),
        "series",
        "scopes",
        "to",
        "number",
        "how",
    )
    rows = [
        (
            *([row["entity_name"]] if several else []),
            *(name + scale.suffix, " / ".join(row["scope_names"]), row["period_label"]),
            *(number.rjust(width), _how(row)),
        )
        for row, name, number, scale in zip(
            latest, _names(latest), numbers, scales, strict=True
        )
    ]
    if rows:
        print_table(console, table_lines(heads, rows, console.width))
    else:
        console.print("no series has a value")
    for note in json.loads(table.schema.metadata[b"asyncfin"])["notes"]:
        console.print(note, style="dim")


def _names(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the labels of lines, with the series ids where groups report different
    numbers.
    """
    keys = [(row["entity_id"], row["series_label"], row["scope_path"]) for row in rows]
    times = Counter(keys)
    for row, key in zip(rows, keys, strict=True):
        label = row["series_label"].strip() or row["metric_id"]
        yield label if times[key] == 1 else f"{label}, {', '.join(row['series_ids'])}"


def _how(row: Mapping[str, Any]) -> str:
    if row["how"] is None:
        return str(row["reason"])
    signs = _SIGNS.get(row["how"], ("", "+ ", "+ ", "+ "))
    return f"{row['how']}: " + " ".join(
        sign + label for sign, label in zip(signs, row["operands"], strict=False)
    )


def _value(row: Mapping[str, Any]) -> Value:
    """Return a number of the table with the text and the format that decide how it is
    written.
    """
    return Value(
        number=row["number"],
        text=row["text"] or number_text(row["number"]),
        number_format=row["series_number_format"],
        value_version="",
    )
