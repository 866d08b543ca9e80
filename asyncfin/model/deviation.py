"""What responses contain against the spec, and the client has repaired."""

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

from attrs import frozen

Counts: TypeAlias = Counter[tuple[str, str]]
"""How often each problem occurs at each path, as (path, problem)."""


@frozen(order=True)
class Deviation:
    """One kind of deviation from the spec, which the client has repaired; it never concerns a number.

    Attributes:
        path: the JSON path in a response, without indexes: ``$.series[*].label``.
        problem: ``"null"``, ``"missing"``, ``"empty"`` (a cursor), ``"differs from the catalogue"``, or
            ``"differs between pages"`` (of the catalogue).
        count: how often it occurs in the responses that were read.
    """

    path: str
    problem: str
    count: int

    def __str__(self) -> str:
        return f"{self.path}: {self.problem} ({'once' if self.count == 1 else f'{self.count:,} times'})"


def deviations_of(counts: Counts | None) -> tuple[Deviation, ...]:
    """Return counts as deviations, ordered by path."""
    return tuple(sorted(Deviation(*place, count) for place, count in counts.items())) if counts else ()


def merged(deviations: Iterable[Deviation]) -> tuple[Deviation, ...]:
    """Return deviations with equal ones added up, ordered by path."""
    counts: Counts = Counter()
    for each in deviations:
        counts[each.path, each.problem] += each.count
    return deviations_of(counts)
