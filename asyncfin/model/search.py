"""The search for series by words: which series they mean in some catalogues, best first. Pure."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cache
from typing import NamedTuple, Protocol, TypeAlias

from attrs import field, frozen
from msgspec import Struct

from asyncfin.model.period import Period
from asyncfin.model.scope import ScopePath
from asyncfin.model.series import CatalogueSeries, is_consolidated
from asyncfin.model.suggest import LONGEST, SAME, alike

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
# Phrases that mean the same as a whole label or metric: a line for each meaning, of which a label has exactly
# the words, apart from those that say little.
_STRICT = """
revenue = sales = turnover = net revenue = net sales = sales revenue net
 = revenue from contract with customer excluding assessed tax
 = revenue from contract with customer including assessed tax
cost of revenue = cost of sales = cogs = cost of goods sold = cost of goods and services sold
 = cost of products sold
operating income = operating profit = operating earnings = income from operations = profit from operations
 = earnings from operations
income before tax = pretax income = pre tax income = income before income tax = earnings before tax
 = profit before tax = pretax profit = pre tax profit = profit before income tax
 = income before provision for income tax = income from continuing operations before income tax
 = income from continuing operations before income taxes noncontrolling interest
income tax = income tax expense = income tax expense benefit = income tax provision = provision for income tax
 = tax provision = tax expense
effective tax rate = effective income tax rate = effective income tax rate reconciliation percent
net income = net profit = net earnings = profit = earnings
basic eps = basic earnings per share
diluted eps = diluted earnings per share
interest expense = interest expense debt = interest and debt expense = interest expense nonoperating
r&d = r&d expense = research and development expense = research and development cost
sg&a = sg&a expense = selling general and administrative = selling general and administrative expense
d&a = depreciation and amortization = depreciation and amortization expense
 = depreciation depletion and amortization
stock based compensation = sbc = stock based compensation expense = stock compensation
 = stock compensation expense = share based compensation = share based compensation expense
 = share based payment expense = allocated share based compensation expense
operating cash flow = cash flow from operations = cash from operations = cash flow from operating activities
 = cash flow from used in operating activities = net cash from operating activities
 = net cash provided by operating activities = net cash used in operating activities
 = net cash provided by used in operating activities
investing cash flow = cash flow from investing = cash from investing = cash flow from investing activities
 = cash flow from used in investing activities = net cash from investing activities
 = net cash provided by investing activities = net cash used in investing activities
 = net cash provided by used in investing activities
financing cash flow = cash flow from financing = cash from financing = cash flow from financing activities
 = cash flow from used in financing activities = net cash from financing activities
 = net cash provided by financing activities = net cash used in financing activities
 = net cash provided by used in financing activities
capital expenditure = capex = capital spending = purchases of property plant and equipment
 = purchases of property and equipment = payments to acquire property plant and equipment
dividends paid = cash dividends paid = payments of dividends = payments of ordinary dividends
 = payments of dividends common stock = payments of ordinary dividends common stock
dividends per share = common stock dividends per share declared = common stock dividends per share cash paid
buyback = share buyback = stock buyback = repurchase = share repurchase = stock repurchase
 = repurchase of common stock = payments for repurchase of common stock
cash and equivalents = cash and cash equivalents = cash and cash equivalents at carrying value
inventory = inventory net = inventory net of allowances customer advances and progress billings
receivables = accounts receivable = trade receivables = accounts receivable net
 = accounts receivable net current = receivables net = receivables net current
payables = accounts payable = trade payables = accounts payable current = accounts payable trade current
pp&e = net pp&e = fixed assets = property plant and equipment = property plant and equipment net
intangible assets = intangible assets net = intangible assets net excluding goodwill
debt = debt long term and short term combined amount = debt and capital lease obligations
equity = stockholders equity = shareholders equity = book value
 = stockholders equity including portion attributable to noncontrolling interest
shares outstanding = common shares outstanding = common stock shares outstanding
 = entity common stock shares outstanding
