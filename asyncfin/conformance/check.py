"""`asyncfin.check`: what differs between a service and the spec."""

from __future__ import annotations

from asyncfin import Client, checks
from asyncfin.checks import check_entity_id
from asyncfin.conformance.probes import Probe
from asyncfin.conformance.report import CheckReport


async def check(
    client: Client, entity_id: str, *, max_requests: int = 60
) -> CheckReport:
    """Compare the service with the spec, by the dataset of one entity.

    It reads the metadata, the catalogue and about 17 queries, the usage and the limits:
    page sizes, cursors, each form of periods and whether they have the same values,
    both value versions, series that a query leaves out, the caps, and the errors. It
    writes nothing and uses no cache. `Finding` describes what a report may contain.

    Metadata, or a first page of the catalogue, that cannot be decoded end the report: a
    break names the JSON path, and `complete` is False.

    Requests: at most `max_requests`, and the retries of the last one; 18, one
    for each 100 series, and one if a query leaves out series.

    Args:
        client: the client.
        entity_id: an entity with a dataset.
        max_requests: how many requests may be sent. If they do not suffice, the report
            is not complete.

    Raises:
        ArgumentError, SelectionError: an argument is not as described.
        ServiceError, TransportError: the metadata are rejected, or not received: the
            token is rejected (401), the account has no access (403), the dataset does
            not exist (404), or the service does not.
        AsyncfinError: later on, what fails all other requests too: a rejected token or
            an unreachable bucket; but not a 401 for usage or limits.

    Example:
        >>> import asyncio
        >>> from asyncfin import Client, check
        >>> from asyncfin.sandbox import Sandbox
        >>> async def main() -> None:
        ...     async with Sandbox.demo() as service:
        ...         async with Client(service.base_url, service.token) as client:
        ...             report = await check(client, service.entities[0])
        ...             print(len(report.breaks), report.complete)
        >>> asyncio.run(main())
        0 True
    """
    checks.instance_of(Client)("client", client)
    check_entity_id(entity_id)
    checks.positive_int("max_requests", max_requests)
    return await Probe(client, entity_id, max_requests).report()
