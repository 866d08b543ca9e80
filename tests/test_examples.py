"""The recipes under examples/ do what they say, each where its library is installed."""

import asyncio
import importlib.util
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import pytest
from attrs import evolve

from asyncfin import Annual, Client, Select
from asyncfin.sandbox import DatasetFile, Publication, Sandbox
from asyncfin.sandbox.demo import demo_datasets
from tests.generate import generate
from tests.nights import Cell, Key, entity, publication

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
    """A service without companies, in a separate thread; the environment names it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    sandbox = Sandbox()
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


@pytest.fixture
def demo(service: Sandbox) -> Sandbox:
    """The service with the demo's companies."""
    for company in demo_datasets():
        service.publish(company)
    return service


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


def test_process_pool_writes_one_file_company(demo: Sandbox, tmp_path: Path) -> None:
    """The process pool writes one file a company, and finds nothing changed the second time."""
    module, parquet = example("process_pool", "pyarrow"), pytest.importorskip("pyarrow.parquet")
    for state in ("done", "unchanged"):
        report = asyncio.run(module.night(str(tmp_path / "night"), list(demo.entities)))
        assert {each.state for each in report.entities} == {state}
    assert read(parquet.read_table(tmp_path / "night")) == asyncio.run(expected(module, demo))


async def test_companies_are_found_by_their_tags(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first tag with a value in a year, and the companies without any."""
    module = example("capital_expenditure", "pandas")
    monkeypatch.setattr(module, "TAGS", ["GrossProfit", "CostOfRevenue"])
    unknown = "O-" + "0" * 32
    async with Sandbox.demo() as sandbox:
        monkeypatch.setenv("ASYNCFIN_BASE_URL", sandbox.base_url)
        monkeypatch.setenv("ASYNCFIN_TOKEN", sandbox.token)
        companies = await module.read([unknown, *sandbox.entities])
    frame, without = module.tags(companies)
    assert {("Apple", "GrossProfit"), ("Alphabet", "CostOfRevenue")} <= {*frame.index}
    assert ("Alphabet", "GrossProfit") not in {*frame.index}
    assert without == []
    assert list(companies.failed) == [unknown]


def small(entity_id: str, number: int, years: Collection[int] = range(2021, 2024)) -> Publication:
    """Return a publication of two yearly series."""
    cells = {f"FY{year}": Cell(float(year)) for year in years}
    content = {Key(f"S-{metric}", metric): cells for metric in ("Revenue", "NetIncome")}
    return publication(content, of=entity_id, number=number)


async def test_duckdb_table_has_each_company_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run reads what has changed; a company that left is gone."""
    module, duckdb = example("duckdb_table", "duckdb"), pytest.importorskip("duckdb")
    ids = [entity(number) for number in range(20)]
    night, database = str(tmp_path / "night"), str(tmp_path / "figures.duckdb")

    async def run() -> tuple[int, list[tuple[Any, ...]]]:
        before = len(sandbox.log)
        await module.read(night, ids)
        count = module.load(database, night)
        with duckdb.connect(database) as connection:
            table = connection.execute("SELECT entity_id, series_id, period_label FROM figures").fetchall()
        assert len(table) == len({*table}) == count
        return len(sandbox.log) - before, sorted(table)

    # In one loop: a thread of the service would take turns with the client's.
    async with Sandbox() as sandbox:
        monkeypatch.setenv("ASYNCFIN_BASE_URL", sandbox.base_url)
        monkeypatch.setenv("ASYNCFIN_TOKEN", sandbox.token)
        for number, entity_id in enumerate(ids):
            sandbox.publish(small(entity_id, number))
        _, first = await run()
        assert {row[0] for row in first} == {*ids}
        assert await run() == (20, first)
        sandbox.publish(small(ids[0], 1000, range(2022, 2024)))
        del ids[1]
        requests, last = await run()
    assert requests == 19 + 2
    assert {*first} - {*last} == {
        row for row in first if row[0] == entity(1) or (row[0] == ids[0] and row[2] == "FY2021")
    }


def without(company: DatasetFile, number: int, gone: Collection[str] | None) -> DatasetFile:
    """Return a company with another publication, in which series do not exist; None: none has a value."""
    publication = company.publications[0]
    groups = tuple(
        group | {"series": [each for each in group["series"] if each["series_id"] not in (gone or ())]}
        for group in publication.groups
    )
    values = {
        series_id: rows if gone is not None else ()
        for series_id, rows in publication.values.items()
        if series_id not in (gone or ())
    }
    following = evolve(publication, dataset_id=str(UUID(int=number)), groups=groups, values=values)
    return evolve(company, publications=(following,))


def nights(
    service: Sandbox, folder: Path, update: Callable[[list[str]], object], table: Callable[[], list[Any]]
) -> None:
    """Compare a table with the files of the extraction, each night.

    Companies lose all rows, lose a series, and leave the list; in between nothing changes.
    """
    duckdb = pytest.importorskip("duckdb")
    companies = [generate(seed, series=12, publications=1) for seed in range(4)]
    for company in companies:
        service.publish(company)
    ids = [each.entity_id for each in companies]

    def compare() -> int:
        before = len(service.log)
        update(ids)
        sql = f"SELECT entity_id, series_id, period_label, number FROM '{folder}/*.parquet'"
        with duckdb.connect() as connection:
            assert sorted(table()) == sorted(connection.execute(sql).fetchall()) != []
        return sum(each.operation == "query" for each in service.log[before:])

    assert compare() == len(ids)
    assert compare() == 0
    valued = next(series_id for series_id, rows in companies[1].publications[0].values.items() if rows)
    service.publish(without(companies[0], 1, None))
    service.publish(without(companies[1], 2, {valued}))
    assert compare() == 2
    assert {entity_id for entity_id, *_ in table()} == set(ids[1:])
    assert valued not in {series_id for entity_id, series_id, *_ in table() if entity_id == ids[1]}
    del ids[2]
    assert compare() == 0
    assert {entity_id for entity_id, *_ in table()} == {ids[1], ids[2]}


def test_delta_table_follows_change_feed(service: Sandbox, tmp_path: Path) -> None:
    """Deletions included; a night without changes commits nothing."""
    module = example("delta_lake", "deltalake")
    module.SELECT = Select()
    name, night = str(tmp_path / "figures"), str(tmp_path / "night")
    runs: list[list[str]] = []

    nights(
        service,
        tmp_path / "night",
        lambda ids: runs.append(asyncio.run(module.update(name, night, ids))),
        lambda: read(module.DeltaTable(name).to_pyarrow_table()),
    )
    assert [len(each) for each in runs] == [1, 0, 1, 1]
    assert len({each["version"] for each in module.DeltaTable(name).history()}) == 3


def test_dlt_resource_follows_change_feed(
    service: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deletions included; a night without changes loads nothing."""
    module, pipeline, loaded = dlt_pipeline(tmp_path, monkeypatch)
    night = str(tmp_path / "night")

    def update(ids: list[str]) -> None:
        asyncio.run(module.update(night, ids))
        pipeline.run(module.figures(night))

    columns = "entity_id, series_id, period_label, number"
    nights(service, tmp_path / "night", update, lambda: loaded(columns))


def dlt_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, Any, Any]:
    """The recipe's module, a pipeline into DuckDB, and a function that reads what it has loaded."""
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
    monkeypatch.chdir(tmp_path)
    module, duckdb = example("dlt_resource", "dlt"), pytest.importorskip("duckdb")
    module.SELECT = Select()
    pipeline = module.dlt.pipeline(
        "companies",
        destination=module.dlt.destinations.duckdb(str(tmp_path / "companies.duckdb")),
        dataset_name="figures_of",
        pipelines_dir=str(tmp_path / "pipelines"),
    )

    def rows(columns: str) -> list[tuple[Any, ...]]:
        with duckdb.connect(str(tmp_path / "companies.duckdb")) as connection:
            found: list[tuple[Any, ...]] = connection.execute(
                f"SELECT {columns} FROM figures_of.figures"
            ).fetchall()
        return sorted(found)

    return module, pipeline, rows


def test_ray_tasks_read_every_company(demo: Sandbox) -> None:
    """Each with a separate client."""
    module = example("ray_tasks", "ray")
    assert read(module.night(list(demo.entities), 1)) == asyncio.run(expected(module, demo))


def test_prefect_task_ends_with_report(demo: Sandbox, tmp_path: Path) -> None:
    """Called without Prefect's server; a second one finds nothing changed."""
    module = example("prefect_flow", "prefect")
    for state in ("3 done", "3 unchanged"):
        assert state in asyncio.run(module.night.fn(str(tmp_path / "night"), list(demo.entities)))


def test_dask_cluster_writes_to_bucket(demo: Sandbox, tmp_path: Path) -> None:
    """Here to a folder: its workers are of one machine."""
    module, parquet = example("dask_cluster", "distributed"), pytest.importorskip("pyarrow.parquet")
    with module.Cluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        report = module.night(cluster, str(tmp_path / "night"), list(demo.entities))
    assert len(report.done) == len(demo.entities)
    assert read(parquet.read_table(tmp_path / "night")) == asyncio.run(expected(module, demo))


def test_no_token_goes_through_dask(demo: Sandbox, tmp_path: Path) -> None:
    """The token is neither in Dask's graph, nor in results, nor in any log of the cluster."""
    module, cloudpickle = example("dask_cluster", "distributed"), pytest.importorskip("cloudpickle")
    plugins = importlib.import_module("distributed.diagnostics.plugin")
    seen: list[bytes] = []

    class Watch(plugins.SchedulerPlugin):  # type: ignore[misc, name-defined]
        def update_graph(self, scheduler: Any, **graph: Any) -> None:
            seen.extend(cloudpickle.dumps(scheduler.tasks[key].run_spec) for key in graph["keys"])

    with module.Cluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster:
        cluster.cluster.scheduler.add_plugin(Watch())
        report = module.night(cluster, str(tmp_path / "night"), list(demo.entities))
        logs = repr((cluster.get_worker_logs(), cluster.get_scheduler_logs(), cluster.get_events()))
    found = b"".join([*seen, cloudpickle.dumps(report), logs.encode()])
    assert found.count(demo.entities[0].encode()) >= 2
    assert b"read_chunk" in found
    assert demo.token.encode() not in found
