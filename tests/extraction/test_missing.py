"""Ids that the catalogues of some entities, or of all, do not have."""

from pathlib import Path

import pytest

from asyncfin import Annual, Client, Select, SelectionError, extract
from asyncfin.extraction.report import EntityReport, ExtractReport
from asyncfin.model.catalogue import Catalogue
from tests.extraction.conftest import IDS


@pytest.fixture
async def catalogues(client: Client) -> list[Catalogue]:
    return [await client.catalogue(entity_id) for entity_id in IDS]


async def test_unknown_names_have_close_matches(
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


def test_report_names_most_entities_lack() -> None:
    """Each id or word with the number of entities, and no more than a few of them."""
    few = EntityReport(IDS[0], "done", missing={"metric_ids": ("gen:A", "gen:B")})
    more = EntityReport(IDS[1], "unchanged", missing={"basis": ("segments",), "metric_ids": ("gen:B",)})
    assert str(ExtractReport((few, more), 1.0)).splitlines()[3:] == [
        "entities that do not have all of the question: 2",
        "missing: metric_ids 'gen:B' in 2 entities",
        "missing: metric_ids 'gen:A' in 1 entity",
        "missing: basis 'segments' in 1 entity",
    ]
    many = EntityReport(IDS[2], "done", missing={"metric_ids": tuple(f"gen:{at}" for at in range(1000))})
    assert str(ExtractReport((many,), 1.0)).splitlines()[-1] == "and 995 more"
