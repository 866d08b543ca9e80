"""Checks of the arguments that functions of an extraction share."""

from __future__ import annotations

from asyncfin import Client, checks
from asyncfin.model.query import VALUE_VERSIONS
from asyncfin.model.select import Select, check_select
from asyncfin.model.selection import PeriodSelection, check_period_selection
from asyncfin.typing import AskedVersion

check_client = checks.instance_of(Client)
_check_version = checks.one_of(*VALUE_VERSIONS, "both").as_selection_error()


def check_question(
    select: Select, periods: PeriodSelection, value_version: AskedVersion
) -> None:
    """Raise SelectionError unless all parts of a query are as described."""
    check_select(select)
    check_period_selection(periods)
    _check_version("value_version", value_version)
