"""The usage of an account (spec 4.4)."""

from datetime import date
from typing import Any

from attrs import frozen


@frozen
class UsageWindow:
    """The usage of a range of days (spec 4.4).

    Attributes:
        start_date: the first day, included.
        end_date: the last day, included.
        body: the response's JSON value, unchanged; spec 4.4 does not show its
            structure.
    """

    start_date: date
    end_date: date
    body: Any