"""
# Words that mean the same within a label, besides the single words of a line above; {liability, debt} do not.
_LOOSE = ("debt borrowing", "inventory stock", "equity shareholder stockholder", "dividend payout")
# Below this share of common letters two words only look alike.
_ALIKE = 0.7
# Of a word that does not match.
_NONE = 255
# What a text says is said at its start, and a label can have a megabyte.
_LONGEST = 1_000
# A text of more words is not a search, and each of them takes time.
_MOST_WORDS = 32


_WORD = re.compile(r"[^\W_]+")
_AND = re.compile(r"\b[a-z]{1,3}&[a-z]{1,3}\b")
_CAMEL = re.compile(r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def words_of(text: str) -> list[str]:
    """Return the words of a label, an id or a text, in lower case: "DilutedEPS" has two."""
    return re.findall(_WORD, re.sub(_CAMEL, " ", text[:_LONGEST].replace("&", "")).casefold())


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


def _phrases() -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the strict synonyms, as stems without stop words, each with its line in the table."""
    for line, phrases in enumerate(_STRICT.strip().replace("\n =", " =").split("\n")):
        for phrase in phrases.split("="):
            yield line, tuple(word for word in _stems(words_of(phrase)) if word not in _STOP)


def _needed(words: Iterable[str]) -> Words:
    """Return those of the words of a label that a text must have to be the same; all, if none says much."""
    every = frozenset(words)
    return every - _WEAK - _USUAL or every


# By the words that they need.
_MEANINGS: dict[Words, list[tuple[int, tuple[str, ...]]]] = {}
for _line, _phrase in _phrases():
    _MEANINGS.setdefault(_needed(_phrase), []).append((_line, _phrase))
# The line of a single word: with further words it means the label less surely.
_MEANT = {phrase[0]: line for line, phrase in _phrases() if len(phrase) == 1}
_GROUPS = (
    *map(_set, _LOOSE),
    *({word for word, line in _MEANT.items() if line == each} for each in set(_MEANT.values())),
)
_SYNONYMS = {
    word: frozenset[str]().union(*(group for group in _GROUPS if word in group)) - {word}
    for group in _GROUPS
    for word in group
}


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


# Structs that the garbage collector does not look at, with tuples of texts, which it does not keep: a
# catalogue has thousands of these, and a walk over all objects stops the event loop.
class _Whole(Struct, frozen=True, gc=False):
    """A label, the last part of a metric id, or the name of a scope.

    Attributes:
        words: its words in the singular, in order, without stop words.
        needed: those that a text must have to be the same.
        initials: of its words, with and without stop words.
    """

    words: tuple[str, ...]
    needed: tuple[str, ...]
    initials: tuple[str, ...]

    @classmethod
    def of(cls, parts: Sequence[str]) -> _Whole:
        """Return the text of which these are the words."""
        words = tuple(word for word in _stems(parts) if word not in _STOP)
        needed = _needed(words)
        initials = "".join(word[0] for word in parts), "".join(word[0] for word in words)
        return cls(words, tuple(word for word in words if word in needed), initials)

    def is_same(self, words: Words) -> bool:
        """Return whether words are this text, apart from words that say little."""
        return bool(words) and words.issuperset(self.needed) and words.issubset(self.words)

    def begins_with(self, words: tuple[str, ...]) -> bool:
        """Return whether the text begins with words, with or without its weak ones."""
        strong = tuple(word for word in self.words if word not in _WEAK)
        return bool(words) and words in (self.words[: len(words)], strong[: len(words)])


def _meanings(needed: Iterable[str], every: Sequence[str], *, is_asked: bool = False) -> tuple[int, ...]:
    """Return the lines of strict synonyms with a phrase that has all needed words, and only such words.

    What a phrase has twice a label has twice too: "cash equivalents" are not "cash and cash equivalents".
    The words that are asked for are a set.
    """
    return tuple(
        line
        for line, phrase in _MEANINGS.get(_needed(every), ())
        if set(phrase).issuperset(needed)
        and all(every.count(word) >= (1 if is_asked else phrase.count(word)) for word in phrase)
    )


