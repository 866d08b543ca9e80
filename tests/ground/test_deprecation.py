"""Deprecated names keep working, with a warning that says what to write."""

import inspect

import pytest

from asyncfin.deprecation import warn_deprecated


def test_deprecation_names_replacement_and_release() -> None:
    """The warning is attributed to the line that uses the old name, not to the library."""

    def old() -> None:
        warn_deprecated("old()", "new()", removed_in="0.3.0")

    line = inspect.currentframe().f_lineno + 2  # type: ignore[union-attr]
    with pytest.warns(DeprecationWarning, match=r"^old\(\) is deprecated") as caught:
        old()
    assert str(caught[0].message) == "old() is deprecated and will be removed in asyncfin 0.3.0; write new()"
    assert (caught[0].filename, caught[0].lineno) == (__file__, line)
