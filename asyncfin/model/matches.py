"""What a search returns: the series that match, and how they do."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from operator import attrgetter
from typing import Any, Self

from attrs import frozen

from asyncfin.model.period import Period
from asyncfin.model.scope import ScopePath
from asyncfin.model.series import CatalogueSeries
from asyncfin.text import table_lines

# How many series are shown, and how wide their table is.
_SHOWN = 20
_WIDTH = 100
_HEADS = ("metric", "label", "scopes", "group")


class Rank(IntEnum):
    """How a series matches the words of a text, best first."""

    EXACT = 0  # they are its label, its metric or a scope, or the text is an id
    MEANING = 1  # they mean the same as its label or metric
    WORDS = 2  # they are words of label, metric or scopes
    ALIAS = 3  # one is the beginning of a word, an alias, or a synonym
    DESCRIPTION = 4  # one is only in the description
    CLOSE = 5  # it does not have all of them


@frozen
class Match:
    """A series that a search found.

    Attributes:
        rank: how it matches the words.
        series: the series.
        ended: its last period with a value, if that is a year before most others'.
            Otherwise, or if it is unknown, None.
        order: a key that sorts the better match first, also over catalogues.
    """

    rank: Rank
    series: CatalogueSeries
    ended: Period | None = None
    order: tuple[int, ...] = ()

    def note(self, text: str) -> str:
        """Return a text of the series, with the period since which it has no values."""
        if self.ended is None:
            return text
        return f"{text} (no value since {self.ended})"


class SearchResult(tuple[CatalogueSeries, ...]):
    """The series that a search found: a tuple of `CatalogueSeries`, best first.

    ``str`` and notebooks show metric, label, scope names and group of the first ones.
    `Select.of` accepts the whole result, or a part of it.

    Attributes:
        matches: for each series how it matches the words, and since when it has no
            values.
    """

    matches: tuple[Match, ...]
    _catalogue: Any

    def __new__(cls, matches: Iterable[Match], catalogue: Any) -> Self:
        matches = tuple(matches)
        result = super().__new__(cls, map(attrgetter("series"), matches))
        result.matches, result._catalogue = matches, catalogue
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.matches, self._catalogue)

    @staticmethod
    def group(results: Iterable[SearchResult]) -> list[list[tuple[int, Match]]]:
        """Group the matches of searches in different catalogues by metric and scope
        path, the best group first.

        Each match has the position of its catalogue. Those that are only described or
        close are dropped if a catalogue has others.
        """
        matches: list[tuple[int, Match]] = []
        for index, result in enumerate(results):
            for match in result.matches:
                matches.append((index, match))
        matches.sort(key=lambda entry: entry[1].order)
        ranks = [match.rank for _, match in matches]
        limit = max(Rank.ALIAS, min(ranks, default=Rank.ALIAS))
        groups: dict[tuple[str, ScopePath], list[tuple[int, Match]]] = {}
        for index, match in matches:
            if match.rank <= limit:
                key = match.series.metric_id, match.series.scopes
                groups.setdefault(key, []).append((index, match))
        return list(groups.values())

    @property
    def close(self) -> bool:
        """Whether no series has all words of the text; those in the result come close
        to it.
        """
        return all(match.rank == Rank.CLOSE for match in self.matches)

    def _make_rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for match in self.matches[:_SHOWN]:
            series = match.series
            scopes = " / ".join(self._catalogue.scope_names(series.scopes))
            label = match.note(series.label)
            rows.append((series.metric_id, label, scopes, series.reporting_group_id))
        return rows

    @property
    def _tail(self) -> list[str]:
        if len(self) <= _SHOWN:
            return []
        return [f"and {len(self) - _SHOWN:,} more"]

    @property
    def _head(self) -> list[str]:
        if not self:
            return ["no series is found"]
        if self.close:
            return ["no series has all these words; close to them:"]
        return []

    def __repr__(self) -> str:
        lines = self._head
        rows = self._make_rows()
        if rows:
            lines += table_lines(_HEADS, rows, _WIDTH)
        return "\n".join(lines + self._tail)

    def _repr_html_(self) -> str:
        from asyncfin.html import Table, document

        rows = self._make_rows()
        tables = []
        if rows:
            tables.append(Table(_HEADS, rows, names=4))
        return document(self._head, tables, self._tail)
