"""A night on a bad network: the service fails in every way, and every panel is right."""

import asyncio
import io
import logging
import os
import random

import pytest

from asyncfin import Client, FiscalRange, Panel, Retry, Select, TokenBucket, Trailing
from asyncfin.model.selection import PeriodSelection
from asyncfin.sandbox import Dialect, Drop, Fault, Hang, Sandbox, Status, Switch
from asyncfin.sandbox.dataset import DatasetFile
from tests.generate import generate
from tests.read.test_answers import content, expected, series_ids, texts

pytestmark = [pytest.mark.virtual, pytest.mark.timeout(7200)]

REQUESTS = int(os.environ.get("ASYNCFIN_CHAOS", "250"))
BOTH = generate(21, series=700, publications=3)
STEADY = generate(22, series=300, publications=1)
DIALECTS = {
    "plain": Dialect(),
    "ids and cursor before the pin": Dialect(
        ids_before_pin=True, cursor_before_pin=True, empty_series=False, pages="short", gzip=True
    ),
}
PERIODS: list[PeriodSelection] = [FiscalRange(), Trailing(24)]


def faults() -> list[Fault]:
    """Fail one request in eight, each time in another way, and publish twice."""
    return [
        Status(status=500, share=0.02, seed=1),
        Status(status=503, share=0.03, seed=2),
        Status(status=429, retry_after=1, share=0.03, seed=3),
        Drop(share=0.02, seed=4),
        Drop(after=0.5, share=0.02, seed=5),
        Hang(share=0.01, seed=6),
        Switch(nth=REQUESTS // 4, publication=only(BOTH, 1)),
        Switch(nth=REQUESTS * 3 // 5, publication=only(BOTH, 2)),
    ]


def only(dataset: DatasetFile, at: int) -> DatasetFile:
    return DatasetFile(dataset.entity_id, dataset.name, (dataset.publications[at],))


def lasting(dataset: DatasetFile) -> list[str]:
    """Return the series that all publications of a dataset have."""
    each = [series_ids(only(dataset, at)) for at in range(len(dataset.publications))]
    return sorted(set(each[0]).intersection(*each))


# Each question wants one of these: where it fits no series, the right answer is a SelectionError.
LASTING = {dataset.entity_id: lasting(dataset) for dataset in (BOTH, STEADY)}


def picking(wanted: set[str]) -> Select:
    """Return a Select that also finds what a later publication has of these series."""
    return Select(where=lambda series: series.series_id in wanted)


def right(panel: Panel, wanted: set[str], periods: PeriodSelection, version: str) -> bool:
    """Compare a panel with its own publication, read by brute force."""
    publications = [*BOTH.publications, *STEADY.publications]
    (publication,) = [each for each in publications if each.dataset_id == panel.dataset.dataset_id]
    known = {series["series_id"] for group in publication.groups for series in group["series"]}
    shown, values = expected(publication, wanted & known, periods, version)
    return content(panel) == texts(values) and list(panel.periods) == shown


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
async def test_panels_are_right_amid_faults(dialect: Dialect) -> None:
    """The service fails, refuses, breaks off, hangs and publishes twice; ASYNCFIN_CHAOS says for how long.

    Nothing is left behind, the retries stay within their quota, and the token is in no log record.
    """
    said = io.StringIO()
    root = logging.getLogger()
    listener = logging.StreamHandler(said)
    ours = logging.getLogger("asyncfin")
    levels = [(each, each.level) for each in (root, ours)]
    root.addHandler(listener)
    for logger, _ in levels:
        logger.setLevel(logging.DEBUG)
    source = random.Random(0)
    bucket = TokenBucket(50.0, 8)
    publications: set[str] = set()
    answered = 0

    async def ask_on(client: Client) -> None:
        nonlocal answered
        while bucket.stats().granted < REQUESTS:
            dataset = source.choice([BOTH, BOTH, STEADY])
            ids = series_ids(dataset)
            wanted = {source.choice(LASTING[dataset.entity_id])}
            wanted |= set(source.sample(ids, source.choice([len(ids), 40, 5])))
            periods, version = source.choice(PERIODS), source.choice(["original", "latest_restated"])
            panel = await client.query(dataset.entity_id, picking(wanted), periods, value_version=version)
            assert right(panel, wanted, periods, version)
            publications.add(panel.dataset.dataset_id)
            answered += 1

    before = asyncio.all_tasks()
    try:
        async with Sandbox(only(BOTH, 0), STEADY, dialect=dialect, faults=faults()) as sandbox:
            # Of five attempts, all fail once in 27,000 requests: too often for a test.
            retry = Retry(attempts=9)
            async with Client(sandbox.base_url, sandbox.token, bucket=bucket, retry=retry) as client:
                await asyncio.gather(*(ask_on(client) for _ in range(6)))
                stats = client.stats()
            token = sandbox.token
    finally:
        root.removeHandler(listener)
        for logger, level in levels:
            logger.setLevel(level)
    assert publications == {each.dataset_id for each in (*BOTH.publications, *STEADY.publications)}
    assert answered > REQUESTS / 20
    assert stats.refused > REQUESTS / 100
    assert stats.retries - stats.refused <= 200 + 0.5 * (stats.requests - stats.retries)
    assert asyncio.all_tasks() <= before
    assert sum(bucket.stats().waiting.values()) == 0
    assert "RequestFinished" in said.getvalue()
    assert token not in said.getvalue()
