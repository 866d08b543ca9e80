"""The search for series by words: which series of a catalogue they mean, best first.

A catalogue is annotated with Any here, since its module imports this one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from itertools import chain
from typing import Any, TypeAlias

from attrs import frozen
from msgspec import Struct

from asyncfin.model.matches import Match, Rank
from asyncfin.model.period import Period
from asyncfin.model.scope import ScopePath
from asyncfin.model.series import CatalogueSeries
from asyncfin.model.synonyms import ALIKE, MEANINGS
from asyncfin.suggest import LONGEST, alike

Words: TypeAlias = tuple[str, ...]
_Ranked: TypeAlias = list[tuple[CatalogueSeries, Rank]]

# They count for nothing.
_SMALL_WORDS = "a an and at by for from in of on per s the to"
_STOP = frozenset(_SMALL_WORDS.split())
# They do not prevent a match.
_WEAK = frozenset(["total", "value", "data"])
# Nor do these, in a label: "Net Income (Loss) Attributable to Parent" is net income.
_USUAL = _WEAK | frozenset(["loss", "attributable", "parent"])
# Below this share of common letters two words only look alike.
_ALIKE_SHARE = 0.7
# What a text is about stands at its start, and a label can have a megabyte.
_MAX_LENGTH = 1_000
# A text of more words is not a search, and each of them takes time.
_MAX_WORDS = 32
# A series that ends so many months before most others has ended.
_ENDED_MONTHS = 12
_MOST_METRICS = 3

_CAMEL = re.compile(r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case: "DilutedEPS" has two."""
    parts = re.sub(_CAMEL, " ", text[:_MAX_LENGTH].replace("&", "")).casefold()
    # What is for sale is not sales.
    return re.findall(r"[^\W_]+", re.sub(r"\bfor[ -]sale\b", "forsale", parts))


