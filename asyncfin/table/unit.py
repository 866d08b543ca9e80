"""Whole numbers in thousands, millions or billions, in tables for people: those of data are not divided."""

import re
from collections.abc import Callable, Collection
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING

from asyncfin import checks
from asyncfin.errors import shorten
from asyncfin.model.value import Value, shown_text
from asyncfin.model.words import Unit

if TYPE_CHECKING:
    from asyncfin.table.excerpt import SeriesNames

POWERS: dict[Unit, int] = {"thousands": 3, "millions": 6, "billions": 9}
# How much of a label is shown.
_LONGEST = 1_000
check_unit = checks.one_of(*POWERS).optional()
# Digits with a sign or parentheses, and separators between groups of three.
_GROUPS = r"(?:\d+|\d{1,3}(?:[,.'\u2019\s]\d{3})+)"
_DIGITS = re.compile(rf"[+\-\u2212]?\s?{_GROUPS}|\({_GROUPS}\)")


def in_unit(values: Collection[Value], unit: Unit | None) -> Callable[[Value], str]:
    """Return the function from a value of a series to its text.

    A series is divided if its numbers are whole and the largest is at least a tenth of the unit: not earnings
    per share, rates and counts of a few. Values whose text has no digit, such as "NM", say nothing of that.
    Within such a series a reported zero stays, and a text that is more than digits.

    Args:
        values: those of the series.
    """
    if unit is None:
        return shown_text
    power = POWERS[unit]
    numbers = [value.number for value in values if re.search(r"\d", value.text)]
    is_whole = all(number == int(number) for number in numbers)
    if not is_whole or 10 * max(map(abs, numbers), default=0) < 10**power:
        return shown_text

    def divided(value: Value) -> str:
        text = shown_text(value)
        if not value.number or not _DIGITS.fullmatch(text.strip()):
            return text
        # Decimal: a whole number beyond 2**53 keeps its digits.
        tenths = Decimal(int(value.number)).scaleb(1 - power).to_integral_value(ROUND_HALF_UP)
        return f"{tenths.scaleb(-1) if tenths else Decimal('0.0'):,.1f}"

    return divided


def heading(names: "SeriesNames", unit: Unit | None) -> str:
    """Return the line above the tables: the label that all series share, and what numbers are divided by."""
    return ", ".join(
        filter(None, [shorten(names.heading, _LONGEST), f"whole numbers in {unit}" if unit else ""])
    )
