"""Publications written cell by cell, how they change at random, and what changed between two of them."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from attrs import evolve, frozen

from asyncfin import Period
from asyncfin.sandbox.dataset import Publication

BEGIN = datetime(2025, 1, 1, 6, tzinfo=UTC)


class Key(NamedTuple):
    """A series of a publication."""

    series_id: str
    metric_id: str = "Revenue"
    group: str = "annual"
    scope: str = "all"

    @property
    def triple(self) -> tuple[str, str, str]:
        return self.metric_id, self.group, self.scope


@frozen
class Cell:
    """A value. `label` is what makes it relabelled where it differs; `source` does not count."""

    number: float
    label: str = "filed"
    source: str = "item"
    report: tuple[int, int] = (2025, 12)


Content = Mapping[Key, Mapping[str, Cell]]
Restated = Mapping[Key, Mapping[str, Cell]]
Change = tuple[str, tuple[str, str, str], str, float | None, float | None]


def entity(number: int) -> str:
    return f"O-{number:032x}"


def dataset_id(number: int) -> str:
    return str(UUID(int=number, version=4))


def publication(
    content: Content,
    *,
    number: int = 1,
    of: str = entity(1),
    created: datetime | None = None,
    restated: Restated | None = None,
    periods: tuple[str, ...] = (),
) -> Publication:
    """Return a publication with these cells, whose catalogue lists these periods and those of the cells."""
    restated = restated or {}
    labels = {label for each in (*content.values(), *restated.values()) for label in each} | {*periods}
    known = sorted(map(Period.parse, labels))
    index = {period.label: at for at, period in enumerate(known)}
    groups = dict.fromkeys(key.group for key in content)
    created = created or BEGIN + timedelta(days=number)
    return Publication(
        entity_id=of,
        name=f"Company {of[-4:]}",
        dataset_id=dataset_id(number),
        created_timestamp=created.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        periods=tuple((each.year, each.end_month, each.duration_months) for each in known),
        scope_groups=(
            {
                "scope_group_id": "company",
                "name": "company",
                "description": "",
                "scopes": [_scope(scope) for scope in dict.fromkeys(key.scope for key in content)],
            },
        ),
        groups=tuple(_group(group, [key for key in content if key.group == group]) for group in groups),
        values={
            key.series_id: tuple(
                sorted(
                    (
                        index[label],
                        cells.get(label) and _value(cells[label]),
                        restated.get(key, {}).get(label) and _value(restated[key][label]),
                    )
                    for label in {**cells, **restated.get(key, {})}
                )
            )
            for key, cells in content.items()
        },
    )


def _scope(scope: str) -> dict[str, Any]:
    return {"scope_id": scope, "name": scope, "description": "", "role": "company", "aliases": []}


def _group(group: str, keys: list[Key]) -> dict[str, Any]:
    return {
        "reporting_group_id": group,
        "name": group,
        "description": "",
        "basis": "consolidated",
        "cadence": group,
        "series": [
            {
                "series_id": key.series_id,
                "reporting_group_id": group,
                "metric_id": key.metric_id,
                "label": f"{key.metric_id} as {key.series_id}",
                "description": "",
                "basis": "consolidated",
                "scopes": [{"scope_group_id": "company", "scope_id": key.scope}],
                "number_format": "#,##0",
                "period_meaning": "over_period",
            }
            for key in keys
        ],
    }


def _value(cell: Cell) -> dict[str, Any]:
    year, month = cell.report
    return {
        "number": cell.number,
        "text": f"{cell.number:,} {cell.label}",
        "number_format": "#,##0",
        "fill_type": "reported",
        "report_period": {"year": year, "end_month": month, "duration_months": 0},
        "sources": [{"item_id": cell.source, "row_index": 0, "column_index": 0}],
    }


def same_series(old: Content, new: Content) -> dict[Key, Key]:
    """The series of the new content that are also in the old, by the rule of identity."""

    def alone(key: Key, content: Content) -> bool:
        return sum(each.triple == key.triple for each in content) == 1

    found = {key: key for key in new if key in old}
    for key in new.keys() - found.keys():
        same = [each for each in old if each.triple == key.triple]
        if len(same) == 1 and alone(key, new):
            found[key] = same[0]
    return found


def expected_changes(old: Content, new: Content) -> list[Change]:
    """What changed, cell by cell: change, triple, period, number, number before."""
    same, found = same_series(old, new), []
    for key, cells in new.items():
        before = old[same[key]] if key in same else {}
        for label, cell in cells.items():
            if label not in before:
                found.append(("appeared", key.triple, label, cell.number, None))
            elif before[label].number != cell.number:
                found.append(("restated", key.triple, label, cell.number, before[label].number))
            elif (before[label].label, before[label].report) != (cell.label, cell.report):
                found.append(("relabelled", key.triple, label, cell.number, cell.number))
    kept = {same[key]: key for key in same}
    for key, cells in old.items():
        now = new[kept[key]] if key in kept else {}
        found += [
            ("vanished", key.triple, label, cell.number, cell.number)
            for label, cell in cells.items()
            if label not in now
        ]
    return sorted(found, key=repr)


def changes_in(table: Any) -> list[Change]:
    """The rows of a table of changes in the same form."""
    names = ("change", "metric_id", "reporting_group_id", "scope_path", "period_label", "number", "before")
    rows = zip(*(table.column(name).to_pylist() for name in names), strict=True)
    return sorted(
        ((change, (metric, group, path.partition("=")[2]), label, number, before)
         for change, metric, group, path, label, number, before in rows),
        key=repr,
    )  # fmt: skip


LABELS = ("FY2020", "FY2021", "FY2022", "FY2023", "FY2024")


def random_content(rng: Random) -> dict[Key, dict[str, Cell]]:
    """Return a few series, two of which may share metric, group and scope path."""
    keys = {
        Key(f"S-{at}", rng.choice(("Revenue", "Cost")), "annual", rng.choice(("all", "part")))
        for at in range(rng.randint(0, 5))
    }
    return {
        key: {label: Cell(float(rng.randint(0, 3))) for label in LABELS if rng.random() < 0.6}
        for key in sorted(keys)
    }


def next_night(rng: Random, content: Content) -> dict[Key, dict[str, Cell]]:
    """Return the content after a random change of values, texts, sources, periods or series."""
    new = {key: dict(cells) for key, cells in content.items()}
    for _ in range(rng.randint(0, 3)):
        key = rng.choice(sorted(new)) if new else None
        match rng.choice(
            ("number", "label", "source", "period", "gone", "series", "rename", "renumber", "reuse", "drop")
        ):
            case "series":
                new |= {each: cells for each, cells in random_content(rng).items() if each not in new}
            case "drop" if key:
                del new[key]
            case "rename" if key:
                renamed = key._replace(series_id=f"R-{rng.randint(0, 3)}")
                if renamed.series_id not in {each.series_id for each in new}:
                    new[renamed] = new.pop(key)
            case "renumber":
                keys = rng.sample(sorted(new), len(new))
                new = {each._replace(series_id=f"S-{at}"): new[each] for at, each in enumerate(keys)}
            case "reuse" if key:
                other = key._replace(
                    metric_id=rng.choice(("Revenue", "Cost")), scope=rng.choice(("all", "part"))
                )
                new[other] = new.pop(key)
            case kind if key:
                _change_cell(rng, kind, new[key])
    ids = [key.series_id for key in new]
    return {key: cells for key, cells in new.items() if ids.count(key.series_id) == 1}


def _change_cell(rng: Random, kind: str, cells: dict[str, Cell]) -> None:
    label = rng.choice(LABELS)
    if kind == "period":
        cells[label] = Cell(float(rng.randint(0, 3)))
    elif kind == "gone":
        cells.pop(label, None)
    elif label in cells:
        cell = cells[label]
        match kind:
            case "number":
                cells[label] = evolve(cell, number=float(rng.randint(0, 3)))
            case "label":
                cells[label] = evolve(cell, label=rng.choice(("filed", "amended")))
            case "source":
                cells[label] = evolve(cell, source=f"item {rng.randint(0, 9)}")


def nights(rng: Random, count: int) -> Iterator[dict[Key, dict[str, Cell]]]:
    """Yield the content of each night; some return to that of an earlier one."""
    seen = [random_content(rng)]
    yield seen[0]
    for _ in range(count - 1):
        seen.append(rng.choice(seen) if rng.random() < 0.2 else next_night(rng, seen[-1]))
        yield seen[-1]
