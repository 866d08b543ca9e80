"""The search for series by words: which series of a catalogue they mean, best first.

A catalogue is annotated with Any here, since its module imports this one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from functools import lru_cache
from typing import Any, TypeAlias

from attrs import frozen
from msgspec import Struct

from asyncfin.model.period import Period
from asyncfin.model.scope import ScopePath
from asyncfin.model.series import CatalogueSeries
from asyncfin.model.synonyms import ALIKE, MEANINGS
from asyncfin.suggest import LONGEST, SAME, alike

Words: TypeAlias = tuple[str, ...]


class Rank(IntEnum):
    """How a series matches the words of a text, best first."""

    EXACT = 0  # they are its label, its metric or a scope, or the text is an id
    MEANING = 1  # they mean the same as its label or metric
    START = 2  # its label or metric begins with them
    WORDS = 3  # they are words of label, metric or scopes
    ALIAS = 4  # one is the beginning of a word or of initials, an alias, or a synonym
    DESCRIPTION = 5  # one is only in the description
    CLOSE = 6  # it does not have all of them


# They count for nothing.
_STOP = frozenset(
    [
        "a",
        "an",
        "and",
        "at",
        "by",
        "for",
        "from",
        "in",
        "of",
        "on",
        "per",
        "s",
        "the",
        "to",
    ]
)
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
# A series that ends so many months before the others has ended.
_ENDED_MONTHS = 12

_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# What is for sale is not sales.
_FOR_SALE = re.compile(r"\bfor[ -]sale\b")


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case: "DilutedEPS" has two."""
    spaced = re.sub(_CAMEL, " ", text[:_MAX_LENGTH].replace("&", "")).casefold()
    return re.findall(_WORD, re.sub(_FOR_SALE, "forsale", spaced))


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
    return tuple(word for word in map(stem, words_of(text)) if word not in _STOP)


@lru_cache(1_000)  # paths have scopes in common, and metrics labels
def _read_forms(text: str) -> tuple[Words, ...]:
    """Return the words of a text, also with camel case as one word: "iphone" means
    "iPhone".
    """
    return tuple(dict.fromkeys((_split(text), _split(text.casefold()))))


def _join(forms: Iterable[Words]) -> Words:
    return tuple(dict.fromkeys(word for form in forms for word in form))


def _drop(words: Iterable[str], ignored: Collection[str]) -> Words:
    """Return words without the ignored ones; all of them if these are all."""
    every = tuple(words)
    return tuple(word for word in every if word not in ignored) or every


# The numbers of the lines of synonyms that have a phrase, by its words in the order of
# the alphabet; and for each word the others that mean the same within any label.
_LINES: dict[Words, set[int]] = {}
_SYNONYMS: dict[str, set[str]] = {}


def _read_synonyms() -> None:
    groups = [words.split() for words in ALIKE]
    lines = MEANINGS.strip().replace("\n =", " =").split("\n")
    for number, line in enumerate(lines):
        phrases = [_split(phrase) for phrase in line.split("=")]
        for phrase in phrases:
            _LINES.setdefault(tuple(sorted(phrase)), set()).add(number)
        groups.append([phrase[0] for phrase in phrases if len(phrase) == 1])
    for group in groups:
        for word in group:
            _SYNONYMS.setdefault(word, set()).update(group)


_read_synonyms()


def _find_lines(words: Words, ignored: Collection[str]) -> set[int]:
    """Return the lines of synonyms of which words are a phrase, maybe without ignored
    words.
    """
    phrases = (words, _drop(words, ignored))
    return set().union(*(_LINES.get(tuple(sorted(words)), ()) for words in phrases))


