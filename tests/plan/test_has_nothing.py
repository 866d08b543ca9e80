"""What is missing decides whether an entity has anything of a Select."""

import pytest

from asyncfin import Select
from asyncfin.model.judge import Missing, has_nothing

PATH = (("product", "phones"),)


@pytest.mark.parametrize(
    ("select", "missing", "nothing"),
    [
        (Select(["A", "B"]), {}, False),
        (Select(["A", "B"]), {"metric_ids": ("B",)}, False),
        (Select(["A", "B"]), {"metric_ids": ("A", "B")}, True),
        (Select(["A", "B"], basis="x"), {"metric_ids": ("B",), "basis": ("x",)}, True),
        (Select("A", basis="x"), {"basis": ("S-1",)}, False),  # a series without a text for its basis
        (Select("A", basis="x"), {"select": ("the text",)}, True),
        (Select(label="Sales"), {"label": ("Sales",)}, True),
        (Select(label="Sales"), {"label": ("S-1", "S-2")}, False),
        (Select(where=bool, name="named"), {"where": ("named",)}, True),
        (Select(scope_group_ids=["product", "region"]), {"scope_group_ids": ("region",)}, True),
        (Select(scope_combinations=[PATH, ()]), {"scope_combinations": ("product=phones",)}, False),
        (Select(scope_combinations=[PATH]), {"scope_combinations": ("product=phones",)}, True),
        (Select(["A"]), {"periods": ("FY2099",)}, False),
    ],
)
def test_an_entity_has_nothing_if_a_field_or_all_conditions_leave_no_series(
    select: Select, missing: Missing, nothing: bool
) -> None:
    """Some ids of a field, single series and periods may be missing; the rest is still something."""
    assert has_nothing(select, missing) is nothing
