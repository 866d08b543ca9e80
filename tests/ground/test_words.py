"""Counts, spans and durations as people write them."""

import math

import pytest

from asyncfin.words import counted, lasting, listed, size_text, spanned


@pytest.mark.parametrize(
    ("number", "names", "said"),
    [
        (1, ("batch", "batches"), "1 batch"),
        (2, ("batch", "batches"), "2 batches"),
        (0, ("request",), "0 requests"),
        (1, ("series", "series"), "1 series"),
        (1000, ("day",), "1,000 days"),
    ],
)
def test_what_is_counted_has_its_plural(number: int, names: tuple[str, ...], said: str) -> None:
    """The plural begins at two, and thousands are separated."""
    assert counted(number, *names) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.35, "350 ms"),
        (0.9996, "1 s"),
        (2.4, "2 s"),
        (59.7, "1 min 0 s"),
        (125, "2 min 5 s"),
        (7260, "2 h 1 min"),
        (3_600_000, "1,000 h 0 min"),
        (1e300, "more than 100 years"),
        (math.inf, "more than 100 years"),
    ],
)
def test_durations_have_two_units(seconds: float, said: str) -> None:
    """A wait below a second is not 0 s, and what lasts for hours has no seconds."""
    assert lasting(seconds) == said


@pytest.mark.parametrize(
    ("ordered", "said"), [([], ""), (["a"], "a"), (["a", "b", "c"], "a to c"), (["a", "a"], "a")]
)
def test_a_span_names_its_ends(ordered: list[str], said: str) -> None:
    """A span of one thing names it once."""
    assert spanned(ordered) == said


@pytest.mark.parametrize(
    ("count", "end"),
    [(1, "n0"), (20, "n19"), (21, "n19 and 1 more"), (60_000, "n19 and 59,980 more")],
)
def test_list_has_at_most_twenty_names(count: int, end: str) -> None:
    """The rest is counted."""
    text = listed([f"n{number}" for number in range(count)])
    assert text.endswith(end)
    assert len(text) < 200


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (37_310, "37.3 kB"), (2_240_000, "2.2 MB")],
)
def test_size_has_a_fitting_unit(size: int, text: str) -> None:
    """No file has 0.0 MB."""
    assert size_text(size) == text
