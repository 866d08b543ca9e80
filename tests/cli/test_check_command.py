"""`asyncfin check` and `asyncfin record`, against a service."""

import asyncio
import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from asyncfin import AsyncfinError, Client, FiscalRange, Panel, Select
from asyncfin.cli.options import Service
from asyncfin.cli.sandbox import encode_dataset, read_dataset, record
from asyncfin.sandbox import Sandbox, load
from asyncfin.sandbox.demo import demo_datasets
from tests import handmade
from tests.cli.conftest import ENTITY, Command, serving as run_sandbox
from tests.services.altering import altered


def test_conforming_service_has_exit_code_0(command: Command, service: Sandbox) -> None:
    """The report is a text, or JSON."""
    before = len(service.log)
    result = command("check", ENTITY)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"{ENTITY}: {len(service.log) - before} requests, no break of the spec\n")
    written = json.loads(command("check", ENTITY, "--json").out)
    assert written["complete"] is True
    assert {each["kind"] for each in written["findings"]} <= {"reading", "limit", "extra"}


def test_incomplete_check_has_exit_code_1(command: Command) -> None:
    """The report is still printed, and one line says what to do."""
    result = command("check", ENTITY, "--max-requests", "5")
    assert result.code == 1
    assert "5 requests, no break of the spec; not all checks were made" in result.out
    assert "--max-requests" in result.line


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch, *datasets: Any) -> Iterator[Sandbox]:
    """Run a sandbox on a separate loop, and name it in the environment."""
    with run_sandbox(*datasets) as sandbox:
        monkeypatch.setenv("ASYNCFIN_BASE_URL", sandbox.base_url)
        monkeypatch.setenv("ASYNCFIN_TOKEN", sandbox.token)
        yield sandbox


async def read(dataset: Any) -> tuple[Any, list[Any]]:
    """Return a dataset's catalogue and the values of both versions, as a client reads them."""
    async with Sandbox(dataset) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        catalogue = await client.catalogue(sandbox.entities[0])
        panels = [
            await client.query(catalogue, Select(), FiscalRange(), value_version=version)
            for version in ("original", "latest_restated")
        ]
    return catalogue, [contents(panel) for panel in panels]


def contents(panel: Panel) -> Any:
    return [(series.series_id, list(series.observations())) for series in panel]


def test_recorded_datasets_are_served_unchanged(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catalogue, both versions and all sources are equal; each page is read once. Nothing of the account."""
    datasets = {each.entity_id: each for each in demo_datasets()}
    with serving(monkeypatch, *datasets.values()) as demo:
        result = command("record", *datasets, "--into", str(tmp_path / "recorded"))
        requests = [each.path.split("/")[3] for each in demo.log]
        of_the_account = [demo.token, demo.base_url]
    assert (result.code, result.out, result.err) == (0, f"{tmp_path / 'recorded'}: 3 files\n", "")
    for entity_id, dataset in datasets.items():
        file = tmp_path / "recorded" / f"{entity_id}.json.gz"
        text = gzip.decompress(file.read_bytes()).decode()
        assert not [each for each in of_the_account if each in text]
        recorded = load(file)
        assert asyncio.run(read(recorded)) == asyncio.run(read(dataset))
        pages = -(-sum(len(group["series"]) for group in recorded.publications[0].groups) // 100)
        assert requests.count(entity_id) == 3 * pages


def test_recording_stays_in_its_folder(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An id of 32 characters with slashes is one file name, as that of an extraction."""
    entity_id = "O-/../../" + "a" * 25
    source = handmade.dataset({("Revenue", "all"): {"FY2024": 1.0}}, entity_id=entity_id)
    into = tmp_path / "deep" / "recorded"
    with serving(monkeypatch, source):
        assert command("record", entity_id, "--into", str(into)).code == 0
    (written,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert written == into / f"O-%2F..%2F..%2F{'a' * 25}.json.gz"


async def test_values_at_unlisted_periods_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No value of a service is lost in its recording."""

    def alter(operation: str, _: Any, body: dict[str, Any]) -> None:
        if operation == "catalogue":
            del body["periods"][1]

    numbers = {label: float(at) for at, label in enumerate(("FY2022", "FY2023", "FY2024"))}
    source = handmade.dataset({("Revenue", "all"): numbers})
    async with Sandbox(source) as sandbox, altered(sandbox, alter) as base_url:
        monkeypatch.setenv("ASYNCFIN_TOKEN", sandbox.token)
        await record(handmade.ENTITY_ID, folder=tmp_path, service=Service(base_url=base_url))
    async with (
        Sandbox(tmp_path / f"{handmade.ENTITY_ID}.json.gz") as recorded,
        Client(recorded.base_url, recorded.token) as client,
    ):
        panel = await client.query(handmade.ENTITY_ID, Select(), FiscalRange())
    assert {period.label: value.number for period, value in panel.one().observations()} == numbers


def without_scopes(name: str, sent: Any, answer: dict[str, Any]) -> None:
    """Leave out the scopes of the catalogue, which the paths of its series name."""
    if name == "catalogue":
        answer["scope_groups"] = []


async def test_scopes_of_paths_are_recorded() -> None:
    """The sandbox would reject the file otherwise."""
    source = handmade.dataset({("Revenue", "all"): {"FY2024": 1.0}})
    async with (
        Sandbox(source) as sandbox,
        altered(sandbox, without_scopes) as url,
        Client(url, sandbox.token) as client,
    ):
        dataset = await read_dataset(client, sandbox.entities[0])
    (catalogue, panels), (_, expected) = await read(load(encode_dataset(dataset))), await read(source)
    assert panels == expected
    (group,) = catalogue.scope_groups
    (series,) = catalogue.series
    assert [(group.scope_group_id, group.scopes[0].scope_id)] == [
        (scope.scope_group_id, scope.scope_id) for scope in series.scopes
    ]


async def test_what_sandbox_would_reject_is_error() -> None:
    """No file is written and called a success."""
    source = handmade.dataset({("Revenue", "all"): {"FY2024": 1.0}})
    async with Sandbox(source) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        dataset = await read_dataset(client, sandbox.entities[0])
    (publication,) = dataset.publications
    group, *_ = publication.groups
    broken = evolve(dataset, publications=(evolve(publication, groups=(group, group)),))
    with pytest.raises(AsyncfinError, match=r"can't be recorded: .*which"):
        encode_dataset(broken)
