"""Which series words mean, best first. Pure: catalogues and words in, ranked series out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from difflib import get_close_matches
from enum import IntEnum
from functools import lru_cache
from typing import TypeAlias

from attrs import frozen

from asyncfin.model.catalogue import Catalogue, Scope
from asyncfin.model.scope import ScopePath
from asyncfin.model.series import CatalogueSeries, is_consolidated


class Match(IntEnum):
    """How a word matches a series, best first."""

    EXACT = 0
    WHOLE = 1
    INITIALS = 2
    STEM = 3
    ALIAS = 4
    DESCRIPTION = 5
    PART = 6


# Words that mean the same in accounts, as stems.
_SAME = (
    {"earning", "income", "profit"},
    {"sale", "revenue", "turnover"},
    {"capex", "capital", "expenditure"},
    {"liability", "debt"},
    {"inventory", "stock"},
    {"equity", "shareholder", "stockholder"},
    {"dividend", "payout"},
    {"repurchase", "buyback"},
)
_SYNONYMS = {word: frozenset(group - {word}) for group in _SAME for word in group}
_CANONICAL = {word: min(group) for group in _SAME for word in group}
# They count only if the series has them.
_FILLER = frozenset(
    re.findall(r"\w+", "a an and at by for from in of on per s the to total value values data")
)
# They say little in a label.
_USUAL = frozenset({"loss", "attributable", "parent"})
# Below this share of common letters two words only look alike.
_ALIKE = 0.7


_Scored: TypeAlias = "tuple[tuple[int, ...], _Candidate]"


@frozen
class Found:
    """A metric and a scope path that words mean.

    Attributes:
        metric_id: the metric.
        scopes: the scope path.
        places: for each catalogue, by its place among those given, its series of this metric and path.
    """

    metric_id: str
    scopes: ScopePath
    places: dict[int, tuple[CatalogueSeries, ...]]


@frozen
class Ranking:
    """What words mean in some catalogues.

    Attributes:
        found: best first.
        close: whether nothing matches all words, and these are the closest.
    """

    found: tuple[Found, ...]
    close: bool = False


@lru_cache(maxsize=100_000)
def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a label or an id, in lower case: "DilutedEPS" has two."""
    parts = re.sub(r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", text.replace("&", ""))
    return tuple(re.findall(r"[^\W_]+", parts.casefold()))


@lru_cache(maxsize=100_000)
def stem(word: str) -> str:
    """Return an English word in the singular."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _canonical(words: Iterable[str]) -> tuple[str, ...]:
    """Return words without what distinguishes them from words of the same meaning."""
    stems = tuple(_CANONICAL.get(stem(word), stem(word)) for word in words)
    # "Net Income (Loss) Attributable to Parent" is net income.
    return tuple(each for each in stems if each not in _FILLER and each not in _USUAL) or stems


@lru_cache(maxsize=100_000)
def _initials(text: str) -> str:
    return "".join(word[0] for word in words_of(text))


@frozen
class _Texts:
    """The words of one series, by how they count; `exact` has its label, its metric and its scopes."""

    exact: frozenset[tuple[str, ...]]
    own: frozenset[str]
    stems: frozenset[str]
    initials: tuple[str, ...]
    aliases: frozenset[str]
    others: frozenset[str]
    description: str

    def match(self, word: str) -> Match | None:
        """Return how a word matches; None if it does not."""
        stemmed = stem(word)
        if word in self.own or word in self.others:
            return Match.WHOLE
        if len(word) > 1 and any(word in initials for initials in self.initials):
            return Match.INITIALS
        if stemmed in self.stems:
            return Match.STEM
        if stemmed in self.aliases or not self.stems.isdisjoint(_SYNONYMS.get(stemmed, ())):
            return Match.ALIAS
        described = words_of(self.description)
        if word in described or stemmed in map(stem, described):
            return Match.DESCRIPTION
        if len(word) > 2 and any(word in own for own in self.own):
            return Match.PART
        return None


def _texts(catalogue: Catalogue, series: CatalogueSeries, scopes: Sequence[Scope]) -> _Texts:
    # Without the taxonomy: "us-gaap:Revenues".
    metric = re.split("[:/]", series.metric_id)[-1]
    group = catalogue.by_group[series.reporting_group_id]
    names = (series.label, metric, *catalogue.scope_names(series.scopes))
    own = frozenset(word for text in names for word in words_of(text))
    aliases = [alias for each in scopes for alias in each.aliases]
    others = (group.reporting_group_id, group.cadence, series.basis, catalogue.name)
    return _Texts(
        exact=frozenset(_canonical(words_of(text)) for text in names),
        own=own,
        stems=frozenset(map(stem, own)),
        initials=(_initials(series.label), _initials(metric)),
        aliases=frozenset(stem(word) for alias in aliases for word in words_of(alias)),
        others=frozenset(word for text in others for word in words_of(text)),
        description=series.description,
    )


def _has_ended(catalogue: Catalogue, scopes: Iterable[Scope]) -> bool:
    """Return whether one of the scopes ends a year or more before the catalogue does."""
    if not catalogue.periods:
        return False
    # A scope may be reported once a year. Periods are ordered by their ends.
    last = catalogue.periods[-1].fiscal_end - 12
    return any(each.active_end is not None and each.active_end.fiscal_end <= last for each in scopes)


def rank(catalogues: Sequence[Catalogue], text: str) -> Ranking:
    """Return the metrics and scope paths that the words of a text mean.

    All words must match. The order: exact label, metric id or scope, also in words of the same meaning;
    whole words; initials; stems; aliases and synonyms. Then consolidated before parts, current before ended,
    and the fewest other words. Matches in descriptions or within words count only where there are no others.
    """
    asked = words_of(text)
    candidates = list(_candidates(catalogues))
    if scored := list(_scored(candidates, asked)):
        strong = [each for each in scored if each[0][0] <= Match.ALIAS]
        return Ranking(_joined(strong or scored))
    vocabulary = set[str]().union(*(each.texts.own for each in candidates))
    nearest = [_nearest(word, vocabulary) for word in asked if word not in _FILLER]
    counts = [sum(each.texts.match(word) is not None for word in nearest) for each in candidates]
    if not (most := max(counts, default=0)):
        return Ranking((), close=True)
    close = (
        (_order(each, nearest), each) for each, count in zip(candidates, counts, strict=True) if count == most
    )
    return Ranking(_joined(close), close=True)


@frozen
class _Candidate:
    """A series of one of the catalogues.

    Attributes:
        place: of its catalogue among those given.
        has_ended: whether a scope of its path has ended.
    """

    place: int
    series: CatalogueSeries
    texts: _Texts
    has_ended: bool


def _candidates(catalogues: Sequence[Catalogue]) -> Iterator[_Candidate]:
    for place, catalogue in enumerate(catalogues):
        for series in catalogue:
            scopes = catalogue.listed_scopes(series.scopes)
            texts = _texts(catalogue, series, scopes)
            yield _Candidate(place, series, texts, _has_ended(catalogue, scopes))


def _scored(candidates: Iterable[_Candidate], asked: Sequence[str]) -> Iterator[_Scored]:
    """Yield the series that match all words, with the key that orders them."""
    for each in candidates:
        texts = each.texts
        matches = {word: texts.match(word) for word in asked}
        if any(match is None and word not in _FILLER for word, match in matches.items()):
            continue
        # A company's name or a cadence says nothing about which of its series is meant.
        meant = [word for word in asked if word not in texts.others or word in texts.own]
        best = max((match for match in matches.values() if match is not None), default=Match.PART)
        tier = Match.EXACT if _canonical(meant) in texts.exact else best
        yield (tier, *_order(each, asked)), each


def _order(candidate: _Candidate, asked: Sequence[str]) -> tuple[int, int, int]:
    label = set(_canonical(words_of(candidate.series.label)))
    others = len(label.difference(_canonical(asked)))
    return not is_consolidated(candidate.series), candidate.has_ended, others


def _nearest(word: str, vocabulary: Collection[str]) -> str:
    close = get_close_matches(word, vocabulary, n=1, cutoff=_ALIKE)
    return close[0] if close else word


def _joined(scored: Iterable[_Scored]) -> tuple[Found, ...]:
    """Join the series of a metric and path, in the order of their best."""
    places: dict[tuple[str, ScopePath], dict[int, list[CatalogueSeries]]] = {}
    # Stable: equal ones stay in catalogue order.
    for _, each in sorted(scored, key=lambda each: each[0]):
        of = places.setdefault((each.series.metric_id, each.series.scopes), {})
        of.setdefault(each.place, []).append(each.series)
    return tuple(
        Found(metric_id, path, {place: tuple(series) for place, series in sorted(of.items())})
        for (metric_id, path), of in places.items()
    )
