"""The search for series by words: which series of a catalogue they mean, best first.

A catalogue is annotated with Any here, since its module imports this one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from functools import cache
from operator import attrgetter
from typing import Any, TypeAlias

from msgspec import Struct

from asyncfin.model.matches import Match, Rank
from asyncfin.model.period import Period
from asyncfin.model.scope import ScopePath
from asyncfin.model.series import CatalogueSeries
from asyncfin.model.synonyms import ABBREVIATIONS, ALIKE, MEANINGS
from asyncfin.suggest import LONGEST, find_alike

Words: TypeAlias = frozenset[str]
# Each with the number of words that it does not have, not even in its description.
_Ranked: TypeAlias = list[tuple["Entry", Rank, int]]

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
_MAX_WORDS = 32
# A series that ends so many months before most others has ended.
_ENDED_MONTHS = 12
_MOST_METRICS = 3

_CAMEL = re.compile(r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def read_words(text: str) -> list[str]:
    """Return the words of a text in lower case: "DilutedRevenue" has two, "EPS" those
    that it stands for.
    """
    text = text[:_MAX_LENGTH].replace("&", "")
    text = re.sub(_CAMEL, " ", text).casefold()
    # What is for sale is not sales.
    text = re.sub(r"\bfor[ -]sale\b", "forsale", text)
    words = re.findall(r"[^\W_]+", text)
    phrases = [ABBREVIATIONS.get(word, word) for word in words]
    return " ".join(phrases).split()


def stem(word: str) -> str:
    """Return an English word in the singular."""
    is_long = len(word) > 4
    if is_long and word.endswith("ies"):
        return word[:-3] + "y"
    if is_long and word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    if len(word) <= 3 or word.endswith(("ss", "us", "is")):
        return word
    return word.removesuffix("s")


def _split(text: str) -> Words:
    """Return the words of a text that count, in the singular."""
    stems = map(stem, read_words(text))
    return frozenset(stems) - _STOP


def _keep_strong(words: Words, weak_words: Words) -> Words:
    """Return words without weak ones; all of them if these are all."""
    return words - weak_words or words


# The line of synonyms of each phrase, and the words that mean the same as each within
# any label.
_LINES: dict[Words, int] = {}
_SYNONYMS: dict[str, Words] = {}


def _read_synonyms() -> None:
    lines = MEANINGS.strip().replace("\n =", " =").split("\n")
    for number, line in enumerate(lines):
        for phrase in line.split("="):
            _LINES[_split(phrase)] = number
    for words in map(_split, ALIKE):
        for word in words:
            _SYNONYMS[word] = words


_read_synonyms()


def _find_lines(*phrases: Words) -> set[int]:
    """Return the lines of synonyms that have one of the phrases."""
    return {_LINES[phrase] for phrase in phrases if phrase in _LINES}


# gc=False: a catalogue has thousands, and a walk over all objects stops the event loop.
class _Name(Struct, frozen=True, gc=False):
    """The words of texts: of a label and its metric, or of the scopes of a path.

    Attributes:
        forms: the words of each text, also with camel case as one word: "iphone" means
            "iPhone".
        words: all of them.
        similar: these, their synonyms and aliases.
        lines: the lines of synonyms that mean the same.
    """

    forms: tuple[Words, ...]
    words: Words
    similar: Words
    lines: frozenset[int]

    @classmethod
    def of(cls, texts: Iterable[str], aliases: Iterable[str] = ()) -> _Name:
        forms: list[Words] = []
        lines: set[int] = set()
        for text in texts:
            for spelling in (text, text.casefold()):
                form = _split(spelling)
                strong_form = _keep_strong(form, _USUAL)
                forms.append(form)
                lines |= _find_lines(form, strong_form)
        words = frozenset[str]().union(*forms)
        similar = set(words)
        for word in words:
            similar |= _SYNONYMS.get(word, words)
        for alias in aliases:
            similar |= _split(alias)
            similar |= _split(alias.casefold())
        return cls(tuple(forms), words, frozenset(similar), frozenset(lines))

    def is_called(self, words: Words) -> bool:
        """Return whether words are one of its forms, apart from words that mean
        little.
        """
        for form in self.forms:
            strong_form = _keep_strong(form, _USUAL)
            if words and strong_form <= words <= form:
                return True
        return False

    def resembles(self, word: str) -> bool:
        """Return whether a word is one of its words, similar, or begins one."""
        if word in self.similar:
            return True
        if len(word) < 3:
            return False
        return any(name.startswith(word) for name in self.words)


class Entry(Struct, frozen=True, gc=False):
    """A series and the words that find it.

    Attributes:
        series: the series.
        name: the words of its label and metric.
        path: the words of its scopes.
        context: the words of the entity, the reporting group and the basis.
    """

    series: CatalogueSeries
    name: _Name
    path: _Name
    context: Words

    def rank(self, words: Words, weak_words: Words) -> Rank | None:
        """Return how words match, without the description, or None."""
        name = self.name
        path = self.path
        # What is a word of the label is compared with it. Of the others, what is a word
        # of the scopes or of the group only restricts.
        other_words = path.words | self.context
        label_words = words - (other_words - name.words)
        path_words = words - (self.context - path.words)
        missing = label_words - name.words
        if not missing and name.is_called(label_words):
            return Rank.EXACT
        # "Sales" means revenue before it means the line "Sales" in a table about
        # derivatives.
        path_lines = _find_lines(path_words, path_words | weak_words)
        if not path_lines and path.is_called(path_words):
            return Rank.EXACT
        # "Book value" means the same as equity, "book" does not.
        lines = _find_lines(label_words, label_words | weak_words)
        if not lines.isdisjoint(name.lines):
            return Rank.MEANING
        if not missing:
            return Rank.WORDS
        if self.find_words(missing) == missing:
            return Rank.ALIAS
        return None

    def find_words(self, words: Set[str]) -> set[str]:
        """Return the words that the series has or resembles."""
        matches = set()
        for word in words:
            is_similar = self.name.resembles(word) or self.path.resembles(word)
            if is_similar or word in self.context:
                matches.add(word)
        return matches

    def order(self, words: Words) -> tuple[int, ...]:
        """Return a key that sorts the better match first, of those with one rank."""
        label_words = _keep_strong(self.name.forms[0], _USUAL)
        return (
            not self.series.is_consolidated,
            len(words - self.name.words),
            len(self.series.scopes),
            len(label_words - words),
        )


def read_entries(catalogue: Any) -> list[Entry]:
    """Return the series of a catalogue with their words."""

    @cache
    def read_name(label: str, metric_id: str) -> _Name:
        *_, metric = re.split("[:/]", metric_id)  # without the taxonomy
        return _Name.of((label, metric))

    @cache
    def read_path(path: ScopePath) -> _Name:
        aliases: list[str] = []
        for scope in catalogue.listed_scopes(path):
            aliases += scope.aliases
        return _Name.of(catalogue.scope_names(path), aliases)

    @cache
    def read_context(group_id: str, basis: str) -> Words:
        group = catalogue.by_group[group_id]
        texts = (catalogue.name, group_id, basis, group.name, group.cadence)
        return _Name.of(texts).words

    entries = []
    for series in catalogue.series:
        name = read_name(series.label, series.metric_id)
        path = read_path(series.scopes)
        context = read_context(series.reporting_group_id, series.basis)
        entries.append(Entry(series, name, path, context))
    return entries


def search(
    catalogue: Any, text: str, last_periods: Mapping[str, Period]
) -> list[Match]:
    """Return the series that the words of a text mean, best first; without words all,
    in catalogue order.

    First what is called so or means the same, then other matches. In each the series
    that still have values come before the ended ones. Then they are ordered by `Rank`,
    consolidated before parts, and by the fewest words that the label does not have,
    scopes, and other words of the label. Only if nothing else matches are descriptions
    searched, and words that are spelt alike.

    Args:
        catalogue: the catalogue.
        text: the words.
        last_periods: the last period with a value, by the id of the series that have
            one.
    """
    entries: list[Entry] = catalogue._search_entries
    # A text of more words is not a search, and each of them takes time.
    text_words = read_words(text)[:_MAX_WORDS]
    words = _split(" ".join(text_words))
    ranks: _Ranked = []
    if words:
        strong_words = _keep_strong(words, _WEAK)
        ranks = _find_named(entries, text, strong_words, words - strong_words)
        ranks = ranks or _find_loosely(entries, strong_words)
    elif not text_words:
        ranks = [(entry, Rank.EXACT, 0) for entry in entries]
    limit = _find_ended_limit(last_periods.values())
    matches: list[Match] = []
    for entry, rank, missing_count in ranks:
        last_period = last_periods.get(entry.series.series_id)
        if last_period is not None and last_period.fiscal_end > limit:
            last_period = None
        order: tuple[int, ...] = rank > Rank.MEANING, last_period is not None, rank
        if words:
            order += (missing_count, *entry.order(words))
        matches.append(Match(rank, entry.series, last_period, order))
    if words:
        matches.sort(key=attrgetter("order"))
    return matches


def _find_ended_limit(last_periods: Iterable[Period]) -> int:
    """Return the fiscal end up to which a series has ended: a year before the last one
    of most series.
    """
    counts = Counter(map(attrgetter("fiscal_end"), last_periods))
    # Not the latest of all: a single odd series may reach into the next year.
    best = 0, 0
    for end, count in counts.items():
        best = max(best, (count, end))
    return best[1] - _ENDED_MONTHS


def _find_named(
    entries: Iterable[Entry], text: str, words: Words, weak_words: Words
) -> _Ranked:
    """Return the series that match without descriptions."""
    text_id = text.strip().casefold()
    ranks = []
    for entry in entries:
        series = entry.series
        rank = entry.rank(words, weak_words)
        ids = series.metric_id.casefold(), series.series_id.casefold()
        if text_id in ids:
            rank = Rank.EXACT
        if rank is not None:
            ranks.append((entry, rank, 0))
    return ranks


def _find_loosely(entries: Iterable[Entry], words: Words) -> _Ranked:
    """Return the series that have most of the words with those of their description.

    A word that the catalogue does not have counts as the one most like it.
    """
    words_by_text: dict[str, Words] = {}  # all series of a metric have one
    vocabulary: set[str] = set()
    for entry in entries:
        vocabulary |= entry.name.words | entry.path.words
    # In order: of two equally close words always the same one counts.
    names = sorted(vocabulary)
    for entry in entries:
        text = entry.series.description
        if text not in words_by_text:
            words_by_text[text] = _split(text)
            vocabulary |= words_by_text[text]
    spelling: set[str] = set()
    for word in words:
        close: list[str] = []
        if word not in vocabulary:
            close = find_alike(word, names, 1, _ALIKE_SHARE)
        spelling.update(close or [word])
    matches: list[Entry] = []
    greatest = (False, 0, 1)
    for entry in entries:
        named_words = entry.find_words(spelling)
        matching_words = spelling & words_by_text[entry.series.description]
        matching_words |= named_words
        count = len(matching_words)
        # Words of the label and the path come before those of a description, unless
        # all words match.
        likeness = (count == len(spelling), len(named_words), count)
        if likeness > greatest:
            greatest, matches = likeness, []
        if likeness == greatest:
            matches.append(entry)
    rank = Rank.CLOSE
    if spelling == words and greatest[0]:
        rank = Rank.DESCRIPTION
    missing_count = len(spelling) - greatest[-1]
    return [(entry, rank, missing_count) for entry in matches]


def find_close_metrics(catalogue: Any, name: str) -> list[str]:
    """Find up to three metric ids that an unknown one probably means: the first of a
    search for its words.
    """
    # Of "us-gaap:Revenue" the last part is what is meant.
    words = re.split("[:/]", name)[-1]
    if len(name) > LONGEST or not read_words(words):
        return []
    matches = search(catalogue, words, {})
    metric_ids = dict.fromkeys(map(attrgetter("series.metric_id"), matches))
    return list(metric_ids)[:_MOST_METRICS]
