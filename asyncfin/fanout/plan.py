"""Plans a question: which batches to send, so that every wanted series comes, in the fewest requests.

A batch is a cross product of metrics, paths and groups, and is one page where it matches at most 100
series. `pack` finds such batches; where a plain grid of blocks should take fewer requests, it is taken
instead. A question for trailing months is asked as it is only where no batch matches a foreign series,
whose values would move the window; otherwise, or where that is dearer, the catalogue's whole span is
asked for, and the window is cut out of the answer.
"""

from collections.abc import Iterable
from functools import cached_property
from math import ceil

from attrs import field, frozen

from asyncfin.fanout.blocks import grids
from asyncfin.fanout.cells import Cells, Part, Several, lower_bound
from asyncfin.fanout.pack import pack
from asyncfin.fanout.views import Views
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.period import FiscalRange, PeriodSelection, Resolved, Trailing, describe, resolve
from asyncfin.model.query import MAX_PAGE_SIZE, Query
from asyncfin.model.select import Select
from asyncfin.model.series import CatalogueSeries
from asyncfin.model.words import counted

AS_ASKED = "as asked"
AS_RANGE = "trailing as range"
_CUT = " (all periods are asked for, and the window is cut out of the answer)"

# Packing again costs as much as packing: it is left out where so little can be won.
_CLOSE = 1.1


@frozen
class Batch(Query):
    """One query of a plan (spec 4.3).

    Attributes:
        home: the ids of the series that it is sent for. Every wanted series is at home in one batch.
        matched: the ids of all series of the catalogue that it matches. Those not at home are foreign
            here, and dropped.
    """

    home: frozenset[str] = field(kw_only=True, repr=False)
    matched: frozenset[str] = field(kw_only=True, repr=False)

    @property
    def requests(self) -> int:
        """How many pages it takes.

        One, unless a single metric, path and group holds more than 100 series, or series lie so dense
        that one batch of several pages saves requests.
        """
        return ceil(len(self.matched) / MAX_PAGE_SIZE)


@frozen(repr=False)
class Plan:
    """What is sent for a question, known before anything is sent.

    Attributes:
        catalogue: the publication that is asked.
        select: the series asked for, as asked.
        period_selection: the periods asked for, as asked.
        periods: what they come to in this catalogue. None: it has none of them, and there are no batches.
        value_version: ``"original"`` or ``"latest_restated"``.
        series: the wanted series, in catalogue order.
        batches: the queries to send, each with its home series.
        pinned: whether only this publication will do: if it is no longer the current one that is an error,
            else the question is planned anew for the next one.
    """

    catalogue: Catalogue
    select: Select
    period_selection: PeriodSelection
    periods: Resolved | None
    value_version: str
    series: tuple[CatalogueSeries, ...]
    batches: tuple[Batch, ...]
    pinned: bool

    @property
    def requests(self) -> int:
        """How many requests it takes, when none has to be repeated."""
        return sum(batch.requests for batch in self.batches)

    @property
    def way(self) -> str:
        """How the batches ask for the periods: "as asked", or "trailing as range"."""
        return AS_RANGE if any(batch.periods != self.periods for batch in self.batches) else AS_ASKED

    @cached_property
    def lower_bound(self) -> int:
        """The requests that the caps make necessary, whatever the batches; some plans need more."""
        crossings = {(series.metric_id, series.scopes) for series in self.series}
        return lower_bound(len(self.series), crossings) if self.batches else 0

    def __str__(self) -> str:
        matched = sum(len(batch.matched) for batch in self.batches)
        home = sum(len(batch.home) for batch in self.batches)
        periods = describe(self.period_selection)
        batches, requests = counted(len(self.batches), "batch", "batches"), counted(self.requests, "request")
        return "\n".join(
            [
                f"{self.catalogue.name} ({self.catalogue.entity_id})",
                f"publication {self.catalogue.dataset_id}",
                f"{len(self.series):,} series wanted; {matched - home:,} foreign, come along and are dropped",
                f"{batches} (one query each), {requests} (pages of at most {MAX_PAGE_SIZE} series)",
                f"lower bound {self.lower_bound}: the caps allow no fewer requests",
                f"periods: {periods}{'' if self.periods else ', of which the catalogue has none'}",
                f"way: {self.way}{_CUT if self.way == AS_RANGE else ''}",
                f"values: {self.value_version}",
            ]
        )

    def __repr__(self) -> str:
        return (
            f"<Plan for {self.catalogue.name} ({self.catalogue.entity_id}): {len(self.series):,} series in"
            f" {counted(self.requests, 'request')}>"
        )


