"""The search for series by words: which series of a catalogue they mean, best first.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import Protocol, TypeAlias

from attrs import frozen
from msgspec import Struct

from asyncfin.model.period import Period
from asyncfin.model.scope import ScopePath
from asyncfin.model.series import CatalogueSeries
from asyncfin.model.synonyms import ALIKE, MEANINGS
from asyncfin.suggest import LONGEST, SAME, alike

Words: TypeAlias = frozenset[str]


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
_WEAK = frozenset(("total", "value", "data"))
# Nor do these, in a label: "Net Income (Loss) Attributable to Parent" is net income.
_USUAL = frozenset(("loss", "attributable", "parent"))
# Below this share of common letters two words only look alike.
_ALIKE_SHARE = 0.7
# What a text is about stands at its start, and a label can have a megabyte.
_MAX_LENGTH = 1_000
# A text of more words is not a search, and each of them takes time.
_MAX_WORDS = 32
# How many texts are split only once: paths have scopes in common, and metrics labels.
_CACHED_TEXTS = 1_000
# A series that ends so many months before the others has ended.
_ENDED_MONTHS = 12

_WORD = re.compile(r"[^\W_]+")
_AND = re.compile(r"\b[a-z]{1,3}&[a-z]{1,3}\b")
_CAMEL = re.compile(r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case: "DilutedEPS" has two."""
    spaced = re.sub(_CAMEL, " ", text[:_MAX_LENGTH].replace("&", ""))
    return re.findall(_WORD, spaced.casefold())


def stem(word: str) -> str:
    """Return an English word in the singular."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _stems(text: str) -> tuple[str, ...]:
    """Return the words of a text that count, in the singular and in order."""
    return tuple(word for word in map(stem, words_of(text)) if word not in _STOP)


def _needed(words: Iterable[str]) -> Words:
    """Return the words of a label that a text must have to be the same."""
    every = frozenset(words)
    return every - _WEAK - _USUAL or every


def _meaning_lines() -> list[list[tuple[str, ...]]]:
    lines = MEANINGS.strip().replace("\n =", " =").split("\n")
    return [[_stems(phrase) for phrase in line.split("=")] for line in lines]


_LINES = _meaning_lines()
_LINES_BY_NEEDED: dict[Words, list[tuple[int, tuple[str, ...]]]] = {}
for _line, _phrases in enumerate(_LINES):
    for _phrase in _phrases:
        _LINES_BY_NEEDED.setdefault(_needed(_phrase), []).append((_line, _phrase))
# Phrases of one word are synonyms of each other within any label too.
_GROUPS = [frozenset(words.split()) for words in ALIKE]
_GROUPS += [
    frozenset(phrase[0] for phrase in line if len(phrase) == 1) for line in _LINES
]
_SYNONYMS: dict[str, Words] = {}
for _group in _GROUPS:
    for _word in _group:
        _SYNONYMS[_word] = _SYNONYMS.get(_word, frozenset()) | _group - {_word}
_WORDS_OF_LINE = [[phrase[0] for phrase in line if len(phrase) == 1] for line in _LINES]


def _meanings(
    needed: Collection[str], words: Sequence[str], *, is_label: bool
) -> set[int]:
    """Return the lines of synonyms with a phrase that has all needed words, and only
    words of the text.

    A label must have a word as often as the phrase: "cash equivalents" are not "cash
    and cash equivalents".
    """
    return {
        line
        for line, phrase in _LINES_BY_NEEDED.get(_needed(words), ())
        if set(phrase).issuperset(needed)
        and all(
            words.count(word) >= (phrase.count(word) if is_label else 1)
            for word in phrase
        )
    }


class _Group(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def cadence(self) -> str: ...


class _Scope(Protocol):
    @property
    def aliases(self) -> tuple[str, ...]: ...
    @property
    def active_end(self) -> Period | None: ...


class Searchable(Protocol):
    """What a search reads of a `Catalogue`, whose module imports this one."""

    @property
    def name(self) -> str: ...
    @property
    def periods(self) -> tuple[Period, ...]: ...
    @property
    def series(self) -> tuple[CatalogueSeries, ...]: ...
    @property
    def by_metric(self) -> Mapping[str, tuple[CatalogueSeries, ...]]: ...
    @property
    def by_group(self) -> Mapping[str, _Group]: ...
    @property
    def _search_index(self) -> Index: ...
    def scope_names(self, path: ScopePath) -> tuple[str, ...]: ...
    def listed_scopes(self, path: ScopePath) -> Sequence[_Scope]: ...


# The garbage collector does not look at it, and keeps no tuples of texts: a catalogue
# has thousands, and a walk over all objects stops the event loop.
class _Name(Struct, frozen=True, gc=False):
    """The words of a label and its metric, or of the scopes of a path.

    Attributes:
        forms: the words of each, in order: also with camel case as one word.
        words: all of them.
        label: those of the label that count.
        initials: of label and metric, with and without small words.
        also: further words for them: aliases of scopes, and synonyms.
        meanings: the lines of synonyms that mean the same.
        has_ended: whether a scope of the path has ended.
    """

    forms: tuple[tuple[str, ...], ...]
    words: tuple[str, ...]
    label: tuple[str, ...] = ()
    initials: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    meanings: tuple[int, ...] = ()
    has_ended: bool = False

    def is_called(self, words: Collection[str]) -> bool:
        """Return whether words are one of its forms, apart from words that mean
        little.
        """
        wanted = frozenset(words)
        return bool(wanted) and any(
            wanted >= _needed(form) and wanted <= frozenset(form) for form in self.forms
        )

    def begins_with(self, words: tuple[str, ...]) -> bool:
        """Return whether a form begins with words, with or without its weak ones."""
        for form in self.forms:
            strong = tuple(word for word in form if word not in _WEAK)
            if words in (form[: len(words)], strong[: len(words)]):
                return True
        return False

    def resembles(self, word: str) -> bool:
        """Return whether a word begins one of its words or its initials, or is a
        further word for it.
        """
        if word in self.also:
            return True
        if len(word) > 1 and any(
            initials.startswith(word) for initials in self.initials
        ):
            return True
        return len(word) > 2 and any(
            own_word.startswith(word) for own_word in self.words
        )


@lru_cache(_CACHED_TEXTS)
def _forms(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the words of a text, also with camel case as one word: "iphone" means
    "iPhone".
    """
    return tuple(dict.fromkeys((_stems(text), _stems(text.casefold()))))


