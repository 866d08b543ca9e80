"""Fills the batches of a plan up to full pages, for a cache: a page costs one request, whatever it brings.

What is asked for along with the wanted series is nearest to them: the same metrics and paths in other
groups, further metrics on the same paths, further paths for these, and so on; then the path that lacks most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from itertools import chain
from operator import attrgetter
from typing import Any, TypeVar

from attrs import evolve

from asyncfin.model.catalogue import Catalogue
from asyncfin.model.period import FiscalRange
from asyncfin.model.query import MAX_METRIC_IDS, MAX_PAGE_SIZE, MAX_PATH_ENTRIES, MAX_SCOPE_COMBINATIONS
from asyncfin.model.scope import ScopePath
from asyncfin.model.series import CatalogueSeries
from asyncfin.plan.plan import Batch, Plan, batches_of, requested_periods

L = TypeVar("L")
_metric = attrgetter("metric_id")
_path = attrgetter("scopes")


def for_cache(plan: Plan, at_hand: Set[str], left_out: Set[str], *, fill: bool = True) -> Plan:
    """Return a plan that asks only for what is not at hand.

    Args:
        at_hand: the ids of the series that are cached.
        left_out: the ids of those that the service does not list, and that are not asked for again.
        fill: whether to ask with all periods, and in pages as full as they get, for the next questions' sake.
    """
    # What the service leaves out is as good as at hand: it is known to be empty.
    known = at_hand | left_out
    missing = [series for series in plan.series if series.series_id not in known]
    periods = plan.periods
    if periods is not None and plan.catalogue.periods:
        periods = (
            plan.catalogue.resolve(FiscalRange()) if fill else requested_periods(plan.catalogue, periods)
        )
    if plan.batches and all(batch.periods == periods for batch in plan.batches):
        home = set().union(*(batch.home for batch in plan.batches))
        if home == {series.series_id for series in missing}:
            return plan  # nothing has come since it was made
    batches = batches_of(plan.catalogue, missing, periods, plan.question.value_version)
    if fill:
        batches = _filled(batches, plan.catalogue, known)
    cached = tuple(series for series in plan.series if series.series_id in at_hand)
    return evolve(plan, batches=batches, cached=cached)


def _filled(batches: Sequence[Batch], catalogue: Catalogue, at_hand: Set[str]) -> tuple[Batch, ...]:
    """Return batches that bring more of what is neither at hand nor in another batch, in as many requests."""
    lacking = {series.series_id for series in catalogue.series} - at_hand
    # First of all what the batches bring as they are: no batch is filled with what comes in the next one.
    for batch in batches:
        lacking -= batch.matched
    # As where all series were asked for: each round below looks at all of the catalogue.
    if not lacking:
        return tuple(batches)
    wider = []
    for batch in batches:
        if batch.requests == 1:  # what follows a cursor has no room
            batch = _widened(batch, catalogue, lacking)
            lacking -= batch.matched
        wider.append(batch)
    return tuple(wider)


def _widened(batch: Batch, catalogue: Catalogue, lacking: Collection[str]) -> Batch:
    metrics, paths = dict.fromkeys(batch.metric_ids), dict.fromkeys(batch.scope_combinations)
    groups = batch.reporting_group_ids
    # The nearest are the same metrics and paths in the other groups, if all of them fit.
    if groups is not None and len(_matched(catalogue, metrics, paths, None)) <= MAX_PAGE_SIZE:
        groups = None
    room = MAX_PAGE_SIZE - len(_matched(catalogue, metrics, paths, groups))
    grows = True
    while grows and room:  # each round chooses a metric or a path, and there are few of either
        on_paths = _asked(chain.from_iterable(map(catalogue.by_path.__getitem__, paths)), groups)
        taken = _add(metrics, MAX_METRIC_IDS, on_paths, _metric, lacking, room)
        of_metrics = _asked(chain.from_iterable(map(catalogue.by_metric.__getitem__, metrics)), groups)
        taken += _add(paths, MAX_SCOPE_COMBINATIONS, of_metrics, _path, lacking, room - taken)
        grows, room = taken > 0, room - taken
        if not grows and len(metrics) < MAX_METRIC_IDS and len(paths) < MAX_SCOPE_COMBINATIONS:
            # Nothing near is left: go on where most lacks.
            lacks = Counter(s.scopes for s in _asked(catalogue.series, groups) if s.series_id in lacking)
            for path in [path for path, _ in lacks.most_common() if path not in paths]:
                cost = sum(s.metric_id in metrics for s in _asked(catalogue.by_path[path], groups))
                if cost < room:
                    paths[path] = None
                    grows, room = True, room - cost
                    break
    return evolve(
        batch,
        metric_ids=tuple(metrics),
        scope_combinations=tuple(paths),
        reporting_group_ids=groups,
        matched=frozenset(series.series_id for series in _matched(catalogue, metrics, paths, groups)),
    )


def _add(
    chosen: dict[L, None],
    most: int,
    series: Iterable[CatalogueSeries],
    line_of: Any,
    lacking: Collection[str],
    room: int,
) -> int:
    """Choose more metrics or paths, those first whose series lack all, then most; return the room taken."""
    lines: dict[L, list[CatalogueSeries]] = {}
    for each in series:
        if (line := line_of(each)) not in chosen:
            lines.setdefault(line, []).append(each)
    # By the share that lacks, not by the number: what is at hand would be read a second time.
    share = {line: sum(s.series_id in lacking for s in found) / len(found) for line, found in lines.items()}
    taken = 0
    # The sort keeps the catalogue's order among equals, so that the same question is filled alike.
    for line in sorted(lines, key=lambda line: -share[line]):
        if share[line] and len(chosen) < most and taken + len(lines[line]) <= room:
            chosen[line] = None
            taken += len(lines[line])
    return taken


def _asked(series: Iterable[CatalogueSeries], groups: Collection[str] | None) -> Iterator[CatalogueSeries]:
    """Yield the series that a query of these groups can match, spec 8 considered."""
    for each in series:
        if len(each.scopes) <= MAX_PATH_ENTRIES and (groups is None or each.reporting_group_id in groups):
            yield each


def _matched(
    catalogue: Catalogue,
    metrics: Iterable[str],
    paths: Collection[ScopePath],
    groups: Collection[str] | None,
) -> list[CatalogueSeries]:
    return [
        series
        for metric in metrics
        for series in catalogue.by_metric[metric]
        if series.scopes in paths and (groups is None or series.reporting_group_id in groups)
    ]
