"""The expected cost of an extraction, before it is begun."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial

from attrs import frozen

from asyncfin import Client, Select, checks
from asyncfin.extraction.extract import check_ids
from asyncfin.extraction.places import place_of
from asyncfin.extraction.question import SharedQuestion
from asyncfin.extraction.record import read_records
from asyncfin.extraction.report import describe_unknown, find_unknown
from asyncfin.extraction.workers import check_client
from asyncfin.tasks import in_thread
from asyncfin.typing import AskedVersion, Missing, PeriodSelection
from asyncfin.words import counted, lasting

# Series on a page of a catalogue.
_PAGE = 100


@frozen
class ExtractCost:
    """The expected cost of an extraction.

    Attributes:
        entities: how many entities it is for.
        files: how many of them have a file, which costs one request if nothing has
            changed.
        least: how many requests it will take if no file has changed.
        most: how many, if all of them have.
        per_entity: how many requests an entity takes that is read, on average: of the
            files or, without any, of three entities.
        spent: how many requests the estimate itself took.
        rate: requests per second, as the client's bucket has it, or None if that has
            none yet.
        sample_size: of how many entities the estimate knows the requests and names.
        unknown: the names that none of the files has or, without any, none of the three
            entities, by field.
        complaint: what one of the three has in place of them.
    """

    entities: int
    files: int
    least: int
    most: int
    per_entity: float
    spent: int
    rate: float | None
    sample_size: int
    unknown: Missing
    complaint: str | None

    def __str__(self) -> str:
        span = f"{self.least:,}"
        if self.least != self.most:
            span += f" to {self.most:,}"
        duration = "how long that takes depends on the rate, which is not set"
        if self.rate is not None:
            duration = (
                f"at least {lasting(self.least / self.rate)} at {self.rate:,.3g} "
                "requests a second"
            )
        lines = [
            f"entities: {self.entities - self.files:,} new, {self.files:,} with a file",
            f"about {span} requests will be sent; an entity that is read takes about "
            f"{self.per_entity:,.0f}",
            duration,
        ]
        if self.unknown:
            text = describe_unknown(self.unknown, self.sample_size, self.complaint)
            lines.append(text)
        lines.append(f"the estimate took {counted(self.spent, 'request')}")
        return "\n".join(lines)


async def extract_cost(
    client: Client,
    entity_ids: Iterable[str],
    select: Select,
    periods: PeriodSelection,
    *,
    to: str | os.PathLike[str],
    value_version: AskedVersion = "original",
    refresh: bool = False,
    replace: bool = False,
) -> ExtractCost:
    """Return the expected cost of `extract` with the same arguments. Nothing is
    written.

    Requests: none if there are files, whose footers record what they took; otherwise
    the catalogues of the first, the middle and the last entity.

    Raises:
        ArgumentError, ManifestMismatchError, ImportError, OSError: as for `extract`.
        SelectionError: the query is not as described.
        AsyncfinError: the catalogue of one of the three can't be read.
    """
    ids = check_ids(entity_ids)
    check_client("client", client)
    question = SharedQuestion(select, periods, value_version)
    checks.flag("refresh", refresh)
    checks.flag("replace", replace)
    place = await in_thread(partial(place_of, to))
    read = partial(read_records, place, question, replace=replace)
    records, _ = await in_thread(read)
    count = client.stats().requests
    costs = [record.requests for record in records.values()]
    missing = [record.missing for record in records.values()]
    complaint = None
    if not costs:
        sample_ids = ids[0], ids[len(ids) // 2], ids[-1]
        # One after the other.
        for entity_id in dict.fromkeys(sample_ids):
            catalogue = await client.catalogue(entity_id)
            plan = await client.plan(catalogue, select, periods, allow_missing=True)
            pages = max(1, -(-len(catalogue) // _PAGE))
            versions = 2 if value_version == "both" else 1
            costs.append(pages + versions * plan.requests)
            missing.append(catalogue.missing(select))
            if missing[-1]:
                complaint = catalogue.explain(missing[-1])
    per_entity = sum(costs) / len(costs)
    files = len(records.keys() & set(ids))
    comparisons = 0 if refresh else files
    return ExtractCost(
        entities=len(ids),
        files=files,
        least=round((len(ids) - comparisons) * per_entity) + comparisons,
        most=round(len(ids) * per_entity) + comparisons,
        per_entity=per_entity,
        spent=client.stats().requests - count,
        rate=client.bucket.stats().rate,
        sample_size=len(costs),
        unknown=find_unknown(missing),
        complaint=complaint,
    )
