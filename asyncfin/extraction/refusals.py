"""Whether the account is refused for every entity: no run asks for hundreds to find that out."""

from __future__ import annotations

from collections.abc import Container, Sequence

from attrs import define

from asyncfin.extraction.report import EntityReport

# So many entities in a row, from the first of a run on, are a reason to ask some of the others first.
_IN_A_ROW = 20
_ASKED_FIRST = 3


@define
class Refusals:
    """Counts entities that were refused with 403 before any other outcome in the run."""

    _refused: int = 0
    _has_other: bool = False

    def record(self, report: EntityReport) -> None:
        """Record the outcome of an entity; one that is left has none."""
        if report.failure is not None and report.failure.status == 403:
            self._refused += 1
        elif report.state != "left":
            self._has_other = True

    @property
    def is_doubtful(self) -> bool:
        """Whether all entities may be refused."""
        return self._refused >= _IN_A_ROW and not self._has_other


def asked_first(ids: Sequence[str], known: Container[str]) -> list[str]:
    """Return up to three entities spread over some, of those with a file before those without."""
    with_file = _spread([each for each in ids if each in known], _ASKED_FIRST)
    without = _spread([each for each in ids if each not in known], _ASKED_FIRST - len(with_file))
    return [*with_file, *without]


def _spread(ids: Sequence[str], count: int) -> list[str]:
    if len(ids) <= count:
        return list(ids)
    # The middle of each of as many equal parts.
    return [ids[(2 * part + 1) * len(ids) // (2 * count)] for part in range(count)]
