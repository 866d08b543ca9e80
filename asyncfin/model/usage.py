"""The usage of an account (spec 4.4)."""

from datetime import date
from typing import Any

from attrs import frozen


@frozen
class UsageWindow:
    """The usage of some days, both included. `body` is whatever JSON value came (spec 4.4: not shown)."""

    start_date: date
    end_date: date
    body: Any
