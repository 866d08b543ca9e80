"""Select as a value: what it takes, what it refuses, and how it shows itself."""

import pickle

import pytest

from asyncfin.errors import SelectionError
from asyncfin.model.scope import ScopeRef
from asyncfin.model.select import Select
from asyncfin.model.series import CatalogueSeries

PATH = (ScopeRef("company", "total"),)
ID_FIELDS = [
    "metric_ids",
    "reporting_group_ids",
    "scope_group_ids",
    "basis",
    "cadence",
    "period_meaning",
    "series_ids",
]
FIELDS = [*ID_FIELDS, "scope_combinations"]


def series(series_id: str = "s1", metric_id: str = "Revenue") -> CatalogueSeries:
    return CatalogueSeries(
        series_id=series_id,
        reporting_group_id="income",
        metric_id=metric_id,
        label="Revenue",
        description="USD",
        basis="company",
        scopes=PATH,
        number_format="#,##0",
        period_meaning="flow",
    )


@pytest.mark.parametrize("field", ID_FIELDS)
def test_str_is_one_id_and_collection(field: str) -> None:
    """Sets, lists and generators are taken, and duplicates dropped."""
    assert getattr(Select(**{field: "ab"}), field) == ("ab",)
    assert getattr(Select(**{field: ["b", "a", "b"]}), field) == ("b", "a")
    assert getattr(Select(**{field: (each for each in "ab")}), field) == ("a", "b")
    assert getattr(Select(**{field: {"a"}}), field) == ("a",)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("empty", [(), [], {}, set(), iter(())])
def test_empty_collection_is_refused_by_name(field: str, empty: object) -> None:
    """An empty list is most often an upstream mistake: it means neither nothing nor everything."""
    with pytest.raises(SelectionError, match=rf"^{field} must not be empty"):
        Select(**{field: empty})


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", [5, [5], [None], b"ab", [["x", 1]], [("x", 1)]])
def test_what_contains_no_ids_is_refused(field: str, value: object) -> None:
    """Numbers, bytes and None within a collection are no ids."""
    with pytest.raises(SelectionError, match=field if field != "scope_combinations" else "scope"):
        Select(**{field: value})


@pytest.mark.parametrize(
    "given", [PATH, [PATH], [("company", "total")], "company=total", ["company=total", PATH], {PATH}]
)
def test_path_is_taken_alone_or_among(given: object) -> None:
    """A single path is taken, and one path in two forms counts once."""
    assert Select(scope_combinations=given).scope_combinations == (PATH,)


def test_picking_by_hand_keeps_triple() -> None:
    """One series, or several, each once; nothing else of them matters."""
    picked = Select.of([series("s1"), series("s2"), series("s1")]).picked
    assert [(each.metric_id, each.reporting_group_id, each.scopes, each.series_id) for each in picked] == [
        ("Revenue", "income", PATH, "s1"),
        ("Revenue", "income", PATH, "s2"),
    ]
    assert Select.of(series("s1")) == Select.of([series("s1")])


@pytest.mark.parametrize("value", [["s1"], [None], 5])
def test_only_series_can_be_picked(value: object) -> None:
    """An id alone does not survive a new publication, so it is not taken for a series."""
    with pytest.raises(SelectionError, match="series"):
        Select.of(value)


@pytest.mark.parametrize(
    "select",
    [
        Select(),
        Select(["a", "é\x00|,"], PATH, ["g", ""], "h", "b", "c", "p", "a label", ["s1", "s2"], name="n"),
        Select(scope_combinations=[(), PATH, (("a=b", "%|"), ("", ""))]),
        Select(label=""),
        Select.of([series("s1"), series("s2")]),
    ],
)
def test_select_is_written_down_and_read(select: Select) -> None:
    """The JSON of a Select holds the given fields only, and its repr can be pasted."""
    assert Select.from_json(select.to_json()) == select
    assert Select.from_json(select.to_json().encode()) == select
    assert eval(repr(select), {"Select": Select}) == select
    assert pickle.loads(pickle.dumps(select)) == select
    assert "null" not in select.to_json()


def test_predicate_is_written_as_its_name() -> None:
    """Without a name it cannot be written; paths are in their text form."""
    text = '{"metric_ids": ["Revenue"], "scope_combinations": ["company=total"]}'
    assert Select("Revenue", "company=total").to_json() == text
    assert Select(where=callable, name="mine").to_json() == '{"where": "mine"}'
    with pytest.raises(SelectionError, match="a written Select has only its name, 'mine'"):
        Select.from_json('{"where": "mine"}')
    with pytest.raises(SelectionError, match="needs a `name`"):
        Select(where=callable).to_json()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must be written as JSON"),
        ("[]", "must be written as a JSON object"),
        ("[" * 100_000, "must be written as JSON"),
        (b"\xff", "must be written as JSON"),
        (None, "must be written as JSON"),
        ('{"metric": "a"}', "has no field 'metric'"),
        ('{"metric_ids": [1]}', "metric_ids must be a str or a collection of str, not 1"),
        ('{"metric_ids": []}', "metric_ids must not be empty"),
        ('{"metric_ids": 5}', "metric_ids must be"),
        ('{"scope_combinations": ["x"]}', "scope path 'x'"),
        ('{"label": 5}', "label must be a str or None, not 5"),
        ('{"series": [["a", "b"]]}', "series must be rows of"),
        ('{"series": "a"}', "series must be rows of"),
        ('{"series": []}', "series must not be empty"),
        ('{"_picked": []}', "has no field '_picked'"),
    ],
)
def test_malformed_select_is_rejected(text: str, message: str) -> None:
    """The error says what is wrong, as the constructor does."""
    with pytest.raises(SelectionError, match=message):
        Select.from_json(text)
