"""The unit of an extraction: the answer of one entity, of one publication, whatever its catalogue lacks."""

from __future__ import annotations

import asyncio

from attrs import frozen

from asyncfin import checks
from asyncfin.client import Client
from asyncfin.extraction.question import Lacking, SharedQuestion, narrow
from asyncfin.model.catalogue import Catalogue, Dataset
from asyncfin.model.period import PeriodSelection
from asyncfin.model.query import ValueVersion
from asyncfin.model.select import Select
from asyncfin.table.panel import Panel
from asyncfin.wire.protocol import check_entity_id

check_client = checks.instance_of(Client)


@frozen
class EntityAnswer:
    """The answer of one entity.

    Attributes:
        panel: the answer, of one publication.
        lacking: the asked ids and words that its catalogue lacks, by field; paths in their text form.
    """

    panel: Panel
    lacking: Lacking

    @property
    def is_unknown(self) -> bool:
        """Whether the entity has nothing of the question because its catalogue lacks what was asked for."""
        return bool(self.lacking) and not self.panel.series


async def read_entity(
    client: Client,
    entity_id: str,
    select: Select,
    periods: PeriodSelection,
    *,
    value_version: ValueVersion = "original",
    fill_cache: bool = False,
) -> EntityAnswer:
    """Return one entity's answer to a question that is asked of many: the unit for any engine.

    Unlike `Client.query`, it does not refuse ids and words that the entity's catalogue lacks: the answer
    names them, and holds what there is. A publication that changes meanwhile starts the read over, three
    times at most. Unlike `extract`, it writes nothing, and takes a Select with `where` and no `name`.

    Requests: one for the metadata, one for each 100 series of the catalogue, and those of the question.

    Args:
        client: the client.
        entity_id: the entity.
        select: the series.
        periods: `Exact`, `FiscalRange`, `Trailing`, `Annual` or `Quarterly`.
        value_version: ``"original"`` or ``"latest_restated"``.
        fill_cache: whether the client keeps the catalogue, and its cache what is read. What a cache holds
            is used all the same.

    Raises:
        SelectionError: an argument is not as described, before a request is spent.
        DatasetChangedError: the publication changed too often.
        MalformedAnswerError: an answer breaks the spec; values are decoded when they are looked at.
        IncompleteResultError: the service lost series.
        ServiceError, TransportError: a request failed, after its retries.
    """
    check_client("client", client)
    check_entity_id(entity_id)
    checks.flag("fill_cache", fill_cache)
    question = SharedQuestion(select, periods, value_version)
    return await read(client, question, entity_id, "read_entity", fill_cache=fill_cache)


async def read(
    client: Client,
    question: SharedQuestion,
    entity_id: str,
    operation: str,
    dataset: Dataset | None = None,
    *,
    fill_cache: bool = False,
) -> EntityAnswer:
    """Return an entity's answer of its current publication, starting over if it changes meanwhile.

    `dataset` is its metadata, if they have just been read; `operation` is what observers are told.
    """
    whole_read = client.whole_read(entity_id, operation)
    while True:
        async with whole_read.restarting():
            if fill_cache:
                current: Dataset = await client.catalogue(entity_id)
            else:
                # The given metadata serve once: after a restart they are those of the old publication.
                current, dataset = dataset or await client.dataset(entity_id), None
            async with whole_read.pinned_to(current.dataset_id):
                # A catalogue that is read for a Dataset is not kept: a night's run would evict what the
                # client's other users need. So would its values from a cache, which is used all the same.
                catalogue = current if isinstance(current, Catalogue) else await client.catalogue(current)
                # In a thread: it builds the catalogue's indexes, which takes long for thousands of series.
                select, lacking = await asyncio.to_thread(narrow, question, catalogue)
                panel = await client.query(
                    catalogue,
                    select,
                    question.periods,
                    value_version=question.value_version,
                    fill_cache=fill_cache,
                )
                return EntityAnswer(panel, lacking)
