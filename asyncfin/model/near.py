"""What is said of a name that is not known: what comes close, or all there are where those are few."""

from collections.abc import Collection, Iterable

from asyncfin.model.series import CatalogueSeries

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


def no_series(key: object, series: Collection[CatalogueSeries]) -> KeyError:
    """Return the error for a key that is the id of none of the series; a metric's id has its series told."""
    if not isinstance(key, str):
        return KeyError(f"no series {key!r}: the key is a series_id")
    if of_metric := [each.series_id for each in series if each.metric_id == key]:
        more = f" and {len(of_metric) - 5} more" if len(of_metric) > 5 else ""
        return KeyError(f"no series {key!r}; of that metric there are {', '.join(of_metric[:5])}{more}")
    return KeyError(f"no series {quoted(key, (each.series_id for each in series))}")
