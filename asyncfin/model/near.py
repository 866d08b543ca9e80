"""What is said of a name that is not known: what comes close, or all there are where those are few."""

from collections.abc import Collection, Iterable

_FEW = 12


def close(name: str, known: Iterable[str]) -> list[str]:
    """Return at most three of the known names, the closest first, in whatever case they are written."""
    from difflib import get_close_matches  # seldom needed

    by_folded = {each.casefold(): each for each in known}
    return [by_folded[each] for each in get_close_matches(name.casefold(), by_folded, n=3, cutoff=0.5)]


def quoted(name: str, known: Iterable[str]) -> str:
    """Return an unknown name in quotes, with what comes close."""
    found = close(name, known)
    return f"{name!r}" + (f" (close: {', '.join(found)})" if found else "")


def all_of(known: Collection[str]) -> str:
    """Return the known names as the end of a complaint, where they are few; nothing where they are many."""
    return f"; it has: {', '.join(sorted(known))}" if 0 < len(known) <= _FEW else ""
