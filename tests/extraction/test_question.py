"""When two questions are the same."""

from typing import Any

import pytest
from hypothesis import given, strategies as st

from asyncfin import Annual, Select, Trailing
from asyncfin.extraction.question import SharedQuestion, differences

IDS = st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=4)
PATHS = st.lists(
    st.lists(st.tuples(st.text(max_size=2), st.text(max_size=2)), min_size=1, max_size=2).map(tuple),
    min_size=1,
    max_size=3,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "metric_ids": IDS,
        "reporting_group_ids": IDS,
        "scope_group_ids": IDS,
        "basis": IDS,
        "cadence": IDS,
        "period_meaning": IDS,
        "scope_combinations": PATHS,
        "label": st.text(max_size=3),
    },
)


def meaning(fields: dict[str, Any]) -> dict[str, Any]:
    """What a Select's fields mean, by the obvious reading: sets, and a label in any case."""
    return {
        name: value.casefold() if name == "label" else frozenset(map(repr, value))
        for name, value in fields.items()
    }


@given(FIELDS, FIELDS, st.randoms())
def test_two_selections_have_hash(one: dict[str, Any], other: dict[str, Any], source: Any) -> None:
    """Order and repetition mean nothing; everything else does."""
    shuffled = {
        name: value if name == "label" else source.sample(value * 2, len(value) * 2)
        for name, value in one.items()
    }

    def hashed(fields: dict[str, Any]) -> str:
        return SharedQuestion(Select(**fields), Annual()).text

    assert hashed(shuffled) == hashed(one)
    assert (hashed(one) == hashed(other)) == (meaning(one) == meaning(other))


def test_a_predicate_counts_by_its_name() -> None:
    """A footer can't contain a function; a name without one means nothing."""

    def named(name: str | None) -> str:
        return SharedQuestion(Select(where=lambda series: True, name=name), Annual()).text

    assert named("large") == named("large") != named("small")
    assert SharedQuestion(Select(name="large"), Annual()).text == SharedQuestion(Select(), Annual()).text


@pytest.mark.parametrize(
    ("other", "part"),
    [
        (SharedQuestion(Select("x"), Annual()), "select"),
        (SharedQuestion(Select(), Trailing(3)), "periods"),
        (SharedQuestion(Select(), Annual(), "latest_restated"), "value_version"),
    ],
)
def test_what_differs_is_named(other: SharedQuestion, part: str) -> None:
    """Only what differs between two questions is named."""
    assert differences(other.text, SharedQuestion(Select(), Annual()).text).split(" ")[0] == part
