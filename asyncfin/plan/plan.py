"""Plan a query: batches that together return every wanted series, in nearly the
fewest requests.

A batch is a cross product of metrics, paths and groups. Each is one page, so that all
of them can be in flight at once: dense tables are cut in `strips`, sparse ones are
filled by `grow`, and where neither comes close to the lower bound, both are tried. Only
a single metric and path of more than a page of series, and a selection that is one
query of two pages, follow a cursor.

Trailing months are requested as the catalogue's whole span, and the client cuts the
window: the service would anchor it at each batch, and a foreign series can move it.
"""

from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import attrgetter

from attrs import field, frozen

from asyncfin.checks import short_repr
from asyncfin.errors import SelectionError
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.query import MAX_PAGE_SIZE, MAX_PATH_ENTRIES, Query, ValueVersion
from asyncfin.model.scope import ScopePath
from asyncfin.model.selection import FiscalRange, Resolved, Trailing, resolve
from asyncfin.model.series import CatalogueSeries
from asyncfin.plan.cells import (
    Cells,
    CrossProduct,
    SeriesByCell,
    count_least_requests,
    count_pages,
)
from asyncfin.plan.grow import grow
from asyncfin.plan.question import Question
from asyncfin.plan.strips import pack_strips
from asyncfin.words import counted, named_entity

# With fewer of its cells wanted, a table is grown first: most of a page of a strip
# would be foreign series, unless the cells lie in blocks.
_DENSE = 0.05
# Another way to plan takes as long as the first: it is not tried where so little can be
# gained.
_CLOSE = 1.1
# Cutting strips another way takes as long as sending a few requests. So the first way
# is taken that needs at most one request in this many above the bound; below this many,
# none above it.
_FEW = 100

_series_id = attrgetter("series_id")
_read_home = attrgetter("home")


@frozen(kw_only=True)
class Batch(Query):
    """One query of a plan (spec 4.3), with the fields of `Query`.

    A plan makes it within the caps. If you change its fields, only
    `Client.query_pages` checks them.

    Attributes:
        home: the ids of the series that it is sent for; every wanted series is at home
            in one batch.
        matched: the ids of all series that it matches: those not at home are foreign
            here, and dropped.
    """

    metric_ids: tuple[str, ...]
    scope_combinations: tuple[ScopePath, ...]
    periods: Resolved
    reporting_group_ids: tuple[str, ...] | None
    value_version: ValueVersion
    expected_dataset_id: str | None
    home: frozenset[str] = field(repr=False)
    matched: frozenset[str] = field(repr=False)

    def __attrs_post_init__(self) -> None:
        """Check nothing: the fields of `Query` are the planner's, within the caps."""

    @property
    def requests(self) -> int:
        """How many pages it takes.

        One, unless a single metric, path and group has more than 100 series, or this is
        the only batch and takes two where batches of a page each would take three.
        """
        return count_pages(self.matched)