# gc=False: a catalogue has thousands, and a walk over all objects stops the event loop.
class _Name(Struct, frozen=True, gc=False):
    """The words of a label and its metric, or of the scopes of a path.

    Attributes:
        forms: the words of each, in order: also with camel case as one word.
        words: all of them.
        also: further words for them: aliases of scopes, and synonyms.
        initials: of label and metric, with and without small words.
        lines: the lines of synonyms that mean the same.
    """

    forms: tuple[Words, ...]
    words: Words
    also: Words
    initials: Words = ()
    lines: tuple[int, ...] = ()

    @classmethod
    def of_metric(cls, label: str, metric_id: str) -> _Name:
        metric = re.split("[:/]", metric_id)[-1]  # without its taxonomy
        forms = (*_read_forms(label), *_read_forms(metric))
        spellings = [
            words
            for text in (label, metric)
            for words in (words_of(text), _split(text))
        ]
        initials = ("".join(word[0] for word in words) for words in spellings)
        lines = set[int]().union(*(_find_lines(form, _USUAL) for form in forms))
        return cls._of(forms, (), tuple(initials), tuple(lines))

    @classmethod
    def of_path(cls, catalogue: Any, path: ScopePath) -> _Name:
        scopes = catalogue.listed_scopes(path)
        names = catalogue.scope_names(path)
        aliases = [
            form
            for scope in scopes
            for alias in scope.aliases
            for form in _read_forms(alias)
        ]
        return cls._of(
            tuple(form for name in names for form in _read_forms(name)), _join(aliases)
        )

    @classmethod
    def _of(
        cls,
        forms: tuple[Words, ...],
        also: Words,
        initials: Words = (),
        lines: tuple[int, ...] = (),
    ) -> _Name:
        words = _join(forms)
        synonyms = _join(tuple(_SYNONYMS.get(word, ())) for word in words)
        return cls(forms, words, (*also, *synonyms), initials, lines)

    def is_called(self, words: Words) -> bool:
        """Return whether words are one of its forms, apart from words that mean
        little.
        """
        distinct = set(words)
        return bool(words) and any(
            distinct.issuperset(_drop(form, _USUAL)) and distinct.issubset(form)
            for form in self.forms
        )

    def begins_with(self, words: Words) -> bool:
        """Return whether a form begins with words, with or without its weak ones."""
        begins = (form for full in self.forms for form in (full, _drop(full, _WEAK)))
        return any(form[: len(words)] == words for form in begins)

    def resembles(self, word: str) -> bool:
        """Return whether a word begins one of its words or its initials, or is a
        further word for it.
        """
        if word in self.words or word in self.also:
            return True
        if len(word) > 1 and any(text.startswith(word) for text in self.initials):
            return True
        return len(word) > 2 and any(text.startswith(word) for text in self.words)


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
                self._metrics[metric] = _Name.of_metric(*metric)
            if series.scopes not in self._paths:
                self._paths[series.scopes] = _Name.of_path(catalogue, series.scopes)
            key = series.reporting_group_id, series.basis
            if key not in self._contexts:
                group = catalogue.by_group[series.reporting_group_id]
                texts = (catalogue.name, *key, group.name, group.cadence)
                forms = (form for text in texts for form in _read_forms(text))
                self._contexts[key] = frozenset(_join(forms))
        names = (*self._metrics.values(), *self._paths.values())
        self.vocabulary = frozenset(word for name in names for word in name.words)

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
        weak: the others, which count where series are equal.
    """

    words: Words
    weak: Words = ()

    @classmethod
    def of(cls, text: str) -> _Query:
        words = _split(text)[:_MAX_WORDS]
        strong = _drop(words, _WEAK)
        return cls(strong, tuple(word for word in words if word not in strong))

    def matched_words(self, names: _Names) -> Words:
        """Return the words that a series has or resembles."""
        name, path, context = names
        return tuple(
            word
            for word in self.words
            if word in context or name.resembles(word) or path.resembles(word)
        )

    def rank(self, names: _Names) -> Rank | None:
        """Return how a series matches without its description, or None."""
        name, path, context = names
        # What is a word of the label is compared with it. Of the others, what is a word
        # of the scopes or of the group only restricts.
        meant = tuple(
            word
            for word in self.words
            if word in name.words or not (word in path.words or word in context)
        )
        scoped = tuple(
            word for word in self.words if word in path.words or word not in context
        )
        missing = [word for word in meant if word not in name.words]
        if not missing and name.is_called(meant):
            return Rank.EXACT
        # "Sales" means revenue before it means the line "Sales" in a table about
        # derivatives.
        if path.is_called(scoped) and not self._lines(scoped):
            return Rank.EXACT
        if not self._lines(meant).isdisjoint(name.lines):
            return Rank.MEANING
        if not missing:
            return Rank.START if meant and name.begins_with(meant) else Rank.WORDS
        if all(name.resembles(word) or path.resembles(word) for word in missing):
            return Rank.ALIAS
        return None

    def _lines(self, words: Words) -> set[int]:
        """Return the lines of synonyms of words: "book value" has one, "book" has
        not.
        """
        return _find_lines((*words, *self.weak), self.weak) if words else set()

    def respell(self, vocabulary: Collection[str]) -> _Query:
        """Return the query with each unknown word as the catalogue spells the one most
        like it.
        """
        words = [
            next(iter(alike(word, vocabulary, 1, _ALIKE_SHARE)), word)
            if word not in vocabulary
            else word
            for word in self.words
        ]
        return _Query(tuple(words), self.weak)


@frozen
class Match:
    """A series that a search found.

    Attributes:
        rank: how it matches the words.
        series: the series.
        ended: its last period with a value, if that is a year before most others'.
            Otherwise, or if it is unknown, None.
    """

    rank: Rank
    series: CatalogueSeries
    ended: Period | None = None

    @property
    def order(self) -> tuple[bool, bool, Rank]:
        """A key that sorts the better match first."""
        return self.rank > Rank.MEANING, self.ended is not None, self.rank

    def note(self, text: str) -> str:
        """Return a text of the series, with the period since which it has no values."""
        return text if self.ended is None else f"{text} (no value since {self.ended})"


def search(
    catalogue: Any, text: str, last_periods: Mapping[str, Period]
) -> list[Match]:
    """Return the series that the words of a text mean, best first; without words all,
    in catalogue order.

    First what is called so or means the same, then other matches. In each the series
    that still have values come before the ended ones. Then they are ordered by `Rank`,
    consolidated before parts, and by the fewest weak words, scopes and other words of
    the label. Descriptions are only searched if nothing else matches, and words that
    are spelt alike only if no series has all words.

    Args:
        catalogue: the catalogue.
        text: the words.
        last_periods: the last period with a value, by the id of the series that have
            one.
    """
    ended = _find_ended(last_periods)
    query = _Query.of(text)
    index: Index = catalogue._search_index
    ranks: dict[str, Rank] = {}
    if not words_of(text):
        ranks = dict.fromkeys(catalogue.places, Rank.EXACT)
    elif query.words:
        ranks = _find_named(catalogue, query, text) or _find_described(catalogue, query)
        if not ranks:
            query = query.respell(index.vocabulary)
            ranks = _find_close(catalogue, query)

    def order(series_id: str) -> tuple[object, ...]:
        series, rank = catalogue[series_id], ranks[series_id]
        names = name, *_ = index.names_of(series)
        if rank == Rank.CLOSE:
            closest = _Query(query.matched_words(names), query.weak).rank(names)
            rank = rank if closest is None else closest
        words = {*query.words, *query.weak}
        return (
            rank > Rank.MEANING,
            series_id in ended,
            rank,
            not series.is_consolidated,
            sum(word not in name.words for word in query.weak),
            len(series.scopes),
            sum(word not in words for word in _drop(name.forms[0], _USUAL)),
            catalogue.places[series_id],
        )

    series_ids = sorted(ranks, key=order) if query.words else ranks
    return [Match(ranks[id_], catalogue[id_], ended.get(id_)) for id_ in series_ids]


def _find_ended(last_periods: Mapping[str, Period]) -> dict[str, Period]:
    """Return the series whose last value is a year before the one that most series have
    last.
    """
    ends = sorted(period.fiscal_end for period in last_periods.values())
    if not ends:
        return {}
    # Not the latest of all: a single odd series may reach into the next year.
    current = max(ends, key=lambda end: (ends.count(end), end))
    return {
        series_id: period
        for series_id, period in last_periods.items()
        if period.fiscal_end <= current - _ENDED_MONTHS
    }


def _find_named(catalogue: Any, query: _Query, text: str) -> dict[str, Rank]:
    """Return the ranks of the series that match without descriptions."""
    folded = text.strip().casefold()
    by_words: dict[tuple[object, ...], Rank | None] = {}
    ranks: dict[str, Rank] = {}
    for series in catalogue.series:
        if folded in (series.metric_id.casefold(), series.series_id.casefold()):
            ranks[series.series_id] = Rank.EXACT
            continue
        names = catalogue._search_index.names_of(series)
        key = tuple(map(id, names))
        if key not in by_words:
            by_words[key] = query.rank(names)
        if (rank := by_words[key]) is not None:
            ranks[series.series_id] = rank
    return ranks


def _find_described(catalogue: Any, query: _Query) -> dict[str, Rank]:
    """Return the series that have the words with those of their description."""
    words_by_text: dict[str, frozenset[str]] = {}
    ranks: dict[str, Rank] = {}
    for series in catalogue.series:
        text = series.description
        if text not in words_by_text:
            words_by_text[text] = frozenset(_split(text))
        matched = query.matched_words(catalogue._search_index.names_of(series))
        if words_by_text[text].union(matched).issuperset(query.words):
            ranks[series.series_id] = Rank.DESCRIPTION
    return ranks


def _find_close(catalogue: Any, query: _Query) -> dict[str, Rank]:
    """Return the series that have most of the words."""
    names_of = catalogue._search_index.names_of
    counts = {
        series.series_id: len(query.matched_words(names_of(series)))
        for series in catalogue.series
    }
    most = max(counts.values(), default=0)
    return {
        series_id: Rank.CLOSE
        for series_id, count in counts.items()
        if 0 < count == most
    }


def close_metrics(catalogue: Any, name: str, most: int = 3) -> list[str]:
    """Return the metric ids that an unknown one probably means, the best first.

    First those that differ in case only or are spelt alike, then the first of a search
    for its words.
    """
    if len(name) > LONGEST:
        return []
    folded: dict[str, list[str]] = {}
    for metric_id in catalogue.by_metric:
        folded.setdefault(metric_id.casefold(), []).append(metric_id)
    close: dict[str, None] = {}
    for folded_id in alike(name.strip().casefold(), folded, most, SAME):
        close.update(dict.fromkeys(folded[folded_id]))
    # Of "us-gaap:Revenue" the last part is what is meant.
    words = re.split("[:/]", name)[-1]
    for match in search(catalogue, words, {}) if words_of(words) else ():
        close[match.series.metric_id] = None
        if len(close) >= most:
            break
    return list(close)[:most]
