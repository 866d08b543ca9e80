"""What people read of a row of values: unit and divisor, percent, digits, name and colour.

Print, notebook, `show`, plot, explorer, command line and assistants render what is decided
here. Numbers of data are never divided.
"""

import re
from collections.abc import Collection, Iterator
from decimal import ROUND_HALF_UP, Context, Decimal

from asyncfin.model.value import Value

# Sign and currency, the digits with their separators, a word of scale, and what follows.
_WORDS = {
    3: "thousands?|k",
    6: "millions?|mio|mln|mn|mm|m",
    9: "billions?|bln|bn|b",
    12: "trillions?|tn|t",
}
_TEXT = re.compile(
    r"(?P<before>\D*?)(?P<digits>\d(?:[\d.,'\u2019\s]*\d)?|[.,]\d+)"
    rf"(?:\s*(?P<word>{'|'.join(_WORDS.values())})\b\.?)?(?P<after>\D*)",
    re.IGNORECASE,
)
_MAGNITUDES = ((12, "T"), (9, "B"), (6, "M"), (3, "k"))
# Ticks above this have an exponent.
_MOST_STEP = 1e18
# Exact for every number of a service: none has ten thousand digits.
_EXACT = Context(prec=10_000, rounding=ROUND_HALF_UP)


def percent_of(values: Collection[Value]) -> int:
    """Return what the numbers of a row are multiplied by to be percent; 0 if they are none.

    The text of the largest value shows whether 0.12 or 12 is written as 12 %.
    """
    largest = max(values, key=lambda value: abs(value.number), default=None)
    if largest is None:
        return 0
    match = _TEXT.fullmatch(largest.text.strip())
    if match is None or not match["after"].strip(" )").startswith("%"):
        return 0
    magnitude = abs(_decimal(largest.number))
    factors = [factor for factor in (1, 100) if _is_stated(match["digits"], magnitude * factor)]
    # A text so round that it is either shows neither; of zero both are right.
    return factors[0] if len(factors) == 1 or (factors and not magnitude) else 0


def tick_text(number: float, step: float, percent: int = 0) -> str:
    """Return the label of a tick of an axis, which is exactly its number.

    Args:
        step: from one tick to the next. What is far below it is noise of the arithmetic.
        percent: as `percent_of` returns it.
    """
    if not 0 < step < _MOST_STEP or abs(number) >= _MOST_STEP:
        return f"{number * (percent or 1):.15g}" + "%" * bool(percent)
    power = 2 if percent == 100 else 0
    least = Decimal((0, (1,), _decimal(step).adjusted() - 3))
    exact = _EXACT.scaleb(_EXACT.quantize(Decimal(number), least), power)
    letter = "%" if percent else ""
    for size, name in () if percent else _MAGNITUDES:
        if abs(exact) >= 10**size:
            exact, letter = _EXACT.scaleb(exact, -size), f" {name}"
            break
    return f"{_EXACT.normalize(exact):,f}{letter}"


def _is_stated(digits: str, magnitude: Decimal) -> bool:
    """Return whether digits are a number, rounded as they are."""
    for number in _numbers(digits):
        exponent = int(number.as_tuple().exponent)
        if abs(magnitude - number) * 2 <= Decimal((0, (1,), exponent)):
            return True
    return False


def _numbers(digits: str) -> Iterator[Decimal]:
    """Yield the numbers that digits can mean: the last separator is decimal, or none is."""
    plain = re.sub(r"['\u2019\s]", "", digits)
    *_, last = re.split("[.,]", plain)
    whole = Decimal(re.sub("[.,]", "", plain))
    yield whole
    if last != plain:
        yield _EXACT.scaleb(whole, -len(last))


def _decimal(number: float) -> Decimal:
    # The shortest digits of a float, as they were received.
    return Decimal(repr(number))
