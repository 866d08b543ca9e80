"""A client with a bucket that is none of ours: an object with the methods of the protocol."""

from typing import Any

import pytest

from asyncfin import AllowanceExhaustedError, Bucket, Client, FiscalRange, Retry, Select, TokenBucket
from asyncfin.sandbox import Drop, Sandbox, Status
from tests.generate import generate

DATASET = generate(11, series=40)
METHODS = ("acquire", "give_back", "unspend", "refused", "exhaust", "stats", "aclose")


class Others:
    """Has these methods, and nothing else."""

    __slots__ = METHODS

    def __init__(self, called: list[str]) -> None:
        bucket = TokenBucket()

        def recorded(name: str) -> Any:
            def call(*arguments: Any, **options: Any) -> Any:
                called.append(name)
                return getattr(bucket, name)(*arguments, **options)

            return call

        for name in METHODS:
            setattr(self, name, recorded(name))


@pytest.mark.virtual
async def test_any_bucket_object_is_accepted() -> None:
    """A question, a refusal, a lost connection and a used-up allowance."""
    called: list[str] = []
    bucket = Others(called)
    assert isinstance(bucket, Bucket)
    faults = [
        Status(status=429, retry_after=1, operation="catalogue", nth=1),
        Drop(operation="query", nth=1),
        Status(status=429, retry_after=7200, operation="dataset", nth=1),
    ]
    async with (
        Sandbox(DATASET, faults=faults) as sandbox,
        Client(sandbox.base_url, sandbox.token, bucket=bucket, retry=Retry(wait_initial=0.1)) as client,
    ):
        panel = await client.query(DATASET.entity_id, Select(), FiscalRange())
        assert len(panel) == 40
        with pytest.raises(AllowanceExhaustedError):
            await client.dataset(DATASET.entity_id)
        assert called.count("acquire") == len(sandbox.log) == 5
    assert {"refused", "exhaust"} <= {*called}
