"""Ids that no entity has are reported early: by the estimate, and after three entities of a first run."""

import logging
from pathlib import Path

import pytest

from asyncfin import (
    Annual,
    ArgumentError,
    Client,
    ExtractProgress,
    Select,
    SelectionError,
    UnknownToAllError,
    extract,
    extract_cost,
)
from asyncfin.model.series import triple
from asyncfin.sandbox import Sandbox
from tests.extraction.conftest import FIRST, IDS, annual, names, rows


async def test_an_estimate_that_reads_the_catalogues_refuses_what_no_entity_has(
    client: Client, folder: Path
) -> None:
    """With the catalogues an estimate refuses what no entity has, and names what comes close."""
    catalogue = await client.catalogue(IDS[0])
    asked = Select(metric_ids=f"{catalogue.series[0].metric_id}x")
    with pytest.raises(SelectionError, match=r"none of the 6 entities has metric_ids 'gen:.*x'.*close: gen:"):
        await extract_cost(client, IDS, asked, Annual(), to=folder, read_catalogues=True)
    with pytest.raises(UnknownToAllError, match="none of 3 entities has metric_ids"):
        await extract_cost(client, IDS, asked, Annual(), to=folder)


async def test_an_estimate_over_finished_files_knows_what_they_lack(client: Client, folder: Path) -> None:
    """An estimate over finished files knows what they do not have without reading catalogues again."""
    asked = Select(metric_ids=[(await client.catalogue(IDS[0])).series[0].metric_id, "Nonsense"])
    with pytest.raises(UnknownToAllError):
        await extract(client, IDS, asked, Annual(), to=folder)
    with pytest.raises(SelectionError, match="none of the 6 entities has metric_ids 'Nonsense'"):
        await extract_cost(client, IDS, asked, Annual(), to=folder)


async def test_a_misspelt_id_ends_the_run_after_three_entities_and_keeps_the_folder_free(
    sandbox: Sandbox, client: Client, folder: Path
) -> None:
    """The error has what comes close and the report; the corrected question then runs."""
    metric = (await client.catalogue(IDS[0])).series[0].metric_id
    with pytest.raises(
        UnknownToAllError, match=rf"none of 3 entities.*close: {metric}.*run it again"
    ) as raised:
        await extract(client, IDS, Select(f"{metric}x"), Annual(), to=folder)
    report = raised.value.extract_report
    assert [each.state for each in report.entities] == ["done", "left", "left", "done", "left", "done"]
    assert report.rows == 0
    assert dict(raised.value.missing) == {"metric_ids": (f"{metric}x",)}
    assert "query" not in {served.operation for served in sandbox.log}
    again = await extract(client, IDS, Select(), Annual(), to=folder)
    assert len(again.done) == len(IDS)
    assert rows(folder) == annual(*FIRST)


@pytest.mark.parametrize("at", range(len(IDS)))
async def test_a_rare_id_can_be_asked_for_all_the_same(client: Client, folder: Path, at: int) -> None:
    """A rare id is found if the first, the middle or the last entity has it, and else by a second run."""
    catalogues = [await client.catalogue(entity_id) for entity_id in IDS]
    rare = next(
        series
        for series in catalogues[at]
        if sum(triple(series) in catalogue.by_triple for catalogue in catalogues) == 1
    )
    states, asked = ["done"] * len(IDS), Select.of(rare)
    if at in (1, 2, 4):
        with pytest.raises(UnknownToAllError):
            await extract(client, IDS, asked, Annual(), to=folder)
        states = ["unchanged", "done", "done", "unchanged", "done", "unchanged"]
    report = await extract(client, IDS, asked, Annual(), to=folder)
    assert [each.state for each in report.entities] == states
    assert [bool(each.missing) for each in report.entities] == [each != at for each in range(len(IDS))]


async def test_an_id_that_the_sample_does_not_have_is_logged_while_the_run_goes_on(
    client: Client, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning and the progress name what the sample does not have, while it has other series."""
    metrics = {series.metric_id for entity_id in IDS for series in await client.catalogue(entity_id)}
    received: list[ExtractProgress] = []
    with caplog.at_level(logging.WARNING, "asyncfin"), pytest.raises(UnknownToAllError):
        await extract(
            client, IDS, Select([*metrics, "Nonsense"]), Annual(), to=folder, progress=received.append
        )
    assert len(names(folder)) == len(IDS)
    assert "none of 3 entities has metric_ids" in caplog.text
    early = [now for now in received if now.unknown and now.done < len(IDS)]
    assert early
    assert "Nonsense" in early[0].unknown["metric_ids"]


async def test_a_report_says_where_each_file_stands(client: Client, folder: Path) -> None:
    """For those that are there; a failed entity has none."""
    unknown_id = "O-" + "e" * 32
    first = await extract(client, [IDS[0], unknown_id], Select(), Annual(), to=folder)
    assert [each.path for each in first.entities] == [str(folder / f"{IDS[0]}.parquet"), None]
    again = await extract(client, IDS[:1], Select(), Annual(), to=folder)
    assert again.entities[0].path == first.entities[0].path


@pytest.mark.parametrize(
    "to", ["s3+x://bucket/prefix", "ftp://host/x", "http://host/x", "S3X:/x", "s3:bucket/x", "AZ:"]
)
async def test_an_address_that_no_store_answers_is_refused_and_makes_no_folder(
    sandbox: Sandbox, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    """An address of an unknown store is refused and never taken for the name of a local folder."""
    monkeypatch.chdir(tmp_path)
    for ask in (extract, extract_cost):
        with pytest.raises(ArgumentError, match=r"to: .*is not an address"):
            await ask(client, IDS, Select(), Annual(), to=to)
    assert (names(tmp_path), sandbox.log) == ([], [])


@pytest.mark.parametrize(
    "to", ["file://host/x", "file:", "file://", "file:night", "file:///x?y", "FILE:///x#y"]
)
async def test_a_file_address_of_no_folder_here_is_refused(
    sandbox: Sandbox, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str
) -> None:
    """A file URL of another machine, without a path, or with a part that would be dropped is refused."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError, match=r"to: .* is not a folder of this machine; write file:///path"):
        await extract(client, IDS, Select(), Annual(), to=to)
    assert (names(tmp_path), sandbox.log) == ([], [])


async def test_a_file_address_is_the_local_folder(client: Client, folder: Path) -> None:
    """A file URL is the local folder that it names, with %20 for a space, and its journal."""
    place = folder.with_name("my night")
    await extract(client, IDS[:1], Select(), Annual(), to=f"file://{folder.parent}/my%20night")
    assert rows(place) == annual(FIRST[0])
    assert len((await extract(client, IDS[:1], Select(), Annual(), to=place)).unchanged) == 1
