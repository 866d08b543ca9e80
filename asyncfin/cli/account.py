"""`asyncfin usage` and `asyncfin limits`: what the account has spent, and what it may."""

import json as text
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from asyncfin.cli.exits import UsageError
from asyncfin.cli.options import AsJson, Service
from asyncfin.cli.output import bare_table, print_json, screen
from asyncfin.cli.session import connected

_DEFAULT_DAYS = 30


async def usage(
    *,
    first: Annotated[date | None, Parameter(name="--from")] = None,
    final: Annotated[date | None, Parameter(name="--to")] = None,
    json: AsJson = False,
    service: Service = Service(),  # noqa: B008  a frozen value
) -> None:
    """Show the account's daily usage, as the service words it.

    Rows of zeros alone are left out of the table, and it ends in a total. It
    costs one request for each 92 days.

      asyncfin usage --from 2026-01-01 --to 2026-06-30

    Args:
        first: The first day, as YYYY-MM-DD. [30 days in all if left out]
        final: The last day. [today, UTC, if left out]
    """
    end = final or datetime.now(UTC).date()
    start = first or date.fromordinal(max(1, end.toordinal() - _DEFAULT_DAYS + 1))
    if end < start:
        raise UsageError(f"--to must not be before --from: {end} is before {start}")
    async with connected(service, "Asking") as client:
        windows = await client.usage(start, end)
    if json:
        print_json(windows)
        return
    console = screen()
    for index, window in enumerate(windows):
        if index:
            console.print()
        _print_body(window.body, console, totals=True)


async def limits(*, json: AsJson = False, service: Service = Service()) -> None:  # noqa: B008
    """Show the account's credits and limits, as the service words them.

    It costs one request.

      asyncfin limits --json
    """
    async with connected(service, "Asking") as client:
        body = await client.limits()
    if json:
        print_json(body)
    else:
        _print_body(body, screen())


def _print_body(body: Mapping[str, Any], console: Console, *, totals: bool = False) -> None:
    """Print an object of no known shape: its single values, then a table for each list of objects."""
    lists = {name: value for name, value in body.items() if _is_rows(value)}
    single = bare_table("field", right=["value"])
    for name, value in _flat({name: value for name, value in body.items() if name not in lists}):
        single.add_row(name, _shown(value))
    if single.row_count:
        console.print(single)
    for name, rows in lists.items():
        console.print()
        console.print(name, style="bold")
        _print_rows([dict(_flat(row)) for row in rows], name, console, totals)


def _print_rows(rows: list[dict[str, Any]], name: str, console: Console, totals: bool) -> None:
    heads = list(dict.fromkeys(head for row in rows for head in row))
    shown = [row for row in rows if not (totals and _is_idle(row))]
    table = bare_table(*heads[:1], right=heads[1:])
    for column in table.columns:  # the first one tells the rows apart: it stays whole
        column.no_wrap, column.overflow = column is table.columns[0], "fold"
    for row in shown:
        table.add_row(*(_shown(row[head]) if head in row else "" for head in heads))
    if totals:
        table.add_row("total", *(_total([row[head] for row in rows if head in row]) for head in heads[1:]))
    console.print(table)
    if idle := len(rows) - len(shown):
        console.print(f"{idle} of {len(rows)} {name} are zero and left out (--json has them)", style="dim")


def _is_idle(row: Mapping[str, Any]) -> bool:
    """Say whether a row has numbers, and none but zero."""
    numbers = [value for value in row.values() if type(value) in (int, float)]
    return bool(numbers) and not any(numbers)


def _total(values: Sequence[Any]) -> str:
    """Return the sum of counts; nothing for anything else."""
    return _shown(sum(values)) if all(type(value) is int for value in values) else ""


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _flat(body: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of an object and of those within it, named by their paths."""
    for name, value in body.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{within}{name}.")
        elif value != {}:
            yield f"{within}{name}", value


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if type(value) in (int, float) else text.dumps(value)
