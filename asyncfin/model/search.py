"""The search for series by words: which series they mean in some catalogues, best first. Pure."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cache
from operator import attrgetter
from typing import Protocol, TypeAlias

from attrs import frozen

from asyncfin.model.period import Period
from asyncfin.model.scope import ScopePath
from asyncfin.model.series import CatalogueSeries, is_consolidated
from asyncfin.model.suggest import LONGEST, alike

Words: TypeAlias = frozenset[str]


class Rank(IntEnum):
    """How a series matches the words of a text, best first."""

    EXACT = 0  # they are its label, its metric or a scope, or the text is an id
    MEANING = 1  # they mean the same as its label or metric
    START = 2  # its label or metric begins with them
    WORDS = 3  # they are words of label, metric or scopes
    INITIALS = 4  # one is the beginning of the initials of label or metric
    PREFIX = 5  # one is the beginning of a word
    ALIAS = 6  # one is an alias of a scope, or a word of the same meaning
    DESCRIPTION = 7  # one is only in the description
    WITHIN = 8  # one is only inside a word


def _set(words: str) -> Words:
    return frozenset(words.split())


# They count for nothing.
_STOP = _set("a an and at by for from in of on per s the to")
# They do not prevent a match.
_WEAK = _set("total value data")
# Nor do these, in a label: "Net Income (Loss) Attributable to Parent" is net income.
_USUAL = _set("loss attributable parent")
# Phrases that mean the same as a whole label or metric, as stems without stop words.
_STRICT = tuple(
    tuple(map(_set, phrases))
    for phrases in (
        ("revenue", "sale", "turnover", "net revenue", "net sale"),
        ("net income", "net profit", "net earning", "profit", "earning"),
        ("operating income", "operating profit", "operating earning"),
        ("income before tax", "pretax income", "profit before tax"),
        (
            *("capital expenditure", "capex"),
            *("payment acquire property plant equipment", "purchase property plant equipment"),
        ),
        ("cost revenue", "cost sale", "cost good sold", "cog"),
        (
            *("operating cash flow", "cash flow operation", "net cash provided operating activity"),
            "net cash provided used operating activity",
        ),
        ("buyback", "share buyback", "repurchase", "share repurchase"),
        ("equity", "stockholder equity", "shareholder equity"),
    )
)
_MEANINGFUL = frozenset[str]().union(*(phrase for group in _STRICT for phrase in group))
# Words that mean the same within a label; {liability, debt} do not.
_LOOSE = (
    *({"debt", "borrowing"}, {"inventory", "stock"}, {"equity", "shareholder", "stockholder"}),
    {"dividend", "payout"},
    *({each for phrase in group if len(phrase) == 1 for each in phrase} for group in _STRICT),
)
_SYNONYMS = {word: frozenset(group - {word}) for group in _LOOSE for word in group}
# Below this share of common letters two words only look alike.
_ALIKE = 0.7
# From this share on two ids are one, mistyped or in the plural.
_SAME = 0.9
# A text of more words is not a search, and each of them takes time.
_MOST_WORDS = 32


_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def words_of(text: str) -> list[str]:
    """Return the words of a label, an id or a text, in lower case: "DilutedEPS" has two."""
    return re.findall(_WORD, re.sub(_CAMEL, " ", text.replace("&", "")).casefold())


def stem(word: str) -> str:
    """Return an English word in the singular."""
    if len(word) > 4 and word.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and word.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _stems(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(stem, words))


class _Group(Protocol):
    @property
    def reporting_group_id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def cadence(self) -> str: ...


class _Scope(Protocol):
    @property
    def name(self) -> str: ...
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


@frozen
class _Whole:
    """A label, the last part of a metric id, or the name of a scope.

    Attributes:
        words: its words in the singular, in order, without stop words.
        needed: those that a text must have to be the same.
        all: those that such a text can have.
        initials: of its words, with and without stop words.
    """

    words: tuple[str, ...]
    needed: Words
    all: Words
    initials: tuple[str, ...]

    @classmethod
    def of(cls, parts: Sequence[str]) -> _Whole:
        """Return the text of which these are the words."""
        words = tuple(word for word in _stems(parts) if word not in _STOP)
        every = frozenset(words)
        needed = every - _WEAK - _USUAL or every
        initials = "".join(word[0] for word in parts), "".join(word[0] for word in words)
        return cls(words, needed, every, initials)

    def is_same(self, words: Words) -> bool:
        """Return whether words are this text, apart from words that say little."""
        return bool(words) and self.needed <= words <= self.all

    def begins_with(self, words: tuple[str, ...]) -> bool:
        """Return whether the text begins with words, with or without its weak ones."""
        strong = tuple(word for word in self.words if word not in _WEAK)
        return bool(words) and words in (self.words[: len(words)], strong[: len(words)])


def _meanings(needed: Words, every: Words) -> frozenset[int]:
    """Return the groups of strict synonyms with a phrase that has all needed words, and only such words."""
    if needed.isdisjoint(_MEANINGFUL):
        return frozenset()
    return frozenset(
        at for at, phrases in enumerate(_STRICT) if any(needed <= phrase <= every for phrase in phrases)
    )


# The groups that a single word is in: with further words it means the label less surely.
_MEANT = {word: _meanings(one, one) for group in _STRICT for one in group if len(one) == 1 for word in one}


@frozen
class _Named:
    """The words of a label and its metric, or of the scopes of a path.

    Attributes:
        own: all of them, in the singular.
        wholes: label and metric, or the scopes.
        meanings: the groups of strict synonyms that one of these is in.
        aliases: the words of the aliases of scopes.
        label: the words of the label that say something.
        has_ended: whether a scope of the path has ended.
    """

    own: Words
    wholes: tuple[_Whole, ...]
    meanings: frozenset[int] = frozenset()
    aliases: Words = frozenset()
    label: Words = frozenset()
    has_ended: bool = False

    def match(self, word: str) -> Rank | None:
        """Return how a word in the singular matches; None if it does not."""
        if word in self.own:
            return Rank.WORDS
        if (
            len(word) > 1
            and self.label
            and any(each.startswith(word) for whole in self.wholes for each in whole.initials)
        ):
            return Rank.INITIALS
        if len(word) > 2 and any(each.startswith(word) for each in self.own):
            return Rank.PREFIX
        if word in self.aliases or not self.own.isdisjoint(_SYNONYMS.get(word, ())):
            return Rank.ALIAS
        if not self.meanings.isdisjoint(_MEANT.get(word, ())):
            return Rank.ALIAS
        if len(word) > 2 and any(word in each for each in self.own):
            return Rank.WITHIN
        return None


class Index:
    """The searched words of one catalogue.

    Attributes:
        names: of each label and metric.
        paths: of each scope path.
        contexts: of each reporting group and basis, with those of the company's name.
        of_series: for each series the places of its entries in these three.
        vocabulary: the words of all labels, metrics and scopes.
    """

    def __init__(self, catalogue: Searchable) -> None:
        names: dict[tuple[str, str], int] = {}
        paths: dict[ScopePath, int] = {}
        contexts: dict[tuple[str, str], int] = {}
        places = array("L"), array("L"), array("L")
        for each in catalogue.series:
            places[0].append(names.setdefault((each.label, each.metric_id), len(names)))
            places[1].append(paths.setdefault(each.scopes, len(paths)))
            places[2].append(contexts.setdefault((each.reporting_group_id, each.basis), len(contexts)))
        self.of_series = places
        self.names = [_named(*each) for each in names]
        # Paths have scopes in common.
        wholes_of = cache(_wholes)
        self.paths = [_path(catalogue, each, wholes_of) for each in paths]
        self.contexts = [_context(catalogue, *each) for each in contexts]
        self.vocabulary = frozenset().union(*(each.own for each in (*self.names, *self.paths)))


def _wholes(text: str) -> list[_Whole]:
    """Return a text, and the same with camel case in one word: "iphone" means "iPhone"."""
    parts, folded = words_of(text), re.findall(_WORD, text.replace("&", "").casefold())
    return [_Whole.of(parts)] if parts == folded else [_Whole.of(parts), _Whole.of(folded)]


def _named(label: str, metric_id: str) -> _Named:
    # Without the taxonomy: "us-gaap:Revenues".
    wholes = [*_wholes(label), *_wholes(re.split("[:/]", metric_id)[-1])]
    own = frozenset(word for whole in wholes for word in whole.words)
    meanings = frozenset(at for whole in wholes for at in _meanings(whole.needed, whole.all))
    return _Named(own, tuple(wholes), meanings, label=wholes[0].needed or own)


def _path(catalogue: Searchable, path: ScopePath, wholes_of: Callable[[str], list[_Whole]]) -> _Named:
    wholes = [whole for name in catalogue.scope_names(path) for whole in wholes_of(name)]
    scopes = catalogue.listed_scopes(path)
    aliases = (alias for scope in scopes for alias in scope.aliases)
    return _Named(
        frozenset(word for whole in wholes for word in whole.words),
        tuple(wholes),
        aliases=frozenset(word for alias in aliases for whole in wholes_of(alias) for word in whole.words),
        has_ended=_has_ended(catalogue, scopes),
    )


def _has_ended(catalogue: Searchable, scopes: Iterable[_Scope]) -> bool:
    """Return whether one of the scopes ends a year or more before the catalogue does."""
    if not catalogue.periods:
        return False
    # A scope may be reported once a year. Periods are ordered by their ends.
    last = catalogue.periods[-1].fiscal_end - 12
    return any(each.active_end is not None and each.active_end.fiscal_end <= last for each in scopes)


def _context(catalogue: Searchable, group_id: str, basis: str) -> Words:
    group = catalogue.by_group[group_id]
    texts = (catalogue.name, basis, group_id, group.name, group.cadence)
    return frozenset(word for text in texts for whole in _wholes(text) for word in whole.words)


@frozen
class _Text:
    """The words that are searched for.

    Attributes:
        words: those that a series must have, in the singular and in order.
        written: the same as they were written.
        weak: the others that count where series are equal.
        id: the text as an id, without case.
    """

    words: tuple[str, ...]
    written: tuple[str, ...]
    weak: Words
    id: str

    @classmethod
    def of(cls, text: str) -> _Text:
        written: dict[str, str] = {}
        for word in words_of(text):
            if (one := stem(word)) not in _STOP and len(written) < _MOST_WORDS:
                written.setdefault(one, word)
        strong = [word for word in written if word not in _WEAK] or list(written)
        weak = frozenset(written).difference(strong)
        return cls(tuple(strong), tuple(map(written.__getitem__, strong)), weak, text.strip().casefold())


@frozen
class Match:
    """A series that is found.

    Attributes:
        place: the place of its catalogue among those searched.
        series: the series.
        rank: how it matches.
        order: what orders the matches.
        unnamed: the words that neither its label, its metric, its scopes, its reporting group nor the company
            has, each with its rank; all that are compared with the label, if they mean it together.
    """

    place: int
    series: CatalogueSeries
    rank: Rank
    order: tuple[int, ...]
    unnamed: tuple[tuple[str, Rank], ...] = ()


@frozen
class Matches:
    """What a search has found.

    Attributes:
        found: the series of all catalogues, best first.
        close: whether no series has all words, and these come close.
    """

    found: tuple[Match, ...]
    close: bool = False


def search(catalogues: Sequence[Searchable], text: str) -> Matches:
    """Return the series that the words of a text mean, best first; without words all, in catalogue order.

    The order: the best `Rank`; consolidated before parts; current before ended; the fewest weak words, scopes
    and other words of the label; the catalogue's order. Matches in descriptions or inside words are returned
    only if there are no others. If no series has all words, each word is replaced by the one of the
    catalogues that is spelt like it, and those series are returned that then have most of them.
    """
    if not words_of(text):
        return Matches(_all(catalogues))
    asked = _Text.of(text)
    if not asked.words:
        return Matches(())
    searches = [_Search(place, catalogue, asked) for place, catalogue in enumerate(catalogues)]
    for worst in (Rank.ALIAS, Rank.WITHIN):
        if found := [match for each in searches for match in each.matches(worst)]:
            return Matches(_ordered(found))
    vocabulary = frozenset[str]().union(*(each._search_index.vocabulary for each in catalogues))
    asked = _Text.of(" ".join((*(_spelt(word, vocabulary) for word in asked.words), *asked.weak)))
    searches = [_Search(place, catalogue, asked) for place, catalogue in enumerate(catalogues)]
    most = max((each.most for each in searches), default=0)
    found = [match for each in searches for match in each.with_most(most)] if most else []
    return Matches(_ordered(found), close=True)


def _all(catalogues: Sequence[Searchable]) -> tuple[Match, ...]:
    return tuple(
        Match(place, series, Rank.EXACT, (at,))
        for place, catalogue in enumerate(catalogues)
        for at, series in enumerate(catalogue.series)
    )


def _ordered(found: Iterable[Match]) -> tuple[Match, ...]:
    # Stable: of equal ones that of the first catalogue comes first.
    return tuple(sorted(found, key=attrgetter("order")))


def _spelt(word: str, vocabulary: Words) -> str:
    return word if word in vocabulary else next(iter(alike(word, vocabulary, 1, _ALIKE)), word)


class _Search:
    """The search for words in one catalogue; each distinct label, path and group is compared once."""

    def __init__(self, place: int, catalogue: Searchable, asked: _Text) -> None:
        self._place = place
        self._catalogue = catalogue
        self._asked = asked
        self._index = index = catalogue._search_index
        self._names = [[each.match(word) for word in asked.words] for each in index.names]
        self._paths = [[each.match(word) for word in asked.words] for each in index.paths]
        self._contexts = [[word in each for word in asked.words] for each in index.contexts]
        self._by_description: dict[str, int] = {}
        # All forms of which `stem` makes the word.
        self._inflected = [
            re.compile(rf"(?<![^\W_])(?:{word}(?:s|es)?|{word[:-1]}ies)(?![^\W_])") for word in asked.words
        ]
        # By the words that are compared with the label; few differ.
        self._meanings: dict[Words, frozenset[int]] = {}

    def matches(self, worst: Rank) -> Iterator[Match]:
        """Yield the series that have all words, at the ranks down to the worst."""
        names, ids = self._index.names, self._ids()
        every = (1 << len(self._asked.words)) - 1
        for at, (name, path, context, has) in enumerate(self._series(worst)):
            if worst > Rank.ALIAS and has != every:
                has |= self._described(self._catalogue.series[at].description)
            if has == every or names[name].meanings or at in ids:
                match = self._match(at, name, path, context, worst, is_id=at in ids)
                if match is not None:
                    yield match

    @property
    def most(self) -> int:
        """The most words that a series has."""
        return max((has.bit_count() for *_, has in self._series(Rank.ALIAS)), default=0)

    def with_most(self, most: int) -> Iterator[Match]:
        """Yield the series that have so many words; the others do not count."""
        for at, (name, path, context, has) in enumerate(self._series(Rank.ALIAS)):
            if has.bit_count() == most:
                match = self._match(at, name, path, context, Rank.ALIAS, is_partial=True)
                if match is not None:
                    yield match

    def _ids(self) -> Collection[int]:
        """Return the places of the series whose metric id or series id is the text."""
        metrics = {each for each in self._catalogue.by_metric if each.casefold() == self._asked.id}
        return {
            at
            for at, each in enumerate(self._catalogue.series)
            if each.metric_id in metrics or each.series_id.casefold() == self._asked.id
        }

    def _series(self, worst: Rank) -> Iterator[tuple[int, int, int, int]]:
        """Yield for each series the places of its words, and which words it has, as bits."""
        names, paths = _bits(self._names, worst), _bits(self._paths, worst)
        contexts = [sum(1 << at for at, has in enumerate(each) if has) for each in self._contexts]
        for name, path, context in zip(*self._index.of_series, strict=True):
            yield name, path, context, names[name] | paths[path] | contexts[context]

    def _match(
        self,
        at: int,
        name: int,
        path: int,
        context: int,
        worst: Rank,
        *,
        is_id: bool = False,
        is_partial: bool = False,
    ) -> Match | None:
        series = self._catalogue.series[at]
        meant, written, scoped = list[str](), list[str](), set[str]()
        unnamed = list[tuple[str, Rank | None]]()
        by_name, by_path, is_context = self._names[name], self._paths[path], self._contexts[context]
        for place, word in enumerate(self._asked.words):
            in_path = by_path[place] == Rank.WORDS
            if by_name[place] == Rank.WORDS:
                meant.append(word)
                written.append(self._asked.written[place])
            elif not in_path and not is_context[place]:
                rank = min(filter(None, (by_name[place], by_path[place])), default=None)
                if worst > Rank.ALIAS and (rank is None or rank > Rank.DESCRIPTION):
                    is_described = self._described(series.description) >> place & 1
                    rank = Rank.DESCRIPTION if is_described else rank
                if is_partial and (rank is None or rank > worst):
                    continue
                meant.append(word)
                written.append(self._asked.written[place])
                unnamed.append((self._asked.written[place], rank))
            if in_path or not is_context[place]:
                scoped.add(word)
        rank = Rank.EXACT if is_id else self._rank(name, path, meant, scoped, [each for _, each in unnamed])
        if rank is None or rank > worst:
            return None
        if rank is Rank.MEANING and unnamed:
            # Together they have the meaning, and not each of them.
            unnamed = [(" ".join(written), rank)]
        return Match(
            self._place,
            series,
            rank,
            (rank, *self._order(at, name, path)),
            tuple((word, each or rank) for word, each in unnamed),
        )

    def _rank(
        self, name: int, path: int, meant: list[str], scoped: set[str], others: list[Rank | None]
    ) -> Rank | None:
        """Return the rank of a series; None: it does not have all words.

        Args:
            meant: the words that are compared with label and metric: neither scopes nor context.
            scoped: those that are compared with scopes: all but the context.
            others: the ranks of the words of `meant` that neither label nor metric has.
        """
        named, words, scopes = self._index.names[name], frozenset(meant), frozenset(scoped)
        if any(each.is_same(words) for each in named.wholes):
            return Rank.EXACT
        # "Sales" means revenue before it means the line "Sales" in a table about derivatives.
        if not self._meaning(scopes) and any(each.is_same(scopes) for each in self._index.paths[path].wholes):
            return Rank.EXACT
        if not self._meaning(words).isdisjoint(named.meanings):
            return Rank.MEANING
        if any(each.begins_with(tuple(meant)) for each in named.wholes):
            return Rank.START
        worst = Rank.WORDS
        for each in others:
            if each is None:
                return None
            worst = max(worst, each)
        return worst

    def _meaning(self, words: Words) -> frozenset[int]:
        if (found := self._meanings.get(words)) is None:
            found = self._meanings[words] = _meanings(words, words)
        return found

    def _described(self, text: str) -> int:
        """Return which words a description has, as bits."""
        if (found := self._by_description.get(text)) is None:
            folded = text.casefold()
            found = sum(1 << at for at, word in enumerate(self._inflected) if word.search(folded))
            self._by_description[text] = found
        return found

    def _order(self, at: int, name: int, path: int) -> tuple[int, ...]:
        """Return what orders series of one rank."""
        series, named, scopes = self._catalogue.series[at], self._index.names[name], self._index.paths[path]
        return (
            not is_consolidated(series),
            scopes.has_ended,
            len(self._asked.weak - named.own),
            len(series.scopes),
            len(named.label.difference(self._asked.words, self._asked.weak)),
            at,
        )


def _bits(table: Sequence[Sequence[Rank | None]], worst: Rank) -> list[int]:
    """Return for each row which words have a rank down to the worst, as bits."""
    return [
        sum(1 << at for at, rank in enumerate(row) if rank is not None and rank <= worst) for row in table
    ]


@frozen
class Found:
    """A metric and a scope path that words mean.

    Attributes:
        metric_id: the metric.
        scopes: the scope path.
        best: the first of its series.
        series: its series in each catalogue that has them, by the place of the catalogue.
    """

    metric_id: str
    scopes: ScopePath
    best: Match
    series: Mapping[int, tuple[CatalogueSeries, ...]]


def by_meaning(matches: Iterable[Match]) -> tuple[Found, ...]:
    """Return the metrics and paths of what was found, in the order of their best series."""
    found: dict[tuple[str, ScopePath], list[Match]] = {}
    for match in matches:
        found.setdefault((match.series.metric_id, match.series.scopes), []).append(match)
    return tuple(
        Found(
            *meaning,
            several[0],
            {
                place: tuple(match.series for match in several if match.place == place)
                for place in sorted({match.place for match in several})
            },
        )
        for meaning, several in found.items()
    )


def close_metrics(catalogues: Sequence[Searchable], name: str, most: int = 3) -> list[str]:
    """Return the metric ids that an unknown one probably means, the best first.

    First those that differ in case only or are spelt alike, then the first of a search for its words.
    """
    if len(name) > LONGEST:
        return []
    wanted = name.strip().casefold()
    folded: dict[str, list[str]] = {}
    for metric_id in dict.fromkeys(each for catalogue in catalogues for each in catalogue.by_metric):
        folded.setdefault(metric_id.casefold(), []).append(metric_id)
    near = [each for same in alike(wanted, folded, most, _SAME) for each in folded[same]]
    # Of "us-gaap:Revenue" the last part says what is meant.
    found = search(catalogues, re.split("[:/]", name)[-1]).found if words_of(name) else ()
    return list(dict.fromkeys([*near, *(match.series.metric_id for match in found)]))[:most]
