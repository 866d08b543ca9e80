"""The usage of an account (spec 4.4)."""

from collections.abc import Mapping
from datetime import date
from typing import Any

from attrs import frozen


@frozen
class UsageWindow:
    """The answer for some days, both included. The spec does not show its fields: `body` is as it came."""

    start_date: date
    end_date: date
    body: Mapping[str, Any]
