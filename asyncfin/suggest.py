"""What to suggest where a name is not known."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from heapq import nlargest

from asyncfin.checks import short_repr
from asyncfin.errors import printable, shorten

_FEW = 12
# A longer name is not a mistyped one, and comparing it would take the event loop's
# time.
LONGEST = 200
_ROUNDING = 1e-6
# How many names are compared letter by letter: each takes some microseconds.
_COMPARED = 500
# Below this share of common letters two names only look alike: "Sales" and "Shares"
# have 0.73.
_ALIKE = 0.75
# From this share on they are one word, mistyped or in the plural.
SAME = 0.9


def alike(name: str, known: Iterable[str], most: int, share: float) -> list[str]:
    """Return at most so many of the known names with such a share of common letters,
    the best first.

    Only names that can have it by their length are compared; of more than 500 those
    that have most groups of three letters in common.
    """
    from difflib import get_close_matches  # rarely needed

    # Twice the common letters, of the letters of both: the shorter name has no more to
    # offer.
    least, longest = len(name) * share / (2 - share), len(name) * (2 - share) / share
    left = [
        each for each in known if least - _ROUNDING <= len(each) <= longest + _ROUNDING
    ]
    if len(left) > _COMPARED:
        groups = {name[at : at + 3] for at in range(len(name) - 2)}
        left = nlargest(
            _COMPARED, left, key=lambda each: sum(group in each for group in groups)
        )
    return get_close_matches(name, left, n=most, cutoff=share)


def suggest(name: str, known: Iterable[str]) -> list[str]:
    """Return at most three of the known names, the best first, in whatever case they
    are written.
    """
    wanted = name.casefold().strip()
    if not wanted or len(wanted) > LONGEST:
        return []
    by_folded = {each.casefold(): each for each in known}
    same = [by_folded[wanted]] if wanted in by_folded else []
    # Only the last part of a qualified name counts: "Revenue" means "us-gaap:Revenues".
    lasts = dict(zip(by_folded, map(_last, by_folded), strict=True))
    for last in alike(wanted, dict.fromkeys(lasts.values()), 3, SAME):
        same += [by_folded[folded] for folded, its in lasts.items() if its == last]
    near = [by_folded[each] for each in alike(wanted, by_folded, 3, _ALIKE)]
    within = [
        each
        for folded, each in by_folded.items()
        if len(wanted) > 2 and wanted in folded
    ]
    # By the kind of the match first; within "within" a short name is the more general
    # one.
    return list(dict.fromkeys([*same, *near, *sorted(within, key=len)]))[:3]


def _last(name: str) -> str:
    return name.replace("/", ":").rpartition(":")[2]


def quoted(
    name: str, known: Collection[str], close: Sequence[str] | None = None
) -> str:
    """Return an unknown name in quotes, with what comes close: of the known names, if
    it is not given.
    """
    parts = [part.strip() for part in name.split(",")]
    # From shells and configuration files, where a list is often written as one text.
    if len(parts) > 1 and all(part in known for part in parts):
        return f"{short_repr(name)} (these are {len(parts)}: give each by itself)"
    found = suggest(name, known) if close is None else close
    return short_repr(name) + (
        f" (close: {', '.join(map(_shown, found))})" if found else ""
    )


def _shown(name: str) -> str:
    return printable(shorten(name, LONGEST))


def all_of(known: Collection[str]) -> str:
    """Return the known names as the end of a complaint, where they are few; nothing
    where they are many.
    """
    return (
        f"; it has: {', '.join(map(_shown, sorted(known)))}"
        if 0 < len(known) <= _FEW
        else ""
    )
