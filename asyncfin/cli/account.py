"""`asyncfin usage`, `check` and `cache`: the account, the service, and what a folder
keeps of it.
"""

from contextlib import aclosing
from datetime import UTC, date, datetime
from typing import Annotated

from attrs import asdict
from cyclopts import Parameter

from asyncfin.cli.errors import ServiceDiffersError, UsageError, prefix_errors
from asyncfin.cli.options import AsJson, Names, Service, has_path
from asyncfin.words import counted

_DEFAULT_DAYS = 30


async def usage(
    *,
    first: Annotated[date | None, Parameter(name="--from")] = None,
    final: Annotated[date | None, Parameter(name="--to")] = None,
    limits: bool = False,
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

    from asyncfin.cli.session import connect
    from asyncfin.cli.terminal import print_json

    async with connect(service, "Reading") as (client, _):
        body = await (client.limits() if limits else client.usage(start, end))
    print_json(body)


async def check(
    entity_id: str,
    /,
    *,
    max_requests: int = 60,
    json: AsJson = False,
    names: Names = Names(),
    service: Service = Service(),
) -> None:
    """Compare the service with its description.

    It costs 24 requests, and one for each 100 series of the dataset. It
    writes nothing. The report contains no values and no token. It can be sent to
    the service's support, after a look for parts of names in its words and extra
    fields. The exit code is 0 if nothing breaks the description and every check was
    made, else 1.

      asyncfin check ENTITY_ID

    Args:
        entity_id: The entity, O- and 32 characters, or its name.
        max_requests: The most requests that it may send, retries included.
    """
    entity_id = names.entity_id(entity_id)
    service.check()

    from asyncfin import check as run_check
    from asyncfin.cli.session import connect
    from asyncfin.cli.terminal import screen

    async with connect(service, "Checking", names) as (client, _):
        report = await run_check(client, entity_id, max_requests=max_requests)
    screen().print(report.to_json() if json else str(report))
    if report.breaks:
        findings = counted(len(report.breaks), "finding")
        raise ServiceDiffersError(f"the service breaks its description: {findings}")
    if not report.complete:
        raise ServiceDiffersError(
            "not all checks were made: give more --max-requests, or run it again"
        )


async def cache(
    entity: str | None = None,
    /,
    *,
    folder: Annotated[
        str | None,
        Parameter(name="--cache", help="The cache's folder.", env_var="ASYNCFIN_CACHE"),
    ] = None,
    clear: Annotated[
        bool, Parameter(help="Clear it, for all accounts of the folder.")
    ] = False,
    json: AsJson = False,
    names: Names = Names(),
) -> None:
    """Show the size of the cache in a folder, or clear it.

    It costs no request. Other processes may continue to use the folder.

      asyncfin cache --cache ~/.cache/asyncfin --clear

    Args:
        entity: With --clear: clear only this entity, an id or a name.
    """
    if folder is None:
        raise UsageError("no cache is given: set ASYNCFIN_CACHE or give --cache FOLDER")
    if entity is not None and not clear:
        raise UsageError("an entity goes with --clear: add it, or leave the entity out")

    from asyncfin import FileCache
    from asyncfin.cli.terminal import print_json, screen

    with prefix_errors("--cache"):
        # No account is needed: `inspect` and `clear` are about the whole folder.
        stored = FileCache(folder)
        # A mistyped path must not look like an empty cache.
        if not has_path(folder, folder=True):
            raise UsageError(
                f"--cache {folder}: there is no such folder; commands that read make it"
            )
        async with aclosing(stored):
            if clear:
                await stored.clear(None if entity is None else names.entity_id(entity))
            stats = await stored.inspect()
    if json:
        print_json({"folder": folder, **asdict(stats)})
    else:
        series = counted(stats.series, "series", "series")
        screen().print(f"{folder}: {series}, {stats.bytes / 1e6:,.1f} MB")
