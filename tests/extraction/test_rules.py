"""The two rules that end a run that cannot succeed, and what is reported of names that entities lack."""

import json
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from asyncfin import (
    Annual,
    Client,
    ManifestMismatchError,
    PermissionDeniedError,
    Select,
    UnknownToAllError,
    extract,
)
from asyncfin.extraction.report import EntityReport, ExtractReport
from asyncfin.sandbox import Sandbox
from tests.extraction.conftest import FIRST, IDS, UNKNOWN_ID, names
from tests.extraction.gate import TOKEN, entity, gate

ALL = Select()


@pytest.fixture(params=["one process", "workers"])
def workers(request: pytest.FixtureRequest) -> Iterator[Executor | None]:
    if request.param == "one process":
        yield None
        return
    with ThreadPoolExecutor(1) as executor:
        yield executor


async def run(
    base_url: str, workers: Executor | None, monkeypatch: pytest.MonkeyPatch, ids: list[str], to: Path,
    select: Select = ALL, **options: Any,
) -> ExtractReport:  # fmt: skip
    if workers is not None:
        monkeypatch.setenv("ASYNCFIN_BASE_URL", base_url)
        monkeypatch.setenv("ASYNCFIN_TOKEN", TOKEN)
        options |= {"executor": workers, "chunk": 5}
        return await extract(Client.from_env, ids, select, Annual(), to=to, **options)
    async with Client(base_url, TOKEN, max_in_flight=2) as client:
        return await extract(client, ids, select, Annual(), to=to, **options)


@pytest.mark.parametrize(
    ("path", "error", "code"), [("", "403 staged", 3), ("/wrong", "base URL is probably wrong", 4)]
)
async def test_ten_rejections_end_a_first_run(
    workers: Executor | None, monkeypatch: pytest.MonkeyPatch, folder: Path, path: str, error: str, code: int
) -> None:
    """No file and no success: the account has no access, or the web server knows no such path."""
    ids = [entity(number) for number in range(100)]
    async with gate(lambda *_: 403) as (_, url):
        report = await run(url + path, workers, monkeypatch, ids, folder)
    assert error in str(report.stopped)
    assert (report.outcome, report.exit_code) == ("stopped", code)
    assert 10 <= report.requests <= 20
    assert len(report.left) >= 80