def plan(
    catalogue: Catalogue,
    wanted: Iterable[CatalogueSeries],
    periods: Resolved | None,
    *,
    select: Select,
    period_selection: PeriodSelection,
    value_version: str = "original",
    pinned: bool = True,
) -> Plan:
    """Return the plan for wanted series of a catalogue.

    It is the same for the same catalogue and the same wanted series, in whatever order they are given.

    Args:
        catalogue: the publication to ask.
        wanted: series of this catalogue.
        periods: what to ask for. None: the catalogue has no such periods, and there are no batches.
        select, period_selection: the question, as asked; kept in the plan.
        value_version: ``"original"`` or ``"latest_restated"``.
        pinned: whether only this publication will do.

    Raises:
        SelectionError: the value version is unknown, or a wanted series can't be asked for: its scope path
            has more than 20 entries.
    """
    ids = {series.series_id for series in wanted}
    series = tuple(each for each in catalogue.series if each.series_id in ids)
    batches: tuple[Batch, ...] = ()
    if series and periods is not None and catalogue.periods:
        parts, asked = _parts(catalogue, series, periods)
        batches = tuple(_batch(part, asked, catalogue.dataset_id, value_version) for part in parts)
    return Plan(catalogue, select, period_selection, periods, value_version, series, batches, pinned)


def _parts(catalogue: Catalogue, series: Several, periods: Resolved) -> tuple[list[Part], Resolved]:
    """Return the home series of each batch, and the periods to ask for."""
    views = Views(Cells.of(catalogue, series))
    parts = _fewest(views)
    if not isinstance(periods, Trailing) or not _foreign(parts):
        return parts, periods
    requests = _requests(parts)
    pure = pack(views, enough=MAX_PAGE_SIZE, foreign=False, limit=requests)
    if pure is not None and _requests(pure) <= requests:
        return pure, periods
    span = resolve(FiscalRange(), catalogue.periods)
    assert span is not None
    return parts, span


def _foreign(parts: Iterable[Part]) -> bool:
    """Say whether a batch matches a series that is at home nowhere."""
    home = {series.series_id for part in parts for series in part.home}
    return any(series.series_id not in home for part in parts for series in part.matched)


def _fewest(views: Views) -> list[Part]:
    """Return the parts with the fewest requests, foreign series allowed."""
    cells = views.cells
    parts = _packed(views)
    if _requests(parts) == cells.lower_bound:
        return parts
    rivals = [list(map(cells.part, blocks)) for blocks in grids(cells, fewer_than=_requests(parts))]
    best = min([parts, *rivals], key=_requests)
    return parts if best is parts else [page for block in best for page in _pages(block, cells)]


def _packed(views: Views) -> list[Part]:
    parts = pack(views, enough=1)
    assert parts is not None
    if _requests(parts) <= _CLOSE * views.cells.lower_bound:
        return parts
    other = pack(views, enough=MAX_PAGE_SIZE, limit=_requests(parts))
    return parts if other is None else min(parts, other, key=_requests)


def _pages(block: Part, cells: Cells) -> list[Part]:
    """Return a block in parts of a page each, or as it is where that takes fewer requests."""
    if block.requests == 1:
        return [block]
    return min(_packed(Views(cells.crossed_by(block.home))), [block], key=_requests)


def _requests(parts: Iterable[Part]) -> int:
    return sum(part.requests for part in parts)


def _batch(part: Part, periods: Resolved, dataset_id: str, value_version: str) -> Batch:
    return Batch(
        metric_ids=part.metric_ids,
        scope_combinations=part.paths,
        periods=periods,
        reporting_group_ids=part.groups,
        value_version=value_version,
        expected_dataset_id=dataset_id,
        home=frozenset(series.series_id for series in part.home),
        matched=frozenset(series.series_id for series in part.matched),
    )
