"""`asyncfin usage`: what the account has used, and its limits.

The service description does not show either body, so both are printed as JSON,
unchanged.
"""

from datetime import UTC, date, datetime
from typing import Annotated

from cyclopts import Parameter

from asyncfin.cli.exits import UsageError
from asyncfin.cli.service import Service

_DEFAULT_DAYS = 30

# The other commands print JSON with --json; scripts may say so here too.
_AsJson = Annotated[bool, Parameter(name="--json", negative="", show=False)]


async def usage(
    *,
    first: Annotated[date | None, Parameter(name="--from")] = None,
    final: Annotated[date | None, Parameter(name="--to")] = None,
    limits: bool = False,
    json: _AsJson = False,
    service: Service = Service(),
) -> None:
    """Print the account's daily usage, or its limits.

    The service description shows neither body, so they are printed as JSON, as the
    service returns them. It costs one request for each 92 days, or one for limits.

      asyncfin usage --from 2026-01-01 --to 2026-06-30
      asyncfin usage --limits

    Args:
        first: The first day, as YYYY-MM-DD. [default: 29 days before --to]
        final: The last day. [default: today, UTC]
        limits: Print the account's credits and research-run limits instead.
    """
    if limits and (first or final):
        raise UsageError("--limits has no days: leave --from and --to out")
    end = final or datetime.now(UTC).date()
    # Not before the first day of the calendar.
    start = first or date.fromordinal(max(1, end.toordinal() - _DEFAULT_DAYS + 1))
    if end < start:
        raise UsageError(f"--to must not be before --from: {end} is before {start}")
    service.check()

    from asyncfin.cli.output import print_json
    from asyncfin.cli.session import connected

    async with connected(service, "Reading") as client:
        body = await (client.limits() if limits else client.usage(start, end))
    print_json(body)
