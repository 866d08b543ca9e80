"""What a Select means in a catalogue: series, and what is missing."""

from collections import Counter

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from asyncfin.errors import SelectionError
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.judge import has_nothing, judge, note_unstated
from asyncfin.model.select import Select
from asyncfin.model.selection import FiscalRange
from asyncfin.model.series import CatalogueSeries
from asyncfin.plan.question import Question
from tests.model.test_catalogue import CASH, CLOUD, EXAMPLE, REVENUE, REVENUE_BOTH, catalogue, series


def test_unknown_ids_are_ignored_beside_others() -> None:
    """Unknown names are dropped from the Select, and are missing."""
    judged = judge(EXAMPLE, Select(["Cash", "Gold"], cadence="annual"))
    assert judged.series == (CASH,)
    assert judged.missing == {"metric_ids": ("Gold",)}
    assert not has_nothing(judged.select, judged.missing)
    assert str(judged.error()).startswith("metric_ids: Example")


def test_all_scope_groups_must_exist() -> None:
    """They mean "exactly these": a path cannot use a group that does not exist."""
    judged = judge(EXAMPLE, Select(scope_group_ids=["segment", "product"]))
    assert judged.series == ()
    assert judged.missing == {"scope_group_ids": ("product",)}
    assert judge(EXAMPLE, Select(scope_group_ids=["segment", "region"])).series == (REVENUE_BOTH,)


def test_empty_catalogue_has_all_of_everything() -> None:
    """Nothing is missing, and selecting is no error."""
    judged = judge(catalogue(), Select())
    assert (judged.series, judged.missing) == ((), {})
    assert catalogue().select(Select()) == ()


def test_ambiguous_row_is_missing() -> None:
    """The row is missing, and the error says between which series nothing decides."""
    twins = catalogue(*(replace(CASH, series_id=each) for each in ("x2", "x1")), REVENUE)
    judged = judge(twins, Select.of([CASH, REVENUE]))
    assert judged.series == (REVENUE,)
    assert judged.missing == {"series": ("s4",)}
    assert "is one of several of its metric, group and path" in str(judged.error())
    assert str(judged.error()).endswith(": x1, x2; pick again with Select.of")


def test_stop_iteration_of_predicate_raises() -> None:
    """It must not pass for the end of the catalogue, which would drop the series that follow."""
    labels = iter(["Cash"])
    with pytest.raises(StopIteration):
        judge(EXAMPLE, Select(where=lambda series: next(labels) == series.label))


def without_basis() -> Catalogue:
    """Return a catalogue in which two series state no basis."""
    stated = series(9, "Revenue", "income", CLOUD, basis="segment")
    return catalogue(replace(REVENUE, basis=""), replace(CASH, basis=""), stated)


def test_series_without_word_are_noted() -> None:
    """They must meet all other conditions: those of another metric are not named."""
    listed = without_basis()
    select = Select("Revenue", basis=["segment", "company"])
    judged = judge(listed, select)
    assert [each.series_id for each in judged.series] == ["s9"]
    assert list(note_unstated(listed, select)) == ["basis: 1 series states none and is left out: s1"]
    labelled = Select(label="of revenue", basis="segment")
    assert list(note_unstated(listed, labelled)) == ["basis: 1 series states none and is left out: s1"]
    everything = Select(["Revenue", "Cash"], basis="segment")
    assert list(note_unstated(listed, everything)) == ["basis: 2 series state none and are left out: s1, s4"]
    assert str(judge(listed, Select("Cash", basis="segment")).error()).endswith(
        "no series of Example (O-a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1) matches;"
        " basis: 1 series states none and is left out: s4"
    )


def test_two_missing_words_are_noted() -> None:
    """A series that states neither of two words is named for both; another word is no missing one."""
    stated = series(9, "Revenue", "income", CLOUD, basis="segment", period_meaning="sum")
    neither = replace(REVENUE, basis="", period_meaning="")
    other = replace(CASH, basis="", period_meaning="end")
    notes = [*note_unstated(catalogue(stated, neither, other), Select(basis="segment", period_meaning="sum"))]
    assert notes == [
        "basis: 1 series states none and is left out: s1",
        "period_meaning: 1 series states none and is left out: s1",
    ]


@given(st.sampled_from([EXAMPLE, without_basis()]), st.booleans(), st.booleans())
def test_where_is_called_once_for_series(listed: Catalogue, passes: bool, narrowed: bool) -> None:
    """Whatever is made of the judgement: a message, what is missing, a plan and an answer."""
    calls = Counter[str]()

    def where(each: CatalogueSeries) -> bool:
        calls[each.series_id] += 1
        return passes

    select = Select("Revenue" if narrowed else None, basis="segment", where=where)
    judged = judge(listed, select)
    if judged.missing:
        assert judged.error().missing is judged.missing
    assert set(calls.values()) == {1}
    assert all(listed[each].metric_id == "Revenue" or not narrowed for each in calls)


def test_allow_missing_rejects_ambiguous_rows() -> None:
    """To read one of them, or neither, would be a guess."""
    twins = catalogue(replace(CASH, series_id="x1"), replace(CASH, series_id="x2"))
    question = Question(twins, Select.of(CASH), FiscalRange(), allow_missing=True)
    with pytest.raises(SelectionError, match=r"pick again with Select\.of$"):
        question.resolve(twins)