async def test_missing_entities_do_not_end_run(
    workers: Executor | None, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """The service's own 404 is about one entity."""
    ids = [entity(number) for number in range(30)]
    async with gate(lambda *_: 404) as (_, url):
        report = await run(url, workers, monkeypatch, ids, folder)
    assert (len(report.failed), report.stopped) == (30, None)


async def test_one_success_lets_a_run_continue(
    workers: Executor | None, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """A list can have many entities of another contract."""
    ids = [entity(number) for number in range(30)]
    async with gate(lambda of, *_: 200 if of == ids[3] else 403) as (_, url):
        report = await run(url, workers, monkeypatch, ids, folder)
    assert (len(report.done), len(report.failed), report.stopped) == (1, 29, None)


@pytest.mark.parametrize("is_rejected", [False, True])
async def test_an_entity_with_a_file_decides(
    workers: Executor | None, monkeypatch: pytest.MonkeyPatch, folder: Path, is_rejected: bool
) -> None:
    """After ten rejections it is asked next; only its 403 ends the run, and its file stays."""
    ids = [entity(number) for number in range(60)]
    has_access = {ids[50]}
    async with gate(lambda of, *_: 200 if of in has_access else 403) as (service, url):
        await run(url, workers, monkeypatch, ids[50:51], folder)
        before = service.requests.total()
        if is_rejected:
            has_access.clear()
        report = await run(url, workers, monkeypatch, ids, folder)
    spent = service.requests.total() - before
    assert (folder / f"{ids[50]}.parquet").exists()
    if is_rejected:
        assert isinstance(report.stopped, PermissionDeniedError)
        assert spent <= 20
    else:
        assert (len(report.unchanged), len(report.failed), report.stopped) == (1, 59, None)
        assert list(service.order).index(ids[50]) <= 20


async def test_fresh_file_decides(
    workers: Executor | None, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """With `fresh_for`, one of the skipped entities is asked, so rejections of all others end the run."""
    ids = [entity(number) for number in range(60)]
    has_access = set(ids[:2])
    async with gate(lambda of, *_: 200 if of in has_access else 403) as (service, url):
        await run(url, workers, monkeypatch, ids[:2], folder)
        before = service.requests.total()
        has_access.clear()
        fresh_for = timedelta(hours=20)
        report = await run(url, workers, monkeypatch, ids, folder, fresh_for=fresh_for)
    assert isinstance(report.stopped, PermissionDeniedError)
    assert service.requests.total() - before <= 20
    assert len(report.unchanged) == 1
    assert len(names(folder)) == 2


async def test_twenty_five_without_anything_end_run(
    workers: Executor | None, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """The error names what is missing and what comes close; the files stay, and the next run ends too."""
    ids = [entity(number) for number in range(100)]
    select = Select(metric_ids=["Revenu", "Nonsense"])
    async with gate(lambda *_: 200) as (_, url):
        for _ in range(2):
            with pytest.raises(UnknownToAllError, match=r"'Revenu'.*close: Revenue") as raised:
                await run(url, workers, monkeypatch, ids, folder, select)
            report = raised.value.extract_report
            assert dict(report.unknown) == {"metric_ids": ("Revenu", "Nonsense")}
            assert (report.outcome, report.exit_code) == ("stopped", 2)
            assert 25 <= len(report.done) <= 40
    assert 50 <= len(names(folder)) <= 80


def test_error_precedes_missing_names() -> None:
    """A run that the service ended has not shown yet that no entity has them."""
    entities = (
        EntityReport(IDS[0], "done", missing={"metric_ids": ("Revenu",)}),
        EntityReport(IDS[1], "left"),
    )
    error = PermissionDeniedError(status=403, code="forbidden", message="no")
    report = ExtractReport(entities, 1.0, error, {"metric_ids": ("Revenu",)})
    report.raise_for_unknown()
    assert (report.error, report.outcome, report.exit_code) == (error, "stopped", 3)
    report = ExtractReport(entities, 1.0, unknown={"metric_ids": ("Revenu",)})
    with pytest.raises(UnknownToAllError):
        report.raise_for_unknown()
    assert (report.outcome, report.exit_code) == ("stopped", 2)


async def test_rare_names_are_allowed(
    workers: Executor | None, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """With `allow_missing` all are read, and the report names what they lack."""
    ids = [entity(number) for number in range(40)]
    select = Select(metric_ids="Nonsense")
    async with gate(lambda *_: 200) as (_, url):
        report = await run(url, workers, monkeypatch, ids, folder, select, allow_missing=True)
    assert (len(report.done), report.exit_code, dict(report.unknown)) == (40, 0, {})
    assert "missing: metric_ids 'Nonsense' in 40 entities" in str(report)


async def test_file_rows_proves_question(
    workers: Executor | None, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    """Thirty entities without anything of it are no reason to stop then."""
    async with Sandbox(*FIRST) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        metric = (await client.catalogue(IDS[0])).series[0].metric_id
        await extract(client, IDS[:1], Select(metric_ids=metric), Annual(), to=folder)
    ids = [entity(number) for number in range(30)]
    async with gate(lambda *_: 200) as (_, url):
        with pytest.raises(UnknownToAllError) as raised:
            await run(url, workers, monkeypatch, ids, folder, Select(metric_ids=metric))
    # At the end: none of those that were given has the name.
    assert len(raised.value.extract_report.done) == 30


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("refresh", [False, True])
async def test_corrected_query_deletes_nothing(client: Client, folder: Path, refresh: bool) -> None:
    """Files with rows: only `replace` deletes them, also where the last run has written all of them again."""
    metric = (await client.catalogue(IDS[0])).series[0].metric_id
    wrong, right = Select(metric_ids=[metric, f"{metric}x"]), Select(metric_ids=[metric])
    await extract(client, IDS, wrong, Annual(), to=folder, allow_missing=True)
    with pytest.raises(UnknownToAllError):
        await extract(client, IDS, wrong, Annual(), to=folder, refresh=refresh)
    before = contents(folder)
    with pytest.raises(ManifestMismatchError, match="`replace`"):
        await extract(client, IDS, right, Annual(), to=folder)
    assert contents(folder) == before


async def test_fresh_entities_cost_nothing(client: Client, folder: Path) -> None:
    """What was confirmed within the time is not requested, also after a call that failed at once."""
    fresh = partial(extract, client, IDS, Select(), Annual(), to=folder, fresh_for=timedelta(hours=20))
    await extract(client, IDS, Select(), Annual(), to=folder)
    assert (await fresh()).requests == 0
    with pytest.raises(ManifestMismatchError):
        await extract(client, IDS, Select(), Annual(last=2), to=folder)
    assert (await fresh()).requests == 0
    old = await extract(client, IDS, Select(), Annual(), to=folder, fresh_for=timedelta())
    assert old.requests == len(IDS)


async def test_files_count_from_their_requests(
    sandbox: Sandbox, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file counts from its own request, not from the end of its worker's chunk."""
    monkeypatch.setenv("ASYNCFIN_BASE_URL", sandbox.base_url)
    monkeypatch.setenv("ASYNCFIN_TOKEN", sandbox.token)
    with ThreadPoolExecutor(1) as threads:
        await extract(Client.from_env, IDS, Select(), Annual(), to=folder, executor=threads)
    journal = folder.with_name(f"_{folder.name}.journal")
    for entity_id, (_, moment) in json.loads((journal / "confirmed.json").read_text()).items():
        written = datetime.fromtimestamp((folder / f"{entity_id}.parquet").stat().st_mtime, UTC)
        assert datetime.fromisoformat(moment) <= written


@pytest.mark.parametrize("has_rows", [False, True])
async def test_corrected_query_can_have_feed(client: Client, folder: Path, has_rows: bool) -> None:
    """A mistake begins none, and its files without rows need no `replace`."""
    metric = (await client.catalogue(IDS[0])).series[0].metric_id
    wrong, right = Select(metric_ids=[f"{metric}x", *[metric] * has_rows]), Select(metric_ids=metric)
    with pytest.raises(UnknownToAllError):
        await extract(client, IDS, wrong, Annual(), to=folder, history=True)
    report = await extract(client, IDS, right, Annual(), to=folder, history=True, replace=has_rows)
    assert (len(report.done), report.exit_code) == (6, 0)


async def test_failed_entity_may_have_name(client: Client, folder: Path) -> None:
    """Nothing is called unknown then: the failure is the outcome."""
    select = Select(metric_ids="Nonsense")
    report = await extract(client, [IDS[0], UNKNOWN_ID], select, Annual(), to=folder)
    assert (dict(report.unknown), report.exit_code) == ({}, 1)


def test_report_names_most_entities_lack() -> None:
    """Each id or word with the number of entities, and no more than a few of them."""
    few = EntityReport(IDS[0], "done", missing={"metric_ids": ("gen:A", "gen:B")})
    more = EntityReport(IDS[1], "unchanged", missing={"basis": ("segments",), "metric_ids": ("gen:B",)})
    assert str(ExtractReport((few, more), 1.0)).splitlines()[3:] == [
        "missing: metric_ids 'gen:B' in 2 entities",
        "missing: metric_ids 'gen:A' in 1 entity",
        "missing: basis 'segments' in 1 entity",
    ]
    many = EntityReport(IDS[2], "done", missing={"metric_ids": tuple(f"gen:{at}" for at in range(1000))})
    assert str(ExtractReport((many,), 1.0)).splitlines()[-1] == "and 995 more"
