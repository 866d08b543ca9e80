"""Pages of a catalogue that describe one thing differently, against a plain reading of the rule."""

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, strategies as st

from asyncfin.errors import MalformedAnswerError, SelectionError
from asyncfin.events import Deviated, Event
from asyncfin.model.catalogue import Catalogue, Dataset
from asyncfin.model.judge import judge
from asyncfin.model.select import Select
from asyncfin.wire.codec import read_catalogue_page
from asyncfin.wire.join import joined
from asyncfin.wire.tolerance import STRICT, Tolerance

ENTITY, PUBLICATION = "O-" + "1" * 32, "11111111-1111-4111-8111-111111111111"
ABSENT = object()
HEAD = {
    "entity_id": ENTITY,
    "name": "Example",
    "dataset_id": PUBLICATION,
    "created_timestamp": "2026-01-02T03:04:05Z",
    "periods": [],
}
DIFFERS = "differs between pages"


def thing(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not ABSENT}


def body(number: int, scopes: list[dict[str, Any]], groups: list[dict[str, Any]]) -> bytes:
    """Return a page with a scope group of these scopes, and these reporting groups with a series each."""
    listed = [
        group
        | {
            "series": [
                {
                    "series_id": f"s{number}.{place}",
                    "reporting_group_id": group["reporting_group_id"],
                    "metric_id": "m",
                    "label": "L",
                    "description": "D",
                    "basis": "b",
                    "scopes": [],
                    "number_format": "0",
                    "period_meaning": "p",
                }
            ]
        }
        for place, group in enumerate(groups)
    ]
    scope_groups = [{"scope_group_id": "sg", "name": "N", "description": "D", "scopes": scopes}]
    return json.dumps(HEAD | {"scope_groups": scope_groups, "groups": listed}).encode()


def join(*bodies: bytes, tolerance: Tolerance | None = None) -> Catalogue:
    tolerance = tolerance or Tolerance()
    pages = [asyncio.run(read_catalogue_page(each, tolerance)) for each in bodies]
    return joined(Dataset(ENTITY, "Example", PUBLICATION, pages[0].created_timestamp), pages, tolerance)


def scope(**fields: Any) -> dict[str, Any]:
    return thing(
        {"scope_id": "a", "name": "A", "description": "D", "role": "r", "aliases": ["x"]}
        | {"active_start": None, "active_end": None}
        | fields
    )


def group(**fields: Any) -> dict[str, Any]:
    known = {"reporting_group_id": "g", "name": "G", "description": "D", "basis": "b", "cadence": "annual"}
    return thing(known | fields)


texts = st.sampled_from(["x", "y", "z", "", None, ABSENT])
names = st.sampled_from([["x"], ["y", "x"], [], None, ABSENT])
bounds = st.sampled_from([None, ABSENT, (2020, 1), (2021, 6)])


def period(bound: Any) -> Any:
    return (
        bound
        if not isinstance(bound, tuple)
        else dict(zip(("year", "end_month"), bound, strict=True)) | {"duration_months": 0}
    )


def expected(values: list[Any], path: str) -> tuple[Any, Counter[tuple[str, str]]]:
    """Return the text that is taken, and what is reported, by the rule: the first that is stated wins."""
    stated = [value for value in values if value not in (None, ABSENT, "", [])]
    empty: Any = [] if path.endswith("aliases") else ""
    taken = stated[0] if stated else empty
    counts = Counter[tuple[str, str]]()
    for value in values:
        if value is None or value is ABSENT:
            counts[path, "null" if value is None else "missing"] += 1
        elif value != taken:
            counts[path, DIFFERS] += 1
    return taken, counts


@given(st.data())
def test_the_first_stated_text_wins_and_the_others_are_counted(data: st.DataObject) -> None:
    """Of scopes and reporting groups, on up to five pages; null and absent ones are reported as that only."""
    pages = data.draw(st.integers(1, 5))
    fields = {
        "$.scope_groups[*].scopes[*]": {"name": texts, "description": texts, "role": texts, "aliases": names},
        "$.groups[*]": {"name": texts, "description": texts, "basis": texts, "cadence": texts},
    }
    drawn = {
        path: {name: data.draw(st.lists(each, min_size=pages, max_size=pages)) for name, each in of.items()}
        for path, of in fields.items()
    }
    scopes, groups = (
        [{name: values[page] for name, values in of.items()} for page in range(pages)]
        for of in drawn.values()
    )
    catalogue = join(*(body(page, [scope(**scopes[page])], [group(**groups[page])]) for page in range(pages)))
    counts = Counter[tuple[str, str]]()
    found = (catalogue.scope_groups[0].scopes[0], catalogue.groups[0])
    for (path, of), read in zip(drawn.items(), found, strict=True):
        for name, values in of.items():
            taken, reported = expected(values, f"{path}.{name}")
            value = getattr(read, name)
            assert (list(value) if name == "aliases" else value) == taken
            counts += reported
    assert {(each.path, each.problem): each.count for each in catalogue.deviations} == counts
    cadences = {value for value in drawn["$.groups[*]"]["cadence"] if isinstance(value, str)} - {""}
    assert catalogue.several_cadences == (("g",) if len(cadences) > 1 else ())
    assert len(catalogue) == pages


