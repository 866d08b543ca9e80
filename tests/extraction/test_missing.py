"""Ids that the catalogues of some entities, or of all, do not have."""

from pathlib import Path

import pytest

from asyncfin import Annual, Client, FiscalRange, Select, SelectionError, extract
from asyncfin.extraction.report import EntityReport, ExtractReport
from asyncfin.model.catalogue import Catalogue
from asyncfin.model.series import triple
from asyncfin.sandbox import Sandbox
from tests.extraction.conftest import FIRST, IDS, annual, rows


@pytest.fixture
async def catalogues(client: Client) -> list[Catalogue]:
    return [await client.catalogue(entity_id) for entity_id in IDS]


def uneven(catalogues: list[Catalogue]) -> tuple[str, str]:
    """A metric of the first company and one of the second, each missing in the other."""
    first, second = (set(each.by_metric) for each in catalogues[:2])
    return min(first - second), min(second - first)


async def test_an_entity_is_done_with_what_it_has(
    client: Client, folder: Path, catalogues: list[Catalogue]
) -> None:
    """Each file has the one metric that its entity knows, and the report names the other."""
    metrics = uneven(catalogues)
    report = await extract(client, IDS[:2], Select(metric_ids=metrics), Annual(), to=folder)
    assert [dict(each.missing) for each in report.done] == [
        {"metric_ids": metrics[1:]},
        {"metric_ids": metrics[:1]},
    ]
    ids = {
        (catalogue.entity_id, series.series_id)
        for catalogue, metric in zip(catalogues, metrics, strict=False)
        for series in catalogue.by_metric[metric]
    }
    assert rows(folder) == [row for row in annual(*FIRST[:2]) if row[:2] in ids]


async def test_an_entity_that_knows_none_of_the_ids_is_done_without_rows(
    sandbox: Sandbox, client: Client, folder: Path, catalogues: list[Catalogue]
) -> None:
    """An entity that knows none of the ids costs its catalogue and no query, and is unchanged later."""
    metric, _ = uneven(catalogues)
    report = await extract(client, IDS[:2], Select(metric_ids=metric), Annual(), to=folder)
    assert [bool(each.rows) for each in report.done] == [True, False]
    since = len(sandbox.log)
    again = await extract(client, IDS[:2], Select(metric_ids=metric), Annual(), to=folder)
    assert [dict(each.missing) for each in again.unchanged] == [{}, {"metric_ids": (metric,)}]
    assert len(sandbox.log) == since + 2


async def test_what_no_entity_knows_is_told_with_what_comes_close(
    client: Client, folder: Path, catalogues: list[Catalogue]
) -> None:
    """The message about ids that no entity has names what comes close in a catalogue read by this run."""
    metric = catalogues[0].series[0].metric_id
    asked = Select(f"{metric}x")
    complaint = (
        rf"^the entity does not have metric_ids '{metric}x';"
        rf" metric_ids: {catalogues[0].name} .*'{metric}x' \(close: {metric}\b"
    )
    with pytest.raises(SelectionError, match=complaint):
        await extract(client, IDS[:1], asked, Annual(), to=folder)
    with pytest.raises(SelectionError, match=rf"metric_ids '{metric}x'$"):
        await extract(client, IDS[:1], asked, Annual(), to=folder)


async def test_series_picked_by_hand_from_two_entities_are_told_apart_by_what_they_are(
    client: Client, folder: Path, catalogues: list[Catalogue]
) -> None:
    """Where two entities give one series_id to different series, each file has its own entity's."""
    first, second = catalogues[:2]
    picked = next(
        (one, second[one.series_id])
        for one in first
        if one.series_id in second
        and triple(one) not in second.by_triple
        and triple(second[one.series_id]) not in first.by_triple
    )
    report = await extract(client, IDS[:2], Select.of(picked), FiscalRange(), to=folder)
    read = {(entity_id, series_id) for entity_id, series_id, *_ in rows(folder)}
    assert read == {(entity_id, picked[0].series_id) for entity_id in IDS[:2]}
    assert [each.metric_id in str(dict(report.done[0].missing)) for each in picked] == [False, True]
    assert dict(report.unknown) == {}


def test_a_report_names_what_most_entities_lack() -> None:
    """Each id or word with the number of entities, and no more than a few of them."""
    few = EntityReport(IDS[0], "done", missing={"metric_ids": ("gen:A", "gen:B")})
    more = EntityReport(IDS[1], "unchanged", missing={"basis": ("segments",), "metric_ids": ("gen:B",)})
    assert str(ExtractReport((few, more), 1.0, 0.0)).splitlines()[3:] == [
        "entities that do not have all of the question: 2",
        "missing: metric_ids 'gen:B' in 2 entities",
        "missing: metric_ids 'gen:A' in 1 entity",
        "missing: basis 'segments' in 1 entity",
    ]
    many = EntityReport(IDS[2], "done", missing={"metric_ids": tuple(f"gen:{at}" for at in range(1000))})
    assert str(ExtractReport((many,), 1.0, 0.0)).splitlines()[-1] == "and 995 more"
