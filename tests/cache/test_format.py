"""The number of the cache's form: names and types of all that is stored, so that no other form is read."""

from array import array
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from attrs import field, frozen, make_class

from asyncfin.cache.codec import FORMAT, form_of
from asyncfin.cache.file import FileCache
from asyncfin.model.catalogue import Catalogue
from asyncfin.table.block import Block
from tests.cache.stored import DATASET, ENTITY, URL, blocks, content


def test_the_form_has_all_stored_types() -> None:
    """Also those that occur in others only."""
    form = form_of(Catalogue, Block)
    assert set(form) == {
        *("Catalogue", "ScopeGroup", "Scope", "ScopeRef", "ReportingGroup", "CatalogueSeries", "Period"),
        *("Block", "Axis", "PageText"),
    }
    assert ("scopes", "tuple[ScopeRef, ...]") in form["CatalogueSeries"]
    assert ("active_end", "Period | None") in form["Scope"]
    assert ("positions", "array[int]") in form["Block"]
    assert all(name.isidentifier() and kind for rows in form.values() for name, kind in rows)


def a_form(inner: dict[str, Any]) -> object:
    """Return the form of a type that contains another one, whose fields are given."""
    step = msgspec.defstruct("Step", list(inner.items()))
    middle = make_class("Middle", {"steps": field(type=tuple[step, ...])}, frozen=True)  # type: ignore[valid-type]
    middle.__annotations__ = {"steps": tuple[step, ...]}  # type: ignore[valid-type]

    @frozen
    class Outer:
        middle: Any
        at: datetime
        numbers: "array[int] | None" = None
        _cached: int = field(default=0, init=False)

    Outer.__annotations__["middle"] = middle | None
    return form_of(Outer)


@pytest.mark.parametrize(
    "changed",
    [{"id": str, "number": float}, {"id": str, "count": int}, {"id": str}, {"number": int, "id": str}],
)
def test_a_name_a_type_or_an_order_deep_inside_changes_the_form(changed: dict[str, Any]) -> None:
    assert a_form({"id": str, "number": int}) == a_form({"id": str, "number": int})
    assert a_form(changed) != a_form({"id": str, "number": int})


def test_what_is_not_stored_does_not_change_the_form() -> None:
    """Such as an index that an object makes for itself."""
    assert a_form({"id": str}) == {
        "Outer": [("middle", "Middle | None"), ("at", "datetime"), ("numbers", "array[int] | None")],
        "Middle": [("steps", "tuple[Step, ...]")],
        "Step": [("id", "str")],
    }


async def test_another_form_is_not_read_and_is_not_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = FileCache(tmp_path / "cache", account="desk")
    await cache.partition(URL, "t").put_blocks(ENTITY, DATASET, "original", blocks(1))
    await cache.aclose()
    monkeypatch.setattr("asyncfin.cache.database.FORMAT", "5l00000000")
    other = FileCache(tmp_path / "cache", account="desk")
    part = other.partition(URL, "t")
    assert await part.blocks(ENTITY, DATASET, "original") == ()
    await part.put_blocks(ENTITY, DATASET, "original", blocks(2))
    assert other.stats().broken == 0
    await other.aclose()
    monkeypatch.setattr("asyncfin.cache.database.FORMAT", FORMAT)
    assert content(await cache.partition(URL, "t").blocks(ENTITY, DATASET, "original")) == content(blocks(1))
    await cache.aclose()