class _Named(Struct, frozen=True, gc=False):
    """The words of a label and its metric, or of the scopes of a path.

    Attributes:
        own: all of them, in the singular.
        wholes: label and metric, or the scopes.
        loose: the words that loose synonyms are compared with.
        meanings: the lines of strict synonyms that one of these is in.
        aliases: the words of the aliases of scopes.
        label: the words of the label that say something; none of scopes.
        has_ended: whether a scope of the path has ended.
    """

    own: tuple[str, ...]
    wholes: tuple[_Whole, ...]
    loose: tuple[str, ...]
    meanings: tuple[int, ...] = ()
    aliases: tuple[str, ...] = ()
    label: tuple[str, ...] = ()
    has_ended: bool = False

    def match(self, word: str) -> int:
        """Return the rank of a word in the singular, or `_NONE`."""
        own = self.own
        if word in own:
            return Rank.WORDS
        if (
            len(word) > 1
            and self.label
            and any(each.startswith(word) for whole in self.wholes for each in whole.initials)
        ):
            return Rank.INITIALS
        if len(word) > 2 and any(each.startswith(word) for each in own):
            return Rank.PREFIX
        if word in self.aliases or (word in _SYNONYMS and not _SYNONYMS[word].isdisjoint(self.loose)):
            return Rank.ALIAS
        if word in _MEANT and _MEANT[word] in self.meanings:
            return Rank.ALIAS
        if len(word) > 2 and any(word in each for each in own):
            return Rank.WITHIN
        return _NONE

    def has_initials(self, letters: str) -> bool:
        """Return whether letters begin the initials of label or metric, small words included."""
        return any(whole.initials[0].startswith(letters) for whole in self.wholes)


class Index:
    """The searched words of one catalogue.

    Attributes:
        names: of each label and metric.
        paths: of each scope path.
        contexts: of each reporting group and basis, with those of the entity's name.
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
        # Paths have scopes in common, and metrics labels.
        wholes_of = cache(_wholes)
        self.names = [_named(*each, wholes_of) for each in names]
        self.paths = [_path(catalogue, each, wholes_of) for each in paths]
        self.contexts = [_context(catalogue, *each) for each in contexts]
        self.vocabulary = frozenset(word for each in (*self.names, *self.paths) for word in each.own)


def _wholes(text: str) -> tuple[_Whole, ...]:
    """Return a text, and the same with camel case in one word: "iphone" means "iPhone"."""
    parts, folded = words_of(text), re.findall(_WORD, text[:_LONGEST].replace("&", "").casefold())
    return (_Whole.of(parts),) if parts == folded else (_Whole.of(parts), _Whole.of(folded))


def _distinct(wholes: Iterable[_Whole]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for whole in wholes for word in whole.words))


def _loose(own: tuple[str, ...], texts: Iterable[str]) -> tuple[str, ...]:
    """Return the words, without "sale" where a text says "for sale": what is for sale is not revenue."""
    if "sale" not in own or not any(" for sale " in f" {' '.join(words_of(text))} " for text in texts):
        return own
    return tuple(word for word in own if word != "sale")


def _named(label: str, metric_id: str, wholes_of: Callable[[str], tuple[_Whole, ...]]) -> _Named:
    # Without the taxonomy: "us-gaap:Revenues".
    wholes = (*wholes_of(label), *wholes_of(re.split("[:/]", metric_id)[-1]))
    meanings = tuple({at for whole in wholes for at in _meanings(whole.needed, whole.words)})
    own = _distinct(wholes)
    return _Named(own, wholes, _loose(own, (label, metric_id)), meanings, label=wholes[0].needed or own)


def _path(catalogue: Searchable, path: ScopePath, wholes_of: Callable[[str], tuple[_Whole, ...]]) -> _Named:
    names = catalogue.scope_names(path)
    wholes = tuple(whole for name in names for whole in wholes_of(name))
    own = _distinct(wholes)
    scopes = catalogue.listed_scopes(path)
    aliases = _distinct(whole for scope in scopes for alias in scope.aliases for whole in wholes_of(alias))
    has_ended = _has_ended(catalogue, scopes)
    return _Named(own, wholes, _loose(own, names), aliases=aliases, has_ended=has_ended)


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
        initials: those with "&" as the initials of what they stand for: "R&D" as "rad".
        weak: the others that count where series are equal.
        id: the text as an id, without case.
    """

    words: tuple[str, ...]
    written: tuple[str, ...]
    initials: tuple[str, ...]
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
        folded = text.strip().casefold()
        initials = tuple(each.replace("&", "a") for each in re.findall(_AND, folded[:_LONGEST]))
        return cls(tuple(strong), tuple(map(written.__getitem__, strong)), initials, weak, folded)


