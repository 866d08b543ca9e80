"""Pages of a catalogue that describe one thing differently, against a plain reading of the rule."""

import json
from typing import Any

from hypothesis import given, strategies as st

from asyncfin.model.catalogue import Catalogue, Dataset, join_pages
from asyncfin.wire.codec import read_catalogue_page

ENTITY, PUBLICATION = "O-" + "1" * 32, "11111111-1111-4111-8111-111111111111"
ABSENT = object()
HEAD = {
    "entity_id": ENTITY,
    "name": "Example",
    "dataset_id": PUBLICATION,
    "created_timestamp": "2026-01-02T03:04:05Z",
    "periods": [],
}


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


def join(*bodies: bytes) -> Catalogue:
    pages = [read_catalogue_page(page) for page in bodies]
    return join_pages(Dataset(ENTITY, "Example", PUBLICATION, pages[0].created_timestamp), pages)


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


def first_stated(values: list[Any], empty: Any) -> Any:
    """Return the text that counts: the first that is stated."""
    return next((value for value in values if value not in (None, ABSENT, "", [])), empty)


@given(st.data())
def test_first_stated_text_counts(data: st.DataObject) -> None:
    """Of scopes and reporting groups, on up to five pages."""
    pages = data.draw(st.integers(1, 5))
    kinds = {"name": texts, "description": texts}
    fields: tuple[dict[str, Any], ...] = (
        {**kinds, "role": texts, "aliases": names, "active_start": bounds, "active_end": bounds},
        {**kinds, "basis": texts, "cadence": texts},
    )
    scopes, groups = (
        [{name: data.draw(values) for name, values in names_of.items()} for _ in range(pages)]
        for names_of in fields
    )
    bodies = [
        body(page, [scope(**with_periods(scopes[page]))], [group(**groups[page])]) for page in range(pages)
    ]
    catalogue = join(*bodies)
    (scope_group,), (joined_group,) = catalogue.scope_groups, catalogue.groups
    for drawn, thing in ((scopes, scope_group.scopes[0]), (groups, joined_group)):
        for name in drawn[0]:
            empty: Any = {"aliases": [], "active_start": None, "active_end": None}.get(name, "")
            expected = first_stated([page[name] for page in drawn], empty)
            value = getattr(thing, name)
            if name.startswith("active"):
                value = value and (value.year, value.end_month)
            assert (list(value) if name == "aliases" else value) == expected
    assert len(catalogue) == pages


def with_periods(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: period(value) for name, value in fields.items()}


def test_scopes_of_pages_are_joined() -> None:
    """A page may list all scopes of a group, some, or none (spec 4.2 rule 1)."""
    first, second = scope(), scope(scope_id="b")
    catalogue = join(body(0, [first], []), body(1, [], []), body(2, [second, first], []))
    (group,) = catalogue.scope_groups
    assert [each.scope_id for each in group.scopes] == ["a", "b"]
