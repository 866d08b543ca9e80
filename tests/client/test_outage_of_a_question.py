"""A question of several requests during an outage, and after it."""

import asyncio

import pytest

from asyncfin import Annual, AsyncfinError, Client, Select
from asyncfin.sandbox import Sandbox, Status


@pytest.mark.virtual
@pytest.mark.parametrize("max_in_flight", [1, 2, 8])
async def test_a_question_of_several_batches_finds_out_that_the_service_responds_again(
    max_in_flight: int,
) -> None:
    """Its requests wait for the one that is the probe, and do not cancel it by their errors."""
    async with (
        Sandbox.demo() as sandbox,
        Client(sandbox.base_url, sandbox.token, max_in_flight=max_in_flight) as client,
    ):
        catalogues = [await client.catalogue(each) for each in sandbox.entities]
        assert (await client.plan(catalogues[0], Select(), Annual(last=1))).requests > 1
        sandbox.inject(Status(status=503))
        for each in sandbox.entities * 4:
            with pytest.raises(AsyncfinError):
                await client.query(each, Select(), Annual(last=1))
        assert client.stats().outage_since is not None
        sandbox.clear_faults()
        await asyncio.sleep(600)
        panel = await client.query(sandbox.entities[0], Select(), Annual(last=1))
        assert len(panel) == len(catalogues[0])
        assert client.stats().outage_since is None


@pytest.mark.virtual
async def test_during_an_outage_a_question_fails_with_its_probe(caplog: pytest.LogCaptureFixture) -> None:
    """One request is sent for it, at most; other questions fail at once."""
    async with Sandbox.demo() as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        for each in sandbox.entities:
            await client.catalogue(each)
        sandbox.inject(Status(status=503))
        for each in sandbox.entities * 4:
            with pytest.raises(AsyncfinError):
                await client.query(each, Select(), Annual(last=1))
        await asyncio.sleep(600)
        sent = len(sandbox.log)
        results = await asyncio.gather(
            *(client.query(each, Select(), Annual(last=1)) for each in sandbox.entities),
            return_exceptions=True,
        )
        assert all(isinstance(each, AsyncfinError) for each in results)
        assert len(sandbox.log) == sent + 1
