"""Section 4 by the client against the independent service: the sandbox may share a misreading."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from asyncfin import (
    Client,
    DatasetChangedError,
    Exact,
    FiscalRange,
    Period,
    Query,
    ScopeRef,
    Trailing,
    ValidationFailedError,
)
from tests.services.independent import PATHS, TOKEN, VERSIONS, Key, Publication, Service, serving

ALL_PATHS = [tuple(ScopeRef(**reference) for reference in path) for path in PATHS]
LABELS = ("FY2021", "FY2021-Q3", "FY2022-H1")
FISCAL_ENDS = range(2021 * 12 + 4, 2022 * 12 + 6 + 1)


@pytest.fixture
def service() -> Service:
    return Service(7, entities=1)


@pytest.fixture
def publication(service: Service) -> Publication:
    (entity,) = service.entities.values()
    return entity.publication


@pytest.fixture
async def client(service: Service) -> AsyncIterator[Client]:
    async with serving(service) as base_url, Client(base_url, TOKEN) as session:
        yield session


def query(publication: Publication, **fields: Any) -> Query:
    """Return a query for everything but for what is given."""
    metric_ids = sorted({series["metric_id"] for series in publication.series})[:50]
    whole = {"metric_ids": metric_ids, "scope_combinations": ALL_PATHS, "periods": FiscalRange(2020, 2023)}
    return Query(**{**whole, **fields})


def key_of(period: Period) -> Key:
    return period.year, period.end_month, period.duration_months


async def read_texts(client: Client, publication: Publication, sent: Query) -> dict[tuple[str, Key], str]:
    """Return the texts of all pages. Each names its series, version and period."""
    return {
        (series.series_id, key_of(period)): value.text
        async for page in client.query_pages(publication.entity_id, sent, page_size=17)
        for series in page.series
        for period, value in series.observations()
    }


async def test_dataset_is_the_current_publication(client: Client, publication: Publication) -> None:
    """4.1."""
    dataset = await client.dataset(publication.entity_id)
    assert dataset.dataset_id == publication.dataset_id
    assert dataset.name == publication.head["name"]


async def test_catalogue_has_each_series_once(client: Client, publication: Publication) -> None:
    """4.2 rules 1, 2 and 4, with its complete scope path, over pages of seven."""
    pages = client.catalogue_pages(publication.entity_id, page_size=7)
    series = [
        (listed, group.reporting_group_id)
        async for page in pages
        for group in page.groups
        for listed in group.series
    ]
    assert sorted(
        (
            listed.series_id,
            listed.metric_id,
            group_id,
            [{"scope_group_id": ref.scope_group_id, "scope_id": ref.scope_id} for ref in listed.scopes],
        )
        for listed, group_id in series
    ) == sorted(
        (listed["series_id"], listed["metric_id"], listed["reporting_group_id"], listed["scopes"])
        for listed in publication.series
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("groups", [None, ("annual",), ("annual", "quarterly")])
@pytest.mark.parametrize("mode", ["exact", "fiscal_range", "trailing 4", "trailing 6"])
async def test_query_selects_what_it_names(
    client: Client, publication: Publication, mode: str, groups: tuple[str, ...] | None, version: str
) -> None:
    """4.3 rules 1 to 3: the series by metric, path and group, the periods by each mode, one version."""
    periods: Any = {
        "exact": Exact(list(map(Period.parse, LABELS))),
        "fiscal_range": FiscalRange((2021, 4), (2022, 6)),
        "trailing 4": Trailing(4),
        "trailing 6": Trailing(6),
    }[mode]
    sent = query(publication, periods=periods, reporting_group_ids=groups, value_version=version)
    rows = {
        series["series_id"]: publication.values[version].get(series["series_id"], {})
        for series in publication.series
        if series["metric_id"] in sent.metric_ids
        and series["reporting_group_id"] in (groups or ("annual", "quarterly"))
    }
    latest = max(12 * year + month for row in rows.values() for year, month, _ in row)
    selected = {
        "exact": lambda key: Period(*key).label in LABELS,
        "fiscal_range": lambda key: 12 * key[0] + key[1] in FISCAL_ENDS,
        "trailing 4": lambda key: latest - 4 < 12 * key[0] + key[1] <= latest,
        "trailing 6": lambda key: latest - 6 < 12 * key[0] + key[1] <= latest,
    }[mode]
    expected = {
        (series_id, key): publication.text(series_id, version, key)
        for series_id, row in rows.items()
        for key in row
        if selected(key)
    }
    assert len(expected) > 20
    assert await read_texts(client, publication, sent) == expected


async def test_query_that_matches_nothing(client: Client, publication: Publication) -> None:
    """4.3 rule 4: it is no error."""
    periods = Exact([Period(1999, 12, 12)])
    assert await read_texts(client, publication, query(publication, periods=periods)) == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"metric_ids": ["Rainfall"]},
        {"scope_combinations": [ALL_PATHS[-1][::-1]]},
        {"scope_combinations": [ALL_PATHS[-1][1:]]},
    ],
)
async def test_unknown_ids_are_rejected(
    client: Client, publication: Publication, fields: dict[str, Any]
) -> None:
    """4.3 rule 5: a path counts as a whole and in its order."""
    with pytest.raises(ValidationFailedError):
        await read_texts(client, publication, query(publication, **fields))


async def test_changed_publication_is_rejected(
    client: Client, service: Service, publication: Publication
) -> None:
    """4.2 rule 3 and 4.3 rule 6."""
    pin = publication.dataset_id
    service.publish(publication.entity_id, 1)
    with pytest.raises(DatasetChangedError):
        await read_texts(client, publication, query(publication, expected_dataset_id=pin))
    with pytest.raises(DatasetChangedError):
        async for _ in client.catalogue_pages(publication.entity_id, expected_dataset_id=pin):
            pass
    assert len(service.answers_409) == 2
    assert (await client.dataset(publication.entity_id)).dataset_id != pin
