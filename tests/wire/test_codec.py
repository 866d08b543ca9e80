"""The codec is strict: nothing is coerced, unknown fields and words pass, problems name their JSON path."""

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, strategies as st

from asyncfin.errors import MalformedAnswerError
from asyncfin.model.catalogue import CataloguePage
from asyncfin.model.period import Period
from asyncfin.model.scope import ScopeRef
from asyncfin.wire.codec import decode_dataset, decode_json, read_catalogue_page

Place = tuple[str | int, ...]


METADATA = {
    "entity_id": "O-" + "a1" * 16,
    "name": "Example",
    "dataset_id": "00000000-0000-4000-8000-000000000001",
    "created_timestamp": "2024-05-01T06:00:00Z",
}
SERIES = {
    "series_id": "s1",
    "reporting_group_id": "income",
    "metric_id": "Revenue",
    "label": "Revenue",
    "description": "in USD",
    "basis": "segment",
    "scopes": [
        {"scope_group_id": "segment", "scope_id": "cloud"},
        {"scope_group_id": "region", "scope_id": "emea"},
    ],
    "number_format": "#,##0",
    "period_meaning": "flow",
}
PAGE = METADATA | {
    "periods": [
        {"year": 2023, "end_month": 12, "duration_months": 12},
        {"year": 2024, "end_month": 3, "duration_months": 3},
    ],
    "scope_groups": [
        {
            "scope_group_id": "segment",
            "name": "Segments",
            "description": "As reported",
            "scopes": [
                {
                    "scope_id": "cloud",
                    "name": "Cloud",
                    "description": "Hosted services",
                    "role": "segment",
                    "aliases": ["Azure", "Hosted"],
                    "active_start": {"year": 2020, "end_month": 1, "duration_months": 0},
                    "active_end": {"year": 2024, "end_month": 12, "duration_months": 0},
                }
            ],
        }
    ],
    "groups": [
        {
            "reporting_group_id": "income",
            "name": "Income",
            "description": "The statement",
            "basis": "reported",
            "cadence": "quarterly",
            "series": [SERIES, SERIES | {"series_id": "s2"}],
        }
    ],
    "next_cursor": "abc",
}
PAGE = json.loads(json.dumps(PAGE))  # so that no two places share an object
# What may be missing or null, and what it is then; a text is "".
OPTIONAL: dict[str, Any] = {
    **dict.fromkeys(("name", "description", "role", "label", "basis", "cadence"), ""),
    **dict.fromkeys(("number_format", "period_meaning"), ""),
    **dict.fromkeys(("next_cursor", "active_start", "active_end")),
    "aliases": (),
}
READERS = {"metadata": (METADATA, decode_dataset), "catalogue": (PAGE, read_catalogue_page)}


