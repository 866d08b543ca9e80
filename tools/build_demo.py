"""Build the demo dataset from the collected filings: `python -m tools.build_demo
[FOLDER]`.

FOLDER holds the files that `tools/demo_content.py` names; it is `../shared/data` if not
given. The same input gives the same bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from asyncfin.sandbox.dataset import DatasetFile, Period, Publication, Row, dump, load
from tools.demo_content import (
    AXES,
    COMPANIES,
    LEFT_OUT,
    METRICS,
    SCOPE_GROUPS,
    Company,
    Metric,
)

ROOT = Path(__file__).parents[1]
FIRST_YEAR = 2012
CADENCES = {"annual": "Fiscal years", "quarterly": "Quarters and the year so far"}
USUAL = {(month, duration) for month in (3, 6, 9, 12) for duration in (3, month)}

Path_ = tuple[tuple[str, str], ...]
Key = tuple[str, Path_, str]  # (cadence, scope path, metric_id)
Found = dict[Key, dict[Period, Row]]


def main() -> None:
    """Write the file of every company and say what is in it."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "../shared/data"
    for stem, company in COMPANIES.items():
        dataset = build(company, folder)
        content = dump(dataset)
        (ROOT / f"asyncfin/sandbox/demo/{stem}.json.gz").write_bytes(content)
        counts = [len(publication.values) for publication in dataset.publications]
        print(f"{stem}: {len(content):,} bytes, series in each publication: {counts}")


def build(company: Company, folder: Path) -> DatasetFile:
    """The company's dataset with its last publications."""
    source = load(folder / company.file)
    return DatasetFile(
        source.entity_id,
        company.name,
        tuple(
            _publication(company, publication)
            for publication in source.publications[-company.publications :]
        ),
    )


def _publication(company: Company, source: Publication) -> Publication:
    values_by_key = _found(company, source)
    periods = tuple(
        sorted({period for rows in values_by_key.values() for period in rows})
    )
    index = {period: position for position, period in enumerate(periods)}
    groups = _groups(source.entity_id, values_by_key)
    return Publication(
        entity_id=source.entity_id,
        name=company.name,
        dataset_id=str(
            uuid5(NAMESPACE_URL, f"asyncfin-demo {company.name} {source.dataset_id}")
        ),
        created_timestamp=source.created_timestamp,
        periods=periods,
        scope_groups=tuple(_scope_groups(company, values_by_key)),
        groups=tuple(groups),
        values={
            _series_id(source.entity_id, key): tuple(
                (index[period], original, restated)
                for period, (_, original, restated) in sorted(
                    values_by_key[key].items()
                )
            )
            for key in _ordered(values_by_key)
        },
    )


def _found(company: Company, source: Publication) -> Found:
    """The rows of every series that the demo shows, by period."""
    metrics = {concept: metric for metric in METRICS for concept in metric.concepts}
    values_by_key: Found = {}
    ranks: dict[tuple[Key, Period], tuple[Any, ...]] = {}
    for group in source.groups:
        for series in group["series"]:
            metric = metrics.get(series["metric_id"])
            path = _path(company, series["scopes"])
            if metric is None or not path:
                continue
            _refuse_other_meaning(metric, series)
            key = (group["cadence"], path, metric.metric_id)
            for row in source.values[series["series_id"]]:
                period = source.periods[row[0]]
                if not _shown(company, series["metric_id"], period):
                    continue
                rank = _rank(metric, series, row)
                if (key, period) not in ranks or rank < ranks[key, period]:
                    ranks[key, period] = rank
                    values_by_key.setdefault(key, {})[period] = row
    return values_by_key


def _shown(company: Company, concept: str, period: Period) -> bool:
    """Whether the figure is recent enough, of a usual length, and tagged rightly."""
    year = period[0]
    wrong = {(concept, year), (concept, None)} & set(company.wrong)
    return year >= FIRST_YEAR and period[1:] in USUAL and not wrong


def _refuse_other_meaning(metric: Metric, series: Mapping[str, Any]) -> None:
    """Stop where the filings count in another unit, or another way, than we say."""
    for key in ("number_format", "period_meaning"):
        if series[key] != getattr(metric, key):
            raise SystemExit(
                f"{metric.metric_id}: {key} is {series[key]} in the filings"
            )


