"""What to suggest where a name is not known."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from asyncfin.checks import short_repr
from asyncfin.errors import printable
from asyncfin.model.series import CatalogueSeries
from asyncfin.model.words import listed

_FEW = 12
# A longer name is not a mistyped one, and comparing it would take the event loop's time.
_LONGEST = 200
# Below this share of common letters two names only look alike: "Sales" and "Shares" have 0.73.
_ALIKE = 0.75
# From this share on they are one word, mistyped or in the plural.
_SAME = 0.9


def suggest(name: str, known: Iterable[str], described: Mapping[str, str] | None = None) -> list[str]:
    """Return at most three of the known names, the best first, in whatever case they are written.

    In the texts `described` the name is looked for as a word: "Sales" means the metric whose label says so,
    not one that is spelt like it.
    """
    from difflib import get_close_matches  # rarely needed

    wanted = name.casefold().strip()
    if not wanted or len(wanted) > _LONGEST:
        return []
    by_folded = {each.casefold(): each for each in known}
    same = [each for folded, each in by_folded.items() if folded == wanted]
    # Only the last part of a qualified name counts: "Revenue" means "us-gaap:Revenues".
    by_last: dict[str, list[str]] = {}
    for folded, each in by_folded.items():
        by_last.setdefault(re.split(r"[:/]", folded)[-1], []).append(each)
    nearly = get_close_matches(wanted, by_last, n=3, cutoff=_SAME)
    same += [each for last in nearly for each in by_last[last]]
    alike = [by_folded[each] for each in get_close_matches(wanted, by_folded, n=3, cutoff=_ALIKE)]
    within = [each for folded, each in by_folded.items() if len(wanted) > 2 and wanted in folded]
    word = re.compile(rf"\b{re.escape(wanted)}\b", re.IGNORECASE)
    meant = [each for each, text in (described or {}).items() if word.search(text)]
    # By the kind of the match first; within "meant" and "within" a short name is the more general one.
    ranked = [*same, *sorted(meant, key=len), *alike, *sorted(within, key=len)]
    return list(dict.fromkeys(ranked))[:3]


def quoted(name: str, known: Collection[str], described: Mapping[str, str] | None = None) -> str:
    """Return an unknown name in quotes, with what comes close."""
    parts = [part.strip() for part in name.split(",")]
    # From shells and configuration files, where a list is often written as one text.
    if len(parts) > 1 and all(part in known for part in parts):
        return f"{short_repr(name)} (these are {len(parts)}: give each by itself)"
    found = suggest(name, known, described)
    return short_repr(name) + (f" (close: {', '.join(map(printable, found))})" if found else "")


def all_of(known: Collection[str]) -> str:
    """Return the known names as the end of a complaint, where they are few; nothing where they are many."""
    return f"; it has: {', '.join(map(printable, sorted(known)))}" if 0 < len(known) <= _FEW else ""


def no_series(key: object, series: Collection[CatalogueSeries]) -> KeyError:
    """Return the error for a key that is not a series_id; of a metric's id, it names the metric's series."""
    if not isinstance(key, str):
        return KeyError(f"no series {short_repr(key)}: the key is a series_id")
    if of_metric := [each.series_id for each in series if each.metric_id == key]:
        return KeyError(f"no series {key!r}; of that metric there are {listed(of_metric, 5)}")
    ids = [each.series_id for each in series]
    named = quoted(key, ids)
    return KeyError(f"no series {named}{all_of(ids) if named == short_repr(key) else ''}")
