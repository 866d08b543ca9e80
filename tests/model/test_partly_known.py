"""Of a Select, what a catalogue has."""

from attrs import evolve
from msgspec.structs import replace

from asyncfin.model.catalogue import Catalogue, Scope, ScopeGroup
from asyncfin.model.judge import has_nothing, judge
from asyncfin.model.scope import ScopeRef
from asyncfin.model.select import Select
from tests.answers import catalogue_of


def _of(catalogue: Catalogue, select: Select) -> tuple[str, ...]:
    """Return the ids of the series that meet the part of a Select which a catalogue knows."""
    judged = judge(catalogue, select)
    assert has_nothing(select, judged.missing) == (not judged.series)
    return tuple(series.series_id for series in judged.series)


def test_a_catalogue_without_one_of_two_scope_groups_has_nothing_of_both() -> None:
    """The groups are not "one of these": the selected paths use exactly these (spec 2.1)."""
    catalogue = catalogue_of(["sales.annual", "costs.annual"])
    (group,) = catalogue.groups
    one, two = group.series
    two = replace(two, scopes=(*two.scopes, ScopeRef("region", "north")))
    region = ScopeGroup(scope_group_id="region", name="Region", scopes=(Scope("north", "North"),))
    catalogue = evolve(
        catalogue,
        groups=(evolve(group, series=(one, two)),),
        scope_groups=(*catalogue.scope_groups, region),
    )
    assert _of(catalogue, Select(scope_group_ids=("company", "region"))) == ("costs.annual",)
    assert _of(catalogue, Select(scope_group_ids=("company", "product"))) == ()
    assert _of(catalogue, Select(metric_ids=("sales", "unknown"))) == ("sales.annual",)


def test_a_series_that_another_condition_excludes_is_decided() -> None:
    """Its missing text is of no concern, though it meets a third condition."""
    catalogue = catalogue_of(["sales.annual", "sales.quarterly", "costs.annual"])
    annual, quarterly = catalogue.groups
    annual = evolve(annual, series=tuple(replace(each, basis="") for each in annual.series))
    catalogue = evolve(catalogue, groups=(annual, quarterly))
    select = Select(basis="consolidated", metric_ids="sales", reporting_group_ids="quarterly")
    assert [series.series_id for series in catalogue.select(select)] == ["sales.quarterly"]
