"""The catalogues that a client has read: once for a publication, not once for a question.

A kept catalogue may be stale. The pin makes that harmless: what is asked with it is refused with
`dataset_changed`, and it is read again.
"""

from collections import OrderedDict
from datetime import datetime

from asyncfin.errors import DatasetChangedError
from asyncfin.events import Restarted
from asyncfin.model.catalogue import Catalogue, Dataset, is_same_publication
from asyncfin.wire.pages import Send, read_catalogue
from asyncfin.wire.protocol import Request, Response, dataset_request, read_dataset
from asyncfin.wire.sender import Sender
from asyncfin.wire.tasks import SingleFlight

MAX_RESTARTS = 3
MAX_KEPT_SERIES = 200_000


class Reading:
    """One whole read: what it sends, counts, and how often it has started over.

    `answered_at` is when the last answer came.
    """

    def __init__(self, sender: Sender, operation: str) -> None:
        self._sender = sender
        self.operation = operation
        self.requests = 0
        self.restarts = 0
        self.answered_at: datetime | None = None

    async def send(self, request: Request) -> Response:
        """Send a request, and count each attempt."""
        answer = await self._sender.send(request, attempting=self._count)
        self.answered_at = answer.at
        return answer

    def _count(self) -> None:
        self.requests += 1

    def start_over(self, entity_id: str, error: DatasetChangedError) -> None:
        """Note that the publication changed.

        Raises:
            DatasetChangedError: `error`, where it has changed too often.
        """
        if self.restarts == MAX_RESTARTS:
            raise error
        self.restarts += 1
        self._sender.announce(Restarted(self.operation, entity_id, self.restarts))


async def read_metadata(send: Send, entity_id: str) -> Dataset:
    """Return an entity's current dataset (spec 4.1). One request."""
    request = dataset_request(entity_id)
    return read_dataset(request, await send(request))


class Catalogues:
    """The last catalogue of each entity, the latest used ones, up to 200,000 series in all."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Catalogue] = OrderedDict()
        self._reads: SingleFlight[str, Catalogue] = SingleFlight()

    def kept(self, entity_id: str) -> Catalogue | None:
        """Return the last catalogue read of an entity, if it is still kept. No request."""
        if entity_id in self._kept:
            self._kept.move_to_end(entity_id)
        return self._kept.get(entity_id)

    async def current(self, entity_id: str, reading: Reading) -> Catalogue:
        """Return the catalogue of the current publication, read only where it is not the kept one.

        One request for the metadata, and one for each hundred series of a new publication. Callers that
        ask at the same time share the reading of the first.

        Raises:
            DatasetChangedError: the publication changed too often meanwhile.
        """
        return await self._reads.share(entity_id, lambda: self._read(entity_id, reading))

    async def _read(self, entity_id: str, reading: Reading) -> Catalogue:
        while True:
            dataset = await read_metadata(reading.send, entity_id)
            kept = self._kept.get(entity_id)
            if kept is not None and is_same_publication(kept.dataset_id, dataset.dataset_id):
                return kept
            try:
                catalogue = await read_catalogue(reading.send, dataset)
            except DatasetChangedError as error:
                reading.start_over(entity_id, error)
            else:
                self._keep(catalogue)
                return catalogue

    def forget(self, catalogue: Catalogue) -> None:
        """Drop a catalogue whose pin was refused: the metadata may go on naming it for a while."""
        if self._kept.get(catalogue.entity_id) is catalogue:  # what was read since is as good as it gets
            del self._kept[catalogue.entity_id]

    def _keep(self, catalogue: Catalogue) -> None:
        self._kept.pop(catalogue.entity_id, None)
        self._kept[catalogue.entity_id] = catalogue
        while len(self._kept) > 1 and sum(map(len, self._kept.values())) > MAX_KEPT_SERIES:
            self._kept.popitem(last=False)