def _rank(metric: Metric, series: Mapping[str, Any], row: Row) -> tuple[Any, ...]:
    """Of several names for one figure, the one filed first supplies it, then the first
    named.
    """
    original = row[1]
    assert original is not None
    report = original["report_period"]
    concept = metric.concepts.index(series["metric_id"])
    return report["year"], report["end_month"], concept, len(series["scopes"])


def _path(company: Company, scopes: Iterable[Mapping[str, str]]) -> Path_:
    """The scope path in the demo's words, empty if it is not shown."""
    path = []
    for reference in scopes:
        axis, member = reference["scope_group_id"], reference["scope_id"]
        if (axis, member) == LEFT_OUT:
            continue
        if axis not in AXES or member not in company.scopes:
            return ()
        path.append((AXES[axis], company.scopes[member]))
    return tuple(path)


def _ordered(values_by_key: Found) -> list[Key]:
    """The series by cadence, basis, path and metric, in the order of the tables."""
    bases = list(SCOPE_GROUPS)
    metrics = [metric.metric_id for metric in METRICS]
    return sorted(
        values_by_key,
        key=lambda key: (
            key[0],
            bases.index(key[1][0][0]),
            key[1],
            metrics.index(key[2]),
        ),
    )


def _series_id(entity_id: str, key: Key) -> str:
    """An id that says nothing, as those of the service: the same in all publications of
    the company.
    """
    cadence, path, metric_id = key
    scopes = [scope_id for group_id, scope_id in path if group_id != "company"]
    readable = "/".join(
        (metric_id, *scopes, cadence)
    )  # Revenue/annual, Revenue/iPhone/annual
    return "S-" + sha256(f"{entity_id} {readable}".encode()).hexdigest()[:16]


def _groups(entity_id: str, values_by_key: Found) -> Iterator[dict[str, Any]]:
    """The reporting groups: one for each cadence and basis."""
    groups: dict[str, dict[str, Any]] = {}
    metrics = {metric.metric_id: metric for metric in METRICS}
    for key in _ordered(values_by_key):
        cadence, path, metric_id = key
        name, _, _, basis = SCOPE_GROUPS[path[0][0]]
        group_id = f"{cadence}.{basis}"
        title = f"{CADENCES[cadence]}: {name.lower()}"
        group = groups.setdefault(
            group_id,
            {
                "reporting_group_id": group_id,
                "name": title,
                "description": f"{title}.",
                "basis": basis,
                "cadence": cadence,
                "series": [],
            },
        )
        group["series"].append(
            _series(entity_id, key, group_id, basis, metrics[metric_id])
        )
    return iter(groups.values())


def _series(
    entity_id: str, key: Key, group_id: str, basis: str, metric: Metric
) -> dict[str, Any]:
    return {
        "series_id": _series_id(entity_id, key),
        "reporting_group_id": group_id,
        "metric_id": metric.metric_id,
        "label": metric.label,
        "description": metric.description,
        "basis": basis,
        "scopes": [
            {"scope_group_id": group, "scope_id": scope} for group, scope in key[1]
        ],
        "number_format": metric.number_format,
        "period_meaning": metric.period_meaning,
    }


def _scope_groups(company: Company, values_by_key: Found) -> Iterator[dict[str, Any]]:
    """The scope groups that a path uses, with the periods in which each scope has
    values.
    """
    ends: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for (_, path, _), rows in values_by_key.items():
        for reference in path:
            ends.setdefault(reference, []).extend(
                (year, month) for year, month, _ in rows
            )
    for group_id, (name, description, role, _) in SCOPE_GROUPS.items():
        names = dict.fromkeys(company.scopes.values())
        used = [scope_id for scope_id in names if (group_id, scope_id) in ends]
        if used:
            yield {
                "scope_group_id": group_id,
                "name": name,
                "description": f"{description}.",
                "scopes": [_scope(s, role, ends[group_id, s]) for s in used],
            }


def _scope(scope_id: str, role: str, ends: list[tuple[int, int]]) -> dict[str, Any]:
    whole = scope_id == "consolidated"
    name = "Whole company" if whole else scope_id
    (first_year, first_month), (last_year, last_month) = min(ends), max(ends)
    return {
        "scope_id": scope_id,
        "name": name,
        "description": f"{name}.",
        "role": role,
        "aliases": ["Total", "Group"] if whole else [],
        "active_start": {
            "year": first_year,
            "end_month": first_month,
            "duration_months": 0,
        },
        "active_end": {
            "year": last_year,
            "end_month": last_month,
            "duration_months": 0,
        },
    }


if __name__ == "__main__":
    main()
