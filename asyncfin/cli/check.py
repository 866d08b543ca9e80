"""`asyncfin check`: what differs between a service and its description."""

from asyncfin.cli.entities import Names
from asyncfin.cli.exits import ServiceDiffersError
from asyncfin.cli.options import AsJson
from asyncfin.cli.service import Service


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

    It costs about 25 requests, and one for each 100 series of the dataset. It
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

    from asyncfin.cli.output import screen
    from asyncfin.cli.session import connected
    from asyncfin.conformance.check import check as run_check

    async with connected(service, "Checking", names) as client:
        report = await run_check(client, entity_id, max_requests=max_requests)
    screen().print(report.to_json() if json else str(report))
    if report.breaks or not report.complete:
        raise ServiceDiffersError(len(report.breaks))
