"""Reading the catalogue: spec 2.3, 4.2."""

import pytest
from attrs import evolve

from asyncfin.sandbox import Publication

from .conftest import FIRST, GROUPS, SECOND, Desk


def test_the_default_page_has_25_series(publication: Publication) -> None:
    """Spec 8."""
    many = [{**GROUPS[0]["series"][0], "series_id": f"S{at}"} for at in range(30)]
    desk = Desk(evolve(publication, groups=({**GROUPS[0], "series": many},)))
    assert len(desk.catalogue()[1]["groups"][0]["series"]) == 25
    desk.store.close()


def test_old_cursor_is_409(desk: Desk, later: Publication) -> None:
    """Spec 7: the publication changed while the client was reading."""
    cursor = desk.catalogue(limit=2)[1]["next_cursor"]
    desk.store.publish(later)
    for pin in ({}, {"expected_dataset_id": FIRST}, {"expected_dataset_id": SECOND}):
        status, body = desk.catalogue(limit=2, cursor=cursor, **pin)
        assert (status, body["error"]["code"]) == (409, "dataset_changed")
    assert desk.catalogue()[1]["dataset_id"] == SECOND


@pytest.mark.parametrize(
    ("field", "text"),
    [
        *(("limit", text) for text in ("0", "101", "ten", "", "-1", "1.0", "9" * 5000)),
        *(("expected_dataset_id", text) for text in ("latest", "1" * 36)),
        *(("cursor", text) for text in ("x", "", "AAAA")),
        ("page", "2"),
    ],
)
def test_wrong_parameter_is_400_and_named(desk: Desk, field: str, text: str) -> None:
    """Spec 4.2, 8; a parameter that is not in spec is wrong too."""
    status, body = desk.catalogue(**{field: text})
    assert (status, body["error"]["code"]) == (400, "validation_failed")
    assert [issue["field"] for issue in body["error"]["issues"]] == [field]
