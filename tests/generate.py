"""A seeded generator of datasets with the shape of real ones: how sparse, how lopsided, how they grow.

Everything in them is recognisably artificial. The shape follows datasets built from companies' filings: the
consolidated path has most metrics, half of the other paths have one, and few of all pairs exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Literal
from uuid import UUID

from attrs import define, field, frozen

from asyncfin.sandbox.dataset import DatasetFile, Period, Publication, Row
from asyncfin.sandbox.dataset_file import WITHDRAWN, format_number, make_period

_USUAL_PERIODS = 19
_CADENCES = ("annual", "quarterly", "monthly")
# Each quarter is next to the year to date that ends with it: 6, 9 and 12 months.
_QUARTER_ENDS = ((3, (3,)), (6, (3, 6)), (9, (3, 9)), (12, (3, 12)))
_LAST_YEAR = 2025

_Value = dict[str, Any]
_Path = tuple[tuple[str, str], ...]
_Pair = tuple[str, _Path]

_CONSOLIDATED: _Path = (("company", "consolidated"),)
_BASES = {
    "company": "consolidated",
    "segment": "segment",
    "geography": "geographic",
    "product": "product",
    "legal:entity": "legal_entity",
}
# The last ones hold what the text form of a scope path has to escape, blanks, and letters beyond ASCII.
_AXES = (*list(_BASES)[1:], "customer", "instrument class", "plan | award", "gruppe=größe", "100 %")

_IN_TWO_GROUPS = 0.4  # share of pairs with an annual and a quarterly series
_METRICS, _PATHS, _CONSOLIDATED_METRICS = 0.36, 0.154, 0.27  # per series
_PATH_LENGTHS = {1: 45, 2: 28, 3: 17, 4: 7, 5: 2, 6: 1}
_ODD_IDS = ("share=of|{}", "{} % of total", "größe {}", "a/b?c#d&e+{}")

# number_format, unit, the size of its numbers as powers of ten, decimals; weights beside
_KINDS = {
    ("#,##0", "USD", 5, 11, 0): 90,
    ("0.0%", "ratio", -2, 0, 4): 6,
    ("0.00", "USD per share", -1, 2, 2): 3,
    ("0.00000", "USD per share", -3, 0, 5): 1,
}


@frozen
class _Slot:
    """A fiscal period and the first publication that has it."""

    period: Period
    since: int


@define
class _Draft:
    """A series with its cells: slot, value, restated value, and the first publication that restates."""

    fields: dict[str, Any]
    cadence: str
    since: int = 0
    cells: list[tuple[_Slot, _Value | None, _Value | Literal["withdrawn"] | None, int]] = field(factory=list)


def generate(
    seed: int,
    *,
    series: int = 1000,
    publications: int = 2,
    periods: int | None = None,
    fill: float | None = None,
    one_version: float = 0.0,
) -> DatasetFile:
    """Return a dataset that is the same for the same arguments.

    Args:
        series: how many the last publication has. Earlier ones do not have some of them, nor the newest
            periods and restatements; original values are the same in all.
        periods: how many fiscal periods at most; those without any value are not listed. None: 19, as is
            usual.
        fill: the share of all cells that has a value, at random. None: the real shape, in which annual
            series have fiscal years, quarterly ones the rest, all have gaps, and every series has a value.
            The dense shape for measuring is `generate(1, series=100, periods=120, fill=0.6)`.
        one_version: the share of values that exist only restated, or were withdrawn by a restatement, at
            random.
    """
    rng = Random(seed)
    # All chance comes from this one source, in this order: a call more would change every dataset.
    slots = _slots(rng, periods or _USUAL_PERIODS, publications)
    drafts = draft_series(rng, _chosen(rng, series), slots, publications, fill)
    if one_version:
        keep_one_version(rng, drafts, one_version)
    return _dataset(rng, seed, drafts, publications)


def generate_table(
    seed: int, *, metrics: int, paths: int, density: float = 1.0, blocks: int = 1, groups: int = 1
) -> DatasetFile:
    """Return a dataset whose series lie dense in a table of metrics by scope paths; for planners.

    density: the share of the cells that exist, at random; at least one does.
    blocks: how many blocks the table is cut into; only cells within a block exist.
    groups: how many reporting groups have the table, 1 to 3, each with separate cells.
    """
    rng = Random(seed)
    sides = [_metric_id(number) for number in range(metrics)], _paths(rng, paths)
    possible = [
        ((metric, path), cadence)
        for cadence in _CADENCES[:groups]
        for at, metric in enumerate(sides[0])
        for place, path in enumerate(sides[1])
        if at * blocks // metrics == place * blocks // paths
    ]
    cells = [cell for cell in possible if rng.random() < density] or possible[:1]
    return _dataset(rng, seed, draft_series(rng, cells, _slots(rng, 4, 1), 1, 0.5), 1)


def _dataset(rng: Random, seed: int, drafts: list[_Draft], publications: int) -> DatasetFile:
    entity_id, name = f"O-{rng.getrandbits(128):032x}", f"Generated {seed}"
    return DatasetFile(
        entity_id,
        name,
        tuple(_publication(rng, number, entity_id, name, drafts) for number in range(publications)),
    )


def _slots(rng: Random, count: int, publications: int) -> list[_Slot]:
    """Return the last periods of the calendar; later publications add the newest ones, and one between."""
    years = range(_LAST_YEAR - count // 7, _LAST_YEAR + 1)
    calendar = [
        (year, end_month, duration)
        for year in years
        for end_month, durations in _QUARTER_ENDS
        for duration in durations
    ][-count:]
    step = min(3, (count - 1) // publications)
    since = [max(0, publications - 1 - (count - 1 - n) // step) if step else 0 for n in range(count)]
    if step:
        since[rng.randrange(count - step)] = publications - 1
    return [_Slot(period, number) for period, number in zip(calendar, since, strict=True)]


def _publication(rng: Random, number: int, entity_id: str, name: str, drafts: list[_Draft]) -> Publication:
    """Return the publication of this number."""
    present = [draft for draft in drafts if draft.since <= number]
    periods = sorted({c[0].period for d in present for c in d.cells if c[0].since <= number})
    index = {period: position for position, period in enumerate(periods)}
    created = datetime(_LAST_YEAR, 1, 1, 6, tzinfo=UTC) + timedelta(days=91 * number)
    return Publication(
        entity_id=entity_id,
        name=name,
        dataset_id=str(UUID(int=rng.getrandbits(128), version=4)),
        created_timestamp=created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        periods=tuple(periods),
        scope_groups=tuple(_scope_groups(present, number)),
        groups=tuple(_groups(present)),
        values={draft.fields["series_id"]: tuple(rows(draft, number, index)) for draft in present},
    )


def rows(draft: _Draft, number: int, index: dict[Period, int]) -> Iterator[Row]:
    for slot, original, restated, restated_since in draft.cells:
        if slot.since <= number:
            known = restated if restated_since <= number else None
            if original is not None or known is not None:
                yield index[slot.period], original, known


def _groups(drafts: list[_Draft]) -> list[dict[str, Any]]:
    """Return the reporting groups of these series."""
    groups: dict[str, dict[str, Any]] = {}
    for draft in drafts:
        group_id, basis = draft.fields["reporting_group_id"], draft.fields["basis"]
        group = groups.setdefault(
            group_id,
            {
                "reporting_group_id": group_id,
                "name": f"Generated group {group_id}",
                "description": f"Generated group {group_id}",
                "basis": basis,
                "cadence": draft.cadence,
                "series": [],
            },
        )
        group["series"].append(draft.fields)
    return list(groups.values())


def _scope_groups(drafts: list[_Draft], number: int) -> Iterator[dict[str, Any]]:
    """Yield the scopes that these series use, each with the periods in which it has values."""
    ends: dict[str, dict[str, list[tuple[int, int]]]] = {}
    for draft in drafts:
        own = [c[0].period[:2] for c in draft.cells if c[0].since <= number]
        for reference in draft.fields["scopes"]:
            scopes = ends.setdefault(reference["scope_group_id"], {})
            scopes.setdefault(reference["scope_id"], []).extend(own)
    for group_id, scopes in ends.items():
        yield {
            "scope_group_id": group_id,
            "name": f"Generated {group_id}",
            "description": f"Generated {group_id}",
            "scopes": [_scope(scope_id, group_id, scopes[scope_id]) for scope_id in scopes],
        }


def _scope(scope_id: str, group_id: str, ends: list[tuple[int, int]]) -> dict[str, Any]:
    name = scope_id.removeprefix("gen:")
    scope: dict[str, Any] = {
        "scope_id": scope_id,
        "name": name,
        "description": f"{name} of {group_id}",
        "role": group_id,
        "aliases": [f"{name} alias"] if name.endswith("1") else [],
    }
    if ends:
        scope |= {
            "active_start": make_period((*min(ends), 0)),
            "active_end": make_period((*max(ends), 0)),
        }
    return scope


def draft_series(
    rng: Random,
    chosen: Iterable[tuple[_Pair, str]],
    slots: list[_Slot],
    publications: int,
    fill: float | None,
) -> list[_Draft]:
    """Return a series with cells for each pair and cadence, in catalogue order; `fill` as in `generate`."""
    drafts = [_draft(rng, pair, cadence, slots, publications, fill) for pair, cadence in chosen]
    drafts.sort(key=lambda draft: draft.fields["reporting_group_id"])
    for number, draft in enumerate(drafts):
        draft.fields = {"series_id": f"S-{number:06d}", **draft.fields}
    return drafts


def keep_one_version(rng: Random, drafts: list[_Draft], share: float) -> None:
    """Leave a share of the cells with one value: half of them only restated, half withdrawn."""
    for draft in drafts:
        for at, (slot, original, _, since) in enumerate(draft.cells):
            if rng.random() < share:
                since = max(since, slot.since)
                restated_only = rng.random() < 0.5
                draft.cells[at] = (
                    (slot, None, original, since) if restated_only else (slot, original, WITHDRAWN, since)
                )


def _chosen(rng: Random, count: int) -> Iterator[tuple[_Pair, str]]:
    """Yield as many (metric, path) pairs with a cadence as series are wanted."""
    left = count
    for pair in _pairs(rng, count):
        cadences = ["annual", "quarterly"]
        if rng.random() >= _IN_TWO_GROUPS:
            cadences = [rng.choice(cadences)]
        elif rng.random() < 0.01:
            cadences.append(cadences[0])  # two series of one metric, path and group
        for cadence in cadences[:left]:
            yield pair, cadence
        left -= len(cadences)
        if left <= 0:
            return


def _pairs(rng: Random, series: int) -> Iterator[_Pair]:
    """Yield distinct (metric, path) pairs, at least as many as series, those of the usual shape first."""
    metrics = [_metric_id(n) for n in range(max(1, round(_METRICS * series)))]
    consolidated = metrics[: max(1, round(_CONSOLIDATED_METRICS * series))]
    paths = _paths(rng, round(_PATHS * series))
    wanted = round(series / (1 + _IN_TWO_GROUPS))
    usual = {(metric, _CONSOLIDATED): None for metric in consolidated}
    rest = metrics[len(consolidated) :]
    for path in paths:
        usual[rest.pop() if rest else rng.choice(metrics), path] = None
    broad = paths[: len(paths) // 2]
    # Bounded: in a small dataset most draws are of pairs that are there already.
    for _ in range(4 * wanted):
        if not broad or len(usual) >= wanted:
            break
        # Squared: few paths have many metrics.
        path = broad[int(rng.random() ** 2 * len(broad))]
        usual[rest.pop() if rest else rng.choice(metrics), path] = None
    # In random order, since the caller stops at the number of series wanted.
    yield from rng.sample(list(usual), len(usual))
    # Where the usual shape has too few pairs, metrics that only the consolidated path has fill up.
    for number in range(len(metrics), len(metrics) + series):
        yield _metric_id(number), _CONSOLIDATED


def _metric_id(number: int) -> str:
    """Return an id with a colon, every tenth one with characters that have to be escaped somewhere."""
    if number % 10:
        return f"gen:Metric{number}"
    return f"gen:{_ODD_IDS[number // 10 % len(_ODD_IDS)].format(number)}"


def _paths(rng: Random, count: int) -> list[_Path]:
    """Return distinct scope paths of one to six references; a few are another one backwards."""
    scopes = max(3, count // 6)
    paths: dict[_Path, None] = {}
    while len(paths) < count:
        (length,) = rng.choices(list(_PATH_LENGTHS), list(_PATH_LENGTHS.values()))
        axes = sorted(rng.sample(range(len(_AXES)), length))
        path = tuple((_AXES[a], f"gen:Scope {rng.randrange(scopes)}") for a in axes)
        paths[path] = None
        # A path is ordered (spec 2.3): the same entries the other way round are another path.
        if length > 1 and len(paths) < count and rng.random() < 0.03:
            paths[path[::-1]] = None
    return list(paths)


def _draft(
    rng: Random,
    pair: _Pair,
    cadence: str,
    slots: list[_Slot],
    publications: int,
    fill: float | None,
) -> _Draft:
    """Return a series with its cells."""
    metric_id, path = pair
    # A metric is of one kind everywhere, so the kind comes from its id.
    own = Random(metric_id)
    ((number_format, unit, low, high, decimals),) = own.choices(list(_KINDS), list(_KINDS.values()))
    meaning = own.choice(("over_period", "at_period_end"))
    basis = _BASES.get(path[0][0], "disclosure")
    label = f"Generated metric {metric_id.removeprefix('gen:')}"
    draft = _Draft(
        {
            "reporting_group_id": f"{cadence}.{basis}",
            "metric_id": metric_id,
            "label": label,
            "description": f"{label}. Unit: {unit}.",
            "basis": basis,
            "scopes": [{"scope_group_id": group, "scope_id": scope} for group, scope in path],
            "number_format": number_format,
            "period_meaning": meaning,
        },
        cadence,
    )
    size = 10 ** rng.uniform(low, high)
    for slot in filled(rng, slots, cadence, meaning, fill):
        # Figures of a company move from one period to the next; they are not drawn again.
        size *= rng.uniform(0.9, 1.12)
        draft.cells.append(_cell(rng, slot, size, decimals, number_format, publications))
    # Most series are in all publications.
    first = rng.randrange(publications) if rng.random() < 0.1 else 0
    draft.since = max(first, min((c[0].since for c in draft.cells), default=0))
    return draft


def filled(rng: Random, slots: list[_Slot], cadence: str, meaning: str, fill: float | None) -> list[_Slot]:
    """Return the slots in which a series has a value."""
    if fill is not None:
        return [slot for slot in slots if rng.random() < fill]
    balance = meaning == "at_period_end"
    fitting = [slot for slot in slots if fits(slot.period, cadence, balance)] or slots[-1:]
    # A series is reported for some years, with gaps.
    start = rng.randrange(len(fitting))
    share = rng.uniform(0.2, 1)
    return [s for n, s in enumerate(fitting) if n == start or (n > start and rng.random() < share)]


def fits(period: Period, cadence: str, balance: bool) -> bool:
    """Return whether a series of this cadence has such periods; balances have no year-to-date ones."""
    _, _, duration = period
    if cadence == "annual":
        return duration == 12
    return duration == 3 if balance else duration < 12


def _cell(
    rng: Random, slot: _Slot, size: float, decimals: int, number_format: str, publications: int
) -> tuple[_Slot, dict[str, Any], dict[str, Any] | None, int]:
    """Return a value in its slot, now and then restated a year later."""
    number = rounded(0.0 if rng.random() < 0.02 else size * rng.choice((1, 1, 1, 1, -1)), decimals)
    original = _value(rng, number, slot.period, 0, number_format)
    if rng.random() >= 0.02:
        return slot, original, None, 0
    changed = rounded(number * rng.uniform(0.8, 1.2) + 10**-decimals, decimals)
    restated = _value(rng, changed, slot.period, 1, number_format)
    return slot, original, restated, rng.randrange(slot.since, publications)


def rounded(number: float, decimals: int) -> float:
    return round(number, decimals) if decimals else round(number)


def _value(
    rng: Random, number: float, period: Period, years_later: int, number_format: str
) -> dict[str, Any]:
    """Return a value object (spec 2.4) without its value_version."""
    year, end_month, duration = period
    # A last quarter is often the difference of two reported periods, hence the second source.
    derived = duration == 3 and rng.random() < 0.07
    return {
        "number": number,
        "text": format_number(number, number_format),
        "number_format": number_format,
        "fill_type": "derived" if derived else "reported",
        "report_period": make_period((year + years_later, end_month, 0)),
        "sources": [
            {
                "item_id": f"generated-{year + years_later}-{end_month}",
                "row_index": rng.randrange(200),
                "column_index": column,
            }
            for column in range(1 + derived)
        ],
    }