def _distinct(forms: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for form in forms for word in form))


def _synonyms(words: Iterable[str], texts: Iterable[str]) -> Iterator[str]:
    """Yield the synonyms of words; what is for sale is not revenue."""
    is_for_sale = any(" for sale " in f" {' '.join(words_of(text))} " for text in texts)
    for word in words:
        if not (word == "sale" and is_for_sale):
            yield from _SYNONYMS.get(word, ())


def _name_of_metric(label: str, metric_id: str) -> _Name:
    metric = re.split("[:/]", metric_id)[-1]  # without the taxonomy: "us-gaap:Revenues"
    label_forms = _forms(label)
    forms = (*label_forms, *_forms(metric))
    words = _distinct(forms)
    lines = {
        line for form in forms for line in _meanings(_needed(form), form, is_label=True)
    }
    of_lines = (word for line in lines for word in _WORDS_OF_LINE[line])
    initials = (
        "".join(word[0] for word in form)
        for text in (label, metric)
        for form in (words_of(text), _stems(text))
    )
    return _Name(
        forms,
        words,
        label=tuple(_needed(label_forms[0])),
        initials=tuple(dict.fromkeys(initials)),
        also=tuple({*_synonyms(words, (label, metric_id)), *of_lines}),
        meanings=tuple(lines),
    )


def _name_of_path(catalogue: Searchable, path: ScopePath) -> _Name:
    names = catalogue.scope_names(path)
    scopes = catalogue.listed_scopes(path)
    forms = tuple(form for name in names for form in _forms(name))
    aliases = (
        form for scope in scopes for alias in scope.aliases for form in _forms(alias)
    )
    words = _distinct(forms)
    has_ended = False
    if catalogue.periods:
        last_end = catalogue.periods[-1].fiscal_end - _ENDED_MONTHS
        ends = [scope.active_end for scope in scopes if scope.active_end is not None]
        has_ended = any(end.fiscal_end <= last_end for end in ends)
    also = (*_distinct(aliases), *_synonyms(words, names))
    return _Name(forms, words, also=also, has_ended=has_ended)


def _context(catalogue: Searchable, group_id: str, basis: str) -> Words:
    group = catalogue.by_group[group_id]
    texts = (catalogue.name, basis, group_id, group.name, group.cadence)
    return frozenset(_distinct(form for text in texts for form in _forms(text)))


class Index:
    """The words of a catalogue: of its labels and metrics, its paths, and its
    groups.
    """

    def __init__(self, catalogue: Searchable) -> None:
        series = catalogue.series
        self.metrics = {
            key: _name_of_metric(*key)
            for key in dict.fromkeys((one.label, one.metric_id) for one in series)
        }
        self.paths = {
            path: _name_of_path(catalogue, path)
            for path in dict.fromkeys(one.scopes for one in series)
        }
        self.contexts = {
            key: _context(catalogue, *key)
            for key in dict.fromkeys(
                (one.reporting_group_id, one.basis) for one in series
            )
        }
        names = (*self.metrics.values(), *self.paths.values())
        self.vocabulary = frozenset(word for name in names for word in name.words)

    def names_of(self, series: CatalogueSeries) -> tuple[_Name, _Name, Words]:
        """Return the words of a series: its label and metric, its path, its group."""
        return (
            self.metrics[series.label, series.metric_id],
            self.paths[series.scopes],
            self.contexts[series.reporting_group_id, series.basis],
        )


