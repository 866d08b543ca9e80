"""Each display of values says which version they are of: as first reported, or as last restated."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from asyncfin import (
    Annual,
    Client,
    Comparison,
    Panel,
    Select,
    concat,
    first_of,
    last_twelve_months,
)
from asyncfin.sandbox import Sandbox

pytest.importorskip("pandas")
pytest.importorskip("polars")
pytest.importorskip("matplotlib").use("Agg")

VERSIONS = ("original", "latest_restated")
# What names a version, as the service writes it and as people read it.
WORDS = {
    "original": {"original", "as first reported"},
    "latest_restated": {"latest_restated", "as last restated"},
}
# NVIDIA's earnings per share of FY2024, before and after a split of its shares.
NUMBERS = {"original": "12.05", "latest_restated": "1.21"}
EPS = Select("EPS", basis="consolidated", cadence="annual")
YEARS = Annual(2022)


def said(text: str) -> set[str]:
    """Return the versions that a text names."""
    return {version for version, words in WORDS.items() if any(word in text for word in words)}


def check(displays: Mapping[str, Mapping[str, str]], *, with_numbers: bool = True) -> None:
    """Check that the display of each version has its number and names this version alone."""
    for version in VERSIONS:
        for name, text in displays[version].items():
            assert said(text) == {version}, (name, text)
            if with_numbers:
                assert re.search(rf"(?<![\d.]){NUMBERS[version]}(?!\d)", text), (name, text)


@pytest.fixture
async def sandbox() -> Any:
    async with Sandbox.demo() as sandbox:
        yield sandbox


@pytest.fixture
async def client(sandbox: Sandbox) -> Any:
    async with Client(sandbox.base_url, sandbox.token) as client:
        yield client


async def query_versions(client: Client, entity_id: str) -> dict[str, Panel]:
    return {
        version: await client.query(entity_id, EPS, YEARS, value_version=version)  # type: ignore[arg-type]
        for version in VERSIONS
    }


def texts_of(shown: Panel | Comparison) -> Iterator[tuple[str, str]]:
    """Yield the texts and HTML of a panel or a comparison, and its JSON."""
    kind = type(shown).__name__
    yield f"str of a {kind}", str(shown)
    yield f"HTML of a {kind}", shown._repr_html_()
    for unit in ("millions", None):
        yield f"{kind}.show({unit!r})", str(shown.show(unit=unit))  # type: ignore[arg-type]
        yield f"HTML of {kind}.show({unit!r})", shown.show(unit=unit)._repr_html_()  # type: ignore[arg-type]
    yield f"{kind}.to_json()", shown.to_json()
    yield f"{kind}.to_json(indent=2)", shown.to_json(indent=2)


def frames_of(shown: Panel | Comparison) -> Iterator[tuple[str, str]]:
    """Yield all tables: their cells, and what their metadata or `attrs` say."""
    kind = type(shown).__name__
    for layout in ("long", "wide"):
        for labels in (False, True) if layout == "wide" else (False,):
            name = f"{kind}, {layout}, labels={labels}"
            table = shown.to_arrow(layout, labels=labels)  # type: ignore[arg-type]
            frame = shown.to_pandas(layout, labels=labels)  # type: ignore[arg-type]
            yield f"Arrow table of {name}", f"{table.to_pydict()} {table.schema.metadata}"
            yield f"pandas frame of {name}", f"{frame.to_string()} {frame.attrs}"
        long = shown.to_polars("long", labels=False)
        yield f"polars frame of {kind}", str(long.select("number", "asked_version").rows())


async def test_texts_and_tables_of_panels(client: Client, sandbox: Sandbox) -> None:
    panels = await query_versions(client, sandbox.entities[1])
    several = {
        version: await client.compare(sandbox.entities, EPS, YEARS, value_version=version)  # type: ignore[arg-type]
        for version in VERSIONS
    }
    displays = {
        version: {
            **dict(texts_of(panels[version])),
            **dict(texts_of(several[version])),
            **dict(frames_of(panels[version])),
            **dict(frames_of(several[version])),
            "HTML of a Series": panels[version].one()._repr_html_(),
            "repr of values": str(panels[version].one().values),
            "first_of": str(first_of(panels[version], "EPS").to_pydict()),
            "concat": str(concat([panels[version]]).to_pydict()),
        }
        for version in VERSIONS
    }
    assert len(displays["original"]) > 25
    check(displays)
    rows = {
        version: {
            "str of a Series": str(panels[version].one()),
            "last_twelve_months": str(last_twelve_months(panels[version]).to_pydict()),
            "Plan": str(await client.plan(sandbox.entities[1], EPS, YEARS, value_version=version)),  # type: ignore[arg-type]
            **dict(plots_of(panels[version], several[version])),
        }
        for version in VERSIONS
    }
    check(rows, with_numbers=False)


def plots_of(panel: Panel, several: Comparison) -> Iterator[tuple[str, str]]:
    for shown in (panel, several):
        axes = shown.plot()
        yield f"plot of a {type(shown).__name__}", axes.get_title(loc="left").replace("\n", " ")


async def test_both_versions_side_by_side(client: Client, sandbox: Sandbox) -> None:
    """Each column, line and row says which."""
    panels = await query_versions(client, sandbox.entities[1])
    original, restated = panels.values()
    for labels in (False, True):
        *_, first, last = concat([original, restated], "wide", labels=labels).column_names
        assert [said(first), said(last)] == [{"original"}, {"latest_restated"}]
    for row in concat([original, restated]).to_pylist():
        if row["period_label"] == "FY2024":
            assert row["text"] == NUMBERS[row["asked_version"]]
    axes = restated.plot(original.plot())
    assert said(axes.get_title(loc="left").replace("\n", " ")) == set(VERSIONS)
    lines = {
        text.get_text(): max(line.get_ydata())
        for text, line in zip(axes.get_legend().get_texts(), axes.get_lines(), strict=True)
    }
    assert lines == {"as first reported": 12.05, "as last restated": 4.93}