@frozen(repr=False, slots=False)  # slots and cached_property make help() fail on 3.13
class Plan:
    """What is sent for a query of any size, before anything is sent.

    Attributes:
        question: the query as it was asked for.
        catalogue: the catalogue of the publication that is read.
        periods: the query's periods, resolved against this catalogue. None: the
            catalogue has no series or no periods or, where several entities are asked,
            nothing of the query; there are no batches.
        series: the wanted series, in catalogue order.
        batches: the queries to send by the documented caps, each with its home series.
        cached: the wanted series that are cached, which no batch requests.
    """

    question: Question
    catalogue: Catalogue
    periods: Resolved | None
    series: tuple[CatalogueSeries, ...]
    batches: tuple[Batch, ...] = ()
    cached: tuple[CatalogueSeries, ...] = ()

    @property
    def requests(self) -> int:
        """How many requests the batches take by the documented caps, if none has to be
        repeated.

        Without batches, as everything is cached, one for the metadata may be needed
        (`Client`, `max_age`).
        """
        return sum(batch.requests for batch in self.batches)

    @cached_property
    def lower_bound(self) -> int:
        """The requests that the caps make necessary, whatever the batches; some plans
        need more.
        """
        home_ids = join_home_ids(self.batches)
        crossings = set()
        for series in self.series:
            if series.series_id in home_ids:
                crossings.add((series.metric_id, series.scopes))
        return count_least_requests(len(home_ids), crossings)

    def _describe_periods(self) -> str:
        if self.periods is None:
            periods = self.catalogue.periods
            if periods and resolve(self.question.periods, periods) is not None:
                return ""
            return ", of which the catalogue has none"
        if all(batch.periods == self.periods for batch in self.batches):
            return ""
        if isinstance(self.periods, Trailing):
            return "; all periods are requested, and the window is cut from them"
        return "; all periods are requested, for the cache"

    def __str__(self) -> str:
        batches = counted(len(self.batches), "batch", "batches")
        requests = counted(self.requests, "request")
        bound = counted(self.lower_bound, "request")
        foreign_count = 0
        for batch in self.batches:
            foreign_count += len(batch.matched) - len(batch.home)
        lines = [
            named_entity(self.catalogue),
            f"publication {self.catalogue.dataset_id}",
            f"{len(self.series):,} series selected",
        ]
        if self.cached:
            lines.append(
                f"{len(self.cached):,} of them are cached, and are not requested"
            )
        lines.append(
            f"{batches}, {requests}: a batch is a query, with a request for each "
            f"{MAX_PAGE_SIZE} series"
        )
        lines.append(f"lower bound: {bound}; the limits of a query allow no fewer")
        if foreign_count:
            lines.append(
                f"{foreign_count:,} other series match these queries; only a cache "
                "stores them"
            )
        lines.append(f"periods: {self.question.periods}{self._describe_periods()}")
        lines.append(f"values: {self.question.value_version}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        requests = counted(self.requests, "request")
        return (
            f"<Plan for {named_entity(self.catalogue)}: {len(self.series):,} series in "
            f"{requests}>"
        )

    def _repr_html_(self) -> str:
        from asyncfin.html import document

        return document(str(self).split("\n"), ())


def make_batches(
    catalogue: Catalogue,
    series: Sequence[CatalogueSeries],
    periods: Resolved | None,
    value_version: ValueVersion,
) -> tuple[Batch, ...]:
    """Return the queries for these series, in catalogue order.

    Raises:
        SelectionError: a series cannot be queried, as its scope path has more than 20
            entries.
    """
    if not series or periods is None:
        return ()
    for item in series:
        if len(item.scopes) > MAX_PATH_ENTRIES:
            raise SelectionError(
                f"series {short_repr(item.series_id)} cannot be queried, as its scope "
                f"path has {len(item.scopes)} entries, more than {MAX_PATH_ENTRIES} "
                "(spec 8); a Select with `where` can leave it out"
            )
    if isinstance(periods, Trailing):
        periods = catalogue.resolve(FiscalRange())
    batches = []
    for product in _find_products(Cells(catalogue, series)):
        batch = Batch(
            metric_ids=product.metric_ids,
            scope_combinations=product.paths,
            periods=periods,
            reporting_group_ids=product.groups,
            value_version=value_version,
            expected_dataset_id=catalogue.dataset_id,
            home=frozenset(map(_series_id, product.home)),
            matched=frozenset(map(_series_id, product.matching_series)),
        )
        batches.append(batch)
    return tuple(batches)


def _find_products(cells: Cells) -> list[CrossProduct]:
    """Find the products that the batches name, in the fewest requests."""
    single = cells.find_single_product()
    if single is not None and count_pages(single.matching_series) == 1:
        return [single]
    # What follows a cursor is planned first: neither strips nor grown batches can
    # contain it.
    remainder = dict(cells.wanted)
    products = []
    for cell in cells.list_oversized():
        products.append(cells.make_product(remainder.pop(cell)))
    wanted_count = sum(map(len, cells.wanted.values()))
    bound = count_least_requests(wanted_count, cells.wanted) - _count_requests(products)
    homes = _find_homes(cells, remainder, bound)
    products += map(cells.make_product, homes)
    # Two pages in a row take twice as long as batches at once: worth it where it saves
    # one request of three.
    request_count = _count_requests(products)
    if single is not None and count_pages(single.matching_series) <= 2 < request_count:
        return [single]
    return products


def _find_homes(
    cells: Cells, series_by_cell: SeriesByCell, bound: int
) -> list[Sequence[CatalogueSeries]]:
    """Return the home series of batches of a page each: the fewest of the ways that are
    tried, until they are close to the bound.
    """
    homes: list[Sequence[CatalogueSeries]] | None = None
    enough = bound + bound // _FEW
    if series_by_cell and cells.density > _DENSE:
        homes = pack_strips(cells, series_by_cell, enough=enough)
    if not homes or len(homes) > _CLOSE * bound:
        # Quickly first, by the first view alone; with all views, which takes longer,
        # only if it may pay.
        candidates = grow(cells, series_by_cell, enough=1)
        assert candidates is not None  # no limit is set
        if len(candidates) > _CLOSE * bound:
            limit = len(candidates)
            result = grow(cells, series_by_cell, enough=MAX_PAGE_SIZE, limit=limit)
            candidates = result or candidates
        if not homes or len(candidates) < len(homes):
            homes = candidates
    # Tables of small dense blocks, and of hubs that cross.
    if len(homes) > _CLOSE * bound:
        limit = len(homes)
        result = pack_strips(
            cells, series_by_cell, enough=enough, limit=limit, sparse=True
        )
        homes = result or homes
    if len(homes) > _CLOSE * bound:
        limit = len(homes) - 1
        result = grow(cells, series_by_cell, enough=1, limit=limit, spare=1)
        homes = result or homes
    return homes


def join_home_ids(batches: Iterable[Batch]) -> frozenset[str]:
    """Return the ids of the series that are at home in the batches."""
    return frozenset[str]().union(*map(_read_home, batches))


def _count_requests(products: Iterable[CrossProduct]) -> int:
    return sum(count_pages(product.matching_series) for product in products)