@frozen
class _Query:
    """The words that are searched for.

    Attributes:
        words: those that a series must have, in the singular and in order.
        weak: the others, which count where series are equal.
        initials: those with "&", as the initials of what they stand for: "R&D" as
            "rad".
        id: the text as an id, without case.
    """

    words: tuple[str, ...]
    weak: tuple[str, ...] = ()
    initials: tuple[str, ...] = ()
    id: str = ""

    @classmethod
    def of(cls, text: str) -> _Query:
        words = tuple(dict.fromkeys(_stems(text)))[:_MAX_WORDS]
        strong = tuple(word for word in words if word not in _WEAK) or words
        folded = text.strip().casefold()
        pairs = re.findall(_AND, folded[:_MAX_LENGTH])
        return cls(
            strong,
            tuple(word for word in words if word not in strong),
            tuple(pair.replace("&", "a") for pair in pairs),
            folded,
        )

    def meanings(self, words: Sequence[str]) -> set[int]:
        """Return the lines of synonyms of some of its words: "book value" has one,
        "book" has not.
        """
        return _meanings(words, (*words, *self.weak), is_label=False)

    def matched_words(
        self, name: _Name, path: _Name, context: Words
    ) -> tuple[str, ...]:
        """Return the words that a series has or resembles."""
        return tuple(
            word
            for word in self.words
            if word in name.words
            or word in path.words
            or word in context
            or name.resembles(word)
            or path.resembles(word)
        )

    def rank(self, name: _Name, path: _Name, context: Words) -> Rank | None:
        """Return how a series matches without its description, or None."""
        # What is a word of the label is compared with it; of the rest, what is a word
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
        if path.is_called(scoped) and not self.meanings(scoped):
            return Rank.EXACT
        if name.meanings and not self.meanings(meant).isdisjoint(name.meanings):
            return Rank.MEANING
        if not missing:
            return Rank.START if meant and name.begins_with(meant) else Rank.WORDS
        if all(name.resembles(word) or path.resembles(word) for word in missing):
            return Rank.ALIAS
        return None


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

    def note(self, text: str) -> str:
        """Return a text of the series, with the period since which it has no values."""
        return text if self.ended is None else f"{text} (no value since {self.ended})"


def search(
    catalogue: Searchable, text: str, last_periods: Mapping[str, Period] | None = None
) -> list[Match]:
    """Return the series that the words of a text mean, best first; without words all,
    in catalogue order.

    First what is called so or means the same, then other matches; in each the series
    that still have values before the ended ones, then by `Rank`, consolidated before
    parts, current scopes before ended ones, and by the fewest weak words, scopes and
    other words of the label. Descriptions are only searched if nothing else matches,
    and words that are spelt alike only if no series has all words.

    Args:
        catalogue: the catalogue.
        text: the words.
        last_periods: the last period with a value, by series id, as far as it is known.
    """
    ended = _ended(last_periods or {})
    query = _Query.of(text)
    if not words_of(text):
        return [
            Match(Rank.EXACT, series, ended.get(series.series_id))
            for series in catalogue.series
        ]
    if not query.words:
        return []
    ranks = _ranks(catalogue, query) or _described(catalogue, query)
    if not ranks:
        query = _respelt(query, catalogue._search_index.vocabulary)
        ranks = _close(catalogue, query)
    series, index = catalogue.series, catalogue._search_index
    has_all = Rank.CLOSE not in ranks.values()

    def order(place: int) -> tuple[object, ...]:
        one, rank = series[place], ranks[place]
        name, path, context = index.names_of(one)
        if not has_all:
            matched = _Query(query.matched_words(name, path, context), query.weak)
            closest = matched.rank(name, path, context)
            rank = Rank.CLOSE if closest is None else closest
        letters = name.initials[:1]
        return (
            rank > Rank.MEANING,
            one.series_id in ended,
            rank,
            not one.is_consolidated,
            path.has_ended,
            sum(word not in name.words for word in query.weak)
            + sum(
                not initials.startswith(pair)
                for pair in query.initials
                for initials in letters
            ),
            len(one.scopes),
            sum(word not in (*query.words, *query.weak) for word in name.label),
            place,
        )

    return [
        Match(ranks[place], series[place], ended.get(series[place].series_id))
        for place in sorted(ranks, key=order)
    ]