def places(value: Any, here: Place = ()) -> Iterator[Place]:
    """Yield the place of every JSON value below one, depth first."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*here, key)
        yield from places(each, (*here, key))


def at(document: Any, place: Place) -> Any:
    for key in place:
        document = document[key]
    return document


def replaced(document: Any, place: Place, value: Any) -> bytes:
    changed = copy.deepcopy(document)
    at(changed, place[:-1])[place[-1]] = value
    return json.dumps(changed).encode()


def removed(document: Any, place: Place) -> bytes:
    changed = copy.deepcopy(document)
    del at(changed, place[:-1])[place[-1]]
    return json.dumps(changed).encode()


def read_at(model: Any, place: Place) -> Any:
    for key in place:
        model = model[key] if isinstance(key, int) else getattr(model, key)
    return model


def spelled(place: Place) -> str:
    return "$" + "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place)


WRONG: dict[type, list[Any]] = {
    str: [5, 1.5, True, [], {}, None, ["x"]],
    int: ["1", 1.0, 1.5, True, False, [], {}, None],
    list: [{}, "x", 5, None, True],
    dict: [[], "x", 5, None, True],
}
EVERY_PLACE = [(name, place) for name, (document, _) in READERS.items() for place in places(document)]


@given(st.sampled_from(EVERY_PLACE), st.data())
def test_wrong_type_is_rejected_with_path(where: tuple[str, Place], data: st.DataObject) -> None:
    """At every place of the body, whatever is there instead (spec 2)."""
    name, place = where
    document, decode = READERS[name]
    wrong = data.draw(st.sampled_from(WRONG[type(at(document, place))]))
    if wrong is None and place[-1] in OPTIONAL:
        assert read_at(decode(replaced(document, place, None)), place) == OPTIONAL[place[-1]]
        return
    with pytest.raises(MalformedAnswerError) as caught:
        decode(replaced(document, place, wrong))
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].endswith(f"@ {spelled(place)}")


@pytest.mark.parametrize(
    ("name", "place"),
    [(name, place) for name, place in EVERY_PLACE if isinstance(place[-1], str)],
    ids=lambda each: spelled(each) if isinstance(each, tuple) else each,
)
def test_missing_field_is_rejected_with_path(name: str, place: Place) -> None:
    """Ids, periods, arrays and timestamps are required; texts, aliases, bounds and the cursor are not."""
    document, decode = READERS[name]
    if place[-1] in OPTIONAL:
        assert read_at(decode(removed(document, place)), place) == OPTIONAL[place[-1]]
        return
    with pytest.raises(MalformedAnswerError) as caught:
        decode(removed(document, place))
    assert caught.value.problems == (f"a required field is missing @ {spelled(place)}",)


@given(
    st.sampled_from([((), METADATA), *(((), PAGE),), *((p, PAGE) for p in places(PAGE))]), st.text(min_size=1)
)
def test_unknown_fields_pass(where: tuple[Place, Any], name: str) -> None:
    """Wherever the service adds one, the result is the same as without."""
    place, document = where
    changed = copy.deepcopy(document)
    target = at(changed, place)
    if not isinstance(target, dict) or name in target:
        return
    target[name] = {"anything": [1, None, "x"]}
    decode = read_catalogue_page if document is PAGE else decode_dataset
    assert decode(json.dumps(changed).encode()) == decode(json.dumps(document).encode())


@pytest.mark.parametrize("name", READERS)
@given(moment=st.datetimes(timezones=st.just(UTC)))
def test_a_timestamp_keeps_its_moment(name: str, moment: datetime) -> None:
    """A timestamp keeps its moment to the microsecond, in both ways to write UTC."""
    document, decode = READERS[name]
    for text in (moment.isoformat(), moment.isoformat().replace("+00:00", "Z")):
        assert decode(replaced(document, ("created_timestamp",), text)).created_timestamp == moment


@given(st.binary(max_size=30))
def test_no_bytes_raise_anything_else(body: bytes) -> None:
    """Any bytes decode to a result or a malformed answer, and raise nothing else."""
    for decode in (decode_dataset, read_catalogue_page, decode_json):
        with suppress(MalformedAnswerError):
            decode(body)


def test_catalogue_page_becomes_models() -> None:
    """Spec 2.3: each field is where the service put it, arrays as tuples, in their order."""
    page = read_catalogue_page(json.dumps(PAGE).encode())
    assert type(page) is CataloguePage
    assert page.periods == (Period(2023, 12, 12), Period(2024, 3, 3))
    (group,), (scope_group,) = page.groups, page.scope_groups
    assert (group.cadence, group.basis, len(group.series)) == ("quarterly", "reported", 2)
    series = group.series[0]
    assert {name: getattr(series, name) for name in SERIES if name != "scopes"} == {
        name: value for name, value in SERIES.items() if name != "scopes"
    }
    assert series.scopes == (ScopeRef("segment", "cloud"), ScopeRef("region", "emea"))
    (scope,) = scope_group.scopes
    assert (scope.role, scope.aliases) == ("segment", ("Azure", "Hosted"))
    assert (scope.active_start, scope.active_end) == (Period(2020, 1, 0), Period(2024, 12, 0))
    assert page.next_cursor == "abc"


def test_unshown_body_keeps_its_numbers() -> None:
    """Whole numbers stay whole, zero is not null, and null is None (spec 4.4, 4.5)."""
    found = decode_json(b'{"a": 0, "b": 0.0, "c": null, "d": 123456789012345678901234567890, "e": true}')
    assert [(value, type(value)) for value in found.values()] == [
        (0, int),
        (0.0, float),
        (None, type(None)),
        (123456789012345678901234567890, int),
        (True, bool),
    ]
