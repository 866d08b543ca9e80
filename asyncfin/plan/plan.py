"""Plans a question: which batches to send, so that every wanted series comes, in nearly the fewest requests.

A batch is a cross product of metrics, paths and groups. Each is one page, so that all of them can be
under way at once: dense tables are cut in `strips`, sparse ones are filled by `grow`. Only a single metric,
path and group of more than a page of series, and a question that is one query of two pages, follow a cursor.

A question for trailing months is asked as it is only where no batch matches a foreign series, whose values
would move the window; otherwise, or where that takes more requests, the catalogue's whole span is asked for,
and the window is cut out of the response.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from math import ceil

from attrs import field, frozen

from asyncfin.errors import printable
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.period import FiscalRange, Resolved, Trailing, describe, resolve
from asyncfin.model.query import MAX_PAGE_SIZE, Query, ValueVersion
from asyncfin.model.series import CatalogueSeries
from asyncfin.model.words import counted
from asyncfin.plan.cells import Cells, CrossProduct, SeriesByCell, lower_bound
from asyncfin.plan.grow import grow
from asyncfin.plan.question import Question
from asyncfin.plan.strips import strips

AS_ASKED = "as asked"
AS_RANGE = "trailing as range"
_ASKED = "the queries ask for these periods"
_RANGE = "the queries ask for all periods, out of which the window is cut"
_FOR_CACHE = "the queries ask for all periods, which the cache keeps"

# With fewer of its cells wanted, a table is too thin for strips: most of a page would be foreign series.
_DENSE = 0.05
# Another way to plan takes as long as the first: it is not tried where so little can be gained.
_CLOSE = 1.1
# Strips can be cut in many ways, and trying one takes as long as sending a few requests. So the first one is
# taken that needs at most one request in this many above the bound; below this many, none.
_FEW = 100

# Batches that a notebook shows.
_SHOWN_BATCHES = 20


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

        One, unless a single metric, path and group holds more than 100 series, or this is the only batch
        and takes two where batches of a page each would take three.
        """
        return ceil(len(self.matched) / MAX_PAGE_SIZE)


@frozen(repr=False, slots=False)  # slots and cached_property make help() fail on 3.13
class Plan:
    """What is sent for a question, known before anything is sent.

    Attributes:
        question: what was asked.
        catalogue: of the publication that is asked.
        periods: what the question's periods come to in this catalogue. None: it is empty, and there are no
            batches.
        series: the wanted series, in catalogue order.
        batches: the queries to send, each with its home series.
        cached: those of the wanted series that are at hand, so that no batch asks for them.
    """

    question: Question
    catalogue: Catalogue
    periods: Resolved | None
    series: tuple[CatalogueSeries, ...]
    batches: tuple[Batch, ...] = ()
    cached: tuple[CatalogueSeries, ...] = ()

    @property
    def requests(self) -> int:
        """How many requests it takes, when none has to be repeated."""
        return sum(batch.requests for batch in self.batches)

    @property
    def way(self) -> str:
        """How the batches ask for the periods: "as asked", or "trailing as range"."""
        trailing = isinstance(self.periods, Trailing)
        return AS_RANGE if trailing and any(b.periods != self.periods for b in self.batches) else AS_ASKED

    @cached_property
    def lower_bound(self) -> int:
        """The requests that the caps make necessary, whatever the batches; some plans need more."""
        cached = {series.series_id for series in self.cached}
        asked = [series for series in self.series if series.series_id not in cached]
        crossings = {(series.metric_id, series.scopes) for series in asked}
        return lower_bound(len(asked), crossings) if self.batches else 0

    @property
    def _reason(self) -> str:
        if all(batch.periods == self.periods for batch in self.batches):
            return _ASKED
        return _RANGE if self.way == AS_RANGE else _FOR_CACHE

    def __str__(self) -> str:
        foreign = sum(len(batch.matched) - len(batch.home) for batch in self.batches)
        periods = describe(self.question.periods)
        batches, requests = counted(len(self.batches), "batch", "batches"), counted(self.requests, "request")
        return "\n".join(
            [
                printable(f"{self.catalogue.name} ({self.catalogue.entity_id})"),
                f"publication {self.catalogue.dataset_id}",
                f"{len(self.series):,} series selected",
                *([f"{len(self.cached):,} of them are cached, and are not requested"] if self.cached else []),
                f"{batches}, {requests}: a batch is a query, with a request for each {MAX_PAGE_SIZE} series",
                f"lower bound: {counted(self.lower_bound, 'request')}; the limits of a query allow no fewer",
                *(
                    [f"{foreign:,} other series match these queries; only a cache keeps them"]
                    if foreign
                    else []
                ),
                f"periods: {periods}{'' if self.periods else ', of which the catalogue has none'}",
                f"way: {self.way} ({self._reason})",
                f"values: {self.question.value_version}",
            ]
        )

    def __repr__(self) -> str:
        return printable(
            f"<Plan for {self.catalogue.name} ({self.catalogue.entity_id}): {len(self.series):,} series in"
            f" {counted(self.requests, 'request')}>"
        )

    def _repr_html_(self) -> str:
        from asyncfin.html import Table, document

        heads = ("batch", "metrics", "scope paths", "reporting groups", "series", "requests")
        rows = []
        for number, batch in enumerate(self.batches[:_SHOWN_BATCHES], 1):
            groups = batch.reporting_group_ids
            counts = (len(batch.metric_ids), len(batch.scope_combinations))
            rows.append(
                (
                    str(number),
                    *map(str, counts),
                    str(len(groups)) if groups else "all",
                    str(len(batch.home)),
                    str(batch.requests),
                )
            )
        more = len(self.batches) - len(rows)
        notes = [f"{more:,} more batches not shown"] if more else []
        return document(str(self).split("\n"), [Table(heads, rows)] if rows else [], notes)