class SearchGroup(Struct, frozen=True):
    """A metric and a scope path that words mean in some catalogues.

    Attributes:
        rank: the best rank of its series.
        metric_id: the metric.
        scopes: the scope path.
        series: its series, best first, each with the position of its catalogue.
        ended: since when the first of them has no values; None if it has, or that is
            unknown.
    """

    rank: Rank
    metric_id: str
    scopes: ScopePath
    series: list[tuple[int, CatalogueSeries]]
    ended: Period | None = None


def group_matches(results: Iterable[Iterable[Match]]) -> list[SearchGroup]:
    """Return the metrics and paths that were found in some catalogues, best first.

    Those that are only described or close are dropped if a catalogue has others.
    """
    groups: dict[tuple[str, ScopePath], SearchGroup] = {}
    matches = [
        (
            match.rank > Rank.MEANING,
            match.ended is not None,
            match.rank,
            position,
            match,
        )
        for position, result in enumerate(results)
        for match in result
    ]
    for *_, position, match in sorted(matches, key=lambda entry: entry[:3]):
        series = match.series
        key = series.metric_id, series.scopes
        if key not in groups:
            groups[key] = SearchGroup(match.rank, *key, [], match.ended)
        groups[key].series.append((position, series))
    best = min((group.rank for group in groups.values()), default=Rank.EXACT)
    worst = max(best, Rank.ALIAS)
    return [group for group in groups.values() if group.rank <= worst]


def _ended(last_periods: Mapping[str, Period]) -> dict[str, Period]:
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


def _ranks(catalogue: Searchable, query: _Query) -> dict[int, Rank]:
    """Return the ranks of the series that match, by place, without descriptions."""
    index = catalogue._search_index
    by_names: dict[tuple[object, ...], Rank | None] = {}
    ranks: dict[int, Rank] = {}
    for place, series in enumerate(catalogue.series):
        if query.id in (series.metric_id.casefold(), series.series_id.casefold()):
            ranks[place] = Rank.EXACT
            continue
        key = (
            series.label,
            series.metric_id,
            series.scopes,
            series.reporting_group_id,
            series.basis,
        )
        if key not in by_names:
            by_names[key] = query.rank(*index.names_of(series))
        if (rank := by_names[key]) is not None:
            ranks[place] = rank
    return ranks


def _described(catalogue: Searchable, query: _Query) -> dict[int, Rank]:
    """Return the places of the series that have the words with those of their
    description.
    """
    index = catalogue._search_index
    words_by_text: dict[str, Words] = {}
    ranks: dict[int, Rank] = {}
    for place, series in enumerate(catalogue.series):
        text = series.description
        if text not in words_by_text:
            words_by_text[text] = frozenset(_stems(text))
        matched = query.matched_words(*index.names_of(series))
        if words_by_text[text].union(matched).issuperset(query.words):
            ranks[place] = Rank.DESCRIPTION
    return ranks


def _respelt(query: _Query, vocabulary: Words) -> _Query:
    """Return the query with each unknown word as the catalogue spells the one most like
    it.
    """
    words = [
        word
        if word in vocabulary
        else next(iter(alike(word, vocabulary, 1, _ALIKE_SHARE)), word)
        for word in query.words
    ]
    return _Query(tuple(dict.fromkeys(words)), query.weak)


def _close(catalogue: Searchable, query: _Query) -> dict[int, Rank]:
    """Return the places of the series that have most of the words."""
    index = catalogue._search_index
    counts = [
        len(query.matched_words(*index.names_of(series))) for series in catalogue.series
    ]
    most = max(counts, default=0)
    return {
        place: Rank.CLOSE for place, count in enumerate(counts) if 0 < count == most
    }


def close_metrics(catalogue: Searchable, name: str, most: int = 3) -> list[str]:
    """Return the metric ids that an unknown one probably means, the best first.

    First those that differ in case only or are spelt alike, then the first of a search
    for its words.
    """
    if len(name) > LONGEST:
        return []
    folded: dict[str, list[str]] = {}
    for metric_id in catalogue.by_metric:
        folded.setdefault(metric_id.casefold(), []).append(metric_id)
    alike_names = alike(name.strip().casefold(), folded, most, SAME)
    close = dict.fromkeys(
        metric for folded_id in alike_names for metric in folded[folded_id]
    )
    # Of "us-gaap:Revenue" the last part is what is meant.
    words = re.split("[:/]", name)[-1]
    if words_of(words):
        for match in search(catalogue, words):
            close[match.series.metric_id] = None
            if len(close) >= most:
                break
    return list(close)[:most]