def stem(word: str) -> str:
    """Return an English word in the singular."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _split(text: str) -> Words:
    """Return the words of a text that count, in the singular and in order."""
    return _drop(map(stem, words_of(text)), _STOP)


def _drop(words: Iterable[str], ignored_words: Collection[str]) -> Words:
    return tuple(word for word in words if word not in ignored_words)


def _keep_strong(words: Words, weak_words: Collection[str]) -> Words:
    """Return words without weak ones; all of them if these are all."""
    return _drop(words, weak_words) or words


@lru_cache(1_000)  # paths have scopes in common, and metrics labels
def _read_forms(text: str) -> tuple[Words, ...]:
    """Return the words of a text, also with camel case as one word: "iphone" means
    "iPhone".
    """
    return tuple(dict.fromkeys((_split(text), _split(text.casefold()))))


# The numbers of the lines of synonyms that have a phrase, by its words in the order of
# the alphabet; and for each word the others that mean the same within any label.
_LINES: dict[Words, set[int]] = {}
_SYNONYMS: dict[str, set[str]] = {}


def _read_synonyms() -> None:
    groups = list(map(str.split, ALIKE))
    lines = MEANINGS.strip().replace("\n =", " =").split("\n")
    for number, line in enumerate(lines):
        single_words: list[str] = []
        for phrase in map(_split, line.split("=")):
            _LINES.setdefault(tuple(sorted(phrase)), set()).add(number)
            if len(phrase) == 1:
                single_words += phrase
        groups.append(single_words)
    for group in groups:
        for word in group:
            _SYNONYMS.setdefault(word, set()).update(group)


_read_synonyms()


def _find_lines(words: Words, weak_words: Collection[str]) -> set[int]:
    """Return the lines of synonyms of which words are a phrase, maybe without weak
    words.
    """
    lines: set[int] = set()
    for phrase in (words, _keep_strong(words, weak_words)):
        lines |= _LINES.get(tuple(sorted(phrase)), set())
    return lines


# gc=False: a catalogue has thousands, and a walk over all objects stops the event loop.
class _Name(Struct, frozen=True, gc=False):
    """The words of texts: of a label and its metric, or of the scopes of a path.

    Attributes:
        forms: the words of each text, in order.
        words: all of them.
        similar: further words for them: synonyms and aliases.
        initials: of each text, with and without small words.
        lines: the lines of synonyms that mean the same.
    """

    forms: tuple[Words, ...]
    words: frozenset[str]
    similar: frozenset[str]
    initials: tuple[str, ...]
    lines: frozenset[int]

    @classmethod
    def of(cls, texts: Iterable[str], aliases: Iterable[str] = ()) -> _Name:
        forms: list[Words] = []
        initials: list[str] = []
        for text in texts:
            forms += _read_forms(text)
            for spelling in (words_of(text), _split(text)):
                initials.append("".join(word[0] for word in spelling))
        words = frozenset(chain.from_iterable(forms))
        similar_words: set[str] = set()
        for word in words:
            similar_words |= _SYNONYMS.get(word, set())
        for alias in aliases:
            similar_words.update(*_read_forms(alias))
        lines: set[int] = set()
        for form in forms:
            lines |= _find_lines(form, _USUAL)
        return cls(
            tuple(forms),
            words,
            frozenset(similar_words),
            tuple(initials),
            frozenset(lines),
        )

    def is_called(self, words: Words) -> bool:
        """Return whether words are one of its forms, apart from words that mean
        little.
        """
        distinct_words = set(words)
        for form in self.forms:
            strong_words = set(_keep_strong(form, _USUAL))
            if words and strong_words <= distinct_words <= set(form):
                return True
        return False

    def resembles(self, word: str) -> bool:
        """Return whether a word begins one of its words or initials, or is a further
        word.
        """
        if word in self.words or word in self.similar:
            return True
        # Two letters begin initials, R&D those of R&DE, and any word.
        if len(word) > 1 and _has_beginning(self.initials, word):
            return True
        return len(word) > 2 and _has_beginning(self.words, word)


def _has_beginning(texts: Iterable[str], beginning: str) -> bool:
    return any(text.startswith(beginning) for text in texts)


_Names: TypeAlias = tuple[_Name, _Name, frozenset[str]]


class Index:
    """The words of a catalogue: of its labels and metrics, its paths, and its
    groups.
    """

    def __init__(self, catalogue: Any) -> None:
        self._metrics: dict[tuple[str, str], _Name] = {}
        self._paths: dict[ScopePath, _Name] = {}
        self._contexts: dict[tuple[str, str], frozenset[str]] = {}
        for series in catalogue.series:
            metric = series.label, series.metric_id
            if metric not in self._metrics:
                # Without the taxonomy.
                last_part = re.split("[:/]", series.metric_id)[-1]
                self._metrics[metric] = _Name.of((series.label, last_part))
            path = series.scopes
            if path not in self._paths:
                scopes = catalogue.listed_scopes(path)
                aliases = chain.from_iterable(scope.aliases for scope in scopes)
                self._paths[path] = _Name.of(catalogue.scope_names(path), aliases)
            key = series.reporting_group_id, series.basis
            if key not in self._contexts:
                group = catalogue.by_group[series.reporting_group_id]
                texts = (catalogue.name, *key, group.name, group.cadence)
                self._contexts[key] = _Name.of(texts).words
        self.vocabulary: set[str] = set()
        for name in (*self._metrics.values(), *self._paths.values()):
            self.vocabulary |= name.words

    def names_of(self, series: CatalogueSeries) -> _Names:
        """Return the words of a series: its label and metric, its path, its group."""
        return (
            self._metrics[series.label, series.metric_id],
            self._paths[series.scopes],
            self._contexts[series.reporting_group_id, series.basis],
        )


@frozen
class _Query:
    """The words that are searched for, in the singular and in order.

    Attributes:
        words: those that a series must have.
        weak: the others.
    """

    words: Words
    weak: Words

    def match_words(self, names: _Names) -> Words:
        """Return the words that a series has or resembles."""
        name, path, context = names
        words: list[str] = []
        for word in self.words:
            is_similar = name.resembles(word) or path.resembles(word)
            if is_similar or word in context:
                words.append(word)
        return tuple(words)

    def rank(self, names: _Names) -> Rank | None:
        """Return how a series matches without its description, or None."""
        name, path, context = names
        # What is a word of the label is compared with it. Of the others, what is a word
        # of the scopes or of the group only restricts.
        label_words: Words = ()
        path_words: Words = ()
        for word in self.words:
            if word in name.words or not (word in path.words or word in context):
                label_words += (word,)
            if word in path.words or word not in context:
                path_words += (word,)
        missing = _drop(label_words, name.words)
        if not missing and name.is_called(label_words):
            return Rank.EXACT
        # "Sales" means revenue before it means the line "Sales" in a table about
        # derivatives.
        if path.is_called(path_words) and not self._find_lines(path_words):
            return Rank.EXACT
        if not self._find_lines(label_words).isdisjoint(name.lines):
            return Rank.MEANING
        if not missing:
            return Rank.WORDS
        for word in missing:
            if not name.resembles(word) and not path.resembles(word):
                return None
        return Rank.ALIAS

    def _find_lines(self, words: Words) -> set[int]:
        """Return the lines of synonyms of words: "book value" has one, "book" has
        not.
        """
        if not words:
            return set()
        return _find_lines((*words, *self.weak), self.weak)


def search(
    catalogue: Any, text: str, last_periods: Mapping[str, Period]
) -> list[Match]:
    """Return the series that the words of a text mean, best first; without words all,
    in catalogue order.

    First what is called so or means the same, then other matches. In each the series
    that still have values come before the ended ones. Then they are ordered by `Rank`,
    consolidated before parts, and by the fewest words that the label does not have,
    scopes, and other words of the label. Descriptions are only searched if nothing else
    matches, and words that are spelt alike only if no series has all words.

    Args:
        catalogue: the catalogue.
        text: the words.
        last_periods: the last period with a value, by the id of the series that have
            one.
    """
    words = _split(text)[:_MAX_WORDS]
    index: Index = catalogue._search_index
    strong_words = _keep_strong(words, _WEAK)
    query = _Query(strong_words, _drop(words, strong_words))
    ranks: _Ranked = []
    if words:
        ranks = _find_named(catalogue, query, text)
        ranks = ranks or _find_described(catalogue, query)
        ranks = ranks or _find_close(catalogue, query)
    elif not words_of(text):
        ranks = [(series, Rank.EXACT) for series in catalogue.series]
    limit = _find_ended_limit(last_periods.values())
    matches: list[Match] = []
    for series, rank in ranks:
        last_period = last_periods.get(series.series_id)
        if last_period is not None and last_period.fiscal_end > limit:
            last_period = None
        matches.append(Match(rank, series, last_period))

    def order(match: Match) -> tuple[object, ...]:
        name, *_ = index.names_of(match.series)
        label_words = _keep_strong(name.forms[0], _USUAL)
        return (
            *match.order,
            not match.series.is_consolidated,
            len(_drop(words, name.words)),
            len(match.series.scopes),
            len(_drop(label_words, words)),
        )

    if words:
        matches.sort(key=order)
    return matches


def _find_ended_limit(last_periods: Iterable[Period]) -> int:
    """Return the fiscal end up to which a series has ended: a year before the last one
    of most series.
    """
    counts = Counter(period.fiscal_end for period in last_periods)
    if not counts:
        return 0
    # Not the latest of all: a single odd series may reach into the next year.
    frequency = max(counts.values())
    return max(end for end in counts if counts[end] == frequency) - _ENDED_MONTHS


def _find_named(catalogue: Any, query: _Query, text: str) -> _Ranked:
    """Return the series that match without descriptions."""
    text_id = text.strip().casefold()
    ranks = []
    for series in catalogue.series:
        rank = query.rank(catalogue._search_index.names_of(series))
        if text_id in (series.metric_id.casefold(), series.series_id.casefold()):
            rank = Rank.EXACT
        if rank is not None:
            ranks.append((series, rank))
    return ranks


def _find_described(catalogue: Any, query: _Query) -> _Ranked:
    """Return the series that have the words with those of their description."""
    words_by_text: dict[str, frozenset[str]] = {}  # all series of a metric have one
    ranks = []
    for series in catalogue.series:
        words = query.match_words(catalogue._search_index.names_of(series))
        text = series.description
        if text not in words_by_text:
            words_by_text[text] = frozenset(_split(text))
        if words_by_text[text].union(words).issuperset(query.words):
            ranks.append((series, Rank.DESCRIPTION))
    return ranks


def _find_close(catalogue: Any, query: _Query) -> _Ranked:
    """Return the series that have most of the words.

    A word that the catalogue does not have counts as the one most like it.
    """
    index: Index = catalogue._search_index
    spelling: list[str] = []
    for word in query.words:
        close: list[str] = []
        if word not in index.vocabulary:
            close = alike(word, index.vocabulary, 1, _ALIKE_SHARE)
        spelling += close or [word]
    query = _Query(tuple(spelling), query.weak)
    greatest = 1
    ranks: _Ranked = []
    for series in catalogue.series:
        count = len(query.match_words(index.names_of(series)))
        if count > greatest:
            greatest, ranks = count, []
        if count == greatest:
            ranks.append((series, Rank.CLOSE))
    return ranks


def close_metrics(catalogue: Any, name: str) -> list[str]:
    """Return up to three metric ids that an unknown one probably means: the first of a
    search for its words.
    """
    # Of "us-gaap:Revenue" the last part is what is meant.
    words = re.split("[:/]", name)[-1]
    if len(name) > LONGEST or not words_of(words):
        return []
    matches = search(catalogue, words, {})
    metric_ids = dict.fromkeys(match.series.metric_id for match in matches)
    return list(metric_ids)[:_MOST_METRICS]
