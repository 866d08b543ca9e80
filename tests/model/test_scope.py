"""Scope paths: one text form that parses back, and the forms that are taken."""

import re

import pytest
from hypothesis import given, strategies as st

from asyncfin.errors import SelectionError
from asyncfin.model.scope import ScopePath, ScopeRef, as_path, as_paths, format_path, parse_path

ids = st.text("ab%=|253DC7 é", max_size=6)
refs = st.builds(ScopeRef, ids, ids)
paths = st.lists(refs, max_size=4).map(tuple)

SEGMENT, REGION = ScopeRef("segment", "cloud"), ScopeRef("region", "emea")


@given(paths)
def test_text_form_of_path_parses_back(path: ScopePath) -> None:
    """The text form of a path parses back whatever characters the ids hold."""
    assert parse_path(format_path(path)) == path


def test_only_what_divides_path_is_escaped() -> None:
    """Per cent, equals and bar are; all else stays readable."""
    assert format_path((ScopeRef("a=b", "50%|R&D/x"),)) == "a%3Db=50%25%7CR&D/x"


@pytest.mark.parametrize("text", ["a", "a=b|", "|a=b", "a=b=c", "a=b|c", "a%=b", "a%41=b", "%3=b", "a=%2"])
def test_other_texts_are_no_paths(text: str) -> None:
    """The error shows the text as it was given."""
    with pytest.raises(SelectionError, match="scope path '" + text.replace("|", r"\|")):
        parse_path(text)


@pytest.mark.parametrize(
    "form",
    [
        (SEGMENT, REGION),
        [SEGMENT, REGION],
        [("segment", "cloud"), ("region", "emea")],
        [["segment", "cloud"], REGION],
        "segment=cloud|region=emea",
        iter([SEGMENT, REGION]),
    ],
    ids=lambda form: re.sub(" at 0x.*", "", repr(form)),
)
def test_path_is_taken_in_forms(form: object) -> None:
    """References, pairs of str, the text form."""
    assert as_path(form) == (SEGMENT, REGION)


@pytest.mark.parametrize(
    "form", [None, 5, [5], [("a",)], [("a", "b", "c")], [("a", 1)], [None], ("a", "b"), [ScopeRef("a", 1)]]
)
def test_what_is_no_path_is_refused(form: object) -> None:
    """The error names the scope path and shows what it holds."""
    with pytest.raises(SelectionError, match=r"scope path .*'?(None|5|a)'?"):
        as_path(form)


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("segment=cloud", ((SEGMENT,),)),
        (SEGMENT, ((SEGMENT,),)),
        (("segment", "cloud"), ((SEGMENT,),)),
        ([SEGMENT, REGION], ((SEGMENT, REGION),)),
        ([("segment", "cloud"), ("region", "emea")], ((SEGMENT, REGION),)),
        ([[SEGMENT], [REGION]], ((SEGMENT,), (REGION,))),
        ([[("segment", "cloud")], "region=emea"], ((SEGMENT,), (REGION,))),
        (["segment=cloud", "region=emea"], ((SEGMENT,), (REGION,))),
        (("segment=cloud", "region=emea"), ((SEGMENT,), (REGION,))),
        ([], ()),
    ],
)
def test_one_path_or_several_are_distinguished(form: object, expected: tuple[ScopePath, ...]) -> None:
    """A single path means a collection of one."""
    assert as_paths(form) == expected
