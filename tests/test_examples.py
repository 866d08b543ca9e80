"""The recipes under examples/ do what they say, each where its library is installed."""

import asyncio
import importlib.util
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from asyncfin import Annual, Client
from asyncfin.sandbox import Sandbox

EXAMPLES = Path(__file__).parents[1] / "examples"


def example(name: str, library: str) -> ModuleType:
    """The module of an example; the test is skipped where its library is missing."""
    pytest.importorskip(library, reason=f"{library} is not installed")
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dlt looks for it there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sandbox]:
    """The demo's companies, in a thread of their own; the environment names it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    sandbox = Sandbox.demo()
    try:
        asyncio.run_coroutine_threadsafe(sandbox.start(), loop).result()
        monkeypatch.setenv("ASYNCFIN_BASE_URL", sandbox.base_url)
        monkeypatch.setenv("ASYNCFIN_TOKEN", sandbox.token)
        yield sandbox
    finally:
        asyncio.run_coroutine_threadsafe(sandbox.aclose(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def expected(module: ModuleType, sandbox: Sandbox) -> list[tuple[str, str, str, float]]:
    """What a query of each company answers."""
    found = []
    async with Client(sandbox.base_url, sandbox.token) as client:
        for entity_id in sandbox.entities:
            panel = await client.query(entity_id, module.SELECT, Annual())
            found += [
                (entity_id, series.series_id, period.label, value.number)
                for series in panel
                for period, value in series.observations()
            ]
    return sorted(found)


def read(table: Any) -> list[tuple[Any, ...]]:
    columns = ("entity_id", "series_id", "period_label", "number")
    return sorted(zip(*(table.column(name).to_pylist() for name in columns), strict=True))


def test_the_process_pool_writes_one_file_a_company(service: Sandbox, tmp_path: Path) -> None:
    """The process pool writes one file a company, and finds nothing changed the second time."""
    module, parquet = example("process_pool", "pyarrow"), pytest.importorskip("pyarrow.parquet")
    for state in ("done", "unchanged"):
        report = asyncio.run(module.night(str(tmp_path / "night"), list(service.entities)))
        assert {each.state for each in report.entities} == {state}
    assert read(parquet.read_table(tmp_path / "night")) == asyncio.run(expected(module, service))


def test_the_delta_table_is_brought_up_to_date(service: Sandbox, tmp_path: Path) -> None:
    """Only companies that have changed are read again."""
    module = example("delta_lake", "deltalake")
    table = str(tmp_path / "figures")
    assert asyncio.run(module.night(table, list(service.entities))) == len(service.entities)
    assert read(module.DeltaTable(table).to_pyarrow_table()) == asyncio.run(expected(module, service))
    assert asyncio.run(module.night(table, list(service.entities))) == 0


def test_the_dlt_resource_is_incremental(
    service: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run loads nothing."""
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
    monkeypatch.chdir(tmp_path)
    module, duckdb = example("dlt_resource", "dlt"), pytest.importorskip("duckdb")
    pipeline = module.dlt.pipeline(
        "companies",
        destination=module.dlt.destinations.duckdb(str(tmp_path / "companies.duckdb")),
        dataset_name="figures_of",
        pipelines_dir=str(tmp_path / "pipelines"),
    )
    for requests in (True, False):
        before = len(service.log)
        pipeline.run(module.figures(list(service.entities)))
        asked = {served.operation for served in service.log[before:]}
        assert ("query" in asked) == requests
    with duckdb.connect(str(tmp_path / "companies.duckdb")) as connection:
        ((rows,),) = connection.execute("SELECT count(*) FROM figures_of.figures").fetchall()
    assert rows == len(asyncio.run(expected(module, service)))


def test_ray_tasks_read_every_company(service: Sandbox) -> None:
    """Each with a client of its own."""
    module = example("ray_tasks", "ray")
    assert read(module.night(list(service.entities), 1)) == asyncio.run(expected(module, service))


def test_the_prefect_task_ends_with_the_report(service: Sandbox, tmp_path: Path) -> None:
    """Called without Prefect's server; a second one finds nothing changed."""
    module = example("prefect_flow", "prefect")
    for state in ("3 done", "3 unchanged"):
        assert state in asyncio.run(module.night.fn(str(tmp_path / "night"), list(service.entities)))


def test_the_dask_cluster_writes_to_the_bucket(service: Sandbox, tmp_path: Path) -> None:
    """Here to a folder: its workers are of one machine."""
    module, parquet = example("dask_cluster", "distributed"), pytest.importorskip("pyarrow.parquet")
    with module.Cluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        report = module.night(cluster, str(tmp_path / "night"), list(service.entities))
    assert len(report.done) == len(service.entities)
    assert read(parquet.read_table(tmp_path / "night")) == asyncio.run(expected(module, service))


def test_no_token_goes_through_dask(service: Sandbox, tmp_path: Path) -> None:
    """The token is neither in Dask's graph, nor in results, nor in any log of the cluster."""
    module, cloudpickle = example("dask_cluster", "distributed"), pytest.importorskip("cloudpickle")
    plugins = importlib.import_module("distributed.diagnostics.plugin")
    seen: list[bytes] = []

    class Watch(plugins.SchedulerPlugin):  # type: ignore[misc, name-defined]
        def update_graph(self, scheduler: Any, **graph: Any) -> None:
            seen.extend(cloudpickle.dumps(scheduler.tasks[key].run_spec) for key in graph["keys"])

    with module.Cluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        cluster.cluster.scheduler.add_plugin(Watch())
        report = module.night(cluster, str(tmp_path / "night"), list(service.entities))
        logs = repr((cluster.get_worker_logs(), cluster.get_scheduler_logs(), cluster.get_events()))
    found = b"".join([*seen, cloudpickle.dumps(report), logs.encode()])
    assert found.count(service.entities[0].encode()) >= 2
    assert b"read_chunk" in found
    assert service.token.encode() not in found
