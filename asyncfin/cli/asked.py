"""What the options of a question mean: entities, series and periods."""

import re
from collections.abc import Iterator, Sequence

from attrs import asdict

from asyncfin.cli.entities import Names
from asyncfin.cli.exits import UsageError, prefix_errors
from asyncfin.cli.options import choose_one, refuse_bytes
from asyncfin.cli.question import Periods, Selection
from asyncfin.errors import SelectionError
from asyncfin.model.period import Period
from asyncfin.model.select import Select
from asyncfin.model.selection import (
    Exact,
    FiscalRange,
    PeriodSelection,
    Trailing,
)
from asyncfin.typing import RULES
from asyncfin.words import either


def entity_ids_of(texts: Sequence[str], names: Names) -> Iterator[str]:
    """Yield the entity ids of arguments; the error for another word says what it may be
    meant as.
    """
    names.check_known(texts)
    for place, text in enumerate(texts):
        try:
            yield names.entity_id(text)
            continue
        except UsageError as error:
            complaint = str(error)
        # After an entity, something else is often meant.
        if place and text.isalpha() and not names.is_close(text):
            complaint = (
                f"{text!r} is not an entity; a metric is given as --metric {text}"
            )
        elif label := _label_of(text):
            complaint = (
                f"{text!r} is not an entity; a period is given as --exact {label}"
            )
        elif text.isdigit():
            complaint = (
                f"{text!r} is not an entity; give the latest years as --annual --last "
                f"{text}"
            )
        raise UsageError(complaint)


def _label_of(text: str) -> str | None:
    """Return the label of a period that a text is, or probably means."""
    try:
        return Period.parse(text).label
    except SelectionError as error:
        label: str | None = error.instead
        return label


def select_of(options: Selection) -> Select:
    """Return the Select that the options describe."""
    for name, given in asdict(options).items():
        refuse_bytes(f"--{name.replace('_', '-')}", given)
    return Select(
        metric_ids=options.metric or None,
        scope_combinations=options.scope or None,
        reporting_group_ids=options.group or None,
        scope_group_ids=options.scope_group or None,
        basis=options.basis or None,
        cadence=options.cadence or None,
        period_meaning=options.period_meaning or None,
        label=options.label,
        series_ids=options.series or None,
    )


def selection_of(options: Periods) -> PeriodSelection:
    """Return the period selection that the options describe."""
    rules = {f"--{name}": rule for name, rule in RULES.items()}
    modes = {
        **{
            option: getattr(options, rule.name.replace("-", "_"))
            for option, rule in rules.items()
        },
        "--exact": bool(options.exact),
        "--trailing": options.trailing is not None,
    }
    mode = choose_one(modes) or "--from"
    # Options that have no meaning in this mode.
    if options.last is not None and mode not in rules:
        raise UsageError(f"--last goes with {either(list(rules))}: add one of them")
    if mode in ("--exact", "--trailing") and (options.first or options.final):
        raise UsageError(f"{mode} takes neither --from nor --to: leave them out")
    start, end = bound("--from", options.first, 1), bound("--to", options.final, 12)
    if start and end and end.fiscal_end < start.fiscal_start:
        raise UsageError(
            f"--to must not be before --from: {options.final} is before {options.first}"
        )
    if any("," in text for text in options.exact):
        again = " ".join(
            f"--exact {part.strip()}"
            for text in options.exact
            for part in text.split(",")
        )
        raise UsageError(f"--exact is repeated: {again}")
    with prefix_errors(mode if options.last is None else "--last"):
        if mode in rules:
            return rules[mode](start, end, options.last)
        if options.trailing is not None:
            return Trailing(options.trailing)
        return Exact(options.exact) if options.exact else FiscalRange(start, end)


def bound(option: str, text: str | None, month: int) -> Period | None:
    """Return the period or fiscal end of an option; `month` completes a year."""
    if text is None:
        return None
    day = re.fullmatch(r"(\d{4}-\d\d)-\d\d", text, re.ASCII)
    with prefix_errors(option):
        try:
            return Period.parse(text)
        except SelectionError as error:
            intended = error.instead
        if found := re.fullmatch(r"(\d{4})|(?:FY)?(\d{4})-(\d\d)", text, re.ASCII):
            return Period(int(found[1] or found[2]), int(found[3] or month), 0)
    near = f'; write "{intended}"' if intended else ""
    # Strict, since a typing error must not become another year or period.
    raise UsageError(
        f"{option} must be a year, a month such as FY2024-03, or a period such as "
        f"FY2024-Q1, not {text!r}"
        + (f": fiscal periods have no days; write FY{day[1]}" if day else near)
    )
