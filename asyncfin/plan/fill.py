"""Widen the batches of a plan to full pages, for a cache: a page costs one request,
whatever is on it.

A batch is widened by the series nearest to it: the same metrics and paths in other
groups, then further metrics on the same paths, further paths of these metrics, and so
on; then by the path with the most uncached series.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from itertools import chain
from operator import attrgetter
from typing import TypeVar

from attrs import evolve

from asyncfin.model.catalogue import Catalogue
from asyncfin.model.query import (
    MAX_METRIC_IDS,
    MAX_PAGE_SIZE,
    MAX_PATH_ENTRIES,
    MAX_SCOPE_COMBINATIONS,
)
from asyncfin.model.scope import ScopePath
from asyncfin.model.selection import FiscalRange, Trailing
from asyncfin.model.series import CatalogueSeries
from asyncfin.plan.plan import Batch, Plan, join_home_ids, make_batches

L = TypeVar("L")
_series_id = attrgetter("series_id")
_metric = attrgetter("metric_id")
_path = attrgetter("scopes")


def adapt_to_cache(
    plan: Plan, cached_ids: Set[str], unlisted_ids: Set[str], *, fill: bool = True
) -> Plan:
    """Return a plan that requests only what is neither cached nor unlisted.

    With `fill` it requests all periods, and pages as full as possible, for later
    queries.
    """
    # An unlisted series has no values.
    available = cached_ids | unlisted_ids
    missing_series, cached_series = [], []
    for series in plan.series:
        if series.series_id not in available:
            missing_series.append(series)
        if series.series_id in cached_ids:
            cached_series.append(series)
    periods = plan.periods
    needs_all = fill or isinstance(periods, Trailing)
    if periods is not None and needs_all:
        periods = plan.catalogue.resolve(FiscalRange())
    missing_ids = set(map(_series_id, missing_series))
    has_periods = all(batch.periods == periods for batch in plan.batches)
    if plan.batches and has_periods and join_home_ids(plan.batches) == missing_ids:
        return plan  # nothing was cached since it was made
    version = plan.question.value_version
    batches = make_batches(plan.catalogue, missing_series, periods, version)
    if fill:
        batches = _fill_batches(batches, plan.catalogue, available)
    return evolve(plan, batches=batches, cached=tuple(cached_series))


def _fill_batches(
    batches: Sequence[Batch], catalogue: Catalogue, available: Set[str]
) -> tuple[Batch, ...]:
    """Widen batches with uncached series, at no extra request."""
    uncached_ids = set(catalogue.places) - available
    for batch in batches:
        uncached_ids -= batch.matched
    # Each round of `_widen` examines the whole catalogue.
    if not uncached_ids:
        return tuple(batches)
    wider = []
    for batch in batches:
        if batch.requests == 1:  # a batch of several pages has no room
            batch = _widen(batch, catalogue, uncached_ids)
            uncached_ids -= batch.matched
        wider.append(batch)
    return tuple(wider)


def _widen(batch: Batch, catalogue: Catalogue, uncached_ids: Collection[str]) -> Batch:
    metrics = dict.fromkeys(batch.metric_ids)
    paths = dict.fromkeys(batch.scope_combinations)
    groups = batch.reporting_group_ids
    # The nearest are the same metrics and paths in the other groups, if all of them
    # fit.
    matches = _match(catalogue, metrics, paths, None)
    if len(matches) <= MAX_PAGE_SIZE:
        groups = None
    else:
        matches = _match(catalogue, metrics, paths, groups)
    room = MAX_PAGE_SIZE - len(matches)
    # Each round chooses a metric or a path, and there are few of either.
    while room:
        rows = map(catalogue.by_path.__getitem__, paths)
        series = _select_queryable(chain.from_iterable(rows), groups)
        used = _add(metrics, MAX_METRIC_IDS, series, _metric, uncached_ids, room)
        rows = map(catalogue.by_metric.__getitem__, metrics)
        series = _select_queryable(chain.from_iterable(rows), groups)
        max_paths = MAX_SCOPE_COMBINATIONS
        used += _add(paths, max_paths, series, _path, uncached_ids, room - used)
        room -= used
        if used:
            continue
        if len(metrics) >= MAX_METRIC_IDS or len(paths) >= MAX_SCOPE_COMBINATIONS:
            break
        # Nothing near is left: continue with the path that has the most uncached
        # series.
        counts = Counter[ScopePath]()
        for item in _select_queryable(catalogue.series, groups):
            if item.series_id in uncached_ids:
                counts[item.scopes] += 1
        for path, _ in counts.most_common():
            if path in paths:
                continue
            row = _select_queryable(catalogue.by_path[path], groups)
            cost = sum(item.metric_id in metrics for item in row)
            if cost < room:
                paths[path] = None
                room -= cost
                break
        else:
            break
    matches = _match(catalogue, metrics, paths, groups)
    return evolve(
        batch,
        metric_ids=tuple(metrics),
        scope_combinations=tuple(paths),
        reporting_group_ids=groups,
        matched=frozenset(map(_series_id, matches)),
    )


def _add(
    batch_lines: dict[L, None],
    max_lines: int,
    series: Iterable[CatalogueSeries],
    line_of: Callable[[CatalogueSeries], L],
    uncached_ids: Collection[str],
    room: int,
) -> int:
    """Choose more metrics or paths, those with the largest uncached share first; return
    the room taken.
    """
    lines: dict[L, list[CatalogueSeries]] = {}
    for item in series:
        line = line_of(item)
        if line not in batch_lines:
            lines.setdefault(line, []).append(item)
    # By the share and not by the number: cached series would be read a second time.
    shares: dict[L, float] = {}
    for line, items in lines.items():
        uncached_count = sum(item.series_id in uncached_ids for item in items)
        if uncached_count:
            shares[line] = uncached_count / len(items)
    used = 0
    # The sort keeps the catalogue's order among equals, so that equal queries have
    # equal plans.
    for line in sorted(shares, key=lambda line: -shares[line]):
        if len(batch_lines) < max_lines and used + len(lines[line]) <= room:
            batch_lines[line] = None
            used += len(lines[line])
    return used


def _select_queryable(
    series: Iterable[CatalogueSeries], groups: Collection[str] | None
) -> Iterator[CatalogueSeries]:
    """Yield the series that a query of these groups can match within the caps of spec
    8.
    """
    for item in series:
        has_group = groups is None or item.reporting_group_id in groups
        if has_group and len(item.scopes) <= MAX_PATH_ENTRIES:
            yield item


def _match(
    catalogue: Catalogue,
    metrics: Iterable[str],
    paths: Collection[ScopePath],
    groups: Collection[str] | None,
) -> list[CatalogueSeries]:
    matches = []
    for metric in metrics:
        for series in _select_queryable(catalogue.by_metric[metric], groups):
            if series.scopes in paths:
                matches.append(series)
    return matches
