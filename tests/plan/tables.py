"""Tables of series that are hard to plan, and their limits of requests, as multiples of the lower bound."""

from collections.abc import Iterable

from attrs import fields_dict

from asyncfin.model.catalogue import Catalogue
from asyncfin.model.query import Query
from asyncfin.model.series import CatalogueSeries
from asyncfin.plan.plan import Batch, Plan, make_batches
from asyncfin.plan.question import Question

Triples = list[tuple[str, str, str]]


def plan(question: Question, catalogue: Catalogue, wanted: Iterable[CatalogueSeries]) -> Plan:
    """Return the plan for some series of a catalogue; a user could write each batch as a Query."""
    series_ids = {series.series_id for series in wanted}
    series = tuple(item for item in catalogue.series if item.series_id in series_ids)
    periods = question.resolve(catalogue)[1]
    batches = make_batches(catalogue, series, periods, question.value_version)
    for batch in batches:
        check_caps(batch)
    return Plan(question, catalogue, periods, series, batches)


def check_caps(batch: Batch) -> None:
    """Check a batch as a Query is: the planner's own are within the caps unchecked."""
    Query(**{name: getattr(batch, name) for name in fields_dict(Query)})


def crosses(number: int, partners: int) -> Triples:
    """Return metrics on many paths, and paths with many metrics, that share nothing."""
    wide = [(f"M{at}", f"p{at}.{other}", "g") for at in range(number) for other in range(partners)]
    return wide + [(f"m{at}.{other}", f"P{at}", "g") for at in range(number) for other in range(partners)]


def blocks(number: int, side: int) -> Triples:
    """Return dense squares that share no metric and no path."""
    cells = [(at, metric, path) for at in range(number) for metric in range(side) for path in range(side)]
    return [(f"m{at}.{metric}", f"p{at}.{path}", "g") for at, metric, path in cells]


def many_groups(metrics: int, paths: int, groups: int, *, diagonal: bool = False) -> Triples:
    """Return cells each of which has all groups, in a rectangle or on its diagonal."""
    cells = [(metric, path) for metric in range(metrics) for path in range(paths)]
    return [
        (f"m{metric}", f"p{path}", f"g{group}")
        for metric, path in cells
        if metric == path or not diagonal
        for group in range(groups)
    ]


TABLES: dict[str, tuple[Triples, float]] = {
    "a metric on 1,500 paths and a path with 1,500 metrics": (crosses(1, 1500), 1.03),
    "3 such crosses": (crosses(3, 1500), 1.03),
    "30 columns and 30 rows of 51": (crosses(30, 51), 1.03),
    "20 blocks of 11 x 11": (blocks(20, 11), 1.05),
    "30 blocks of 8 x 8": (blocks(30, 8), 1.1),
    "40 cells of 34 groups": (many_groups(8, 5, 34), 1.45),
    "a metric on 1,500 paths": (crosses(1, 1500)[:1500], 1.1),
    "a diagonal of 1,000": (many_groups(1000, 1000, 1, diagonal=True), 1.1),
    "a dense table of 60 x 60": (blocks(1, 60), 1.1),
    "a dense table of 130 x 13": (many_groups(130, 13, 1), 1.1),
    "a dense table of 25 x 40 in 3 groups": (many_groups(25, 40, 3), 1.1),
}
