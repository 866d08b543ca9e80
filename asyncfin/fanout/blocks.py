"""The plain way to cut wanted series: blocks of metrics by paths, as wide as the caps allow.

Packing beats it wherever series lie thin. Where they lie dense and packing should lose, the blocks win,
so that no plan takes more requests than the best grid of blocks.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any, TypeAlias

from asyncfin.fanout.cells import Cells, Several
from asyncfin.model.query import MAX_METRIC_IDS, MAX_SCOPE_COMBINATIONS
from asyncfin.model.series import CatalogueSeries

Blocks: TypeAlias = dict[int, int]


def grids(cells: Cells, fewer_than: int) -> Iterator[list[Several]]:
    """Return the wanted series by block, for each of the usual grids with fewer blocks than so many."""
    ids = cells.places.metric_ids
    paths_by_id = [[(ref.scope_group_id, ref.scope_id) for ref in path] for path in cells.places.paths]
    crossings = [cell for cell, several in cells.wanted.items() for _ in several]
    metrics = _blocks([metric for metric, _ in crossings], ids.__getitem__, MAX_METRIC_IDS)
    paths = _blocks([path for _, path in crossings], paths_by_id.__getitem__, MAX_SCOPE_COMBINATIONS)
    for of_metric, of_path in product(metrics, paths):
        if _fewer(cells, of_metric, of_path, fewer_than):
            yield _cut(cells, of_metric, of_path)


def _blocks(crossed: Iterable[int], by_id: Callable[[int], Any], size: int) -> list[Blocks]:
    """Return the block of each line: in catalogue order, by id, and the most crossed lines first."""
    crossings = Counter(crossed)
    sorted_by_id = sorted(crossings, key=by_id)
    orders = (crossings, sorted_by_id, sorted(sorted_by_id, key=lambda line: -crossings[line]))
    return [{line: rank // size for rank, line in enumerate(order)} for order in orders]


def _fewer(cells: Cells, of_metric: Blocks, of_path: Blocks, than: int) -> bool:
    blocks: set[tuple[int, int]] = set()
    for metric, path in cells.wanted:
        blocks.add((of_metric[metric], of_path[path]))
        if len(blocks) >= than:
            return False
    return True


def _cut(cells: Cells, of_metric: Blocks, of_path: Blocks) -> list[Several]:
    blocks: dict[tuple[int, int], list[CatalogueSeries]] = {}
    for (metric, path), several in cells.wanted.items():
        blocks.setdefault((of_metric[metric], of_path[path]), []).extend(several)
    return list(blocks.values())