def without_batches(question: Question, catalogue: Catalogue) -> Plan:
    """Return which series and periods of a catalogue a question means, with no batches yet.

    Raises:
        SelectionError: the question names what the catalogue lacks.
    """
    series, periods = question.wanted(catalogue)
    return Plan(question, catalogue, periods, series)


def plan(question: Question, catalogue: Catalogue, wanted: Iterable[CatalogueSeries]) -> Plan:
    """Return the plan for wanted series of a catalogue.

    It is the same for the same catalogue and the same wanted series, in whatever order they are given.

    Raises:
        SelectionError: a wanted series can't be asked for: its scope path has more than 20 entries.
    """
    places = sorted({catalogue.places[each.series_id] for each in wanted})
    series = tuple(catalogue.series[place] for place in places)
    periods = catalogue.resolve(question.periods) if catalogue.series else None
    batches = batches_of(catalogue, series, periods, question.value_version)
    return Plan(question, catalogue, periods, series, batches)


def batches_of(
    catalogue: Catalogue,
    series: Sequence[CatalogueSeries],
    periods: Resolved | None,
    value_version: ValueVersion,
) -> tuple[Batch, ...]:
    """Return the queries that bring these series, given in catalogue order."""
    if not series or periods is None or not catalogue.periods:
        return ()
    products, asked = _cross_products(Cells(catalogue, series), catalogue, periods)
    return tuple(
        Batch(
            metric_ids=product.metric_ids,
            scope_combinations=product.paths,
            periods=asked,
            reporting_group_ids=product.groups,
            value_version=value_version,
            expected_dataset_id=catalogue.dataset_id,
            home=frozenset(series.series_id for series in product.home),
            matched=frozenset(series.series_id for series in product.matched),
        )
        for product in products
    )


def _cross_products(
    cells: Cells, catalogue: Catalogue, periods: Resolved
) -> tuple[list[CrossProduct], Resolved]:
    """Return what the batches name, and the periods that they ask for."""
    # What follows a cursor is settled first: neither strips nor grown batches have a place for it.
    crowded = cells.crowded()
    rest = cells.wanted
    if apart := {series.series_id for product in crowded for series in product.home}:
        left = ((cell, [s for s in several if s.series_id not in apart]) for cell, several in rest.items())
        rest = {cell: several for cell, several in left if several}
    products = _fewest(cells, crowded, rest)
    if not isinstance(periods, Trailing) or not _match_foreign(products):
        return products, periods
    # Asked as it is only where that costs no more: each request of a range brings all periods, and the
    # bytes of some are cut away, but bytes are not what an allowance counts.
    limit = _requests(products)
    homes = grow(cells, rest, enough=MAX_PAGE_SIZE, foreign=False, limit=limit)
    if homes is not None:
        pure = [*crowded, *map(cells.cross_product, homes)]
        if _requests(pure) <= limit and not _match_foreign(pure):
            return pure, periods
    span = resolve(FiscalRange(), catalogue.periods)
    assert span is not None
    return products, span


def _fewest(cells: Cells, crowded: list[CrossProduct], rest: SeriesByCell) -> list[CrossProduct]:
    """Return the batches that take the fewest requests, foreign series allowed."""
    bound = cells.lower_bound - _requests(crowded)
    homes: list[Sequence[CatalogueSeries]] | None = None
    if rest and cells.density > _DENSE:
        homes = strips(cells, rest, enough=bound + bound // _FEW)
    if homes is None or len(homes) > _CLOSE * bound:
        # Quickly first, by the first view alone; with all views, which takes longer, only if it may pay.
        grown = grow(cells, rest, enough=1)
        assert grown is not None  # foreign series are allowed, and no limit is set
        if len(grown) > _CLOSE * bound:
            grown = grow(cells, rest, enough=MAX_PAGE_SIZE, limit=len(grown)) or grown
        homes = grown if homes is None else min(homes, grown, key=len)
    products = [*crowded, *map(cells.cross_product, homes)]
    whole = cells.whole()
    # Two pages in a row take twice as long as batches at once: worth it where it saves one request of three.
    return [whole] if whole and whole.requests <= 2 < _requests(products) else products


def _match_foreign(products: Iterable[CrossProduct]) -> bool:
    """Return whether a batch matches a series that is at home nowhere."""
    home = {series.series_id for product in products for series in product.home}
    return any(series.series_id not in home for product in products for series in product.matched)


def _requests(products: Iterable[CrossProduct]) -> int:
    return sum(product.requests for product in products)
