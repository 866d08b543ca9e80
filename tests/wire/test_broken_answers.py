"""A read is refused when an answer breaks the service's promises: nothing broken is passed on as whole."""

from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from asyncfin import (
    Client,
    DatasetChangedError,
    FiscalRange,
    MalformedAnswerError,
    Retry,
    Select,
)
from asyncfin.sandbox import Sandbox, Status
from tests.generate import generate
from tests.services.altering import altered

pytestmark = pytest.mark.virtual

DATASET = generate(3, series=180, publications=1)
Response = dict[str, Any]


async def ask(
    alter: Callable[[Response, Response], None], *, operation: str = "query", **options: Any
) -> None:
    """Ask for everything, of a service that alters the answers of one operation."""

    def change(name: str, sent: Response, answer: Response) -> None:
        if name == operation:
            alter(sent, answer)

    async with (
        Sandbox(DATASET, **options) as sandbox,
        altered(sandbox, change) as base_url,
        Client(base_url, sandbox.token) as client,
    ):
        await client.query(DATASET.entity_id, Select(), FiscalRange())


async def test_late_value_errors_name_their_series() -> None:
    """Values that are refused when looked at have the facts of their page in the error."""

    def spoil(sent: Response, answer: Response) -> None:
        value = next(value for series in answer["series"] for value in series["values"] if value)
        value["text"] = 5

    def change(name: str, sent: Response, answer: Response) -> None:
        if name == "query":
            spoil(sent, answer)

    async with (
        Sandbox(DATASET) as sandbox,
        altered(sandbox, change) as base_url,
        Client(base_url, sandbox.token) as client,
    ):
        plan = await client.plan(DATASET.entity_id, Select(), FiscalRange())
        panel = await client.run(plan)
        async with aclosing(client.query_pages(DATASET.entity_id, plan.batches[0])) as pages:
            page = await anext(pages)
    with pytest.raises(MalformedAnswerError) as of_panel:
        panel.check()
    with pytest.raises(MalformedAnswerError) as of_text:
        panel.to_json()
    with pytest.raises(MalformedAnswerError) as of_page:
        [series.values for series in page.series]
    for caught in (of_panel, of_text, of_page):
        assert (caught.value.operation, caught.value.entity_id) == ("query", DATASET.entity_id)
    assert of_page.value.at == page.at


def not_in_the_catalogue(sent: Response, answer: Response) -> None:
    answer["series"][0]["series_id"] = "unknown-series"


def another_dataset_id(sent: Response, answer: Response) -> None:
    answer["dataset_id"] = "00000000-0000-0000-0000-000000000000"


def another_entity_id(sent: Response, answer: Response) -> None:
    answer["entity_id"] = "O-" + "0" * 32


def out_of_the_range(sent: Response, answer: Response) -> None:
    at = next(at for at, value in enumerate(answer["series"][0]["values"]) if value)
    answer["periods"][at] = {**answer["periods"][at], "year": 1990}


@pytest.mark.parametrize(
    ("alter", "named"),
    [
        (not_in_the_catalogue, "unknown-series"),
        (another_entity_id, r"\$\.entity_id"),
        (out_of_the_range, "1990"),
    ],
)
async def test_broken_page_is_rejected_with_place(
    alter: Callable[[Response, Response], None], named: str
) -> None:
    """Whatever breaks the spec is MalformedAnswerError, naming the place and the operation."""
    with pytest.raises(MalformedAnswerError, match=named) as caught:
        await ask(alter)
    assert caught.value.operation == "query"
    assert caught.value.at is not None


async def test_page_of_another_publication_is_change() -> None:
    """Each time, so the read ends after three restarts."""
    with pytest.raises(DatasetChangedError, match="the response is of publication 0000"):
        await ask(another_dataset_id)


@pytest.mark.parametrize("operation", ["dataset", "catalogue", "query", "limits"])
@pytest.mark.parametrize("body", [b"", b"\n<!DOCTYPE html><title>Sign in</title>" + b"." * 1000])
async def test_proxy_page_is_named(operation: str, body: bytes) -> None:
    """A 200 with a sign-in page is not the service's: the error shows how it begins."""
    fault = Status(status=200, body=body, operation=operation)
    async with (
        Sandbox(DATASET, faults=[fault]) as sandbox,
        Client(sandbox.base_url, sandbox.token, retry=Retry(attempts=1)) as client,
    ):
        calls = {"limits": client.limits(), "dataset": client.dataset(DATASET.entity_id)}
        call = calls.pop(operation, None) or client.query(DATASET.entity_id, Select(), FiscalRange())
        for unused_call in calls.values():
            unused_call.close()
        with pytest.raises(MalformedAnswerError) as caught:
            await call
    said = "the body is empty"
    if body:
        said = (
            "the body is not JSON and probably comes from something in front of the service:"
            f" '<!DOCTYPE html><title>Sign in</title>{'.' * 43}'"
        )
    assert caught.value.problems == (said,)
    assert caught.value.operation == operation
