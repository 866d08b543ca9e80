"""Counts and spans as people write them."""

from collections.abc import Sequence


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number of things: ``1 request``, ``2 requests``; `many` where the plural is not just an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def spanned(ordered: Sequence[object]) -> str:
    """Return the first and the last as a span; the only one as itself; nothing for none."""
    return " to ".join(str(each) for each in dict.fromkeys([*ordered[:1], *ordered[-1:]]))
