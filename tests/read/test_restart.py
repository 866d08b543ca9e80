"""One answer is one publication, whenever the dataset changes (service description, 4.3 rule 6)."""

import asyncio
from contextlib import suppress

import pytest
from attrs import evolve

from asyncfin import Annual, Client, DatasetChangedError, FiscalRange, Panel, Select, SelectionError
from asyncfin.sandbox import Dialect, Sandbox, Switch
from asyncfin.sandbox.dataset import DatasetFile
from tests.generate import generate
from tests.read.test_answers import content, expected, texts

pytestmark = pytest.mark.virtual

SERIES = 150
BOTH = generate(7, series=SERIES, publications=2)
OLD, NEW = (DatasetFile(BOTH.entity_id, BOTH.name, (publication,)) for publication in BOTH.publications)


def whole(dataset: DatasetFile) -> dict[str, object]:
    """Read a publication by brute force."""
    publication = dataset.publications[-1]
    ids = {series["series_id"] for group in publication.groups for series in group["series"]}
    return texts(expected(publication, ids, FiscalRange(), "original")[1])


OLD_TABLE, NEW_TABLE = whole(OLD), whole(NEW)
OLD_ID, NEW_ID = (publication.dataset_id for publication in BOTH.publications)


# The spec leaves open what is checked first, and when the metadata name a new publication.
DIALECTS = pytest.mark.parametrize(
    "dialect",
    [
        Dialect(),
        Dialect(ids_before_pin=True),
        Dialect(cursor_before_pin=True),
        Dialect(ids_before_pin=True, cursor_before_pin=True),
        Dialect(metadata_lag=1),
        Dialect(metadata_lag=2),
    ],
    ids=["pin first", "ids first", "cursor first", "both first", "lag of one", "lag of two"],
)


async def requests_of_a_read() -> int:
    async with Sandbox(OLD) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        return (await client.query(BOTH.entity_id, Select(), FiscalRange())).requests


@DIALECTS
async def test_panel_is_wholly_old_or_new(
    dialect: Dialect,
) -> None:
    """The change may come before any request of the read: nothing is ever mixed."""
    seen = set()
    for nth in range(1, await requests_of_a_read() + 2):
        fault = Switch(nth=nth, publication=NEW)
        async with (
            Sandbox(OLD, dialect=dialect, faults=[fault]) as sandbox,
            Client(sandbox.base_url, sandbox.token) as client,
        ):
            panel = await client.query(BOTH.entity_id, Select(), FiscalRange())
            assert panel.requests == len(sandbox.log)
        seen.add(panel.dataset.dataset_id)
        assert panel.catalogue.dataset_id == panel.dataset.dataset_id
        assert content(panel) == {OLD_ID: OLD_TABLE, NEW_ID: NEW_TABLE}[panel.dataset.dataset_id]
    assert seen == {OLD_ID, NEW_ID}


@DIALECTS
async def test_stream_is_of_one_publication(dialect: Dialect) -> None:
    """Before the first piece it starts over; after it, the change is an error and no piece follows."""
    outcomes = set()
    for nth in range(1, await requests_of_a_read() + 2):
        fault = Switch(nth=nth, publication=NEW)
        async with (
            Sandbox(OLD, dialect=dialect, faults=[fault]) as sandbox,
            Client(sandbox.base_url, sandbox.token, max_in_flight=1) as client,
        ):
            pieces: list[Panel] = []
            changed = False
            async with client.stream(BOTH.entity_id, Select(), FiscalRange()) as stream:
                try:
                    async for piece in stream:
                        pieces.append(piece)
                except DatasetChangedError:
                    changed = True
        assert len({piece.dataset.dataset_id for piece in pieces}) == 1
        got = {name: row for piece in pieces for name, row in content(piece).items()}
        table = {OLD_ID: OLD_TABLE, NEW_ID: NEW_TABLE}[pieces[0].dataset.dataset_id]
        if changed:
            assert 0 < len(got) < len(table)
            assert got.items() <= table.items()
        else:
            assert got == table
        outcomes.add((changed, pieces[0].dataset.dataset_id))
    assert outcomes == {(False, OLD_ID), (False, NEW_ID), (True, OLD_ID)}


