"""A cursor is found at the end of a body without decoding it, and never taken from within."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from asyncfin.wire.codec import last_cursor

# What a text or a key within a body may hold that looks like the end of one.
ENDS = st.sampled_from(
    ['"next_cursor":"x"}', ',"next_cursor":"x"}', "next_cursor", "\\", '\\"', '","next_cursor":"', "}"]
)
TEXTS = st.text(max_size=5) | st.lists(ENDS, max_size=3).map("".join)
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=5,
)
BODIES = st.lists(st.tuples(TEXTS, VALUES), max_size=3).map(dict)


@given(BODIES, TEXTS, st.booleans(), st.sampled_from([None, 1]), st.booleans())
def test_a_cursor_that_ends_a_body_is_found(
    body: dict[str, Any], cursor: str, ascii_only: bool, indent: int | None, blank: bool
) -> None:
    """However it is written, and whatever stands before it."""
    body.pop("next_cursor", None)
    text = json.dumps({**body, "next_cursor": cursor}, ensure_ascii=ascii_only, indent=indent)
    assert last_cursor((text + "\r\n" * blank).encode(errors="surrogatepass")) == cursor


# What may end a body, and is no cursor of it.
OTHERS = st.sampled_from(
    [
        {"xnext_cursor": "x"},
        {'"next_cursor': "x"},
        {',"next_cursor': "x"},
        {"last": {"next_cursor": "x"}},
        {"last": ',"next_cursor":"x"}'},
        {"next_cursor": None},
    ]
)


@given(BODIES, st.none() | TEXTS, OTHERS, st.booleans())
def test_nothing_else_is_taken_for_a_cursor(
    body: dict[str, Any], elsewhere: str | None, last: dict[str, Any], compact: bool
) -> None:
    """Neither null nor what only looks like a cursor in a name, a text or further in is taken for one."""
    first = {} if "next_cursor" in last else {"next_cursor": elsewhere}
    body.pop("next_cursor", None)
    text = json.dumps({**first, **body, **last}, separators=(",", ":") if compact else None)
    assert last_cursor(text.encode()) is None
