"""How a batch is requested that the service refuses as too large: the spec states no caps for that. No I/O.

Refusals and passes in, the next request out. A refused batch is diagnosed first: exact periods are sent as a
range, then one series alone shows whether the periods or the ids are too many. Months are halved for that
series, ids for the batch. What is learned cuts the other batches before they are sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Generator, Iterator, Mapping
from enum import Enum
from math import ceil
from types import MappingProxyType
from typing import TypeAlias

from attrs import evolve, field, frozen

from asyncfin.model.catalogue import Catalogue
from asyncfin.model.period import period_ending
from asyncfin.model.query import MAX_PAGE_SIZE
from asyncfin.model.scope import ScopePath
from asyncfin.model.selection import Exact, FiscalRange, Resolved
from asyncfin.plan.plan import Batch
from asyncfin.wire.codec import encode_query

TOO_LARGE = 413  # the status that says which kind of cap it is


class Kind(Enum):
    """What a cap counts."""

    EXACT = "exact periods"
    MONTHS = "months"
    IDS = "metric_ids x scope_combinations"
    BYTES = "bytes of a body"


@frozen
class Cap:
    """The sizes of one kind that are known; None: no such size."""

    passed: int | None = None  # the largest one that passed after a refusal
    refused: int | None = None  # the smallest one that was refused

    @property
    def most(self) -> int | None:
        """The largest size to send; None: any."""
        if self.refused is None:
            return None
        return self.refused - 1 if self.passed is None else self.passed


Caps: TypeAlias = Mapping[Kind, Cap]
NO_CAPS: Caps = MappingProxyType({})


def joined(several: Collection[Caps]) -> Caps:
    """Return what several know together; what has passed counts below the smallest refused size only."""
    if not any(several):  # asked for each request, and few services have caps
        return NO_CAPS
    found: dict[Kind, Cap] = {}
    for kind in Kind:
        if not (known := [caps[kind] for caps in several if kind in caps]):
            continue
        refused = min((each.refused for each in known if each.refused is not None), default=None)
        passed = (each.passed for each in known if each.passed is not None)
        below = [size for size in passed if refused is None or size < refused]
        found[kind] = Cap(max(below, default=None), refused)
    return found


@frozen
class Part:
    """A batch, or a part of one, and how it is requested.

    Attributes:
        batch: its ids, its series, and its periods as planned.
        span: the range that contains the periods: a planned range itself, else that of the catalogue.
        months: the length of the ranges in which the span is requested. None: the periods are requested as
            planned.
        is_probe: whether only its acceptance matters.
        queries: what is requested, the newest range first. Several responses count as one.
    """

    batch: Batch
    span: FiscalRange
    months: int | None = None
    is_probe: bool = False
    queries: tuple[Batch, ...] = field(init=False, eq=False, repr=False)

    @classmethod
    def of(cls, batch: Batch, catalogue: Catalogue) -> Part:
        """Return a batch of a catalogue as it is planned."""
        if isinstance(batch.periods, FiscalRange):
            return cls(batch, batch.periods)
        return cls(batch, _range(catalogue.periods[0].fiscal_end, catalogue.periods[-1].fiscal_end))

    @queries.default
    def _queries(self) -> tuple[Batch, ...]:
        if self.months is None:
            return (self.batch,)
        return tuple(evolve(self.batch, periods=each) for each in self._ranges(self.months))

    def _ranges(self, months: int) -> Iterator[FiscalRange]:
        """Yield the ranges in which the batch has fiscal ends: a planned range may have them in any month."""
        first, last = _ends(self.span)
        exact = self.batch.periods.periods if isinstance(self.batch.periods, Exact) else None
        for end in range(last, first - 1, -months):
            start = max(first, end - months + 1)
            is_whole = (start, end) == (first, last)
            if exact is None or is_whole or any(start <= each.fiscal_end <= end for each in exact):
                yield _range(start, end)

    @property
    def asked(self) -> Resolved:
        """The periods that the responses are about, together."""
        return self.queries[0].periods if len(self.queries) == 1 else self.batch.periods

    @property
    def form(self) -> tuple[int, int]:
        """How many exact periods it requests, and how many months."""
        return self.size(Kind.EXACT), self.size(Kind.MONTHS)

    @property
    def is_smallest(self) -> bool:
        """Whether it names one metric and one path."""
        return self.size(Kind.IDS) == 1

    def size(self, kind: Kind) -> int:
        """Return the size of its largest request; 0: its periods are of another kind."""
        query = self.queries[0]  # no other range is longer
        match kind:
            case Kind.EXACT:
                return len(query.periods.periods) if isinstance(query.periods, Exact) else 0
            case Kind.MONTHS:
                return _months(query.periods) if isinstance(query.periods, FiscalRange) else 0
            case Kind.IDS:
                return len(query.metric_ids) * len(query.scope_combinations)
        return max(len(encode_query(each, page_size=MAX_PAGE_SIZE, cursor=None)) for each in self.queries)

    def exceeds(self, kind: Kind, caps: Caps) -> bool:
        """Return whether it is larger than what may be sent."""
        most = caps[kind].most if kind in caps else None
        return most is not None and self.size(kind) > most

    def as_range(self) -> Part:
        """Return it as a request for its whole span."""
        return evolve(self, months=_months(self.span))

    def alone(self, periods: Resolved, catalogue: Catalogue) -> Part:
        """Return a probe of one of its series, by metric, path and group, for some periods."""
        one = catalogue.series[min(catalogue.places[each] for each in self.batch.home)]
        metrics, paths, groups = (one.metric_id,), (one.scopes,), (one.reporting_group_id,)
        batch = _narrowed(self.batch, catalogue, metrics, paths, groups)
        assert batch is not None
        return Part(evolve(batch, periods=periods), self.span, is_probe=True)

    def halves(self, catalogue: Catalogue) -> list[Part]:
        """Return it with each half of its metrics, or of its paths if these are more, in their order.

        A half without home series is left out.
        """
        metrics, paths = self.batch.metric_ids, self.batch.scope_combinations
        if len(metrics) >= len(paths):
            middle = ceil(len(metrics) / 2)
            cut = [(metrics[:middle], paths), (metrics[middle:], paths)]
        else:
            middle = ceil(len(paths) / 2)
            cut = [(metrics, paths[:middle]), (metrics, paths[middle:])]
        groups = self.batch.reporting_group_ids
        batches = (_narrowed(self.batch, catalogue, *each, groups) for each in cut)
        return [evolve(self, batch=batch) for batch in batches if batch is not None]


def _narrowed(
    batch: Batch,
    catalogue: Catalogue,
    metrics: tuple[str, ...],
    paths: tuple[ScopePath, ...],
    groups: tuple[str, ...] | None,
) -> Batch | None:
    """Return a batch with some of its ids; None if none of these series is at home in it."""
    series = [catalogue.series[catalogue.places[each]] for each in batch.matched]
    matched = frozenset(
        each.series_id
        for each in series
        if each.metric_id in metrics
        and each.scopes in paths
        and (groups is None or each.reporting_group_id in groups)
    )
    if not (home := batch.home & matched):
        return None
    return evolve(
        batch,
        metric_ids=metrics,
        scope_combinations=paths,
        reporting_group_ids=groups,
        home=home,
        matched=matched,
    )


def _ends(span: FiscalRange) -> tuple[int, int]:
    """Return the first and the last fiscal end of a range, as numbers of months."""
    assert span.start is not None
    assert span.end is not None
    return span.start.fiscal_end, span.end.fiscal_end


def _months(span: FiscalRange) -> int:
    first, last = _ends(span)
    return last - first + 1


def _range(first: int, last: int) -> FiscalRange:
    return FiscalRange(period_ending(first), period_ending(last))


def _is_smaller(part: Part, other: Part) -> bool:
    return part.size(Kind.BYTES) < other.size(Kind.BYTES)


def cut(part: Part, caps: Caps, catalogue: Catalogue) -> list[Part]:
    """Return the parts of a part, in order, of which none is larger than what may be sent."""
    if not caps:
        return [part]
    exact = part.size(Kind.EXACT)
    if exact > 1:
        refused = caps[Kind.EXACT].refused if Kind.EXACT in caps else None
        ranged = part.as_range()
        if (refused is not None and exact >= refused) or (
            part.exceeds(Kind.BYTES, caps) and _is_smaller(ranged, part)
        ):
            part = ranged
    if part.exceeds(Kind.MONTHS, caps):
        part = evolve(part, months=caps[Kind.MONTHS].most)
    if not part.is_smallest and (part.exceeds(Kind.IDS, caps) or part.exceeds(Kind.BYTES, caps)):
        return [each for half in part.halves(catalogue) for each in cut(half, caps, catalogue)]
    return [part]


class _NothingSmallerError(Exception):
    """One series is refused for the shortest periods, or one metric on one path."""


class Cutting:
    """How a batch, or a part of one, is sent: as it is, or in parts, one after the other.

    Attributes:
        part: what to send next. None: all of it was accepted, or nothing smaller can be sent.
        is_refused: whether nothing smaller can be sent: the refusal is not about a size.
        learned: what the search has shown so far; it counts once a part has passed.
        searches: whether `part` was not sized by what is known: others should wait for what it shows.
    """

    def __init__(self, whole: Part, catalogue: Catalogue, known: Caps = NO_CAPS) -> None:
        self._catalogue = catalogue
        self._known = known
        self.learned: Caps = {}
        self.searches = False
        self.is_refused = False
        self._accepted: set[tuple[int, int]] = set()  # the forms of periods
        self._steps = self._parts(whole)
        self.part = next(self._steps, None)

    def passed(self, known: Caps) -> None:
        """Go on after `part` was accepted; `known` is what is known by now."""
        assert self.part is not None
        self._accepted.add(self.part.form)
        for kind, cap in known.items():
            size = self.part.size(kind)
            if cap.passed is not None and cap.passed < size:
                self._record(kind, Cap(passed=size))
        self._go_on(0, known)

    def refused(self, status: int, known: Caps) -> None:
        """Go on after `part` was refused with a status."""
        self._go_on(status, known)

    def _go_on(self, status: int, known: Caps) -> None:
        self._known = known
        try:
            self.part = self._steps.send(status)
        except (StopIteration, _NothingSmallerError) as end:
            self.part = None
            self.is_refused = isinstance(end, _NothingSmallerError)

    def _parts(self, whole: Part) -> Generator[Part, int, None]:
        """Yield what to send; each is answered with the status of its refusal, or 0."""
        waiting = deque([whole])
        while waiting:
            part, *rest = self._cut(waiting.popleft())
            waiting.extendleft(reversed(rest))
            if not (status := (yield part)):
                continue
            if self._cut(part) != [part]:
                waiting.appendleft(part)  # what is known has changed since it was sent
                continue
            self.searches = True
            rest = yield from self._search(part, status)
            self.searches = False
            waiting.extendleft(reversed(rest))

    def _cut(self, part: Part) -> list[Part]:
        return cut(part, joined([self._known, self.learned]), self._catalogue)

    def _search(self, part: Part, status: int) -> Generator[Part, int, list[Part]]:
        """Yield what to send for a refused part until something passes; return what is left of it."""
        rest: list[Part] = []
        while status:
            if status != TOO_LARGE and part.form not in self._accepted:
                part, status = yield from self._sized_periods(part, status)
            elif status == TOO_LARGE and part.size(Kind.EXACT) > 1:
                refused, part = part, part.as_range()
                status = yield part
                # A range that is not too large and no smaller shows that the number of periods was.
                is_number = status != TOO_LARGE and not _is_smaller(part, refused)
                self._record_refusal(Kind.EXACT if is_number else Kind.BYTES, refused)
            else:
                self._record_refusal(Kind.BYTES if status == TOO_LARGE else Kind.IDS, part)
                if part.is_smallest:
                    raise _NothingSmallerError
                part, *others = part.halves(self._catalogue)
                rest = others + rest
                status = yield part
        for kind in [*self.learned]:
            if size := part.size(kind):
                self._record(kind, Cap(passed=size))
        return rest

    def _sized_periods(self, part: Part, status: int) -> Generator[Part, int, tuple[Part, int]]:
        """Find out whether the periods are too many, and if so, how many pass for one series.

        Return what is to be sent from now on, and the status of its refusal, or 0.
        """
        if (exact := part.size(Kind.EXACT)) > 1:
            ranged = part.as_range()
            after = yield ranged
            if not after or (after == TOO_LARGE and _is_smaller(ranged, part)):
                self._record_refusal(Kind.EXACT, part)
                return ranged, after
        if (yield from self._is_accepted(part, part.queries[0].periods)):
            # The smallest part is nearly the same request, or the same: then the first one met a fault.
            return part, (yield part) if part.is_smallest else status
        if exact == 1:
            raise _NothingSmallerError
        if exact:
            self._record_refusal(Kind.EXACT, part)
            part = part.as_range()
            if (yield from self._is_accepted(part, part.span)):
                return part, status
        months = yield from self._halved_months(part)
        part = evolve(part, months=months)
        return part, (yield part)

    def _halved_months(self, part: Part) -> Generator[Part, int, int]:
        """Return how many months are accepted for one series of a part, the newest ones."""
        months = part.size(Kind.MONTHS)
        newest = part.queries[0].periods
        assert isinstance(newest, FiscalRange)
        _, last = _ends(newest)
        while True:
            self._record(Kind.MONTHS, Cap(refused=months))
            if months == 1:
                raise _NothingSmallerError
            months = ceil(months / 2)
            if (yield from self._is_accepted(part, _range(last - months + 1, last))):
                self._record(Kind.MONTHS, Cap(passed=months))
                return months

    def _is_accepted(self, part: Part, periods: Resolved) -> Generator[Part, int, bool]:
        """Return whether one series of a refused part is accepted for some periods."""
        status = yield part.alone(periods, self._catalogue)
        if status == TOO_LARGE and isinstance(periods, FiscalRange):
            raise _NothingSmallerError
        return not status

    def _record_refusal(self, kind: Kind, part: Part) -> None:
        self._record(kind, Cap(refused=part.size(kind)))

    def _record(self, kind: Kind, cap: Cap) -> None:
        self.learned = joined([self.learned, {kind: cap}])
