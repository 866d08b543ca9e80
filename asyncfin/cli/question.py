"""The options of a question: which series, and which periods. `asked.py` says what they
mean.
"""

from typing import Annotated

from attrs import frozen
from cyclopts import Group, Parameter

from asyncfin.cli.mistakes import whole
from asyncfin.cli.options import Several

_SERIES = Group(
    "Which series (each option narrows; repeat one for any of several)", sort_key=1
)
period_group = Group("Which periods (all of them if none is named)", sort_key=2)


def _option(name: str, help: str) -> Parameter:
    return Parameter(name=f"--{name}", help=help)


@Parameter(name="*", group=_SERIES)
@frozen(kw_only=True)
class Selection:
    """Which series."""

    metric: Annotated[Several, _option("metric", "A metric id.")] = ()
    group: Annotated[Several, _option("group", "A reporting group id.")] = ()
    scope: Annotated[
        Several, _option("scope", "A scope path: group=scope|group=scope.")
    ] = ()
    scope_group: Annotated[
        Several,
        _option(
            "scope-group",
            "Paths that use exactly the scope groups named by this option.",
        ),
    ] = ()
    basis: Annotated[
        Several, _option("basis", "A reporting basis, such as segment.")
    ] = ()
    cadence: Annotated[
        Several, _option("cadence", "A reporting cadence, such as annual.")
    ] = ()
    period_meaning: Annotated[
        Several, _option("period-meaning", "A period meaning.")
    ] = ()
    series: Annotated[
        Several,
        _option("series", "A series id, as `catalogue --csv` and results contain it."),
    ] = ()
    label: Annotated[
        str | None, _option("label", "A part of the series' label, in any case.")
    ] = None


@Parameter(name="*", group=period_group)
@frozen(kw_only=True)
class Periods:
    """Which periods."""

    annual: Annotated[bool, _option("annual", "Fiscal years.")] = False
    quarterly: Annotated[bool, _option("quarterly", "Periods of three months.")] = False
    half_yearly: Annotated[bool, _option("half-yearly", "Periods of six months.")] = (
        False
    )
    exact: Annotated[
        Several,
        _option(
            "exact", "A period: FY2024, FY2024-Q3, FY2024-H1, FY2024-9M; repeatable."
        ),
    ] = ()
    trailing: Annotated[
        int | None,
        Parameter(
            name="--trailing",
            help="List the periods of this many months, up to the latest value; --ttm "
            "adds up.",
            converter=whole,
        ),
    ] = None
    first: Annotated[
        str | None,
        _option("from", "The first fiscal end: a year, FY2024-03, or a period."),
    ] = None
    final: Annotated[
        str | None, _option("to", "The last fiscal end, in the same forms.")
    ] = None
    last: Annotated[
        int | None,
        Parameter(
            name="--last",
            help="Only this many, the latest ones, with --annual, --quarterly or "
            "--half-yearly.",
            converter=whole,
        ),
    ] = None