@frozen
class Matches:
    """What a search has found.

    Attributes:
        catalogues: those that were searched.
        close: whether no series has all words, and these come close.
    """

    catalogues: Sequence[Searchable]
    # A number for each series, whose order is theirs: rank, counts, its place, its catalogue's place.
    _keys: Sequence[int] = field(repr=False)
    close: bool = False
    _searches: Sequence[_Search] = field(default=(), repr=False)

    def ranked(self) -> Iterator[tuple[Rank, int, CatalogueSeries]]:
        """Yield the series, best first, each with its rank and the place of its catalogue."""
        for key in self._keys:
            place, at = key & _PLACES, key >> _CATALOGUES & _SERIES
            yield Rank(key >> _ORDER), place, self.catalogues[place].series[at]

    @property
    def unnamed(self) -> Sequence[tuple[str, Rank]]:
        """The words that the first series is not called, each with its rank; none if it is an exact match.

        Those are neither in its label, its metric or its scopes, nor are they words of the entity's name,
        the cadence, the basis or the reporting group. Words that mean the label together are one text.
        """
        if not self._keys or not self._searches or self._keys[0] >> _ORDER == Rank.EXACT:
            return ()
        key = self._keys[0]
        return self._searches[key & _PLACES].unnamed(key >> _CATALOGUES & _SERIES)

    def by_meaning(self, most: int) -> tuple[list[Found], int]:
        """Return the first metrics and paths of the series, best first, and how many more there are."""
        found: dict[tuple[str, ScopePath], Found | None] = {}
        for _, place, series in self.ranked():
            key = series.metric_id, series.scopes
            if key not in found:
                found[key] = Found(*key, []) if len(found) < most else None
            if (meaning := found[key]) is not None:
                meaning.series.append((place, series))
        shown = [meaning for meaning in found.values() if meaning is not None]
        return shown, len(found) - len(shown)


class Found(Struct, frozen=True):
    """A metric and a scope path that words mean.

    Attributes:
        metric_id: the metric.
        scopes: the scope path.
        series: its series, best first, each with the place of its catalogue among those searched.
    """

    metric_id: str
    scopes: ScopePath
    series: list[tuple[int, CatalogueSeries]]


def search(catalogues: Sequence[Searchable], text: str) -> Matches:
    """Return the series that the words of a text mean, best first; without words all, in catalogue order.

    The order: the best `Rank`; consolidated before parts; current before ended; the fewest weak words, scopes
    and other words of the label; the catalogue's order. Matches in descriptions or inside words are returned
    only if there are no others. If no series has all words, each word is replaced by the one of the
    catalogues that is spelt like it, and those series are returned that then have most of them.
    """
    if not words_of(text):
        return Matches(catalogues, _all(catalogues))
    asked = _Text.of(text)
    if not asked.words:
        return Matches(catalogues, ())
    searches = [_Search(place, catalogue, asked) for place, catalogue in enumerate(catalogues)]
    for worst in (Rank.ALIAS, Rank.WITHIN):
        if found := sorted(key for each in searches for key in each.matches(worst)):
            return Matches(catalogues, found, searches=searches)
    vocabulary = frozenset[str]().union(*(each._search_index.vocabulary for each in catalogues))
    asked = _Text.of(" ".join((*(_spelt(word, vocabulary) for word in asked.words), *asked.weak)))
    searches = [_Search(place, catalogue, asked) for place, catalogue in enumerate(catalogues)]
    most = max((each.most for each in searches), default=0)
    found = sorted(key for each in searches for key in each.with_most(most)) if most else []
    return Matches(catalogues, found, close=True)


def _all(catalogues: Sequence[Searchable]) -> list[int]:
    counts = enumerate(len(catalogue.series) for catalogue in catalogues)
    return [at << _CATALOGUES | place for place, count in counts for at in range(count)]


