"""A seeded generator of datasets with the shape of real ones: how sparse, how lopsided, how they grow.

Everything in them is recognisably artificial. The shape follows datasets built from companies' filings: the
consolidated path has most metrics, half of the other paths have one, and few of all pairs exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

from asyncfin.sandbox.dataset import DatasetFile, Period, Publication, Row
from asyncfin.sandbox.dataset_file import period_object
from asyncfin.sandbox.generate_series import Draft, Slot, draft_series, keep_one_version

_USUAL_PERIODS = 19
_QUARTER_ENDS = ((3, (3,)), (6, (3, 6)), (9, (3, 9)), (12, (3, 12)))
_LAST_YEAR = 2025


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

    series: how many the last publication has. Earlier ones lack some of them, the newest periods and
        restatements; original values are the same in all.
    periods: how many fiscal periods at most; those without any value are not listed. None: 19, as is usual.
    fill: the share of all cells that has a value, at random. None: the real shape, in which annual
        series have fiscal years, quarterly ones the rest, all have gaps, and every series has a value. The
        dense shape for measuring is `generate(1, series=100, periods=120, fill=0.6)`.
    one_version: the share of values that exist only restated, or were withdrawn by a restatement, at random.

    Raises ValueError for a number out of range.
    """
    _require("series", series >= 1, series, "1 or more")
    _require("publications", publications >= 1, publications, "1 or more")
    _require("periods", periods is None or periods >= 1, periods, "1 or more, or None")
    _require("fill", fill is None or 0 <= fill <= 1, fill, "0 to 1, or None")
    _require("one_version", 0 <= one_version <= 1, one_version, "0 to 1")
    rng = Random(seed)  # noqa: S311 - nothing is kept secret with it
    slots = _slots(rng, periods or _USUAL_PERIODS, publications)
    drafts = draft_series(rng, series, slots, publications, fill)
    if one_version:
        keep_one_version(rng, drafts, one_version)
    entity_id = f"O-{rng.getrandbits(128):032x}"
    return DatasetFile(
        entity_id,
        f"Generated {seed}",
        tuple(
            _publication(rng, number, entity_id, f"Generated {seed}", drafts)
            for number in range(publications)
        ),
    )


def _require(name: str, right: bool, value: object, wanted: str) -> None:
    if not right:
        raise ValueError(f"{name} is {value!r}; it must be {wanted}")


def _slots(rng: Random, count: int, publications: int) -> list[Slot]:
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
    return [Slot(period, number) for period, number in zip(calendar, since, strict=True)]


def _publication(rng: Random, number: int, entity_id: str, name: str, drafts: list[Draft]) -> Publication:
    """Return what the publication of this number has of everything."""
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
        values={draft.fields["series_id"]: tuple(_rows(draft, number, index)) for draft in present},
    )


def _rows(draft: Draft, number: int, index: dict[Period, int]) -> Iterator[Row]:
    for slot, original, restated, restated_since in draft.cells:
        if slot.since <= number:
            known = restated if restated_since <= number else None
            if original is not None or known is not None:
                yield index[slot.period], original, known


def _groups(drafts: list[Draft]) -> list[dict[str, Any]]:
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


def _scope_groups(drafts: list[Draft], number: int) -> Iterator[dict[str, Any]]:
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
            "active_start": period_object((*min(ends), 0)),
            "active_end": period_object((*max(ends), 0)),
        }
    return scope
