"""Both value versions in one extraction, and what is unchanged."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from asyncfin import (
    Annual,
    Client,
    FiscalRange,
    Select,
    Unchanged,
    extract,
    read_entity,
)
from asyncfin.cli.extract import report_document as document
from asyncfin.sandbox import Sandbox
from tests.extraction.conftest import COMPANIES, IDS, query
from tests.handmade import ENTITY_ID, dataset, series_id
from tests.services.altering import altered

KEYS = "asked_version, entity_id, series_id, year, end_month, duration_months, number, text"


def operations(sandbox: Sandbox, since: int = 0) -> dict[str | None, int]:
    """How many requests of each operation were served since then."""
    served = [each.operation for each in sandbox.log[since:]]
    return {name: served.count(name) for name in served}


@pytest.mark.parametrize("executor", [False, True])
async def test_both_versions_rows_two_extractions_catalogue(
    sandbox: Sandbox,
    client: Client,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    executor: bool,
) -> None:
    """The column asked_version says which was requested; the next night takes one request each."""
    monkeypatch.setenv("ASYNCFIN_BASE_URL", sandbox.base_url)
    monkeypatch.setenv("ASYNCFIN_TOKEN", sandbox.token)
    expected = []
    for version in ("original", "latest_restated"):
        place = tmp_path / version
        await extract(client, IDS, Select(), FiscalRange(), to=place, value_version=version)
        columns = KEYS.replace("asked_version", f"'{version}'")
        expected += query(f"SELECT {columns} FROM '{place}/*.parquet'")
    since = len(sandbox.log)
    with ThreadPoolExecutor(1) as threads:
        options: dict[str, Any] = {"to": folder, "value_version": "both"}
        options |= {"executor": threads} if executor else {}
        asked = Client.from_env if executor else client
        report = await extract(asked, IDS, Select(), FiscalRange(), **options)
        assert operations(sandbox, since) == {"catalogue": 6, "query": 12}
        assert report.requests == 18
        assert sorted(query(f"SELECT {KEYS} FROM '{folder}/*.parquet'")) == sorted(expected)
        again = await extract(asked, IDS, Select(), FiscalRange(), **options)
    assert (len(again.unchanged), again.requests) == (6, 6)


async def test_unchanged_publication_takes_one_request(sandbox: Sandbox, client: Client) -> None:
    """In whatever case its id is written; another one is read, with one metadata request in all."""
    answer = await read_entity(client, IDS[0], Select(), Annual())
    assert answer.panel is not None
    current = answer.panel.dataset.dataset_id
    for written in (current, current.upper()):
        since, began = len(sandbox.log), datetime.now(UTC)
        unchanged = await read_entity(client, IDS[0], Select(), Annual(), unless=written)
        assert isinstance(unchanged, Unchanged)
        assert unchanged.dataset_id == current
        assert began <= unchanged.confirmed_at <= datetime.now(UTC)
        assert operations(sandbox, since) == {"dataset": 1}
    sandbox.publish(COMPANIES[0])
    since = len(sandbox.log)
    changed = await read_entity(client, IDS[0], Select(), Annual(), unless=current)
    assert operations(sandbox, since) == {"dataset": 1, "catalogue": 1, "query": 1}
    assert not isinstance(changed, Unchanged)
    assert changed.panel is not None
    assert changed.panel.dataset.dataset_id == COMPANIES[0].publications[-1].dataset_id


NUMBERS = {("A", "x"): {"FY2024": 1}, ("B", "x"): {"FY2024": 2}, ("C", "x"): {"FY2024": 3}, ("D", "x"): {}}
LEFT_OUT = {
    "original": {series_id("A", "x"), series_id("B", "x")},
    "latest_restated": {series_id("B", "x"), series_id("D", "x")},
}


def leaving_out(name: str, sent: Any, answer: dict[str, Any]) -> None:
    """Leave out two series in each version, one of which is the same."""
    if name == "query":
        out = LEFT_OUT[sent["value_version"]]
        answer["series"] = [each for each in answer["series"] if each["series_id"] not in out]


@pytest.mark.parametrize("executor", [False, True])
async def test_reports_count_series_service_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch, executor: bool
) -> None:
    """Each once, in whatever version; in the JSON and the text."""
    other = "O-" + "8" * 32
    line = "series that the service left out of its responses: 6 (in 2 entities)"
    datasets = dataset(NUMBERS), dataset(NUMBERS, entity_id=other)
    async with Sandbox(*datasets) as sandbox, altered(sandbox, leaving_out) as url:
        monkeypatch.setenv("ASYNCFIN_BASE_URL", url)
        monkeypatch.setenv("ASYNCFIN_TOKEN", sandbox.token)
        with ThreadPoolExecutor(1) as threads:
            ids = (ENTITY_ID, other)
            options: dict[str, Any] = {"to": folder, "value_version": "both"}
            options |= {"executor": threads, "chunk": 1} if executor else {}
            async with Client(url, sandbox.token) as client:
                asked = Client.from_env if executor else client
                first = await extract(asked, ids, Select(), FiscalRange(), **options)
                again = await extract(asked, ids, Select(), FiscalRange(), **options)
    assert [each.unlisted for each in first.entities] == [3, 3]
    assert str(first).splitlines().count(line) == 1
    written = document(first)
    assert (written["unlisted"], [each["unlisted"] for each in written["entities"]]) == (6, [3, 3])
    assert [each.unlisted for each in again.unchanged] == [0, 0]
    assert "left out of its responses" not in str(again)
