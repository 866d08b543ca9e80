"""Entities that have nothing of the question, and entities that do not have its periods (yet)."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from asyncfin import (
    Annual,
    Client,
    Exact,
    ExtractProgress,
    FiscalRange,
    Quarterly,
    Select,
    SelectionError,
    Trailing,
    UnknownToAllError,
    extract,
    extract_cost,
    read_entity,
)
from asyncfin.sandbox import Sandbox
from tests.extraction.conftest import FIRST, IDS, UNKNOWN_ID, annual, names, rows
from tests.handmade import ENTITY_ID, dataset


@pytest.fixture
def threads(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[Executor]:
    monkeypatch.setenv("ASYNCFIN_BASE_URL", sandbox.base_url)
    monkeypatch.setenv("ASYNCFIN_TOKEN", sandbox.token)
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pytest.mark.parametrize("executor", [False, True])
@pytest.mark.parametrize(
    ("select", "reason"),
    [
        (Select(label="nosuchlabel"), {"label": ("nosuchlabel",)}),
        (Select(where=lambda series: False, name="none of them"), {"where": ("none of them",)}),
        (Select("Nonsense"), {"metric_ids": ("Nonsense",)}),
    ],
    ids=["label", "where", "metric"],
)
async def test_a_question_of_which_no_entity_has_anything_ends_after_three(
    sandbox: Sandbox, client: Client, folder: Path, threads: Any, select: Select, reason: Any, executor: bool
) -> None:
    """The reason is in `missing`, no query is sent, and the corrected question finds its folder free."""
    if executor and select.where is not None:
        pytest.skip("workers are not sent a predicate")
    options: dict[str, Any] = {"to": folder, "executor": threads} if executor else {"to": folder}
    with pytest.raises(UnknownToAllError, match="none of 3 entities has") as raised:
        await extract(Client.from_env if executor else client, IDS, select, Annual(), **options)
    report = raised.value.extract_report
    assert [each.state for each in report.entities] == ["done", "left", "left", "done", "left", "done"]
    assert [dict(each.missing) for each in report.done] == [reason] * 3
    assert dict(raised.value.missing) == reason
    assert {served.operation for served in sandbox.log} == {"catalogue"}
    await extract(client, IDS, Select(), Annual(), to=folder)
    assert rows(folder) == annual(*FIRST)


@pytest.mark.parametrize("count", [1, 2])
async def test_with_fewer_than_three_entities_the_error_comes_at_the_end(
    client: Client, folder: Path, count: int
) -> None:
    """All are done without rows; a repeated run spends one request each and raises it again."""
    for state in ("done", "unchanged"):
        with pytest.raises(UnknownToAllError, match="label 'nosuchlabel'") as raised:
            await extract(client, IDS[:count], Select(label="nosuchlabel"), Annual(), to=folder)
        assert [each.state for each in raised.value.extract_report.entities] == [state] * count
    assert raised.value.extract_report.requests == count


async def test_conditions_that_exclude_each_other_are_a_reason_too(client: Client, folder: Path) -> None:
    """Each is met by some series, and both by none; next to an unknown id as well."""
    catalogue = await client.catalogue(IDS[0])
    metric, basis = next(
        (metric, series.basis)
        for metric, found in catalogue.by_metric.items()
        for series in catalogue
        if series.basis not in {each.basis for each in found}
    )
    for number, metrics in enumerate(([metric], [metric, "Nonsense"])):
        select = Select(metrics, basis=basis)
        with pytest.raises(UnknownToAllError) as raised:
            await extract(client, IDS[:1], select, Annual(), to=folder.with_name(f"night{number}"))
        missing = raised.value.extract_report.entities[0].missing
        assert missing["select"] == (repr(select),)
        answer = await read_entity(client, IDS[0], select, Annual())
        assert answer.missing == missing
        assert len(answer.panel or ()) == 0


async def test_no_entity_has_anything_for_different_reasons(client: Client, folder: Path) -> None:
    """One does not know the metric, the other has it on another basis only."""
    first, second = [await client.catalogue(each) for each in IDS[:2]]
    metric, basis = next(
        (metric, series.basis)
        for metric, found in first.by_metric.items()
        if metric not in second.by_metric
        for series in first
        if series.basis not in {each.basis for each in found}
    )
    with pytest.raises(UnknownToAllError, match=rf"{metric}.*select|select.*{metric}"):
        await extract(client, IDS[:2], Select(metric, basis=basis), Annual(), to=folder)


async def test_an_estimate_refuses_what_the_sample_has_nothing_of(
    sandbox: Sandbox, client: Client, folder: Path
) -> None:
    """It reads the catalogues of the first, the middle and the last one, and writes nothing."""
    ids = (*IDS[:5], UNKNOWN_ID)  # in place of the last one, which fails, the next in the list: the second
    with pytest.raises(UnknownToAllError, match="none of 3 entities has label 'nosuchlabel'"):
        await extract_cost(client, ids, Select(label="nosuchlabel"), Annual(), to=folder)
    assert {each for each in IDS if any(each in served.path for served in sandbox.log)} == {
        IDS[at] for at in (0, 1, 3)
    }
    assert names(folder.parent) == []


@pytest.mark.parametrize("at", [0, 3, 5])
async def test_one_of_the_sample_with_something_lets_the_run_go_on(
    client: Client, folder: Path, at: int
) -> None:
    """Entities that have nothing are done without rows, and no entity is read twice."""
    first = await client.catalogue(IDS[0])
    metrics = {each: set((await client.catalogue(each)).by_metric) for each in IDS[1:]}
    metric = next(each for each in first.by_metric if sum(each in others for others in metrics.values()) <= 3)
    others = sorted(metrics, key=lambda each: metric in metrics[each])
    ids = [others[0], *others[2:], others[1]]  # the ends do not have it
    ids.insert(at, IDS[0])
    assert ids[at] == IDS[0]
    report = await extract(client, ids, Select(metric), Annual(), to=folder)
    assert [each.state for each in report.entities] == ["done"] * len(IDS)
    missing = {each: {} if metric in known else {"metric_ids": (metric,)} for each, known in metrics.items()}
    assert {each.entity_id: dict(each.missing) for each in report.done} == {IDS[0]: {}} | missing


async def test_an_entity_of_the_sample_that_fails_is_replaced_by_the_next(
    client: Client, folder: Path
) -> None:
    """Three entities that were read decide; after the last of the list comes the first."""
    ids = ("O-" + "d" * 32, "O-" + "e" * 32, *IDS, UNKNOWN_ID)
    with pytest.raises(UnknownToAllError, match="none of 3 entities") as raised:
        await extract(client, ids, Select("Nonsense"), Annual(), to=folder)
    states = [each.state for each in raised.value.extract_report.entities]
    assert states == ["failed", "failed", "done", "done", "done", "left", "left", "left", "failed"]


async def test_a_run_that_is_stopped_in_its_sample_says_nothing_of_names(
    client: Client, folder: Path
) -> None:
    """The others of the sample may have them."""
    stop = asyncio.Event()

    def watch(progress: ExtractProgress) -> None:
        if progress.done:
            stop.set()

    report = await extract(client, IDS, Select("Nonsense"), Annual(), to=folder, stop=stop, progress=watch)
    assert report.left
    assert dict(report.unknown) == {}


LATE = [
    (Exact("FY2099"), ("FY2099",)),
    (Exact(["FY2099", "FY2098"]), ("FY2098", "FY2099")),
    (Annual(2099), None),
    (FiscalRange(2099), None),
]


@pytest.mark.parametrize(("periods", "labels"), LATE, ids=[type(each).__name__ for each, _ in LATE])
async def test_missing_periods_are_not_a_failure_and_cost_one_request_the_next_night(
    sandbox: Sandbox, client: Client, folder: Path, periods: Any, labels: tuple[str, ...] | None
) -> None:
    """Each entity is done, with a file without rows; no run ends early, and each raises at its end."""
    for state in ("done", "unchanged"):
        since = len(sandbox.log)
        with pytest.raises(UnknownToAllError, match="none of the 6 entities has periods") as raised:
            await extract(client, IDS, Select(), periods, to=folder)
        report = raised.value.extract_report
        assert [each.state for each in report.entities] == [state] * len(IDS)
        (missing,) = {each.missing["periods"] for each in report.entities}
        assert len(missing) == 1 if labels is None else sorted(missing) == sorted(labels)
        if state == "unchanged":
            assert len(sandbox.log) - since == len(IDS)
    assert len(names(folder)) == len(IDS)
    assert rows(folder) == []


async def test_periods_that_only_some_entities_have_are_no_error(
    sandbox: Sandbox, client: Client, folder: Path
) -> None:
    """The others are done without rows; nothing is read again the next night."""
    catalogues = [await client.catalogue(each) for each in IDS]
    first, second = next(
        (first, second)
        for first in catalogues
        for second in catalogues
        if set(first.periods) - set(second.periods)
    )
    (only, *_) = set(first.periods) - set(second.periods)
    for _ in range(2):
        since = len(sandbox.log)
        ids = (second.entity_id, first.entity_id)
        report = await extract(client, ids, Select(), Exact([only]), to=folder)
        assert [dict(each.missing) for each in report.entities] == [{"periods": (only.label,)}, {}]
        assert [bool(each.rows) for each in report.entities] == [False, True]
    assert len(sandbox.log) - since == 2


async def test_some_of_the_periods_missing_everywhere_are_no_error(client: Client, folder: Path) -> None:
    """`missing` has the labels that a catalogue does not list, and only those."""
    periods = [each for each in (await client.catalogue(IDS[0])).periods if each.duration_months == 12][:1]
    report = await extract(client, IDS[:1], Select(), Exact([*periods, "FY2099"]), to=folder)
    assert [dict(each.missing) for each in report.done] == [{"periods": ("FY2099",)}]
    assert dict(report.unknown) == {}


async def test_a_folder_with_rows_is_never_told_that_its_periods_are_unknown(
    client: Client, folder: Path, sandbox: Sandbox
) -> None:
    """A file of an entity that is not in this run shows that the periods exist."""
    catalogues = [await client.catalogue(each) for each in IDS]
    first, second = next(
        (first, second)
        for first in catalogues
        for second in catalogues
        if set(first.periods) - set(second.periods)
    )
    (only, *_) = set(first.periods) - set(second.periods)
    assert (await extract(client, [first.entity_id], Select(), Exact([only]), to=folder)).rows
    report = await extract(client, [second.entity_id], Select(), Exact([only]), to=folder)
    assert (len(report.done), dict(report.unknown)) == (1, {})
    with pytest.raises(UnknownToAllError):
        await extract(client, [second.entity_id], Select(), Exact([only]), to=folder.with_name("other"))


async def test_nothing_is_said_of_periods_while_an_entity_has_failed(client: Client, folder: Path) -> None:
    """The run is not complete."""
    report = await extract(client, [IDS[0], UNKNOWN_ID], Select(), Exact("FY2099"), to=folder)
    assert (len(report.failed), dict(report.unknown)) == (1, {})


async def test_read_entity_returns_an_empty_panel_and_the_periods(client: Client) -> None:
    """Where `query` refuses the question, it names the periods that the entity does not have."""
    for periods in (Exact("FY2099"), Annual(2099)):
        answer = await read_entity(client, IDS[0], Select(), periods)
        assert answer.panel is not None
        assert (len(answer.panel), list(answer.missing)) == (0, ["periods"])
        with pytest.raises(SelectionError):
            await client.query(IDS[0], Select(), periods)


@pytest.mark.parametrize("periods", [FiscalRange(), Annual(), Quarterly(last=4), Trailing(12)], ids=repr)
@pytest.mark.parametrize("numbers", [{("Sales", "x"): {}}, {}], ids=["no periods", "no series"])
async def test_an_entity_without_periods_or_series_is_done_without_rows(
    periods: Any, numbers: Any, folder: Path
) -> None:
    """All of nothing is no mistake in the question: no query is sent, and nothing is missing."""
    async with Sandbox(dataset(numbers)) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        report = await extract(client, [ENTITY_ID], Select(), periods, to=folder)
        assert {served.operation for served in sandbox.log} == {"catalogue"}
    assert [(each.state, each.rows, dict(each.missing)) for each in report.entities] == [("done", 0, {})]
    assert rows(folder) == []


async def test_all_of_an_entity_without_series_is_nothing(folder: Path) -> None:
    """The catalogue has periods and no series."""
    empty = dataset({}, periods=("FY2023", "FY2024"))
    async with Sandbox(empty) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        report = await extract(client, [ENTITY_ID], Select(), Annual(), to=folder)
    assert [(each.state, each.rows) for each in report.entities] == [("done", 0)]


async def test_a_catalogue_without_series_that_the_client_still_has_is_not_read_again() -> None:
    """The metadata show that it is the current one, as of any other catalogue."""
    async with Sandbox(dataset({})) as sandbox, Client(sandbox.base_url, sandbox.token) as client:
        await client.catalogue(ENTITY_ID)
        await read_entity(client, ENTITY_ID, Select(), Annual())
        assert [served.operation for served in sandbox.log] == ["catalogue", "dataset"]