@given(st.lists(st.tuples(bounds, bounds), min_size=1, max_size=5))
def test_bounds_of_activity_that_differ_are_none(drawn: list[tuple[Any, Any]]) -> None:
    """All entries that state one are counted; beside null the stated one is taken, without a report."""
    catalogue = join(
        *(
            body(page, [scope(active_start=period(start), active_end=period(end))], [])
            for page, (start, end) in enumerate(drawn)
        )
    )
    read = catalogue.scope_groups[0].scopes[0]
    reported = {each.path: (each.problem, each.count) for each in catalogue.deviations}
    for at, name in enumerate(("active_start", "active_end")):
        stated = [each[at] for each in drawn if isinstance(each[at], tuple)]
        path, bound = f"$.scope_groups[*].scopes[*].{name}", getattr(read, name)
        if len(set(stated)) > 1:
            assert (bound, reported.pop(path)) == (None, (DIFFERS, len(stated)))
        else:
            assert (bound and (bound.year, bound.end_month)) == (stated[0] if stated else None)
    assert not reported


def test_a_text_of_the_first_page_only_is_counted_for_each_page() -> None:
    """Also where the other pages repeat the same bytes, which are read once; and on one page twice."""
    first, later = scope(description="first"), scope(description="later")
    catalogue = join(body(0, [first], []), *(body(page, [later], []) for page in range(1, 8)))
    (deviation,) = catalogue.deviations
    assert (deviation.path, deviation.problem, deviation.count) == (
        "$.scope_groups[*].scopes[*].description",
        DIFFERS,
        7,
    )
    (deviation,) = join(body(0, [first, later, later], [])).deviations
    assert deviation.count == 2


def test_a_difference_is_announced() -> None:
    """As a `Deviated` event of the request, like others."""
    events: list[Event] = []
    join(
        body(0, [], [group()]),
        body(1, [], [group(basis="other")]),
        tolerance=Tolerance(announce=events.append, operation="catalogue", entity_id=ENTITY),
    )
    assert events == [Deviated("catalogue", ENTITY, "$.groups[*].basis", DIFFERS, 1)]


@pytest.mark.parametrize(
    ("bodies", "problem"),
    [
        (
            [body(0, [scope()], []), body(1, [], []), body(2, [scope(role="other")], [])],
            r"the role of scope 'a' differs: pages 1 and 3 @ \$\.scope_groups\[\*\]\.scopes\[\*\]\.role",
        ),
        (
            [body(0, [], [group()]), body(1, [], [group(cadence="quarterly")])],
            r"the cadence of reporting group 'g' differs: pages 1 and 2 @ \$\.groups\[\*\]\.cadence",
        ),
        (
            [
                body(0, [scope(active_start=period((2020, 1)))], []),
                body(1, [scope(active_start=period((2021, 1)))], []),
            ],
            "the active_start of scope 'a' differs: pages 1 and 2 @",
        ),
        ([body(0, [scope(), scope(name="B")], [])], "the name of scope 'a' differs: page 1 @"),
    ],
)
def test_a_strict_client_refuses_it_and_names_id_field_and_pages(bodies: list[bytes], problem: str) -> None:
    """The numbers of both pages, from 1 on."""
    with pytest.raises(MalformedAnswerError, match=problem):
        join(*bodies, tolerance=STRICT)


def test_a_select_by_cadence_is_undecided_where_pages_state_several() -> None:
    """By either of them; series of other groups are decided, and so is a Select that does not name it."""
    other = group(reporting_group_id="h", cadence="quarterly")
    catalogue = join(
        body(0, [], [group(cadence=None), other]),
        body(1, [], [group(cadence="annual")]),
        body(2, [], [group(cadence="quarterly")]),
    )
    assert catalogue.several_cadences == ("g",)
    assert catalogue.groups[0].cadence == "annual"
    for cadence in ("annual", "quarterly"):
        judged = judge(catalogue, Select(cadence=cadence))
        assert judged.undecided == {"cadence": ("s0.0", "s1.0", "s2.0")}
        assert "s0.0" not in {each.series_id for each in judged.series}
        with pytest.raises(SelectionError, match=r"states none or different ones for s0\.0, s1\.0, s2\.0"):
            catalogue.select(Select(cadence=cadence))
    assert [each.series_id for each in judge(catalogue, Select(cadence="quarterly")).series] == ["s0.1"]
    assert len(catalogue.select(Select(basis="b"))) == 4