def _spelt(word: str, vocabulary: Words) -> str:
    return word if word in vocabulary else next(iter(alike(word, vocabulary, 1, _ALIKE)), word)


# The bits of a key: the catalogue's place, then the series' place, then the counts that order a rank.
_CATALOGUES = 16
_PLACES = (1 << _CATALOGUES) - 1
_SERIES = (1 << 32) - 1
_COUNT = 8
_MOST = (1 << _COUNT) - 1
_ORDER = _CATALOGUES + 32 + 2 + 3 * _COUNT


class _Search:
    """The search for words in one catalogue; each distinct label, path and group is compared once."""

    def __init__(self, place: int, catalogue: Searchable, asked: _Text) -> None:
        self._place = place
        self._catalogue = catalogue
        self._asked = asked
        self._index = index = catalogue._search_index
        # The rank of each word, as bytes.
        self._names = [bytes(map(each.match, asked.words)) for each in index.names]
        self._paths = [bytes(map(each.match, asked.words)) for each in index.paths]
        self._contexts = [bytes(word in each for word in asked.words) for each in index.contexts]
        self._by_description: dict[str, int] = {}
        # All forms of which `stem` makes the word.
        self._inflected = [
            re.compile(rf"(?<![^\W_])(?:{word}(?:s|es)?|{word[:-1]}ies)(?![^\W_])") for word in asked.words
        ]
        # By the words that are compared with the label; few differ.
        self._meanings: dict[Words, tuple[int, ...]] = {}

    def matches(self, worst: Rank) -> Iterator[int]:
        """Yield the keys of the series that have all words, at the ranks down to the worst."""
        names, ids, series = self._index.names, self._ids(), self._catalogue.series
        every = (1 << len(self._asked.words)) - 1
        for at, has in enumerate(self._have(worst)):
            if worst > Rank.ALIAS and has != every:
                has |= self._described(series[at].description)
            if has == every or at in ids or names[self._index.of_series[0][at]].meanings:
                rank = Rank.EXACT if at in ids else self._rank(*self._compared(at, worst))
                if rank <= worst:
                    yield self._key(at, rank)

    @property
    def most(self) -> int:
        """The most words that a series has."""
        return max((has.bit_count() for has in self._have(Rank.ALIAS)), default=0)

    def with_most(self, most: int) -> Iterator[int]:
        """Yield the keys of the series that have so many words; the others do not count."""
        for at, has in enumerate(self._have(Rank.ALIAS)):
            if has.bit_count() == most:
                yield self._key(at, self._rank(*self._compared(at, Rank.ALIAS, is_partial=True)))

    def unnamed(self, at: int) -> Sequence[tuple[str, Rank]]:
        """Return the words that a series is not called, each with its rank."""
        compared = self._compared(at, Rank.WITHIN)
        written = dict(zip(self._asked.words, self._asked.written, strict=True))
        if compared.others and self._rank(*compared) == Rank.MEANING:
            # Together they have the meaning, and not each of them.
            return [(" ".join(written[word] for word in compared.meant), Rank.MEANING)]
        return [(written[word], Rank(rank)) for word, rank in compared.others.items() if rank != _NONE]

    def _ids(self) -> Collection[int]:
        """Return the places of the series whose metric id or series id is the text."""
        metrics = {each for each in self._catalogue.by_metric if each.casefold() == self._asked.id}
        return {
            at
            for at, each in enumerate(self._catalogue.series)
            if each.metric_id in metrics or each.series_id.casefold() == self._asked.id
        }

    def _have(self, worst: Rank) -> Iterator[int]:
        """Yield for each series which words it has, as bits."""
        names, paths = _bits(self._names, worst), _bits(self._paths, worst)
        contexts = [sum(has << at for at, has in enumerate(each)) for each in self._contexts]
        for name, path, context in zip(*self._index.of_series, strict=True):
            yield names[name] | paths[path] | contexts[context]

    def _compared(self, at: int, worst: Rank, *, is_partial: bool = False) -> _Compared:
        """Return what of the text is compared with what of a series; partly: only words that it has."""
        name, path, context = (each[at] for each in self._index.of_series)
        by_name, by_path, is_context = self._names[name], self._paths[path], self._contexts[context]
        meant, scoped, others = list[str](), set[str](), dict[str, int]()
        for place, word in enumerate(self._asked.words):
            in_path = by_path[place] == Rank.WORDS
            if by_name[place] == Rank.WORDS:
                meant.append(word)
            elif not in_path and not is_context[place]:
                rank = min(by_name[place], by_path[place])
                if worst > Rank.ALIAS and rank > Rank.DESCRIPTION:
                    is_described = self._described(self._catalogue.series[at].description) >> place & 1
                    rank = Rank.DESCRIPTION if is_described else rank
                if is_partial and rank > worst:
                    continue
                meant.append(word)
                others[word] = rank
            if in_path or not is_context[place]:
                scoped.add(word)
        return _Compared(self._index.names[name], self._index.paths[path], meant, scoped, others)

    def _rank(
        self, named: _Named, path: _Named, meant: Sequence[str], scoped: set[str], others: dict[str, int]
    ) -> int:
        """Return the rank of a series, or `_NONE`."""
        words, scopes = frozenset(meant), frozenset(scoped)
        if any(each.is_same(words) for each in named.wholes):
            return Rank.EXACT
        # "Sales" means revenue before it means the line "Sales" in a table about derivatives.
        if any(each.is_same(scopes) for each in path.wholes) and not self._meaning(scopes):
            return Rank.EXACT
        if any(meaning in named.meanings for meaning in self._meaning(words)):
            return Rank.MEANING
        if any(each.begins_with(tuple(meant)) for each in named.wholes):
            return Rank.START
        return max(others.values(), default=Rank.WORDS)

    def _meaning(self, words: Words) -> tuple[int, ...]:
        if (found := self._meanings.get(words)) is None:
            # "Book value" has a meaning that "book" does not have.
            found = self._meanings[words] = _meanings(words, (*words, *self._asked.weak), is_asked=True)
        return found

    def _described(self, text: str) -> int:
        """Return which words a description has, as bits."""
        if (found := self._by_description.get(text)) is None:
            folded = text.casefold()
            found = sum(1 << at for at, word in enumerate(self._inflected) if word.search(folded))
            self._by_description[text] = found
        return found

    def _key(self, at: int, rank: int) -> int:
        """Return the number that orders a series among all that are found."""
        series, (name, path, _) = self._catalogue.series[at], (each[at] for each in self._index.of_series)
        named, scopes = self._index.names[name], self._index.paths[path]
        key = (rank << 1 | (not is_consolidated(series))) << 1 | scopes.has_ended
        for count in (
            sum(word not in named.own for word in self._asked.weak)
            # "R&D" is research and development before it is repayments of debt.
            + sum(not named.has_initials(each) for each in self._asked.initials),
            len(series.scopes),
            sum(word not in self._asked.words and word not in self._asked.weak for word in named.label),
        ):
            key = key << _COUNT | min(count, _MOST)
        return (key << 32 | at) << _CATALOGUES | self._place


class _Compared(NamedTuple):
    """What of a text is compared with what of a series.

    Attributes:
        named: the words of label and metric.
        path: those of the scopes.
        meant: the words of the text that are compared with label and metric: neither scopes nor context.
        scoped: those that are compared with scopes: all but the context.
        others: those of `meant` that neither label nor metric has, with their ranks.
    """

    named: _Named
    path: _Named
    meant: Sequence[str]
    scoped: set[str]
    others: dict[str, int]


def _bits(table: Sequence[bytes], worst: Rank) -> list[int]:
    """Return for each row which words have a rank down to the worst, as bits."""
    return [sum((rank <= worst) << at for at, rank in enumerate(row)) for row in table]


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
    near = [each for same in alike(wanted, folded, most, SAME) for each in folded[same]]
    # Of "us-gaap:Revenue" the last part says what is meant.
    found = search(catalogues, re.split("[:/]", name)[-1]).ranked() if words_of(name) else ()
    distinct = dict.fromkeys(near)
    for _, _, series in found:
        if len(distinct) >= most:
            break
        distinct[series.metric_id] = None
    return list(distinct)[:most]