async def test_no_piece_follows_a_seen_change() -> None:
    """A page that waits for the consumer while another batch shows a change is not returned."""
    old = generate(7, series=3 * SERIES, publications=1)
    new = evolve(generate(8, series=9).publications[-1], entity_id=old.entity_id)
    changes = 0
    for nth in range(7, 10):
        async with (
            Sandbox(
                old, dialect=Dialect(ids_before_pin=True), faults=[Switch(nth=nth, publication=new)]
            ) as sandbox,
            Client(sandbox.base_url, sandbox.token, max_in_flight=2) as client,
            client.stream(old.entity_id, Select(), Annual()) as stream,
        ):
            with suppress(DatasetChangedError):
                async for _ in stream:
                    assert "dataset" not in {served.operation for served in sandbox.log}
                    await asyncio.sleep(10)
            changes += "dataset" in {served.operation for served in sandbox.log}
    assert changes > 0


async def test_stream_ends_with_change_seen_elsewhere() -> None:
    """Another request of the client shows the next publication: no further piece of the old one."""
    dataset = generate(7, series=3 * SERIES, publications=2)
    async with (
        Sandbox(evolve(dataset, publications=dataset.publications[:1])) as sandbox,
        Client(sandbox.base_url, sandbox.token) as client,
        client.stream(dataset.entity_id, Select(), Annual()) as stream,
    ):
        await anext(stream)
        await asyncio.sleep(10)  # until further pages are ready
        sandbox.publish(dataset)
        await client.dataset(dataset.entity_id)
        with pytest.raises(DatasetChangedError):
            await anext(stream)


async def test_fourth_change_is_the_error() -> None:
    """The dataset changes at every request: four tries, then the service's own 409 comes out."""
    faults = [Switch(nth=range(1, 200, 2), publication=NEW), Switch(nth=range(2, 200, 2), publication=OLD)]
    async with Sandbox(OLD, faults=faults) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        with pytest.raises(DatasetChangedError):
            await client.query(BOTH.entity_id, Select(), FiscalRange())
        assert [served.operation for served in sandbox.log].count("dataset") == 3


async def test_change_fails_a_given_catalogue() -> None:
    """A Catalogue names its publication: nothing is read again."""
    async with Sandbox(OLD) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        catalogue = await client.catalogue(BOTH.entity_id)
        plan = await client.plan(catalogue, Select(), FiscalRange())
        sandbox.publish(NEW)
        spent = len(sandbox.log)
        with pytest.raises(DatasetChangedError):
            await client.query(catalogue, Select(), FiscalRange())
        with pytest.raises(DatasetChangedError):
            await client.run(plan)
        assert {served.operation for served in list(sandbox.log)[spent:]} == {"query"}


@DIALECTS
async def test_restart_resolves_the_rule(dialect: Dialect) -> None:
    """After a restart, the last fiscal year is that of the new catalogue."""
    async with Sandbox(OLD, dialect=dialect) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        before = await client.query(BOTH.entity_id, Select(), Annual(last=1))
        sandbox.publish(NEW)
        after = await client.query(BOTH.entity_id, Select(), Annual(last=1))
    assert before.periods < after.periods


async def test_stale_catalogue_rejects_no_query() -> None:
    """What a kept catalogue does not have may be in the new publication: one metadata request decides."""
    old_ids = {series["series_id"] for group in OLD.publications[0].groups for series in group["series"]}
    new = next(
        series
        for group in NEW.publications[0].groups
        for series in group["series"]
        if series["series_id"] not in old_ids
    )
    select = Select(where=lambda series: series.series_id == new["series_id"])
    async with Sandbox(OLD) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        with pytest.raises(SelectionError, match="where"):
            await client.query(BOTH.entity_id, select, FiscalRange())
        with pytest.raises(SelectionError, match="no-such-metric"):
            await client.query(BOTH.entity_id, Select(metric_ids="no-such-metric"), FiscalRange())
        operations = [served.operation for served in sandbox.log]
        assert operations.count("dataset") == 1  # the confirmation
        sandbox.publish(NEW)
        panel = await client.query(BOTH.entity_id, select, FiscalRange())
        assert panel.series_ids == (new["series_id"],)
