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
from asyncfin.model.selection import FiscalRange
from asyncfin.model.series import CatalogueSeries
from asyncfin.plan.plan import Batch, Plan, batches_of, requested_periods

L = TypeVar("L")
_metric = attrgetter("metric_id")
_path = attrgetter("scopes")


def for_cache(
    plan: Plan, cached_ids: Set[str], unlisted_ids: Set[str], *, fill: bool = True
) -> Plan:
    """Return a plan that requests only what is not cached, and what is not known to be
    unlisted.

    With `fill` it requests all periods, and pages as full as possible, for later
    questions.
    """
    # An unlisted series is known to be empty.
    available = cached_ids | unlisted_ids
    missing = [series for series in plan.series if series.series_id not in available]
    periods = plan.periods
    if periods is not None:
        periods = (
            plan.catalogue.resolve(FiscalRange())
            if fill
            else requested_periods(plan.catalogue, periods)
        )
    if plan.batches and all(batch.periods == periods for batch in plan.batches):
        home = set().union(*(batch.home for batch in plan.batches))
        if home == {series.series_id for series in missing}:
            return plan  # nothing was cached since it was made
    batches = batches_of(plan.catalogue, missing, periods, plan.question.value_version)
    if fill:
        batches = _fill_batches(batches, plan.catalogue, available)
    return evolve(
        plan,
        batches=batches,
        cached=tuple(
            series for series in plan.series if series.series_id in cached_ids
        ),
    )


def _fill_batches(
    batches: Sequence[Batch], catalogue: Catalogue, available: Set[str]
) -> tuple[Batch, ...]:
    """Widen batches with uncached series, at no extra request."""
    uncached_ids = {series.series_id for series in catalogue.series}.difference(
        available, *(batch.matched for batch in batches)
    )
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
    metrics, paths = (
        dict.fromkeys(batch.metric_ids),
        dict.fromkeys(batch.scope_combinations),
    )
    groups = batch.reporting_group_ids
    # The nearest are the same metrics and paths in the other groups, if all of them
    # fit.
    if (
        groups is not None
        and len(_match(catalogue, metrics, paths, None)) <= MAX_PAGE_SIZE
    ):
        groups = None
    room = MAX_PAGE_SIZE - len(_match(catalogue, metrics, paths, groups))
    grows = True
    while (
        grows and room
    ):  # each round chooses a metric or a path, and there are few of either
        on_paths = _select_queryable(
            chain.from_iterable(map(catalogue.by_path.__getitem__, paths)), groups
        )
        used = _add(metrics, MAX_METRIC_IDS, on_paths, _metric, uncached_ids, room)
        of_metrics = _select_queryable(
            chain.from_iterable(map(catalogue.by_metric.__getitem__, metrics)), groups
        )
        used += _add(
            paths,
            MAX_SCOPE_COMBINATIONS,
            of_metrics,
            _path,
            uncached_ids,
            room - used,
        )
        grows, room = used > 0, room - used
        if (
            not grows
            and len(metrics) < MAX_METRIC_IDS
            and len(paths) < MAX_SCOPE_COMBINATIONS
        ):
            # Nothing near is left: continue with the path that has the most uncached
            # series.
            counts = Counter(
                s.scopes
                for s in _select_queryable(catalogue.series, groups)
                if s.series_id in uncached_ids
            )
            for path in [path for path, _ in counts.most_common() if path not in paths]:
                cost = sum(
                    s.metric_id in metrics
                    for s in _select_queryable(catalogue.by_path[path], groups)
                )
                if cost < room:
                    paths[path] = None
                    grows, room = True, room - cost
                    break
    return evolve(
        batch,
        metric_ids=tuple(metrics),
        scope_combinations=tuple(paths),
        reporting_group_ids=groups,
        matched=frozenset(
            series.series_id for series in _match(catalogue, metrics, paths, groups)
        ),
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
    share = {
        line: sum(item.series_id in uncached_ids for item in items) / len(items)
        for line, items in lines.items()
    }
    used = 0
    # The sort keeps the catalogue's order among equals, so that equal questions have
    # equal plans.
    for line in sorted(lines, key=lambda line: -share[line]):
        if (
            share[line]
            and len(batch_lines) < max_lines
            and used + len(lines[line]) <= room
        ):
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
    return [
        series
        for metric in metrics
        for series in catalogue.by_metric[metric]
        if series.scopes in paths
        and (groups is None or series.reporting_group_id in groups)
    ]
