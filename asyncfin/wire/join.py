"""Joins the pages of a catalogue, which may describe one thing differently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import attrs
import msgspec

from asyncfin.errors import MalformedAnswerError
from asyncfin.model.catalogue import Catalogue, CataloguePage, Dataset, ReportingGroup, Scope, ScopeGroup
from asyncfin.model.deviation import Counts, deviations_of, merged
from asyncfin.wire.tolerance import Tolerance

Thing = TypeVar("Thing", Scope, ScopeGroup, ReportingGroup)
# What pages may state differently.
_TEXTS = ("name", "description", "role", "aliases", "basis", "cadence")
_BOUNDS = ("active_start", "active_end")


class _Entry(NamedTuple):
    """What a page says of one thing."""

    page: int  # its number, from 1 on
    times: int  # on how many pages, from this one on, the same bytes say it
    thing: Any


class _Parts(dict[str, list[_Entry]]):
    """The entries about each thing, by its id, in the order of the pages."""

    def add(self, name: str, entry: _Entry) -> None:
        self.setdefault(name, []).append(entry)


def joined(dataset: Dataset, pages: Sequence[CataloguePage], tolerance: Tolerance) -> Catalogue:
    """Return the catalogue of all pages; what they state differently is reported to `tolerance`.

    Of texts that differ, the first that is stated is taken. Bounds of activity that differ are None.

    Raises:
        MalformedAnswerError: pages differ, and the tolerance is strict.
    """
    join = _Join(pages, strict=tolerance.strict)
    scope_groups, groups = join.scope_groups(), join.groups()
    differing = deviations_of(join.counts)
    tolerance.report(differing)
    return Catalogue(
        dataset.entity_id,
        dataset.name or pages[0].name,
        dataset.dataset_id,
        dataset.created_timestamp,
        tuple(sorted({period for page in pages for period in page.periods})),
        scope_groups,
        groups,
        merged([*(each for page in pages for each in page.deviations), *differing]),
        tuple(sorted(join.several_cadences)),
    )


class _Join:
    """Joins the parts of each thing, and counts what they state differently."""

    def __init__(self, pages: Sequence[CataloguePage], *, strict: bool) -> None:
        self._pages, self._strict = pages, strict
        self.counts: Counts = Counter()
        self.several_cadences: set[str] = set()  # the ids of groups for which pages state different ones
        # How many texts of each page were null or missing, which is reported as that: by page and path.
        self._repaired: Counter[tuple[int, str]] = Counter()
        for number, page in enumerate(pages, 1):
            for each in page.deviations:
                self._repaired[number, each.path] += each.count

    def scope_groups(self) -> tuple[ScopeGroup, ...]:
        """Return the scope groups: a page may list all scopes of one, some, or none."""
        heads, scopes = _Parts(), dict[str, _Parts]()
        # Pages repeat them: the same bytes are the same object.
        times = Counter(id(page.scope_groups) for page in self._pages)
        for number, page in enumerate(self._pages, 1):
            if not (count := times.pop(id(page.scope_groups), 0)):
                continue
            for group in page.scope_groups:
                name = group.scope_group_id
                heads.add(name, _Entry(number, count, group))
                own = scopes.setdefault(name, _Parts())
                for scope in group.scopes:
                    own.add(scope.scope_id, _Entry(number, count, scope))
        return tuple(
            self._agreed(
                f"scope group {name!r}", parts, "$.scope_groups[*]", scopes=tuple(self._scopes(scopes[name]))
            )
            for name, parts in heads.items()
        )

    def _scopes(self, parts: _Parts) -> Iterator[Scope]:
        for name, entries in parts.items():
            yield self._agreed(f"scope {name!r}", entries, "$.scope_groups[*].scopes[*]")

    def groups(self) -> tuple[ReportingGroup, ...]:
        """Return the reporting groups, each of which can appear on several pages (spec 4.2 rule 1)."""
        parts = _Parts()
        for number, page in enumerate(self._pages, 1):
            for group in page.groups:
                parts.add(group.reporting_group_id, _Entry(number, 1, group))
        found = []
        for name, entries in parts.items():
            # The end of a page may be anywhere within the series.
            series = tuple(series for entry in entries for series in entry.thing.series)
            found.append(self._agreed(f"reporting group {name!r}", entries, "$.groups[*]", series=series))
            if len({entry.thing.cadence for entry in entries} - {""}) > 1:
                self.several_cadences.add(name)
        return tuple(found)

    def _agreed(self, named: str, entries: Sequence[_Entry], path: str, **inner: Any) -> Any:
        """Return what several entries say of one thing, with these fields in addition."""
        first = entries[0].thing
        changes = dict(inner)
        for name in _fields_of(first) if any(each.thing is not first for each in entries) else ():
            found = [(each, getattr(each.thing, name)) for each in entries]
            if any(value != found[0][1] for _, value in found):
                taken = self._text if name in _TEXTS else self._bound
                changes[name] = taken(f"the {name} of {named}", found, f"{path}.{name}")
        replace = msgspec.structs.replace if isinstance(first, msgspec.Struct) else attrs.evolve
        return replace(first, **changes) if changes else first

    def _text(self, named: str, found: Sequence[tuple[_Entry, Any]], path: str) -> Any:
        """Return the first text that is stated; count those that differ from it."""
        taken_from, taken = next((each for each in found if each[1]), found[0])
        for entry, value in found:
            if value == taken:
                continue
            if not value and self._repaired[entry.page, path]:
                self._repaired[entry.page, path] -= 1
            else:
                self._count(named, path, taken_from, entry, entry.times)
        return taken

    def _bound(self, named: str, found: Sequence[tuple[_Entry, Any]], path: str) -> Any:
        """Return the only bound that is stated; None if several are, and count these."""
        stated = [each for each in found if each[1] is not None]
        other = next((entry for entry, value in stated if value != stated[0][1]), None)
        if other is None:
            return stated[0][1]
        self._count(named, path, stated[0][0], other, sum(entry.times for entry, _ in stated))
        return None

    def _count(self, named: str, path: str, one: _Entry, other: _Entry, times: int) -> None:
        if self._strict:
            numbers = sorted((one.page, other.page))
            where = f"pages {numbers[0]} and {numbers[1]}" if len({*numbers}) > 1 else f"page {numbers[0]}"
            raise MalformedAnswerError(f"{named} differs: {where} @ {path}")
        self.counts[path, "differs between pages"] += times


def _fields_of(thing: Any) -> Iterable[str]:
    return [name for name in (*_TEXTS, *_BOUNDS) if hasattr(thing, name)]
