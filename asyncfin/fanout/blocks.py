"""The plain way to cut wanted series: blocks of metrics by paths, as wide as the caps allow.

Packing beats it wherever series lie thin. Where they lie dense and packing should lose, the blocks win,
so that no plan takes more requests than the best grid of blocks.
"""

from collections.abc import Iterator
from itertools import product

from asyncfin.fanout.cells import Cell, Cells, Part
from asyncfin.model.query import MAX_METRIC_IDS, MAX_SCOPE_COMBINATIONS
from asyncfin.model.series import CatalogueSeries

Order = dict[int, int]


def grids(cells: Cells, fewer_than: int) -> Iterator[list[Part]]:
    """Return the parts of every grid that has fewer blocks than so many, in each of the usual orders."""
    metrics = _orders([metric for metric, _ in cells.wanted], list(cells.metrics))
    paths = _orders([path for _, path in cells.wanted], list(cells.paths))
    for by_metric, by_path in product(metrics, paths):
        if len({_block(cell, by_metric, by_path) for cell in cells.wanted}) < fewer_than:
            yield _parts(cells, by_metric, by_path)


def _orders(crossed: list[int], keys: list[object]) -> list[Order]:
    """Return the rank of each line: in catalogue order, by id, and the most crossed first."""
    crossings = [0] * len(keys)
    for line in crossed:
        crossings[line] += 1
    lines = range(len(keys))
    orders = (lines, sorted(lines, key=lambda x: keys[x]), sorted(lines, key=lambda x: -crossings[x]))
    return [{line: rank for rank, line in enumerate(order)} for order in orders]


def _block(cell: Cell, metrics: Order, paths: Order) -> tuple[int, int]:
    return metrics[cell[0]] // MAX_METRIC_IDS, paths[cell[1]] // MAX_SCOPE_COMBINATIONS


def _parts(cells: Cells, metrics: Order, paths: Order) -> list[Part]:
    parts: dict[tuple[int, int], list[CatalogueSeries]] = {}
    for cell, several in cells.wanted.items():
        parts.setdefault(_block(cell, metrics, paths), []).extend(several)
    return list(parts.values())
