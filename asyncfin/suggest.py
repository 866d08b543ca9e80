"""Close matches of a name that does not exist, and the words for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from heapq import nlargest

from asyncfin.checks import short_repr
from asyncfin.errors import printable, shorten
from asyncfin.words import listed

_FEW = 12
_MOST_MATCHES = 3
# A longer name is not a mistyped one, and comparing it would take the event loop's
# time.
LONGEST = 200
# How many names are compared letter by letter: each takes some microseconds.
_COMPARED = 500
# Below this share of common letters two names only look alike: "Sales" and "Shares"
# have 0.73.
_ALIKE = 0.75
# From this share on they are one word, mistyped or in the plural.
_SAME = 0.9


def find_alike(name: str, names: Iterable[str], limit: int, share: float) -> list[str]:
    """Find at most so many of the names with such a share of common letters, the best
    first.

    Of more than 500 only those are compared that have most groups of three letters in
    common.
    """
    from difflib import get_close_matches  # rarely needed

    candidates = list(names)
    if len(candidates) > _COMPARED:
        groups = {name[index : index + 3] for index in range(len(name) - 2)}

        def count_groups(candidate: str) -> int:
            return sum(group in candidate for group in groups)

        candidates = nlargest(_COMPARED, candidates, key=count_groups)
    return get_close_matches(name, candidates, n=limit, cutoff=share)


def find_close(name: str, names: Iterable[str]) -> list[str]:
    """Find at most three of the names, the best first, in whatever case they are
    written.
    """
    text = name.casefold().strip()
    if not text or len(text) > LONGEST:
        return []
    by_folded = {original.casefold(): original for original in names}
    # By the kind of the match: the same, the same last part, spelt alike, and those
    # that contain it, of which a short name is the more general one.
    matches = [text] if text in by_folded else []
    # Only the last part of a qualified name counts: "Revenue" means "us-gaap:Revenues".
    by_last: dict[str, list[str]] = {}
    for candidate in by_folded:
        last_part = candidate.replace("/", ":").rpartition(":")[2]
        by_last.setdefault(last_part, []).append(candidate)
    for last_part in find_alike(text, by_last, _MOST_MATCHES, _SAME):
        matches += by_last[last_part]
    matches += find_alike(text, by_folded, _MOST_MATCHES, _ALIKE)
    if len(text) > 2:
        candidates = [candidate for candidate in by_folded if text in candidate]
        matches += sorted(candidates, key=len)
    distinct_matches = list(dict.fromkeys(matches))
    return [by_folded[match] for match in distinct_matches[:_MOST_MATCHES]]


def quote_unknown(value: object, matches: Iterable[str]) -> str:
    """Write an unknown value with its close matches."""
    text = short_repr(value)
    names = [printable(shorten(match, LONGEST)) for match in matches]
    if names:
        text += f" (close: {listed(names)})"
    return text


def list_few(names: Collection[str]) -> str:
    """Write the names as the end of a complaint, or nothing where they are many."""
    if not 0 < len(names) <= _FEW:
        return ""
    texts = [printable(shorten(name, LONGEST)) for name in sorted(names)]
    return f"; there are: {listed(texts)}"
