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
# How many names are compared letter by letter: each takes some microseconds.
_COMPARED = 500
# Below this share of common letters two names only look alike: "Sales" and "Shares"
# have 0.73.
_ALIKE = 0.75
# From this share on they are one word, mistyped or in the plural.
_SAME = 0.9


def alike(name: str, names: Iterable[str], limit: int, share: float) -> list[str]:
    """Return at most so many of the names with such a share of common letters, the best
    first.

    Of more than 500 only those are compared that have most groups of three letters in
    common.
    """
    from difflib import get_close_matches  # rarely needed

    candidates = list(names)
    if len(candidates) > _COMPARED:
        groups = {name[index : index + 3] for index in range(len(name) - 2)}
        candidates = nlargest(
            _COMPARED,
            candidates,
            key=lambda candidate: sum(group in candidate for group in groups),
        )
    return get_close_matches(name, candidates, n=limit, cutoff=share)


def suggest(name: str, names: Iterable[str]) -> list[str]:
    """Return at most three of the names, the best first, in whatever case they are
    written.
    """
    text = name.casefold().strip()
    if not text or len(text) > LONGEST:
        return []
    by_folded = {original.casefold(): original for original in names}
    # By the kind of the match: the same, the same last part, spelt alike, and those
    # that contain it, of which a short name is the more general one.
    close = [text] if text in by_folded else []
    # Only the last part of a qualified name counts: "Revenue" means "us-gaap:Revenues".
    by_last: dict[str, list[str]] = {}
    for candidate in by_folded:
        last_part = candidate.replace("/", ":").rpartition(":")[2]
        by_last.setdefault(last_part, []).append(candidate)
    for last_part in alike(text, by_last, 3, _SAME):
        close += by_last[last_part]
    close += alike(text, by_folded, 3, _ALIKE)
    if len(text) > 2:
        close += sorted(filter(lambda candidate: text in candidate, by_folded), key=len)
    return [by_folded[candidate] for candidate in dict.fromkeys(close)][:3]


def quoted(
    name: str, names: Collection[str], close: Sequence[str] | None = None
) -> str:
    """Return an unknown name in quotes, with close matches: of the names, if they are
    not given.
    """
    parts = [part.strip() for part in name.split(",")]
    # From shells and configuration files, where a list is often written as one text.
    if len(parts) > 1 and all(part in names for part in parts):
        return f"{short_repr(name)} (these are {len(parts)}: give each by itself)"
    matches = suggest(name, names) if close is None else close
    end = f" (close: {', '.join(map(_show, matches))})" if matches else ""
    return short_repr(name) + end


def _show(name: str) -> str:
    return printable(shorten(name, LONGEST))


def all_of(names: Collection[str]) -> str:
    """Return the names as the end of a complaint, or nothing where they are many."""
    if not 0 < len(names) <= _FEW:
        return ""
    return f"; there are: {', '.join(map(_show, sorted(names)))}"
